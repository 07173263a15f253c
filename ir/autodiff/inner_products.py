"""Products that an inner loop stacks for sums of the outer loop are hoisted out of it.

    body                                             body
      scan %l < N {                                    scan %l < N {
        seq   %x = %xs[l]                                ...
        stack %ps = %p axis 0                            stack %gs = %g axis 0
        body                                  =>       }
          %p = matmul(%x, %g, trans_x=True)            %ps = matmul(%xs, %gs, trans_x=True)
      }                                                %n = add(%dw, %ps)
      %n = add(%dw, %ps)

So are the gradients of the weights of layers, one after the other in a loop inside of the loop over
time. As one op of the outer loop they are sums that are taken after it
(`ir.autodiff.deferred_sums`). Sums of what such a product reads, the gradients of biases, leave
as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ir.program import Const, Node, Op, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, in_order, live_ops, rewrite
from ir.uses import depends_on_index, uses

#: with more rows, a product adds to the sum while it is in registers
FEW_ROWS = 8


def products_of_inner_loops(program: Program) -> Program:
    """Products of few rows, and sums of their operands, are computed for all inner steps."""
    turned: dict[Value, Value] = {}

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if b.scan is None:
            return None
        if isinstance(node, Scan) and not node.count:
            return _Inner(b, node).rebuilt()
        return _turned(b, node, turned) if isinstance(node, Op) and is_reversal(node) else None

    return rewrite(program, visit)


def is_product(op: Op, ndim: int) -> bool:
    """Whether `op` is a product of few rows, each row of the one with that of the other."""
    if op.name != "matmul" or not op.attrs["trans_x"] or op.attrs["trans_y"]:
        return False
    rows = op.operands[0].type.shape[-2] if ndim > 1 else 0
    same = all(v.type.ndim == ndim for v in op.operands)
    return same and isinstance(rows, int) and rows <= FEW_ROWS


def is_reversal(op: Op) -> bool:
    """Whether `op` shows all slices along the first axis, the last one first."""
    if op.name != "slice":
        return False
    n, a = op.operands[0].type.shape[0], op.attrs
    return bool(a["axis"] == 0 and a["step"] == -1 and a["length"] == n and a["start"] == n - 1)


class _Inner:
    """One inner loop; `stacks` are its ports along a first axis, and new ones."""

    def __init__(self, b: Block, s: Scan) -> None:
        self.b, self.s = b, s
        self.seqs = {p.inner: p for p in s.ports if isinstance(p, Seq)}
        self.consts = {p.inner for p in s.ports if isinstance(p, Const)}
        self.stacks = {p.inner: p for p in s.ports if isinstance(p, Stack) and p.axis == 0}

    def rebuilt(self) -> Sequence[Value] | None:
        s = self.s
        maker: dict[Value, Any] = {r: n for n in s.body for r in n.results}
        count = uses(s.body, s.needed)
        made = {p.outer: maker.get(v) for v, p in self.stacks.items() if count[v] == 1}
        ops = {v: op for v, op in made.items() if isinstance(op, Op)}
        found = {v: op for v, op in ops.items() if self.is_taken(op)}
        read = {v for op in found.values() for v in op.operands}
        found.update((v, op) for v, op in ops.items() if _is_sum(op) and op.operands[0] in read)
        if not found:
            return None
        every = {v: self.steps(v) for op in found.values() for v in op.operands}
        new = [p for p in self.stacks.values() if p not in s.ports]
        kept = [p for p in s.ports if not (isinstance(p, Stack) and p.outer in found)]
        loop = replace(s, ports=in_order((*kept, *new)))
        self.b.append(replace(loop, body=live_ops(loop.body, loop.needed)))
        out = {v: _emitted(self.b, op, [self.all(every[q]) for q in op.operands])
               for v, op in found.items()}  # fmt: skip
        return [out.get(r, r) for r in s.results]

    def is_taken(self, op: Op) -> bool:
        if not is_product(op, 2) or depends_on_index(self.s, op):
            return False
        return not any(v in self.consts for v in op.operands)

    def steps(self, v: Value) -> Seq | Stack:
        """The port that holds `v` of all steps."""
        p = self.seqs.get(v)
        n = self.s.trip
        if p is not None and p.axis == 0 and p.outer.type.shape[0] == n:
            if (p.start, p.step) in ((0, 1), (n - 1, -1)):
                return p
        if v not in self.stacks:
            self.stacks[v] = self.s.new_stack(v)
        return self.stacks[v]

    def all(self, p: Seq | Stack) -> Value:
        """In the order of the iterations."""
        backwards = isinstance(p, Seq) and p.step < 0
        return _reversed(self.b, p.outer) if backwards else p.outer


def _is_sum(op: Op) -> bool:
    return op.name == "sum" and not op.attrs["keepdim"]


def _emitted(b: Block, op: Op, operands: Sequence[Value]) -> Value:
    """`op` of all steps."""
    attrs = dict(op.attrs)
    if op.name == "sum":
        ndim = op.operands[0].type.ndim
        attrs["axes"] = tuple(a % ndim + 1 for a in attrs["axes"] or range(ndim))
    return b.at(op).emit(op.name, operands, attrs)[0]


def _turned(b: Block, op: Op, turned: dict[Value, Value]) -> Sequence[Value] | None:
    """The product of the reversed operands, for the reversed product: of sequences that the inner
    loop reads from the end nothing is left to be reversed."""
    inner = b.op_of(op.operands[0], "matmul", "sum")
    if inner is None or inner.operands[0].type.ndim != 3:
        return None
    if not (is_product(inner, 3) or _is_sum(inner) and 0 not in inner.attrs["axes"]):
        return None
    for v in inner.operands:
        if v not in turned:
            turned[v] = _reversed(b, v)
    operands = [turned[v] for v in inner.operands]
    return b.emit(inner.name, operands, inner.attrs)


def _reversed(b: Block, v: Value) -> Value:
    op = b.op_of(v, "slice")
    if op is not None and is_reversal(op):
        return op.operands[0]
    n = v.type.shape[0]
    new: Value = b.slice(v, axis=0, start=n - 1, length=n, step=-1)
    return new


__all__ = ["FEW_ROWS", "is_product", "products_of_inner_loops"]
