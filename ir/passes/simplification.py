"""Simplification: peephole rules, common subexpressions, constant branches, dead code.

The rules (`ir.passes.rules`) are exact to the last bit. A result computed twice in one block is
computed once; effects are never merged. Nothing moves into or out of a loop or a branch, but a
branch that is surely taken takes the place of its cond. Rounds repeat until nothing changes.

`simplify_apart` comes before gradients are taken. It keeps tensors that the caller sees - inputs,
also as they are after the writes, and outputs - apart from others with the same values: where eager
keeps another one, the backward program must not read a tensor that the caller may overwrite.

    %y = assign(%x)   is %x for `simplify`; it stays for `simplify_apart` if %x is an input
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ir.passes.rules import RULES, fold
from ir.passes.simplify_cond import branch_taken, joins_that_agree
from ir.program import Carry, Cond, Last, Node, Op, Program, Scan, Stack, Value
from ir.rewrite import Block, drop_dead, rewrite
from ir.uses import counts, entering, has_effect, size_names

MOST_ROUNDS = 20


def simplify(program: Program) -> Program:
    return _simplified(program, apart=False)


def simplify_apart(program: Program) -> Program:
    """Like `simplify`; no two tensors become one if the caller sees one of them."""
    return _simplified(program, apart=True)


def _simplified(program: Program, apart: bool) -> Program:
    for _ in range(MOST_ROUNDS):
        round_ = _Round(_named(program), set(program.outputs) if apart else None)
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
    outputs: the outputs, if tensors that the caller sees stay apart from others.
    seen: block and what an op computes -> its results.
    """

    def __init__(self, named: set[str], outputs: Collection[object] | None) -> None:
        self.changed, self.named, self.outputs = False, named, outputs
        self.seen: dict[object, tuple[Value, ...]] = {}

    def visit(self, b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Scan):
            out = loop_of_nothing(b, node, self.named)
        elif isinstance(node, Cond):
            out = branch_taken(b, node)
            out = joins_that_agree(b, node) if out is None else out
        elif isinstance(node, Op) and node.name == "check":
            out = [] if b.constant(node.operands[0]) else None
        elif isinstance(node, Op) and node.name != "stored" and not has_effect(node):
            out = self.known(b, node) or self.by_rule(b, node)
        else:
            return None
        self.changed |= out is not None
        return out

    def known(self, b: Block, op: Op) -> Sequence[Value] | None:
        """tanh(x) and tanh(x) => the first of them; same op, operands and attributes."""
        key = (b, op.name, op.operands, repr(op.attrs))
        first = self.seen.setdefault(key, op.results)
        if first is op.results or (not op.row.views and self.seen_outside((*first, *op.results))):
            return None
        return [b.new(v) for v in first]

    def seen_outside(self, values: Sequence[Value]) -> bool:
        return self.outputs is not None and any(v in self.outputs for v in values)

    def by_rule(self, b: Block, op: Op) -> Sequence[Value] | None:
        for rule in (fold, *RULES.get(op.name, ())):
            count = len(b.ops)
            out = rule(b, op)
            if out is not None and not self.one_of_two(b, op, out, count):
                return [out]
        return None

    def one_of_two(self, b: Block, op: Op, out: Value, count: int) -> bool:
        """Whether `out` is another tensor than the result of `op`, and the caller sees one of them.

        `count`: how many ops the block had before the rule.
        """
        if self.outputs is None:
            return False
        block, source = storage(b, out)
        if op.row.views and storage(b, op.operands[0])[1] is source:
            return False
        if block is b and any(source in n.results for n in b.ops[count:]):
            return False
        maker = block.producer.get(source)
        outside = block.outer is None and (maker is None or maker.name == "stored")
        return outside or self.seen_outside((source, op.result))


def storage(b: Block, v: Value) -> tuple[Block, Value]:
    """The tensor that `v` is a view of, and its block; ports of loops and branches are followed.

    A carry is followed to what it is in the first iteration.
    """
    while True:
        op = b.producer.get(v)
        if isinstance(op, Op) and op.row.views:
            v = op.operands[0]
        elif op is None and b.outer is not None and b.node is not None:
            ports = {p.inner: p.outer for p in entering(b.node)}
            if isinstance(b.node, Scan):
                ports |= {p.inner: p.init for p in b.node.ports if isinstance(p, Carry)}
            if v not in ports:
                return b, v
            b, v = b.outer, ports[v]
        else:
            return b, v


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


__all__ = ["simplify", "simplify_apart"]
