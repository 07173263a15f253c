"""Reductions and the ops of network layers; composite ops expand into smaller ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.opdef import Reduce, ShapeError, axis_in, example, op
from ir.ops.elementwise import require_kind
from ir.ops.gradients import Scattered, fitted, flat_index, masked
from ir.program import Builder, Value
from ir.scalar import language as k
from ir.types import BOOL, I32, I64, Dim, Type, product


# ---------------------------------------------------------------- reductions
def normal_axes(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes; `()` means all of them."""
    return tuple(sorted({axis_in(a, ndim) for a in axes})) or tuple(range(ndim))


def reduced_shape(x: Type, axes: tuple[int, ...], keepdim: bool) -> tuple[Dim, ...]:
    gone = normal_axes(axes, x.ndim)
    if keepdim:
        return tuple(1 if i in gone else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in gone)


def spread(b: Builder, v: Value, x: Value, axes: tuple[int, ...]) -> Value:
    """The result of a reduction of `x`, so that it broadcasts against `x`."""
    shape = reduced_shape(x.type, axes, True)
    new: Value = v if v.type.shape == shape else b.reshape(v, shape=shape)
    return new


def _sum_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    return [b.expand(spread(b, g, x, axes), shape=x.type.shape)]


def _mean_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    count = b.cast(b.size(n=_count(x.type, axes)), dtype=x.type.dtype)
    return [b.expand(spread(b, b.divide(g, count), x, axes), shape=x.type.shape)]


def _prod_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    """As Paddle: NaN where x is zero."""
    return [b.divide(spread(b, b.multiply(g, y), x, axes), x)]


def _extremum_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    """Equal elements share it."""
    hit = b.cast(b.equal(x, spread(b, y, x, axes)), dtype=x.type.dtype)
    count = b.sum(hit, axes=axes, keepdim=True)
    return [b.multiply(hit, b.divide(spread(b, g, x, axes), count))]


def _reduction(
    name: str, kinds: str, reduce: Reduce, ref: Any, examples: Any, grad: Any = None
) -> None:
    def types(x: Type, axes: tuple[int, ...], keepdim: bool) -> Type:
        require_kind(name, x, kinds)
        return Type(x.dtype, reduced_shape(x, axes, keepdim))

    def run(x: np.ndarray, axes: tuple[int, ...], keepdim: bool) -> np.ndarray:
        out = ref(x, axis=normal_axes(axes, x.ndim), keepdims=keepdim)
        return np.asarray(out).astype(x.dtype)

    op(
        f"{name}(x, *, axes=(), keepdim=False)",
        types=types,
        ref=run,
        reduce=reduce,
        grad=grad,
        examples=examples,
    )


def _sum_ref(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    return wide.sum(axis=axis, keepdims=keepdims)


_EXAMPLES = (
    example("f32[3,4]", axes=(1,)),
    example("f32[3,4]", axes=(0,), keepdim=True),
    example("f64[2,3,5]", axes=(0, 2)),
    example("f32[2,3,70]", axes=(-1,)),
    example("i64[3,4]"),
    example("f32[]"),
)
_EMPTY = (example("f32[0,4]", axes=(0,)), example("f32[3,0]", axes=(1,)))

_SUM = Reduce(lambda d: k.const(0, d), lambda a, x: a + x)
_PROD = Reduce(lambda d: k.const(1, d), lambda a, x: a * x)
_reduction("sum", "fi", _SUM, _sum_ref, _EXAMPLES + _EMPTY, _sum_grad)
_reduction("prod", "fi", _PROD, np.prod, _EXAMPLES + _EMPTY, _prod_grad)


def _lowest(d: Any) -> k.Scalar:
    return k.const(-np.inf if d.kind == "f" else np.iinfo(d.numpy).min, d)


def _highest(d: Any) -> k.Scalar:
    return k.const(np.inf if d.kind == "f" else np.iinfo(d.numpy).max, d)


_reduction("max", "fi", Reduce(_lowest, k.maximum), np.max, _EXAMPLES, _extremum_grad)
_reduction("min", "fi", Reduce(_highest, k.minimum), np.min, _EXAMPLES, _extremum_grad)


def _bool_reduction(name: str, start: bool, combine: Any, ref: Any) -> None:
    examples = (example("bool[3,4]", axes=(1,)), example("bool[3,4]"), example("bool[0,4]"))
    _reduction(name, "b", Reduce(lambda d: k.const(start, BOOL), combine), ref, examples)


_bool_reduction("all", True, lambda a, x: a & x, np.all)
_bool_reduction("any", False, lambda a, x: a | x, np.any)


def _count(x: Type, axes: tuple[int, ...]) -> Dim:
    return product(x.shape[a] for a in normal_axes(axes, x.ndim))


def _mean_types(x: Type, axes: tuple[int, ...], keepdim: bool) -> Type:
    require_kind("mean", x, "f")
    return Type(x.dtype, reduced_shape(x, axes, keepdim))


def _mean_expand(b: Builder, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    total = b.sum(x, axes=axes, keepdim=keepdim)
    count = b.cast(b.size(n=_count(x.type, axes)), dtype=x.type.dtype)
    return b.divide(total, count)


op(
    "mean(x, *, axes=(), keepdim=False)",
    types=_mean_types,
    ref=lambda x, axes, keepdim: np.asarray(
        x.astype(np.float64).mean(axis=normal_axes(axes, x.ndim), keepdims=keepdim)
    ).astype(x.dtype),
    expand=_mean_expand,
    grad=_mean_grad,
    examples=tuple(e for e in _EXAMPLES if e.types[0][0] == "f"),
)


def _arg_types(x: Type, axis: int, keepdim: bool, dtype: Any) -> Type:
    require_kind("argmax", x, "fi")
    if x.ndim == 0:
        raise ShapeError("argmax of a 0-d tensor")
    return Type(dtype, reduced_shape(x, (axis,), keepdim))


def _arg_ref(x: np.ndarray, axis: int, keepdim: bool, dtype: Any) -> np.ndarray:
    return np.argmax(x, axis=axis, keepdims=keepdim).astype(dtype.numpy)


op(
    "argmax(x, *, axis, keepdim=False, dtype)",
    types=_arg_types,
    ref=_arg_ref,
    examples=(
        example("f32[3,4]", axis=1, dtype=I64),
        example("f64[3,4]", axis=0, keepdim=True, dtype=I64),
        example("i64[5]", axis=0, dtype=I32),
    ),
)


# ---------------------------------------------------------------- composites
def _softmax_types(x: Type, axis: int) -> Type:
    require_kind("softmax", x, "f")
    axis_in(axis, max(x.ndim, 1))
    return x


def _softmax_ref(x: np.ndarray, axis: int) -> np.ndarray:
    if x.ndim == 0:
        return np.ones_like(x)
    w = x.astype(np.longdouble)
    e = np.exp(w - w.max(axis=axis, keepdims=True, initial=-np.inf))
    return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)


def _softmax_expand(b: Builder, x: Value, axis: int) -> Value:
    axes = (axis,) if x.type.ndim else ()
    e = b.exp(b.subtract(x, b.max(x, axes=axes, keepdim=True)))
    return b.divide(e, b.sum(e, axes=axes, keepdim=True))


def _log_softmax_expand(b: Builder, x: Value, axis: int) -> Value:
    axes = (axis,) if x.type.ndim else ()
    z = b.subtract(x, b.max(x, axes=axes, keepdim=True))
    return b.subtract(z, b.log(b.sum(b.exp(z), axes=axes, keepdim=True)))


def _log_softmax_ref(x: np.ndarray, axis: int) -> np.ndarray:
    if x.ndim == 0:
        return np.zeros_like(x)
    w = x.astype(np.longdouble)
    z = w - w.max(axis=axis, keepdims=True, initial=-np.inf)
    return (z - np.log(np.exp(z).sum(axis=axis, keepdims=True))).astype(x.dtype)


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
    return (y * weight.reshape(shape) + bias.reshape(shape)).astype(x.dtype)


def _norm_expand(
    b: Builder, x: Value, weight: Value, bias: Value, epsilon: float, begin_norm_axis: int
) -> Value:
    axes = tuple(range(begin_norm_axis, x.type.ndim))
    shape = x.type.shape[begin_norm_axis:]
    z = b.subtract(x, b.mean(x, axes=axes, keepdim=True))
    variance = b.mean(b.square(z), axes=axes, keepdim=True)
    y = b.multiply(z, b.rsqrt(b.scale(variance, bias=epsilon)))
    y = b.multiply(y, b.reshape(weight, shape=shape))
    return b.add(y, b.reshape(bias, shape=shape))


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


def _embedding_types(ids: Type, weight: Type, padding_idx: int) -> Type:
    require_kind("embedding", ids, "i")
    if weight.ndim != 2:
        raise ShapeError(f"the table of an embedding has 2 dimensions, not {weight}")
    return weight.with_shape((*ids.shape, weight.shape[1]))


def _embedding_ref(ids: np.ndarray, weight: np.ndarray, padding_idx: int) -> np.ndarray:
    if ids.size and (ids.min() < 0 or ids.max() >= len(weight)):
        raise IndexError(f"embedding: an index is outside of [0, {len(weight)})")
    out = weight[ids]
    if padding_idx >= 0:
        out[ids == padding_idx] = 0
    return out


def _embedding_grad(
    b: Builder, g: Value, y: Value, ids: Value, weight: Value, padding_idx: int
) -> list[Scattered | None]:
    flat = flat_index(b, ids)
    rows = b.reshape(g, shape=(flat.type.shape[0], weight.type.shape[1]))
    if padding_idx >= 0:
        test = b.not_equal(flat, b.full(value=padding_idx, dtype=I64))
        rows = masked(b, b.reshape(test, shape=(flat.type.shape[0], 1)), rows)
    return [None, Scattered(rows, flat, 0)]


op(
    "embedding(ids, weight, *, padding_idx=-1)",
    types=_embedding_types,
    ref=_embedding_ref,
    grad=_embedding_grad,
    checks=True,
    examples=(
        example("i64[3,4]", "f32[9,5]", low=0, high=8),
        example("i64[6]", "f64[9,5]", low=0, high=8, padding_idx=2),
        example("i32[0]", "f32[9,5]"),
        example("i64[]", "f32[9,5]", low=0, high=8),
    ),
)


__all__ = ["normal_axes", "reduced_shape"]
