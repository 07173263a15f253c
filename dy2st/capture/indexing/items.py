"""`x[index]` and `x[index] = value`.

Basic indexing (integers, symbolic integers, 0-d tensors, slices, None, ...) is a chain of views, so
an assignment is a write through it. Tensors, lists and arrays pick elements of that view: a read is
a copy, and an assignment writes the view with these elements replaced (`capture.picking`). What a
mask selects is not read, but `x[mask] op= value` is known (`capture.masking`).

As in Paddle, integers are basic wherever they stand: the axes that the picked elements give are
those of NumPy after the integers have been taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import paddle

from dy2st.capture import detached_writes, foreign
from dy2st.capture.indexing.advanced import (
    AdvancedIndex,
    assigned,
    fitted,
    index_tensors,
    is_mask,
    pick,
)
from dy2st.capture.indexing.dynamic_slice import window
from dy2st.capture.indexing.masks import MaskedSelection, MaskedUpdate, selected
from dy2st.capture.indexing.slices import picked, sliced
from dy2st.state.arrays import tensor_of
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, NoRow, grad_enabled, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import number
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import raise_defect
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from ir import ShapeError

T = TypeVar("T")


def getitem(trace: Trace, x: Tensor, index: object) -> Any:
    if hasattr(x, "part_of"):
        return x.part_of(trace, as_items(index))
    e = Emitter(trace)
    items = as_items(index)
    if type(index) is int:
        n = e.type(x).shape[0] if e.type(x).ndim else 0
        if isinstance(n, int) and not -n <= index < n:
            raise IndexError(f"index {index} is out of bounds for axis 0 with size {n}")
    refuse_mixed(trace, items)
    parts = checked(trace, x, index, lambda: view(e, x, items))
    if not parts.picks:
        if e.type(parts.view) == e.type(x):
            detached_writes.twins(lift(trace, x), parts.view)
        return parts.view
    if parts.picks[0].mask:
        mask = parts.picks[0].selection
        return checked(trace, x, index, lambda: selected(e, parts.view, mask))
    return checked(trace, x, index, lambda: pick(e, parts.view, parts.picks))


def old_items(trace: Trace, x: Tensor, index: object) -> object:
    """`x[index]` for `x[index] op= value`: also behind a mask."""
    items = as_items(index)
    if hasattr(x, "part_of") or not any(map(is_mask, items)):
        return x[index]
    refuse_mixed(trace, items)
    e = Emitter(trace)
    parts = checked(trace, x, index, lambda: view(e, x, items))
    return MaskedSelection(e, e.assign(parts.view), parts.picks[0].selection)


def setitem(trace: Trace, x: Tensor, index: object, value: object) -> None:
    e = Emitter(trace)
    items = as_items(index)
    if isinstance(value, (bool, int, float)) or is_runtime_scalar(value):
        items = without_front(items)
    refuse_mixed(trace, items)
    fake = lift(trace, x)
    e.check_leaf(fake)
    made = value.whole if isinstance(value, MaskedUpdate) else value
    trained = grad_enabled() and isinstance(made, Tensor) and not lift(trace, made).stop_gradient
    if trained and fake.stop_gradient:
        detached_writes.attach(trace, fake)
    parts = checked(trace, x, index, lambda: view(e, x, items))
    if isinstance(value, MaskedUpdate):
        change = value
        new = checked(trace, x, index, lambda: change.joined(e, parts.view))
    elif parts.picks:
        apart(trace, x, value, parts.picks)
        new = checked(trace, x, index, lambda: assigned(e, parts.view, parts.picks, value))
    else:
        new = fitted(e, e.type(parts.view), value)
    if any(0 in e.type(q).shape for p in parts.picks for q in p.tensors):
        return
    detached_writes.write(e, parts.view, new, whole=fake)
    if trained or grad_enabled() and not fake.stop_gradient:
        fake.__dict__["_stop_gradient"] = False
        trace.autograd.trained.add(fake._value)


def without_front(items: list[object]) -> list[object]:
    """`x[None, mask] = number` is `x[mask] = number`, also with integers in front of the mask.

    It is the only assignment by tensors behind None that eager Paddle makes where it should.
    """
    front = items[: next((k for k, q in enumerate(items) if is_mask(q)), 0)]
    wide = (slice, type(Ellipsis))
    if sum(q is None for q in front) != 1 or not all(map(basic, front)):
        return items
    if any(isinstance(q, wide) for q in front):
        return items
    return [q for q in front if q is not None] + items[len(front) :]


def checked(trace: Trace, x: Tensor, index: object, make: Callable[[], T]) -> T:
    try:
        return make()
    except (ShapeError, NoRow, IndexError, ValueError) as cause:
        raise_defect(cause)
        kind = ValueError if type(cause) is ValueError else IndexError
        error = kind(f"The tensor has the shape {list(x.shape)}: {cause}.")
        eager = not isinstance(cause, NoRow)
        raise foreign.refusal(trace, "Tensor.indexing", error, eager=eager) from None


def apart(trace: Trace, x: Tensor, value: object, picks: Sequence[AdvancedIndex]) -> None:
    """Eager Paddle writes element after element, and reads the value and the indices meanwhile."""
    root = trace.root(lift(trace, x)._value)
    read = [q for p in picks for q in p.tensors]
    read += [value] if isinstance(value, Tensor) and not single(trace, value) else []
    if any(trace.root(lift(trace, q)._value) is root for q in read):
        raise refuse(
            "item assignment by tensors reads the storage that it writes.",
            "In eager Paddle the result depends on the order of the writes.",
            "Assign a copy: `x[index] = value.clone()`.",
        )


def single(trace: Trace, value: object) -> bool:
    return all(d == 1 for d in lift(trace, value)._value.type.shape)


def as_items(index: object) -> list[object]:
    return [tensor_of(q) for q in (index if isinstance(index, tuple) else (index,))]


def basic(item: object) -> bool:
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, slice):
        return True
    if isinstance(item, Tensor):
        return len(item.shape) == 0 and item.dtype in (paddle.int64, paddle.int32)
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind == "i"
    return (
        item is None or item is Ellipsis or isinstance(item, (int, np.integer)) or is_symint(item)
    )


def refuse_mixed(trace: Trace, items: Sequence[object]) -> None:
    """A mask whose values the program computes, beside other tensors."""
    if any(map(is_mask, items)) and sum(not basic(q) for q in items) > 1:
        raise refuse(
            "an index with a mask beside other tensors.",
            "The pairs of elements depend on the number that the mask selects.",
            "Use a mask of all the axes, or integers: `paddle.where(mask, value, x)`.",
        )


# ---------------------------------------------------------------- the view
@dataclass(frozen=True)
class IndexParts:
    """The parts of an index: the view by its basic items, and the tensors that pick elements of
    it."""

    view: FakeTensor
    picks: tuple[AdvancedIndex, ...]


def view(e: Emitter, x: Tensor, items: Sequence[object]) -> IndexParts:
    """Return the chain of views of the basic items, with the axes that the remaining items
    index."""
    out, axis = x, 0
    new_axes: list[int] = []
    picks: list[AdvancedIndex] = []
    for item in filled(e, x, items):
        at = axis + len(new_axes)
        if item is None:
            new_axes.append(at)
        elif isinstance(item, slice):
            cut = window(e, out, axis, item)
            out = sliced(e, out, axis, item_bounds(e, item)) if cut is None else cut
            axis += 1
        elif basic(item):
            out = picked(e, out, axis, item.item() if isinstance(item, np.ndarray) else item)
        else:
            refuse_new_axes(e, new_axes, picks)
            sizes = e.type(out).shape[axis : axis + axes_of(item)]
            picks.append(index_tensors(e, item, at, sizes))
            axis += len(sizes)
            new_axes += [] if sizes else [at]
    for a in new_axes:
        shape = list(e.type(out).shape)
        shape.insert(a, 1)
        out = e.reshape(out, shape=tuple(shape))
    return IndexParts(e.alias(x) if out is x else out, tuple(picks))


def item_bounds(e: Emitter, item: slice) -> slice:
    """Integers for tensors with one element, and for NumPy integers."""
    return slice(*(bound_of(e, q) for q in (item.start, item.stop, item.step)))


def bound_of(e: Emitter, q: object) -> object:
    if isinstance(q, np.integer):
        return int(q)
    if not isinstance(q, Tensor):
        return q
    if e.type(q).dtype.kind != "i":
        raise NoRow("a bound of a slice that is a tensor of another type than int32 or int64")
    return number(e.trace, lift(e.trace, q), "the bound of a slice")


def filled(e: Emitter, x: Tensor, items: Sequence[object]) -> list[object]:
    """The items, with full slices for `...` and for the axes behind the last item."""
    ndim = e.type(x).ndim
    used = sum(map(axes_of, items))
    if used > ndim or sum(q is Ellipsis for q in items) > 1:
        raise IndexError(f"too many indices: {used} for {ndim} dimensions")
    full = [q for q in items if q is not Ellipsis]
    at = next((i for i, q in enumerate(items) if q is Ellipsis), len(items))
    full[at:at] = [slice(None)] * (ndim - used)
    return full


def axes_of(item: object) -> int:
    """Return the number of axes of the tensor that an item indexes."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, Tensor):
        return len(item.shape) if item.dtype == paddle.bool else 1
    if isinstance(item, (bool, np.bool_)):
        return 0
    found = np.asarray(item) if isinstance(item, np.ndarray) or boolean(item) else None
    return found.ndim if found is not None and found.dtype == np.bool_ else 1


def boolean(item: object) -> bool:
    """Whether an item is a list of Python booleans, lists of them, and so on."""
    if isinstance(item, (list, tuple)) and item:
        return all(boolean(q) or isinstance(q, (bool, np.bool_)) for q in item)
    return False


def refuse_new_axes(e: Emitter, new_axes: Sequence[int], picks: Sequence[AdvancedIndex]) -> None:
    own = {p.axis for p in picks if not p.sizes}
    if set(new_axes) - own:
        raise refuse(
            "None in front of a tensor in an index.",
            "Eager Paddle indexes the new axis then, and may use other memory.",
            "Add the axis afterwards: `x[i].unsqueeze(0)`; assign to `x[i]`.",
        )


__all__ = ["getitem", "old_items", "setitem"]
