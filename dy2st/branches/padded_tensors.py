"""Tensors of data-dependent size, padded to a bound and with a length: `alive = alive[~done]` in a
branch.

Each branch pads its tensor to a bound of both, and hands on the length beside it. Behind the branch
the tensor is a part of the buffer that is as long as the length says.

    %buffer, %length = cond %c { pad(%shorter), n } { %whole, m }
    %alive = slice(%buffer, start=0, length=%length)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dy2st.branches.branch import inside
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.item import size_of
from dy2st.trace.scalar import PathCondition
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.size_facts import SizeFacts
from dy2st.trace.trace import Frame, Trace
from ir import ENDLESS, Size, Type, Value
from ir.types import Dim, names_in


def other_axis(trace: Trace, a: Type, b: Type) -> int | None:
    """The one axis along which two types differ, if data decides a size there; None otherwise."""
    if a.dtype != b.dtype or a.ndim != b.ndim:
        return None
    axes = [k for k, (n, m) in enumerate(zip(a.shape, b.shape)) if n != m]
    if len(axes) != 1 or not any(is_counted(trace, t.shape[axes[0]]) for t in (a, b)):
        return None
    return axes[0]


def is_counted(trace: Trace, dim: Dim) -> bool:
    """Whether data decides a size."""
    return isinstance(dim, Size) and not dim.names.isdisjoint(trace.sizes.counts)


def bound(trace: Trace, dim: Dim, inner: Frame | None = None) -> Dim | None:
    """The largest value of a size, by sizes that are known outside of the frame `inner`; without
    one by those of the call. None if nothing bounds it so."""
    over = None if inner is None else lambda n: trace.is_local(Size.named(n), inner)
    found = trace.sizes.extreme(dim, True, over=over)
    return None if isinstance(found, int) and found >= ENDLESS else found


def is_larger(trace: Trace, a: Dim, b: Dim) -> bool:
    """Whether a size is surely at least as large as another one."""
    least = trace.sizes.extreme(a - b, False)
    return least is not None and trace.sizes.surely(least, 0)


def larger(trace: Trace, a: Dim, b: Dim) -> Dim:
    """A size that is at least as large as both."""
    return a if is_larger(trace, a, b) else b if is_larger(trace, b, a) else a + b


def shrinkage(
    sizes: SizeFacts, count: str, dim: Dim, facts: Collection[PathCondition]
) -> int | None:
    """By how much a size, where it is not 0 and `facts` hold, surely is smaller than an older
    `count`; None if nothing says so."""
    less = 0
    while isinstance(dim, Size) and len(dim.names) == 1:
        (name,) = dim.names
        rest = dim - Size.named(name)
        if not isinstance(rest, int) or rest > 0:
            return None
        less -= rest
        if name == count:
            return less
        if name not in sizes.counts or sizes.births[name] < sizes.births[count]:
            return None
        sides = [d for q, d in sizes.sides.get(name, {}).items() if q in facts]
        dim = sides[0] if sides else sizes.nonempty.get(name, sizes.counts[name][1])
    return None


def pad(trace: Trace, value: Value, shape: Sequence[Dim]) -> Value:
    """A tensor in front of zeros, so that it has this shape."""
    for axis, (n, most) in enumerate(zip(value.type.shape, shape)):
        if n != most:
            dims = (*value.type.shape[:axis], most, *value.type.shape[axis + 1 :])
            attrs = {"value": 0, "shape": dims, "dtype": value.type.dtype}
            zeros = trace.emit("full", [], attrs)
            value = trace.emit("set_slice", [zeros, value], {"axis": axis, "start": 0})
    return value


def part(trace: Trace, buffer: Value, length: Value, axis: int, most: Dim, least: int = 0) -> Value:
    """The first elements of a buffer, as many as `length` says: from `least` to `most`."""
    n = size_of(trace, length, most, least)
    return trace.emit("slice", [buffer], {"axis": axis, "start": 0, "length": n, "step": 1})


def merge_bounded(merge: Any, name: str, a: FakeTensor, b: FakeTensor) -> FakeTensor | None:
    """Merge two tensors that differ in one data-dependent size; None for any other pair. `merge`:
    the `Merge` of the branches."""
    trace: Trace = merge.trace
    axis, sides = other_axis(trace, a._value.type, b._value.type), ((merge.yes, a), (merge.no, b))
    if axis is None or any(x._value in trace.undefined.values for x in (a, b)):
        return None
    first, second = (bound(trace, x._value.type.shape[axis], q.frame) for q, x in sides)
    if first is None or second is None:
        return None
    most, pairs = larger(trace, first, second), []
    for side, x in sides:
        with inside(trace, side.frame):
            value, dims = trace.read_value(x._value), list(x._value.type.shape)
            n, dims[axis] = trace.dim_value(dims[axis]), most
            pairs.append((pad(trace, value, dims), n))
    (then, a_length), (orelse, b_length) = pairs
    buffer = merge.out(then.type, "", then, orelse)
    length = merge.out(a_length.type, "length", a_length, b_length)
    with trace.frame.emits_into(merge.after):
        value = part(trace, buffer, length, axis, most)
    test, name = merge.test.value, str(value.type.shape[axis])
    n, m = (x._value.type.shape[axis] for _, x in sides)
    trace.sizes.sides[name] = {("is", test): n, ("not", test): m}
    trace.freeze(value, "A branch on data decides how long it is.", None)
    roots = [trace.root(x._value) for _, x in sides]
    trace.values.copies[value] = tuple(q for q in roots if trace.values.frame_of[q] in trace.frames)
    return trace.fake(value, a.stop_gradient and b.stop_gradient)


def last_part(plan: Any, inner: Value, axes: Sequence[int], name: str) -> Value:
    """The value after a loop of a tensor of which data has decided the size in the iteration: a
    part of a buffer that has room for all of them. `plan`: the `LoopRecord`."""
    trace: Trace = plan.trace
    (axis, *more), dims = axes, list(inner.type.shape)
    if plan.body_trace.loop.name in names_in(bound(trace, dims[axis], plan.frame) or 0):
        plan.body_trace.need_bound()
    most, length = bound(trace, dims[axis]), trace.dim_value(dims[axis])
    if most is None or more:
        raise NeedsConcrete(f"{name} is as long as an inner loop, which depends on data")
    dims[axis] = most
    buffer = plan.add_last(pad(trace, inner, dims), name)
    count = plan.add_last(trace.read_value(length), name)
    with plan.behind():
        value = part(trace, buffer, count, axis, most)
    trace.freeze(value, "It is a part of what the last iteration of a loop has made.", None)
    if trace.values.frame_of[trace.root(inner)] is not plan.frame:
        trace.values.copies[value] = (trace.root(inner),)
    if buffer in trace.undefined.values:
        trace.undefined.values[value] = trace.undefined.values[buffer]
    return value


__all__ = [
    "bound", "is_larger", "larger", "last_part", "merge_bounded", "other_axis", "pad", "part",
    "shrinkage",
]  # fmt: skip
