"""The record of one loop: the state of one trace of its body, and the ports."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dy2st.branches.padded_tensors import last_part, pad, shrinkage
from dy2st.branches.unresolved import Alternative
from dy2st.loops.index_values import bound_of
from dy2st.loops.learned_facts import LearnedFacts, Path
from dy2st.state.containers.list_fills import ListFill
from dy2st.state.containers.list_recurrences import ListTap
from dy2st.state.containers.rebound_containers import ReboundContainer
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.stacked_run import ScanReference
from dy2st.state.tree import TypeMismatch, is_flag, leaves
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import PathCondition, RuntimeScalar, is_runtime_scalar, known
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.trace import Frame, Trace
from ir import ENDLESS, Builder, Carry, Cond, Size, Stack, Type, Value
from ir.types import Dim, names_in, substitute_dim
from ir.uses import walk

#: whether another iteration runs
Goes = bool | RuntimeScalar


class EndsOnData(NeedsConcrete):
    """Data may end a loop in one of its first iterations, which were to be a loop of their own."""


class AlwaysEnds(NeedsConcrete):
    """A loop has one iteration."""


class LoopTrace:
    """The state of one tentative trace of a loop's body.

    go: whether the first iteration runs. held: placeholders with their values before the loop, by
    `id`. paths: the places of those that are tensors; owned: copies that the iteration may write;
    begun: the leaves of each place when an iteration begins, by `id`. stored: objects that the body
    stores to, by `id`. resized: the buffers of placeholders of which data decides the size, by
    `id`. eithers: places of a number or a tensor, depending on data, with their values
    before the loop. tests: whether another iteration runs.
    copies: copies of containers, with placeholders, and the containers and places that they stand
    for; replaced: what the body does with them. once: the body runs at most once. breaking: the
    values of places that differ after a `break`; absent: items that are not there then; uneven:
    those that only one branch makes longer; refused_early: something has been learned, but the end
    of the body is not known; at_end: the test behind the body has been asked; next: what it has
    said. found: places that it has found, with their values at its end, and those of several types
    of which one was read. sure: what no further trace settles. goes_on: what
    holds if another iteration runs; ended: what holds after the loop. count: the name of the number
    of iterations, if data decides it. unroll: so many steps become one iteration of the code.
    most: the number of items that it runs over.
    """

    def __init__(self, trace: Trace, known: LearnedFacts, trip: Dim, go: Goes) -> None:
        self.trace, self.known, self.go = trace, known, go
        self.loop = trace.sizes.new_loop(trip)
        self.frame = Frame(loop=self.loop, growth=dict(known.growth), learned=known)
        self.loop.frame = self.frame
        # of two iterations the first one differs where the test of the last one does
        self.loop.peelable = go is True and known.peeled < 2 and known.trip != 2
        self.frame.facts = self.enters
        trace.values.frame_of[self.loop.index] = self.frame
        self.held: dict[int, tuple[Any, Value]] = {}
        self.paths = self.frame.paths
        self.owned: list[Tensor] = []
        self.stored: set[int] = set()
        self.begun: dict[Path, set[int]] = {}
        self.eithers: dict[Path, TaggedUnion] = {}
        self.resized: dict[int, Any] = {}
        self.parts: list[FakeTensor] = []
        self.tests: Value | None = None
        self.copies: dict[int, tuple[object, object, Path]] = {}
        self.replaced: list[ReboundContainer] = []
        self.once = False
        self.breaking: dict[Path, Alternative] = {}
        self.unreadable: dict[Path, BaseException] = {}
        self.uneven: set[Path] = set()
        self.refused_early = self.at_end = False
        self.next: Goes | None = None
        self.found: dict[Path, object] = {}
        self.absent: dict[Path, tuple[Alternative, ...]] = {}
        self.sure: TypeMismatch | NeedsConcrete | None = None
        self.goes_on: frozenset[PathCondition] = frozenset()
        self.ended: frozenset[PathCondition] = frozenset()
        self.count = ""
        self.most: Dim = ENDLESS
        self.unroll = 1

    @property
    def length(self) -> Dim:
        """The number of iterations that run."""
        return Size.named(self.count) if self.count else self.loop.trip

    def need_bound(self) -> None:
        """A size moves with the index: a capacity bounds a loop that nothing else does."""
        if self.loop.trip == ENDLESS:
            self.loop.trip = self.trace.sizes.new_capacity()

    @property
    def enters(self) -> frozenset[PathCondition]:
        """Return the conditions that hold if the first iteration runs."""
        return known(self.go, "implies") if is_runtime_scalar(self.go) else frozenset()

    @property
    def certain(self) -> bool:
        """Whether the first iteration surely runs, if the trip allows it."""
        return self.go is True

    # ------------------------------------------------------------ how often it runs
    def confirm_bound(self, go: Goes) -> None:
        """Keep the bound of an earlier trace if the test after this body, or the one before it,
        gives one; drop it otherwise. All iterations of a loop that leads have to run."""
        known = self.known
        if self.loop.leads and is_runtime_scalar(go):
            kind = EndsOnData if go.data else NeedsConcrete
            raise kind("its test depends on the iteration", [self.loop])
        if known.trip is None or go is False:
            return
        if is_runtime_scalar(go) and any(n is not None for n in self.bounds(go).values()):
            known.tested = False
            return
        if go is True or known.assumed or not known.tested:
            known.trip, known.assumed, self.frame.stale = None, False, True
        known.exact = False

    def bound(self, go: Goes, ahead: int = 0) -> None:
        """Bound the trip count by the comparisons of the index that another iteration needs to
        hold. `ahead`: as much before that iteration ends."""
        if not is_runtime_scalar(go):
            return
        bounds = self.bounds(go, ahead)
        found = [b for b in bounds.values() if b is not None]
        if not found:
            return
        exact = len(found) == 1 and any(
            b is not None and c in go.implied and self.bound_by_size(c, go.implies) is None
            for c, b in bounds.items()
        )
        trip = min((b for b in found if isinstance(b, int)), default=found[0])
        if isinstance(self.most, int) and self.most != ENDLESS:
            if not isinstance(trip, int):
                return
            trip = min(trip, self.most)
        elif isinstance(self.most, Size):
            return
        self.frame.stale |= self.known.trip != trip
        self.known.trip, self.known.exact = trip, exact

    def bounds(self, go: RuntimeScalar, ahead: int = 0) -> dict[PathCondition, Dim | None]:
        """The largest trip count by each of the comparisons; None where there is none."""
        trace, name = self.trace, self.loop.name
        return {
            c: bound_of(trace, name, c, ahead) or self.bound_by_size(c, go.implies)
            for c in go.implies
        }

    def bound_by_size(self, fact: PathCondition, facts: frozenset[PathCondition]) -> Dim | None:
        """The largest trip count if one of the `facts` that hold behind each iteration but the last
        says that a tensor has elements, which each iteration makes fewer; None if it does not."""
        op, gap = fact
        if op in ("lt", "le"):
            op, gap = {"lt": "gt", "le": "ge"}[op], 0 - gap
        if op == "ge":
            op, gap = "gt", gap + 1
        if op != "gt" and not (op == "ne" and self.trace.sizes.surely(gap, 0)):
            return None
        for source in (q for q in self.resized.values() if q.resize.less):
            if shrinkage(self.trace.sizes, source.count, gap, facts) is not None:
                most = self.trace.sizes.extreme(source.most, True)
                few = most // source.resize.less if isinstance(most, int) else most
                return None if few is None else few + 1
        return None


def at(dim: Dim, name: str, k: Dim) -> Dim:
    """A size in iteration `k`."""
    return substitute_dim(dim, {name: k})


class LoopRecord:
    """The ports of one loop, as far as they are known.

    body_trace: the trace of the body. missed: for a list, by `id`, 1 after the loop if the last
    iteration did not append. chosen: for a list, by `id`, the iterations that append. marks: for a
    list, by `id`, which elements of an iteration are appended. fills: for
    a list, by `id`, how iterations store its elements. leaving: values of the last iteration, or of
    all, that leave the loop and require a gradient. rounds: the first iteration in which a value
    does. ends: the value of each place after the body. taps: elements that are read from the end of
    a list, with those that take their places. flips: places that require a gradient only after some
    iterations. needs_iteration: why the loop has to run at least once. after: ops that follow the
    loop. cell: the loop. overwritten: storages from before the loop that its iterations write.
    """

    cell: ScanReference
    ends: dict[Path, Any]

    def __init__(self, body_trace: LoopTrace) -> None:
        self.body_trace, self.trace, self.frame = body_trace, body_trace.trace, body_trace.frame
        self.outer = body_trace.trace.frames[-2]
        self.carries: dict[Value, Carry] = {}
        self.lasts: dict[Value, Value] = {}
        self.lasts_cut: dict[Value, Value] = {}
        self.stacks: list[Stack] = []
        self.missed: dict[int, Value] = {}
        self.chosen: dict[int, list[int]] = {}
        self.marks: dict[int, Value] = {}
        self.fills: dict[int, ListFill] = {}
        self.leaving: list[Value] = []
        self.rounds: dict[Value, int] = {}
        self.taps: list[tuple[ListTap, object]] = []
        self.flips: list[Path] = []
        self.needs_iteration: list[str] = []
        self.overwritten: list[Value] = []
        self.after = Builder()

    # ------------------------------------------------------------ tensors, written and rebound
    def check_private(self, init: Value, inner: Value) -> None:
        """A place whose tensor is written in place, and that gets another one: nobody else knows
        the tensors from before the loop and at the end of an iteration."""
        trace, known = self.trace, self.body_trace.known
        first, ends = trace.root(init), self.storages(inner)
        others = {self.frame.paths[q] for q in ends if q in self.frame.paths} - known.written
        if others or self.frame.stale:
            return self.learn_written(others)
        inits = [trace.root(q) for _, q in self.body_trace.held.values()]
        inits += [trace.root(q.init._value) for q in self.body_trace.resized.values()]
        given = any(q.value is first for q in trace.inputs.by_id.values())
        read = any(trace.root(q) is first for q in self.frame.consts)
        apart = inits.count(first) == sum(self.may_be_one(inner, q) for q in self.end_values) == 1
        outside = any(trace.values.frame_of[q] in trace.frames[:-1] for q in ends)
        shared = any(q in trace.values.frozen for q in (first, trace.root(inner), *ends))
        own = first is init and trace.values.frame_of[first] is self.outer
        if given or read or outside or shared or not apart or not own:
            raise NeedsConcrete(
                "a tensor that is written in place and rebound has other names, too"
            )
        trace.check_writable(first)
        self.overwritten.append(first)

    def learn_written(self, paths: set[Path]) -> None:
        """Let the next trace also write the tensors of these places, and of the places that these
        are rebound from."""
        known = self.body_trace.known.written
        self.frame.stale = True
        while new := paths - known:
            known |= new
            ends = (self.ends.get(q) for q in new)
            values = [q._value for q in ends if type(q) is FakeTensor]
            found = set[Value]().union(*map(self.storages, values))
            paths = {self.frame.paths[q] for q in found if q in self.frame.paths}

    def storages(self, value: Value) -> set[Value]:
        """The storages that a tensor of the body may have, as branches say."""
        root = self.trace.root(value)
        sides = self.joins.get(root, ())[1:]
        return set().union(*map(self.storages, sides)) if sides else {root}

    def may_be_one(self, a: Value, b: Value) -> bool:
        """Whether two tensors of the body may have one storage."""
        one, two = (self.joins.get(self.trace.root(q)) for q in (a, b))
        if one is None and two is None:
            return self.trace.root(a) is self.trace.root(b)
        if one is not None and two is not None and one[0] is two[0]:
            return any(map(self.may_be_one, one[1:], two[1:]))
        if one is None or two is None:
            one, b = (one, b) if two is None else (two, a)
        assert one is not None
        return any(self.may_be_one(q, b) for q in one[1:])

    @functools.cached_property
    def joins(self) -> dict[Value, tuple[Cond, Value, Value]]:
        """The results of branches, each with its cond and what the branches give."""
        conds = [n for n in walk(self.frame.builder.ops) if isinstance(n, Cond)]
        return {q.outer: (n, q.then, q.orelse) for n in conds for q in n.outs}

    @functools.cached_property
    def end_values(self) -> list[Value]:
        """The tensors in places and elements of lists behind the body."""
        dead = self.body_trace.certain
        ends = [a for path, a in self.ends.items() if not (dead and str(path[0]).endswith("="))]
        ends += [q for _, items in self.frame.appends.values() for q in items]
        return [q._value for a in ends for q in leaves(a, self.frame) if type(q) is FakeTensor]

    def lose(self) -> None:
        """In eager, the first iteration has overwritten these tensors."""
        trace, loop = self.trace, self.body_trace.loop
        reason = "a variable of the loop is written in place and also rebound"

        def error() -> BaseException:
            trace.unroll(loop, reason)
            return Refused(
                "a tensor is read that a loop has written in place and bound to another name.",
                trace.where(),
                reason="The loop has a tensor for each name, and has not kept this one.",
                remedy="Write to a copy (`.clone()`).",
            )

        for root in self.overwritten:
            trace.values.lost[root] = error
            trace.undo_log.note(functools.partial(trace.values.lost.pop, root, None))

    def leave(self, item: object) -> None:
        """Note what leaves the loop: the result of an iteration or an element of a list."""
        if isinstance(item, Tensor) and not item.stop_gradient:
            self.leaving.append(self.trace.read_value(lift(self.trace, item)._value))

    @property
    def index(self) -> Size:
        """The number of the iteration, in the body."""
        return Size.named(self.body_trace.loop.name)

    def add_carry(self, inner: Value, init: Value, next_: Value, name: str) -> Value:
        """A carry port; its value after the loop."""
        trace = self.trace
        out = trace.new_value(next_.type, name if name.isidentifier() else "", self.outer)
        outer_init = trace.read_value(init, len(trace.frames) - 2)
        self.carries[inner] = Carry(inner, outer_init, next_, out)
        return out

    def add_last(self, inner: Value, name: str) -> Value:
        """The value after the loop; it may be undefined where data decides if the loop runs."""
        if inner in self.lasts or inner in self.lasts_cut:
            return self.lasts[inner] if inner in self.lasts else self.lasts_cut[inner]
        axes = [k for k, n in enumerate(inner.type.shape) if self.trace.is_local(n, self.frame)]
        if axes:
            self.lasts_cut[inner] = last_part(self, inner, axes, name)
            return self.lasts_cut[inner]
        if self.body_trace.certain and self.moves(inner.type):
            self.lasts_cut[inner] = self.cut(self.add_last(self.padded(inner), name), inner.type)
            return self.lasts_cut[inner]
        self.require_steady(inner, f"{name} leaves the loop")
        trace, go = self.trace, self.body_trace.go
        if self.body_trace.certain and not is_flag(name):
            self.needs_iteration.append(f"{name} after the loop")
            out = trace.new_value(inner.type, inner.name or name, self.outer)
            self.lasts[inner] = out
            return out
        with trace.outside():
            attrs = {"value": 0, "shape": inner.type.shape, "dtype": inner.type.dtype}
            zeros = trace.emit("full", [], attrs)
        out = self.add_carry(trace.new_value(inner.type, name), zeros, inner, name)
        if not is_flag(name):
            assert is_runtime_scalar(go)
            message = f"{name!r} is set only if the loop runs, which depends on data"
            trace.undefined.values[out] = (go.value, message)
        return out

    def moves(self, t: Type) -> bool:
        """Whether a size moves with the index, up to one that bounds it."""
        name = self.body_trace.loop.name
        moving = [d for d in t.shape if name in names_in(d)]
        steps = [at(d, name, 1) - at(d, name, 0) for d in moving]
        linear = all(isinstance(d, Size) and d.names == {name} for d in moving)
        return bool(moving) and linear and all(isinstance(n, int) and n > 0 for n in steps)

    def before_first(self, t: Type) -> Type:
        """A type of which sizes move with the index, one iteration before the first."""
        return t.with_shape(at(d, self.body_trace.loop.name, -1) for d in t.shape)

    def padded(self, value: Value) -> Value:
        """A tensor of which sizes move with the index, in front of zeros up to their bounds."""
        self.body_trace.need_bound()
        name, most = self.body_trace.loop.name, self.body_trace.loop.trip - 1
        return pad(self.trace, value, [at(d, name, most) for d in value.type.shape])

    def zero_padded(self, init: Value, shape: Sequence[Dim]) -> Value:
        """A tensor from before the loop, in front of zeros, so that it has this shape."""
        with self.trace.outside():
            return pad(self.trace, self.trace.read_value(init), shape)

    def cut(self, value: Value, t: Type) -> Value:
        """Behind the loop, what the last iteration has padded: of type `t`, as the body sees it."""
        loop = self.body_trace.loop
        with self.behind():
            for axis, d in enumerate(t.shape):
                if loop.name in names_in(d):
                    n = at(d, loop.name, self.body_trace.length - 1)
                    attrs = {"axis": axis, "start": 0, "length": n, "step": 1}
                    value = self.trace.emit("slice", [value], attrs)
        self.trace.freeze(
            value, "It is a copy of what the last iteration of a loop has made.", loop
        )
        return value

    def require_steady(self, inner: Value, what: str) -> None:
        """Raises NeedsConcrete for a value of the body whose size differs between iterations."""
        if self.body_trace.loop.name in inner.type.names:
            shown = self.trace.sizes.text_of(inner.type)
            raise NeedsConcrete(f"{what}, and its size moves with the index: {shown}")

    def blur(self, inner: Value, out: Value) -> None:
        """Refuse writes to a result that may share memory with a tensor from outside the loop."""
        root = self.trace.root(inner)
        if self.trace.values.frame_of[root] is not self.frame:
            reason = "A loop made it from a tensor that lives outside of the loop."
            self.trace.freeze(root, reason, self.body_trace.loop)
            self.trace.freeze(out, reason, self.body_trace.loop)

    @contextmanager
    def behind(self) -> Iterator[None]:
        """Ops are emitted behind the loop."""
        with self.trace.outside(), self.trace.frame.emits_into(self.after):
            yield


__all__ = ["LoopRecord", "LoopTrace"]
