"""Deferred sums: accumulations in a backward loop become one reduction or product after it.

    carry %dw = %0 then %n last %dwT               seq   %h  = %hs[T - 1 - r]
    body                                           stack %gs = %g axis 0
      %p = matmul(%g, %h, trans_x=True)     =>
      %n = add(%dw, %p)                            %dwT = matmul(%gs, %hs flipped, trans_x=True)

One product with T * B rows instead of T products with B rows, each of which passes over all of
%dw: worth it for few rows. The order of summation changes, so this is for gradients only. Out of
scope: `while` loops, terms that are neither such a product nor a sum of what is stacked anyway, and
products whose operands take more room than the passes over the sum are worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.analysis.cost import bytes_of
from ir.autodiff.inner_products import is_product, products_of_inner_loops
from ir.program import Carry, Const, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, in_order, live_ops, rewrite
from ir.types import Dim, product
from ir.uses import depends_on_index, uses


def defer_sums(program: Program) -> Program:
    """Only carries that are nothing but sums change, and inner loops that collect their terms."""
    return rewrite(products_of_inner_loops(program), _visit)


def _visit(b: Block, node: Node) -> Sequence[Value] | None:
    if not isinstance(node, Scan) or node.count:
        return None
    sums = _Sums(b, node)
    return sums.rebuilt()


class _Sums:
    """One loop. `taken`: for each carry its terms that leave the loop. `stacks` are new ports."""

    def __init__(self, b: Block, s: Scan) -> None:
        self.b, self.s = b, s
        self.maker = {r: n for n in s.body for r in n.results}
        self.read = uses(s.body, s.needed)
        self.seqs = {p.inner: p for p in s.ports if isinstance(p, Seq)}
        self.consts = {p.inner for p in s.ports if isinstance(p, Const)}
        self.stacks = {p.inner: p for p in s.ports if isinstance(p, Stack) and p.axis == 0}
        self.taken: dict[Carry, list[Op]] = {}

    def rebuilt(self) -> Sequence[Value] | None:
        terms = {p: self.terms(p) for p in self.s.carries if p.last is not None}
        for kind in (self.is_product, self.is_sum):
            for p, found in terms.items():
                self.taken.setdefault(p, []).extend(t for t in found if kind(t))
        if not any(self.taken.values()):
            return None
        return self.emit({p: t for p, t in self.taken.items() if t})

    # -------- finding
    def terms(self, p: Carry) -> list[Op]:
        """Return the ops whose results an iteration adds to a carry that is an accumulator."""
        out: list[Op] = []
        at = p.next
        while at is not p.inner:
            node = self.maker.get(at)
            if not isinstance(node, Op) or node.name != "add" or self.read[at] != 1:
                return []
            at, term = node.operands
            if at.type != p.inner.type or term.type != p.inner.type:
                return []
            made = self.maker.get(term)
            if isinstance(made, Op) and self.read[term] == 1:
                out.append(made)
        return out if self.read[p.inner] == 1 else []

    def is_product(self, op: Op) -> bool:
        if not (is_product(op, 2) or is_product(op, 3)) or depends_on_index(self.s, op):
            return False
        if any(v in self.consts for v in op.operands):
            return False
        fresh = [v for v in op.operands if v not in self.seqs and v not in self.stacks]
        if bytes_of(*fresh) > 2 * bytes_of(op.result):
            return False
        for v in fresh:
            shape = (self.s.trip, *v.type.shape)
            self.stacks[v] = Stack(Value(v.type.with_shape(shape), v.name), v)
        return True

    def is_sum(self, op: Op) -> bool:
        return op.name == "sum" and not op.attrs["keepdim"] and op.operands[0] in self.stacks

    # -------- emitting
    def emit(self, taken: dict[Carry, list[Op]]) -> Sequence[Value]:
        gone = {t.result for found in taken.values() for t in found}
        env: dict[Value, Value] = {}
        body: list[Node] = []
        for node in self.s.body:
            if isinstance(node, Op) and node.name == "add" and node.operands[1] in gone:
                env[node.result] = env.get(node.operands[0], node.operands[0])
                continue
            operands = tuple(env.get(v, v) for v in node.operands)
            body.append(replace(node, operands=operands) if isinstance(node, Op) else node)
        ports: list[Port] = []
        for p in self.s.ports:
            if isinstance(p, Carry) and p in taken:
                p = replace(p, next=env.get(p.next, p.next), last=Value(p.init.type))
            ports.append(p)
        new = [q for v, q in self.stacks.items() if q not in self.s.ports]
        loop = replace(self.s, ports=in_order((*ports, *new)), body=tuple(body))
        loop = replace(loop, body=live_ops(loop.body, loop.needed))
        self.b.append(loop)
        after = {p: q for p, q in zip(self.s.carries, loop.carries)}
        found = {p.last: self.total(after[p], terms) for p, terms in taken.items()}
        return [found.get(r, r) for r in self.s.results]

    def total(self, p: Carry, terms: Sequence[Op]) -> Value:
        """Return the final value of the carry."""
        assert p.last is not None
        out = None if p.next is p.inner and self.b.constant(p.init) == 0 else p.last
        for op in terms:
            part = self.product(op) if op.name == "matmul" else self.sum(op)
            out = part if out is None else self.b.add(out, part)
        assert out is not None
        return out

    def product(self, op: Op) -> Value:
        """The narrower operand is the transposed one: it is the one that is walked by columns."""
        x, y = (self.rows(v) for v in self.aligned(*op.operands))
        new: Value
        if _columns(x) > _columns(y):
            perm = (1, 0) if x.type.ndim == 2 else (0, 2, 1)
            new = self.b.transpose(self.b.matmul(y, x, trans_x=True), perm=perm)
        else:
            new = self.b.matmul(x, y, trans_x=True)
        return new

    def sum(self, op: Op) -> Value:
        (x,) = op.operands
        axes = op.attrs["axes"] or tuple(range(x.type.ndim))
        axes = (0, *(a % x.type.ndim + 1 for a in axes))
        new: Value = self.b.sum(self.stacks[x].outer, axes=axes)
        return new

    def rows(self, v: Value) -> Value:
        """[T, B, n] as [T * B, n]; [T, L, B, n] as [L, T * B, n]"""
        shape: tuple[Dim, ...] = (product(v.type.shape[:-1]), v.type.shape[-1])
        if v.type.ndim == 4:
            v = self.b.transpose(v, perm=(1, 0, 2, 3))
            shape = (v.type.shape[0], product(v.type.shape[1:3]), v.type.shape[3])
        new: Value = self.b.reshape(v, shape=shape)
        return new

    def aligned(self, x: Value, y: Value) -> tuple[Value, Value]:
        """All slices of both, in one order: that of the iterations, or another one if it is that
        of both, so that nothing is copied."""
        p, q = self.seqs.get(x), self.seqs.get(y)
        if p is not None and q is not None and self.whole(p) and self.whole(q):
            if (p.start, p.step) == (q.start, q.step):
                return self.first(p.outer, p.axis), self.first(q.outer, q.axis)
        return self.in_order(x), self.in_order(y)

    def whole(self, p: Seq) -> bool:
        n = p.outer.type.shape[p.axis]
        return n == self.s.trip and (p.start, p.step) in ((0, 1), (n - 1, -1))

    def in_order(self, v: Value) -> Value:
        p = self.seqs.get(v)
        if p is None:
            return self.stacks[v].outer
        x, n = p.outer, self.s.trip
        if (p.start, p.step) != (0, 1) or x.type.shape[p.axis] != n:
            x = self.b.slice(x, axis=p.axis, start=p.start, length=n, step=p.step)
        return self.first(x, p.axis)

    def first(self, x: Value, axis: int) -> Value:
        """`x` with `axis` in front."""
        if axis == 0:
            return x
        perm = (axis, *(i for i in range(x.type.ndim) if i != axis))
        new: Value = self.b.transpose(x, perm=perm)
        return new


def _columns(v: Value) -> int:
    return bytes_of(Value(v.type.with_shape(v.type.shape[-1:])))


__all__ = ["defer_sums"]
