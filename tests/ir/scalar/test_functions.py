"""Scalar functions and their evaluator against NumPy, `math` and mpmath (in the extra `test`).

The reference is float64 for f32 and longdouble (64 bits of mantissa on x86) for f64; functions
that longdouble lacks are taken from mpmath, at fewer points. Denormal results may be flushed, so
they count with their absolute error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest

import ir.scalar.exponential as functions
import ir.scalar.special as special
import ir.scalar.trigonometry as trigonometry
from ir.scalar import language
from ir.scalar.evaluate import evaluate
from ir.scalar.language import PRIMITIVES, Scalar, input_
from ir.types import BOOL, F32, F64, I32, I64, U8, DType, dtype_of

pytestmark = pytest.mark.sampled

POINTS = 40_000
POINTS_MPMATH = 3_000
EXTENDED = np.finfo(np.longdouble).nmant >= 63
INF, NAN = math.inf, math.nan


def run(function: Callable[..., Scalar], *operands: np.ndarray) -> np.ndarray:
    arrays = [np.asarray(x) for x in operands]
    return evaluate(function(*(input_(k, dtype_of(x.dtype)) for k, x in enumerate(arrays))), arrays)


def ulp(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of `exact`, infinite where NaN is got."""
    info = np.finfo(got.dtype)
    size = np.clip(np.abs(exact), info.tiny, info.max).astype(got.dtype)
    unit = np.spacing(size, dtype=got.dtype).astype(exact.dtype)
    unit = np.where(size == info.tiny, np.where(np.abs(exact) < info.tiny, info.tiny, unit), unit)
    kept = np.abs(exact) <= info.max
    error = np.abs(got.astype(exact.dtype) - exact)[kept] / unit[kept]
    return float(np.where(np.isnan(error), INF, error).max())


def function(name: str) -> Callable[..., Scalar]:
    """The function, from the module that has it."""
    where = (functions, trigonometry, special)
    return next(getattr(m, name) for m in where if hasattr(m, name))


# references


def _mpmath(function: Callable, x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape, np.longdouble)
    with mpmath.workdps(40):
        for k, v in enumerate(x):
            exact = function(mpmath.mpf(float(v)))
            out[k] = np.longdouble(float(exact)) + np.longdouble(float(exact - float(exact)))
    return out


def _special(name: str, in_mpmath: Callable) -> Callable[[np.ndarray], np.ndarray]:
    in_math = np.vectorize(getattr(math, name, None) or _gelu_double, otypes=[np.float64])

    def reference(x: np.ndarray) -> np.ndarray:
        return in_math(x) if x.dtype == np.float64 else _mpmath(in_mpmath, x)

    return reference


def _gelu_double(x: float) -> float:
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


def _gelu_mpmath(x: mpmath.mpf) -> mpmath.mpf:
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


# samples: called with a generator, a count and the dtype


def span(lo: float, hi: float) -> Callable:
    return lambda rng, n, d: rng.uniform(lo, hi, n)


def scales(lo: float, hi: float, base: float = 0.0, signed: bool = True) -> Callable:
    """base + or - 10**[lo, hi]."""

    def sample(rng: np.random.Generator, n: int, d: DType) -> np.ndarray:
        sign = rng.choice([-1.0, 1.0], n) if signed else 1.0
        return base + sign * 10 ** rng.uniform(lo, hi, n)

    return sample


def multiples(limit: float) -> Callable:
    """The floats next to multiples of pi/2."""
    return lambda rng, n, d: np.rint(rng.uniform(-limit, limit, n)) * (math.pi / 2)


@dataclass(frozen=True)
class Case:
    """Bounds in ulp, for f32 and f64, over samples for each of them."""

    reference: Callable[..., np.ndarray]
    bounds: tuple[float, float]
    f32: tuple[Callable, ...]
    f64: tuple[Callable, ...]


NEAR_ZERO = (scales(-30, 0), span(-1, 1))
POSITIVE = (scales(-37, 38, signed=False), scales(-7, -0.3, 1.0), span(0.1, 4))
POSITIVE64 = (scales(-307, 308, signed=False), scales(-15, -0.3, 1.0), span(0.1, 4))
ABOVE_MINUS_1 = (scales(-37, 38, signed=False), scales(-7, -1e-9, -1.0, False), *NEAR_ZERO)
ABOVE_MINUS_1_64 = (scales(-300, 308, signed=False), scales(-15, -1e-9, -1.0, False), *NEAR_ZERO)
ALL = (scales(-30, 37), span(-4, 4), *NEAR_ZERO)
ALL64 = (scales(-300, 307), span(-4, 4), *NEAR_ZERO)
HYPERBOLIC = (
    (span(-89.3, 89.3), span(-2, 2), *NEAR_ZERO),
    (span(-710.4, 710.4), span(-2, 2), *NEAR_ZERO),
)
INSIDE = (
    (span(-1, 1), span(0.99, 1), scales(-7, -0.3, -1.0, False), scales(-30, -1)),
    (span(-1, 1), span(0.99, 1), scales(-15, -0.3, -1.0, False), scales(-30, -1)),
)
CASES = {
    "exp": Case(np.exp, (1, 1), (span(-103, 88.7), *NEAR_ZERO), (span(-745, 709.7), *NEAR_ZERO)),
    "expm1": Case(np.expm1, (2, 2), (span(-30, 88.7), *NEAR_ZERO), (span(-50, 709.7), *NEAR_ZERO)),
    "log": Case(np.log, (2, 2), POSITIVE, POSITIVE64),
    "log2": Case(np.log2, (2, 2), POSITIVE, POSITIVE64),
    "log10": Case(np.log10, (2, 3), POSITIVE, POSITIVE64),
    "log1p": Case(np.log1p, (2, 2), ABOVE_MINUS_1, ABOVE_MINUS_1_64),
    "tanh": Case(np.tanh, (4, 4), (span(-11, 11), *NEAR_ZERO), (span(-22, 22), *NEAR_ZERO)),
    "sigmoid": Case(
        lambda x: 1 / (1 + np.exp(-x)), (4, 4), (span(-88, 40), *NEAR_ZERO), (span(-709, 60),)
    ),
    "softplus": Case(_softplus, (3, 3), (span(-100, 100), *NEAR_ZERO), (span(-740, 100),)),
    "sin": Case(
        np.sin,
        (2, 2),
        (span(-1e5, 1e5), multiples(6e4), span(-2e6, 2e6), span(-4, 4), *NEAR_ZERO),
        (span(-1e6, 1e6), multiples(6e5), span(-1e14, 1e14), span(-4, 4), *NEAR_ZERO),
    ),
    "cos": Case(
        np.cos,
        (2, 2),
        (span(-1e5, 1e5), multiples(6e4), span(-2e6, 2e6), span(-4, 4), *NEAR_ZERO),
        (span(-1e6, 1e6), multiples(6e5), span(-1e14, 1e14), span(-4, 4), *NEAR_ZERO),
    ),
    "erf": Case(
        _special("erf", mpmath.erf), (4, 8), (span(-4, 4), *NEAR_ZERO), (span(-6, 6), *NEAR_ZERO)
    ),
    "erfc": Case(
        _special("erfc", mpmath.erfc), (7, 8), (span(-4, 9), *NEAR_ZERO), (span(-6, 26), *NEAR_ZERO)
    ),
    "gelu": Case(
        _special("gelu", _gelu_mpmath),
        (8, 8),
        (span(-12.8, 9), *NEAR_ZERO),
        (span(-37, 9), *NEAR_ZERO),
    ),
    "rsqrt": Case(lambda x: 1 / np.sqrt(x), (2, 2), POSITIVE, POSITIVE64),
    "tan": Case(
        np.tan,
        (4, 4),
        (span(-1e5, 1e5), multiples(6e4), span(-4, 4), *NEAR_ZERO),
        (span(-1e6, 1e6), multiples(6e5), span(-4, 4), *NEAR_ZERO),
    ),
    "sinh": Case(np.sinh, (3, 3), *HYPERBOLIC),
    "cosh": Case(np.cosh, (2, 2), *HYPERBOLIC),
    "atan": Case(np.arctan, (3, 3), ALL, ALL64),
    "asin": Case(np.arcsin, (4, 4), *INSIDE),
    "acos": Case(np.arccos, (4, 4), *INSIDE),
    "atanh": Case(np.arctanh, (3, 3), *INSIDE),
    "asinh": Case(np.arcsinh, (3, 3), ALL, ALL64),
    "acosh": Case(
        np.arccosh,
        (3, 3),
        (scales(-7, 37, 1.0, False), span(1, 9), span(1, 1e5)),
        (scales(-15, 307, 1.0, False), span(1, 9), span(1, 1e10)),
    ),
    "erfinv": Case(
        lambda x: _mpmath(mpmath.erfinv, x),
        (4, 3),
        (span(-1, 1), scales(-30, -1), scales(-7, -0.3, -1.0, False)),
        (span(-1, 1), scales(-30, -1), scales(-15, -0.3, -1.0, False)),
    ),
}
#: their references are slow
IN_MPMATH = ("erf", "erfc", "gelu")


def samples(name: str, dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(7)
    kinds = CASES[name].f32 if dtype == F32 else CASES[name].f64
    few = name == "erfinv" or (dtype == F64 and name in IN_MPMATH)
    count = (POINTS_MPMATH if few else POINTS) // len(kinds)
    x = np.concatenate([s(rng, count, dtype) for s in kinds]).astype(dtype.numpy)
    return x[np.abs(x) < 1] if name in ("asin", "acos", "atanh", "erfinv") else x


def largest_error(name: str, dtype: DType) -> float:
    x = samples(name, dtype)
    with np.errstate(all="ignore"):
        wider = np.float64 if dtype == F32 else np.longdouble
        exact = CASES[name].reference(x.astype(wider))
    return ulp(run(function(name), x), exact)


@pytest.mark.quick("exp")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_error_is_small(name: str, dtype: DType) -> None:
    bound = CASES[name].bounds[dtype == F64] + (dtype == F64 and not EXTENDED)
    assert largest_error(name, dtype) <= bound


def power_operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    decades, near = (30, 7) if dtype == F32 else (300, 15)
    half = POINTS // 2
    x = np.concatenate(
        [10 ** rng.uniform(-decades, decades, half), 1 + 10 ** rng.uniform(-near, -1, half)]
    )
    x = x.astype(dtype.numpy)
    exponent = rng.uniform(-1, 1, 2 * half) * math.log(float(np.finfo(dtype.numpy).max))
    y = exponent / np.maximum(np.abs(np.log(x.astype(np.float64))), 1e-30)
    return x, y.astype(dtype.numpy)


def largest_power_error(dtype: DType) -> float:
    x, y = power_operands(dtype)
    wider = np.float64 if dtype == F32 else np.longdouble
    return ulp(run(functions.pow_, x, y), np.power(x.astype(wider), y.astype(wider)))


@pytest.mark.slow
@pytest.mark.quick("f64")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_power_error_is_small(dtype: DType) -> None:
    assert largest_power_error(dtype) <= 1 + (dtype == F64 and not EXTENDED)


#: x -> the result, the same for f32 and f64; HUGE overflows and TINY is denormal in either
HUGE, TINY = "huge", "tiny"
SPECIAL: dict[str, dict] = {
    "exp": {INF: INF, -INF: 0.0, 0.0: 1.0, HUGE: INF, TINY: 1.0},
    "expm1": {INF: INF, -INF: -1.0, HUGE: INF, -1e30: -1.0},
    "log": {INF: INF, -INF: NAN, 0.0: -INF, 1.0: 0.0, -1.0: NAN},
    "log2": {INF: INF, -INF: NAN, 0.0: -INF, 1.0: 0.0, -1.0: NAN, 8.0: 3.0, 2.0**-60: -60.0},
    "log10": {INF: INF, -INF: NAN, 0.0: -INF, 1.0: 0.0, -1.0: NAN, 1000.0: 3.0},
    "log1p": {INF: INF, -INF: NAN, -1.0: -INF, -2.0: NAN},
    "tanh": {INF: 1.0, -INF: -1.0, HUGE: 1.0, -30.0: -1.0},
    "sigmoid": {INF: 1.0, -INF: 0.0, 0.0: 0.5, HUGE: 1.0, -1e30: 0.0},
    "softplus": {INF: INF, -INF: 0.0, HUGE: HUGE, -1e30: 0.0},
    "sin": {INF: NAN, -INF: NAN},
    "cos": {INF: NAN, -INF: NAN, 0.0: 1.0, TINY: 1.0},
    "erf": {INF: 1.0, -INF: -1.0, HUGE: 1.0, -30.0: -1.0},
    "erfc": {INF: 0.0, -INF: 2.0, HUGE: 0.0, -30.0: 2.0},
    "gelu": {INF: INF, -INF: -0.0, HUGE: HUGE, -1e30: -0.0},
    "rsqrt": {INF: 0.0, -INF: NAN, 0.0: INF, -1.0: NAN, 4.0: 0.5},
    "tan": {INF: NAN, -INF: NAN},
    "sinh": {INF: INF, -INF: -INF, HUGE: INF, -1e30: -INF},
    "cosh": {INF: INF, -INF: INF, 0.0: 1.0, HUGE: INF, TINY: 1.0},
    "atan": {},
    "asin": {INF: NAN, -INF: NAN, 2.0: NAN, -2.0: NAN},
    "acos": {INF: NAN, -INF: NAN, 1.0: 0.0, 2.0: NAN, -2.0: NAN},
    "atanh": {INF: NAN, -INF: NAN, 1.0: INF, -1.0: -INF, 2.0: NAN, -2.0: NAN},
    "asinh": {INF: INF, -INF: -INF},
    "acosh": {INF: INF, -INF: NAN, 1.0: 0.0, 0.5: NAN, -1.0: NAN, -3.0: NAN},
    "erfinv": {INF: INF, -INF: -INF, 1.0: INF, -1.0: -INF, 2.0: INF, -2.0: -INF},
}
ODD = tuple("expm1 log1p tanh sin erf gelu tan sinh atan asin atanh asinh erfinv".split())


def at(value: float | str, dtype: DType) -> float:
    info = np.finfo(dtype.numpy)
    named = {HUGE: float(info.max) / 2, TINY: float(info.tiny) / 8}
    return named[value] if isinstance(value, str) else value


@pytest.mark.quick("exp", "log", "tanh")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_special_values(name: str, dtype: DType) -> None:
    table = {**SPECIAL[name], NAN: NAN, **({0.0: 0.0} if name in ODD else {})}
    x = np.array([at(v, dtype) for v in table] + [-0.0] * (name in ODD), dtype.numpy)
    expected = np.array([at(v, dtype) for v in table.values()] + [-0.0] * (name in ODD))
    got = run(function(name), x)
    np.testing.assert_array_equal(got, expected.astype(dtype.numpy), name)
    zero = expected == 0
    assert (np.signbit(got) == np.signbit(expected))[zero].all()


@pytest.mark.quick("f32")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_special_powers(dtype: DType) -> None:
    values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 1e30, INF]
    values += [-v for v in values] + [NAN, -2.0, float(np.finfo(dtype.numpy).max), 2.0**24 - 1]
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    x, y = x.astype(dtype.numpy), y.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype.numpy)
    got = run(functions.pow_, x, y)
    np.testing.assert_allclose(got, expected, 4 * np.finfo(dtype.numpy).eps)
    assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all()


@pytest.mark.quick("f64")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_arcs_at_the_ends(dtype: DType) -> None:
    """At infinity, and at 1 and -1, as closely as elsewhere."""
    values = {"atan": [INF, -INF, 1.0, -1.0], "asin": [1.0, -1.0], "acos": [-1.0, 0.0]}
    for name, at_ in values.items():
        x = np.array(at_, dtype.numpy)
        exact = getattr(np, f"arc{name[1:]}")(x.astype(np.longdouble))
        assert ulp(run(function(name), x), exact) <= 1


@pytest.mark.quick("f64-sin")
@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_trigonometry_is_bounded_everywhere(name: str, dtype: DType) -> None:
    x = np.logspace(0, 38, 10_000).astype(dtype.numpy)
    assert (np.abs(run(function(name), x)) <= 1).all()


TINY_NAMES = {"asinh": "arcsinh", "atanh": "arctanh", "asin": "arcsin", "atan": "arctan"}


@pytest.mark.quick("log2", "tanh")
@pytest.mark.parametrize(
    "name",
    ["log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "erf", "tan", "sinh", *TINY_NAMES],
)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_denormal_arguments(name: str, dtype: DType) -> None:
    x = (np.arange(1, 100) * np.finfo(dtype.numpy).smallest_subnormal).astype(dtype.numpy)
    wide = x.astype(np.longdouble)
    in_numpy = getattr(np, TINY_NAMES.get(name, name), None)
    expected = in_numpy(wide) if in_numpy else wide * (2 / math.sqrt(math.pi))
    np.testing.assert_allclose(
        run(function(name), x).astype(np.longdouble),
        expected,
        1e-6,
        float(np.finfo(dtype.numpy).smallest_subnormal),
    )


# the evaluator

FLOAT_VALUES = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, -2.5, 0.1, 1e10, -7.0, INF, -INF, NAN]
INT_VALUES = [0, 1, -1, 2, 3, 7, -7, 100, -128, 127]
SHIFTS = [0, 1, 2, 5, 7]


def grid(dtype: DType, left: list, right: list) -> list[np.ndarray]:
    x, y = np.meshgrid(np.array(left).astype(dtype.numpy), np.array(right).astype(dtype.numpy))
    return [x.ravel(), y.ravel()]


def primitive(op: str, result: DType | None = None) -> Callable[..., Scalar]:
    return lambda *args: Scalar(op, args, result or args[-1].dtype)


def check_primitive(op: str, operands: list[np.ndarray], expected: np.ndarray) -> None:
    got = run(primitive(op, dtype_of(expected.dtype)), *operands)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, op)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


NUMPY_NAMES = {
    "add": "add", "sub": "subtract", "mul": "multiply", "rem": "fmod", "neg": "negative",
    "abs": "absolute", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}  # fmt: skip
NUMPY_FLOAT = {
    **NUMPY_NAMES, "div": "true_divide", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "roundeven": "rint", "copysign": "copysign",
}  # fmt: skip
NUMPY_BITS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "invert"}
OTHERS = {"const", "input", "fma", "ldexp", "shl", "lshr", "ashr", "select", "cast"}


@pytest.mark.quick
def test_every_primitive_is_tested() -> None:
    assert {*NUMPY_FLOAT, *NUMPY_BITS, *OTHERS, "bits", "from_bits"} == set(PRIMITIVES)


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("op", NUMPY_FLOAT)
def test_float_primitive(op: str, dtype: DType) -> None:
    function = getattr(np, NUMPY_FLOAT[op])
    operands = grid(dtype, FLOAT_VALUES, FLOAT_VALUES)[: function.nin]
    with np.errstate(all="ignore"):
        check_primitive(op, operands, function(*operands))


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [I32, I64, U8], ids=str)
@pytest.mark.parametrize("op", [*NUMPY_NAMES, *NUMPY_BITS])
def test_integer_primitive(op: str, dtype: DType) -> None:
    function = getattr(np, {**NUMPY_NAMES, **NUMPY_BITS}[op])
    operands = grid(dtype, INT_VALUES, INT_VALUES)[: function.nin]
    with np.errstate(all="ignore"):
        check_primitive(op, operands, function(*operands))


@pytest.mark.quick("and", "not")
@pytest.mark.parametrize("op", NUMPY_BITS)
def test_bool_primitive(op: str) -> None:
    function = getattr(np, NUMPY_BITS[op])
    operands = grid(BOOL, [False, True], [False, True])[: function.nin]
    check_primitive(op, operands, function(*operands))


@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
def test_integer_division_truncates(dtype: DType) -> None:
    x, y = grid(dtype, INT_VALUES, [v for v in INT_VALUES if v])
    expected = np.array([int(a / b) for a, b in zip(x, y, strict=True)], dtype.numpy)
    check_primitive("div", [x, y], expected)


@pytest.mark.quick("i32")
@pytest.mark.parametrize("dtype", [I32, I64], ids=str)
def test_shifts(dtype: DType) -> None:
    x, by = grid(dtype, INT_VALUES, SHIFTS)
    check_primitive("shl", [x, by], x << by)
    check_primitive("ashr", [x, by], x >> by)
    unsigned = [(int(a) % 2**dtype.bits) >> int(b) for a, b in zip(x, by, strict=True)]
    expected = np.array(unsigned, f"u{dtype.size}").view(dtype.numpy)
    check_primitive("lshr", [x, by], expected)


@pytest.mark.quick("floats1-integers1")
@pytest.mark.parametrize("floats, integers", [(F32, I32), (F64, I64)])
def test_ldexp_and_bits(floats: DType, integers: DType) -> None:
    x = np.array(FLOAT_VALUES, floats.numpy)
    n = np.resize(np.array([-200, -3, 0, 5, 2_000_000_000], integers.numpy), x.shape)
    with np.errstate(over="ignore", under="ignore"):
        expected = np.ldexp(x, np.clip(n, -5000, 5000).astype(np.int32))
    np.testing.assert_array_equal(run(language.ldexp, x, n), expected)
    check_primitive("bits", [x], x.view(integers.numpy))
    check_primitive("from_bits", [x.view(integers.numpy)], x)


def test_select_const_and_broadcasting() -> None:
    test = np.array([[True], [False]])
    x = np.array([1.0, NAN], np.float32)
    got = run(lambda t, a: language.select(t, a, 2.5), test, x)
    np.testing.assert_array_equal(got, np.where(test, x, np.float32(2.5)))
    assert got.dtype == np.float32
    with pytest.raises(TypeError, match="input 0 is float64"):
        evaluate(input_(0, F32), [np.zeros(2)])


@pytest.mark.quick
@pytest.mark.parametrize("target", [BOOL, U8, I32, I64, F32, F64], ids=str)
@pytest.mark.parametrize("source", [BOOL, I32, F32, F64], ids=str)
def test_cast(source: DType, target: DType) -> None:
    x = np.array([0, 1, 2.7, 100.9, 0.3]).astype(source.numpy)
    got = run(lambda s: language.cast(s, target), x)
    np.testing.assert_array_equal(got, x.astype(target.numpy))
    assert got.dtype == target.numpy


@pytest.mark.quick("f64")
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_fma_rounds_once(dtype: DType) -> None:
    rng = np.random.default_rng(9)
    x, y = (rng.uniform(-2, 2, 2000).astype(dtype.numpy) for _ in range(2))
    z = np.where(rng.random(2000) < 0.5, -x * y, rng.uniform(-2, 2, 2000)).astype(dtype.numpy)
    expected = []
    with mpmath.workprec(300):
        for a, b, c in zip(x, y, z, strict=True):
            exact = mpmath.mpf(float(a)) * float(b) + float(c)
            with mpmath.workprec(24 if dtype == F32 else 53):
                expected.append(float(+exact))
    got = run(primitive("fma"), x, y, z)
    wrong = np.count_nonzero(got != np.array(expected, dtype.numpy))
    assert wrong <= (5 if dtype == F64 and not EXTENDED else 0)
    special = [
        [INF, 0.0, 0.0, 0.0, 1e30],
        [0.0, -0.0, -2.0, 1.0, 1.0],
        [1.0, -0.0, -0.0, -0.0, INF],
    ]
    signed = np.array([NAN, -0.0, -0.0, 0.0, INF], dtype.numpy)
    got = run(primitive("fma"), *(np.array(v, dtype.numpy) for v in special))
    np.testing.assert_array_equal(got, signed)
    np.testing.assert_array_equal(np.signbit(got[1:]), np.signbit(signed[1:]))
