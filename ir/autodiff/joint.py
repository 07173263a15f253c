"""The joint graph: the forward ops, followed by the ops that compute gradients.

Blocks are walked backwards; every node adds the gradients of its operands to those that are there.
What is emitted reads forward values as if it stood in their block; loops and branches do not
(`ir.autodiff.region_gradients`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.autodiff.activity import is_float
from ir.autodiff.backward_state import BackwardState, Grads
from ir.autodiff.region_gradients import BranchGradient, LoopGradient
from ir.autodiff.residuals import NotDifferentiable, name_of
from ir.opdef import ShapeError
from ir.ops.gradients import Contribution, zeros
from ir.passes.cloning import NodeCopier
from ir.program import Cond, Custom, Node, Op, Scan
from ir.rewrite import Block, inlined


class Reverse(BackwardState):
    """Emits the gradients of blocks, node by node."""

    def block(self, ops: Sequence[Node], grads: Grads, b: Block) -> list[Node]:
        out: list[Node] = []
        for node in reversed(ops):
            if any(r in grads for r in node.results):
                b.loc = node.loc
                out += reversed(self.node(node, grads, b))
            else:
                out.append(node)
        return out[::-1]

    def node(self, node: Node, grads: Grads, b: Block) -> Sequence[Node]:
        if isinstance(node, Scan):
            return LoopGradient(self, node, grads, b).reverse()
        if isinstance(node, Cond):
            return [BranchGradient(self, node, grads, b).reverse()]
        if isinstance(node, Custom):
            return self.custom(node, grads, b)
        assert isinstance(node, Op), "kernels are fused after differentiation"
        self.op(node, grads, b)
        return [node]

    def op(self, op: Op, grads: Grads, b: Block) -> None:
        if not any(map(self.activity.active, op.operands)):
            return
        if op.row.grad is None:
            raise NotDifferentiable(name_of(op), op.loc)
        try:
            for v, g in zip(op.operands, self.gradients(op, grads, b)):
                self.add(b, grads, v, g)
        except ShapeError:
            if all(map(is_float, op.results)):
                raise
            raise NotDifferentiable(f"{name_of(op)} of integers", op.loc) from None

    def gradients(self, op: Op, grads: Grads, b: Block) -> Sequence[Contribution]:
        """The gradients of the operands; ShapeError where those of integers have no rule."""
        assert op.row.grad is not None
        given = [grads.get(r) for r in op.results]
        results = tuple(self.computed_in.get(r, r) for r in op.results)
        if len(results) == 1:
            return op.row.grad(b, given[0], results[0], *op.operands, **op.attrs)
        whole = tuple(g or zeros(b, r.type) for g, r in zip(given, results))
        return op.row.grad(b, whole, results, *op.operands, **op.attrs)

    def custom(self, c: Custom, grads: Grads, b: Block) -> list[Node]:
        """The forward block takes the place of the node; its backward block is emitted."""
        forward = Block()
        outs = inlined(forward, c)
        forward.loc = c.loc
        for (outer, _), inner in zip(c.outs, outs):
            forward.append(Op("assign", (inner,), (outer,), {}, c.loc))
        outside = {p.inner: p.outer for p in c.ins}
        copier = NodeCopier(self.fresh)
        for given, (outer, _) in zip(c.given, c.outs):
            copier.env[given] = grads.get(outer) or zeros(b, outer.type)
        copier.env |= {p.inner: outside.get(p.outer, p.outer) for p in c.saved}
        for node in copier.nodes(c.backward):
            b.append(node)
        for p, g in zip(c.ins, c.grads):
            self.add(b, grads, p.outer, None if g is None else copier.new(g))
        return forward.ops


__all__ = ["Reverse"]
