"""Smaller programs: rules on single ops, common subexpressions, short loops, dead code.

The rules (`ir.passes.rules`) are exact to the last bit. A result computed twice in one block is
computed once; effects are never merged. Rounds repeat until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.core import Carry, Last, Node, Op, Program, Scan, Stack, Value
from ir.passes.rules import RULES, fold
from ir.rewrite import Block, drop_dead, has_effect, rewrite
from ir.text import print_attr

MOST_ROUNDS = 20


def simplify(program: Program) -> Program:
    for _ in range(MOST_ROUNDS):
        round_ = _Round()
        program = drop_dead(rewrite(program, round_.visit))
        if not round_.changed:
            break
    return program


class _Round:
    """One walk over the program. `seen`: block and what an op computes -> its results."""

    def __init__(self) -> None:
        self.changed = False
        self.seen: dict[object, tuple[Value, ...]] = {}

    def visit(self, b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Scan):
            out = scan_of_nothing(b, node)
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


def scan_of_nothing(b: Block, s: Scan) -> Sequence[Value] | None:
    """scan %t < 0 with a carry and a stack  =>  its init, and an empty tensor"""
    if s.trip != 0 or any(isinstance(p, Last) for p in s.ports):
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
