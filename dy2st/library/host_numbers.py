"""Functions of Python numbers without a row: of numbers that data decides they are host calls.

Python itself computes them on every call, to the bit and with its errors. Where only the index of a
loop decides, the loop is unrolled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dy2st.capture.foreign import computed_number
from dy2st.trace.scalar import is_runtime, kind_of, stop
from dy2st.trace.trace import current

FUNCTIONS: dict[type, list[Callable[..., Any]]] = {
    float: [
        math.pow, math.hypot, math.atan2, math.fmod, math.copysign, math.remainder, math.degrees,
        math.radians, math.log2, math.log10, math.asin, math.acos, math.sinh, math.cosh,
        math.asinh, math.acosh, math.atanh, math.erfc, math.gamma, math.lgamma, math.ldexp,
        math.nextafter, math.ulp,
    ],
    int: [math.gcd, math.lcm, math.isqrt, math.comb, math.perm, math.factorial],
    bool: [math.isnan, math.isinf, math.isfinite, math.isclose],
}  # fmt: skip


def of_numbers(f: Callable[..., Any], kind: type) -> Callable[..., Any]:
    """`f`, which gives a number of this kind."""

    def call(*args: Any, **kwargs: Any) -> Any:
        trace, given = current(), (*args, *kwargs.values())
        numbers = [q for q in given if is_runtime(q)]
        if trace is None or not numbers or not all(map(kind_of, given)):
            return f(*args, **kwargs)
        if not any(q.data for q in numbers):
            raise stop(numbers[0], f"{f.__name__}()")
        return computed_number(trace, f, kind, args, kwargs)

    return call


def logarithm(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`math.log` to another base; `plain` has one argument."""
    based = of_numbers(math.log, float)
    return lambda *args: plain(*args) if len(args) == 1 else based(*args)


def round_(x: Any, *digits: Any, **named: Any) -> Any:
    rest = (*digits, *named.values())
    if not is_runtime(x) and not any(map(is_runtime, rest)):
        return round(x, *digits, **named)
    if kind_of(x) is int and (not rest or rest[0] is None):
        return x
    whole = kind_of(x) is not float or not rest or rest[0] is None
    return of_numbers(round, int if whole else float)(x, *[q for q in rest if q is not None])


HOST_NUMBERS: dict[int, Callable[..., Any]] = {
    id(f): of_numbers(f, kind) for kind, functions in FUNCTIONS.items() for f in functions
}
HOST_NUMBERS[id(round)] = round_
