"""Complex tensors of a record as pairs of floats along a last axis, as they lie in memory.

A function is recorded with complex element types, so that a tensor knows that it is complex through
loops, branches, views and writes, and a row takes one only if it says what its attributes are for
pairs (`OpDef.pairs`). What becomes a program has no complex numbers: `lay_out` gives the values of
the record their types of pairs. Values and ops stay the same objects, because the trace knows facts
about them; nothing else sees them before.
"""

from __future__ import annotations

from collections.abc import Iterable

from ir.program import Cond, Custom, Fused, Node, Op, Program, Scan, Value
from ir.types import pair_type

#: rows that a record has and a program has not
RECORDED = ("as_real", "as_complex")


def is_complex(v: Value) -> bool:
    return v.type.dtype.kind == "c"


def lay_out(program: Program) -> None:
    """Make all complex values of a recorded program pairs."""
    if not any(map(is_complex, _values(program))):
        return
    _lay_out_ops(program.ops)
    for v in _values(program):
        if is_complex(v):
            object.__setattr__(v, "type", pair_type(v.type))


def _lay_out_ops(ops: Iterable[Node]) -> None:
    for node in ops:
        if not isinstance(node, Op):
            for block in _blocks(node):
                _lay_out_ops(block)
            continue
        values = (*node.operands, *node.results)
        if not any(map(is_complex, values)):
            continue
        operands, results = ([v.type for v in vs] for vs in (node.operands, node.results))
        attrs = node.row.paired(operands, results, node.attrs)
        object.__setattr__(node, "attrs", attrs)
        if node.name in RECORDED:
            object.__setattr__(node, "name", "alias")


def _blocks(node: Node) -> tuple[tuple[Node, ...], ...]:
    assert not isinstance(node, (Op, Fused))
    return (node.body,) if isinstance(node, Scan) else tuple(ops for ops, _ in node.branches)


def _values(program: Program) -> Iterable[Value]:
    yield from (i.value for i in program.inputs)
    yield from _defined(program.ops)


def _defined(ops: Iterable[Node]) -> Iterable[Value]:
    """Yield the values that nodes and the blocks inside of them define."""
    for node in ops:
        yield from node.results
        if isinstance(node, Op):
            continue
        if isinstance(node, Scan):
            yield from node.inner
        elif isinstance(node, (Cond, Custom)):
            yield from (p.inner for p in node.ins)
        if isinstance(node, Custom):
            yield from (*node.given, *(p.inner for p in node.saved))
        for block in _blocks(node):
            yield from _defined(block)


__all__ = ["RECORDED", "is_complex", "lay_out"]
