"""Buffers of lists that a loop fills and reads at indices known only at run time.

    ys = [x]                                 buf = [x, 0, 0, ...]     as long as ys is in the end
    for t in range(n):                       for t in range(n):
        ys.append(f(ys[parent[t]]))              buf[t + 1] = f(buf[parent[t]])

The elements are rows of a tensor that is made in front of the loop and written in place, so loops
and branches inside of the loop carry it as they carry any storage. That a list needs one is learned
by one trace of the body and known in the next. So it is for one that the loop stores into at places
that only the program knows (`table[order[t]] = h`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dy2st.state.containers.dynamic_lookup import PICKED, at_frame, outside, row
from dy2st.state.containers.records import holds_record, regrouped
from dy2st.state.stacked_run import KnownValue, StackedRun, Unstacked, mapped
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import (
    DTYPES,
    KINDS,
    RuntimeScalar,
    compare,
    is_runtime_scalar,
    kind_of,
    stop,
    value_in,
)
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Frame, Trace, TracedLoop
from ir import ENDLESS, Size, Type, Value
from ir.types import Dim

#: elements further from the end are read in a tensor
MOST_CARRIED = 8


@dataclass
class ListAccess:
    """A list that a loop fills and reads. like: the types of the leaves of an element, each with
    whether it is a number. trained: the loop stores elements that require a gradient; data: numbers
    that follow from data. needed: it is to be held in tensors. stores: elements that are there are
    replaced. buffer: the tensors of this trace."""

    target: Any
    like: Any
    trained: bool = False
    data: bool = False
    needed: bool = False
    stores: bool = False
    buffer: ListBuffer | None = None

    def learn(self, items: Sequence[object]) -> bool:
        """Learn from the elements that an iteration has stored; whether there was something new."""
        known = self.trained, self.data
        self.trained = self.trained or not all(map(stops, items))
        self.data = self.data or any(map(is_data, items))
        return known != (self.trained, self.data)

    def decide(self, i: object) -> bool:
        """Learn from the index of a store whether data decides what the numbers are; whether that
        is new."""
        known, self.data = self.data, self.data or bool(getattr(i, "data", False))
        return known != self.data


def stops(x: object) -> bool:
    """Whether an element, or a leaf of a segment, requires no gradient."""
    return bool(getattr(x.fake if isinstance(x, Unstacked) else x, "stop_gradient", True))


def is_data(x: Any) -> bool:
    """Whether an element, or a leaf of a segment, is a number that follows from data."""
    of_loop = getattr(x, "of", None) is not None
    return x.data if is_runtime_scalar(x) else bool(getattr(x, "number", False)) and not of_loop


def wanted_for(trace: Trace, target: Any) -> ListAccess | None:
    """Return the types of the buffers that a list would need; None if it is empty or holds Python
    values."""
    parts = target.raw()
    if not parts:
        return None
    first = parts[0].tree if isinstance(parts[0], StackedRun) else parts[0]
    if holds_record(first):
        return None
    try:
        return ListAccess(target, mapped(lambda leaf: leaf_type(trace, leaf), first))
    except NeedsConcrete:
        return None


def learn(trace: Trace, frame: Frame, target: object, items: Sequence[object], growth: Dim) -> None:
    """Learn of a list that the loop fills and reads, after a trace that did not know that."""
    known = frame.learned.buffers
    wanted = known.get(id(target)) or wanted_for(trace, target)
    if wanted is None or frame.loop is None or frame.loop.trip == ENDLESS:
        return
    known[id(target)] = wanted
    wanted.learn(items)
    moved = Size.named(frame.loop.name) * growth
    backs = [q if q is None else q + moved for q in frame.wants.get(id(target), ())]
    wanted.needed |= any(type(q) is not int or not 1 <= q <= MOST_CARRIED for q in backs)


def want(trace: Trace, target: Any, loops: Sequence[Frame]) -> None:
    """Ask for the tensors of a list that some of these loops fill: the next trace has them."""
    owner = next(f for f in loops if f.growth.get(id(target)))
    if not target.raw():
        raise NeedsConcrete("a list is empty in the first iteration", (), True)
    reason = "picks elements of a list that the loop fills"
    if owner.loop is not None and owner.loop.trip == ENDLESS:
        reason = "picks elements of a list that a loop without a bound fills"
        raise NeedsConcrete(reason, [owner.loop], subject="an index")
    known = owner.learned.buffers
    wanted = known.get(id(target)) or wanted_for(trace, target)
    if wanted is None or wanted.needed and not owner.stale:
        raise NeedsConcrete(reason, [owner.loop], subject="an index")
    known[id(target)], wanted.needed, owner.stale = wanted, True, True


def want_stores(
    trace: Trace, target: object, loops: Sequence[Frame], i: object, items: Sequence[object]
) -> bool:
    """Like `want`, for a list of which the loops replace elements, `i` of them by one of `items`;
    this trace goes on as if they did not. False if the next one would not have the tensors."""
    known = loops[0].learned.buffers
    wanted = known.get(id(target)) or wanted_for(trace, target)
    shifted = any(id(target) in f.learned.queues for f in loops)
    if wanted is None or shifted or wanted.stores and not loops[0].stale:
        return False
    known[id(target)], wanted.needed, wanted.stores = wanted, True, True
    loops[0].stale = True
    wanted.learn(items)
    wanted.decide(i)
    for f in loops:
        forget_slots(f.learned.places, target)
        for facts in (f.learned.fills, f.fills, f.appends):
            facts.pop(id(target), None)
    return True


def choose(trace: Trace, target: Any, i: RuntimeScalar, value: object) -> None:
    """`target[i] = value` at an index from data: each element is the old one or the new one."""
    target.split(trace)
    n = target.size()
    if target.segmented or type(n) is not int:
        raise stop(i, "a list index")
    choose_each(trace, i, n, value, target.__getitem__, target.__setitem__)


def choose_each(
    trace: Trace,
    i: RuntimeScalar,
    n: int,
    value: object,
    get: Callable[[int], object],
    put: Callable[[int, object], None],
) -> None:
    """Store `value` at `i` of `n` places, which data decides."""
    at = RuntimeScalar(value_of(trace, row(trace, i, n, "list assignment")), trace)
    for k in range(n):
        here, old = compare(trace, "eq", at, k), get(k)
        put(k, trace.hooks.choose(trace, here, lambda: value, lambda old=old: old))


def choice(trace: Trace, i: RuntimeScalar, items: Sequence[object], kind: str) -> object:
    """`items[i]` of numbers of two kinds: one of them or another, as after branches on data."""
    at = RuntimeScalar(value_of(trace, row(trace, i, len(items), kind)), trace)
    found = items[-1]
    for k, item in enumerate(items[:-1]):
        here, rest = compare(trace, "eq", at, k), found
        found = trace.hooks.choose(trace, here, lambda item=item: item, lambda rest=rest: rest)
    return found


def forget_slots(places: dict[Any, Any], target: object) -> None:
    """The elements of a container are no places of their own."""
    for key in [k for k in places if k[0] in ("item", "attr", "contents") and k[1] == id(target)]:
        del places[key]


def leaf_type(trace: Trace, x: Any) -> tuple[Type, bool]:
    """The type of a leaf of an element, and whether it is a number."""
    kind = kind_of(x)
    if kind is not None:
        return Type(DTYPES[kind]), True
    if isinstance(x, Tensor):
        return lift(trace, x)._value.type, False
    if isinstance(x, (KnownValue, list)) or not hasattr(x, "stacked"):
        raise NeedsConcrete("a list that the loop fills holds Python values")
    t = x.stacked(trace, 0)._value.type
    return t.with_shape(t.shape[1:]), x.number


# ---------------------------------------------------------------- the tensors
class LeafBuffer:
    """One leaf of every element, along the first axis of a storage. The rows are copies of values
    that eager has themselves: of those before the loop, and of those that it has `stored`."""

    def __init__(
        self, buffer: ListBuffer, fake: FakeTensor, number: bool, before: Sequence[Value]
    ) -> None:
        self.buffer, self.fake, self.number = buffer, fake, number
        self.before = tuple(before)
        self.stored: list[Value] = []

    @property
    def type(self) -> Type:
        """The type of one element."""
        t = self.fake._value.type
        return t.with_shape(t.shape[1:])

    def store(self, trace: Trace, at: Value, x: object) -> None:
        kind, dtype = kind_of(x), self.type.dtype
        if self.number is not (kind is not None) or kind is None and not isinstance(x, Tensor):
            raise NeedsConcrete("elements of different types are in a list that the loop fills")
        new = value_in(trace, x, dtype) if kind is not None else lift(trace, x)._value
        if new.type != self.type or kind is not None and KINDS[dtype] is not kind:
            raise NeedsConcrete("elements of different types are in a list that the loop fills")
        view = trace.emit("dynamic_index", [self.fake._value, at], {"axis": 0})
        trace.write(trace.fake(view, self.fake.stop_gradient), trace.read_value(new))
        if kind is None:
            self.stored.append(new)
            trace.freeze(trace.root(new), PICKED, self.buffer.loop)

    def item(self, trace: Trace, at: object) -> Any:
        """The element in a row: a copy, which may not be written."""
        value = trace.emit("dynamic_index", [self.fake._value, value_of(trace, at)], {"axis": 0})
        value = trace.emit("assign", [value], {})
        if self.number:
            loops = frozenset() if self.buffer.wanted.data else frozenset([self.buffer.loop])
            return RuntimeScalar(value, trace, loops, self.buffer.wanted.data)
        trace.freeze(value, PICKED, self.buffer.loop)
        trace.values.copies[value] = (*self.before, *self.stored)
        return trace.fake(value, self.fake.stop_gradient)


def value_of(trace: Trace, at: Any) -> Value:
    """An index as a value."""
    if isinstance(at, Tensor):
        return lift(trace, at)._value
    return at.value if is_runtime_scalar(at) else trace.index_value(at)  # type: ignore[no-any-return]


class BufferRows(Unstacked):
    """A leaf of the elements from `start` on, so many as `length`, as they are now."""

    def __init__(self, trace: Trace, leaf: LeafBuffer, start: Dim, length: Dim) -> None:
        self.leaf, self.start, self.length, self.home = leaf, start, length, trace.frame
        before = leaf.before if start == 0 else ()
        self.number, self.made = leaf.number, None
        self.members: tuple[Value, ...] = (*before, *leaf.stored)
        self.trace = trace
        if leaf.buffer.wanted.stores:
            assert self.fake is not None  # as the elements are now

    @property
    def fake(self) -> Any:  # type: ignore[override]
        """The tensor from which elements are taken: no later write reaches them."""
        if self.made is None:
            trace = self.trace
            attrs = {"axis": 0, "start": self.start, "length": self.length, "step": 1}
            with at_frame(trace, trace.frames.index(self.home)):
                value = trace.emit("slice", [self.leaf.fake._value], attrs)
                value = trace.emit("assign", [value], {})
                self.made = trace.fake(value, self.leaf.fake.stop_gradient)
            trace.values.copies[value] = self.members
            trace.freeze(value, PICKED, self.leaf.buffer.loop)
        return self.made

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.leaf.type.shape

    def item(self, trace: Trace, i: Any) -> Any:
        """After the loop an element is one tensor."""
        if self.leaf.buffer.frame not in trace.frames or self.leaf.buffer.wanted.stores:
            return super().item(trace, i)
        return self.leaf.item(trace, i if self.start == 0 else trace.sym(self.start) + i)


class ListBuffer:
    """The tensors of one list, while `frame` is the body of the loop that fills it."""

    def __init__(self, trace: Trace, wanted: ListAccess, frame: Frame) -> None:
        assert frame.loop is not None
        self.target, self.wanted, self.frame = wanted.target, wanted, frame
        self.loop: TracedLoop = frame.loop
        parts = [
            (q.trip, q.tree) if isinstance(q, StackedRun) else (1, q) for q in self.target.raw()
        ]
        with outside(trace, frame):
            self.leaves = self.made(trace, wanted.like, parts)

    def made(self, trace: Trace, like: Any, parts: Sequence[tuple[Dim, Any]]) -> Any:
        """A tree of leaf buffers for elements of which the first are `parts`."""
        if len(like) == 2 and isinstance(like[0], Type):
            return self.leaf_buffer(trace, like[0], like[1], parts)
        if not all(type(q) is type(like) and len(q) == len(like) for _, q in parts):
            raise NeedsConcrete("elements of different structure are in a list")
        columns = [[(n, q[k]) for n, q in parts] for k in range(len(like))]
        leaves = [self.made(trace, part, column) for part, column in zip(like, columns)]
        return regrouped(like, leaves)

    def leaf_buffer(
        self, trace: Trace, t: Type, number: bool, parts: Sequence[tuple[Dim, object]]
    ) -> LeafBuffer:
        n: Dim = sum((n for n, _ in parts), 0)
        shape = (n + self.loop.trip * self.frame.growth.get(id(self.target), 0), *t.shape)
        value = trace.emit("full", [], {"value": 0, "shape": shape, "dtype": t.dtype})
        pieces, stops, members = list[Value](), [not self.wanted.trained], list[Value]()
        for _, x in parts:
            piece, stop = self.piece(trace, t, number, x, members)
            pieces.append(piece)
            stops.append(stop)
        if pieces:
            whole = pieces[0] if len(pieces) == 1 else trace.emit("concat", pieces, {"axis": 0})
            value = trace.emit("set_slice", [value, whole], {"axis": 0, "start": 0})
        return LeafBuffer(self, trace.fake(value, all(stops)), number, members)

    def piece(
        self, trace: Trace, t: Type, number: bool, x: Any, members: list[Value]
    ) -> tuple[Value, bool]:
        """Elements along a first axis, and whether they require no gradient."""
        if leaf_type(trace, x) != (t, number):
            raise NeedsConcrete("elements of different types are in a list that the loop fills")
        if isinstance(x, Tensor) or kind_of(x) is not None:
            value = value_in(trace, x, t.dtype) if number else lift(trace, x)._value
            if not number:
                members.append(value)
                trace.freeze(trace.root(value), PICKED, self.loop)
            piece = trace.emit("reshape", [value], {"shape": (1, *t.shape)})
            return piece, number or bool(x.stop_gradient)
        members += x.members
        return x.stacked(trace, 0)._value, bool(x.stacked(trace, 0).stop_gradient)

    # ------------------------------------------------------------ in the body
    def store(self, trace: Trace, at: Dim, x: object) -> None:
        """An element behind the last one."""
        index = trace.dim_value(at)
        for leaf, part in paired(self.leaves, x):
            leaf.store(trace, index, part)

    def replace(self, trace: Trace, i: object, x: object, n: object) -> None:
        """Store element `i` of the `n` that there are now."""
        if not self.wanted.stores:
            raise NeedsConcrete("a list is read or changed while the loop fills it")
        pairs = paired(self.leaves, x)
        new = self.wanted.learn([part for _, part in pairs])
        if any(leaf.number for leaf, _ in pairs) and self.wanted.decide(i) or new:
            self.frame.stale = True
            return
        index = value_of(trace, row(trace, i, n, "list assignment"))
        for leaf, part in pairs:
            leaf.store(trace, index, part)

    def item(self, trace: Trace, i: object, n: object) -> Any:
        """Element `i` of the `n` that there are now."""
        at = row(trace, i, n, "list")
        return mapped(lambda leaf: leaf.item(trace, at), self.leaves)

    def run(self, trace: Trace, start: Dim, n: Dim) -> StackedRun:
        """Elements as one part of a list."""
        return StackedRun(n, mapped(lambda leaf: BufferRows(trace, leaf, start, n), self.leaves))


def paired(leaves: Any, x: Any) -> list[tuple[LeafBuffer, object]]:
    """Each leaf buffer with its part of an element."""
    if not isinstance(leaves, tuple):
        return [(leaves, x)]
    if type(x) is not type(leaves) or len(x) != len(leaves):
        raise NeedsConcrete("elements of different structure are appended to a list")
    return [pair for leaf, part in zip(leaves, x) for pair in paired(leaf, part)]


def enter(trace: Trace, frame: Frame) -> None:
    """The lists that this loop holds in tensors have them while its body is traced."""
    for wanted in list(frame.learned.buffers.values()):
        target = wanted.target
        if wanted.needed and target.born in trace.frames[:-1] and target.buffer is None:
            around = trace.frames[trace.frames.index(target.born) + 1 : -1]
            if any(f.growth.get(id(target)) for f in around):
                want(trace, target, around)
                continue
            trace.undo_log.note(functools.partial(setattr, target, "buffer", None))
            target.buffer = wanted.buffer = ListBuffer(trace, wanted, frame)
    for place in list(frame.learned.places.values()):
        if hasattr(type(place.obj), "is_table") and place.obj.is_table:
            forget_slots(frame.learned.places, place.obj)


def leave(trace: Trace, frame: Frame, length: Dim) -> None:
    """Put the new elements into the lists of which a loop has replaced some."""
    for wanted in frame.learned.buffers.values():
        buffer, target = wanted.buffer, wanted.target
        if wanted.stores and buffer is not None and buffer.frame is frame:
            n = target.size() + length * frame.growth.get(id(target), 0)
            target.replace_parts([buffer.run(trace, 0, n)])


__all__ = [
    "MOST_CARRIED",
    "ListBuffer",
    "ListAccess",
    "enter",
    "learn",
    "leave",
    "want",
    "want_stores",
]
