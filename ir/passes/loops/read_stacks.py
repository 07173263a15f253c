"""Stacks of which little is read, the last steps or the sum, are not collected.

        stack %ys = %y axis 0                        last  %l = %y
    %l = index(%ys, axis=0, index=T-1)       =>

        stack %ys = %y axis 0                        carry %a = zeros then %a2 last %s
    %s = sum(%ys, axes=[0])                  =>      body
                                                       %a2 = add(%a, %y)

        stack %ys = %y axis 0                        carry %b = zeros then %b2 last %k
    %l = slice(%ys, axis=0, start=T-3,       =>      body
               length=3)                               %i = maximum(t - (T-3), 0)
                                                       %b2 = set_dynamic_index(%b, %y, %i)

Only of stacks with no other reader: memory of T steps goes, not work. Out of scope: stacks that the
body of another loop or a branch reads, and the last k > 1 steps of a `while`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ir.analysis.alias import at_least_once
from ir.analysis.ranges import facts_of, never_negative
from ir.ops.reduce import normal_axes
from ir.ops.views import span_of, starting_at
from ir.passes.loops.ports import with_ports
from ir.passes.loops.slices_to_ports import all_users, put
from ir.program import Carry, Last, Node, Op, Port, Program, Scan, Stack, Value
from ir.rewrite import Block, rewrite
from ir.types import I64, Dim, Type
from ir.uses import walk

Readers: TypeAlias = dict[Value, list[object]]
#: a buffer has no more steps than this
MOST_STEPS = 16


def _read_by(program: Program, *names: str) -> bool:
    """Whether an op of one of these names reads what a loop collects."""
    ports = (p for n in walk(program.ops) if isinstance(n, Scan) for p in n.ports)
    stacks = {p.outer for p in ports if isinstance(p, Stack)}
    ops = (n for n in walk(program.ops) if stacks and isinstance(n, Op) and n.name in names)
    return any(n.operands[0] in stacks for n in ops)


# ---------------------------------------------------------------- the last step
def last_steps(program: Program) -> Program:
    """A stack of which only the last step is read is a last port, if the loop surely runs."""
    if not _read_by(program, "index", "slice"):
        return program
    readers = all_users(program)
    lasts: dict[Value, Value] = {}

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Op) and node.operands and node.operands[0] in lasts:
            last, t = lasts[node.operands[0]], node.result.type
            return [last if last.type == t else b.reshape(last, shape=t.shape)]
        if not isinstance(node, Scan):
            return None
        starts = node.go is not None and b.constant(node.go.init)
        if not at_least_once(node, program, bool(starts)):
            return None
        found = [p for p in node.ports if isinstance(p, Stack) and _ends(node, p, readers)]
        if not found:
            return None
        lasts.update((p.outer, Value(p.inner.type, p.outer.name)) for p in found)
        put(b, with_ports(node, {p: Last(lasts[p.outer], p.inner) for p in found}))
        return node.results

    return rewrite(program, visit)


def _ends(s: Scan, p: Stack, readers: Readers) -> bool:
    """Whether all readers of the stack read its last step."""
    using = readers.get(p.outer, [])
    return bool(using) and all(_is_last_step(n, s, p) for n in using)


def _is_last_step(n: object, s: Scan, p: Stack) -> bool:
    span = span_of(n)
    return (
        span is not None and span.axis == p.axis and span.start == s.length - 1 and span.length == 1
    )


# ---------------------------------------------------------------- the last k steps
def last_k_steps(program: Program) -> Program:
    """A stack of which only the last k steps are read is a buffer of k steps: each iteration
    writes to the first of them until the last k come."""
    if not _read_by(program, "index", "slice"):
        return program
    readers, facts = all_users(program), facts_of(program)
    buffers: dict[Value, _Buffer] = {}

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Op) and node.operands and node.operands[0] in buffers:
            return [buffers[node.operands[0]].read(b, node)]
        if not isinstance(node, Scan) or node.count:
            return None
        stacks = [p for p in node.ports if isinstance(p, Stack)]
        found = {p: k for p in stacks if (k := _steps_read(node, p, readers, facts))}
        if not found:
            return None
        body = Block(b, node)
        for inner in node.body:
            body.append(inner)
        made = {
            p: _Buffer(node, p, k, Value(_of_steps(p, k), p.outer.name)) for p, k in found.items()
        }
        buffers.update((p.outer, q) for p, q in made.items())
        s = with_ports(node, {p: q.carry(b, body) for p, q in made.items()})
        put(b, replace(s, body=tuple(body.ops)))
        return node.results

    return rewrite(program, visit)


def _steps_read(s: Scan, p: Stack, readers: Readers, facts: tuple[Dim, ...]) -> int:
    """The least k so that all readers read only the last k steps; 0 if it is not small, or if the
    loop may have fewer steps."""
    firsts = [_first_read(n, p) for n in readers.get(p.outer, [])]
    found = [s.trip - at for at in firsts if at is not None]
    numbers = [k for k in found if isinstance(k, int) and 0 < k <= MOST_STEPS]
    if not numbers or len(numbers) < len(firsts):
        return 0
    k = max(numbers)
    few = s.trip < 2 * k if isinstance(s.trip, int) else not never_negative(s.trip - k, facts)
    return 0 if few else k


def _first_read(n: object, p: Stack) -> Dim | None:
    """The first of the steps that `n` reads, if it is a view of some of them."""
    span = span_of(n)
    if span is None or span.axis != p.axis or not isinstance(span.length, int) or span.length < 1:
        return None
    return span.start if span.step > 0 else span.start + (span.length - 1) * span.step


def _of_steps(p: Stack, k: int) -> Type:
    """The type of `k` steps of what a port collects, in front."""
    return p.inner.type.with_shape((k, *p.inner.type.shape))


@dataclass(frozen=True)
class _Buffer:
    """The last `steps` steps of what `stack` of `loop` collects: `last`, after the loop."""

    loop: Scan
    stack: Stack
    steps: int
    last: Value

    def carry(self, b: Block, body: Block) -> Carry:
        t, y = self.last.type, self.stack.inner
        zero = {"f": 0.0, "b": False}.get(t.dtype.kind, 0)
        init = b.full(value=zero, shape=t.shape, dtype=t.dtype, hint=self.last.name)
        inner = Value(t, self.last.name)
        distance = body.subtract(self.loop.index, body.size(n=self.loop.trip - self.steps))
        at = body.maximum(distance, body.full(value=0, dtype=I64))
        after = body.set_dynamic_index(inner, y, at, axis=0, hint=self.last.name)
        return Carry(inner, init, after, self.last)

    def read(self, b: Block, op: Op) -> Value:
        """Return the result of an op that reads the stack."""
        gone, axis = self.loop.trip - self.steps, self.stack.axis
        x = self.last
        if axis:
            x = b.transpose(x, perm=(*range(1, axis + 1), 0, *range(axis + 1, x.type.ndim)))
        span = span_of(op)
        assert span is not None
        new: Value = b.emit(op.name, (x,), starting_at(op, span.start - gone))[0]
        return new


# ---------------------------------------------------------------- sums over time
def sums_in_loops(program: Program) -> Program:
    """A stack of which only the sum over the iterations is read is added up in the loop."""
    if not _read_by(program, "sum"):
        return program
    readers = all_users(program)
    totals: dict[Value, tuple[Stack, Value]] = {}

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Op) and node.operands and node.operands[0] in totals:
            return [_rest(b, node, *totals[node.operands[0]])]
        if not isinstance(node, Scan):
            return None
        found = [p for p in node.ports if isinstance(p, Stack) and _summed(p, readers)]
        if not found:
            return None
        body = Block(b, node)
        for inner in node.body:
            body.append(inner)
        instead: dict[Port, Port | None] = {}
        for p in found:
            last = Value(p.inner.type, p.outer.name)
            instead[p], totals[p.outer] = _total(b, body, p, last), (p, last)
        s = with_ports(node, instead)
        put(b, replace(s, body=tuple(body.ops)))
        return node.results

    return rewrite(program, visit)


def _summed(p: Stack, readers: Readers) -> bool:
    using = readers.get(p.outer, [])
    if len(using) != 1 or p.inner.type.dtype.widened:
        return False
    (n,) = using
    summed = isinstance(n, Op) and n.name == "sum"
    return (
        isinstance(n, Op) and summed and p.axis in normal_axes(n.attrs["axes"], p.outer.type.ndim)
    )


def _total(b: Block, body: Block, p: Stack, last: Value) -> Carry:
    t = p.inner.type
    state = Value(t, p.outer.name)
    zero = 0.0 if t.dtype.kind == "f" else 0
    init = b.full(value=zero, shape=t.shape, dtype=t.dtype, hint=p.outer.name)
    return Carry(state, init, body.add(state, p.inner, hint=p.outer.name), last)


def _rest(b: Block, op: Op, p: Stack, total: Value) -> Value:
    """The sum `op` of the stack, over the axes that are left of what the loop has added up."""
    axes = normal_axes(op.attrs["axes"], p.outer.type.ndim)
    rest = tuple(a - (a > p.axis) for a in axes if a != p.axis)
    found = b.sum(total, axes=rest) if rest else total
    shape = op.result.type.shape
    new: Value = found if found.type.shape == shape else b.reshape(found, shape=shape)
    return new


__all__ = ["last_k_steps", "last_steps", "sums_in_loops"]
