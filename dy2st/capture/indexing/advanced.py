"""Advanced indexing by tensors, lists and masks: reads and writes.

Index tensors next to each other give their axes where they stand; apart from each other they come
first, and every axis up to the last of them is indexed. A mask whose values the program computes
selects (`capture.masking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import paddle

from dy2st.capture import foreign
from dy2st.capture.indexing.masks import Mask, replaced
from dy2st.capture.indexing.selection import counting
from dy2st.trace.emitter import Emitter
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime, is_runtime_scalar
from dy2st.trace.symint import is_symint
from ir import ShapeError
from ir.opdef import broadcast
from ir.types import I64, Dim, Type


@dataclass(frozen=True)
class AdvancedIndex:
    """One item: the first axis that it indexes, the sizes of its axes, and one i64 tensor for each,
    or a bool tensor. An item without axes of its own indexes a new one."""

    axis: int
    sizes: tuple[Dim, ...]
    tensors: tuple[Tensor, ...]
    mask: bool = False

    @property
    def selection(self) -> Mask:
        return Mask(self.tensors[0], self.axis)


def is_mask(item: object) -> TypeGuard[Tensor]:
    """A boolean selection whose values the program computes."""
    return isinstance(item, Tensor) and item.dtype == paddle.bool


def index_tensors(e: Emitter, item: object, axis: int, sizes: tuple[Dim, ...]) -> AdvancedIndex:
    """Raises IndexError and ValueError as NumPy does."""
    if is_mask(item):
        shape = e.type(item).shape
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, sizes)):
            raise IndexError(f"a mask of shape {list(shape)} for axes of {list(sizes)}")
        flag = e.reshape(item, shape=(1,)) if not shape else item
        return AdvancedIndex(axis, sizes, (flag,), True)
    if isinstance(item, Tensor):
        return AdvancedIndex(axis, sizes, (indices(e, item),))
    array = None if held(item) else np.asarray(item)
    if array is None:
        return AdvancedIndex(axis, sizes, (stacked(e, item),))
    if array.dtype == np.bool_:
        return AdvancedIndex(axis, sizes, chosen(array, sizes))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind != "i":
        raise ValueError(f"an index of {array.dtype}")
    return AdvancedIndex(axis, sizes, (paddle.to_tensor(array.astype(np.int64)),))


def chosen(mask: np.ndarray, sizes: tuple[Dim, ...]) -> tuple[object, ...]:
    """Return the positions where a mask that is known while tracing is true."""
    if not mask.ndim:
        mask = mask.reshape(1)
    elif tuple(sizes) != mask.shape:
        raise IndexError(f"a mask of shape {list(mask.shape)} for axes of {list(sizes)}")
    return tuple(paddle.to_tensor(q.astype(np.int64)) for q in np.nonzero(mask))


def held(item: object) -> bool:
    """Whether a list holds values of the program."""
    if isinstance(item, (list, tuple)):
        return any(map(held, item))
    return (
        isinstance(item, Tensor) or is_symint(item) or is_runtime_scalar(item) and is_runtime(item)
    )


def stacked(e: Emitter, item: object) -> FakeTensor:
    """A list of tensors and numbers as one index tensor."""
    if isinstance(item, (list, tuple)):
        return e.stack(*(stacked(e, q) for q in item), axis=0)
    return indices(e, item) if isinstance(item, Tensor) else e.scalar(item, I64)


def indices(e: Emitter, item: object) -> FakeTensor:
    dtype = e.type(item).dtype
    if dtype.name not in ("i64", "i32"):
        raise ValueError(f"an index of {dtype}: it takes int64, int32 or bool")
    return e.cast_to(item, I64)


# ---------------------------------------------------------------- where elements lie
@dataclass(frozen=True)
class IndexedAxes:
    """Index tensors of one shape for the axes from `axis` on, and the shape of what they pick."""

    axis: int
    index: tuple[object, ...]
    shape: tuple[Dim, ...]


def place(e: Emitter, x: object, picks: Sequence[AdvancedIndex]) -> IndexedAxes:
    by_axis = {p.axis + k: q for p in picks for k, q in enumerate(p.tensors)}
    shape = broadcast(*(e.type(q).shape for q in by_axis.values()))
    sizes, first, last = e.type(x).shape, min(by_axis), max(by_axis)
    together = len(by_axis) == last - first + 1
    start = first if together else 0
    free = [a for a in range(start, last + 1) if a not in by_axis]
    whole = (*shape, *(sizes[a] for a in free))
    index = []
    for a in range(start, last + 1):
        if a in by_axis:
            own = e.type(by_axis[a]).shape
            lined = (*own, *(1 for _ in free))
            one = by_axis[a] if lined == own else e.reshape(by_axis[a], shape=lined)
        else:
            behind = len(free) - 1 - free.index(a)
            counted = counting(e, sizes[a])
            one = e.reshape(counted, shape=(sizes[a], *(1 for _ in range(behind))))
        index.append(one if e.type(one).shape == whole else e.expand(one, shape=whole))
    return IndexedAxes(start, tuple(index), (*sizes[:start], *whole, *sizes[last + 1 :]))


def pick(e: Emitter, x: object, picks: Sequence[AdvancedIndex]) -> FakeTensor:
    """The elements of `x` that the items pick, as a copy."""
    at = place(e, x, picks)
    if len(at.index) == 1:
        return e.gather(x, at.index[0], axis=at.axis)
    return e.gather_nd(x, *at.index, axis=at.axis)


def assigned(e: Emitter, x: object, picks: Sequence[AdvancedIndex], value: object) -> FakeTensor:
    """`x` with `value` at the elements that the items pick."""
    if picks[0].mask:
        return masked(e, x, picks[0], value)
    at = place(e, x, picks)
    t = e.type(x).with_shape(at.shape)
    if 0 in e.type(at.index[0]).shape and not isinstance(value, Tensor):
        raise ValueError("a number cannot be assigned to no elements")
    return e.scatter_nd(x, fitted(e, t, value), *at.index, axis=at.axis)


def masked(e: Emitter, x: object, p: AdvancedIndex, value: object) -> FakeTensor:
    """`x` with `value` at the elements that a mask selects."""
    t = e.type(x)
    new = value if isinstance(value, Tensor) else number(e, value, t)
    return replaced(e, x, p.selection, e.cast_to(new, t.dtype))


# ---------------------------------------------------------------- values to assign
def fitted(e: Emitter, t: Type, value: object) -> FakeTensor:
    """`value` in the type of the elements that it is assigned to."""
    if not isinstance(value, Tensor):
        value = number(e, value, t)
    v = e.type(value)
    value = e.cast_to(value, t.dtype)
    extra = v.ndim - t.ndim
    if extra > 0 and all(d == 1 for d in v.shape[:extra]):
        value = e.reshape(value, shape=v.shape[extra:])
    if e.type(value) != t:
        try:
            return e.expand(value, shape=t.shape)
        except ShapeError as cause:
            error = ValueError(f"{v} cannot be assigned to a slice {t}")
            raise foreign.refusal(e.trace, "Tensor.__setitem__", error, eager=True) from cause
    return e.assign(value)


def number(e: Emitter, value: object, t: Type) -> FakeTensor:
    plain = (bool, int, float, complex) if t.dtype.kind == "c" else (bool, int, float)
    if isinstance(value, plain) and not is_runtime(value):
        kinds = {"b": bool, "f": float, "c": complex}
        return e.full(kinds.get(t.dtype.kind, int)(value), t.dtype)
    if is_runtime(value):
        part = t.dtype.compute if t.dtype.kind == "c" else t.dtype
        return e.cast_to(e.scalar(value, part), t.dtype)  # type: ignore[no-any-return]
    return paddle.to_tensor(np.asarray(value))


__all__ = ["AdvancedIndex", "assigned", "fitted", "index_tensors", "is_mask", "pick"]
