"""Conversions between 16-bit floats, as bits in an i16, and f32, for targets without instructions.

In the scalar language. Numbers are rounded to the nearest, ties to even; a NaN stays one.

Denormal numbers of f16 are exact, whatever the processor does with those of f32: none occurs.
"""

from __future__ import annotations

from ir.scalar import language as k
from ir.types import F32, I16, I32

#: what is to be added to the exponent of an f16
BIAS = 127 - 15
#: the exponent of the smallest f16 that is no denormal number, and of the last place of those
SMALLEST, LAST = -14, -24


def from_f16(x: k.Scalar) -> k.Scalar:
    wide = k.cast(x, I32)
    size = wide & 0x7FFF
    small = k.cast(size, F32) * 2.0**LAST
    bias = k.select(size < 0x7C00, k.const(BIAS << 23, I32), k.const(2 * BIAS << 23, I32))
    value = k.select(size < 0x400, small, k.from_bits(k.shift("shl", size, 13) + bias))
    return k.select(wide < 0, -value, value)


def to_f16(x: k.Scalar) -> k.Scalar:
    size = k.bits(k.abs_(x))
    small = k.cast(k.roundeven(k.abs_(x) * 2.0**-LAST), I32)
    normal = _rounded(size, 13) - (BIAS << 10)
    out = k.select(size < (127 + SMALLEST) << 23, small, normal)
    out = k.select(size < 0x477FF000, out, k.const(0x7C00, I32))
    out = k.select(size > 0x7F800000, k.const(0x7E00, I32), out)
    return _signed(out, x)


def from_bf16(x: k.Scalar) -> k.Scalar:
    return k.from_bits(k.shift("shl", k.cast(x, I32), 16))


def to_bf16(x: k.Scalar) -> k.Scalar:
    size = k.bits(k.abs_(x))
    return _signed(k.select(size > 0x7F800000, k.const(0x7FC0, I32), _rounded(size, 16)), x)


def _rounded(size: k.Scalar, bits: int) -> k.Scalar:
    """Without its last bits."""
    tie = k.shift("lshr", size, bits) & 1
    return k.shift("lshr", size + tie + ((1 << bits - 1) - 1), bits)


def _signed(size: k.Scalar, x: k.Scalar) -> k.Scalar:
    sign = k.shift("lshr", k.bits(x), 16) & 0x8000
    return k.cast(size | sign, I16)
