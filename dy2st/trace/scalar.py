"""Runtime scalars: Python numbers that are known only when the program runs.

A `RuntimeScalar` stands where eager Python has a bool, an int or a float that was computed from
data or from a loop's index: `int(t)`, `not x.sum() > 0`, `t % 2`, a learning rate that decays. It
is a 0-d value of the program (bool[], i64[] or f64[]), with Python's arithmetic. It meets a tensor
as a Python number does: without a say in the result's element type.

Integers beyond 64 bits wrap around; a float is a double, as in Python.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeGuard

import numpy as np

from dy2st.trace.frames import TracedLoop
from dy2st.trace.signals import NeedsConcrete, Refused, host_number_needed
from dy2st.trace.trace_state import TraceInterface
from dy2st.trace.user_stack import perform, raise_again, user_name
from ir import Value
from ir.messages import Shown
from ir.types import BOOL, F64, I64, Dim, DType, Size

KINDS: dict[DType, type] = {BOOL: bool, I64: int, F64: float}
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
#: a fact: an affine comparison with zero, as the name of the operator and the number on its left;
#: or that a bool of the program is true ("is") or false ("not")
PathCondition = tuple[str, Any]
#: the method of an operator that a table gives to a class of numbers
Operator = Callable[[Any, object], Any]
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
NEGATED.update({"is": "not", "not": "is"})


class Polynomial(Protocol):
    """A `SymInt`, whose module imports this one."""

    dim: Size

    @property
    def loops(self) -> frozenset[TracedLoop]: ...

    @property
    def data(self) -> bool: ...


class RuntimeScalar:
    """`value` is bool[], i64[] or f64[]; `home` the trace.

    `loops` are the loops whose index it follows from; `data` says whether tensors had a part in it.
    `implies` are facts that hold where a bool is true, `implied` facts of which each makes it true.
    `mixed`: data decides whether eager has a bool or a bool tensor here; computing with it, or
    returning it, gives a tensor. `always` is its truth where that is known. `sides`: of an int that
    a branch has decided, the int of each side, with facts of which each says that it ran. `ratio`:
    of a float that is one size by a number, both, for `int(n / 2)`.
    """

    __slots__ = "always data home implied implies loops mixed ratio sides value".split()

    def __init__(
        self,
        value: Value,
        home: TraceInterface,
        loops: frozenset[TracedLoop] = frozenset(),
        data: bool = True,
        implies: frozenset[PathCondition] = frozenset(),
        implied: frozenset[PathCondition] = frozenset(),
    ) -> None:
        self.value, self.home, self.loops, self.data = value, home, loops, data
        self.implies, self.implied = implies, implied
        self.mixed = False
        self.always: bool | None = None
        self.sides: tuple[tuple[object, frozenset[PathCondition]], ...] = ()
        self.ratio: tuple[Dim, int] | None = None

    @property
    def kind(self) -> type:
        return KINDS[self.value.type.dtype]

    __class__ = property(lambda self: self.kind)  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.kind.__name__} computed by the program>"

    def __neg__(self) -> Any:
        return arithmetic(self.home, "subtract", 0, self)

    def __pos__(self) -> RuntimeScalar:
        return self

    def __invert__(self) -> object:
        return -self - 1 if self.kind is not float else NotImplemented

    def __abs__(self) -> RuntimeScalar:
        row = self.home.emit("abs", [self.value], {})
        return like(self, row)

    def __hash__(self) -> NoReturn:  # Python would keep the number itself as the key
        raise stop(self, "a dict key")

    def __round__(self, *digits: object) -> NoReturn:
        raise stop(self, "round")

    def __divmod__(self, other: object) -> tuple[object, object]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[object, object]:
        return other // self, other % self

    __add__: Operator
    __sub__: Operator
    __mul__: Operator
    __floordiv__: Operator
    __mod__: Operator
    __rfloordiv__: Operator
    __rmod__: Operator
    __lt__: Operator
    __le__: Operator
    __gt__: Operator
    __ge__: Operator

    def item(self) -> RuntimeScalar:
        return self

    def __getattr__(self, name: str) -> NoReturn:
        raise attribute(self, name)


RuntimeScalar.__name__ = RuntimeScalar.__qualname__ = "number"


def is_runtime_scalar(x: object) -> TypeGuard[RuntimeScalar]:
    """A number of the program that is not a polynomial."""
    return type(x) is RuntimeScalar


def is_mixed(x: object) -> TypeGuard[RuntimeScalar]:
    return type(x) is RuntimeScalar and x.mixed


def plain(n: RuntimeScalar) -> RuntimeScalar:
    """The same number, where eager surely has a Python number."""
    return RuntimeScalar(n.value, n.home, n.loops, n.data, n.implies, n.implied)


def fixed(x: object) -> object:
    """The truth of a mixed number where it is known, else `x`."""
    return x.always if is_mixed(x) and x.always is not None else x


def settled(x: object) -> Any:
    """A tensor for what may be one, else `x`."""
    return x.home.fake(x.value, True) if is_mixed(x) else x


def under(x: object, facts: frozenset[PathCondition]) -> object:
    """The int that `x` is where `facts` hold, if they single one out that follows from the indexes
    of loops; else `x`."""
    found = x
    while type(found) is RuntimeScalar:
        sides = [q for q, ran in found.sides if not ran.isdisjoint(facts)]
        if len(sides) != 1:
            return x
        found = sides[0]
    return found


def here(x: object) -> object:
    """Like `under`, in the branches around this place."""
    return under(x, x.home.facts_here()) if type(x) is RuntimeScalar and x.sides else x


def like(source: RuntimeScalar, value: Value) -> RuntimeScalar:
    return RuntimeScalar(value, source.home, source.loops, source.data)


def stop(n: RuntimeScalar, use: str) -> BaseException:
    """Return the error for a use that needs the number itself."""
    if not n.data:
        return NeedsConcrete(f"a number that the program computes is needed now ({use})", n.loops)
    name, call = user_name(n), n.home.values.hosted.get(n.value)
    if call is not None:
        return host_number_needed(n.home.where(), name, call, use)
    what = f"'{name}' is computed from a tensor, and" if name else "a number computed from a tensor"
    return Refused(
        f"{what} is needed while the program is traced ({use}).",
        n.home.where(),
        reason="Its value is known only when the program runs.",
        remedy="Compute with it as a tensor, or pass it in as an argument: shapes, list "
        "indices, dict keys and text need Python values.",
    )


def attribute(n: Any, name: str) -> BaseException:
    """The error for an attribute of Python numbers, which would need the value."""
    raise_again(n, name)
    if hasattr(n.__class__, name) and not name.startswith("__"):
        return stop(n, f".{name}")
    return AttributeError(f"'{n.__class__.__name__}' object has no attribute '{name}'")


def needed(n: RuntimeScalar, use: str) -> object:
    """The number itself, for which the program is made then; raises the error for this use."""
    if found := n.home.hooks.known_number(n):
        return found[0]
    raise stop(n, use)


def _needed(f: Callable[..., object], use: str) -> Callable[..., object]:
    return lambda self, *args: f(needed(self, use), *args)


_USES: dict[Callable[..., object], str] = {
    bool: "its truth, in code that is not translated", np.array: "an array", str: "its text",
    operator.index: "an index, a length or a shape", format: "its text",
    int: "a shape, or an int in code that is not translated", math.trunc: "trunc()",
    float: "a float in code that is not translated",
}  # fmt: skip
for _f, _use in _USES.items():
    setattr(RuntimeScalar, f"__{_f.__name__}__", _needed(_f, _use))


# ---------------------------------------------------------------- operands
def value_in(home: TraceInterface, x: object, dtype: DType) -> Value:
    """A Python number, a size or a runtime scalar as a 0-d value of `dtype`."""
    if type(x) is RuntimeScalar:
        have = x.value
    elif is_polynomial(x):
        have = home.dim_value(x.dim)
    else:
        return home.emit("full", [], {"value": KINDS[dtype](x), "dtype": dtype})
    return have if have.type.dtype == dtype else home.emit("cast", [have], {"dtype": dtype})


def kind_of(x: object) -> type | None:
    """bool, int or float; None for anything else."""
    if type(x) is RuntimeScalar:
        return x.kind
    if type(x) in DTYPES:
        return type(x)
    return int if is_polynomial(x) else None


def is_runtime(x: object) -> bool:
    """Whether it is a number that only the program knows."""
    return type(x) is RuntimeScalar or is_polynomial(x)


def is_polynomial(x: object) -> TypeGuard[Polynomial]:
    """Whether it is a `SymInt`."""
    return hasattr(type(x), "dim") and type(x).__name__ == "int"


def sources(*xs: object) -> tuple[frozenset[TracedLoop], bool]:
    """The loops that the numbers follow from, and whether data had a part."""
    symbolic = [x for x in xs if type(x) is RuntimeScalar or is_polynomial(x)]
    loops = frozenset().union(*(x.loops for x in symbolic))
    return loops, any(x.data for x in symbolic)


def make(home: TraceInterface, value: Value, *xs: object) -> RuntimeScalar:
    loops, data = sources(*xs)
    hosted = home.values.hosted
    for x in xs if hosted else ():
        if type(x) is RuntimeScalar and x.value in hosted:
            hosted.setdefault(value, hosted[x.value])
    return RuntimeScalar(value, home, loops, data)


# ---------------------------------------------------------------- arithmetic
ROWS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "pow",
}  # fmt: skip
DIVISIONS = {
    "divide": operator.truediv, "floor_divide": operator.floordiv, "remainder": operator.mod
}  # fmt: skip
BITS = {
    "and": "and", "or": "or", "xor": "xor", "lshift": "left_shift", "rshift": "right_shift"
}  # fmt: skip
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less_than", "le": "less_equal",
    "gt": "greater_than", "ge": "greater_equal",
}  # fmt: skip


def arithmetic(home: TraceInterface, row: str, x: object, y: object) -> object:
    """`x row y` as Python computes it; NotImplemented for operands that are no numbers."""
    a, b = kind_of(x), kind_of(y)
    if a is None or b is None:
        return NotImplemented
    dtype = F64 if float in (a, b) or row == "divide" else I64
    if row == "pow" and type(y) is int and 1 <= y <= 8:
        return functools.reduce(operator.mul, [x] * y)
    if row == "pow" and dtype == I64:
        raise stop(
            y if type(y) is RuntimeScalar else make(home, value_in(home, x, I64), x),
            "an integer power",
        )
    left, right = value_in(home, x, dtype), value_in(home, y, dtype)
    if row in DIVISIONS:
        check_divisor(home, row, float in (a, b), right, y)
    if row == "pow":
        check_power(home, x, y, left, right)
    out = make(home, home.emit(row, [left, right], {}), x, y)
    out.ratio = _ratio(row, x, y) if dtype == F64 else None
    return out


def _ratio(row: str, x: object, y: object) -> tuple[Dim, int] | None:
    """`x row y` as a size by a number, if rounding to doubles leaves its integer part as it is."""
    (n, d), (m, e) = _as_ratio(x), _as_ratio(y)
    if row in ("add", "subtract") and e == 1 and d:
        return (n + m * d if row == "add" else n - m * d), d
    if row == "multiply" and d * e and d * e < 1 << 20 and d * e & (d * e - 1) == 0:
        return n * m, d * e
    return (n, d * m) if row == "divide" and d == e == 1 and type(m) is int and m > 0 else None


def _as_ratio(x: object) -> tuple[Dim, int]:
    """(0, 0) for what is none."""
    if type(x) is RuntimeScalar:
        return x.ratio or (0, 0)
    if is_polynomial(x):
        return x.dim, 1
    exact = type(x) is int or type(x) is float and math.isfinite(x)
    return x.as_integer_ratio() if exact else (0, 0)  # type: ignore[attr-defined,no-any-return]


def bits(home: TraceInterface, row: str, x: object, y: object) -> object:
    """`x row y` on integers of 64 bits, or on bools; NotImplemented for other operands."""
    kinds = {kind_of(x), kind_of(y)}
    if not kinds <= {bool, int}:
        return NotImplemented
    if kinds == {bool} and "shift" not in row:
        left, right = value_in(home, x, BOOL), value_in(home, y, BOOL)
        return make(home, home.emit(f"logical_{row}", [left, right], {}), x, y)
    left, right = value_in(home, x, I64), value_in(home, y, I64)
    if "shift" in row and not (type(y) is int and y >= 0):
        ok = home.emit("greater_equal", [right, value_in(home, 0, I64)], {})
        check(home, ok, "ValueError", "negative shift count")
    return make(home, home.emit(f"bitwise_{row}", [left, right], {}), x, y)


def check_divisor(home: TraceInterface, row: str, floats: bool, value: Value, y: object) -> None:
    """Python raises for a zero; a plain number that is not zero needs no check."""
    if type(y) in (int, float, bool):
        if not y:
            perform(DIVISIONS[row], 1.0 if floats else 1, y)
        return
    zero = value_in(home, 0, value.type.dtype)
    ok = home.emit("not_equal", [value, zero], {})
    try:
        DIVISIONS[row](1.0 if floats else 1, 0)
    except ZeroDivisionError as error:
        check(home, ok, "ZeroDivisionError", str(error))


def check_power(home: TraceInterface, x: Any, y: Any, left: Value, right: Value) -> None:
    """Python raises for a negative power of zero, and has a complex number for a fractional power
    of a negative number. Nothing is checked where a plain number is enough to know."""
    known_base = type(x) in (int, float) and x > 0
    zero = value_in(home, 0.0, F64)
    if not known_base and not (type(y) in (int, float) and y == int(y)):
        whole = home.emit("equal", [right, home.emit("floor", [right], {})], {})
        real = home.emit("logical_or", [home.emit("greater_equal", [left, zero], {}), whole], {})
        check(home, real, "ValueError", "a fractional power of a negative number is complex")
    if not known_base and not (type(y) in (int, float) and y >= 0):
        rises = home.emit("greater_equal", [right, zero], {})
        ok = home.emit("logical_or", [home.emit("not_equal", [left, zero], {}), rises], {})
        check(home, ok, "ZeroDivisionError", "0.0 cannot be raised to a negative power")


def check(
    home: TraceInterface,
    ok: Value,
    error: str,
    message: str,
    caught: bool = True,
    shown: Sequence[tuple[Value, Shown]] = (),
    site: int = 0,
) -> None:
    """The program fails at run time unless `ok`; raises Refused inside of a `try` statement, unless
    its handlers hardly wait for this error (`caught` is false). `shown`: the values in the message,
    which has a HOLE for each. `site`: the number of the error in `trace.endings`, from 1."""
    if home.trying and caught:
        raise Refused(
            f"a {error} that depends on data may be raised inside of a `try` statement.",
            home.where(),
            reason="The choice of the handler would depend on data.",
            remedy="Compute the condition and branch on it instead.",
        )
    attrs: dict[str, object] = {"error": error, "message": message}
    if shown:
        attrs["shown"] = tuple(q for _, q in shown)
    if site:
        attrs["site"] = site
    home.emit("check", [ok, *(v for v, _ in shown)], attrs)


def truncated(n: RuntimeScalar) -> RuntimeScalar:
    """`int(n)` of a float."""
    finite = n.home.emit("isfinite", [n.value], {})
    message = "cannot convert a float that is infinite or NaN to an integer"
    check(n.home, finite, "ValueError", message, caught=False)
    return make(n.home, value_in(n.home, n, I64), n)


def compare(home: TraceInterface, op: str, x: object, y: object) -> Any:
    a, b = kind_of(x), kind_of(y)
    if a is None or b is None:
        return NotImplemented
    if home.inputs.testing:
        known = [home.hooks.known_number(q) if type(q) is RuntimeScalar else () for q in (x, y)]
        if any(known):
            return getattr(operator, op)(*(k[0] if k else q for k, q in zip(known, (x, y))))
    dtype = F64 if float in (a, b) else I64
    left, right = value_in(home, x, dtype), value_in(home, y, dtype)
    return make(home, home.emit(COMPARISONS[op], [left, right], {}), x, y)


def _operator(
    name: str, row: str, swap: bool, of: Callable[[TraceInterface, str, object, object], object]
) -> Callable[[RuntimeScalar, object], object]:
    def method(self: RuntimeScalar, other: object, modulus: object = None) -> object:
        pair = (here(other), here(self)) if swap else (here(self), here(other))
        if not any(type(q) is RuntimeScalar for q in pair):
            return getattr(operator, name)(*pair)
        if modulus is not None:
            return operator.pow(*pair) % modulus
        if is_mixed(self) or is_mixed(other):
            return getattr(operator, name)(*map(settled, pair))
        return of(self.home, row, *pair)

    return method


def _comparison(op: str) -> Callable[[RuntimeScalar, object], object]:
    def method(self: RuntimeScalar, other: object) -> object:
        if is_mixed(self) or is_mixed(other):
            return getattr(operator, op)(settled(self), settled(other))
        x, y = here(self), here(other)
        if not (type(x) is RuntimeScalar or type(y) is RuntimeScalar):
            return getattr(operator, op)(x, y)
        return compare(self.home, op, x, y)

    return method


for _meaning, _table in ((arithmetic, ROWS), (bits, BITS)):
    for _name, _row in _table.items():
        _public = f"{_name}_" if _name in ("and", "or") else _name
        setattr(RuntimeScalar, f"__{_name}__", _operator(_public, _row, False, _meaning))
        setattr(RuntimeScalar, f"__r{_name}__", _operator(_public, _row, True, _meaning))
for _name in COMPARISONS:
    setattr(RuntimeScalar, f"__{_name}__", _comparison(_name))


# ---------------------------------------------------------------- truth
def truth(n: RuntimeScalar) -> RuntimeScalar:
    """Whether a runtime scalar is not zero, as a bool."""
    if n.kind is bool:
        return n
    zero = value_in(n.home, 0, n.value.type.dtype)
    return like(n, n.home.emit("not_equal", [n.value, zero], {}))


def negate(n: RuntimeScalar) -> RuntimeScalar:
    """`not n`."""
    n = truth(n)
    value = n.home.emit("logical_not", [n.value], {})
    implies, implied = negated(known(n, "implied")), negated(known(n, "implies"))
    return RuntimeScalar(value, n.home, n.loops, n.data, implies, implied)


def known(n: RuntimeScalar, name: str) -> frozenset[PathCondition]:
    """`n.implies` or `n.implied`, with the fact that `n` itself is."""
    return getattr(n, name) | {("is", n.value)}


def negated(facts: frozenset[PathCondition]) -> frozenset[PathCondition]:
    return frozenset((NEGATED[op], x) for op, x in facts)


__all__ = [
    "DTYPES", "PathCondition", "RuntimeScalar", "arithmetic", "attribute", "bits", "check",
    "compare", "fixed", "here", "is_mixed", "is_runtime_scalar", "is_runtime", "kind_of", "make",
    "known", "needed", "negate", "negated", "plain", "settled", "sources", "stop", "truncated",
    "truth", "under", "value_in",
]  # fmt: skip
