"""The memory layout of a tensor of the program as eager Paddle would have it: strides and offset.

Every storage of the program is contiguous; views have strides. Inputs are contiguous in the program
whatever the caller passes, so a question about the memory of an input is a condition of the call
(`exact`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from paddle import Tensor

from dy2st.trace.signals import Refused, Shares
from dy2st.trace.trace import Trace, TracedInput
from ir import Op, Value
from ir.analysis.alias import view_strides
from ir.opdef import view_rule
from ir.types import Dim, contiguous

Extent: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Element (i, j, ...) is `offset + i * strides[0] + ...` elements behind the first one of
    `source`, a contiguous tensor; `offset` is None where data decides."""

    source: Value
    offset: Dim | None
    strides: tuple[Dim, ...]


def layout(trace: Trace, value: Value, whole: bool = False) -> Layout | None:
    """From the nearest contiguous tensor that `value` views, or with `whole` from its storage;
    None where it is not known whether a reshape copies."""
    root, *views = reversed(list(trace.chain(value)))
    found = Layout(root, 0, contiguous(root.type.shape))
    for v in views:
        op = trace.values.makers.get(v)
        strides = found.strides if op is None else view_strides(op, found.strides)
        if strides is None:
            return None
        if not whole and strides == contiguous(v.type.shape):
            found = Layout(v, 0, strides)
        else:
            found = Layout(found.source, moved(op, found), strides)
    return found


def moved(op: Op | None, before: Layout) -> Dim | None:
    """The offset behind a view op; a const port has none."""
    if op is None or before.offset is None:
        return before.offset
    if op.operands[1:]:
        return None
    return before.offset + view_rule(op.name).offset(before.strides, **op.attrs)


def exact(trace: Trace, fake: Tensor, what: str) -> Layout:
    """The layout that Python sees; raises Refused where it is not known.

    That of an input becomes a condition of the call.
    """
    fix(trace, trace.root(fake._value))
    found = layout(trace, fake._value, whole=True)
    known = found is not None and all(isinstance(s, int) for s in found.strides)
    if found is None or not known or 0 in fake._value.type.shape:
        raise unknown(trace, what)
    return found


def is_contiguous(trace: Trace, fake: Tensor) -> bool:
    fix(trace, trace.root(fake._value))
    found, shape = layout(trace, fake._value, whole=True), fake._value.type.shape
    if found is None or 0 in shape:
        raise unknown(trace, "is_contiguous()")
    return found.strides == contiguous(shape)


def offset(trace: Trace, fake: Tensor) -> int:
    """In bytes, from the beginning of the memory."""
    found = exact(trace, fake, "the offset")
    if not isinstance(found.offset, int):
        raise unknown(trace, "the offset")
    return offset_of(trace, found.source) + found.offset * fake._value.type.dtype.size


def fix(trace: Trace, root: Value) -> TracedInput | None:
    """How this storage lies in memory becomes a condition of the call, if it is an input; one that
    is not contiguous is traced again, as a view of its memory."""
    for q in trace.inputs.by_id.values():
        if q.value is root and q.kind != "const" and q.number is None:
            with trace.pause():
                straight = q.tensor.is_contiguous()
            if not straight:
                raise Shares([q], trace.inputs.by_id.values(), asked=True)
            q.fixed = True
            return q
    return None


def offset_of(trace: Trace, value: Value) -> int:
    """How many bytes behind the beginning of its memory the storage of a value begins."""
    found = fix(trace, trace.root(value))
    if found is None:
        return 0
    with trace.pause():
        found.offset = int(found.tensor.offset)
    return found.offset


def unknown(trace: Trace, what: str) -> Refused:
    return Refused(
        f"{what} is asked of a tensor that has no elements, or whose place in memory depends "
        "on data or named sizes.",
        trace.where(),
        reason="Strides and offsets must be known when the program is made.",
        remedy="Use a copy: `x.clone()`.",
    )


# ---------------------------------------------------------------- real tensors
def extent(t: Tensor) -> Extent | None:
    """The first byte of a tensor, and the one behind its last; None if it has no element."""
    low = high = t.data_ptr()
    size = t.element_size()
    for d, s in zip(t.shape, t.strides):
        if d == 0:
            return None
        reach = (d - 1) * s * size
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return low, high + size


def meet(a: Extent | None, b: Extent | None) -> bool:
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]


__all__ = [
    "Layout",
    "exact",
    "extent",
    "is_contiguous",
    "layout",
    "meet",
    "offset",
    "offset_of",
    "unknown",
]
