"""Activity analysis: the values whose gradient is needed.

A value is active if it varies with an input whose gradient is wanted and is useful for an output
that receives one. Integers pass gradients on as floats do, except where they are indices or
conditions: what is computed from a float that was cast to integers has a gradient, as in eager
Paddle, where it is of integers, too. Loops are walked until nothing is added: a carry passes on
the activity of its next value. The last value of a carry has that of the next value if the loop
surely runs, and else that of the first one, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ir.opdef import OpDef, no_gradient
from ir.program import Carry, Cond, Const, Custom, Last, Node, Op, Program, Scan, Seq, Stack, Value


class Activity:
    """`varies`: depends on an input of `wrt`. `useful`: an output of `of` depends on it."""

    def __init__(self, program: Program, of: Sequence[int], wrt: Sequence[int]) -> None:
        self.varies = {program.inputs[i].value for i in wrt}
        self.useful: set[Value] = set()
        self._follow([(program.ops, ())], [program.results[i] for i in of])

    @classmethod
    def within(
        cls,
        blocks: Sequence[tuple[Sequence[Node], Sequence[Const]]],
        of: Iterable[Value],
        wrt: Iterable[Value],
    ) -> Activity:
        """Compute the activity of incomplete blocks, each inside of the one before it; the const
        ports are those through which it reads values of that one. `wrt` may be made by them."""
        self = cls.__new__(cls)
        self.varies, self.useful = set(wrt), set()
        self._follow(blocks, of)
        return self

    def _follow(
        self, blocks: Sequence[tuple[Sequence[Node], Sequence[Const]]], of: Iterable[Value]
    ) -> None:
        for ops, ports in blocks:
            self.varies.update(p.inner for p in ports if p.outer in self.varies)
            spread(self.varies, ops)
        self._use(of)
        for ops, ports in reversed(blocks):
            self._backward(ops)
            self._use(p.outer for p in ports if p.inner in self.useful)

    def active(self, v: Value) -> bool:
        return v in self.varies and v in self.useful

    def _use(self, values: Iterable[Value | None]) -> None:
        self.useful.update(v for v in values if v is not None)

    def _backward(self, ops: Sequence[Node]) -> None:
        for node in reversed(ops):
            if self.useful.isdisjoint(node.results) and not isinstance(node, Scan):
                continue
            if isinstance(node, Scan):
                self._loop_back(node)
            elif isinstance(node, Cond):
                used = [j for j in node.outs if j.outer in self.useful]
                self._use(v for j in used for v in (j.then, j.orelse))
                for inside, _ in node.branches:
                    self._backward(inside)
                self._use(p.outer for p in node.ins if p.inner in self.useful)
            elif isinstance(node, Custom):
                self._use(p.outer for p, g in zip(node.ins, node.grads) if g)
            elif isinstance(node, Op):
                self._use(_passing(node))

    def _loop_back(self, s: Scan) -> None:
        for p in s.ports:
            if isinstance(p, (Stack, Last)) and p.outer in self.useful:
                self._use([p.inner])
        while True:
            before = len(self.useful)
            self._use(p.next for p in s.carries if p.last in self.useful or p.inner in self.useful)
            self._backward(s.body)
            if len(self.useful) == before:
                break
        for q in s.ins:
            last = isinstance(q, Carry) and q.last in self.useful and not _runs(s)
            if q.inner in self.useful or last:
                self._use([_entry(q)])


def spread(varies: set[Value], ops: Iterable[Node]) -> None:
    """Add the values of `ops` that vary with one of `varies`."""
    for node in ops:
        if isinstance(node, Scan):
            _spread_loop(varies, node)
        elif isinstance(node, Cond):
            varies.update(p.inner for p in node.ins if p.outer in varies)
            for inside, _ in node.branches:
                spread(varies, inside)
            varies.update(j.outer for j in node.outs if {j.then, j.orelse} & varies)
        elif isinstance(node, Custom):
            if any(g and p.outer in varies for p, g in zip(node.ins, node.grads)):
                varies.update(node.results)
        elif isinstance(node, Op) and not varies.isdisjoint(_passing(node)):
            varies.update(node.results)


def _spread_loop(varies: set[Value], s: Scan) -> None:
    varies.update(p.inner for p in s.ins if _entry(p) in varies)
    before = -1
    while len(varies) != before:
        before = len(varies)
        spread(varies, s.body)
        varies.update(p.inner for p in s.carries if p.next in varies)
    for p in s.ports:
        if isinstance(p, (Stack, Last)) and p.inner in varies:
            varies.add(p.outer)
    for p in s.carries:
        if p.last is not None and (p.next if _runs(s) else p.inner) in varies:
            varies.add(p.last)


def _runs(s: Scan) -> bool:
    """Whether the last value of a carry is surely that of an iteration."""
    return not s.count and isinstance(s.trip, int) and s.trip > 0


def _entry(p: Const | Seq | Carry) -> Value:
    return p.init if isinstance(p, Carry) else p.outer


def _passing(op: Op) -> Sequence[Value]:
    return passing(op.row, op.operands, op.results)


def is_float(v: Value) -> bool:
    return v.type.dtype.differentiable


def passing(row: OpDef, operands: Sequence[Value], results: Sequence[Value]) -> Sequence[Value]:
    """The operands to which an op passes a gradient, where they ask: not indices and conditions."""
    integral = not any(map(is_float, results))
    if row.grad is no_gradient or integral and row.grad is None:
        return ()
    if integral:
        names = (*row.operands, *row.operands[-1:] * len(operands))
        return [v for name, v in zip(names, operands) if name not in ("index", "test")]
    if row.name == "cast":
        return operands
    return [v for v in operands if is_float(v)]


__all__ = ["Activity", "is_float", "passing", "spread"]
