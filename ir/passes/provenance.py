"""Provenance: selectors beside values that are one of several tensors, by data or a loop's end.

A branch or a loop returns one of several tensors. The choice is visible to a caller that holds
one of them under another name: eager Paddle returns that tensor, not a copy. `Provenance`
says which tensors a value of the captured program may be. `select` threads an integer through the
branches and loops, beside the value, that selects the tensor at run time:

    %h = cond: %x or %new                  %s = cond: 1 or 0            1: the input x

Tensors that an iteration makes get a number of their own in every iteration. A view is a tensor
as well: which memory it shows is known only where it was made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ir.analysis.alias import at_least_once, is_true, writes_flag
from ir.program import (
    ENDLESS,
    Builder,
    Carry,
    Cond,
    Const,
    Join,
    Last,
    Node,
    Op,
    Program,
    Scan,
    Value,
)
from ir.types import I64, Type
from ir.uses import walk

SelectorRegion: TypeAlias = Scan | Cond
#: a loop's body, or one of the two blocks of a branch; None is the program's own block
BlockPlace: TypeAlias = "tuple[SelectorRegion, int] | None"


class Provenance:
    """The provenance of every value: the tensors that it may be.

    sources: the values that a value is one of, in eager the same object. views: what a view shows.
    ports: the loop or branch that hands a value on, and by which port. places: the block of each
    value; those of the outermost block, and inputs, have none.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources: dict[Value, tuple[Value, ...]] = {}
        self.views: dict[Value, Value] = {}
        self.ports: dict[Value, tuple[SelectorRegion, Const | Carry | Last | Join]] = {}
        self.places: dict[Value, BlockPlace] = {}
        self.around: dict[SelectorRegion, BlockPlace] = {}
        self.true: set[Value] = set()
        self.constant_flags = not any(map(writes_flag, walk(program.ops)))
        self.block(program.ops, None)

    # ------------------------------------------------------------ reading the program
    def block(self, ops: Sequence[Node], place: BlockPlace) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.scan(node, place)
            elif isinstance(node, Cond):
                self.cond(node, place)
            elif isinstance(node, Op) and node.row.views:
                self.views[node.result] = node.operands[0]
            if self.constant_flags and isinstance(node, Op) and is_true(node):
                self.true.add(node.result)
            self.places.update((v, place) for v in node.results)

    def hands_on(
        self, node: SelectorRegion, port: Const | Carry | Last | Join, v: Value, *sources: Value
    ) -> None:
        self.ports[v], self.sources[v] = (node, port), sources

    def cond(self, c: Cond, place: BlockPlace) -> None:
        self.around[c] = place
        for p in c.ins:
            self.hands_on(c, p, p.inner, p.outer)
            self.places[p.inner] = (c, 0)
        for k, (ops, _) in enumerate(c.branches):
            self.block(ops, (c, k))
        for j in c.outs:
            self.hands_on(c, j, j.outer, j.then, j.orelse)

    def scan(self, s: Scan, place: BlockPlace) -> None:
        self.around[s] = place
        for p in s.ports:
            if isinstance(p, Const):
                self.hands_on(s, p, p.inner, p.outer)
            elif isinstance(p, Carry):
                self.hands_on(s, p, p.inner, p.init, p.next)
        self.places.update((p.inner, (s, 0)) for p in s.ins)
        self.block(s.body, (s, 0))
        runs = at_least_once(s, self.program, s.go is not None and s.go.init in self.true)
        for p in s.ports:
            if isinstance(p, Last):
                self.hands_on(s, p, p.outer, p.inner)
            elif isinstance(p, Carry) and p.last is not None:
                self.hands_on(s, p, p.last, p.next, *(() if runs else (p.init,)))

    # ------------------------------------------------------------ asking
    def reach(self, v: Value, views: bool = True) -> list[Value]:
        """`v` and all that it may be; with `views` also what that shows."""
        found, todo = {v: None}, [v]
        while todo:
            q = todo.pop()
            more = self.sources.get(q, ())
            if views and q in self.views:
                more = (self.views[q],)
            fresh = [m for m in more if m not in found]
            found.update(dict.fromkeys(fresh))
            todo += fresh
        return list(found)

    def objects(self, v: Value) -> list[Value]:
        """The tensors that `v` may be: inputs, and results of ops."""
        return [q for q in self.reach(v, views=False) if q not in self.sources]

    def storages(self, v: Value) -> list[Value]:
        """The tensors whose memory `v` may show."""
        return [q for q in self.reach(v) if q not in self.sources and q not in self.views]

    def outermost(self, v: Value) -> bool:
        return self.places.get(v) is None

    def loops(self, v: Value) -> Iterator[Scan]:
        """The loops around a value, the innermost one first."""
        place = self.places.get(v)
        while place is not None:
            if isinstance(place[0], Scan):
                yield place[0]
            place = self.around[place[0]]

    def countable(self, v: Value) -> bool:
        """Whether an integer tells what the iterations around `v` make of it."""
        inner = list(self.loops(v))[:-1]
        return all(isinstance(s.trip, int) and s.trip != ENDLESS for s in inner)


def select(
    program: Program,
    wanted: Mapping[Value, Value],
    numbers: Mapping[Value, int],
    fixed: Collection[Value] = (),
) -> Program:
    """The program with a selector for every value in `wanted`, as the value that it maps to.

    It is the number of the tensor that the value is, 0 for one without a number. One that a loop
    makes has another number in every iteration, which no other tensor has, unless it is `fixed`:
    the same one in all of them.
    """
    if not wanted:
        return program
    threads = _Threads(Provenance(program), wanted, numbers, fixed)
    return replace(program, ops=threads.block(program.ops, None))


class _Threads:
    """known: the selector beside a value. ports, first: what nodes and blocks get in addition."""

    def __init__(
        self,
        found: Provenance,
        wanted: Mapping[Value, Value],
        numbers: Mapping[Value, int],
        fixed: Collection[Value],
    ) -> None:
        self.found, self.numbers, self.known = found, numbers, dict(wanted)
        self.fixed = fixed
        self.todo = list(wanted)
        self.ports: dict[SelectorRegion, dict[object, Const | Carry | Last | Join]] = {}
        self.first: dict[BlockPlace, list[Node]] = {}
        self.ordinals: dict[BlockPlace, Value | None] = {}
        while self.todo:
            self.make(self.todo.pop())

    def of(self, v: Value) -> Value:
        """The selector beside `v`, in the block of `v`."""
        if v not in self.known:
            self.known[v] = Value(Type(I64), "selector")
            self.todo.append(v)
        return self.known[v]

    def add(self, node: SelectorRegion, key: object, port: Const | Carry | Last | Join) -> None:
        self.ports.setdefault(node, {})[key] = port

    def make(self, v: Value) -> None:
        if v not in self.found.ports:
            self.number(v)
            return
        node, p = self.found.ports[v]
        if p in self.ports.get(node, ()):
            return
        if isinstance(p, Join):
            self.add(node, p, Join(self.of(p.outer), self.of(p.then), self.of(p.orelse)))
        elif isinstance(p, Const):
            self.add(node, p, Const(self.of(p.inner), self.of(p.outer)))
        elif isinstance(p, Last):
            self.add(node, p, Last(self.of(p.outer), self.of(p.inner)))
        else:
            last = None if p.last is None else self.of(p.last)
            self.add(node, p, Carry(self.of(p.inner), self.of(p.init), self.of(p.next), last))

    def number(self, v: Value) -> None:
        place, n = self.found.places.get(v), self.numbers.get(v, 0)
        ordinal = self.ordinal(place) if n and v not in self.fixed else None
        b = Builder()
        out = b.full(value=n, shape=(), dtype=I64)
        if ordinal is not None:
            step = b.full(value=1 + max(self.numbers.values()), shape=(), dtype=I64)
            out = b.add(out, b.multiply(ordinal, step))
        self.emit(place, b, out, self.known[v])

    def emit(self, place: BlockPlace, b: Builder, out: Value, name: Value) -> None:
        """The ops of `b` at the beginning of a block, with `name` for the last result."""
        *ops, last = b.ops
        assert isinstance(last, Op) and last.result is out
        self.first.setdefault(place, []).extend([*ops, replace(last, results=(name,))])

    def ordinal(self, place: BlockPlace) -> Value | None:
        """Return the linear iteration number over all loops around a block; None outside of
        loops."""
        if place is None:
            return None
        if place not in self.ordinals:
            node, outer = place[0], self.ordinal(self.found.around[place[0]])
            inner = None if outer is None else Value(outer.type, "iteration")
            if outer is not None and inner is not None:
                self.add(node, (place, "iteration"), Const(inner, outer))
            self.ordinals[place] = inner if isinstance(node, Cond) else self.step(node, inner)
        return self.ordinals[place]

    def step(self, s: Scan, outer: Value | None) -> Value:
        if outer is None:
            return s.index
        b = Builder()
        trip = b.full(value=s.trip, shape=(), dtype=I64)
        out = b.add(b.multiply(outer, trip), s.index)
        name = Value(Type(I64), "iteration")
        self.emit((s, 0), b, out, name)
        return name

    # ------------------------------------------------------------ the new program
    def block(self, ops: Iterable[Node], place: BlockPlace) -> tuple[Node, ...]:
        return (*self.first.get(place, ()), *map(self.node, ops))

    def node(self, node: Node) -> Node:
        if not isinstance(node, (Scan, Cond)):
            return node
        more = tuple(self.ports.get(node, {}).values())
        if isinstance(node, Scan):
            ports = (*node.ports, *(p for p in more if not isinstance(p, Join)))
            return replace(node, ports=ports, body=self.block(node.body, (node, 0)))
        return replace(
            node,
            ins=(*node.ins, *(p for p in more if isinstance(p, Const))),
            then=self.block(node.then, (node, 0)),
            orelse=self.block(node.orelse, (node, 1)),
            outs=(*node.outs, *(p for p in more if isinstance(p, Join))),
        )


__all__ = ["Provenance", "select"]
