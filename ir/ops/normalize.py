"""Normalizations: softmax, log-softmax, layer norm, and batch norm in training.

Layer norm and softmax expand into smaller ops. Batch norm normalizes each channel by the mean and
variance of its own elements; its results are y, the mean and the variance (with divisor n) of every
channel. The gradient of x reads x itself and the two statistics; nothing else of its size is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ir.opdef import ShapeError, axis_in, example, op
from ir.ops.elementwise import require_kind
from ir.ops.gradients import fitted, is_zero, number
from ir.program import Builder, Value
from ir.types import Dim, Type, product


def _batch_norm_types(
    x: Type, weight: Type, bias: Type, axis: int, epsilon: float
) -> tuple[Type, ...]:
    require_kind("batch_norm", x, "f")
    n = x.shape[axis_in(axis, x.ndim)]
    for name, t in (("weight", weight), ("bias", bias)):
        if t != Type(x.dtype, (n,)):
            raise ShapeError(f"the {name} of batch_norm is {x.dtype}[{n}], not {t}")
    return x, weight, weight


def _channel_shape(x: Type, axis: int) -> tuple[Dim, ...]:
    """The shape of a vector of the channels, so that it broadcasts against x."""
    at = axis % x.ndim
    return tuple(d if k == at else 1 for k, d in enumerate(x.shape))


def _other_axes(x: Type, axis: int) -> tuple[int, ...]:
    return tuple(k for k in range(x.ndim) if k != axis % x.ndim)


def _batch_norm_ref(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, axis: int, epsilon: float
) -> tuple[np.ndarray, ...]:
    axes, shape = tuple(k for k in range(x.ndim) if k != axis % x.ndim), [1] * x.ndim
    shape[axis] = -1
    w = x.astype(np.longdouble)
    mean, variance = w.mean(axes), w.var(axes)
    z = (w - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + epsilon)
    y = z * weight.reshape(shape) + bias.reshape(shape)
    return y.astype(x.dtype), mean.astype(x.dtype), variance.astype(x.dtype)


def _batch_norm_expand(
    b: Builder, x: Value, weight: Value, bias: Value, axis: int, epsilon: float
) -> tuple[Value, ...]:
    axes, row = _other_axes(x.type, axis), _channel_shape(x.type, axis)
    mean = b.mean(x, axes=axes, keepdim=True)
    variance = b.mean(b.square(b.subtract(x, mean)), axes=axes, keepdim=True)
    unit = b.rsqrt(b.scale(variance, bias=epsilon))
    y = b.multiply(b.subtract(x, mean), b.multiply(unit, b.reshape(weight, shape=row)))
    y = b.add(y, b.reshape(bias, shape=row))
    shape = weight.type.shape
    return y, b.reshape(mean, shape=shape), b.reshape(variance, shape=shape)


def _batch_norm_grad(
    b: Builder,
    gs: Sequence[Value],
    ys: Sequence[Value],
    x: Value,
    weight: Value,
    bias: Value,
    axis: int,
    epsilon: float,
) -> list[Value]:
    axes, row = _other_axes(x.type, axis), _channel_shape(x.type, axis)
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
    types=_batch_norm_types,
    ref=_batch_norm_ref,
    expand=_batch_norm_expand,
    grad=_batch_norm_grad,
    examples=(
        example("f32[3,4]", "f32[4]", "f32[4]"),
        example("f64[2,3,5,4]", "f64[3]", "f64[3]"),
        example("f32[4,5,3]", "f32[3]", "f32[3]", axis=-1, epsilon=0.01),
    ),
)


# ---------------------------------------------------------------- composites
#: Paddle's softmax on the CPU takes what lies further below the largest for this much: a masked
#: element has the weight exp(-64), and its logarithm is finite
_LEAST = -64.0


def _softmax_types(x: Type, axis: int) -> Type:
    require_kind("softmax", x, "f")
    axis_in(axis, max(x.ndim, 1))
    return x


def _below_the_largest_ref(x: np.ndarray, axis: int) -> np.ndarray:
    w = x.astype(np.longdouble)
    out: np.ndarray = np.maximum(w - w.max(axis=axis, keepdims=True, initial=-np.inf), _LEAST)
    return out


def _softmax_ref(x: np.ndarray, axis: int) -> np.ndarray:
    if x.ndim == 0:
        return np.ones_like(x)
    e = np.exp(_below_the_largest_ref(x, axis))
    out: np.ndarray = (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)
    return out


def _below_the_largest(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    z = b.subtract(x, b.max(x, axes=axes, keepdim=True))
    new: Value = b.maximum(z, number(b, _LEAST, z))
    return new


def _softmax_expand(b: Builder, x: Value, axis: int) -> Value:
    axes = (axis,) if x.type.ndim else ()
    e = b.exp(_below_the_largest(b, x, axes))
    new: Value = b.divide(e, b.sum(e, axes=axes, keepdim=True))
    return new


def _log_softmax_expand(b: Builder, x: Value, axis: int) -> Value:
    axes = (axis,) if x.type.ndim else ()
    z = _below_the_largest(b, x, axes)
    new: Value = b.subtract(z, b.log(b.sum(b.exp(z), axes=axes, keepdim=True)))
    return new


def _log_softmax_ref(x: np.ndarray, axis: int) -> np.ndarray:
    if x.ndim == 0:
        return np.zeros_like(x)
    z = _below_the_largest_ref(x, axis)
    out: np.ndarray = (z - np.log(np.exp(z).sum(axis=axis, keepdims=True))).astype(x.dtype)
    return out


def _softmax_grad(b: Builder, g: Value, y: Value, x: Value, axis: int) -> list[Value]:
    axes = (axis,) if x.type.ndim else ()
    part = b.multiply(g, y)
    return [b.subtract(part, b.multiply(y, b.sum(part, axes=axes, keepdim=True)))]


def _log_softmax_grad(b: Builder, g: Value, y: Value, x: Value, axis: int) -> list[Value]:
    axes = (axis,) if x.type.ndim else ()
    return [b.subtract(g, b.multiply(b.exp(y), b.sum(g, axes=axes, keepdim=True)))]


_SOFT = (
    example("f32[3,4]", axis=-1),
    example("f64[3,4]", axis=0),
    example("f32[2,0,5]", axis=-1),
    example("f32[2,3,70]", axis=-1),
)
op(
    "softmax(x, *, axis=-1)",
    types=_softmax_types,
    ref=_softmax_ref,
    expand=_softmax_expand,
    grad=_softmax_grad,
    paddle="softmax",
    examples=_SOFT,
)
op(
    "log_softmax(x, *, axis=-1)",
    types=_softmax_types,
    ref=_log_softmax_ref,
    expand=_log_softmax_expand,
    grad=_log_softmax_grad,
    paddle="log_softmax",
    examples=_SOFT,
)


def _norm_types(x: Type, weight: Type, bias: Type, epsilon: float, begin_norm_axis: int) -> Type:
    require_kind("layer_norm", x, "f")
    axis_in(begin_norm_axis, x.ndim + 1, "begin_norm_axis")
    size = product(x.shape[begin_norm_axis:])
    for name, t in (("weight", weight), ("bias", bias)):
        if t.dtype != x.dtype or t.ndim != 1 or t.shape[0] != size:
            raise ShapeError(f"the {name} of layer_norm is {x.dtype}[{size}], not {t}")
    return x


def _norm_ref(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float, begin_norm_axis: int
) -> np.ndarray:
    axes = tuple(range(begin_norm_axis, x.ndim))
    shape = x.shape[begin_norm_axis:]
    w = x.astype(np.longdouble)
    z = w - w.mean(axis=axes, keepdims=True)
    y = z / np.sqrt((z * z).mean(axis=axes, keepdims=True) + epsilon)
    out: np.ndarray = (y * weight.reshape(shape) + bias.reshape(shape)).astype(x.dtype)
    return out


def _norm_expand(
    b: Builder, x: Value, weight: Value, bias: Value, epsilon: float, begin_norm_axis: int
) -> Value:
    axes = tuple(range(begin_norm_axis, x.type.ndim))
    shape = x.type.shape[begin_norm_axis:]
    z = b.subtract(x, b.mean(x, axes=axes, keepdim=True))
    variance = b.mean(b.square(z), axes=axes, keepdim=True)
    y = b.multiply(z, b.rsqrt(b.scale(variance, bias=epsilon)))
    y = b.multiply(y, b.reshape(weight, shape=shape))
    new: Value = b.add(y, b.reshape(bias, shape=shape))
    return new


def _norm_grad(
    b: Builder,
    g: Value,
    y: Value,
    x: Value,
    weight: Value,
    bias: Value,
    epsilon: float,
    begin_norm_axis: int,
) -> list[Value]:
    """Mean and deviation are computed again from x."""
    axes = tuple(range(begin_norm_axis, x.type.ndim))
    shape = x.type.shape[begin_norm_axis:]
    z = b.subtract(x, b.mean(x, axes=axes, keepdim=True))
    variance = b.mean(b.square(z), axes=axes, keepdim=True)
    unit = b.rsqrt(b.scale(variance, bias=epsilon))
    n = b.multiply(z, unit)
    dn = b.multiply(g, b.reshape(weight, shape=shape))
    along = b.multiply(n, b.mean(b.multiply(dn, n), axes=axes, keepdim=True))
    centred = b.subtract(dn, b.mean(dn, axes=axes, keepdim=True))
    dx = b.multiply(unit, b.subtract(centred, along))
    inner = x.type.with_shape(shape)
    rows = [fitted(b, v, inner) for v in (b.multiply(g, n), g)]
    return [dx, *(b.reshape(v, shape=weight.type.shape) for v in rows)]


op(
    "layer_norm(x, weight, bias, *, epsilon=1e-05, begin_norm_axis)",
    types=_norm_types,
    ref=_norm_ref,
    expand=_norm_expand,
    grad=_norm_grad,
    examples=(
        example("f32[3,4]", "f32[4]", "f32[4]", begin_norm_axis=1),
        example("f64[2,3,5]", "f64[15]", "f64[15]", begin_norm_axis=1),
        example("f32[0,8]", "f32[8]", "f32[8]", begin_norm_axis=1),
    ),
)
