"""Elements picked by several index tensors, and writes to them.

`take(x, i, j, axis=a)` reads x[:, ..., i[p], j[p], :] at every place p of the index tensors, which
have one shape, and `put(x, y, i, j, axis=a)` writes there; `a` is the axis of the first of them.
Places are visited in order, so of several writes to one element the last one stays. Indices are
checked against their bounds when the program runs; negative ones count from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ir.scalar.language as k
from ir.opdef import ShapeError, axis_in, example, no_gradient, op, same_axis, same_dim
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import GatherGradient, ScatterGradient, flat_index, masked, number, zeros
from ir.program import Builder, Value
from ir.types import BOOL, I64, Dim, Type, product

#: how `put` joins the old element and the new one
COMBINE: dict[str, Callable[[k.Scalar, k.Scalar], k.Scalar]] = {
    "assign": lambda old, new: new,
    "add": lambda old, new: old + new if new.dtype != BOOL else old | new,
    "multiply": lambda old, new: old * new if new.dtype != BOOL else old & new,
    "maximum": k.maximum,
    "minimum": k.minimum,
}
_UFUNC = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def _places(name: str, x: Type, index: tuple[Type, ...], axis: int) -> Type:
    """The type of what the indices pick."""
    if not index:
        raise ShapeError(f"{name} without indices")
    at = axis_in(axis, x.ndim)
    if at + len(index) > x.ndim:
        raise ShapeError(f"{name}: {len(index)} indices from axis {at} on for {x}")
    shape: list[Dim] = list(index[0].shape)
    for i in index:
        if i.dtype != I64 or i.ndim != len(shape):
            raise ShapeError(f"{name}: the indices are i64 and of one shape, not {i}")
        shape = [same_dim(a, b) for a, b in zip(shape, i.shape)]
    return x.with_shape((*x.shape[:at], *shape, *x.shape[at + len(index) :]))


def _key(x: np.ndarray, index: tuple[np.ndarray, ...], axis: int) -> tuple[Any, ...]:
    for n, i in zip(x.shape[axis:], index):
        if i.size and (i.min() < -n or i.max() >= n):
            raise IndexError(f"an index is outside of [{-n}, {n})")
    return (*(slice(None),) * axis, *index)


def _take_grad(
    b: Builder, g: Value, y: Value, x: Value, *index: Value, axis: int
) -> list[GatherGradient | None]:
    return [GatherGradient(g, index, axis % x.type.ndim), *(None for _ in index)]


op(
    "gather_nd(x, *index, axis)",
    pairs=same_axis,
    types=lambda x, *index, axis: _places("gather_nd", x, index, axis),
    ref=lambda x, *index, axis: x[_key(x, index, axis % x.ndim)],
    grad=_take_grad,
    selects=("x",),
    checks=True,
    examples=(
        example("f32[3,4,5]", "i64[6]", "i64[6]", axis=1, low=-4, high=3),
        example("i64[3,4]", "i64[2,2]", axis=0, low=-3, high=2),
        example("f32[3,4]", "i64[5]", "i64[5]", axis=0, low=0, high=2),
        example("f32[3,4]", "i64[0]", axis=1),
        example("bool[4]", "i64[3]", axis=0, low=0, high=3),
    ),
)


def _put_types(x: Type, y: Type, *index: Type, axis: int, combine: str) -> Type:
    same_dtype("scatter_nd", x, y)
    if combine not in COMBINE:
        raise ShapeError(f"put: there is no way to combine called {combine!r}")
    want = _places("scatter_nd", x, index, axis)
    if y.ndim != want.ndim:
        raise ShapeError(f"put: {y} cannot be written into {want}")
    for a, b in zip(y.shape, want.shape):
        same_dim(a, b)
    return x


def _put_ref(
    x: np.ndarray, y: np.ndarray, *index: np.ndarray, axis: int, combine: str
) -> np.ndarray:
    out: np.ndarray = x.copy()
    key = _key(out, index, axis % x.ndim)
    if combine == "assign":
        out[key] = y
        return out
    _UFUNC[combine].at(out, key, y)
    return out


def _kept(
    b: Builder, g: Value, sizes: tuple[Dim, ...], index: tuple[Value, ...], rank: int
) -> Value:
    """`g` at the places whose assignment stays, else zero."""
    shape = index[0].type.shape
    count = product(shape)
    if count == 1:
        return g
    number_ = b.reshape(b.iota(n=count, dtype=I64), shape=shape)
    writer = b.scatter_nd(b.full(value=0, shape=sizes, dtype=I64), number_, *index, axis=0)
    last = b.equal(b.gather_nd(writer, *index, axis=0), number_)
    behind = rank - len(sizes)
    test = b.reshape(last, shape=(*shape, *(1 for _ in range(behind)))) if behind else last
    return masked(b, test, g)


def _put_grad(
    b: Builder, g: Value, out: Value, x: Value, y: Value, *index: Value, axis: int, combine: str
) -> list[Value | None]:
    """The last of several assignments to one element gets the gradient."""
    at = axis % x.type.ndim
    picked = b.gather_nd(g, *index, axis=axis)
    dx, dy = g, picked
    if combine == "assign":
        dx = b.scatter_nd(g, zeros(b, y.type), *index, axis=axis)
        dy = _kept(b, picked, x.type.shape[at : at + len(index)], index, x.type.ndim - at)
    elif combine == "multiply":
        ones = b.expand(number(b, 1.0, x), shape=x.type.shape)
        dx = b.multiply(g, b.scatter_nd(ones, y, *index, axis=axis, combine="multiply"))
        dy = b.divide(b.multiply(picked, b.gather_nd(out, *index, axis=axis)), y)
    elif combine in ("maximum", "minimum"):
        dx = b.where(b.equal(out, x), g, number(b, 0.0, g))
        hit = b.equal(b.gather_nd(out, *index, axis=axis), y)
        dy = b.where(hit, picked, number(b, 0.0, g))
    return [dx, dy, *(None for _ in index)]


def _put_pairs(x: Type, y: Type, axis: int, combine: str) -> dict[str, Any]:
    if combine not in ("assign", "add"):
        raise ShapeError(f"complex numbers are not put by {combine!r}")
    return {"axis": axis_in(axis, x.ndim), "combine": combine}


op(
    "scatter_nd(x, y, *index, axis, combine='assign')",
    pairs=_put_pairs,
    types=_put_types,
    ref=_put_ref,
    grad=_put_grad,
    updates="x",
    checks=True,
    examples=(
        example("f32[3,4,5]", "f32[3,7]", "i64[7]", "i64[7]", axis=1, low=-4, high=3),
        example("f32[3,4]", "f32[6,4]", "i64[6]", axis=0, low=0, high=2),
        example("f32[3,4]", "f32[3,2]", "i64[2]", axis=1, combine="add", low=-4, high=3),
        example("i64[3,4]", "i64[6,4]", "i64[6]", axis=0, low=-3, high=2),
        example("f32[3,4]", "f32[1,4]", "i64[1]", axis=0, combine="multiply", low=0.5, high=2),
        example("f32[3,4]", "f32[1,4]", "i64[1]", axis=0, combine="maximum", low=0, high=2),
        example("i64[9]", "i64[7]", "i64[7]", axis=0, combine="minimum", low=0, high=8),
        example("bool[4]", "bool[3]", "i64[3]", axis=0, low=0, high=3),
        example("f32[3,4]", "f32[3,0]", "i64[0]", axis=1),
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
    out: np.ndarray = weight[ids]
    if padding_idx >= 0:
        out[ids == padding_idx] = 0
    return out


def _embedding_grad(
    b: Builder, g: Value, y: Value, ids: Value, weight: Value, padding_idx: int
) -> list[ScatterGradient | None]:
    flat = flat_index(b, ids)
    rows = b.reshape(g, shape=(flat.type.shape[0], weight.type.shape[1]))
    if padding_idx >= 0:
        test = b.not_equal(flat, b.full(value=padding_idx, dtype=I64))
        rows = masked(b, b.reshape(test, shape=(flat.type.shape[0], 1)), rows)
    return [None, ScatterGradient(rows, flat, 0)]


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


# ---------------------------------------------------------------- where a mask is true
def _positions_types(x: Type) -> tuple[Type, Type]:
    if x.dtype != BOOL or x.ndim != 1:
        raise ShapeError(f"positions of {x}")
    return Type(I64, x.shape), Type(I64, ())


def positions(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the true elements, zeros behind them; how many there are."""
    (found,) = np.nonzero(x)
    return np.pad(found, (0, len(x) - len(found))).astype(np.int64), np.array(len(found), np.int64)


op(
    "positions(x)",
    types=_positions_types,
    ref=positions,
    grad=no_gradient,
    examples=(example("bool[70]"), example("bool[1]"), example("bool[0]")),
)

__all__ = ["COMBINE", "positions"]
