"""The layout of tensors of the program in their storages: the chain of views, as rows and
attributes that can be repeated, and strides and offset as eager Paddle would have them.

Every storage of the program is contiguous; views have strides. Inputs are contiguous in the program
whatever the caller passes, so a question about the memory of an input is a condition of the call
(`exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from paddle import Tensor

from dy2st.trace.signals import Refused, RetraceForSharing
from dy2st.trace.trace import Frame, Trace, TracedInput
from ir import Size, Value
from ir.analysis.alias import DATA, view_layout
from ir.layout import Strided, Strides, contiguous
from ir.opdef import view_rule
from ir.types import Dim, names_in, substitute_dim

Extent: TypeAlias = tuple[int, int]
MemoryStep: TypeAlias = tuple[str, tuple[tuple[str, object], ...]]
Recipe: TypeAlias = tuple[MemoryStep, ...]


# ---------------------------------------------------------------- chains of views
def chain_of(
    trace: Trace, value: Value, root: Value, output: Callable[[Value], int]
) -> Recipe | None:
    """The views from `root` to `value`; None when one of them has an index that is written later.

    `output` gives the number of the output that an index from data becomes.
    """
    steps: list[MemoryStep] = []
    while value is not root:
        op = trace.values.makers.get(value)
        if op is None or any(trace.root(v) in trace.values.written for v in op.operands[1:]):
            return None
        found = [("output", output(v)) for v in op.operands[1:]]
        steps.append((op.name, tuple(sorted([*op.attrs.items(), *found]))))
        value = op.operands[0]
    return tuple(reversed(steps)) or (("alias", ()),)


def chain_in_loop(trace: Trace, value: Value, root: Value, frame: Frame) -> Recipe | None:
    """Like `chain_of`, for a value in a loop's body: indices are expressions of the iteration.
    Empty for the object `root` itself."""
    known = {v: dim for dim, v in frame.indices.items()}
    if frame.loop is not None:
        known[frame.loop.index] = Size.named(frame.loop.name)
    steps: list[MemoryStep] = []
    for v in trace.chain(value):
        op = trace.values.makers.get(v)
        if v is root:
            return tuple(reversed(steps))
        if op is None:
            continue
        name, attrs, found = op.name, op.attrs, [known.get(q) for q in op.operands[1:]]
        if None in found:
            return None
        static = view_rule(name).static
        if static is not None:
            name, attrs = static(*found, **attrs)
        steps.append((name, tuple(sorted(attrs.items()))))
    return None


def is_apart(recipe: Recipe, loop: str) -> bool:
    """Whether no two iterations look at the same element: each one takes a slice of its own."""
    name, attrs = recipe[0] if recipe else ("", ())
    index = dict(attrs).get("index")
    return name == "index" and isinstance(index, Size) and loop in index.names


def dims_of(x: object) -> Sequence[Any]:
    """The sizes in an attribute."""
    return x if isinstance(x, tuple) else (x,)


def in_iteration(recipe: Recipe, loop: str, index: Dim) -> Recipe:
    """A chain in a loop's body, in iteration `index`."""

    def fixed(a: object) -> object:
        if isinstance(a, tuple):
            return tuple(map(fixed, a))
        return substitute_dim(a, {loop: index}) if isinstance(a, Size) else a

    return tuple((name, tuple((k, fixed(a)) for k, a in attrs)) for name, attrs in recipe)


# ---------------------------------------------------------------- strides and offsets


@dataclass(frozen=True)
class Layout(Strided):
    """Of a view of `source`, a contiguous tensor."""

    source: Value
    offset: Dim
    shape: tuple[Dim, ...]
    strides: Strides

    def lying(self, offset: Dim, shape: tuple[Dim, ...], strides: Strides) -> Layout:
        return Layout(self.source, offset, shape, strides)

    @property
    def settled(self) -> bool:
        """Whether no index from data decides where it begins."""
        return DATA not in names_in(self.offset)


def whole(source: Value) -> Layout:
    return Layout(source, 0, source.type.shape, contiguous(source.type.shape))


def layout(trace: Trace, value: Value, storage: bool = False) -> Layout | None:
    """From the nearest contiguous tensor that `value` views, or with `storage` from its storage;
    None where it is not known whether a reshape copies."""
    root, *views = reversed(list(trace.chain(value)))
    found = whole(root)
    for v in views:
        op = trace.values.makers.get(v)
        after = found if op is None else view_layout(op, found)
        if after is None:
            return None
        near = not storage and after.strides == contiguous(v.type.shape)
        found = whole(v) if near else after
    return found


def exact(trace: Trace, fake: Tensor, what: str) -> Layout:
    """The layout that Python sees; raises Refused where it is not known.

    That of an input becomes a condition of the call.
    """
    fix(trace, trace.root(fake._value))
    found = layout(trace, fake._value, storage=True)
    known = found is not None and all(isinstance(s, int) for s in found.strides)
    if found is None or not known or 0 in fake._value.type.shape:
        raise unknown(trace, what)
    return found


def is_contiguous(trace: Trace, fake: Tensor) -> bool:
    fix(trace, trace.root(fake._value))
    found, shape = layout(trace, fake._value, storage=True), fake._value.type.shape
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
    """Make the layout of this storage a condition of the call, if it is an input; one that
    is not contiguous is traced again, as a view of its memory."""
    for q in trace.inputs.by_id.values():
        if q.value is root and q.kind != "const" and q.number is None:
            with trace.pause():
                straight = q.tensor.is_contiguous()
            if not straight:
                raise RetraceForSharing([q], trace.inputs.by_id.values(), asked=True)
            q.fixed = True
            return q
    return None


def offset_of(trace: Trace, value: Value) -> int:
    """Return the offset in bytes of the storage of a value in its memory."""
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
    "Layout", "Recipe", "chain_in_loop", "chain_of", "dims_of", "exact", "extent", "in_iteration",
    "is_apart", "is_contiguous", "layout", "meet", "offset", "offset_of", "unknown",
]  # fmt: skip
