"""What a traced loop body became: the places before and after it, as ports of a scan.

Places with equal types before and after are carries, a variable that the body sets first is a
`last`, lists that grew by one element are stacks. Anything else is a Mismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dy2st.capture.emitter import lift
from dy2st.capture.fake import FakeTensor, Tensor
from dy2st.containers import Leaf, Observed, ScanCell, TailPort, TraceList, plain_parts
from dy2st.guards import is_constant, same_constant
from dy2st.journal import MISSING
from dy2st.stops import Learned, NeedsConcrete
from dy2st.symbols import is_sym, make
from ir import Carry, Last, Scan, Size, Value
from ir.types import Dim, substitute_dim

if TYPE_CHECKING:
    from dy2st.loops import Attempt

UNDEF: Any = type("Undefined", (), {"__repr__": lambda self: "<undefined>"})()


class Mismatch(Exception):
    """A place does not hold the same type before and after the body.

    `name` is the user's; `before` and `after` describe the values; `loc` is where the new one
    was made.
    """

    def __init__(self, name: str, before: str, after: str, loc: Any = None) -> None:
        super().__init__(f"{name} is {before} before and {after} after an iteration")
        self.name, self.before, self.after, self.loc = name, before, after, loc


def tree(f: Callable[[Any, tuple[Any, ...]], Any], x: Any, path: tuple[Any, ...]) -> Any:
    """Map over the leaves of tuples and of lists with a fixed structure."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(tree(f, q, (*path, i)) for i, q in enumerate(x)))
    if isinstance(x, tuple):
        return tuple(tree(f, q, (*path, i)) for i, q in enumerate(x))
    if plain_parts(x):
        return TraceList([tree(f, q, (*path, i)) for i, q in enumerate(x.parts())])
    return f(x, path)


def parts(x: Any) -> list[Any]:
    return x.parts() if isinstance(x, TraceList) else list(x) if isinstance(x, tuple) else [x]


def leaves(x: Any) -> list[Any]:
    out: list[Any] = []
    tree(lambda q, path: out.append(q), x, ())
    return out


class Plan:
    """Compares the places before and after the body and makes the ports."""

    def __init__(self, attempt: Attempt, rows: Sequence[tuple[Any, ...]]) -> None:
        self.attempt, self.trace, self.frame = attempt, attempt.trace, attempt.frame
        self.outer = attempt.trace.frames[-2]
        self.carries: dict[Value, Carry] = {}
        self.lasts: dict[Value, Value] = {}
        self.objects: dict[int, tuple[Any, Any]] = {}
        self.needs_iteration: list[str] = []
        self.flips: list[tuple[Any, ...]] = []
        self.leaving: dict[Any, bool] = {}
        self.reads = self.values_read(rows)
        self.finals = {path: self.settle(n, b, p, a, path) for n, b, p, a, path in rows}
        self.appends = self.collect_appends()
        self.settle_gradients()
        self.freeze_shared()
        self.collect_tails()
        self.check_aliases()
        self.cell = ScanCell(self.outer, self.build())

    def values_read(self, rows: Sequence[tuple[Any, ...]]) -> set[Value]:
        """Values that the body needs: in an op, in a list, or taken over by another place."""
        out = {v for op in self.frame.builder.ops for v in op.operands}
        for _, items in self.frame.appends.values():
            out |= {q._value for x in items for q in leaves(x) if isinstance(q, FakeTensor)}
        for _, _, p, a, _ in rows:
            own = {id(q) for q in leaves(p)}
            taken = [q for q in leaves(a) if isinstance(q, FakeTensor) and id(q) not in own]
            out |= {q._value for q in taken}
        return out

    # ------------------------------------------------------------ one place
    def settle(self, name: str, b: Any, p: Any, a: Any, path: tuple[Any, ...]) -> Any:
        """The value of one place after the loop; raises Mismatch or Learned."""
        if self.same_structure(a, b):
            new = [
                self.settle(name, x, y, z, (*path, i))
                for i, (x, y, z) in enumerate(zip(parts(b), parts(p), parts(a)))
            ]
            return self.like(a, new)
        if a is p and b is not UNDEF and not is_sym(a):
            return b
        if isinstance(a, TraceList):
            return self.leave_list(name, b, p, a)
        if isinstance(a, tuple) and b is UNDEF:
            return self.like(
                a, [self.settle(name, UNDEF, UNDEF, q, (*path, i)) for i, q in enumerate(a)]
            )
        if isinstance(a, Tensor):
            return self.tensor(name, b, p, lift(self.trace, a), path)
        if is_sym(a):
            return self.symbol(name, b, p, a, path)
        if b is UNDEF or a is b or (is_constant(a) and same_constant(a, b)):
            return a
        if type(a) is type(b) is int and path not in self.attempt.known.steps:
            self.attempt.known.steps[path] = a - b
            raise Learned
        raise Mismatch(name, describe(b), describe(a))

    @staticmethod
    def same_structure(a: Any, b: Any) -> bool:
        if isinstance(a, tuple):
            return type(a) is type(b) and len(a) == len(b)
        both = plain_parts(a) and plain_parts(b) and a is not b
        return both and len(a.parts()) == len(b.parts())

    def like(self, a: Any, new: list[Any]) -> Any:
        if isinstance(a, TraceList):
            out = TraceList(new)
            out.born = self.outer
            return out
        return type(a)(*new) if hasattr(a, "_fields") else tuple(new)

    def leave_list(self, name: str, b: Any, p: Any, a: TraceList) -> Any:
        """A list as a variable: unchanged, or one that the last iteration made."""
        if a is b or a is p:
            return b
        if b is not UNDEF and not (plain_parts(a) and b is MISSING):
            raise Mismatch(name, "one list", "another list")
        if a.segmented:
            raise NeedsConcrete(f"{name} is a list that an inner loop fills")
        return self.like(a, [self.settle(name, UNDEF, UNDEF, q, ()) for q in a.parts()])

    def tensor(self, name: str, b: Any, p: Any, a: FakeTensor, path: tuple[Any, ...]) -> Any:
        held = self.attempt.held.get(id(p))
        inner = self.trace.read_value(a._value)
        if held is None:
            if b is UNDEF:
                return self.last(a, inner, name)
            raise Mismatch(name, describe(b), describe(a))
        stand_in, init = held
        if init.type == inner.type:
            self.late_gradient(stand_in, a, path)
            return self.carry(name, stand_in, init, inner, a)
        if stand_in._value in self.reads:
            raise Mismatch(name, str(init.type), str(inner.type), self.made_at(a))
        return self.last(a, inner, name)

    def late_gradient(self, stand_in: Any, a: FakeTensor, path: tuple[Any, ...]) -> None:
        """Note a place that requires a gradient only after some iterations."""
        if stand_in.stop_gradient and not a.stop_gradient:
            self.flips.append(path)

    def freeze_shared(self) -> None:
        """A tensor that leaves the loop in two ways is one object in eager: neither is written."""
        outs = [(c.next, c.last) for c in self.carries.values()]
        outs += [(inner, outer) for inner, outer in self.lasts.items()]
        items = [q for _, item in self.appends for q in leaves(item) if isinstance(q, Tensor)]
        outs += [(self.trace.read_value(lift(self.trace, q)._value), None) for q in items]
        roots = [self.trace.root(inner) for inner, _ in outs]
        reason = "It left a loop under two names, which are one tensor in eager."
        for root, (_, out) in zip(roots, outs):
            if roots.count(root) > 1:
                self.trace.freeze(root, reason)
                if out is not None:
                    self.trace.freeze(out, reason)

    def settle_gradients(self) -> None:
        """Places that got a gradient are traced again with it; the result is right for loops that
        run until all of them have it."""
        trained, first = self.attempt.known.trained, self.attempt.known.flags
        if not trained:
            first.update(self.leaving)
        if self.flips:
            turn = 1 + max(trained.values(), default=0)
            trained.update((path, turn) for path in self.flips)
            raise Learned
        if trained:
            late = any(first.get(k, stop) != stop for k, stop in self.leaving.items())
            least, trip = max(trained.values()) + late, self.attempt.loop.trip
            if isinstance(trip, int) and trip < least:
                raise NeedsConcrete("gradients arrive after more iterations than there are")
            self.trace.require(trip, least, "gradients that arrive late")

    def made_at(self, a: FakeTensor) -> Any:
        """The line of the op that made a value of this body."""
        made = [op for op in self.frame.builder.ops if a._value in op.results]
        return made[0].loc if made else None

    def carry(self, name: str, stand_in: Any, init: Value, inner: Value, a: FakeTensor) -> Any:
        trace = self.trace
        out = trace.new_value(inner.type, name if name.isidentifier() else "", self.outer)
        outer_init = trace.read_value(init, len(trace.frames) - 2)
        if trace.root(outer_init) in {q.value for q in trace.lifted.values()}:
            self.needs_iteration.append(f"{name}, which is an input if the loop does not run")
        self.carries[stand_in._value] = Carry(stand_in._value, outer_init, inner, out)
        self.blur(inner, out)
        trace.results[out] = self.attempt.loop.trip
        return self.object(a, out, stand_in.stop_gradient and a.stop_gradient)

    def object(self, a: FakeTensor, out: Value, stop_gradient: bool) -> Any:
        """One new object per object, so that two names of one tensor stay one tensor."""
        if id(a) not in self.objects:
            self.objects[id(a)] = (a, self.trace.fake(out, stop_gradient))
        return self.objects[id(a)][1]

    def last(self, a: FakeTensor, inner: Value, name: str) -> Any:
        """The value of the last iteration."""
        self.leaving[name] = a.stop_gradient
        if inner not in self.lasts:
            self.lasts[inner] = self.trace.new_value(inner.type, inner.name or name, self.outer)
            self.blur(inner, self.lasts[inner])
        self.needs_iteration.append(f"{name} after the loop")
        return self.object(a, self.lasts[inner], a.stop_gradient)

    def blur(self, inner: Value, out: Value) -> None:
        """A result that may share memory with a tensor from outside must not be written."""
        root = self.trace.root(inner)
        if self.trace.born[root] is not self.frame:
            reason = "A loop made it from a tensor that lives outside of the loop."
            self.trace.freeze(root, reason)
            self.trace.freeze(out, reason)

    def symbol(self, name: str, b: Any, p: Any, a: Any, path: tuple[Any, ...]) -> Any:
        """An integer that moves by a constant; or one that follows the index (`prev = t`)."""
        loop, home = self.attempt.loop, self.trace
        step = substitute_dim(a.dim, {loop.name: 1}) - substitute_dim(a.dim, {loop.name: 0})
        final = make(substitute_dim(a.dim, {loop.name: loop.trip - 1}), home)
        if b is UNDEF:
            self.needs_iteration.append(f"{name} after the loop")
            return final
        if not (type(b) is int or is_sym(b)) or not isinstance(step, int):
            raise Mismatch(name, describe(b), repr(a))
        start: Dim = b.dim if is_sym(b) else b
        if a is p and not self.attempt.known.steps.get(path):
            return b
        if path not in self.attempt.known.steps:
            step = step or _constant(a.dim - start)
            self.attempt.known.steps[path] = step
            raise Learned
        if a.dim - step != start + Size.named(loop.name) * step:
            raise Mismatch(name, repr(b), repr(a))
        return final

    # ------------------------------------------------------------ lists
    def collect_appends(self) -> list[tuple[TraceList, Any]]:
        out: list[tuple[TraceList, Any]] = []
        for target, items in self.frame.appends.values():
            if not items:
                continue
            if len(items) != 1:
                raise NeedsConcrete("more than one append to a list in an iteration")
            if target.born is not self.outer:
                raise NeedsConcrete("an append to a list of an outer loop")
            for k, q in enumerate(leaves(items[0])):
                self.check_item(q)
                self.leaving[len(out), k] = bool(q.stop_gradient)
            out.append((target, items[0]))
        return out

    def check_item(self, q: Any) -> None:
        if not isinstance(q, Tensor):
            raise NeedsConcrete(f"a {type(q).__name__} is appended to a list")
        root = self.trace.root(self.trace.read_value(lift(self.trace, q)._value))
        if root in self.frame.written:
            raise NeedsConcrete("a tensor that the loop writes is appended to a list")
        if self.trace.born[root] is not self.frame:
            self.trace.freeze(root, "A loop collected it in a list, where eager keeps the tensor.")

    def segment(self, item: Any) -> Any:
        """The tree of one appended element; the scan is in the outer frame by now."""

        def leaf(x: Any) -> Any:
            if isinstance(x, tuple):
                parts = [leaf(q) for q in x]
                return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
            return Leaf(self.cell, self.trace_value(x), x.stop_gradient)

        return leaf(item)

    def trace_value(self, x: Any) -> Value:
        value = lift(self.trace, x)._value
        return self.frame.consts[value].inner if value in self.frame.consts else value

    def collect_tails(self) -> None:
        for tail in self.frame.tails.values():
            grown = self.frame.appends.get(id(tail.target))
            if isinstance(tail, Observed):
                if grown and grown[1]:
                    peel = tail.what == "the truth"
                    raise NeedsConcrete(f"{tail.what} of a list that the loop grows", (), peel)
                continue
            self.tail_carry(tail, grown)

    def tail_carry(self, tail: TailPort, grown: Any) -> None:
        init = self.trace.read_value(tail.first._value, len(self.trace.frames) - 2)
        after = tail.fake if not (grown and grown[1]) else grown[1][-1]
        inner = self.trace.read_value(lift(self.trace, after)._value)
        if inner.type != tail.inner.type:
            raise Mismatch("the last element of a list", str(tail.inner.type), str(inner.type))
        self.carries[tail.inner] = Carry(tail.inner, init, inner, None)

    # ------------------------------------------------------------ the loop
    def check_aliases(self) -> None:
        """A storage that the body writes must not also be the start of a carried place."""
        written = {self.trace.root(v) for v in self.frame.written}
        for c in self.carries.values():
            if self.trace.root(c.init) in written or self.trace.root(c.next) in written:
                raise NeedsConcrete("a tensor is written in place and also rebound")
        for inner in self.lasts:
            root = self.trace.root(inner)
            if root in written and self.trace.born[root] is not self.frame:
                raise NeedsConcrete("a tensor is written in place and also rebound")

    def build(self) -> Scan:
        ports: list[Any] = list(self.frame.consts.values())
        ports += list(self.carries.values())
        ports += [Last(outer, inner) for inner, outer in self.lasts.items()]
        unset = [p for p, _ in self.attempt.held.values() if p._value not in self.carries]
        for p in unset:
            init = self.attempt.held[id(p)][1]
            outer = self.trace.read_value(init, len(self.trace.frames) - 2)
            ports.append(Carry(p._value, outer, p._value, None))
        loop = self.attempt.loop
        return Scan(
            loop.index, loop.trip, tuple(ports), tuple(self.frame.builder.ops), self.trace.where()
        )


def _constant(dim: Dim) -> int:
    if isinstance(dim, Size):
        raise Mismatch("an integer", "a number", f"a number that moves by {dim}")
    return dim


def describe(x: Any) -> str:
    """A value in a message: type for tensors, text for Python values."""
    if isinstance(x, FakeTensor):
        return str(x._value.type)
    if isinstance(x, Tensor):
        return f"{str(x.dtype).split('.')[-1]}{list(x.shape)}"
    if x is UNDEF or x is MISSING:
        return "undefined"
    return f"the {type(x).__name__} {x!r}"[:60]
