"""One tentative trace of a loop's body.

Each variable, attribute and item that the body may rebind gets a placeholder before the trace.
Afterwards the values in the same places become the ports of the loop (`LoopPorts`), or the trace is
undone: it starts again with the facts that it learned, or the loop is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dy2st.branches.chosen_containers import chosen
from dy2st.branches.unresolved import (
    Alternative,
    Unresolved,
    absent,
    alternatives,
    resolve_under,
    settle_items,
    unreadable,
    unresolved,
)
from dy2st.capture.dispatch import drop_ops
from dy2st.loops.chosen_containers import copied
from dy2st.loops.containers import Row, carry_elements, learn_fresh, name_of, note_copies
from dy2st.loops.growth import concat_growth, padded_buffers
from dy2st.loops.growth.appends import filled, segment
from dy2st.loops.growth.conditional_appends import those_appended
from dy2st.loops.growth.detection import learn_early, learn_unresolved
from dy2st.loops.late_types import either_placeholder
from dy2st.loops.learned_facts import LearnedFacts, Path
from dy2st.loops.loop_code import LoopCode, LoopIterable
from dy2st.loops.ports import LoopPorts
from dy2st.loops.record import AlwaysEnds, Goes, LoopTrace
from dy2st.state.container_writes import Contents
from dy2st.state.containers import (
    dynamic_lookup,
    layer_attributes,
    layers,
    list_buffers,
    list_pops,
    rebound_containers,
    table_rows,
)
from dy2st.state.containers.list_buffers import ListBuffer
from dy2st.state.dynamic_numbers import keep_dynamic
from dy2st.state.stacked_run import StackedRun, taken_from
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import UNDEF, alike, elements, is_container, is_value, leaves, parts, tree
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import (
    DTYPES,
    RuntimeScalar,
    is_runtime_scalar,
    known,
    make,
    negated,
    value_in,
)
from dy2st.trace.signals import NeedsConcrete, Refused, Retrace
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.undo import MISSING
from ir import ENDLESS, Loc, Size, Type, Value
from ir.types import BOOL


class BodyTrace(LoopTrace):
    """One tentative trace of the body."""

    def __init__(
        self, trace: Trace, over: LoopIterable, code: LoopCode, known: LearnedFacts, go: Goes
    ) -> None:
        super().__init__(trace, known, over.trip if known.trip is None else known.trip, go)
        self.over, self.code, self.names, self.unroll = over, code, code.names, code.unroll
        self.most = over.trip
        self.loop.limit = over.limit or self.loop.limit
        self.loop.open = code.test is not None or over.more is not None

    def roll(self, site: Loc, reason: str, asks: bool = False) -> None:
        """Trace, undo, and append the loop to the program with the places set to its results.
        `asks`: only learn what bound the test of an iteration gives."""
        trace, mark = self.trace, self.trace.undo_log.mark()
        state = self.code.get_state()
        before = tuple(resolve_under(b, self.enters) for b in state)
        kept = [self.set_first(n) or (n,) in self.known.rebuilt for n in self.names]
        slots = [q.obj for k, q in self.known.places.items() if k[0] == "item"]
        for b in (*(b for b, keep in zip(before, kept) if not keep), *slots):
            if type(b) is TraceList and b.segmented:
                b.split(trace)
        found = {k: keep_dynamic(trace, q) for k, q in self.known.places.items()}
        old = {k: resolve_under(q, self.enters) for k, q in found.items()}
        for path, q in (*(((n,), b) for n, b in zip(self.names, before)), *old.items()):
            for inner, x in copied(self.known, q, path):
                carry_elements(self, inner, x)
        depth = len(trace.frames)
        written: dict[Value, Loc] = {}
        try:
            trace.frames.append(self.frame)
            settle_items(trace)
            plan = self.trace_once(before, old, asks)
            layers.check_updates(trace, self.frame)
            written = dict(self.frame.written)
        except BaseException as e:
            dynamic_lookup.forget(trace, self.loop)
            if isinstance(e, Refused):
                state_then = {(n,): a for n, a in zip(self.names, self.code.get_state())}
                learn_unresolved(self, e, state_then, trace.frames[:depth])
            raise
        finally:
            del trace.frames[depth:]
            trace.undo_log.undo_to(mark)
            self.code.set_state(state)
            begins: dict[Path, object] = {(n,): b for n, b in zip(self.names, before)}
            begins |= {k: q.get() for k, q in self.known.places.items()}
            for k in [q for q in self.found if q in begins]:
                learn_early(self, resolve_under(begins[k], self.enters), self.found[k], k)
                if type(self.found[k]) is not Unresolved and is_container(self.found[k]):
                    learn_fresh(self, begins[k], self.found[k], k)
        notes, ops = len(trace.frame.notes), len(trace.builder.ops)
        trace.frame.notes.append(("while" if self.count else "scan", site, reason))
        trace.adopt(self.frame, written)
        try:
            self.commit(plan, state, found)
            layers.write_back(trace, self.frame)
        except BaseException:  # a container may turn out to have another name only now
            trace.undo_log.undo_to(mark)
            self.code.set_state(state)
            del trace.frame.notes[notes:]
            drop_ops(trace, ops)
            raise
        self.frame.picked.clear()  # so that temporary lists are not kept alive
        self.frame.observed.clear()

    def trace_once(
        self, before: tuple[object, ...], old: dict[Path, object], asks: bool
    ) -> LoopPorts:
        trace = self.trace
        stand_ins = tuple(
            b if self.set_first(n) else self.stand_in(b, (n,)) for n, b in zip(self.names, before)
        )
        held = {k: self.stand_in(v, k) for k, v in old.items()}
        queues = [self.queue(q) for q in self.known.queues.values()]
        list_pops.enter(self.frame)
        list_buffers.enter(trace, self.frame)
        table_rows.enter(trace, self.frame)
        layer_attributes.enter(trace, self.frame, self.known.columns, self.known.places)
        for k, place in self.known.places.items():
            if held[k] is not MISSING:
                trace.store(place, held[k])
        self.code.set_state(stand_ins)
        index = trace.sym(Size.named(self.loop.name))
        if asks and not self.loop.fits:
            self.bound(self.code.more(trace, self.over, index), ahead=1)
            raise Retrace
        rewritten = [q for q in self.replaced if q.own and q.path in self.known.rewritten]
        shows = [q.hide(q.stop()) for q in rewritten]
        self.code.body(self.over.item(index))
        go = self.code.more(trace, self.over, index + 1)
        self.at_end = True
        for show in shows:
            show()
        if asks:
            self.bound(go)
            self.known.trip = 1 if go is False else self.known.trip
            raise Retrace
        self.end(go)
        after = self.code.get_state()
        new_places = self.learn_places() | layer_attributes.learn(self.frame, self.known.columns)
        rows: list[Row] = [
            (n.rstrip("="), UNDEF if self.set_first(n) else b, p, self.carried(p, a, (n,)), (n,))
            for n, b, p, a in zip(self.names, before, stand_ins, after)
        ]
        places = self.known.places
        rows += [row for rows_of in queues for row in rows_of(self)]
        rows += [
            (str(q), old[k], held[k], self.carried(held[k], q.get(), k), k)
            for k, q in list(places.items()) if k in held
        ]  # fmt: skip
        plan = LoopPorts(self, rows, new_places)
        if self.frame.stale:
            raise Retrace
        if self.loop.trip == ENDLESS and self.tests is None:
            raise NeedsConcrete("its end follows from Python values, not from the index or data")
        return plan

    def set_first(self, name: str) -> bool:
        """True if the body sets the variable before reading it, so that its old value is dead."""
        return name.endswith("=") and self.certain

    def carried(self, p: object, a: object, path: Path) -> Any:
        """The value that the next iteration reads in a place, given the value at the end of the
        body."""
        if type(a) is Unresolved:
            self.unreadable[path], self.absent[path] = a.__dict__["error"], absent(a)
            whole, a = a, resolve_under(a, self.goes_on)
            others = [q for q in alternatives(whole) if q.value is not a]
            if type(a) is not Unresolved and len(others) == 1:
                self.note_break(a, others[0], path)
        if type(a) is Unresolved and self.once:
            return p
        if is_symint(a) and str(path[0]).endswith("=") and not self.certain:
            return make(self.trace, self.trace.index_value(a), a)
        return a

    def note_break(self, a: object, other: Alternative, path: Path) -> None:
        """Note what is in a place after a `break`, and in the places in it."""
        self.breaking[path] = other
        if a is other.value or not (is_value(a) or is_container(a)) or not alike(a, other.value):
            return
        for k, q, old in zip(elements(a) or {}, parts(a), parts(other.value)):
            inner = (*path, k)
            self.unreadable[inner] = self.unreadable[path]
            self.note_break(q, Alternative(old, other.facts), inner)

    def stand_in(self, x: object, path: Path) -> object:
        """`x` with a placeholder for each leaf. A container is itself, but for one that each
        iteration makes anew: the body gets a copy of that."""
        out = tree(self.placeholder, x, path, self.known.fresh, self.known.rebuilt)
        self.begun[path] = {id(q) for q in leaves(out, self.frame)}
        note_copies(self, x, out, path)
        return out

    def queue(self, q: TraceList) -> Callable[[BodyTrace], list[Row]]:
        """Put placeholders for the elements of a list that the body shifts; returns a function that
        gives the rows of the ports once the body has been traced."""
        old = q.parts()
        new = [self.stand_in(x, ("list", id(q), k)) for k, x in enumerate(old)]
        self.frame.queues.add(id(q))
        q.replace_parts(new)

        def rows(self: BodyTrace) -> list[Row]:
            after = q.parts()
            if len(after) != len(old):
                raise NeedsConcrete("the length of a list changes in the loop")
            keys: list[Path] = [("list", id(q), k) for k in range(len(old))]
            return [(f"element {k[2]} of a list", *row, k)
                    for k, *row in zip(keys, old, new, after)]  # fmt: skip

        return rows

    # ------------------------------------------------------------ where it ends
    def end(self, go: Goes) -> None:
        """Make the test after the body a go port, or a bound on the number of iterations."""
        self.confirm_bound(go)
        self.next = go
        if go is False and is_runtime_scalar(self.go):
            self.tests = value_in(self.trace, False, BOOL)
            self.count = self.trace.sizes.new_count(0, self.loop.trip, self.trace.frames[-2])
            self.once = True
            return
        if go is False:
            raise AlwaysEnds("the loop always ends after this iteration", (), peel=True)
        if go is True:
            if is_runtime_scalar(self.go):
                self.tests = value_in(self.trace, True, BOOL)
                self.count = self.trace.sizes.new_count(0, self.loop.trip, self.trace.frames[-2])
            return
        self.bound(go)
        self.goes_on = go.implies
        if self.over.trip == ENDLESS and self.certain:
            self.ended = negated(known(go, "implied"))
        if self.known.exact and self.certain:
            return
        if self.certain and isinstance(self.loop.trip, Size):
            self.trace.require(self.loop.trip, 1, "a loop that data may end")
        self.tests = self.trace.read_value(go.value)
        self.count = self.trace.sizes.new_count(
            int(self.certain), self.loop.trip, self.trace.frames[-2]
        )

    # ------------------------------------------------------------ placeholders
    def placeholder(self, x: Any, path: Path) -> object:
        """The placeholder of a leaf: one per place, never per object."""
        if path in self.known.rebuilt and isinstance(x, (tuple, TraceList)):
            return rebound_containers.stand_in(self.trace, x, self.frame, self.known.rebuilt, path)
        if path in self.known.eithers:
            return either_placeholder(self, x, path)
        if isinstance(x, Tensor):
            return self.tensor_placeholder(lift(self.trace, x), path)
        if is_runtime_scalar(x) or path in self.known.numbers:
            return self.number_placeholder(x, self.known.numbers.get(path), path)
        if x is UNDEF and path in self.known.maybe:
            return self.maybe_placeholder(self.known.maybe[path], path)
        if (step := self.known.step(path, x)) is not None:
            return x + self.trace.sym(Size.named(self.loop.name) * step)
        return x

    def tensor_placeholder(self, fake: FakeTensor, path: Path) -> object:
        trace = self.trace
        if path in self.known.grown:
            kind = padded_buffers if path in self.known.counted else concat_growth
            return kind.placeholder(self, fake, path)
        if path in self.known.resized:
            return padded_buffers.part_of_buffer(self, fake, path)
        inner = trace.new_value(fake._value.type, name_of(path), self.frame)
        trace.values.placeholders.add(inner)
        stand_in = trace.fake(inner, fake.stop_gradient and path not in self.known.trained)
        self.held[id(stand_in)] = (stand_in, fake._value)
        self.paths[inner] = path
        if fake._value in trace.undefined.values:
            ok, message = trace.undefined.values[fake._value]
            self.doubt(inner, ok, message)
        return self.own(stand_in) if path in self.known.written else stand_in

    def own(self, stand_in: Tensor) -> Tensor:
        """A tensor of the iteration, which it may write, with the elements of a placeholder."""
        copy = self.trace.emit("assign", [stand_in._value], {})
        made = self.trace.fake(copy, stand_in.stop_gradient)
        self.held[id(made)] = self.held.pop(id(stand_in))
        self.owned.append(made)
        return made

    def number_placeholder(self, x: Any, known: tuple[type, bool] | None, path: Path) -> Any:
        """`known`: its kind, and whether the body computes it from data."""
        trace = self.trace
        kind, data = known if known is not None else (x.kind, x.data)
        with trace.outside():
            value = value_in(trace, x, DTYPES[kind])
        inner = trace.new_value(value.type, name_of(path), self.frame)
        loops = frozenset([self.loop]) | (x.loops if is_runtime_scalar(x) else frozenset())
        stand_in = RuntimeScalar(inner, trace, loops, data or (is_runtime_scalar(x) and x.data))
        self.held[id(stand_in)] = (stand_in, value)
        return stand_in

    def maybe_placeholder(self, known_as: tuple[Type, bool, str], path: Path) -> Tensor:
        """The placeholder of a variable that is undefined before the loop."""
        t, stop, message = known_as
        trace = self.trace
        with trace.outside():
            zeros = trace.emit("full", [], {"value": 0, "shape": t.shape, "dtype": t.dtype})
            never = value_in(trace, False, BOOL)
        inner = trace.new_value(t, name_of(path), self.frame)
        trace.values.placeholders.add(inner)
        stand_in = trace.fake(inner, stop)
        self.held[id(stand_in)] = (stand_in, zeros)
        self.doubt(inner, never, message)
        return stand_in

    def doubt(self, inner: Value, before: Value, message: str) -> None:
        """Carry a flag that says if the placeholder is defined."""
        ok = self.trace.new_value(before.type, "defined", self.frame)
        self.trace.undefined.values[inner] = (ok, message)
        self.held[id(ok)] = (ok, before)

    def learn_places(self) -> bool:
        """Learn the attributes and items that the body has stored: the next trace carries them."""
        known = self.known.places
        self.stored = {id(q.obj) for q in self.frame.stores.values()}
        own = {id(cell) for cell in getattr(self.code.set_state, "__closure__", None) or ()}
        new = {k: q for k, q in self.frame.stores.items() if not (k in known or id(q.obj) in own)}
        whole = {id(q.obj) for q in (*known.values(), *new.values()) if isinstance(q, Contents)}
        new = {k: q for k, q in new.items() if isinstance(q, Contents) or id(q.obj) not in whole}
        for k in [k for k, q in known.items() if k[0] == "item" and id(q.obj) in whole]:
            del known[k]
        known.update(new)
        self.found = {k: resolve_under(q.get(), self.goes_on) for k, q in new.items()}
        return bool(new)

    # ------------------------------------------------------------ the result
    def commit(self, plan: LoopPorts, before: tuple[object, ...], old: dict[Path, object]) -> None:
        trace = self.trace
        trace.frame.builder.append(plan.cell.scan)
        trace.frame.builder.ops += plan.after.ops
        for target, item, group in plan.appends:
            if plan.chosen.get(id(target)) == []:
                continue
            trace.check_certain(target, changes=True)
            length = self.length * group if group != 0 else self.length
            if isinstance(item, ListBuffer):
                made = item.run(trace, target.size(), length)
            else:
                found = taken_from(trace, item)
                made = StackedRun(length, segment(plan, item, group), self.loop, found)
            made = those_appended(plan, target, made)
            if id(target) in plan.fills:
                if id(target) in self.known.tables and isinstance(self.loop.trip, int):
                    places = plan.fills[id(target)].places(self.loop.trip)
                    table_rows.leave(trace, target, places, self.loop)
                filled(trace, target, made, plan.fills[id(target)])
            else:
                target.note_append(made)
        list_buffers.leave(trace, self.frame, self.length)
        list_pops.leave(trace, self.frame, self.length)
        layer_attributes.leave(trace, self.frame.columns, self.loop.trip)
        for q in self.known.queues.values():
            q.replace_parts([plan.finals["list", id(q), k] for k in range(len(q.parts()))])
        for path, error in self.unreadable.items():
            plan.finals[path] = self.after_break(plan, path, error)
        for k, place in self.known.places.items():
            if plan.finals[k] is not resolve_under(old[k], self.enters):
                trace.store(place, self.final(old[k], plan.finals[k]), told=True)
        for doubt in plan.doubtful:
            trace.doubt(doubt)
        rebound_containers.leave(self.known)
        for replaced in self.replaced:
            replaced.leave()
        for new, among, held, stop, able in plan.alternatives:
            lost = [q.first for q in self.replaced if q.left]
            after = {id(a): made for a, _, made in plan.containers.values()}
            kept = [after.get(id(q), q) for q in held if not any(q is p for p in lost)]
            trace.doubt(chosen(trace, new, among, kept, stop, able))
        plan.lose()
        finals = (plan.finals[(n,)] for n in self.names)
        self.code.set_state(tuple(map(self.final, before, finals)))
        for r in plan.needs_iteration:
            trace.require(self.length, 1, r)

    def after_break(self, plan: LoopPorts, path: Path, error: BaseException) -> object:
        """The value of a variable whose type is another one after a `break`: unresolved, with the
        loop's flag as the path condition of each value."""
        other = self.absent.get(path, ())
        if path not in plan.broken:
            return unreadable(error, *other)
        flag, value = plan.broken[path]
        ended = plan.finals[(flag,)]
        if ended is True:
            return value
        if not is_runtime_scalar(ended):
            return unreadable(error, *other)
        broke, going = frozenset([("is", ended.value)]), frozenset([("not", ended.value)])
        parts = (Alternative(value, broke), Alternative(plan.finals[path], going))
        return unresolved(error, parts)

    def final(self, before: object, after: object) -> object:
        """The value of a variable after the loop; if it was unresolved before the loop, it can be
        read only where the loop ran."""
        if type(before) is not Unresolved:
            return after
        error = before.__dict__["error"]
        return unreadable(error, Alternative(after, self.enters), *absent(before))


__all__ = ["BodyTrace"]
