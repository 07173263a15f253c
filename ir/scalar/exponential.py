"""Mathematical functions in the scalar language, for f32 and f64.

A function maps Scalars to a Scalar and picks its coefficients by the dtype; any other dtype is a
KeyError. Special values are those of C's libm; denormal arguments and results may be flushed where
the hardware does. Largest errors in ulp over the whole range, measured with the NumPy evaluator by
tests/ir/scalar/test_functions.py:

             f32   f64                f32   f64                f32   f64
    exp     0.84  0.81     tanh     2.46  2.48     erf      1.02  1.97
    expm1   1.41  1.76     sigmoid  2.28  1.95     erfc     6.16  5.58
    log     0.86  1.11     softplus 1.73  1.52     gelu     5.95  5.66
    log1p   1.34  1.58     sin      1.60  1.54     rsqrt    1.47  1.49
    log2    1.50  1.67     cos      1.49  1.45     pow_     0.50  0.99
    log10   1.70  2.75

Ideas. `exp` rounds x / log 2 by adding 1.5 * 2**23 (2**52): the low bits of the sum are the
integer, so nothing is converted and a NaN needs no guard. `tanh` is expm1 over expm1 + 2, one
division and no branch. `log1p` scales by the exponent of 1 + x, exactly. `erfc` is exp(-z * z)
times a polynomial in 1 / (z + 3), and `gelu` takes the exponent x * x / 2 in two parts, so neither
cancels in the tail. `pow_` of f32 computes in f64, `pow_` of f64 with a logarithm in two parts.

Limits. `sin` and `cos` hold their accuracy for |x| <= 2e6 (f32) and 1e14 (f64); beyond, they
return something in [-1, 1]. erfc(0) of f64 is 1 - 2**-52.

Tables: scripts/fit_coefficients.py, lowest order first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.scalar.language import (
    Scalar,
    abs_,
    bits,
    cast,
    const,
    copysign,
    eq,
    fma,
    from_bits,
    isnan,
    ldexp,
    maximum,
    ne,
    polynomial,
    select,
    shift,
    sqrt,
    trunc,
)
from ir.types import F32, F64, DType

# fmt: off
_EXP: dict[DType, tuple[float, ...]] = {
    F32: (0.49999997, 0.16666545, 0.0416674465, 0.00836644694, 0.00138698518),
    F64: (
        0.5, 0.16666666666666671, 0.041666666666666671, 0.0083333333333259849,
        0.0013888888888883642, 0.00019841269875342141, 2.4801587325920163e-05,
        2.7557254740405416e-06, 2.7557273171941021e-07, 2.5105490906986696e-08,
        2.0914882563486679e-09,
    ),
}
_LOG: dict[DType, tuple[float, ...]] = {
    F32: (
        0.333332151, -0.249998033, 0.200104386, -0.166802958, 0.140054464, -0.121863686,
        0.139862776, -0.128841534,
    ),
    F64: (
        0.40000000000000002, 0.28571428571429369, 0.22222222221652374, 0.18181818336188399,
        0.15384594877554647, 0.13334809312413998, 0.11706112724269559, 0.11724470604832658,
    ),
}
_HALF_PI: dict[DType, tuple[float, ...]] = {
    F32: (1.57079625, 7.54978942e-08, 5.39030253e-15),
    F64: (1.5707963267948966, 6.1232339957367648e-17, 1.0828566739219139e-32),
}
_SIN: dict[DType, tuple[float, ...]] = {
    F32: (-0.166666538, 0.00833209604, -0.000195057335),
    F64: (
        -0.16666666666666663, 0.0083333333333304848, -0.00019841269836069604,
        2.7557315751608456e-06, -2.5051060011861846e-08, 1.5913046088437008e-10,
    ),
}
_COS: dict[DType, tuple[float, ...]] = {
    F32: (0.0416666418, -0.00138871302, 2.44120856e-05),
    F64: (
        0.041666666666666664, -0.0013888888888887107, 2.4801587298334678e-05,
        -2.7557317052182024e-07, 2.0876101329763774e-09, -1.1379452361505369e-11,
    ),
}
_ERF_SMALL: dict[DType, tuple[float, ...]] = {
    F32: (0.128379151, -0.376124889, 0.11281731, -0.0267629661, 0.00498735253, -0.00059595838),
    F64: (
        0.12837916709551259, -0.37612638903183715, 0.11283791670952596, -0.026866170644428485,
        0.0052239776154205386, -0.00085483261887597524, 0.00012055289567541706,
        -1.4924196305569603e-05, 1.6430684179741352e-06, -1.5940066854660156e-07,
        1.1472499701089409e-08,
    ),
}
_ERF_LARGE = (
    0.12864849, 0.635151327, 0.106236845, -0.0237620194, 0.0036424296, -0.000322794018,
    1.12300122e-05,
)
_ERFCX: dict[DType, tuple[float, ...]] = {
    F32: (
        1.30924499, 0.931718111, 0.502772152, 0.199510619, 0.052683685, 0.00596137205,
        -0.00139492867, -0.00056030514, 2.83133104e-05, 3.61774182e-05,
    ),
    F64: (
        1.1672418893209902, 0.90981473284747161, 0.56003387814392547, 0.26375983083881216,
        0.087431148762170174, 0.015145818771070404, -0.0018407603070443204,
        -0.0016229060668976755, -0.00011364066367959066, 0.00014261944122847883,
        2.2952203629335575e-05, -1.4878009249699153e-05, -2.7075682095891244e-06,
        1.912624280502837e-06, 2.2645347421984033e-07, -2.7644807638062916e-07,
        1.5817419226210583e-09, 3.9532574451011154e-08, -6.7790409765215823e-09,
        -4.8751449063704807e-09, 1.9612165399315962e-09, 4.2752263935602057e-10,
        -3.4145142400172776e-10, -1.7646108377047148e-11, 3.0529135626752852e-11,
    ),
}
# fmt: on


@dataclass(frozen=True)
class _Format:
    """`mantissa` bits below the exponent; `split` the bits of the least mantissa that `log` takes.

    `ln2` and `log2` (the decimal logarithm of 2) are pairs whose first part times any exponent is
    exact. `exp` is 0 below the first of `exp_range` and infinite above the second; erfc(z) is 0
    above `erfc_limit`; `erfcx` maps 1 / (z + 3) onto [-1, 1].
    """

    mantissa: int
    bias: int
    split: int
    ln2: tuple[float, float]
    log2: tuple[float, float]
    exp_range: tuple[float, float]
    erfc_limit: float
    erfcx: tuple[float, float]

    @property
    def magic(self) -> float:
        """Adding it rounds to an integer, which the low bits of the sum then hold."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) | (1 << (self.mantissa - 1))

    @property
    def one(self) -> int:
        return self.bias << self.mantissa


_FORMAT = {
    F32: _Format(
        mantissa=23,
        bias=127,
        split=0x3F2AAAAB,  # 2/3
        ln2=(0.6923828125, 0.0007643680599453094),
        log2=(0.30078125, 0.0002487456639811952),
        exp_range=(-104.0, 89.0),
        erfc_limit=10.2,
        erfcx=(7.764705657958984, -1.5882352590560913),
    ),
    F64: _Format(
        mantissa=52,
        bias=1023,
        split=0x3FE6A09E667F3BCD,  # sqrt(1/2)
        ln2=(0.6931471803691238, 1.9082149292705877e-10),
        log2=(0.3010299955494702, 1.1451100898021838e-10),
        exp_range=(-746.0, 710.0),
        erfc_limit=27.4,
        erfcx=(6.6569342613220215, -1.2189780473709106),
    ),
}


def _at_least(x: Scalar, low: float) -> Scalar:
    return select(x < low, low, x)


def _at_most(x: Scalar, high: float) -> Scalar:
    return select(x > high, high, x)


# exponentials


def _reduce(x: Scalar) -> tuple[Scalar, Scalar]:
    """f and m with x = n log 2 + f, |f| <= log(2) / 2; the low bits of m are n."""
    form = _FORMAT[x.dtype]
    m = fma(x, 1 / math.log(2), form.magic)
    n = m - form.magic
    return fma(n, -form.ln2[1], fma(n, -form.ln2[0], x)), m


def _exp(x: Scalar, rest: Scalar | None = None) -> Scalar:
    """exp(x + rest), where `rest` is a rounding error of x."""
    form = _FORMAT[x.dtype]
    f, m = _reduce(_at_most(_at_least(x, form.exp_range[0]), form.exp_range[1]))
    r = polynomial(f if rest is None else f + rest, (1.0, 1.0, *_EXP[x.dtype]))
    return ldexp(r, bits(m) - form.magic_bits)


def exp(x: Scalar) -> Scalar:
    return _exp(x)


def half_exp(x: Scalar) -> Scalar:
    """exp(x) / 2, which overflows a little later."""
    form = _FORMAT[x.dtype]
    f, m = _reduce(_at_most(_at_least(x, form.exp_range[0]), form.exp_range[1] + 1.0))
    r = polynomial(f, (1.0, 1.0, *_EXP[x.dtype]))
    return ldexp(r, bits(m) - (form.magic_bits + 1))


def _expm1_near(f: Scalar) -> Scalar:
    """exp(f) - 1 for |f| <= log(2) / 2."""
    return fma(f * f, polynomial(f, _EXP[f.dtype]), f)


def expm1(x: Scalar) -> Scalar:
    form = _FORMAT[x.dtype]
    f, m = _reduce(_at_most(_at_least(x, -form.mantissa * 1.0), form.exp_range[1]))
    half = from_bits(shift("shl", bits(m), form.mantissa) + (form.one - (1 << form.mantissa)))
    r = fma(_expm1_near(f), half, half - 0.5)
    return copysign(r + r, x)


def tanh(x: Scalar) -> Scalar:
    """-e / (2 + e) with e = expm1(-2 |x|)."""
    form = _FORMAT[x.dtype]
    f, m = _reduce(_at_least(abs_(x) * -2.0, -2.0 * form.mantissa))
    power = from_bits(shift("shl", bits(m), form.mantissa) + form.one)
    e = fma(_expm1_near(f), power, power - 1.0)
    return copysign(e / (e + 2.0), x)


def sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)); exp may overflow, 1 / inf is the right 0."""
    return 1.0 / (exp(-x) + 1.0)


# logarithms


def _split(x: Scalar) -> tuple[Scalar, Scalar]:
    """n and f with x = 2**n (1 + f), f near 0; x positive and finite."""
    form = _FORMAT[x.dtype]
    tiny = x < 2.0 ** (1 - form.bias)
    b = bits(select(tiny, x * 2.0**form.mantissa, x))
    biased = b + (form.one - form.split)
    n = from_bits(shift("lshr", biased, form.mantissa) | form.magic_bits)
    offset = form.magic + form.bias
    f = from_bits((biased & ((1 << form.mantissa) - 1)) + form.split) - 1.0
    return n - select(tiny, const(offset + form.mantissa, x.dtype), offset), f


def _log1p_near(f: Scalar) -> Scalar:
    """log(1 + f) where `_split` or `_log1p` made f."""
    if f.dtype == F32:
        q, c = f * f, _LOG[F32]
        p = fma(polynomial(q, c[1::2]), f, polynomial(q, c[0::2]))
        return fma(fma(p, f, -0.5), q, f)
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    return f - (half - s * fma(z, polynomial(z, (2 / 3, *_LOG[F64])), half))


def _log_special(x: Scalar, r: Scalar, zero: float) -> Scalar:
    """Minus infinity at `zero`, NaN below it, and infinity and NaN as they are."""
    r = select(x < math.inf, r, x)
    r = select(x < zero, math.nan, r)
    return select(eq(x, zero), -math.inf, r)


def _add_exponent(n: Scalar, r: Scalar, unit: tuple[float, float]) -> Scalar:
    return fma(n, unit[0], fma(n, unit[1], r))


def log(x: Scalar) -> Scalar:
    n, f = _split(x)
    return _log_special(x, _add_exponent(n, _log1p_near(f), _FORMAT[x.dtype].ln2), 0.0)


def log2(x: Scalar) -> Scalar:
    """Exact for powers of two."""
    n, f = _split(x)
    return _log_special(x, fma(_log1p_near(f), 1 / math.log(2), n), 0.0)


def log10(x: Scalar) -> Scalar:
    n, f = _split(x)
    r = _log1p_near(f) * (1 / math.log(10))
    return _log_special(x, _add_exponent(n, r, _FORMAT[x.dtype].log2), 0.0)


def _log1p(x: Scalar) -> Scalar:
    """log(1 + x) for finite x > -1: scale x and 1 by 2**-n, where 1 + x is about 2**n."""
    form = _FORMAT[x.dtype]
    field = ((1 << form.mantissa) - 1) ^ -1
    n = ((bits(x + 1.0) + (form.one - form.split)) & field) - form.one
    least = form.one - n
    scale = from_bits(select(least < 0, 0, least))
    f = from_bits(bits(x) - n) + (scale - 1.0)
    count = from_bits(shift("ashr", n, form.mantissa) + form.magic_bits) - form.magic
    return _add_exponent(count, _log1p_near(f), form.ln2)


def log1p(x: Scalar) -> Scalar:
    return copysign(_log_special(x, _log1p(x), -1.0), x)


def softplus(x: Scalar) -> Scalar:
    """log(1 + exp(x))."""
    return maximum(x, 0.0) + _log1p(exp(-abs_(x)))


# error function


def _erfc_tail(z: Scalar, square: Scalar, rest: Scalar) -> Scalar:
    """erfc(z) for 0 <= z <= erfc_limit, where z * z = square + rest."""
    r = 1.0 / (z + 3.0)
    t = fma(r, *_FORMAT[z.dtype].erfcx)
    return _exp(-square, -rest) * (polynomial(t, _ERFCX[z.dtype]) * r)


def _erfc_positive(x: Scalar) -> Scalar:
    z = _at_most(abs_(x), _FORMAT[x.dtype].erfc_limit)
    square = z * z
    return _erfc_tail(z, square, fma(z, z, -square))


def erf(x: Scalar) -> Scalar:
    z = abs_(x)
    small = fma(polynomial(x * x, _ERF_SMALL[x.dtype]), z, z)
    if x.dtype == F32:
        s = _at_most(z, 4.0)
        large = 1.0 - _exp(-fma(polynomial(s, _ERF_LARGE), s, s))
        return copysign(select(z > 0.925, large, small), x)
    return copysign(select(z > 0.75, 1.0 - _erfc_positive(x), small), x)


def erfc(x: Scalar) -> Scalar:
    r = _erfc_positive(x)
    return select(x < 0.0, 2.0 - r, r)


def gelu(x: Scalar) -> Scalar:
    """x times the normal distribution function of x; -0.0 at minus infinity."""
    limit = _FORMAT[x.dtype].erfc_limit * math.sqrt(2)
    a = _at_least(x, -limit)
    t = _at_most(abs_(a), limit)
    square = t * t
    tail = _erfc_tail(t * math.sqrt(0.5), square * 0.5, fma(t, t, -square) * 0.5) * 0.5
    return a * select(x < 0.0, tail, 1.0 - tail)


# trigonometry


def _sine(x: Scalar, quarter: int) -> Scalar:
    """sin(x + quarter * pi/2)."""
    form = _FORMAT[x.dtype]
    m = fma(x, 2 / math.pi, form.magic)
    n = m - form.magic
    r = x
    for piece in _HALF_PI[x.dtype]:
        r = fma(n, -piece, r)
    r = _at_most(_at_least(r, -1.0), 1.0)
    z = r * r
    sin_r = copysign(fma(z * r, polynomial(z, _SIN[x.dtype]), r), r)
    cos_r = fma(z * z, polynomial(z, _COS[x.dtype]), fma(z, -0.5, 1.0))
    q = bits(m) + quarter
    sign = shift("shl", q & 2, x.dtype.bits - 2)
    return from_bits(bits(select(eq(q & 1, 0), sin_r, cos_r)) ^ sign)


def sin(x: Scalar) -> Scalar:
    return _sine(x, 0)


def cos(x: Scalar) -> Scalar:
    return _sine(x, 1)


# powers


def rsqrt(x: Scalar) -> Scalar:
    return 1.0 / sqrt(x)


def _sum(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """a + b and its rounding error, where |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def _product(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    p = a * b
    return p, fma(a, b, -p)


def _log_pair(x: Scalar) -> tuple[Scalar, Scalar]:
    """log(x) as a sum with a relative error of about 2**-66, x a positive finite f64.

    2 (s + s w) with s = f / (2 + f) and w = z (1/3 + z R(z)), z = s**2; every product in pairs.
    """
    n, f = _split(x)
    d = f + 2.0
    s = f / d
    s_low = (fma(-s, d, f) - s * (f - (d - 2.0))) / d
    z, z_low = _product(s, s)
    z_low = fma(s + s, s_low, z_low)
    c, c_low = _sum(const(1 / 3, F64), z * polynomial(z, _LOG[F64]) * 0.5)
    w, w_low = _product(z, c)
    w_low = w_low + fma(z, c_low + 1.850371707708594e-17, z_low * c)
    g, g_low = _product(s, w)
    g_low = g_low + fma(s, w_low, s_low * w)
    high, low = _sum(s, g)
    low = (low + (s_low + g_low)) * 2.0
    ln2 = _FORMAT[F64].ln2
    total, error = _sum(n * ln2[0], high * 2.0)
    return _sum(total, error + fma(n, ln2[1], low))


def _power(a: Scalar, y: Scalar) -> Scalar:
    """a**y for f64 a >= 0."""
    high, low = _log_pair(a)
    high = _log_special(a, high, 0.0)
    p, rest = _product(y, high)
    return _exp(p, select(abs_(p) < 1000.0, fma(y, low, rest), 0.0))


def pow_(x: Scalar, y: Scalar) -> Scalar:
    """x**y as C's pow, also for a negative x and an integer y."""
    if x.dtype == F32:
        a, b = cast(x, F64), cast(y, F64)
        return cast(_signed_power(a, b, _exp(b * log(abs_(a)))), F32)
    return _signed_power(x, y, _power(abs_(x), y))


def _signed_power(x: Scalar, y: Scalar, r: Scalar) -> Scalar:
    """pow(x, y), given r = pow(|x|, y) for the operands that need no special care."""
    half = y * 0.5
    whole = eq(trunc(y), y)
    odd = whole & ne(trunc(half), half)
    r = select(eq(abs_(x), 1.0) & eq(y, y), 1.0, r)
    r = select(odd, copysign(r, x), r)
    r = select((x < 0.0) & (x > -math.inf) & ~(whole | isnan(y)), math.nan, r)
    return select(eq(x, 1.0) | eq(y, 0.0), 1.0, r)
