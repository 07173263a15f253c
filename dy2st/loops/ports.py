"""Construction of the ports of a `scan` from the places of a traced loop body.

A place with equal types before and after the body is a carry, a variable that the body sets first
is a `last`, a list that grew is a stack. Any other change is a TypeMismatch: the loop is peeled or
unrolled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from dy2st.branches.unresolved import Unresolved, generated, unreadable
from dy2st.capture.gradients import check_carried
from dy2st.loops.containers import ContainerPorts, Row
from dy2st.loops.growth import concat_growth, padded_buffers
from dy2st.loops.growth.appends import collect, element_after, learn_growth, records
from dy2st.loops.growth.conditional_appends import flat
from dy2st.loops.growth.detection import learn, type_change
from dy2st.loops.index_values import constant_step
from dy2st.loops.late_types import either_ends, learn_gradients, settle_gradients
from dy2st.loops.learned_facts import Path
from dy2st.loops.record import LoopTrace
from dy2st.state.containers import layer_attributes, list_fills
from dy2st.state.containers.list_recurrences import ConditionalElement, ListTap
from dy2st.state.guards import is_constant, same_constant
from dy2st.state.stacked_run import ScanReference, StackedRun
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import (
    UNDEF,
    TypeMismatch,
    alike,
    changed_type,
    describe,
    held_value,
    is_container,
    is_flag,
    is_value,
    leaves,
    rebuilt,
)
from dy2st.trace import scalar
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.memory import chain_in_loop, dims_of, in_iteration
from dy2st.trace.scalar import RuntimeScalar, is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import SymInt, dim_of, is_symint, make
from ir import Carry, Last, Loc, LoopCondition, Scan, Size, Type, Value
from ir.types import BOOL, slope, substitute_dim
from ir.uses import size_names


class LoopPorts(ContainerPorts):
    """Makes the ports of a loop from its places before and after the body."""

    def __init__(
        self, body_trace: LoopTrace, rows: Sequence[Row], new_places: bool = False
    ) -> None:
        begins = {path: b for _, b, _, _, path in rows}
        super().__init__(body_trace, begins, {path: a for _, _, _, a, path in rows})
        self.objects: dict[tuple[int, int | None], tuple[FakeTensor, Tensor]] = {}
        self.listed = records(self)
        self.reads = self.values_read(rows)
        self.roots = self.count_roots(rows)
        self.finals: dict[Path, object] = {}
        self.settle_all(rows, new_places)
        self.check_replaced()
        self.appends = collect(self)
        self.broken = self.left_by_break(rows)
        self.late_tails()
        settle_gradients(self)
        self.freeze_shared()
        self.collect_tails()
        self.check_aliases()
        check_carried(self.trace, self.frame, self.carries.values())
        self.cell = ScanReference(self.outer, self.build())

    def values_read(self, rows: Sequence[Row]) -> set[Value]:
        """Values that the body uses: as an operand, in an appended element, or in another place."""
        out = {v for op in self.frame.builder.ops for v in op.operands}
        for _, items in self.frame.appends.values():
            plain = (x.item if isinstance(x, ConditionalElement) else x for x in items)
            found = (q for x in plain if not isinstance(x, StackedRun) for q in leaves(x))
            out |= {q._value for q in found if isinstance(q, FakeTensor)}
        for _, _, _, a, path in rows:
            own = self.body_trace.begun.get(path, ())
            taken = [q for q in leaves(a, self.frame) if type(q) is FakeTensor and id(q) not in own]
            out |= {q._value for q in taken}
        return out

    def settle_all(self, rows: Sequence[Row], new_places: bool) -> None:
        """Settle every place; one retrace is for all that there is to learn."""
        with suppress(NeedsConcrete):  # `collect` raises it if there is nothing to learn
            list_fills.check_unread(self.trace, self.frame)
        learns = learn_growth(self) or new_places or self.frame.stale
        try:
            finals = self.settle_each(rows, learns)
        except Retrace:
            learn_gradients(self)
            raise
        self.finals = {path: final for (*_, path), final in zip(rows, finals)}

    # ------------------------------------------------------------ one place
    def settle(self, name: str, b: object, p: object, a: object, path: Path) -> object:
        """The value of one place after the loop; raises TypeMismatch, NeedsConcrete or Retrace."""
        b, a = either_ends(self, name, b, p, a, path)
        if isinstance(p, padded_buffers.PaddedTensor) or id(p) in self.body_trace.resized:
            return padded_buffers.settle(self, name, p, a)
        if type(a) is Unresolved and b is UNDEF:
            return unreadable(a.__dict__["error"])
        if type(a) is concat_growth.ConcatenatedTensor and generated(name):
            return concat_growth.returned(self, name, a)
        if is_value(a) and alike(a, b):
            return rebuilt(self.trace, a, self.settled_parts(name, b, p, a, path), self.outer)
        if a is p and b is not UNDEF and not is_symint(a) and not is_runtime_scalar(a):
            if not hasattr(type(p), "merged") and path not in self.body_trace.known.written:
                return b
        if is_value(a) and b is UNDEF:
            return rebuilt(self.trace, a, self.settled_parts(name, b, p, a, path), self.outer)
        if isinstance(a, TraceList) or is_container(a):
            return self.container(name, b, p, a, path)
        if type(p) is concat_growth.ConcatenatedTensor:
            return concat_growth.settle(self, name, p, a)
        if isinstance(p, FakeTensor) and scalar.kind_of(a) is bool:
            a = self.truth_tensor(p, a)
        if isinstance(a, Tensor):
            return self.tensor(name, b, p, lift(self.trace, a), path)
        if is_symint(a) and self.trace.is_local(a.dim, self.frame):
            a = scalar.make(self.trace, self.trace.index_value(a), a)
        if is_runtime_scalar(a) or is_runtime_scalar(p) and b is not UNDEF:
            return self.number(name, b, p, a, path)
        if is_symint(a):
            return self.symbol(name, b, p, a, path)
        if self.trace.objects.homes.get(id(a)) is self.frame:
            raise NeedsConcrete(f"{name} is an object that the body makes")
        if b is UNDEF or a is b or (is_constant(a) and same_constant(a, b)):
            return a
        return self.moved(name, b, a, path)

    def moved(self, name: str, b: Any, a: Any, path: Path) -> NoReturn:
        """Handle a Python value that the body changes: learn its step, or make it a runtime
        scalar."""
        known = self.body_trace.known
        if type(a) is type(b) is int and path not in known.steps:
            known.steps[path] = a - b
            raise Retrace
        flips = type(a) is bool and known.peeled
        if type(a) is type(b) and (type(a) in (int, float) or flips) and path not in known.numbers:
            self.learn_number(path, type(a), False)
            raise Retrace
        fills = self.filling(known.places.get(path), b, a)
        raise TypeMismatch(name, describe(b), describe(a), fills=fills)

    def truth_tensor(self, p: FakeTensor, a: object) -> object:
        """A Python bool as a 0-d bool tensor, if the place holds such a tensor before the body."""
        if p._value.type != Type(BOOL):
            return a
        return self.trace.fake(scalar.value_in(self.trace, a, BOOL), True)

    # ------------------------------------------------------------ numbers
    def number(self, name: str, b: object, p: Any, a: Any, path: Path) -> object:
        """The value after the loop of a runtime scalar, which is carried."""
        kind = scalar.kind_of(a)
        if kind is None:
            raise TypeMismatch(name, describe(b), describe(a))
        if is_flag(name) and is_runtime_scalar(a) and ("is", a.value) in self.body_trace.ended:
            return True
        if b is UNDEF:
            return self.last_number(name, a)
        if kind is not scalar.kind_of(b):
            raise TypeMismatch(name, describe(b), describe(a))
        data = is_runtime_scalar(a) and a.data
        held = self.body_trace.held.get(id(p))
        if held is None and (is_flag(name) and type(b) is bool):
            with self.trace.outside():
                init = scalar.value_in(self.trace, b, scalar.DTYPES[kind])
            stand_in = scalar.make(self.trace, self.trace.new_value(init.type), a)
        elif held is None or (data and not p.data):
            self.learn_number(path, kind, data)
            raise Retrace
        else:
            stand_in, init = held
        if a is p:
            return b
        inner = self.trace.read_value(scalar.value_in(self.trace, a, scalar.DTYPES[kind]))
        out = self.add_carry(stand_in.value, init, inner, name)
        return self.outside_number(out, a, b)

    def last_number(self, name: str, a: RuntimeScalar) -> RuntimeScalar:
        inner = self.trace.read_value(a.value)
        out = self.add_last(inner, name)
        return self.outside_number(out, a)

    def left_by_break(self, rows: Sequence[Row]) -> dict[Path, tuple[str, object]]:
        """For each place whose type is another one only after a `break`: the name of the flag that
        is set there, and the value of the place."""
        flags = {n: a for n, _, _, a, _ in rows if is_flag(n) and is_runtime_scalar(a)}
        out: dict[Path, tuple[str, object]] = {}
        for path, other in self.body_trace.breaking.items():
            facts = other.facts or frozenset()
            same = [n for n, a in flags.items() if facts and facts <= a.implies & a.implied]
            if len(facts) != 1 or not same or path not in self.finals:
                continue
            value = other.value
            if isinstance(value, Tensor):
                fake = lift(self.trace, value)
                value = self.last(fake, self.trace.read_value(fake._value), "found")
            elif not is_constant(value):
                continue
            out[path] = (same[0], value)
        return out

    def tensor(self, name: str, b: object, p: object, a: FakeTensor, path: Path) -> object:
        held = self.body_trace.held.get(id(p))
        inner = self.trace.read_value(a._value)
        if held is None:
            if b is UNDEF:
                return self.first_defined(name, a, inner, path)
            if isinstance(b, Tensor):
                self.learn_early(lift(self.trace, b), a, inner, path)
            fills = self.filling(self.body_trace.known.places.get(path), b, a)
            error = TypeMismatch(name, describe(b), describe(a), self.made_at(a), fills)
            error.sure |= is_constant(b)
            raise error
        stand_in, init = held
        if is_runtime_scalar(stand_in):
            raise TypeMismatch(name, describe(b), describe(a), self.made_at(a))
        if init.type == inner.type:
            self.late_gradient(stand_in, a, path)
            if path in self.body_trace.known.written:
                self.check_private(init, inner)
            return self.carry(name, stand_in, init, inner, a)
        padded_buffers.learn_resized(self.body_trace, init.type, inner.type, path)
        read = stand_in._value in self.reads or "_asked" in stand_in.__dict__
        if read and learn(self.body_trace, inner, path, stand_in._value):
            self.late_gradient(stand_in, a, path)
            if self.body_trace.loop.name not in inner.type.names:
                self.body_trace.known.changes[path] = type_change(
                    self.body_trace, name, (init, inner), self.made_at(a)
                )
            raise Retrace
        if not read and self.moves(inner.type) and init.type == self.before_first(inner.type):
            return self.resized(name, stand_in, init, inner, a)
        if self.body_trace.once:
            return unreadable(changed_type(self.trace, name, init.type, inner.type))
        if read:
            raise type_change(self.body_trace, name, (init, inner), self.made_at(a))
        return self.last(a, inner, name)

    def resized(self, name: str, held: object, init: Value, inner: Value, a: FakeTensor) -> Tensor:
        """A tensor whose size moves on from that before the loop, and that is read behind it."""
        trace, value = self.trace, self.padded(inner)
        padded = self.zero_padded(init, value.type.shape)
        self.leave(a)
        out = self.add_carry(trace.new_value(value.type, name, self.frame), padded, value, name)
        return self.tensor_after(a, self.cut(out, inner.type), self.stops(name, held, a), init)

    def learn_early(self, b: FakeTensor, a: FakeTensor, inner: Value, path: Path) -> None:
        """Learn about a place that has no placeholder yet from this trace."""
        start = self.trace.read_value(b._value)
        if b._value.type == inner.type or learn(self.body_trace, inner, path, start):
            self.late_gradient(b, a, path)

    def first_defined(self, name: str, a: FakeTensor, inner: Value, path: Path) -> Any:
        """The value after the loop of a variable that the body defines, in each iteration or in
        some."""
        doubt = self.trace.undefined.values.get(a._value)
        if doubt is None:
            return self.last(a, inner, name)
        self.require_steady(inner, f"{name}, which only some iterations define, is carried")
        self.body_trace.known.maybe[path] = (inner.type, a.stop_gradient, doubt[1])
        raise Retrace

    def late_gradient(self, stand_in: Tensor, a: FakeTensor, path: Path) -> None:
        """Note a place that requires a gradient only after some iterations."""
        if stand_in.stop_gradient and not a.stop_gradient:
            self.flips.append(path)

    def freeze_shared(self) -> None:
        """Refuse writes to a tensor that leaves the loop under two names, because eager has one
        object."""
        outs = [(c.next, c.last) for c in self.carries.values()]
        outs += [(inner, outer) for inner, outer in self.lasts.items()]
        items = [q for _, item, _ in self.appends for q in leaves(item) if isinstance(q, Tensor)]
        held = [new for target, new in self.frame.appends.values() if target.buffer]
        items += [q for new in held for q in flat(new) if isinstance(q, Tensor)]
        outs += [(self.trace.read_value(lift(self.trace, q)._value), None) for q in items]
        iterated = self.trace.values.iterated
        if any(v in iterated for inner, _ in outs for v in self.trace.chain(inner)):
            raise NeedsConcrete("a tensor of the list that the loop runs over is kept")
        roots = [self.trace.root(inner) for inner, _ in outs]
        reason = "It left a loop under two names that are one tensor in eager."
        layer_attributes.check_own(self.trace, self.frame, roots)
        frozen = self.trace.values.frozen
        for root, (_, out) in zip(roots, outs):
            if roots.count(root) > 1:
                self.trace.freeze(root, reason, self.body_trace.loop)
            if out is not None and root in frozen:
                self.trace.freeze(out, *frozen[root])

    def made_at(self, a: FakeTensor) -> Loc | None:
        """The line of the op that made a value of this body."""
        return next((op.loc for op in self.frame.builder.ops if a._value in op.results), None)

    def carry(self, name: str, held: Tensor, init: Value, inner: Value, a: FakeTensor) -> Tensor:
        trace = self.trace
        outer_init = trace.read_value(init, len(trace.frames) - 2)
        inputs = {q.value for q in trace.inputs.by_id.values()}
        if self.body_trace.certain and trace.root(outer_init) in inputs:
            self.needs_iteration.append(f"{name}, which is an input if the loop does not run")
        if self.body_trace.certain and any(c.init is outer_init for c in self.carries.values()):
            self.needs_iteration.append(f"{name}, which is another variable, too, without the loop")
        out = self.add_carry(held._value, init, inner, name)
        self.blur(inner, out)
        trace.values.results[out] = self.body_trace.length
        self.carry_doubt(held._value, a, out)
        stops = self.stops(name, held, a)
        again = self.made_again(a, inner, name)
        return self.tensor_after(a, out if again is None else again, stops, init)

    def stops(self, name: str, stand_in: Tensor, a: FakeTensor) -> bool:
        """`stop_gradient` of a carried tensor after the loop: that of the last iteration; where the
        loop may not run at all, a tensor that requires a gradient before the loop requires one
        after it."""
        if a.stop_gradient and not stand_in.stop_gradient and self.body_trace.certain:
            self.needs_iteration.append(f"{name}, which requires a gradient without the loop")
            return True
        return bool(stand_in.stop_gradient and a.stop_gradient)

    def carry_doubt(self, inner: Value, a: FakeTensor, out: Value) -> None:
        """Carry the flag that says if a variable is defined."""
        trace = self.trace
        ok, message = trace.undefined.values.get(inner, (None, ""))
        if ok is None:
            return
        _, init = self.body_trace.held[id(ok)]
        after = trace.undefined.values.get(a._value, (None, ""))[0]
        after = scalar.value_in(trace, True, BOOL) if after is None else after
        sure = self.add_carry(ok, init, trace.read_value(after), "defined")
        trace.undefined.values[out] = (sure, message)

    def tensor_after(
        self, a: FakeTensor, out: Value, stop_gradient: bool, init: Value | None = None
    ) -> Tensor:
        """The fake tensor after the loop: one per object of the body, so that two names of one
        tensor stay one tensor, unless they name two tensors where the loop does not run."""
        key = (id(a), None if self.body_trace.certain or init is None else id(init))
        if key not in self.objects:
            self.objects[key] = (a, self.trace.fake(out, stop_gradient))
            if copied := self.trace.values.copies.get(a._value):
                self.trace.values.copies[self.objects[key][1]._value] = copied
        return self.objects[key][1]

    def last(self, a: FakeTensor, inner: Value, name: str) -> Tensor:
        """The value of the last iteration."""
        self.leave(a)
        if self.body_trace.certain and self.trace.values.frame_of[a._value] is not self.frame:
            self.needs_iteration.append(f"{name} after the loop")
            return a
        if (made := self.made_again(a, inner, name)) is not None:
            return self.tensor_after(a, made, a.stop_gradient)
        out = self.add_last(inner, name)
        self.blur(inner, out)
        return self.tensor_after(a, out, a.stop_gradient)

    def made_again(self, a: FakeTensor, inner: Value, name: str) -> Value | None:
        """Remake the view of the last iteration behind the loop, if the viewed memory is visible
        elsewhere; None if it is not, or for an index from data."""
        trace, root = self.trace, self.trace.root(inner)
        outer = trace.values.frame_of[root] is not self.frame
        if not self.body_trace.certain or root is inner or is_flag(name):
            return None
        if not outer and (root in trace.values.placeholders or self.roots[root] < 2):
            return None
        recipe = chain_in_loop(trace, inner, root, self.frame)
        dims = [d for _, attrs in recipe or () for _, q in attrs for d in dims_of(q)]
        if recipe is None or any(trace.is_local(d, self.frame) for d in dims):
            return None
        self.needs_iteration.append(f"{name} after the loop")
        value = root if outer else self.add_last(root, name)
        loop = self.body_trace.loop.name
        with self.behind():
            for row, attrs in in_iteration(recipe, loop, self.body_trace.length - 1):
                value = trace.emit(row, [value], dict(attrs))
        pick = trace.values.picks.get(inner)
        if pick is not None and type(pick[1]) is int:
            trace.values.picks[value] = pick
        return value

    def count_roots(self, rows: Sequence[Row]) -> Counter[Value]:
        """Count the tensors that leave the loop by the storage that they show."""
        left = [q for _, _, _, a, _ in rows for q in leaves(a, self.frame)]
        for _, items in self.frame.appends.values():
            plain = (x.item if isinstance(x, ConditionalElement) else x for x in items)
            left += [q for x in plain if not isinstance(x, StackedRun) for q in leaves(x)]
        values = {q._value for q in left if type(q) is FakeTensor}
        return Counter(self.trace.root(v) for v in values)

    def symbol(self, name: str, b: object, p: object, a: SymInt, path: Path) -> object:
        """An integer that moves by a constant; or one that follows the index (`prev = t`)."""
        loop, home = self.body_trace.loop, self.trace
        known, length = self.body_trace.known, self.body_trace.length
        step = slope(a.dim, loop.name)
        final = make(substitute_dim(a.dim, {loop.name: length - 1}), home)
        if b is UNDEF:
            self.needs_iteration.append(f"{name} after the loop")
            return final
        if not (type(b) is int or is_symint(b)) or isinstance(step, Size):
            raise TypeMismatch(name, describe(b), repr(a))
        start = dim_of(b)
        if a is p and not self.body_trace.known.steps.get(path):
            return b
        moves = step is not None and isinstance(step or a.dim - start, int)
        if moves and path not in known.steps:
            known.steps[path] = step or constant_step(a.dim - start)
            raise Retrace
        moved = a.dim - p.dim if is_symint(p) else None
        if not moves or moved is None or moved != known.steps.get(path):
            if known.other_step(path, moved):
                raise Retrace
            if path in known.numbers or not known.peeled and not isinstance(moved, Size):
                raise TypeMismatch(name, repr(b), repr(a))
            known.numbers[path] = (int, False)
            raise Retrace
        return final

    # ------------------------------------------------------------ lists
    def collect_tails(self) -> None:
        appends = self.frame.appends
        for seen in self.frame.observed.values():
            if id(seen.target) in appends and appends[id(seen.target)][1]:
                peel = seen.what in ("the truth", "an item")
                raise NeedsConcrete(f"{seen.what} of a list that the loop grows", (), peel)
        for tap, after in self.taps:
            self.tap_carry(tap, after)

    def late_tails(self) -> None:
        """Note lists whose first elements require no gradient, but the appended ones do. An element
        further from the end takes the place of a nearer one, which may ask for another port."""
        done = 0
        while done < len(self.frame.tails):
            port = list(self.frame.tails.values())[done]
            self.taps += port.pairs(element_after(self, port))
            done += 1
        for tap, after in self.taps:
            if tap.kind is None and isinstance(after, Tensor):
                self.late_gradient(tap.fake, lift(self.trace, after), tap.key)

    def tap_carry(self, tap: ListTap, after: object) -> None:
        init = self.trace.read_value(tap.init, len(self.trace.frames) - 2)
        kind = scalar.kind_of(after)
        if kind is not tap.kind:
            raise TypeMismatch("the last element of a list", describe(tap.fake), describe(after))
        if kind is not None:
            after_value = scalar.value_in(self.trace, after, scalar.DTYPES[kind])
        else:
            after_value = lift(self.trace, after)._value
        inner = self.trace.read_value(after_value)
        if inner.type != tap.inner.type:
            raise TypeMismatch("the last element of a list", str(tap.inner.type), str(inner.type))
        self.carries[tap.inner] = Carry(tap.inner, init, inner, None)

    # ------------------------------------------------------------ the loop
    def check_aliases(self) -> None:
        """Refuse a storage that the body writes in place and that is also the init of a carried
        place."""
        written = {self.trace.root(v) for v in self.frame.written}
        for c in self.carries.values():
            if self.trace.root(c.init) in written or self.trace.root(c.next) in written:
                raise NeedsConcrete("a tensor is written in place and also rebound")
        for inner in self.lasts:
            root = self.trace.root(inner)
            if root in written and self.trace.values.frame_of[root] is not self.frame:
                raise NeedsConcrete("a tensor is written in place and also rebound")

    def build(self) -> Scan:
        body_trace, loop, trace = self.body_trace, self.body_trace.loop, self.trace
        depth = len(trace.frames) - 2
        ports: list[Any] = []
        if body_trace.tests is not None:
            with trace.outside():
                go = scalar.value_in(trace, body_trace.go, BOOL)
            ports.append(LoopCondition(trace.read_value(go, depth), body_trace.tests))
        for p, init in body_trace.held.values():
            inner = held_value(p)
            if inner not in self.carries:
                self.carries[inner] = Carry(inner, trace.read_value(init, depth), inner, None)
        ops = tuple(self.frame.builder.ops)
        ports = [*ports, *self.frame.consts.values(), *self.carries.values()]
        ports += [Last(outer, inner) for inner, outer in self.lasts.items()]
        ports += self.stacks
        size = loop.name if any(loop.name in size_names(n) for n in ops) else ""
        if size:
            body_trace.need_bound()
        count, unroll = body_trace.count, body_trace.unroll
        return Scan(loop.index, loop.trip, tuple(ports), ops, trace.where(), count, size, unroll)
