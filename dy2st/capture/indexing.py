"""`x[index]` and `x[index] = value`.

Basic indexing (integers, symbolic integers, 0-d tensors, slices, None, ...) is a chain of views, so
an assignment is a write through it. Indexing by one integer tensor is a gather; everything else is
left to Paddle's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.capture import aliases, foreign
from dy2st.capture.adapters import alias
from dy2st.capture.emitter import Emitter, NoRow, grad_enabled, lift
from dy2st.capture.fake import FakeTensor, Tensor
from dy2st.capture.record import record
from dy2st.capture.sizes import size_of
from dy2st.capture.trace import Trace
from dy2st.number import is_number, is_runtime, stop
from dy2st.stops import NeedsConcrete
from dy2st.symbols import bounds, dim_of, is_sym
from ir import ShapeError
from ir.types import I64, Dim, Size


def getitem(trace: Trace, x: Any, index: Any) -> Any:
    if hasattr(x, "part_of"):
        return x.part_of(trace, as_items(index))
    e = Emitter(trace)
    items = as_items(index)
    if type(index) is int:
        n = e.type(x).shape[0] if e.type(x).ndim else 0
        if isinstance(n, int) and not -n <= index < n:
            raise IndexError(f"index {index} is out of bounds for axis 0 with size {n}")
    if all(map(basic, items)):
        return checked(trace, x, index, lambda: view(e, x, items))
    if any(is_mask(q) for q in items):
        raise foreign.shape_by_value(trace, "x[mask]")
    return record("Tensor.__getitem__", Tensor.__getitem__, (x, plain(index)), {})


def setitem(trace: Trace, x: Any, index: Any, value: Any) -> None:
    e = Emitter(trace)
    items = as_items(index)
    if not all(map(basic, items)):
        record("Tensor.__setitem__", Tensor.__setitem__, (x, plain(index), value), {})
        return
    fake = lift(trace, x)
    e.check_leaf(fake)
    trained = grad_enabled() and isinstance(value, Tensor) and not lift(trace, value).stop_gradient
    if trained and fake.stop_gradient:
        aliases.attach(trace, fake)
    target = checked(trace, x, index, lambda: view(e, x, items))
    e.write(target, fitted(e, target, value))
    if trained or grad_enabled() and not fake.stop_gradient:
        fake.__dict__["_stop_gradient"] = False
        aliases.note(trace, fake)


def checked(trace: Trace, x: Any, index: Any, make: Any) -> Any:
    try:
        return make()
    except (ShapeError, NoRow, IndexError) as cause:
        error = IndexError(f"index {index!r} of a tensor of shape {list(x.shape)}: {cause}")
        raise foreign.refusal(trace, "Tensor.indexing", error) from None


def as_items(index: Any) -> list[Any]:
    return list(index) if isinstance(index, tuple) else [index]


def basic(item: Any) -> bool:
    if isinstance(item, bool):
        return False
    if isinstance(item, slice):
        return all(q is None or isinstance(q, int) for q in (item.start, item.stop, item.step))
    if isinstance(item, Tensor):
        return len(item.shape) == 0 and item.dtype in (paddle.int64, paddle.int32)
    return item is None or item is Ellipsis or isinstance(item, (int, np.integer)) or is_sym(item)


def is_mask(item: Any) -> bool:
    """A boolean selection: how many elements it gives is not known."""
    if isinstance(item, Tensor):
        return item.dtype == paddle.bool
    if isinstance(item, (list, np.ndarray)):
        return np.asarray(item).dtype == np.bool_ if not _holds(item) else False
    return isinstance(item, bool)


def _holds(item: Any) -> bool:
    return isinstance(item, list) and any(isinstance(q, Tensor) or is_sym(q) for q in item)


def plain(index: Any) -> Any:
    """An index without NumPy arrays, for a foreign call."""
    if isinstance(index, tuple):
        return tuple(plain(q) for q in index)
    return paddle.to_tensor(index) if isinstance(index, np.ndarray) else index


# ---------------------------------------------------------------- basic indexing
def view(e: Emitter, x: Any, items: Sequence[Any]) -> FakeTensor:
    """The chain of views that basic indexing makes."""
    ndim = e.type(x).ndim
    used = sum(q is not None and q is not Ellipsis for q in items)
    if used > ndim or sum(q is Ellipsis for q in items) > 1:
        raise IndexError(f"too many indices: {used} for {ndim} dimensions")
    full = [q for q in items if q is not Ellipsis]
    at = next((i for i, q in enumerate(items) if q is Ellipsis), len(items))
    full[at:at] = [slice(None)] * (ndim - used)
    new_axes: list[int] = []
    out, axis = x, 0
    for item in full:
        if item is None:
            new_axes.append(axis + len(new_axes))
        elif isinstance(item, slice):
            out, axis = sliced(e, out, axis, item), axis + 1
        else:
            out = picked(e, out, axis, item)
    for a in new_axes:
        shape = list(e.type(out).shape)
        shape.insert(a, 1)
        out = e.reshape(out, shape=tuple(shape))
    return alias(e, x) if out is x else out


def picked(e: Emitter, x: Any, axis: int, item: Any) -> FakeTensor:
    n = e.type(x).shape[axis]
    known = e.literal(item)
    item = item if known is None else known
    if is_number(item):
        return e.select(x, e.trace.fake(item.value), axis=axis)
    if isinstance(item, Tensor):
        return e.select(x, e.cast_to(item, I64), axis=axis)
    if not is_sym(item):
        at = int(item)
        index: Dim = at + n if at < 0 else at
        return e.pick(x, axis=axis, index=index)
    return symbolic_pick(e, x, axis, item, n)


def symbolic_pick(e: Emitter, x: Any, axis: int, item: Any, n: Any) -> FakeTensor:
    if item.loops:
        ends = bounds(item.dim, e.trace)
        return e.select(x, in_range(e, item, n, ends), axis=axis)
    return e.pick(x, axis=axis, index=dim_of(item + e.trace.sym(n) if item < 0 else item))


def in_range(e: Emitter, item: Any, n: Dim, ends: Any) -> Any:
    """The index, counted from the front where that is known; negative ones wrap when they run."""
    if ends is None:
        return item
    gap = ends[1] - n
    if isinstance(gap, int) and gap >= 0 and not all(q.open for q in item.loops):
        raise NeedsConcrete(f"index {item!r} leaves an axis of {n}", item.loops)
    high = ends[1]
    if isinstance(high, int) and high < 0:
        return e.trace.sym(item.dim + n)
    return item


def sliced(e: Emitter, x: Any, axis: int, item: slice) -> Any:
    n = e.type(x).shape[axis]
    step: Any = 1 if item.step is None else item.step
    for q in (item.start, item.stop, step):
        if is_number(q):
            raise stop(q, "the bound of a slice")
    if is_sym(step):
        raise NeedsConcrete("a slice with a step of the program", step.loops)
    if item.start is None and item.stop is None and step == 1:
        return x
    if not any(is_sym(q) for q in (item.start, item.stop)) and not isinstance(n, Size):
        r = range(n)[item]
        return e.slice(x, axis=axis, start=r.start if len(r) else 0, length=len(r), step=step)
    return _symbolic_slice(e, x, axis, item, n, step)


def _symbolic_slice(e: Emitter, x: Any, axis: int, item: slice, n: Dim, step: int) -> Any:
    ends: tuple[Any, ...] = (item.start, item.stop)
    loops = [q for q in ends if is_sym(q) and q.loops]
    if loops:
        return _window(e, x, axis, item, step, loops)
    size = e.trace.sym(n)
    if step < 0:
        if item.start is not None or item.stop is not None or step != -1:
            raise NoRow("a slice of a named size with a negative step")
        return e.slice(x, axis=axis, start=n - 1, length=n, step=-1)
    low = 0 if item.start is None else bound(item.start, size)
    high = size if item.stop is None else bound(item.stop, size)
    gap = high - low
    if step != 1:
        gap = -(-gap // step)
        if is_number(gap):
            most = dim_of(high - low)
            gap = e.trace.sym(size_of(e.trace, gap.value, most))
    if gap < 0:
        gap = 0
    return e.slice(x, axis=axis, start=dim_of(low), length=dim_of(gap), step=step)


def bound(at: Any, size: Any) -> Any:
    """A slice bound as Python clamps it."""
    at = at + size if at < 0 else at
    if at < 0:
        return 0
    return size if at > size else at


def _window(e: Emitter, x: Any, axis: int, item: slice, step: int, loops: Any) -> FakeTensor:
    """`x[t:t+1]` is the element at t with an axis of 1; wider ones are windows that move."""
    if is_sym(item.start) and item.stop is not None and dim_of(item.stop) - item.start.dim == 1:
        n, ends = e.type(x).shape[axis], bounds(item.start.dim, e.trace)
        if step == 1 and ends is not None and inside(e, ends, n):
            one = e.select(x, item.start, axis=axis)
            shape = list(e.type(one).shape)
            return e.reshape(one, shape=(*shape[:axis], 1, *shape[axis:]))
    made = _moving(e, x, axis, item, step)
    if made is not None:
        return made
    used = frozenset().union(*(q.loops for q in loops))
    raise NeedsConcrete(f"the slice {item.start!r}:{item.stop!r} moves with the index", used)


def _moving(e: Emitter, x: Any, axis: int, item: slice, step: int) -> FakeTensor | None:
    """`x[t:t+k]` where it stays on the axis in every iteration: Python does not clamp it then."""
    if step != 1 or item.start is None or item.stop is None or not is_sym(item.start):
        return None
    n, length = e.type(x).shape[axis], dim_of(item.stop) - item.start.dim
    low, high = bounds(item.start.dim, e.trace), bounds(dim_of(item.stop), e.trace)
    if not isinstance(length, int) or length < 0 or low is None or high is None:
        return None
    if not isinstance(low[0], int) or low[0] < 0:
        return None
    room = e.trace.sym(n - high[1])
    if room < 0:
        return None
    return e.window(x, item.start, axis=axis, length=length)


def inside(e: Emitter, ends: tuple[Dim, Dim], n: Dim) -> bool:
    """Whether an index between `ends` surely stays on an axis of n."""
    low, room = ends[0], n - 1 - ends[1]
    return isinstance(low, int) and low >= 0 and isinstance(room, int) and room >= 0


# ---------------------------------------------------------------- values to assign
def fitted(e: Emitter, target: FakeTensor, value: Any) -> FakeTensor:
    """`value` in the type of the slice it is written into."""
    t = e.type(target)
    if not isinstance(value, Tensor):
        value = number(e, value, t)
    v = e.type(value)
    if v.dtype != t.dtype:
        value = e.cast(value, dtype=t.dtype)
    extra = v.ndim - t.ndim
    if extra > 0 and all(d == 1 for d in v.shape[:extra]):
        value = e.reshape(value, shape=v.shape[extra:])
    if e.type(value) != t:
        try:
            return e.expand(value, shape=t.shape)
        except ShapeError as cause:
            error = ValueError(f"{v} cannot be assigned to a slice {t}")
            raise foreign.refusal(e.trace, "Tensor.__setitem__", error) from cause
    return e.assign(value)


def number(e: Emitter, value: Any, t: Any) -> Any:
    if isinstance(value, (bool, int, float)) and not is_runtime(value):
        kinds = {"b": bool, "f": float}
        return e.full(kinds.get(t.dtype.kind, int)(value), t.dtype)
    if is_runtime(value):
        return e.scalar(value, t.dtype)
    return paddle.to_tensor(np.asarray(value))


__all__ = ["getitem", "setitem"]
