"""Evaluate scalar expressions with NumPy: the reference for every backend of the scalar language.

`fma` is emulated in the next wider type, as a sum of two parts that is rounded once. f32 is always
right. f64 needs a longdouble with 64 bits of mantissa (x86) or 113; where longdouble is only a
double, one result in a few thousand is off in the last place and products beyond 1e300 overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ir.scalar.language import Scalar, nodes
from ir.types import DType

Array = np.ndarray


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """x + y and its rounding error (Knuth)."""
    s = x + y
    back = s - x
    return s, (x - (s - back)) + (y - back)


def _halves(x: Array) -> tuple[Array, Array]:
    """x as a sum of two numbers of at most 27 bits, as longdoubles."""
    high = (x.view(np.int64) & -(1 << 27)).view(np.float64)
    return high.astype(np.longdouble), (x - high).astype(np.longdouble)


def _product(x: Array, y: Array) -> tuple[Array, Array]:
    """x * y of f64 and its rounding error (Dekker), as longdoubles."""
    p = x.astype(np.longdouble) * y
    (xh, xl), (yh, yl) = _halves(x), _halves(y)
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


def _round(value: Array, rest: Array, dtype: np.dtype) -> Array:
    """value + rest, |rest| below half a last place of value, rounded once to the narrower dtype.

    Rounding `value` alone goes wrong only at a tie that `rest` would have broken.
    """
    rounded = value.astype(dtype)
    gap = value - rounded
    other = np.nextafter(rounded, np.copysign(dtype.type(np.inf), gap.astype(dtype)))
    tie = np.isfinite(rounded) & (gap + gap == other.astype(value.dtype) - rounded)
    return np.where(tie & (np.sign(gap) * rest > 0), other, rounded)


def _fma(x: Array, y: Array, z: Array) -> Array:
    if x.dtype == np.float32:
        return _round(*_sum(x.astype(np.float64) * y, z.astype(np.float64)), x.dtype)
    p, error = _product(x, y)
    s, rest = _sum(p, z.astype(np.longdouble))
    error = error + rest
    counts = np.isfinite(s) & np.isfinite(error) & (error != 0)
    return _round(*_sum(s, np.where(counts, error, -0.0)), x.dtype)  # s - 0.0 keeps the sign of s


def _div(x: Array, y: Array) -> Array:
    out: Array = x / y if x.dtype.kind == "f" else (x - np.fmod(x, y)) // y
    return out


def _lshr(x: Array, y: Array) -> Array:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    out: Array = (x.view(unsigned) >> y.view(unsigned)).view(x.dtype)
    return out


def _ldexp(x: Array, n: Array) -> Array:
    out: Array = np.ldexp(x, np.clip(n, -5000, 5000).astype(np.int32))
    return out


def _bits(x: Array) -> Array:
    return x.view(np.int32 if x.dtype == np.float32 else np.int64)


def _from_bits(x: Array) -> Array:
    return x.view(np.float32 if x.dtype == np.int32 else np.float64)


_COMPUTE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": np.fmod,
    "neg": np.negative,
    "abs": np.abs,
    "fma": _fma,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "roundeven": np.rint,
    "copysign": np.copysign,
    "ldexp": _ldexp,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": np.left_shift,
    "lshr": _lshr,
    "ashr": np.right_shift,
    "select": np.where,
    "bits": _bits,
    "from_bits": _from_bits,
}


def evaluate(root: Scalar, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The value of `root`; input k has the dtype of the expression's inputs at position k.

    Inputs broadcast; the result has their common shape. Integer division and remainder by zero
    give 0 here, and a cast to integer of a NaN or of a float out of range gives any integer.
    Raises TypeError for an input of another dtype, and for bf16, which NumPy lacks.
    """
    values: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for s in nodes([root]):
            values[id(s)] = _value(s, [values[id(a)] for a in s.args], inputs)
    shape = np.broadcast_shapes(*(np.shape(x) for x in inputs))
    out: Array = np.broadcast_to(values[id(root)], shape).copy()
    return out


def _value(s: Scalar, args: list[Array], inputs: Sequence[np.ndarray]) -> Array:
    if s.op == "const":
        return np.asarray(s.value, s.dtype.numpy)
    if s.op == "input":
        return _input(int(s.value or 0), s.dtype, inputs)
    if s.op == "cast":
        return np.asarray(args[0].astype(s.dtype.numpy))
    return np.asarray(_COMPUTE[s.op](*args)).astype(s.dtype.numpy, copy=False)


def _input(position: int, dtype: DType, inputs: Sequence[np.ndarray]) -> Array:
    x = np.asarray(inputs[position])
    if x.dtype != dtype.numpy:
        raise TypeError(f"input {position} is {x.dtype}, the expression has {dtype} there")
    return x
