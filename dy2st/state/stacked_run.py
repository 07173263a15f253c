"""Stacked runs: consecutive elements of a list, one for each iteration of a loop."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dy2st.state.containers.constants import is_constant, same_constant
from dy2st.state.containers.records import (
    loops_of,
    regrouped,
    same_form,
    snapshot,
    unpacked,
)
from dy2st.trace.emitter import Emitter, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import DTYPES, RuntimeScalar, check, is_runtime_scalar, make, negate, stop
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import bounds, is_symint
from dy2st.trace.trace import Frame, Trace, TracedLoop, current
from ir import Scan, Stack, Value
from ir.types import Dim, substitute_dim


class ScanReference:
    """The loop that a segment comes from; its node is replaced when a port is added."""

    def __init__(self, frame: Frame, scan: Scan) -> None:
        self.frame, self.scan = frame, scan

    def add_stack(self, inner: Value, axis: int, trace: Trace) -> Value:
        shape = list(inner.type.shape)
        shape.insert(axis, self.scan.length)
        outer = trace.new_value(inner.type.with_shape(shape), inner.name, self.frame)
        root = trace.root(inner)
        if root in trace.values.frozen:
            trace.freeze(outer, *trace.values.frozen[root])
        ops, index = self.frame.builder.ops, self.scan.index
        loops = ((k, n) for k, n in enumerate(ops) if isinstance(n, Scan))
        at, scan = next((k, n) for k, n in loops if n.index is index)
        self.scan = dataclasses.replace(scan, ports=(*scan.ports, Stack(outer, inner, axis)))
        ops[at] = self.scan
        return outer


class StackedLeaf:
    """One tensor per iteration of a loop, or a `number`; with a `group`, so many along the first
    axis of the value, which holds `members`. `of`: the loops whose indices alone decide a
    number, or None."""

    def __init__(
        self,
        cell: ScanReference,
        inner: Value,
        stop_gradient: bool,
        group: Dim = 0,
        number: bool = False,
        members: Sequence[Value] = (),
        of: frozenset[TracedLoop] | None = None,
    ) -> None:
        self.of = of
        self.cell, self.inner, self.stop_gradient = cell, inner, stop_gradient
        self.group, self.number = group, number
        self.members = tuple(members) or (inner,)
        self.whole: tuple[Tensor, int] | None = None

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of one element."""
        return self.inner.type.shape[1:] if self.group != 0 else self.inner.type.shape

    def stacked(self, trace: Trace, axis: int) -> Tensor:
        """Return all elements as one tensor with the loop's axis at `axis`."""
        ndim = len(self.shape) + 1
        axis %= ndim
        if self.whole is None:
            self.whole = self.all_groups(trace) if self.group != 0 else self.all(trace, axis)
        fake, have = self.whole
        if have == axis:
            return fake
        perm = [a for a in range(ndim) if a != have]
        perm.insert(axis, have)
        value = trace.emit("transpose", [fake._value], {"perm": tuple(perm)})
        return trace.fake(value, self.stop_gradient)

    def all(self, trace: Trace, axis: int) -> tuple[Tensor, int]:
        outer = self.cell.add_stack(self.inner, axis, trace)
        return trace.fake(outer, self.stop_gradient), axis

    def all_groups(self, trace: Trace) -> tuple[Tensor, int]:
        """In the frame of the loop, whichever loop asks for it first."""
        outer = self.cell.add_stack(self.inner, 0, trace)
        outer = trace.fake(outer, self.stop_gradient)._value
        first, group, *rest = outer.type.shape
        at = trace.frames.index(self.cell.frame) + 1
        inner, trace.frames[at:] = trace.frames[at:], []
        try:
            value = trace.emit("reshape", [outer], {"shape": (first * group, *rest)})
            return trace.fake(value, self.stop_gradient), 0
        finally:
            trace.frames[at:] = inner

    def item(self, trace: Trace, i: Any) -> object:
        fake = self.stacked(trace, 0) if self.whole is None else self.whole[0]
        axis = 0 if self.whole is None else self.whole[1]
        one = fake[(slice(None),) * axis + (i,)]
        if self.number:
            return RuntimeScalar(one._value, trace, self.of or frozenset(), self.of is None)
        trace.values.copies[one._value] = tuple(self.members)
        return one


class KnownValue:
    """A Python value per iteration: a constant, or an integer that follows from the index."""

    number = True
    members = ()

    def __init__(self, value: object, loop: str) -> None:
        self.value, self.loop = value, loop

    def item(self, trace: Trace, i: Any) -> object:
        if not is_symint(self.value):
            return self.value
        at: Any = i.dim if is_symint(i) else i
        if is_runtime_scalar(i):
            raise stop(i, "a list index")
        return trace.sym(substitute_dim(self.value.dim, {self.loop: at}))

    def stacked(self, trace: Trace, axis: int) -> Tensor:
        raise ValueError("stack takes a list of tensors, not of Python values")


class Unstacked:
    """The slices of one tensor along its first axis, which copies `members`."""

    def __init__(self, fake: FakeTensor, number: bool, members: Sequence[Value]) -> None:
        self.fake, self.number, self.members = fake, number, members

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.fake._value.type.shape[1:]  # type: ignore[no-any-return]

    def item(self, trace: Trace, i: object) -> object:
        one = self.fake[i]
        if self.number:
            return RuntimeScalar(one._value, trace)
        root = trace.root(self.fake._value)
        others = tuple(v for v in self.members if trace.root(v) is not root)
        trace.values.copies[one._value] = others
        return one

    def stacked(self, trace: Trace, axis: int) -> Tensor:
        ndim = self.fake.ndim
        perm = list(range(1, ndim))
        perm.insert(axis % ndim, 0)
        if perm == list(range(ndim)):
            return self.fake
        value = trace.emit("transpose", [self.fake._value], {"perm": tuple(perm)})
        return trace.fake(value, self.fake.stop_gradient)


class StackedRun:
    """`trip` elements; `tree` is a `StackedLeaf`, or a tuple of trees for tuples and containers.
    `loop`: the loop that has appended them, if all of them are there. `items`: those that have been
    read, each with the frame that made it: an element is one object. `origin`: the parts of the
    list that they have been taken from. `given`: lists that have been read, `copies`: runs with
    the same elements, `holders`: the lists that have had it. `moved`: the list that has had all of
    the elements has these instead."""

    def __init__(
        self, trip: Dim, tree: Any, loop: TracedLoop | None = None, origin: tuple[object, ...] = ()
    ) -> None:
        self.trip, self.tree, self.loop, self.origin = trip, tree, loop, origin
        self.items: dict[int, tuple[Frame, object]] = {}
        self.given: list[object] = []
        self.copies: list[StackedRun] = []
        self.holders: list[Callable[[], Any]] = []
        self.moved = False

    @property
    def shared(self) -> bool:
        """Whether several lists of the function may have the elements."""
        return self.loop is None and not self.moved or len(self.held_by()) > 1

    def held_by(self) -> set[int]:
        """The lists that have the run, by `id`."""
        lists = [x for q in self.holders if (x := q()) is not None]
        return {id(x) for x in lists if any(part is self for part in x.raw())}.union(
            *(q.held_by() for q in self.copies)
        )

    def part(self, trace: Trace, at: slice) -> StackedRun:
        """`self[start:stop]` for the list that has had the whole run."""
        made, first = self.slice(trace, at), at.start or 0
        self.copies.pop()
        made.moved = not self.shared
        made.items = {k - first: q for k, q in self.items.items() if k >= first}
        made.given, made.copies = self.given, self.copies
        return made

    def lists(self) -> Iterator[object]:
        """The lists that have been read of elements that are lists."""
        yield from self.given
        for q in self.copies:
            yield from q.lists()

    def source(self) -> TracedLoop | None:
        """The loop that has appended the elements, or those that they are taken from."""
        runs = [q for q in self.origin if isinstance(q, StackedRun)]
        return self.loop or next((q.source() for q in runs), None)

    @property
    def size(self) -> Any:
        trace = current()
        assert trace is not None
        return trace.sym(self.trip)

    def item(self, trace: Trace, i: object) -> object:
        known = self.items.get(i) if type(i) is int else None
        if known is not None and known[0] in trace.frames:
            return known[1]
        made = mapped(lambda leaf: leaf.item(trace, i), self.tree)
        self.note(trace, i, made, ())
        made = unpacked(trace, made)
        if isinstance(made, list):
            self.given.append(made)
        if type(i) is int:
            self.items[i] = trace.frame, made
        return made

    def note(self, trace: Trace, i: object, made: object, path: tuple[int, ...]) -> None:
        """Note which element of the run the tensors of `made` are."""
        if isinstance(made, tuple):
            for k, q in enumerate(made):
                self.note(trace, i, q, (*path, k))
        elif isinstance(made, FakeTensor):
            trace.values.picks[made._value] = (self, i, path)

    def stacked(self, trace: Trace, axis: int) -> Tensor:
        if isinstance(self.tree, tuple):
            raise ValueError("stack takes a list of tensors, not of tuples")
        return self.tree.stacked(trace, axis)

    def slice(self, trace: Trace, at: slice) -> StackedRun:
        """`self[start:stop:step]`, part by part; a list of constants has no tensor to slice."""

        def cut(leaf: StackedLeaf | KnownValue | Unstacked) -> object:
            if isinstance(leaf, KnownValue):
                return leaf
            return Unstacked(leaf.stacked(trace, 0)[at], leaf.number, leaf.members)

        tree = mapped(cut, self.tree)
        if type(self.trip) is int and all(type(q) is not Unstacked for q in leaves_of(tree)):
            made = StackedRun(len(range(self.trip)[at]), tree, origin=(self,))
        else:
            made = StackedRun(trace_length(tree), tree, origin=(self,))
        self.copies.append(made)
        return made


def taken_from(trace: Trace, item: object) -> tuple[StackedRun, ...]:
    """The runs of which the tensors that an iteration appends are elements."""
    if isinstance(item, tuple):
        return tuple(run for q in item for run in taken_from(trace, q))
    picks: dict[Any, Any] = trace.values.picks
    pick = picks.get(getattr(item, "_value", None))
    return () if pick is None else (pick[0],)


def joined(trace: Trace, parts: list[Any]) -> StackedRun | None:
    """Elements and segments as one segment; None for different or for Python values."""
    if len(parts) == 1 and isinstance(parts[0], StackedRun):
        return None if moves(parts[0]) else parts[0]
    given, runs = tuple(parts), [q.tree for q in parts if isinstance(q, StackedRun)]
    for loop in loops_of(tuple(runs)):
        parts = [q if isinstance(q, StackedRun) else snapshot(trace, q, loop) for q in parts]
    if any(map(moves, parts)):
        return None
    trees = [q.tree if isinstance(q, StackedRun) else q for q in parts]
    trips = [q.trip if isinstance(q, StackedRun) else 0 for q in parts]
    size = length_of(parts)
    first = trees[0]
    if isinstance(first, tuple):
        if not all(isinstance(t, tuple) and same_form(t, first) for t in trees):
            return None
        columns = [
            joined(trace, [StackedRun(n, t[k]) if isinstance(q, StackedRun) else t[k]
                           for q, t, n in zip(parts, trees, trips)])
            for k in range(len(first))
        ]  # fmt: skip
        trees = [q.tree for q in columns if q is not None]
        whole = StackedRun(size, regrouped(first, trees), origin=given)
        for q in given:
            if isinstance(q, StackedRun):
                q.copies.append(whole)
        return whole if len(trees) == len(columns) else None
    known = [constant_of(q.tree if isinstance(q, StackedRun) else q) for q in parts]
    if any(known):
        if all(same_constant(q, known[0]) for q in known):
            return StackedRun(size, KnownValue(known[0][0], ""))
        parts = [computed(trace, q) for q in parts]
        if any(constant_of(q.tree if isinstance(q, StackedRun) else q) for q in parts):
            return None
    segments = [q for q in parts if isinstance(q, StackedRun)]
    if not all(hasattr(q.tree, "number") for q in segments):  # containers beside other elements
        return None
    numbers = {q.tree.number if isinstance(q, StackedRun) else is_runtime_scalar(q) for q in parts}
    if len(numbers) > 1:
        return None
    members = [value_of(trace, q) for q in parts if not isinstance(q, StackedRun)]
    members += [v for q in segments for v in q.tree.members]
    if numbers == {True} and len({v.type.dtype for v in members}) > 1:
        return None
    tree = Unstacked(along_first_axis(trace, parts), numbers.pop(), members)
    return StackedRun(size, tree, origin=given)


def stacked_pieces(
    trace: Trace, parts: list[Any], axis: int, stack: Callable[..., object]
) -> list[Any]:
    """Elements and segments, stacked along an axis. A segment is a copy in meaning: it costs
    nothing unless one of the two is written."""
    out: list[Any] = []
    for is_run, group in itertools.groupby(parts, lambda q: isinstance(q, StackedRun)):
        if not is_run:
            out.append(stack(list(group), axis))
            continue
        for fake in (q.stacked(trace, axis) for q in group):
            value = trace.emit("assign", [fake._value], {})
            out.append(trace.fake(value, fake.stop_gradient))
    return out


def length_of(parts: Sequence[object]) -> Dim:
    """Return the number of elements in elements and segments."""
    total: Dim = 0
    for q in parts:
        total = total + (q.trip if isinstance(q, StackedRun) else 1)
    return total


def hold(parts: Sequence[object], by: object) -> None:
    """A list has these parts now."""
    for q in parts:
        if isinstance(q, StackedRun):
            q.holders.append(weakref.ref(by))


def value_of(trace: Trace, x: Any) -> Value:
    return x.value if is_runtime_scalar(x) else lift(trace, x)._value  # type: ignore[no-any-return]


def computed(trace: Trace, x: object) -> object:
    """A number of Python as one that the program computes."""
    if type(x) not in DTYPES or type(x) is int and x.bit_length() > 63:
        return x
    return RuntimeScalar(Emitter(trace).full(x, DTYPES[type(x)])._value, trace)


def along_first_axis(trace: Trace, parts: list[Any]) -> Tensor:
    """Return all elements in one tensor."""
    pieces = []
    for q in parts:
        if isinstance(q, StackedRun):
            pieces.append(q.stacked(trace, 0))
        else:
            value = value_of(trace, q)
            shape = (1, *value.type.shape)
            one = trace.emit("reshape", [value], {"shape": shape})
            pieces.append(trace.fake(one, getattr(q, "stop_gradient", True)))
    value = trace.emit("concat", [q._value for q in pieces], {"axis": 0})
    return trace.fake(value, all(q.stop_gradient for q in pieces))


def sliced(trace: Trace, parts: list[object], at: slice) -> list[object] | None:
    """The parts of a slice, as views of the parts it is taken from. Where a length is not a number
    they are views of the joined tensor, which may not be written. None for Python values in a
    run."""
    sizes: list[Any] = [q.trip if isinstance(q, StackedRun) else 1 for q in parts]
    ends = (at.start, at.stop, at.step)
    runs = [q for q in parts if isinstance(q, StackedRun)]
    if any(map(moves, runs)):
        return None
    if not all(type(n) is int for n in (*sizes, *(q for q in ends if q is not None))):
        whole = joined(trace, parts)
        if whole is not None and len(parts) > 1:
            freeze(trace, whole)
        return None if whole is None else [whole.slice(trace, at)]
    out, chosen, first = list[object](), range(sum(sizes))[at], 0
    for q, n in zip(parts, sizes):
        mine = [k - first for k in chosen if first <= k < first + n]
        first += n
        if mine and isinstance(q, StackedRun) and mine != list(range(n)):
            stop = mine[-1] + chosen.step
            q = q.slice(trace, slice(mine[0], stop if stop >= 0 else None, chosen.step))
        out += [q] if mine else []
    return out if chosen.step > 0 else out[::-1]


def element_at(
    trace: Trace, parts: Sequence[Any], n: Any, i: Any, gather: Callable[..., object]
) -> object:
    """Element `i` of `n`; `gather` takes it out of the whole list if the index does not tell in
    which part it is, and is told whether the index has been checked."""
    if is_runtime_scalar(i):
        return gather(i)
    at = i + n if i < 0 else i
    before, behind = below(trace, at, 0), below(trace, n, at + 1)
    for bad in (before, behind):
        if is_runtime_scalar(bad):
            check(trace, negate(bad).value, "IndexError", "list index out of range")
        elif bad:
            raise IndexError("list index out of range")
    if is_runtime_scalar(behind) and type(at) is int or is_runtime_scalar(before):
        return gather(make(trace, trace.index_value(at), at), True)
    *front, last = parts
    start: Any = 0
    for q in front:
        end = start + (trace.sym(q.trip) if isinstance(q, StackedRun) else 1)
        inside = below(trace, at, end)
        if is_runtime_scalar(inside):
            return gather(make(trace, trace.index_value(at), at), True)
        if inside:
            return q.item(trace, at - start) if isinstance(q, StackedRun) else q
        start = end
    return last.item(trace, at - start) if isinstance(last, StackedRun) else last


def freeze(trace: Trace, run: StackedRun) -> None:
    """The elements of a run are copies of those of other lists."""
    if isinstance(run.tree, tuple):
        for q in run.tree:
            freeze(trace, StackedRun(run.trip, q))
        return
    for value in (run.tree.fake._value, *run.tree.members):
        reason = "A part of a list, of elements and of what a loop has put there, has a copy of it."
        trace.freeze(trace.root(value), reason, run.loop)


def trace_length(tree: object) -> Dim:
    """The length of a sliced segment."""
    lengths = [q.fake._value.type.shape[0] for q in leaves_of(tree) if isinstance(q, Unstacked)]
    if not lengths:
        raise NeedsConcrete("a list of Python values is sliced")
    return lengths[0]


def below(trace: Trace, x: Any, y: Any) -> Any:
    """`x < y`; for a length that data decides a question to the program, not a condition of it."""
    gap = x - y
    if is_symint(gap) and any(q in trace.sizes.counts for q in gap.dim.names):
        low, high = bounds(gap.dim, trace) or (None, None)
        if isinstance(low, int) and isinstance(high, int) and (low >= 0 or high < 0):
            return high < 0
        gap = make(trace, trace.index_value(gap), gap)
    return gap < 0


def mapped(f: Callable[[Any], object], tree: object) -> Any:
    if not isinstance(tree, tuple):
        return f(tree)
    parts = [mapped(f, q) for q in tree]
    return regrouped(tree, parts)


def leaves_of(x: object) -> Iterator[object]:
    """The leaves of a segment, or what an element consists of."""
    x = x.tree if isinstance(x, StackedRun) else x
    if isinstance(x, tuple):
        for q in x:
            yield from leaves_of(q)
    else:
        yield x


def constant_of(x: object) -> tuple[object, ...]:
    """Return `(constant,)` for a leaf that is equal in every element; () for any other leaf."""
    x = x.value if isinstance(x, KnownValue) else x
    return (x,) if is_constant(x) else ()


def moves(part: object) -> bool:
    """Whether Python values of an element or segment may differ between elements."""
    if is_runtime_scalar(part):
        return part.mixed
    stacked = (StackedLeaf, Unstacked, Tensor)
    return not all(isinstance(q, stacked) or constant_of(q) for q in leaves_of(part))


__all__ = [
    "KnownValue", "StackedLeaf", "ScanReference", "StackedRun", "Unstacked", "below", "hold",
    "joined", "length_of", "mapped", "stacked_pieces",
]  # fmt: skip
