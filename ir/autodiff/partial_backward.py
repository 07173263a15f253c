"""The backward program of a call if only some of its results receive a gradient.

Values that depend on gradients are linear in them, or belong to the backward of a PyLayer, which
eager does not run if none of its results has a gradient. So a value that depends only on missing
gradients is zero and is not computed; nor are its operands read, which the user may have
overwritten.

    backward(%d_a, %d_b, %x)                      with d_a only
      %p = multiply(%d_a, %x)
      %q = multiply(%d_b, %x)              =>       %p = multiply(%d_a, %x)
      %g = add(%p, %q)
    return %g                                       return %p

Out of scope: values that a loop or a branch computes from several gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ir.program import Node, Op, Program, Scan, Value
from ir.rewrite import Block, drop_dead, reemit, with_ops

Numbers = frozenset[int]


def with_arrived(backward: Program, given: int, arrived: Collection[int]) -> Program:
    """`backward`, whose first `given` inputs are gradients, when only some of these are there.

    It has the same inputs and outputs; outputs that no gradient reaches are zeros.
    """
    return _Missing(backward, given, frozenset(arrived)).program()


def unreached(backward: Program, given: int, arrived: Collection[int]) -> frozenset[int]:
    """The numbers of the outputs that none of these gradients reaches."""
    missing = _Missing(backward, given, frozenset(arrived))
    missing.program()
    found = enumerate(backward.results)
    return frozenset(k for k, v in found if missing.is_missing(missing.depends.get(v, frozenset())))


def inputs_read(program: Program) -> set[int]:
    """The numbers of the inputs that the program reads."""
    used = {v for n in program.ops for v in n.operands} | set(program.needed)
    return {k for k, i in enumerate(program.inputs) if i.value in used}


class _Missing:
    """`depends`: on which of the gradients a value depends."""

    def __init__(self, program: Program, given: int, arrived: Numbers) -> None:
        self.arrived = arrived
        self.backward = program
        gradients = enumerate(program.inputs[:given])
        self.depends: dict[Value, Numbers] = {i.value: frozenset((k,)) for k, i in gradients}

    def program(self) -> Program:
        block = Block()
        reemit(self.backward.ops, block, self.visit)
        return drop_dead(with_ops(self.backward, block))

    def visit(self, b: Block, node: Node) -> Sequence[Value] | None:
        if b.outer is not None:
            return None
        found: Numbers = frozenset().union(*(self.depends.get(v, ()) for v in node.operands))
        self.depends.update(dict.fromkeys(node.results, found))
        if isinstance(node, Op) and node.name == "add":
            return self.without_zero(node)
        counts = isinstance(node, Scan) and node.count
        if not node.results or counts or not self.is_missing(found):
            return None
        return [self.zero(b, v) for v in node.results]

    def is_missing(self, found: Numbers) -> bool:
        return bool(found) and found.isdisjoint(self.arrived)

    def without_zero(self, node: Op) -> Sequence[Value] | None:
        """add(%p, %zero)  =>  %p, of the same type"""
        zero = [self.is_missing(self.depends.get(v, frozenset())) for v in node.operands]
        for v, other in zip(node.operands, reversed(zero)):
            if other and v.type == node.result.type:
                return [v]
        return None

    def zero(self, b: Block, v: Value) -> Value:
        kind = {"f": 0.0, "b": False}.get(v.type.dtype.kind, 0)
        new: Value = b.full(value=kind, shape=v.type.shape, dtype=v.type.dtype)
        self.depends[new] = self.depends[v]
        return new


__all__ = ["inputs_read", "unreached", "with_arrived"]
