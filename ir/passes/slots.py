"""Slots: outputs that are an input's storage after its last write.

    %x1 = stored(%s, into="x")                  write %x = %s
    return %x1                          =>      return slot %x
    write %x = %x1

`functionalize` marks what an input holds after its last write by the row `stored`: readers of that
storage read the mark, readers of a tensor that merely has the same values read the operand. Nothing
merges or simplifies it, so the mark says which tensor is meant; values that are equal say nothing.
`ir.autodiff` asks the same question (`sources`) of the joint program, for what the backward part
reads. `expand` drops the marks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ir.analysis.history import KINDS
from ir.program import Node, Op, Program, Slot, Value
from ir.rewrite import Block, rewrite
from ir.uses import uses


def inplace_source(program: Program) -> Program:
    """The program with slots among its outputs."""
    found = sources(program)
    if found.keys().isdisjoint(program.outputs):
        return program
    outputs = tuple(
        Slot(program.inputs[found[v]].value) if isinstance(v, Value) and v in found else v
        for v in program.outputs
    )
    return without_idle(replace(program, outputs=outputs))


def sources(program: Program) -> dict[Value, int]:
    """The values that are the storage of an input after the writes, with the input's number."""
    at = {i.value: k for k, i in enumerate(program.inputs) if i.kind in KINDS}
    marks = {n.result for n in program.ops if isinstance(n, Op) and n.name == "stored"}
    return {v: at[target] for target, v in program.writes if v in marks and target in at}


def without_idle(program: Program) -> Program:
    """Without marks that nothing but the write reads, and those of writes that are not the last."""
    final = {v for _, v in program.writes}
    values = (v for v in program.outputs if isinstance(v, Value))
    read = uses(program.ops, values)
    return unmarked(program, {v for v in final if read[v]})


def unmarked(program: Program, kept: Collection[Value]) -> Program:
    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Op) and node.name == "stored" and node.result not in kept:
            return node.operands
        return None

    return rewrite(program, visit)


__all__ = ["inplace_source", "sources", "without_idle"]
