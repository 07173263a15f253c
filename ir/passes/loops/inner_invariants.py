"""Code motion out of two loops: work of an inner loop that is invariant in the outer one.

    scan %t < T {                                    scan %l < N {
      ...                                              seq   %w = %ws[l]
      scan %l < N {                                    const %x1 = %x
        seq   %w = %ws1[l]                             stack %ys = %y axis 0
        const %x2 = %x1                       =>       body
        carry %h = ...                                   %y = matmul(%x1, %w)
        body                                         }
          %y = matmul(%x2, %w)                       scan %t < T {
          ... %h ... %y ...                            ...
                                                       scan %l < N {
                                                         seq   %y = %ys1[l]
                                                         ...

The keys and values of a text that a decoder attends to are such work: each layer computes its own,
in every step. The inner loop is cut in two, and the first part is the same for the outer loop as a
whole (`ir.passes.loops.loop_invariants`). It is cut for products only, with what they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.analysis.cost import is_product
from ir.passes.loops.loop_invariants import hoist_invariants
from ir.passes.loops.slices_to_ports import put
from ir.passes.rules import may_raise
from ir.program import Const, Node, Op, Program, Scan, Seq, Value
from ir.rewrite import Block, renewed, rewrite, with_operands
from ir.uses import depends_on_index, has_effect


def hoist_from_inner_loops(program: Program) -> Program:
    """Products of an inner loop that do not depend on the outer one are computed before both."""

    made: list[Sequence[Value]] = []

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        out = _cut(b, node) if isinstance(node, Scan) and not node.count else None
        made.extend([] if out is None else [out])
        return out

    cut = rewrite(program, visit)
    return hoist_invariants(cut) if made else program


def _cut(b: Block, s: Scan) -> Sequence[Value] | None:
    if b.scan is None or s.size or any(map(has_effect, s.body)):
        return None
    entering = [p for p in s.ports if isinstance(p, (Const, Seq))]
    known = [p for p in entering if b.resolve(p.outer)[0] is not b]
    early = _early(s, known)
    return _emit(b, s, early, known) if 0 < len(early) < len(s.body) else None


def _early(s: Scan, ports: list[Const | Seq]) -> list[Op]:
    """Products of what `ports` bring from outside of both loops, with what they read. They differ
    between the iterations of the inner loop: others leave it anyway."""
    able: dict[Value, Op] = {}
    known = {p.inner for p in ports}
    moving = {p.inner for p in ports if isinstance(p, Seq)}
    for n in s.body:
        if not isinstance(n, Op) or len(n.results) != 1 or may_raise(n) or depends_on_index(s, n):
            continue
        if n.operands and all(v in known or v in able for v in n.operands):
            able[n.result] = n
            moving.update(n.results if moving.intersection(n.operands) else ())
    wanted: set[Op] = set()
    for n in reversed(able.values()):
        if n in wanted or is_product(n) and n.result in moving:
            wanted.add(n)
            wanted.update(able[v] for v in n.operands if v in able)
    return [n for n in able.values() if n in wanted]


def _emit(b: Block, s: Scan, early: list[Op], ports: list[Const | Seq]) -> Sequence[Value]:
    late = [n for n in s.body if n not in early]
    read = {v for n in late for v in n.operands} | set(s.needed)
    env = {v: Value(v.type, v.name) for v in (s.index, *(p.inner for p in ports))}
    body: list[Node] = []
    for n in early:
        fresh = renewed(with_operands(n, lambda v: env[v]))
        body.append(fresh)
        env.update(zip(n.results, fresh.results))
    used = {v for n in body for v in n.operands}
    entering = [replace(p, inner=env[p.inner]) for p in ports if env[p.inner] in used]
    stacks = {n.result: s.new_stack(env[n.result]) for n in early if n.result in read}
    put(b, Scan(env[s.index], s.trip, (*entering, *stacks.values()), tuple(body), s.loc))
    kept = [p for p in s.ports if not isinstance(p, (Const, Seq)) or p.inner in read]
    seqs = [Seq(v, p.outer, 0) for v, p in stacks.items()]
    put(b, replace(s, ports=(*kept, *seqs), body=tuple(late)))
    return s.results


__all__ = ["hoist_from_inner_loops"]
