"""Liveness: the ops, and the ports of loops and branches, that results and writes need.

A value is live if an output, a write or an effect needs it. One walk follows values through ports
at every depth: the last value of a carry needs its first value and the `next` of an iteration, and
so does a carry that is read in the body. States that only feed each other, in one loop or through
the loops inside of it, are unused together.

    carry %a = %h0 then %b2              (nothing, if only %a2 reads %a, and only %b2 reads %b)
    carry %b = %h0 then %a2 last %bT

The time is linear in the size of the program. Custom blocks stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ir.program import (
    Carry,
    Cond,
    Const,
    Last,
    LoopCondition,
    Node,
    Port,
    Program,
    Scan,
    Seq,
    Stack,
    Value,
)
from ir.uses import blocks, consts, counts, dim_names, gives, has_effect, size_names


def only_live(program: Program) -> Program:
    """Every op and every port that is left is needed."""
    live = _Liveness(set(counts(program.ops)))
    top = live.scope(program.ops)
    for v in program.needed:
        live.need(top, v)
    live.walk()
    ops = left(top)
    live.release()
    return replace(program, ops=ops)


@dataclass(eq=False)
class _LiveBlock:
    """One block.

    maker: the nodes that give values, and the counts of while loops. inside: their blocks.
    behind: what a value is elsewhere: a port's inner value outside, a result in the blocks inside.
    live: values that are needed. kept: nodes that are.
    """

    ops: Sequence[Node]
    outer: _LiveBlock | None
    maker: dict[Value | str, Node]
    inside: dict[Node, tuple[_LiveBlock, ...]] = field(default_factory=dict)
    behind: dict[Value, tuple[tuple[_LiveBlock, Value], ...]] = field(default_factory=dict)
    live: set[Value] = field(default_factory=set)
    kept: set[Node] = field(default_factory=set)


class _Liveness:
    """`counts`: the sizes that while loops define. `todo`: what is live and not yet followed."""

    def __init__(self, counts: set[str]) -> None:
        self.counts = counts
        self.todo: list[tuple[_LiveBlock, Value]] = []
        self.scopes: list[_LiveBlock] = []

    def scope(self, ops: Sequence[Node], outer: _LiveBlock | None = None) -> _LiveBlock:
        """The scope of a block; what has an effect in it is needed."""
        new = _LiveBlock(ops, outer, {v: n for n in ops for v in gives(n)})
        self.scopes.append(new)
        for n in ops:
            if isinstance(n, (Scan, Cond)):
                inside = new.inside[n] = tuple(self.scope(q, new) for q, _ in blocks(n))
                _connect(n, new, inside)
                needed = any(q.kept for q in inside)
            else:
                needed = has_effect(n)
            if needed:
                self.keep(new, n)
        return new

    def release(self) -> None:
        """Scopes refer to each other: they would keep the program until the collector comes."""
        for scope in self.scopes:
            scope.inside.clear()
            scope.behind.clear()

    def need(self, scope: _LiveBlock, v: Value) -> None:
        if v not in scope.live:
            scope.live.add(v)
            self.todo.append((scope, v))

    def need_sizes(self, scope: _LiveBlock, names: set[str] | frozenset[str]) -> None:
        for name in names & self.counts:
            at: _LiveBlock | None = scope
            while at is not None and name not in at.maker:
                at = at.outer
            if at is not None:
                self.keep(at, at.maker[name])

    def walk(self) -> None:
        while self.todo:
            scope, v = self.todo.pop()
            if v in scope.maker:
                self.keep(scope, scope.maker[v])
            for at, other in scope.behind.get(v, ()):
                self.need(at, other)
            if self.counts:
                self.need_sizes(scope, v.type.names)

    def keep(self, scope: _LiveBlock, node: Node) -> None:
        """The node is needed: what it reads, whichever of its results is."""
        if node in scope.kept:
            return
        scope.kept.add(node)
        if isinstance(node, Cond):
            self.need(scope, node.test)
        elif isinstance(node, Scan):
            starts = (p.start for p in node.ports if isinstance(p, Seq))
            self.need_sizes(scope, dim_names((node.trip, *starts)))
            if node.go is not None:
                self.need(scope, node.go.init)
                self.need(scope.inside[node][0], node.go.next)
        else:
            for v in node.operands:
                self.need(scope, v)
            if self.counts:
                self.need_sizes(scope, size_names(node))


def _connect(node: Scan | Cond, scope: _LiveBlock, inside: Sequence[_LiveBlock]) -> None:
    """Through the ports of a node, from its block to those inside and back."""
    for p in consts(node):
        for block in inside:
            block.behind[p.inner] = ((scope, p.outer),)
    if isinstance(node, Cond):
        then, orelse = inside
        for j in node.outs:
            scope.behind[j.outer] = ((then, j.then), (orelse, j.orelse))
        return
    (body,) = inside
    for q in node.ports:
        if isinstance(q, Seq):
            body.behind[q.inner] = ((scope, q.outer),)
        elif isinstance(q, (Stack, Last)):
            scope.behind[q.outer] = ((body, q.inner),)
        elif isinstance(q, Carry):
            both = body.behind[q.inner] = ((body, q.next), (scope, q.init))
            if q.last is not None:
                scope.behind[q.last] = both


# ---------------------------------------------------------------- emitting
def left(scope: _LiveBlock) -> tuple[Node, ...]:
    """The nodes of a block that are kept, with the ports that are live."""
    return tuple(_trimmed(scope, n) for n in scope.ops if n in scope.kept)


def _trimmed(scope: _LiveBlock, node: Node) -> Node:
    if isinstance(node, Cond):
        then, orelse = scope.inside[node]
        ins = tuple(p for p in node.ins if p.inner in then.live or p.inner in orelse.live)
        outs = tuple(j for j in node.outs if j.outer in scope.live)
        return replace(node, ins=ins, outs=outs, then=left(then), orelse=left(orelse))
    if isinstance(node, Scan):
        (body,) = scope.inside[node]
        found = (_port(p, scope, body) for p in node.ports)
        return replace(node, ports=tuple(p for p in found if p is not None), body=left(body))
    return node


def _port(p: Port, scope: _LiveBlock, body: _LiveBlock) -> Port | None:
    if isinstance(p, LoopCondition):
        return p
    if isinstance(p, (Const, Seq)):
        return p if p.inner in body.live else None
    if isinstance(p, (Stack, Last)):
        return p if p.outer in scope.live else None
    if p.last is None or p.last in scope.live:
        return p if p.last is not None or p.inner in body.live else None
    return replace(p, last=None) if p.inner in body.live else None


__all__ = ["only_live"]
