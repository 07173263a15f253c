"""Unrolling of loops that are marked for it: several steps in one iteration.

    scan %t < 7 unroll 3 {                       scan %t < 2 {
      seq   %xt = %x[t]                            seq   %x0 = %x[3*t]
      carry %h = %h0 then %h2 last %hT             seq   %x1 = %x[3*t+1]
      stack %ys = %h2 axis 0                       seq   %x2 = %x[3*t+2]
      body                                         carry %h = %h0 then %h3 last %h4
        %h2 = add(%h, %xt)                         stack %zs = %three axis 0
    }                                              body
                                          =>         %h1 = add(%h, %x0)
                                                     %h2 = add(%h1, %x1)
                                                     %h3 = add(%h2, %x2)
                                                     %three = stack(%h1, %h2, %h3)
                                                 }
                                                 %x6 = index(%x, axis=0, index=6)
                                                 %hT = add(%h4, %x6)
                                                 %ys = concat(reshape(%zs), stack(%hT))

The steps that are left over follow the loop; a loop of no more steps than are wanted goes. Out of
scope: while loops, loops whose trip is not a number, and those that would become too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.passes.cloning import NodeCopier, fresh_size
from ir.program import Carry, Const, Last, Node, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, in_order, rewrite
from ir.types import I64, Dim, Size
from ir.uses import size_names, walk

#: ops that unrolling may make of a loop: a file that is loaded can ask for any factor
MOST_OPS = 1 << 14


def unroll_loops(program: Program) -> Program:
    """No loop of known length is left that asks to be unrolled."""
    if not any(isinstance(n, Scan) and n.unroll > 1 for n in walk(program.ops)):
        return program
    taken = set(program.sizes).union(*map(size_names, walk(program.ops)))

    def visit(b: Block, s: Node) -> Sequence[Value] | None:
        if not isinstance(s, Scan) or s.unroll == 1 or s.count or not isinstance(s.trip, int):
            return None
        if s.trip == 0 or min(s.trip, s.unroll) * sum(1 for _ in walk(s.body)) > MOST_OPS:
            return None
        return _Unrolling(b.at(s), s, taken).results(s.trip)

    return rewrite(program, visit)


def straight_line(b: Block, s: Scan, trip: int) -> Sequence[Value]:
    """The results of a loop of `trip` steps, which are emitted one after the other."""
    taken = set().union(*map(size_names, walk(s.body)))
    return _Unrolling(b, replace(s, unroll=max(trip, 1)), taken).results(trip)


class _Unrolling:
    """`states`: the carries by their names in the body, as the steps so far have left them.
    `parts`: what stacks have collected."""

    def __init__(self, b: Block, s: Scan, taken: set[str]) -> None:
        self.b, self.s, self.taken = b, s, taken
        self.states = {p.inner: p.init for p in s.carries}
        self.stacks = [p for p in s.ports if isinstance(p, Stack)]
        self.parts: dict[Stack, list[Value]] = {p: [] for p in self.stacks}
        self.last = NodeCopier(self.fresh)

    def fresh(self, size: str) -> str:
        return fresh_size(self.taken, size)

    def results(self, trip: int) -> Sequence[Value]:
        b, k = self.b, self.s.unroll
        done = trip // k * k if trip >= 2 * k else 0
        if done:
            self.loop(done // k, last=done == trip)
        if done < trip:
            self.steps(b, [self.behind(t) for t in range(done, trip)])
        made = {p.outer: self.last.new(p.inner) for p in self.s.ports if isinstance(p, Last)}
        made |= {p.last: self.states[p.inner] for p in self.s.carries if p.last is not None}
        for p, parts in self.parts.items():
            made[p.outer] = parts[0] if len(parts) == 1 else b.concat(*parts, axis=p.axis)
        return [made[v] for v in self.s.results]

    def steps(self, block: Block, copiers: Sequence[NodeCopier]) -> None:
        """One step after the other on `block`; what they collect is one more part."""
        for c in copiers:
            c.env |= self.states
            for n in c.nodes(self.s.body):
                block.append(n)
            self.states = {p.inner: c.new(p.next) for p in self.s.carries}
            self.last = c
        for p, parts in self.parts.items():
            parts.append(block.stack(*(c.new(p.inner) for c in copiers), axis=p.axis))

    def behind(self, t: int) -> NodeCopier:
        """A copy of the body for step `t`, outside of the loop."""
        c = NodeCopier(self.fresh, sizes={self.s.size: t} if self.s.size else {})
        c.env[self.s.index] = self.b.full(value=t, dtype=I64)
        for p in self.s.ports:
            if isinstance(p, Const):
                c.env[p.inner] = p.outer
            elif isinstance(p, Seq):
                at = p.start + p.step * t
                c.env[p.inner] = self.b.index(p.outer, axis=p.axis, index=at)
        return c

    # -------- the loop
    def loop(self, trip: int, last: bool) -> None:
        """The steps in groups, in `trip` iterations; `last`: no steps follow."""
        s, body = self.s, Block()
        index, size = renamed(s.index), self.fresh(s.size) if s.size else ""
        consts = {p.inner: Const(renamed(p.inner), p.outer) for p in s.ports if type(p) is Const}
        ports: list[Port] = [*consts.values()]
        copiers = [NodeCopier(self.fresh) for _ in range(s.unroll)]
        for j, c in enumerate(copiers):
            c.env |= {v: p.inner for v, p in consts.items()}
            c.env[s.index] = body.scale(index, scale=s.unroll, bias=j)
            c.sizes = {s.size: Size.named(size) * s.unroll + j} if size else {}
            ports += [self.seq(p, j, c) for p in s.ports if isinstance(p, Seq)]
        inits, inner, lasts = self.states, *({v: renamed(v) for v in self.states} for _ in "12")
        self.states = inner
        self.steps(body, copiers)
        ports += [Carry(inner[v], inits[v], self.states[v], lasts[v]) for v in inits]
        self.states = lasts
        ports += [self.stack(p, trip) for p in self.stacks]
        if last:
            lasting = {p.inner: renamed(p.inner) for p in s.ports if isinstance(p, Last)}
            ports += [Last(outer, self.last.new(v)) for v, outer in lasting.items()]
            self.last.env |= lasting
        self.b.append(Scan(index, trip, in_order(ports), tuple(body.ops), s.loc, size=size))
        for p, parts in self.parts.items():
            parts[0] = self.b.reshape(parts[0], shape=shape(p, trip * s.unroll))

    def seq(self, p: Seq, j: int, c: NodeCopier) -> Seq:
        """The elements that step `j` of every iteration reads."""
        c.env[p.inner] = renamed(p.inner)
        return Seq(c.env[p.inner], p.outer, p.axis, p.start + p.step * j, p.step * self.s.unroll)

    def stack(self, p: Stack, trip: int) -> Stack:
        """Return the stack that collects the steps of every iteration."""
        (inner,) = self.parts[p]
        dims = inner.type.shape
        outer = Value(inner.type.with_shape((*dims[: p.axis], trip, *dims[p.axis :])))
        self.parts[p] = [outer]
        return Stack(outer, inner, p.axis)


def shape(p: Stack, steps: int) -> tuple[Dim, ...]:
    dims = p.inner.type.shape
    return (*dims[: p.axis], steps, *dims[p.axis :])


def renamed(v: Value) -> Value:
    """A value of its own with the same type."""
    return Value(v.type, v.name)


__all__ = ["straight_line", "unroll_loops"]
