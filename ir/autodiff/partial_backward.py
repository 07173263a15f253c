"""The backward program of a call if only some of its results receive a gradient.

Values that depend on gradients are linear in them, or belong to the backward of a PyLayer, which
eager does not run if none of its results has a gradient. So a value that depends only on missing
gradients is zero and is not computed; nor are its operands read, which the user may have
overwritten. That holds at every depth: states and sequences of a loop that carry missing gradients
only leave it.

    backward(%d_a, %d_b, %x)                      with d_a only
      %p = multiply(%d_a, %x)
      %q = multiply(%d_b, %x)              =>       %p = multiply(%d_a, %x)
      %g = add(%p, %q)
    return %g                                       return %p
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product

from ir.analysis.recurrences import reached
from ir.passes.loops.ports import drop_unused_ports
from ir.program import Carry, Cond, Last, Node, Op, Program, Scan, Stack, Value
from ir.rewrite import Block, reemit, with_ops
from ir.uses import blocks, entering


def with_arrived(backward: Program, given: int, arrived: Collection[int]) -> Program:
    """`backward`, whose first `given` inputs are gradients, when only some of these are there.

    It has the same inputs and outputs. It does not read the gradients that are missing; outputs
    that no gradient reaches are zeros.
    """
    missing = _missing(backward, given, arrived)
    if not missing:
        return backward
    block, zeros = Block(), _Zeros(missing)
    for k, i in enumerate(backward.inputs[:given]):
        if k not in arrived:
            block.env[i.value] = zeros.zero(block, i.value)
    reemit(backward.ops, block, zeros.visit)
    return drop_unused_ports(with_ops(backward, block))


def unreached(backward: Program, given: int, arrived: Collection[int]) -> frozenset[int]:
    """The numbers of the outputs that none of these gradients reaches."""
    missing = _missing(backward, given, arrived)
    return frozenset(k for k, v in enumerate(backward.results) if v in missing)


def inputs_read(program: Program) -> set[int]:
    """The numbers of the inputs that the program reads."""
    used = {v for n in program.ops for v in n.operands} | set(program.needed)
    return {k for k, i in enumerate(program.inputs) if i.value in used}


# ---------------------------------------------------------------- finding
def _missing(backward: Program, given: int, arrived: Collection[int]) -> set[Value]:
    """The values, at every depth, that depend on gradients and on none that is there."""
    gradients = [i.value for i in backward.inputs[:given]]
    reads: dict[Value, list[Value]] = defaultdict(list)
    for v, result in _flow(backward.ops):
        reads[v].append(result)
    there = reached([v for k, v in enumerate(gradients) if k in arrived], reads)
    return reached(gradients, reads) - there


def _flow(ops: Iterable[Node]) -> Iterator[tuple[Value, Value]]:
    """Pairs of a value and one that is computed from it, at every depth."""
    for node in ops:
        if isinstance(node, (Scan, Cond)):
            yield from _through(node)
            for inside, _ in blocks(node):
                yield from _flow(inside)
        else:
            yield from product(node.operands, node.results)


def _through(node: Scan | Cond) -> Iterator[tuple[Value, Value]]:
    yield from ((p.outer, p.inner) for p in entering(node))
    if isinstance(node, Cond):
        for j in node.outs:
            yield from ((v, j.outer) for v in (node.test, j.then, j.orelse))
        return
    for p in node.ports:
        if isinstance(p, Carry):
            yield from ((p.init, p.inner), (p.next, p.inner))
            if p.last is not None:
                yield from ((p.init, p.last), (p.next, p.last))
        elif isinstance(p, (Stack, Last)):
            yield p.inner, p.outer


# ---------------------------------------------------------------- emitting
class _Zeros:
    """`missing`: the values that are zero, those emitted here included."""

    def __init__(self, missing: set[Value]) -> None:
        self.missing = missing

    def visit(self, b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Op) and node.name == "add":
            return self.without_zero(b, node)
        if self.missing.isdisjoint(node.results):
            return None
        if not self.missing.issuperset(node.results) or (isinstance(node, Scan) and node.count):
            b.append(node)
        return [self.zero(b, r) if r in self.missing else r for r in node.results]

    def without_zero(self, b: Block, node: Op) -> Sequence[Value] | None:
        """add(%p, %zero)  =>  %p, of the same type"""
        if node.result in self.missing:
            return [self.zero(b, node.result)]
        for v, other in zip(node.operands, reversed(node.operands)):
            if other in self.missing and v.type == node.result.type:
                return [v]
        return None

    def zero(self, b: Block, v: Value) -> Value:
        kind = {"f": 0.0, "b": False}.get(v.type.dtype.kind, 0)
        new: Value = b.full(value=kind, shape=v.type.shape, dtype=v.type.dtype)
        self.missing.add(new)
        return new


__all__ = ["inputs_read", "unreached", "with_arrived"]
