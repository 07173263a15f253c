"""The tangent, arcs, and hyperbolic functions with their inverses, in the scalar language.

For f32 and f64, on top of `ir.scalar.exponential`. Largest errors in ulp over the whole range, as
tests/ir/scalar/test_functions.py finds them with the NumPy evaluator:

             f32   f64                f32   f64                f32   f64
    tan     3.13  3.17     asin    2.92  2.71     asinh   1.61  1.94
    sinh    1.91  2.22     acos    2.67  2.50     acosh   1.91  2.20
    cosh    1.27  1.15     atan    2.18  2.01     atanh   1.89  1.89

Ideas. `atan` turns its argument by a multiple of pi/4 to at most tan(pi/8), with one division;
`asin` and `acos` are `atan` of a quotient of roots of 1 - x and 1 + x, which do not cancel. `sinh`
and `cosh` start from exp(x) / 2, which overflows where they do. The inverse hyperbolic functions
are `log1p` of what does not cancel either, and the logarithm of 2 x where x is large.

Limits. `tan` has those of `sin` and `cos`.

Table: scripts/fit_coefficients.py, lowest order first.
"""

from __future__ import annotations

import math

from ir.scalar.exponential import cos, expm1, half_exp, log, log1p, sin
from ir.scalar.language import Scalar, abs_, copysign, fma, polynomial, select, sqrt
from ir.types import F32, F64, DType

# fmt: off
_ATAN: dict[DType, tuple[float, ...]] = {
    F32: (-0.333329499, 0.199777246, -0.13877742, 0.0805370882),
    F64: (
        -0.33333333333333331, 0.19999999999999804, -0.1428571428565962, 0.11111111105135144,
        -0.090909087524907797, 0.076922963458330149, -0.066664243614049129,
        0.058789229703095289, -0.052304098866168394, 0.045513908032862184,
        -0.034565357291814987, 0.016279990057733895,
    ),
}
# fmt: on
#: pi/2 less its nearest number of the type
_HALF_PI_REST = {F32: -4.371138828673793e-08, F64: 6.123233995736766e-17}
#: where asinh(x) and acosh(x) are log(2 x), with a relative error below a tenth of an ulp
_LARGE = {F32: 8192.0, F64: 2.0**28}


def tan(x: Scalar) -> Scalar:
    return sin(x) / cos(x)


def sinh(x: Scalar) -> Scalar:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|), or h - 1 / (4 h) with h = exp(|x|) / 2."""
    a = abs_(x)
    e, h = expm1(select(a < 1.0, a, 1.0)), half_exp(a)
    small = (e + e / (e + 1.0)) * 0.5
    return copysign(select(a < 1.0, small, h - 0.25 / h), x)


def cosh(x: Scalar) -> Scalar:
    h = half_exp(abs_(x))
    return h + 0.25 / h


def atan(x: Scalar) -> Scalar:
    """The turn in units of pi/4, plus the arc of (a - turn) / (1 + a turn); -1 / a at two."""
    a = abs_(x)
    far, near = a > 1 + math.sqrt(2), a > math.sqrt(2) - 1
    top = select(far, -1.0, select(near, a - 1.0, a))
    t = top / select(far, a, select(near, a + 1.0, 1.0))
    z = t * t
    arc = fma(t * z, polynomial(z, _ATAN[x.dtype]), t)
    turn = select(far, math.pi / 2, select(near, math.pi / 4, 0.0 * z))
    rest = _HALF_PI_REST[x.dtype]
    return copysign(turn + (arc + select(far, rest, select(near, rest / 2, 0.0 * z))), x)


def asin(x: Scalar) -> Scalar:
    return atan(x / sqrt((1.0 - x) * (1.0 + x)))


def acos(x: Scalar) -> Scalar:
    half = atan(sqrt((1.0 - x) / (1.0 + x)))
    return half + half


def asinh(x: Scalar) -> Scalar:
    a = abs_(x)
    least = select(a > _LARGE[x.dtype], 1.0, a)
    square = least * least
    small = log1p(least + square / (sqrt(square + 1.0) + 1.0))
    return copysign(select(a > _LARGE[x.dtype], log(a) + math.log(2), small), x)


def acosh(x: Scalar) -> Scalar:
    t = select(x > _LARGE[x.dtype], 1.0, x) - 1.0
    small = log1p(t + sqrt(t * (t + 2.0)))
    large = log(x) + math.log(2)
    return select(x > _LARGE[x.dtype], large, select(x < 1.0, math.nan, small))


def atanh(x: Scalar) -> Scalar:
    a = abs_(x)
    return copysign(log1p((a + a) / (1.0 - a)) * 0.5, x)
