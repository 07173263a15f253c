"""Composite rows become smaller ops: what is left is primitive.

    %y = softmax(%x)   =>   max, subtract, exp, sum, divide

A custom block is replaced by its forward block: gradients have been taken before.
An expansion may itself use composites (mean inside of layer_norm): those are expanded as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.program import Custom, Node, Op, Program, Value
from ir.rewrite import Block, inlined, rewrite


def expand(program: Program) -> Program:
    """Afterwards no op has a row with `expand`, and there is no custom block."""
    return rewrite(program, _visit)


def _visit(b: Block, node: Node) -> Sequence[Value] | None:
    if isinstance(node, Custom):
        return inlined(b, node)
    return expand_op(b, node) if isinstance(node, Op) else None


def expand_op(b: Block, node: Op) -> Sequence[Value] | None:
    """Emit what `node` consists of and return what stands for its results; None if primitive."""
    if node.row.expand is None:
        return None
    inner = Block()
    inner.loc, inner.hint = node.loc, b.hint
    out = node.row.expand(inner, *node.operands, **node.attrs)
    results: tuple[Value, ...] = out if isinstance(out, tuple) else (out,)
    env: dict[Value, Value] = {}
    for part in inner.ops:
        assert isinstance(part, Op)
        operands = tuple(env.get(v, v) for v in part.operands)
        smaller = Op(part.name, operands, part.results, part.attrs, part.loc)
        values = expand_op(b, smaller)
        if values is None:
            b.append(smaller)
        else:
            env.update(zip(part.results, values))
    return tuple(env.get(v, v) for v in results)


__all__ = ["expand", "expand_op"]
