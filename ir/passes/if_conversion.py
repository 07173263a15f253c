"""If-conversion: both sides of a short branch are computed, and `where` selects by the test.

    cond %p {                                    %a = tanh(%x)
      const %x1 = %x                             %y = where(%p, %a, %x)
      join  %y = %a else %x1          =>
      then
        %a = tanh(%x1)
      else

What is left are elementwise ops, which become one kernel with those around them. Exact to the last
bit: what the other branch would have computed is not looked at, be it NaN.

Only branches of at most MOST_OPS elementwise ops that cannot raise; their results have one shape
up to broadcasting, or are SMALL. Larger tensors keep the cond: a join that hands on what was there
before costs nothing, a selection passes over all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ir.analysis.cost import is_free
from ir.opdef import ShapeError, broadcast, collecting
from ir.passes.rules import can_fail
from ir.program import Cond, Node, Op, Program, Value
from ir.rewrite import Block, rewrite, substitute
from ir.types import Type, product
from ir.uses import has_effect

MOST_OPS, SMALL, LARGE = 8, 4096, 65536
SELECTABLE = "fib"


def select_cond(program: Program) -> Program:
    """Conds of a few elementwise ops become these ops and one `where` for each join."""
    return rewrite(program, _visit)


def _visit(b: Block, node: Node) -> Sequence[Value] | None:
    if not isinstance(node, Cond) or not node.outs or not _is_short(node):
        return None
    inside = (op for ops, _ in node.branches for op in ops)
    if any(isinstance(op, Op) and b.in_its_branch(op) for op in inside):
        return None
    outer = {p.inner: p.outer for p in node.ins}
    for ops, _ in node.branches:
        for op in substitute(ops, outer):
            b.append(op)
    out = []
    for j in node.outs:
        then, orelse = outer.get(j.then, j.then), outer.get(j.orelse, j.orelse)
        out.append(b.where(node.test, then, orelse, hint=j.outer.name))
    return out


def _is_short(c: Cond) -> bool:
    made: list[Type] = [j.outer.type for j in c.outs]
    for ops, _ in c.branches:
        if not all(map(_is_elementwise, ops)):
            return False
        work = [n for n in ops if not is_free(n)]
        made += [n.results[0].type for n in work]
        if len(work) > MOST_OPS:
            return False
    if not all(j.outer.type.dtype.kind in SELECTABLE for j in c.outs):
        return False
    if any(j.outer.type.dtype.widened for j in c.outs):
        return False
    return all(_elements(t) <= SMALL for t in made) or _one_shape(made)


def _is_elementwise(node: Node) -> bool:
    if not isinstance(node, Op) or has_effect(node) or can_fail(node):
        return False
    return node.row.kernel is not None or is_free(node)


def _elements(t: Type) -> float:
    """The number of elements; infinite if the call decides it."""
    n = product(t.shape)
    return n if isinstance(n, int) else float("inf")


def _one_shape(types: Iterable[Type]) -> bool:
    try:
        with collecting() as wanted:
            shape = broadcast(*(t.shape for t in types))
    except ShapeError:
        return False
    known = product(d for d in shape if isinstance(d, int))
    return not wanted and isinstance(known, int) and known <= LARGE


__all__ = ["select_cond"]
