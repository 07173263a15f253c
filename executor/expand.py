"""Composite rows and custom blocks expanded, so that a backend never meets one."""

from __future__ import annotations

from collections.abc import Sequence

from ir import Builder, Op, Program, Value
from ir.program import Custom, Node
from ir.rewrite import Block, inlined, reemit, rewrite, walk


def expand_composites(program: Program) -> Program:
    """The program without rows that have an `expand`, and without custom blocks; the same object
    if there is none."""
    if not any(map(_composite, walk(program.ops))):
        return program
    return rewrite(program, _expanded)


def _composite(node: Node) -> bool:
    if not isinstance(node, Op):
        return isinstance(node, Custom)
    row = node.row
    return row.expand is not None and row.kernel is None and row.reduce is None


def _expanded(block: Block, node: Node) -> Sequence[Value] | None:
    """What an expansion consists of may be composite, too."""
    if isinstance(node, Custom):
        return inlined(block, node)
    if not isinstance(node, Op) or not _composite(node):
        return None
    inner = Builder(node.loc)
    assert node.row.expand is not None
    out = node.row.expand(inner, *node.operands, **node.attrs)
    reemit(inner.ops, block, _expanded)
    results = out if isinstance(out, (tuple, list)) else (out,)
    return [block.new(v) for v in results]
