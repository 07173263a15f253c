"""Adapters of entries that read and write elements by index tensors, and of running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.capture.adapters.table import adapter, axes_of, elements_of, int_of, number_of
from dy2st.capture.indexing.advanced import (
    fitted,
    held,
    index_tensors,
    indices,
    is_mask,
    masked,
    place,
)
from dy2st.capture.indexing.selection import counting
from dy2st.trace.emitter import Emitter, NoRow, detached, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import check, is_runtime
from ir.types import BOOL, I32, I64, Dim, DType, Size, product

REDUCE = {
    "add": "add",
    "mul": "multiply",
    "multiply": "multiply",
    "amin": "minimum",
    "amax": "maximum",
    "mean": "add",
}


def along(e: Emitter, index: object, axis: int) -> list[FakeTensor]:
    """Index tensors, one per axis, of the elements that `index` names along `axis`."""
    shape = e.type(index).shape
    out = []
    for a, n in enumerate(shape):
        row = tuple(n if k == a else 1 for k in range(len(shape)))
        own = e.reshape(counting(e, n), shape=row) if a != axis else indices(e, index)
        out.append(own if e.type(own).shape == shape else e.expand(own, shape=shape))
    return out


def components(e: Emitter, index: object) -> list[FakeTensor]:
    """The index tensors that the last axis of `index` holds."""
    flat, last = indices(e, index), e.type(index).ndim - 1
    n = e.type(index).shape[last] if last >= 0 else 0
    if not isinstance(n, int) or n == 0:
        raise NoRow("indices without components")
    return [e.index(flat, axis=last, index=k) for k in range(n)]


def same_dtype(e: Emitter, x: object, y: object) -> None:
    if e.type(x).dtype != e.type(y).dtype:
        raise NoRow("values of another dtype")


def filled(e: Emitter, value: object, like: object, shape: tuple[Dim, ...]) -> FakeTensor:
    return e.expand(e.full(value, e.type(like).dtype), shape=shape)


# ---------------------------------------------------------------- reading
@adapter("gather_nd")
def gather_nd(e: Emitter, x: object, index: object) -> FakeTensor:
    parts = components(e, index)
    return e.gather(x, parts[0], axis=0) if len(parts) == 1 else e.gather_nd(x, *parts, axis=0)


@adapter("take_along_axis")
def take_along_axis(e: Emitter, x: object, index: object, axis: int) -> FakeTensor:
    return e.gather_nd(x, *along(e, index, int_of(axis) % e.type(x).ndim), axis=0)


@adapter("index_sample")
def index_sample(e: Emitter, x: object, index: object) -> FakeTensor:
    """Without negative indices, as the kernel."""
    index = indices(e, index)
    ok = e.all(e.greater_equal(index, e.full(0, I64)), axes=())
    check(e.trace, ok._value, "ValueError", "index_sample: an index is negative")
    return e.gather_nd(x, *along(e, index, 1), axis=0)


# ---------------------------------------------------------------- writing
@adapter("scatter")
def scatter(
    e: Emitter, x: object, index: object, updates: object, overwrite: bool = True
) -> FakeTensor:
    """Without `overwrite` the rows are cleared, and then added to."""
    same_dtype(e, x, updates)
    shape = e.type(index).shape
    if len(shape) > 2 or len(shape) == 2 and shape[1] != 1:
        raise NoRow("scatter with an index of rank 2")
    flat = indices(e, index)
    if len(shape) == 0:
        updates = e.reshape(updates, shape=(1, *e.type(updates).shape))
    n = shape[0] if shape else 1
    flat = flat if len(shape) == 1 else e.reshape(flat, shape=(n,))
    if e.type(updates).shape[0] != n:
        updates = e.slice(updates, axis=0, start=0, length=n)
    if overwrite:
        return e.scatter_nd(x, updates, flat, axis=0)
    cleared = e.scatter_nd(x, filled(e, 0, x, e.type(updates).shape), flat, axis=0)
    return e.scatter_nd(cleared, updates, flat, axis=0, combine="add")


@adapter("scatter_nd_add")
def scatter_nd_add(e: Emitter, x: object, index: object, updates: object) -> FakeTensor:
    same_dtype(e, x, updates)
    return e.scatter_nd(x, updates, *components(e, index), axis=0, combine="add")


@adapter("index_add")
def index_add(e: Emitter, x: object, index: object, value: object, axis: int = 0) -> FakeTensor:
    same_dtype(e, x, value)
    return e.scatter_nd(
        x, value, indices(e, index), axis=int_of(axis) % e.type(x).ndim, combine="add"
    )


@adapter("index_put")
def index_put(
    e: Emitter, x: object, index: Sequence[object], value: object, accumulate: bool = False
) -> FakeTensor:
    same_dtype(e, x, value)
    if any(map(is_mask, index)) and (len(index) > 1 or accumulate):
        raise NoRow("index_put with masks")
    sizes = e.type(x).shape
    if is_mask(index[0]):
        own = sizes[: e.type(index[0]).ndim]
        return masked(e, x, index_tensors(e, index[0], 0, own), value)
    picks = [index_tensors(e, q, a, (sizes[a],)) for a, q in enumerate(index)]
    at = place(e, x, picks)
    new = fitted(e, e.type(x).with_shape(at.shape), value)
    return e.scatter_nd(x, new, *at.index, axis=0, combine="add" if accumulate else "assign")


@adapter("put_along_axis")
def put_along_axis(
    e: Emitter,
    x: object,
    index: object,
    value: object,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
) -> FakeTensor:
    t, shape = e.type(x), e.type(index).shape
    value = e.cast_to(value, t.dtype)
    for a, n in enumerate(shape):
        if e.type(value).shape[a] != n:
            value = e.slice(value, axis=a, start=0, length=n)
    at = along(e, index, int_of(axis) % t.ndim)
    if reduce == "assign":
        return e.scatter_nd(x, value, *at, axis=0)
    if reduce not in REDUCE or t.dtype == BOOL or reduce == "mean" and t.dtype.kind != "f":
        raise NoRow(f"put_along_axis with {reduce}")
    if not include_self:
        x = e.scatter_nd(x, filled(e, neutral(reduce, t.dtype), x, shape), *at, axis=0)
    out = e.scatter_nd(x, value, *at, axis=0, combine=REDUCE[reduce])
    if reduce != "mean":
        return out
    count = filled(e, 1, x, t.shape)
    if not include_self:
        count = e.scatter_nd(count, filled(e, 0, x, shape), *at, axis=0)
    return e.divide(out, e.scatter_nd(count, filled(e, 1, x, shape), *at, axis=0, combine="add"))


def neutral(reduce: str, dtype: DType) -> object:
    """Return the neutral element of a reduction."""
    if reduce in ("amin", "amax"):
        limits = np.finfo(dtype.numpy) if dtype.kind == "f" else np.iinfo(dtype.numpy)
        high = np.inf if dtype.kind == "f" else int(limits.max)
        low = -np.inf if dtype.kind == "f" else int(limits.min)
        return high if reduce == "amin" else low
    return 1 if reduce in ("mul", "multiply") else 0


@adapter("masked_fill")
def masked_fill(e: Emitter, x: object, mask: object, value: object) -> FakeTensor:
    same_dtype(e, x, value)
    return e.where(mask, value, x)


@adapter("set_value_with_tensor")
def set_value_with_tensor(
    e: Emitter,
    x: Tensor,
    value: object,
    starts: Sequence[Any],
    ends: Sequence[Any],
    steps: Sequence[int],
    axes: Sequence[int],
    decrease: Sequence[int] = (),
    new_axes: object = (),
) -> FakeTensor:
    """`x` with `value` in a slice along each of `axes`."""
    same_dtype(e, x, value)
    if e.type(x).names or new_axes or any(map(held, (*starts, *ends, *steps))):
        raise NoRow("a slice with bounds that the program computes")
    cuts, part = [], x
    for axis, start, end, step in zip(axes, starts, ends, steps):
        n = range(e.type(part).shape[axis])[int(start) : int(end) : int(step)]
        at = {"axis": int(axis), "start": n.start if len(n) else 0, "step": int(step)}
        cuts.append((part, at))
        part = e.slice(part, length=len(n), **at)
    kept = tuple(d for a, d in enumerate(e.type(part).shape) if a not in set(decrease))
    new = e.expand(value, shape=kept)
    new = e.reshape(new, shape=e.type(part).shape) if decrease else new
    for whole, at in reversed(cuts):
        new = e.set_slice(whole, new, **at)
    return new


# ---------------------------------------------------------------- diagonals
@adapter("fill_diagonal")
def fill_diagonal(
    e: Emitter, x: Tensor, value: float = 0, offset: int = 0, wrap: bool = False
) -> FakeTensor:
    """Every (sum of the strides)-th element, as the kernel counts them."""
    t = e.type(x)
    if t.names or isinstance(value, Tensor) or t.ndim < 2:
        raise NoRow("fill_diagonal of a named size")
    shape = tuple(map(int, t.shape))
    step = sum(int(np.prod(shape[a + 1 :])) for a in range(t.ndim))
    width = shape[1]
    most = int(np.prod(shape)) if wrap else min(int(np.prod(shape)), width * width)
    at = np.arange(0, most, step)
    at = at[(at % width + offset >= 0) & (at % width + offset < width)] + offset
    if not len(at):
        return e.assign(x)
    places = [paddle.to_tensor(q.astype(np.int64)) for q in np.unravel_index(at, shape)]
    kind = {"f": float, "b": bool}.get(t.dtype.kind, int)
    return e.scatter_nd(
        x, e.expand(e.full(kind(value), t.dtype), shape=(len(at),)), *places, axis=0
    )


@adapter("fill_diagonal_tensor")
def fill_diagonal_tensor(
    e: Emitter, x: object, y: object, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> FakeTensor:
    same_dtype(e, x, y)
    t = e.type(x)
    a, b = dim1 % t.ndim, dim2 % t.ndim
    rest = [d for d in range(t.ndim) if d not in (a, b)]
    perm = (*rest, a, b)
    n = e.type(y).shape[-1]
    if e.type(y).shape == (1, n) and not rest:
        y = e.reshape(y, shape=(n,))
    if not isinstance(n, int) or e.type(y).ndim != len(rest) + 1:
        raise NoRow("fill_diagonal_tensor of a named size")
    rows, columns = (paddle.arange(max(0, s), max(0, s) + n) for s in (-offset, offset))
    new = e.scatter_nd(e.transpose(x, perm=perm), unseen(e, y), rows, columns, axis=len(rest))
    return e.transpose(new, perm=tuple(perm.index(d) for d in range(t.ndim)))


def unseen(e: Emitter, y: object) -> FakeTensor:
    """`y` without its gradient: Paddle's kernel has none for it."""
    return e.trace.fake(detached(e.trace, lift(e.trace, y)._value), True)


# ---------------------------------------------------------------- along an axis
def lined(e: Emitter, x: Tensor, axis: object, flatten: bool) -> tuple[Tensor, int]:
    t = e.type(x)
    if flatten:
        return e.reshape(x, shape=(product(t.shape),)), 0
    if not t.ndim:
        raise NoRow("a running sum of a 0-d tensor")
    return x, int_of(axis) % t.ndim


def turned(e: Emitter, x: object, axis: int) -> object:
    n = e.type(x).shape[axis]
    return x if n == 0 else e.slice(x, axis=axis, start=n - 1, length=n, step=-1)


def running(
    e: Emitter, row: str, x: object, axis: int, exclusive: bool, reverse: bool, first: float
) -> FakeTensor:
    x = turned(e, x, axis) if reverse else x
    n, shape = e.type(x).shape[axis], e.type(x).shape
    if exclusive:
        one = (*shape[:axis], 1, *shape[axis + 1 :])
        longer = e.concat(filled(e, first, x, one), x, axis=axis)
        x = e.slice(longer, axis=axis, start=0, length=n)
    out = getattr(e, row)(x, axis=axis)
    return e.assign(turned(e, out, axis)) if reverse else out


@adapter("cumsum")
def cumsum(
    e: Emitter,
    x: object,
    axis: object = -1,
    flatten: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> FakeTensor:
    if e.type(x).dtype == I32:
        x = e.cast(x, dtype=I64)
    x, at = lined(e, x, axis, flatten)
    return running(e, "cumsum", x, at, exclusive, reverse, 0)


@adapter("cumprod")
def cumprod(
    e: Emitter, x: object, dim: object, exclusive: bool = False, reverse: bool = False
) -> FakeTensor:
    x, at = lined(e, x, dim, False)
    return running(e, "cumprod", x, at, exclusive, reverse, 1)


def rolled(e: Emitter, x: object, axis: int, move: object) -> FakeTensor:
    """`roll` along an axis of any size, by a number that the program may compute."""
    if isinstance(move, Tensor):
        by = e.reshape(indices(e, move), shape=())
    elif is_runtime(move):
        by = e.scalar(move, I64)
    else:
        by = e.full(int_of(move), I64)
    n = e.type(x).shape[axis]
    size = e.scalar(e.trace.sym(n), I64) if isinstance(n, Size) else e.full(n, I64)
    return e.gather(x, e.remainder(e.subtract(counting(e, n), by), size), axis=axis)


@adapter("roll")
def roll(e: Emitter, x: object, shifts: object, axis: object = ()) -> FakeTensor:
    known, axes = elements_of(shifts), axes_of(axis)
    several = shifts if known is None else known
    moves = [number_of(q) for q in (several if isinstance(several, (list, tuple)) else [several])]
    t = e.type(x)
    out = x if axes else e.reshape(x, shape=(product(t.shape),))
    for move, a in zip(moves, axes or (0,)):
        at = a % max(1, e.type(out).ndim)
        n = e.type(out).shape[at]
        if isinstance(n, Size) or not isinstance(move, int) or is_runtime(move):
            out = rolled(e, out, at, move)
            continue
        by = move % n if n else 0
        if by:
            tail = e.slice(out, axis=at, start=n - by, length=by)
            out = e.concat(tail, e.slice(out, axis=at, start=0, length=n - by), axis=at)
    return e.assign(out) if axes else e.assign(e.reshape(out, shape=t.shape))
