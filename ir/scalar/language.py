"""The scalar language in which elementwise kernels are written, once for every backend.

A kernel is a Python function over `Scalar`s; calling it builds an expression. Backends translate
the primitives listed in `PRIMITIVES`, never ops. `fma` is explicit: no backend contracts or
reorders on its own, so all of them compute the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from ir.types import BOOL, F32, F64, I32, I64, DType

Number: TypeAlias = int | float | bool

#: name -> what it computes. `x`, `y`, `z` have one type; comparisons give bool.
PRIMITIVES = {
    "const": "a literal",
    "input": "an operand of the kernel",
    "add": "x + y, wrapping for integers",
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y; integers truncate, and the lowering guards y == 0",
    "rem": "remainder with the sign of x, as C's % and fmod",
    "neg": "-x",
    "abs": "|x|",
    "fma": "x * y + z, rounded once",
    "sqrt": "square root, correctly rounded",
    "floor": "round down",
    "ceil": "round up",
    "trunc": "round towards zero",
    "roundeven": "round to nearest, ties to even",
    "copysign": "|x| with the sign of y",
    "ldexp": "x * 2**n, n an integer of the same width",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "eq": "x == y, False for NaN",
    "ne": "x != y, True for NaN",
    "and": "bitwise, or logical for bool",
    "or": "bitwise, or logical for bool",
    "xor": "bitwise, or logical for bool",
    "not": "bitwise, or logical for bool",
    "shl": "x << y",
    "lshr": "x >> y, zeros shifted in",
    "ashr": "x >> y, the sign shifted in",
    "select": "y where x else z; x is bool",
    "cast": "to another type; float to integer truncates, to bool is x != 0",
    "bits": "the bits of a float as a signed integer of its width",
    "from_bits": "the float with these bits",
}


@dataclass(frozen=True, eq=False)
class Scalar:
    """A node of an expression. `value` is the literal of a const or the position of an input."""

    op: str
    args: tuple[Scalar, ...]
    dtype: DType
    value: Number | None = None

    def __add__(self, other: Scalar | Number) -> Scalar:
        return binary("add", self, other)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return binary("sub", self, other)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return binary("mul", self, other)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return binary("div", self, other)

    def __mod__(self, other: Scalar | Number) -> Scalar:
        return binary("rem", self, other)

    def __radd__(self, other: Number) -> Scalar:
        return binary("add", const(other, self.dtype), self)

    def __rsub__(self, other: Number) -> Scalar:
        return binary("sub", const(other, self.dtype), self)

    def __rmul__(self, other: Number) -> Scalar:
        return binary("mul", const(other, self.dtype), self)

    def __rtruediv__(self, other: Number) -> Scalar:
        return binary("div", const(other, self.dtype), self)

    def __neg__(self) -> Scalar:
        return Scalar("neg", (self,), self.dtype)

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return binary("lt", self, other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return binary("le", self, other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return binary("gt", self, other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return binary("ge", self, other)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return binary("and", self, other)

    def __or__(self, other: Scalar | Number) -> Scalar:
        return binary("or", self, other)

    def __xor__(self, other: Scalar | Number) -> Scalar:
        return binary("xor", self, other)

    def __invert__(self) -> Scalar:
        return Scalar("not", (self,), self.dtype)


_COMPARE = {"lt", "le", "gt", "ge", "eq", "ne"}


def const(value: Number, dtype: DType) -> Scalar:
    """A literal; floats are rounded to `dtype` here, once."""
    return Scalar("const", (), dtype, dtype.numpy.type(value).item())


def input_(position: int, dtype: DType) -> Scalar:
    return Scalar("input", (), dtype, position)


def binary(op: str, x: Scalar, y: Scalar | Number) -> Scalar:
    other = y if isinstance(y, Scalar) else const(y, x.dtype)
    if other.dtype != x.dtype:
        raise TypeError(f"{op} of {x.dtype} and {other.dtype}")
    return Scalar(op, (x, other), BOOL if op in _COMPARE else x.dtype)


def eq(x: Scalar, y: Scalar | Number) -> Scalar:
    return binary("eq", x, y)


def ne(x: Scalar, y: Scalar | Number) -> Scalar:
    return binary("ne", x, y)


def unary(op: str) -> Callable[[Scalar], Scalar]:
    return lambda x: Scalar(op, (x,), x.dtype)


abs_, sqrt, floor, ceil = unary("abs"), unary("sqrt"), unary("floor"), unary("ceil")
trunc, roundeven = unary("trunc"), unary("roundeven")


def fma(x: Scalar, y: Scalar | Number, z: Scalar | Number) -> Scalar:
    args = [q if isinstance(q, Scalar) else const(q, x.dtype) for q in (x, y, z)]
    return Scalar("fma", tuple(args), x.dtype)


def copysign(x: Scalar, sign: Scalar) -> Scalar:
    return Scalar("copysign", (x, sign), x.dtype)


def ldexp(x: Scalar, n: Scalar) -> Scalar:
    return Scalar("ldexp", (x, n), x.dtype)


def shift(op: str, x: Scalar, by: Scalar | int) -> Scalar:
    """`op` is shl, lshr or ashr."""
    return binary(op, x, by)


def select(test: Scalar, x: Scalar | Number, y: Scalar | Number) -> Scalar:
    dtype = x.dtype if isinstance(x, Scalar) else y.dtype if isinstance(y, Scalar) else None
    if dtype is None:
        raise TypeError("select needs at least one Scalar")
    a, b = (q if isinstance(q, Scalar) else const(q, dtype) for q in (x, y))
    if a.dtype != b.dtype:
        raise TypeError(f"select of {a.dtype} and {b.dtype}")
    return Scalar("select", (test, a, b), dtype)


def cast(x: Scalar, dtype: DType) -> Scalar:
    return x if x.dtype == dtype else Scalar("cast", (x,), dtype)


def bits(x: Scalar) -> Scalar:
    return Scalar("bits", (x,), I32 if x.dtype == F32 else I64)


def from_bits(x: Scalar) -> Scalar:
    return Scalar("from_bits", (x,), F32 if x.dtype == I32 else F64)


def isnan(x: Scalar) -> Scalar:
    return ne(x, x) if x.dtype.kind == "f" else const(False, BOOL)


def maximum(x: Scalar, y: Scalar | Number) -> Scalar:
    """The larger; a NaN in either comes through."""
    b = y if isinstance(y, Scalar) else const(y, x.dtype)
    return select((x > b) | ne(x, x), x, b) if x.dtype.kind == "f" else select(x > b, x, b)


def minimum(x: Scalar, y: Scalar | Number) -> Scalar:
    """The smaller; a NaN in either comes through."""
    b = y if isinstance(y, Scalar) else const(y, x.dtype)
    return select((x < b) | ne(x, x), x, b) if x.dtype.kind == "f" else select(x < b, x, b)


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Horner's scheme with fma; lowest order first."""
    r = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        r = fma(r, x, c)
    return r


def nodes(roots: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Every node once, operands before users."""
    return _nodes(tuple(roots))


@lru_cache(maxsize=512)
def _nodes(roots: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    order: dict[Scalar, None] = {}
    for r in roots:
        _visit(r, order)
    return tuple(order)


def _visit(s: Scalar, order: dict[Scalar, None]) -> None:
    if s not in order:
        for a in s.args:
            _visit(a, order)
        order[s] = None
