"""Smaller programs: rules on single ops, common subexpressions, constant branches, dead code.

The rules (`ir.passes.rules`) are exact to the last bit. A result computed twice in one block is
computed once; effects are never merged. Nothing moves into or out of a loop or a branch, but a
branch that is surely taken takes the place of its cond. Rounds repeat until nothing changes.

Out of scope: a while loop that surely runs `trip` times stays one, because types name its count.
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.core import Carry, Cond, Last, Node, Op, Program, Scan, Stack, Value
from ir.literal import print_attr
from ir.passes.branches import branch_taken, joins_that_agree
from ir.passes.rules import RULES, fold
from ir.rewrite import Block, counts, drop_dead, has_effect, rewrite, size_names

MOST_ROUNDS = 20


def simplify(program: Program) -> Program:
    for _ in range(MOST_ROUNDS):
        round_ = _Round(_named(program))
        program = drop_dead(rewrite(program, round_.visit))
        if not round_.changed:
            break
    return program


def _named(program: Program) -> set[str]:
    """The sizes that nodes name, if loops define some."""
    if not any(counts(program.ops)):
        return set()
    return set().union(*map(size_names, program.ops))


class _Round:
    """One walk over the program.

    named: the sizes that nodes name.
    seen: block and what an op computes -> its results.
    """

    def __init__(self, named: set[str]) -> None:
        self.changed, self.named = False, named
        self.seen: dict[object, tuple[Value, ...]] = {}

    def visit(self, b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Scan):
            out = loop_of_nothing(b, node, self.named)
        elif isinstance(node, Cond):
            out = branch_taken(b, node)
            out = joins_that_agree(b, node) if out is None else out
        elif isinstance(node, Op) and node.name == "check":
            out = [] if b.constant(node.operands[0]) else None
        elif isinstance(node, Op) and not has_effect(node):
            out = self.known(b, node) or by_rule(b, node)
        else:
            return None
        self.changed |= out is not None
        return out

    def known(self, b: Block, op: Op) -> Sequence[Value] | None:
        """tanh(x) and tanh(x) => the first of them; same op, operands and attributes."""
        key = (b, op.name, op.operands, print_attr(op.attrs))
        first = self.seen.setdefault(key, op.results)
        return [b.new(v) for v in first] if first is not op.results else None


def by_rule(b: Block, op: Op) -> Sequence[Value] | None:
    for rule in (fold, *RULES.get(op.name, ())):
        out = rule(b, op)
        if out is not None:
            return [out]
    return None


def loop_of_nothing(b: Block, s: Scan, named: set[str]) -> Sequence[Value] | None:
    """scan %t < 0 with a carry and a stack  =>  its init, and an empty tensor

    A while loop that does not start, likewise, if nothing names its count.
    """
    stops = s.go is not None and b.constant(s.go.init) in (False, 0)
    if not (stops or s.trip == 0) or any(isinstance(p, Last) for p in s.ports):
        return None
    if s.count in named:
        return None
    out: list[Value] = []
    for p in s.outs:
        if isinstance(p, Carry):
            out.append(p.init)
        elif isinstance(p, Stack):
            t = p.outer.type
            out.append(b.full(value=0, shape=t.shape, dtype=t.dtype))
    return out


__all__ = ["simplify"]
