"""Elementwise ops of one operand: exponentials, arcs, special functions, rounding, bits, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import ir.scalar.exponential as fn
import ir.scalar.language as k
import ir.scalar.special as special
import ir.scalar.trigonometry as trig
from ir.opdef import Example, example, op
from ir.ops.elementwise import elementwise, require_kind
from ir.ops.gradients import masked, number, zero_gradient
from ir.program import Builder, Value
from ir.types import BOOL, F32, F64, DType, Type


def unary_examples(kinds: str, low: float = -2.0, high: float = 2.0) -> tuple[Example, ...]:
    dtypes = [d for d in ("f32", "f64", "i64", "i32", "bool") if d[0] in kinds]
    shapes = ("[3,4]", "[0,4]", "[]", "[37]")
    return tuple(example(d + s, low=low, high=high) for d in dtypes for s in shapes)


def unary(
    name: str, kinds: str, kernel: Callable[..., Any], ref: Callable[..., Any], **row: Any
) -> None:
    low, high = row.pop("low", -2.0), row.pop("high", 2.0)
    paddle = row.pop("paddle", name)
    examples = unary_examples(kinds, low, high)
    elementwise(f"{name}(x)", kinds, kernel, ref, paddle=paddle, examples=examples, **row)


def wide(f: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate a reference in extended precision; the caller rounds."""
    return lambda x: f(x.astype(np.longdouble))


def _erf(x: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.vectorize(math.erf, otypes=[np.float64])(x)
    return out


def _erfc(x: np.ndarray) -> np.ndarray:
    out: np.ndarray = np.vectorize(math.erfc, otypes=[np.float64])(x)
    return out


def _erf_grad(b: Builder, g: Value, y: Value, x: Value) -> list[Value]:
    slope = b.scale(b.exp(b.neg(b.square(x))), scale=2 / math.sqrt(math.pi))
    return [b.multiply(g, slope)]


def _abs_grad(b: Builder, g: Value, y: Value, x: Value) -> list[Value]:
    """Zero at zero whatever `g` is, as Paddle's kernel: the square root of |x| has a gradient."""
    return [masked(b, b.not_equal(x, number(b, 0.0, x)), b.multiply(g, b.sign(x)))]


def _silu_grad(b: Builder, g: Value, y: Value, x: Value) -> list[Value]:
    """s + x s (1 - s), with s = sigmoid(x)."""
    s = b.sigmoid(x)
    rest = b.multiply(x, b.scale(s, scale=-1.0, bias=1.0))
    return [b.multiply(g, b.multiply(s, b.scale(rest, bias=1.0)))]


unary("exp", "f", fn.exp, wide(np.exp), grad=lambda b, g, y, x: [b.multiply(g, y)])
unary(
    "expm1",
    "f",
    fn.expm1,
    wide(np.expm1),
    grad=lambda b, g, y, x: [b.multiply(g, b.scale(y, bias=1.0))],
)
unary("log", "f", fn.log, wide(np.log), low=0.1, high=9.0, grad=lambda b, g, y, x: [b.divide(g, x)])
unary(
    "log2",
    "f",
    fn.log2,
    wide(np.log2),
    low=0.1,
    high=9.0,
    grad=lambda b, g, y, x: [b.divide(g, b.scale(x, scale=math.log(2.0)))],
)
unary(
    "log10",
    "f",
    fn.log10,
    wide(np.log10),
    low=0.1,
    high=9.0,
    grad=lambda b, g, y, x: [b.divide(g, b.scale(x, scale=math.log(10.0)))],
)
unary(
    "log1p",
    "f",
    fn.log1p,
    wide(np.log1p),
    low=-0.9,
    high=9.0,
    grad=lambda b, g, y, x: [b.divide(g, b.scale(x, bias=1.0))],
)
unary(
    "tanh",
    "f",
    fn.tanh,
    wide(np.tanh),
    grad=lambda b, g, y, x: [b.multiply(g, b.scale(b.square(y), scale=-1.0, bias=1.0))],
)
unary(
    "sigmoid",
    "f",
    fn.sigmoid,
    wide(lambda x: 1 / (1 + np.exp(-x))),
    grad=lambda b, g, y, x: [b.multiply(g, b.multiply(y, b.scale(y, scale=-1.0, bias=1.0)))],
)
unary("erf", "f", fn.erf, _erf, grad=_erf_grad)
unary("sin", "f", fn.sin, wide(np.sin), grad=lambda b, g, y, x: [b.multiply(g, b.cos(x))])
unary("cos", "f", fn.cos, wide(np.cos), grad=lambda b, g, y, x: [b.neg(b.multiply(g, b.sin(x)))])
unary(
    "sqrt",
    "f",
    k.sqrt,
    np.sqrt,
    low=0.0,
    high=9.0,
    grad=lambda b, g, y, x: [b.divide(g, b.scale(y, scale=2.0))],
)
unary(
    "rsqrt",
    "f",
    fn.rsqrt,
    wide(lambda x: 1 / np.sqrt(x)),
    low=0.1,
    high=9.0,
    grad=lambda b, g, y, x: [b.multiply(g, b.scale(b.multiply(b.square(y), y), scale=-0.5))],
)
unary(
    "reciprocal",
    "f",
    lambda x: 1 / x,
    lambda x: 1 / x,
    low=0.1,
    high=9.0,
    grad=lambda b, g, y, x: [b.multiply(g, b.neg(b.square(y)))],
)
unary(
    "square",
    "fi",
    lambda x: x * x,
    lambda x: x * x,
    grad=lambda b, g, y, x: [b.multiply(g, b.scale(x, scale=2.0))],
)
unary("abs", "fi", k.abs_, np.abs, grad=_abs_grad)
unary("floor", "f", k.floor, np.floor, grad=zero_gradient)
unary("ceil", "f", k.ceil, np.ceil, grad=zero_gradient)
unary("trunc", "f", k.trunc, np.trunc, grad=zero_gradient)
unary(
    "relu",
    "fi",
    lambda x: k.select(x > 0, x, k.const(0, x.dtype)),  # as Paddle's kernel: a NaN becomes 0
    lambda x: np.where(x > 0, x, 0),
    grad=lambda b, g, y, x: [masked(b, b.greater_than(y, number(b, 0.0, y)), g)],
)
unary(
    "silu",
    "f",
    lambda x: x / (1 + fn.exp(-x)),
    wide(lambda x: x / (1 + np.exp(-x))),
    grad=_silu_grad,
)
unary(
    "softsign",
    "f",
    lambda x: x / (1 + k.abs_(x)),
    lambda x: x / (1 + np.abs(x)),
    grad=lambda b, g, y, x: [b.divide(g, b.square(b.scale(b.abs(x), bias=1.0)))],
)
unary(
    "sign",
    "fi",
    lambda x: k.select(x > 0, k.const(1, x.dtype), k.select(x < 0, k.const(-1, x.dtype), x)),
    np.sign,
    grad=zero_gradient,
)
unary("logical_not", "bfi", lambda x: ~k.cast(x, BOOL), np.logical_not, to_bool=True)
unary("isnan", "f", k.isnan, np.isnan, to_bool=True)
unary("isfinite", "f", lambda x: k.eq(x - x, 0), np.isfinite, to_bool=True)
elementwise(
    "neg(x)",
    "fi",
    lambda x: -x,
    np.negative,
    grad=lambda b, g, y, x: [b.neg(g)],
    examples=unary_examples("fi"),
)


# ---------------------------------------------------------------- with attributes
def scale_kernel(x: k.Scalar, scale: float, bias: float, bias_after_scale: bool) -> k.Scalar:
    if bias_after_scale:
        return x * k.const(scale, x.dtype) + k.const(bias, x.dtype)
    return (x + k.const(bias, x.dtype)) * k.const(scale, x.dtype)


def scale_ref(x: np.ndarray, scale: float, bias: float, bias_after_scale: bool) -> np.ndarray:
    s, b = x.dtype.type(scale), x.dtype.type(bias)
    out: np.ndarray = x * s + b if bias_after_scale else (x + b) * s
    return out


elementwise(
    "scale(x, *, scale=1.0, bias=0.0, bias_after_scale=True)",
    "fi",
    scale_kernel,
    scale_ref,
    grad=lambda b, g, y, x, scale, bias, bias_after_scale: [b.scale(g, scale=scale)],
    examples=(
        example("f32[3,4]", scale=3.3, bias=1.1),
        example("f64[37]", scale=-0.5, bias=2.0, bias_after_scale=False),
        example("i64[5]", scale=3.0, bias=-1.0),
        example("f32[0,4]", scale=2.0),
    ),
)
elementwise(
    "leaky_relu(x, *, negative_slope=0.01)",
    "f",
    lambda x, negative_slope: k.select(x > 0, x, x * negative_slope),
    lambda x, negative_slope: np.where(x > 0, x, x * x.dtype.type(negative_slope)),
    grad=lambda b, g, y, x, negative_slope: [
        b.where(b.less_than(x, number(b, 0.0, x)), b.scale(g, scale=negative_slope), g)
    ],
    paddle="leaky_relu",
    examples=(example("f32[3,4]", negative_slope=0.1), example("f64[7]")),
)
elementwise(
    "elu(x, *, alpha=1.0)",
    "f",
    lambda x, alpha: k.select(x > 0, x, fn.expm1(x) * alpha),
    lambda x, alpha: np.where(x > 0, x, np.expm1(x.astype(np.longdouble)) * alpha),
    grad=lambda b, g, y, x, alpha: [
        b.where(
            b.greater_than(x, number(b, 0.0, x)), g, b.multiply(g, b.scale(b.exp(x), scale=alpha))
        )
    ],
    paddle="elu",
    examples=(example("f32[3,4]", alpha=0.7), example("f64[7]")),
)


def _softplus_ref(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    z = x.astype(np.longdouble) * beta
    return np.where(z > threshold, x, np.log1p(np.exp(np.minimum(z, threshold))) / beta)


elementwise(
    "softplus(x, *, beta=1.0, threshold=20.0)",
    "f",
    lambda x, beta, threshold: k.select(
        x * beta > threshold, x, fn.log1p(fn.exp(x * beta)) / k.const(beta, x.dtype)
    ),
    _softplus_ref,
    grad=lambda b, g, y, x, beta, threshold: [
        b.where(
            b.greater_than(b.scale(x, scale=beta), number(b, threshold, x)),
            g,
            b.multiply(g, b.sigmoid(b.scale(x, scale=beta))),
        )
    ],
    paddle="softplus",
    examples=(example("f32[3,4]", low=-30, high=30), example("f64[7]", beta=2.0)),
)


def gelu_kernel(x: k.Scalar, approximate: bool) -> k.Scalar:
    if not approximate:
        return fn.gelu(x)
    inner = k.fma(x * x * x, 0.044715, x) * math.sqrt(2 / math.pi)
    return x * 0.5 * (1 + fn.tanh(inner))


def gelu_ref(x: np.ndarray, approximate: bool) -> np.ndarray:
    w = x.astype(np.longdouble)
    twice: np.ndarray = _erfc(-x.astype(np.float64) / math.sqrt(2))
    if approximate:
        twice = 1 + np.tanh(math.sqrt(2 / math.pi) * (w + 0.044715 * w**3))
    out: np.ndarray = 0.5 * w * twice
    return out


def gelu_grad(b: Builder, g: Value, y: Value, x: Value, approximate: bool) -> list[Value]:
    """Exact: P(x) + x p(x), of the normal distribution. Approximate: of 0.5 x (1 + tanh(u(x)))."""
    if not approximate:
        below = b.scale(b.erf(b.scale(x, scale=math.sqrt(0.5))), scale=0.5, bias=0.5)
        density = b.exp(b.scale(b.square(x), scale=-0.5))
        at = b.multiply(x, b.scale(density, scale=1 / math.sqrt(2 * math.pi)))
        return [b.multiply(g, b.add(below, at))]
    c = math.sqrt(2 / math.pi)
    square = b.square(x)
    t = b.tanh(b.multiply(x, b.scale(square, scale=0.044715 * c, bias=c)))
    slope = b.multiply(x, b.scale(square, scale=3 * 0.044715 * c, bias=c))
    inner = b.multiply(b.scale(b.square(t), scale=-1.0, bias=1.0), slope)
    return [b.multiply(g, b.scale(b.add(b.scale(t, bias=1.0), inner), scale=0.5))]


elementwise(
    "gelu(x, *, approximate=False)",
    "f",
    gelu_kernel,
    gelu_ref,
    grad=gelu_grad,
    paddle="gelu",
    examples=(example("f32[3,4]"), example("f64[7]"), example("f32[9]", approximate=True)),
)


def clip_kernel(x: k.Scalar, min: float, max: float) -> k.Scalar:
    low, high = k.const(min, x.dtype), k.const(max, x.dtype)
    return k.select(x < low, low, k.select(x > high, high, x))


def clip_grad(b: Builder, g: Value, y: Value, x: Value, min: float, max: float) -> list[Value]:
    """Inside of the bounds, and on them."""
    above = b.greater_equal(x, number(b, min, x))
    return [masked(b, b.logical_and(above, b.less_equal(x, number(b, max, x))), g)]


elementwise(
    "clip(x, *, min, max)",
    "fi",
    clip_kernel,
    lambda x, min, max: np.clip(x, x.dtype.type(min), x.dtype.type(max)),
    grad=clip_grad,
    examples=(example("f32[3,4]", min=-0.5, max=0.7), example("i64[7]", min=0, max=1)),
)


# ---------------------------------------------------------------- cast
def _cast_types(x: Type, dtype: DType) -> Type:
    require_kind("cast", x, "fibu")
    require_kind("cast", Type(dtype), "fibu")
    return x.with_dtype(dtype)


def _cast_ref(x: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(dtype.numpy)


op(
    "cast(x, *, dtype)",
    types=_cast_types,
    kernel=lambda x, dtype: k.cast(x, dtype),
    ref=_cast_ref,
    grad=lambda b, g, y, x, dtype: [b.cast(g, dtype=x.type.dtype)],
    examples=(
        example("f32[3,4]", dtype=F64),
        example("bool[5]", dtype=F32),
        example("i64[5]", dtype=F32),
        example("f64[5]", dtype=BOOL),
        example("f32[5]", dtype=DType("i64", "i", 64)),
    ),
)


def _over(b: Builder, g: Value, inside: Value) -> list[Value]:
    """g / sqrt(inside)."""
    return [b.multiply(g, b.rsqrt(inside))]


def _one_less_square(b: Builder, x: Value) -> Value:
    """(1 - x)(1 + x), which does not cancel near 1."""
    new: Value = b.multiply(b.scale(x, scale=-1.0, bias=1.0), b.scale(x, bias=1.0))
    return new


def _one_more_square(b: Builder, x: Value) -> Value:
    new: Value = b.scale(b.square(x), bias=1.0)
    return new


unary(
    "tan",
    "f",
    trig.tan,
    wide(np.tan),
    low=-1.4,
    high=1.4,
    grad=lambda b, g, y, x: [b.multiply(g, _one_more_square(b, y))],
)
unary("sinh", "f", trig.sinh, wide(np.sinh), grad=lambda b, g, y, x: [b.multiply(g, b.cosh(x))])
unary("cosh", "f", trig.cosh, wide(np.cosh), grad=lambda b, g, y, x: [b.multiply(g, b.sinh(x))])
unary(
    "asin",
    "f",
    trig.asin,
    wide(np.arcsin),
    low=-0.9,
    high=0.9,
    grad=lambda b, g, y, x: _over(b, g, _one_less_square(b, x)),
)
unary(
    "acos",
    "f",
    trig.acos,
    wide(np.arccos),
    low=-0.9,
    high=0.9,
    grad=lambda b, g, y, x: _over(b, b.neg(g), _one_less_square(b, x)),
)
unary(
    "atan",
    "f",
    trig.atan,
    wide(np.arctan),
    grad=lambda b, g, y, x: [b.divide(g, _one_more_square(b, x))],
)
unary(
    "asinh",
    "f",
    trig.asinh,
    wide(np.arcsinh),
    grad=lambda b, g, y, x: _over(b, g, _one_more_square(b, x)),
)
unary(
    "acosh",
    "f",
    trig.acosh,
    wide(np.arccosh),
    low=1.1,
    high=9.0,
    grad=lambda b, g, y, x: _over(b, g, b.multiply(b.scale(x, bias=-1.0), b.scale(x, bias=1.0))),
)
unary(
    "atanh",
    "f",
    trig.atanh,
    wide(np.arctanh),
    low=-0.9,
    high=0.9,
    grad=lambda b, g, y, x: [b.divide(g, _one_less_square(b, x))],
)


def _erfinv_ref(x: np.ndarray) -> np.ndarray:
    """Halley's method on erf (on erfc beyond 1/2) from a rough start."""
    z = np.abs(x.astype(np.float64)).ravel()
    y = np.sqrt(-np.log((1 - z) * (1 + z))) * (math.sqrt(math.pi) / 2)
    rest = 1 - np.minimum(z, 1)
    erf, erfc = (np.vectorize(f, otypes=[np.float64]) for f in (math.erf, math.erfc))
    for _ in range(60):
        error = np.where(z < 0.5, erf(y) - z, rest - erfc(y)) if y.size else y
        step = error * np.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (1 + y * step)
    out: np.ndarray = np.copysign(np.where(z >= 1, math.inf, y), x.ravel()).reshape(x.shape)
    return out


def _erfinv_grad(b: Builder, g: Value, y: Value, x: Value) -> list[Value]:
    return [b.multiply(g, b.scale(b.exp(b.square(y)), scale=math.sqrt(math.pi) / 2))]


unary("erfinv", "f", special.erfinv, _erfinv_ref, low=-0.9, high=0.9, grad=_erfinv_grad)


def logit(x: k.Scalar) -> k.Scalar:
    """log(x / (1 - x)), which is log(1 + (2 x - 1) / (1 - x)) near 1/2."""
    rest = 1.0 - x
    near = fn.log1p(((x - 0.5) + (x - 0.5)) / rest)
    return k.select(x < 0.25, fn.log(x / rest), near)


def _logit_grad(b: Builder, g: Value, y: Value, x: Value) -> list[Value]:
    """g / (x (1 - x)), and NaN where that is negative."""
    below = b.multiply(x, b.scale(x, scale=-1.0, bias=1.0))
    inside = b.greater_equal(below, number(b, 0.0, x))
    return [b.where(inside, b.divide(g, below), number(b, math.nan, x))]


unary(
    "logit",
    "f",
    logit,
    wide(lambda x: np.log(x) - np.log1p(-x)),
    low=0.1,
    high=0.9,
    paddle=None,
    grad=_logit_grad,
)
unary("round", "f", k.roundeven, np.rint, paddle=None, grad=zero_gradient)
unary("bitwise_not", "bi", lambda x: ~x, np.invert)
