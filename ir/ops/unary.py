"""Elementwise ops of one operand: arcs, hyperbolic and special functions, rounding, bits."""

from __future__ import annotations

import math

import numpy as np

import ir.scalar.exponential as fn
import ir.scalar.language as k
import ir.scalar.special as special
import ir.scalar.trigonometry as trig
from ir.opdef import no_gradient
from ir.ops.elementwise import unary, wide
from ir.ops.gradients import number
from ir.program import Builder, Value


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
    return np.copysign(np.where(z >= 1, math.inf, y), x.ravel()).reshape(x.shape)


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
unary("round", "f", k.roundeven, np.rint, paddle=None, grad=no_gradient)
unary("bitwise_not", "bi", lambda x: ~x, np.invert)
