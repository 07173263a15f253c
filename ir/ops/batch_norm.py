"""Batch norm in training: each channel by the mean and variance of its own elements.

The results are y, the mean and the variance (with divisor n) of every channel. The gradient of x
reads x itself and the two statistics; nothing else of the size of x is kept for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ir.opdef import ShapeError, axis_in, example, op
from ir.ops.elementwise import require_kind
from ir.ops.gradients import is_zero, number
from ir.program import Builder, Value
from ir.types import Dim, Type, product


def _types(x: Type, weight: Type, bias: Type, axis: int, epsilon: float) -> tuple[Type, ...]:
    require_kind("batch_norm", x, "f")
    n = x.shape[axis_in(axis, x.ndim)]
    for name, t in (("weight", weight), ("bias", bias)):
        if t != Type(x.dtype, (n,)):
            raise ShapeError(f"the {name} of batch_norm is {x.dtype}[{n}], not {t}")
    return x, weight, weight


def _row(x: Type, axis: int) -> tuple[Dim, ...]:
    """The shape of a vector of the channels, so that it broadcasts against x."""
    at = axis % x.ndim
    return tuple(d if k == at else 1 for k, d in enumerate(x.shape))


def _others(x: Type, axis: int) -> tuple[int, ...]:
    return tuple(k for k in range(x.ndim) if k != axis % x.ndim)


def _ref(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, axis: int, epsilon: float
) -> tuple[np.ndarray, ...]:
    axes, shape = tuple(k for k in range(x.ndim) if k != axis % x.ndim), [1] * x.ndim
    shape[axis] = -1
    w = x.astype(np.longdouble)
    mean, variance = w.mean(axes), w.var(axes)
    z = (w - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    y = z * weight.reshape(shape) + bias.reshape(shape)
    return y.astype(x.dtype), mean.astype(x.dtype), variance.astype(x.dtype)


def _expand(
    b: Builder, x: Value, weight: Value, bias: Value, axis: int, epsilon: float
) -> tuple[Value, ...]:
    axes, row = _others(x.type, axis), _row(x.type, axis)
    mean = b.mean(x, axes=axes, keepdim=True)
    variance = b.mean(b.square(b.subtract(x, mean)), axes=axes, keepdim=True)
    unit = b.rsqrt(b.scale(variance, bias=epsilon))
    y = b.multiply(b.subtract(x, mean), b.multiply(unit, b.reshape(weight, shape=row)))
    y = b.add(y, b.reshape(bias, shape=row))
    shape = weight.type.shape
    return y, b.reshape(mean, shape=shape), b.reshape(variance, shape=shape)


def _grad(
    b: Builder,
    gs: Sequence[Value],
    ys: Sequence[Value],
    x: Value,
    weight: Value,
    bias: Value,
    axis: int,
    epsilon: float,
) -> list[Value]:
    axes, row = _others(x.type, axis), _row(x.type, axis)
    n = b.cast(b.size(n=product(x.type.shape[k] for k in axes)), dtype=x.type.dtype)
    mean, variance = (b.reshape(v, shape=row) for v in ys[1:])
    centred = b.subtract(x, mean)
    unit = b.rsqrt(b.scale(variance, bias=epsilon))
    g = gs[0]
    shift = b.sum(g, axes=axes, keepdim=True)
    along = b.multiply(b.sum(b.multiply(g, centred), axes=axes, keepdim=True), unit)
    slope = b.multiply(b.divide(along, n), unit)
    rest = b.subtract(b.subtract(g, b.divide(shift, n)), b.multiply(centred, slope))
    dx = b.multiply(rest, b.multiply(unit, b.reshape(weight, shape=row)))
    if not is_zero(b, gs[1]):
        dx = b.add(dx, b.reshape(b.divide(gs[1], n), shape=row))
    if not is_zero(b, gs[2]):
        twice = b.divide(b.multiply(gs[2], number(b, 2.0, x)), n)
        dx = b.add(dx, b.multiply(centred, b.reshape(twice, shape=row)))
    shape = weight.type.shape
    return [dx, b.reshape(along, shape=shape), b.reshape(shift, shape=shape)]


op(
    "batch_norm(x, weight, bias, *, axis=1, epsilon=1e-05)",
    types=_types,
    ref=_ref,
    expand=_expand,
    grad=_grad,
    examples=(
        example("f32[3,4]", "f32[4]", "f32[4]"),
        example("f64[2,3,5,4]", "f64[3]", "f64[3]"),
        example("f32[4,5,3]", "f32[3]", "f32[3]", axis=-1, epsilon=0.01),
    ),
)
