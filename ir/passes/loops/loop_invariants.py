"""Loop-invariant code motion.

What may raise, or never end, leaves a loop only if its first iteration surely reaches it, and
never leaves a while loop or a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ir.analysis.alias import at_least_once
from ir.analysis.cost import is_free
from ir.analysis.ranges import facts_of, in_range
from ir.passes.loops.slices_to_ports import put
from ir.passes.rules import can_fail
from ir.passes.simplify_cond import only_read
from ir.program import ENDLESS, Cond, Const, Last, Node, Op, Port, Program, Scan, Value
from ir.rewrite import REGIONS, Block, map_blocks, renewed, rewrite, with_operands
from ir.types import Dim
from ir.uses import consts, gives, has_effect, needs, uses


def hoist_invariants(program: Program) -> Program:
    """Ops on const ports are computed once, before the loop.

        body                                         %y = tanh(%w)
          %y = tanh(%w1)   of const %w1 = %w   =>    const %y1 = %y

    An op that checks its data stays where the loop may run no iteration, behind effects, and
    behind others that check: which error comes first does not change.
    What leaves a branch is computed whether the branch is taken or not, so only views do, and
    single numbers and constants that leave the loop as well (`_out_of_branches`).
    """
    facts = facts_of(program)
    steady: set[Value] = set()

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Cond):
            return _out_of_branches(b, node, facts, steady)
        return _invariants(b, node, program, facts) if isinstance(node, Scan) else None

    return rewrite(program, visit)


def _invariants(
    b: Block, s: Scan, program: Program, facts: tuple[Dim, ...]
) -> Sequence[Value] | None:
    runs = at_least_once(s, program)
    outside = {p.inner: p.outer for p in consts(s)}
    body: list[Node] = []
    made: list[Const] = []
    named = {s.size} if s.size else set[str]()
    for node in s.body:
        moved = None
        if all(v in outside for v in node.operands) and not has_effect(node):
            moved = with_operands(node, lambda v: outside[v])
        if moved is None or needs(node, named) & named or not (runs or _safe(b, moved, facts)):
            body.append(node)
            runs = runs and not has_effect(node) and not can_fail(node)
            named.update(v for v in gives(node) if isinstance(v, str))
            continue
        fresh = renewed(moved)
        b.append(fresh)
        outside.update(zip(node.results, fresh.results))
        made += [Const(r, v) for r, v in zip(node.results, fresh.results)]
    if len(body) == len(s.body):
        return None
    read = uses(body, s.needed)
    kept = [p for p in s.ports if not isinstance(p, Const) or p.inner in read]
    ports: list[Port] = [*kept, *(p for p in made if p.inner in read)]
    put(b, replace(s, ports=tuple(ports), body=tuple(body)))
    return s.results


def _safe(b: Block, node: Node, facts: tuple[Dim, ...]) -> bool:
    """Whether the node can run although the loop or the branch around it may not."""
    if isinstance(node, REGIONS):
        if isinstance(node, Scan) and (node.trip == ENDLESS or _has_last(node)):
            return False
        return all(_safe(inner, n, facts) for inner in Block.inside(node, b) for n in inner.ops)
    if isinstance(node, Op) and node.name == "dynamic_index":
        return in_range(b, node, facts)
    return not can_fail(node)


def _has_last(s: Scan) -> bool:
    return any(isinstance(p, Last) for p in s.ports)


# ---------------------------------------------------------------- out of branches
def _out_of_branches(
    b: Block, c: Cond, facts: tuple[Dim, ...], steady: set[Value]
) -> Sequence[Value] | None:
    """Inside of a loop, what costs nothing leaves a branch, so that it can leave the loop as well.

    then                                             %xt = dynamic_index(%x1, %t, axis=1)
      %xt = dynamic_index(%x2, %t2, axis=1)   =>            cond %p {
                                                       const %xt1 = %xt
    """
    near = tuple(_up_to_loop(b))
    if near[-1].scan is None:
        return None
    moving = _Moving(b, near, facts, steady, {p.inner: p.outer for p in c.ins})
    kept = map_blocks(c, moving.stay)
    if not moving.made:
        return None
    assert isinstance(kept, Cond)
    b.append(only_read(replace(kept, ins=(*c.ins, *moving.made))))
    return c.results


@dataclass(eq=False)
class _Moving:
    """The ops that move out of the branches of a cond into the block `b`.

    near: `b` and the blocks around it, up to the body of the innermost loop.
    steady: the values made by this pass that are the same in every iteration of that loop.
    outside: what the values of the branches are in `b`, as far as they are known there.
    """

    b: Block
    near: tuple[Block, ...]
    facts: tuple[Dim, ...]
    steady: set[Value]
    outside: dict[Value, Value]
    made: list[Const] = field(default_factory=list)

    def stay(self, ops: Sequence[Node], leaving: tuple[Value, ...]) -> list[Node]:
        """The ops of a branch that do not leave it."""
        kept: list[Node] = []
        named: set[str] = set()
        for node in ops:
            if not self.leaves(node, named):
                kept.append(node)
                named.update(v for v in gives(node) if isinstance(v, str))
        return kept

    def leaves(self, node: Node, named: set[str]) -> bool:
        """Whether the node leaves; `named`: counts of the loops that stay before it."""
        if not isinstance(node, Op) or needs(node, named) & named or has_effect(node):
            return False
        if not all(v in self.outside for v in node.operands) or self.b.in_its_branch(node):
            return False
        moved = renewed(with_operands(node, lambda v: self.outside[v]))
        same = all(self.is_steady(v) for v in moved.operands)
        if not (node.row.is_address or (same and _cheap(node))):
            return False
        if not _safe(self.b, moved, self.facts):
            return False
        self.b.append(moved)
        self.steady.update(moved.results if same else ())
        self.outside.update(zip(node.results, moved.results))
        self.made += [Const(r, v) for r, v in zip(node.results, moved.results)]
        return True

    def is_steady(self, v: Value) -> bool:
        return v in self.steady or self.b.resolve(v)[0] not in self.near


def _cheap(op: Op) -> bool:
    return is_free(op) or all(r.type.ndim == 0 for r in op.results)


def _up_to_loop(b: Block) -> Iterator[Block]:
    block: Block | None = b
    while block is not None:
        yield block
        block = block.outer if block.scan is None else None


__all__ = ["hoist_invariants"]
