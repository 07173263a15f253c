"""In-place writes that eager autograd leaves out of a gradient, found in the captured program.

A program follows the storage: the gradient of a write reaches every view of it. Eager Paddle
follows the object that was written: another object on the storage keeps the gradient it had.

    %row = index(%h, index=0)
    copy_(%row, %new)          eager: %row has the gradient of %new, %h has that of %old
    %y = exp(%h)               the program differentiates %h after the write

The check is conservative: views at indices from data overlap, both sides of a branch run, and a
loop runs twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ir.analysis.alias import places_along
from ir.loc import UNKNOWN, Loc
from ir.program import Carry, Cond, Const, Custom, Node, Op, Program, Scan, Value


@dataclass(frozen=True)
class AutogradWrite:
    """A `copy_` that eager autograd records for the object `target`, of which the op may write a
    part. `ignored`: other objects on the storage keep another gradient."""

    target: Value
    ignored: bool


@dataclass
class GradientFacts:
    """Facts about eager autograd that the trace records beside the program.

    writes: the writes that it records. trained: values that require a gradient. viewed: the
    object that a view was taken of, where the program takes it of another one.
    """

    writes: dict[Op, AutogradWrite] = field(default_factory=dict)
    trained: set[Value] = field(default_factory=set)
    viewed: dict[Value, Value] = field(default_factory=dict)


def ignored_writes(
    program: Program, facts: GradientFacts, returned: Sequence[Value]
) -> dict[Loc, Loc]:
    """The line of every write that eager leaves out of a gradient, with that of one reader.

    returned: results that require a gradient; their line is UNKNOWN.
    """
    if not any(w.ignored for w in facts.writes.values()):
        return {}
    found = _GradientReads(facts)
    found.block(program.ops)
    for v in returned:
        found.warn(found.missing(v), UNKNOWN)
    return found.lines


@dataclass
class _Writes:
    """The ignored writes of a storage, with the views between it and what is written. `at`: those
    within one element of an axis, by axis and element, which lie apart from all other elements of
    the axis; `rest`: the others."""

    views: dict[Op, list[Op]] = field(default_factory=dict)
    at: dict[int, dict[int, dict[Op, None]]] = field(default_factory=dict)
    rest: dict[Op, None] = field(default_factory=dict)

    def add(self, op: Op, chain: list[Op]) -> None:
        self.views[op] = chain
        place = _element(chain)
        if place is None:
            self.rest[op] = None
        else:
            self.at.setdefault(place[0], {}).setdefault(place[1], {})[op] = None

    def meeting(self, chain: list[Op]) -> Iterator[Op]:
        """The writes that may have an element in common with a view."""
        return (op for op in self.near(chain) if not _apart(chain, self.views[op]))

    def near(self, chain: list[Op]) -> Iterator[Op]:
        place = _element(chain)
        yield from self.rest
        for axis, elements in self.at.items():
            if place is None or axis != place[0]:
                yield from (op for ops in elements.values() for op in ops)
            else:
                yield from elements.get(place[1], ())


@dataclass
class _GradientReads:
    """known: the writes that an object has seen. stale: the writes that a value depends on, and
    that eager leaves out. views: the op that made a view; ports: the outer side of a const."""

    facts: GradientFacts
    lines: dict[Loc, Loc] = field(default_factory=dict)
    writes: dict[Value, _Writes] = field(default_factory=dict)
    known: dict[Value, set[Op]] = field(default_factory=dict)
    stale: dict[Value, set[Op]] = field(default_factory=dict)
    views: dict[Value, Op] = field(default_factory=dict)
    ports: dict[Value, Value] = field(default_factory=dict)

    def warn(self, writes: Iterable[Op], at: Loc) -> None:
        for op in writes:
            self.lines.setdefault(op.loc, at)

    # ------------------------------------------------------------ objects
    def object(self, v: Value) -> Value:
        while v in self.ports:
            v = self.ports[v]
        return v

    def chain(self, v: Value) -> list[Op]:
        """The view ops between `v` and its storage, that of `v` first."""
        out = []
        while (v := self.object(v)) in self.views:
            out.append(self.views[v])
            v = self.views[v].operands[0]
        return out

    def storage(self, v: Value) -> Value:
        chain = self.chain(v)
        return self.object(chain[-1].operands[0] if chain else v)

    def missing(self, v: Value) -> set[Op]:
        """The writes that are in `v`, and not in the gradient that eager gives it."""
        v, chain = self.object(v), self.chain(v)
        found = set(self.stale.get(v, ()))
        if v not in self.facts.trained and any(op.name == "detach" for op in chain):
            return found
        known = self.known.get(v, set())
        writes = self.writes.get(self.storage(v))
        if writes is not None:
            found.update(op for op in writes.meeting(chain) if op not in known)
        return found

    def new(self, v: Value, stale: set[Op], loc: Loc) -> None:
        """A storage of its own, with values that depend on `stale`."""
        self.writes.pop(v, None)
        self.known.pop(v, None)
        self.stale[v] = stale
        if v in self.facts.trained:
            self.warn(stale, loc)

    # ------------------------------------------------------------ nodes
    def block(self, ops: Sequence[Node]) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.loop(node)
            elif isinstance(node, (Cond, Custom)):
                self.branches(node)
            elif isinstance(node, Op) and node.row.writes:
                self.write(node)
            elif isinstance(node, Op) and node.row.views:
                self.view(node)
            else:
                read = node.operands[1:] if node.name == "keep_gradient" else node.operands
                stale = set[Op]().union(*map(self.missing, read))
                for v in node.results:
                    self.new(v, stale, node.loc)

    def view(self, op: Op) -> None:
        of = self.object(self.facts.viewed.get(op.result, op.operands[0]))
        self.views[op.result] = op
        self.known[op.result] = set(self.known.get(of, ()))
        self.stale[op.result] = set(self.stale.get(of, ()))

    def write(self, op: Op) -> None:
        made = self.facts.writes.get(op)
        if made is None:
            return
        self.warn(self.missing(op.operands[1]), op.loc)
        part, whole = self.object(op.operands[0]), self.object(made.target)
        writes = self.writes.setdefault(self.storage(part), _Writes())
        if made.ignored:
            writes.add(op, self.chain(part))
        self.known[part] = set(writes.views)
        self.known.setdefault(whole, set()).add(op)

    def branches(self, node: Cond | Custom) -> None:
        self.ports.update((p.inner, p.outer) for p in node.ins)
        for ops in (node.then, node.orelse) if isinstance(node, Cond) else (node.forward,):
            self.block(ops)
        if isinstance(node, Custom):
            for outer, inner in node.outs:
                self.new(outer, self.missing(inner), node.loc)
        else:
            for j in node.outs:
                self.new(j.outer, self.missing(j.then) | self.missing(j.orelse), node.loc)

    def loop(self, s: Scan) -> None:
        self.ports.update((p.inner, p.outer) for p in s.ports if isinstance(p, Const))
        for p in s.carries:
            self.new(p.inner, self.missing(p.init), s.loc)
        before = None
        while before != (before := self.carried(s)):
            self.block(s.body)
            self.block(s.body)
        for out in s.outs:
            if isinstance(out, Carry):
                assert out.last is not None
                self.new(out.last, self.missing(out.init) | self.missing(out.next), s.loc)
            else:
                self.new(out.outer, self.missing(out.inner), s.loc)

    def carried(self, s: Scan) -> int:
        """The next iteration begins; how much its variables depend on in all."""
        for p in s.carries:
            self.stale[p.inner] = self.stale[p.inner] | self.missing(p.next)
        return sum(len(self.stale[p.inner]) for p in s.carries)


def _element(chain: list[Op]) -> tuple[int, int] | None:
    """The axis of the storage and the element of it that a view lies in, if it lies in one."""
    if not chain or chain[-1].name != "index":
        return None
    op = chain[-1]
    axis = op.attrs["axis"] % op.operands[0].type.ndim
    found = places_along(op, axis)
    return None if found is None else (axis, found.start)


def _apart(one: list[Op], two: list[Op]) -> bool:
    """Whether two views of one storage have no element in common, or data says if they do."""
    if not one or not two:
        return False
    a, b = one[-1], two[-1]
    axes = a.operands[0].type.ndim
    if a.operands[1:] and b.operands[1:]:
        places = a.name == b.name and a.result.type.ndim < axes
        return places and a.operands[1] is not b.operands[1]
    return any(_disjoint(places_along(a, k), places_along(b, k)) for k in range(axes))


def _disjoint(a: range | None, b: range | None) -> bool:
    if a is None or b is None:
        return False
    few, many = sorted((a, b), key=len)
    return not any(k in many for k in few)


__all__ = ["AutogradWrite", "GradientFacts", "ignored_writes"]
