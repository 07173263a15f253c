"""Fusion of two loops of one length, where each iteration of the second reads only iterations of
the first up to its own.

    scan %t < T {                                    scan %t < T {
      carry %h = %h0 then %h2                          carry %h = %h0 then %h2
      stack %hs = %h2 axis 0                           carry %g = %g0 then %g2 last %gT
    }                                        =>        body
    scan %u < T {                                        %h2 = ...
      seq   %ht = %hs[u]                                 %g2 = ... %h2 ...
      carry %g = %g0 then %g2 last %gT
    }

The second reads of the first only steps of stacks, each in the iteration that makes it. What it
needs besides moves before both. Effects, and what may fail, are in one of the two at most, and keep
their order with those in between. Two loops that each pass over weights in every step stay two if a
cache cannot keep both. Out of scope: while loops, and loops with another loop between them.

This comes after `ir.passes.loops.fission` and `loop_batching`: what these have taken out of a loop
stands between the two loops that are left, and reads the first one as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ir.analysis.cost import stays_cached, weights_of
from ir.passes.loops.slices_to_ports import is_whole, rename
from ir.passes.rules import can_fail
from ir.program import Const, Last, Node, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import in_order, map_blocks
from ir.uses import gives, has_effect, needs, walk


def fuse_loops(program: Program) -> Program:
    """No loop follows one that it could be part of."""
    ops, before = program.ops, -1
    while len(loops := [n for n in walk(ops) if isinstance(n, Scan)]) != before:
        before, ops = len(loops), _fused(ops, ())
    return replace(program, ops=ops)


def _fused(ops: Sequence[Node], needed: Iterable[Value]) -> tuple[Node, ...]:
    out: list[Node] = []
    latest: _Latest | None = None
    for node in (map_blocks(n, _fused) for n in ops):
        if isinstance(node, Scan) and not node.count:
            joined = latest.joined(node) if latest is not None else None
            if latest is not None and joined is not None:
                latest = joined
                continue
            out += latest.nodes() if latest is not None else ()
            latest = _Latest(node)
        elif latest is not None:
            latest.add(node)
        else:
            out.append(node)
    return (*out, *(latest.nodes() if latest is not None else ()))


@dataclass(eq=False)
class _Latest:
    """The last loop of a block, the nodes that followed an earlier loop and that it needs, and the
    nodes that follow it.

    reading: what a node behind the loop gives that reads the loop, directly or not.
    maker: of what nodes behind the loop give. named: the sizes among that.
    """

    loop: Scan
    first: list[Node] = field(default_factory=list)
    behind: dict[Node, None] = field(default_factory=dict)
    reading: set[Value | str] = field(default_factory=set)
    maker: dict[Value | str, Node] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.reading.update(self.loop.results)

    def nodes(self) -> tuple[Node, ...]:
        return (*self.first, self.loop, *self.behind)

    def add(self, node: Node) -> None:
        self.behind[node] = None
        self.maker.update(dict.fromkeys(gives(node), node))
        self.named.update(v for v in gives(node) if isinstance(v, str))
        if not self.reading.isdisjoint(needs(node, self.named)):
            self.reading.update(gives(node))

    def joined(self, s: Scan) -> _Latest | None:
        """This loop and `s` as one; None if they stay two."""
        if self.loop.trip != s.trip or (self.loop.size and s.size):
            return None
        stacks = {p.outer: p for p in self.loop.ports if isinstance(p, Stack)}
        steps = {p: stacks[p.outer] for p in s.ports if isinstance(p, Seq) and p.outer in stacks}
        if any(p.axis != q.axis or not is_whole(s, p) for p, q in steps.items()):
            return None
        others = replace(s, ports=tuple(p for p in s.ports if p not in steps))
        before = self.needed_by(others)
        if before is None or not self.keeps_order(s) or not _fit(self.loop, s):
            return None
        loop = _one(self.loop, others, {p.inner: q.inner for p, q in steps.items()})
        out = _Latest(loop, [*self.first, *before])
        for n in self.behind:
            if n not in before:
                out.add(n)
        return out

    def needed_by(self, s: Scan) -> dict[Node, None] | None:
        """The nodes behind the loop that `s` needs, in order; None if they cannot move."""
        todo, found = list(needs(s, self.named)), set[Node]()
        while todo:
            v = todo.pop()
            if v in self.reading:
                return None
            node = self.maker.get(v)
            if node is not None and node not in found:
                if _is_ordered(node):
                    return None
                found.add(node)
                todo += needs(node, self.named)
        return {n: None for n in self.behind if n in found}

    def keeps_order(self, s: Scan) -> bool:
        """Whether what has an effect or may fail comes in the same order if `s` runs with this."""
        first, second = _is_ordered(self.loop), _is_ordered(s)
        if first and (second or any(_is_checked(s, p) for p in s.ports)):
            return False
        return not (first or second) or not any(map(_is_ordered, self.behind))


def _is_ordered(n: Node) -> bool:
    return has_effect(n) or can_fail(n)


def _is_checked(s: Scan, p: Port) -> bool:
    return isinstance(p, Last) or (isinstance(p, Seq) and not is_whole(s, p))


def _fit(a: Scan, b: Scan) -> bool:
    """Whether a cache keeps the weights of both, or only one of them has weights."""
    weights = [weights_of(s) for s in (a, b)]
    return 0 in weights or stays_cached(sum(weights))


def _one(a: Scan, b: Scan, env: dict[Value, Value]) -> Scan:
    """Both loops as one; `env` says what values of the second are in the first."""
    known = {_source(p): p.inner for p in a.ports if isinstance(p, (Const, Seq))}
    same = {p.inner: known[q] for p in b.ins if (q := _source(p)) in known}
    new = rename(b, {**env, **same, b.index: a.index})
    ports = (*a.ports, *(p for p in new.ports if _source(p) not in known))
    return replace(a, ports=in_order(ports), body=(*a.body, *new.body), size=a.size or b.size)


def _source(p: Port) -> object:
    """Return a key of the data that a const or seq port reads."""
    if isinstance(p, Seq):
        return (p.outer, p.axis, p.start, p.step)
    return p.outer if isinstance(p, Const) else p


__all__ = ["fuse_loops"]
