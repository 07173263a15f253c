"""Elementwise rows of activations with thresholds; at their kinks they are as Paddle's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import ir.scalar.language as k
from ir.opdef import example
from ir.ops.elementwise import elementwise
from ir.ops.gradients import masked, number
from ir.ops.unary import clip_kernel
from ir.program import Builder, Value


def _holds(x: k.Scalar, test: k.Scalar) -> k.Scalar:
    """`x` where the test holds, else zero with its sign; NaN for what is infinite there."""
    return x * k.cast(test, x.dtype)


def _between(b: Builder, g: Value, x: Value, low: float, high: float) -> list[Value]:
    """The gradient inside of an open interval."""
    above = b.greater_than(x, number(b, low, x))
    return [masked(b, b.logical_and(above, b.less_than(x, number(b, high, x))), g)]


elementwise(
    "hardtanh(x, *, min=-1.0, max=1.0)",
    "f",
    clip_kernel,
    lambda x, min, max: np.clip(x, x.dtype.type(min), x.dtype.type(max)),
    grad=lambda b, g, y, x, min, max: _between(b, g, x, min, max),
    paddle="hardtanh",
    examples=(example("f32[3,4]", min=-0.5, max=0.7), example("f64[7]")),
)
elementwise(
    "thresholded_relu(x, *, threshold=1.0, value=0.0)",
    "f",
    lambda x, threshold, value: (
        _holds(x, x > threshold) + _holds(k.const(value, x.dtype), x <= threshold)
    ),
    lambda x, threshold, value: np.where(
        x > x.dtype.type(threshold), x, np.where(x == -np.inf, np.nan, x * 0 + value)
    ),
    grad=lambda b, g, y, x, threshold, value: [
        masked(b, b.greater_than(x, number(b, threshold, x)), g)
    ],
    paddle="thresholded_relu",
    examples=(example("f32[3,4]", threshold=0.4), example("f64[7]", threshold=0.4, value=2.0)),
)
elementwise(
    "hardsigmoid(x, *, slope=1 / 6, offset=0.5)",
    "f",
    lambda x, slope, offset: k.minimum(k.maximum(x * slope + offset, 0.0), 1.0),
    lambda x, slope, offset: np.clip(x * x.dtype.type(slope) + x.dtype.type(offset), 0, 1),
    grad=lambda b, g, y, x, slope, offset: _between(b, b.scale(g, scale=slope), y, 0.0, 1.0),
    paddle="hardsigmoid",
    examples=(example("f32[3,4]", low=-5.0, high=5.0), example("f64[7]", slope=0.2)),
)


def _hardswish_grad(b: Builder, g: Value, y: Value, x: Value) -> list[Value]:
    """0 up to -3, x / 3 + 1 / 2 between, 1 from 3 on."""
    inside = b.multiply(g, b.scale(x, scale=1 / 3, bias=0.5))
    rest = b.where(b.greater_equal(x, number(b, 3.0, x)), g, inside)
    return [b.where(b.less_equal(x, number(b, -3.0, x)), number(b, 0.0, g), rest)]


def _hardswish(x: Any, minimum: Any, maximum: Any) -> Any:
    return minimum(maximum(x + 3.0, 0.0), 6.0) * x / 6.0


elementwise(
    "hardswish(x)",
    "f",
    lambda x: _hardswish(x, k.minimum, k.maximum),
    lambda x: _hardswish(x, np.minimum, np.maximum),
    grad=_hardswish_grad,
    paddle="hardswish",
    examples=(example("f32[3,4]", low=-5.0, high=5.0), example("f64[37]", low=-5.0, high=5.0)),
)
