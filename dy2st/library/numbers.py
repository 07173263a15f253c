"""Builtins on tensors and runtime scalars: int, float, bool, round, math.

`int(t)` of a tensor gives a `RuntimeScalar`: a Python number that is known when the program runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dy2st.branches.cond import settled_condition
from dy2st.capture.foreign import computed_number
from dy2st.state.arrays import tensor_of
from dy2st.state.protocols import special
from dy2st.state.strings import LazyText
from dy2st.state.strings import stop as stop_text
from dy2st.trace import scalar as number
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.item import number as number_in
from dy2st.trace.scalar import DTYPES, is_runtime, is_runtime_scalar, kind_of, stop
from dy2st.trace.symint import floored, is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform
from ir import OPS, Value
from ir.analysis.ranges import never_negative
from ir.types import F64


def of_tensor(trace: Trace, x: object, what: str) -> Any:
    """The one element of a tensor as a Python number."""
    return number_in(trace, lift(trace, x), what)


def converted_to(trace: Trace, x: Any, kind: type) -> Any:
    """`kind(x)` of a tensor or of a number of the program."""
    if kind is bool:
        known = settled_condition(trace, x)
        return number.plain(known) if is_runtime_scalar(known) else known
    n = of_tensor(trace, x, f"the argument of {kind.__name__}()") if isinstance(x, Tensor) else x
    if type(n) in DTYPES:
        return kind(n)
    if kind is int and kind_of(n) is int:
        return n
    if kind is int and kind_of(n) is float:
        whole = rounded(trace, n, math.trunc)
        return number.truncated(n) if whole is None else whole
    return number.make(trace, number.value_in(trace, n, DTYPES[kind]), n)


def rounded(trace: Trace, n: object, how: Callable[..., object]) -> object:
    """A float that is a size by a number, rounded: a size; None for others."""
    dim, by = (n.ratio if is_runtime_scalar(n) else None) or (0, 0)
    if not by or how is math.trunc and not never_negative(dim):
        return None
    whole = floored(trace, dim * -1 if how is math.ceil else dim, by)
    if whole is None:
        return None
    return trace.sym(whole * -1 if how is math.ceil else whole)


def _conversion(kind: type) -> Callable[..., object]:
    def convert(*args: object, **kwargs: object) -> object:
        trace = current()
        args = tuple(map(tensor_of, args))
        if trace is None or len(args) != 1 or kwargs:
            return perform(kind, *args, **kwargs)
        if kind is bool:
            return converted_to(trace, args[0], bool)
        users = special(trace, args[0], f"__{kind.__name__}__")
        x = users[0] if users else args[0]
        if type(x) is LazyText:
            stop_text(x, f"converted by {kind.__name__}()")
        if isinstance(x, Tensor) or runtime(x):
            return converted_to(trace, x, kind)
        return perform(kind, x)

    return convert


def runtime(x: object) -> bool:
    return is_runtime_scalar(x) or is_symint(x)


# ---------------------------------------------------------------- math
#: functions of math on doubles, and their rows
ROWS: dict[Callable[..., object], str] = {
    math.sqrt: "sqrt", math.exp: "exp", math.log: "log", math.sin: "sin", math.cos: "cos",
    math.tanh: "tanh", math.fabs: "abs", math.log1p: "log1p", math.expm1: "expm1", math.tan: "tan",
    math.erf: "erf", math.atan: "atan",
}  # fmt: skip
#: those of NumPy of one number, which are never an error
NUMPY_ROWS: dict[Callable[..., object], str] = {
    np.sqrt: "sqrt", np.exp: "exp", np.log: "log", np.sin: "sin", np.cos: "cos", np.tan: "tan",
    np.tanh: "tanh", np.log1p: "log1p", np.expm1: "expm1", np.arctan: "atan", np.log2: "log2",
    np.log10: "log10", np.floor: "floor", np.ceil: "ceil", np.trunc: "trunc",
}  # fmt: skip
INTEGER_ROWS: dict[Callable[..., object], str] = {
    math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"
}  # fmt: skip


def _math(f: Callable[..., object], row: str, integer: bool) -> Callable[..., object]:
    def call(*args: object) -> object:
        trace = current()
        if trace is None or len(args) != 1 or not (isinstance(args[0], Tensor) or runtime(args[0])):
            return perform(f, *args)
        x = converted_to(trace, args[0], float)
        if type(x) is float:
            return perform(f, x)
        whole = rounded(trace, args[0], f) if integer else None
        if whole is not None:
            return whole
        value = trace.emit(row, [x.value], {})
        if not integer:
            check_result(trace, f.__name__, x.value, value)
        out = number.make(trace, value, x)
        return converted_to(trace, out, int) if integer else out

    return call


def _numpy(f: Callable[..., object], row: str) -> Callable[..., object]:
    """A function of NumPy, of a number of the program: a float, as an element of an array is."""

    def call(*args: object, **kwargs: object) -> object:
        trace = current()
        if trace is None or len(args) != 1 or kwargs or not runtime(args[0]):
            return perform(f, *args, **kwargs)
        x = converted_to(trace, args[0], float)
        return number.make(trace, trace.emit(row, [x.value], {}), x)

    return call


def check_result(trace: Trace, name: str, x: Value, y: Value) -> None:
    """Python raises where `y`, the value at `x`, is infinite or NaN and the limit is not."""
    ok = trace.emit("logical_or", [trace.emit("isfinite", [y], {}), unlimited(trace, name, x)], {})
    error, message = ("ValueError", "math domain error")
    if name in ("exp", "expm1"):
        error, message = ("OverflowError", "math range error")
    number.check(trace, ok, error, message, caught=False)


def unlimited(trace: Trace, name: str, x: Value) -> Value:
    """Return the condition under which a function may be infinite or NaN: at NaN, and at infinities
    that are its limits."""
    odd = trace.emit("isnan", [x], {})
    if name in ("sin", "cos", "tan"):
        return odd
    limit = trace.emit("equal", [x, number.value_in(trace, math.inf, F64)], {})
    odd = trace.emit("logical_or", [odd, limit], {})
    if name == "fabs":
        limit = trace.emit("equal", [x, number.value_in(trace, -math.inf, F64)], {})
        odd = trace.emit("logical_or", [odd, limit], {})
    return odd


# ---------------------------------------------------------------- functions without a row
#: host calls, by what they give: Python computes them on every call. Where only the index of a loop
#: decides, the loop is unrolled.
FUNCTIONS: dict[type, list[Callable[..., object]]] = {
    float: [
        math.pow, math.hypot, math.atan2, math.fmod, math.copysign, math.remainder, math.degrees,
        math.radians, math.log2, math.log10, math.asin, math.acos, math.sinh, math.cosh,
        math.asinh, math.acosh, math.atanh, math.erfc, math.gamma, math.lgamma, math.ldexp,
        math.nextafter, math.ulp,
    ],
    int: [math.gcd, math.lcm, math.isqrt, math.comb, math.perm, math.factorial],
    bool: [math.isnan, math.isinf, math.isfinite, math.isclose],
}  # fmt: skip


def of_numbers(f: Callable[..., object], kind: type) -> Callable[..., object]:
    """`f`, which gives a number of this kind."""

    def call(*args: Any, **kwargs: Any) -> Any:
        trace, given = current(), (*args, *kwargs.values())
        numbers = [q for q in given if is_runtime(q)]
        if trace is None or not numbers or not all(map(kind_of, given)):
            return perform(f, *args, **kwargs)
        if not any(q.data for q in numbers):
            raise stop(numbers[0], f"{f.__name__}()")
        return computed_number(trace, f, kind, args, kwargs)

    return call


def logarithm(plain: Callable[..., object]) -> Callable[..., object]:
    """`math.log` to another base; `plain` has one argument."""
    based = of_numbers(math.log, float)
    return lambda *args: plain(*args) if len(args) == 1 else based(*args)


def round_(x: object, *digits: object, **named: object) -> object:
    rest = (*digits, *named.values())
    if not is_runtime(x) and not any(map(is_runtime, rest)):
        return perform(round, x, *digits, **named)
    if kind_of(x) is int and (not rest or rest[0] is None):
        return x
    whole = kind_of(x) is not float or not rest or rest[0] is None
    return of_numbers(round, int if whole else float)(x, *[q for q in rest if q is not None])


HOST_NUMBERS: dict[int, Callable[..., object]] = {
    id(f): of_numbers(f, kind) for kind, functions in FUNCTIONS.items() for f in functions
}
HOST_NUMBERS[id(round)] = round_


def _functions() -> dict[int, Callable[..., object]]:
    out: dict[int, Callable[..., object]] = {
        id(kind): _conversion(kind) for kind in (bool, int, float)
    }
    out.update(HOST_NUMBERS)
    for table, integer in ((ROWS, False), (INTEGER_ROWS, True)):
        out.update((id(f), _math(f, row, integer)) for f, row in list(table.items()) if row in OPS)
    out.update((id(f), _numpy(f, row)) for f, row in NUMPY_ROWS.items() if row in OPS)
    out[id(math.log)] = logarithm(out[id(math.log)])
    return out


NUMBER_FUNCTIONS = _functions()
__all__ = ["NUMBER_FUNCTIONS"]
