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

A loop that may end before has a ring, which is put in order behind it:

        stack %ys = %y axis 0  : f32[n,8]            carry %b = zeros then %b2 last %ring
    %l = dynamic_slice(%ys, %i, length=m)    =>      body
                                                       %b2 = set_dynamic_index(%b, %y, t % 3)
    (m <= 3, and %i is at least n - 3)           %k = gather(%ring, (iota(3) + n) % 3)

A buffer of k steps behind a loop that ran n has the last of them at its end, and zeros in front of
them if there are fewer; who reads a step is told where it is in the buffer, or raises as before.

Only of stacks with no other reader: memory of T steps goes, not work. Out of scope: stacks that the
body of another loop reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeGuard

from ir.analysis.affine import DIMS, LINEAR, combined, limit_of
from ir.analysis.alias import at_least_once
from ir.analysis.ranges import facts_of, never_negative
from ir.ops.gradients import zeros
from ir.ops.reduce import normal_axes
from ir.ops.views import Span, span_of, starting_at
from ir.passes.loops.ports import with_ports
from ir.passes.loops.slices_to_ports import all_users, put
from ir.program import Carry, Cond, Const, Last, Node, Op, Port, Program, Scan, Stack, Value
from ir.rewrite import Block, rewrite
from ir.types import BOOL, I64, Dim, Type, is_natural
from ir.uses import walk

Readers: TypeAlias = dict[Value, list[object]]
#: a buffer has no more steps than this
MOST_STEPS = 16
#: longer chains of ops are not followed
DEEPEST = 8
#: reads at an index that the program computes
DYNAMIC = ("dynamic_index", "dynamic_slice")


def _read_by(program: Program, kind: Callable[[Op], bool]) -> bool:
    """Whether an op of this kind, or a branch, reads what a loop collects."""
    ports = (p for n in walk(program.ops) if isinstance(n, Scan) for p in n.ports)
    stacks = {p.outer for p in ports if isinstance(p, Stack)}
    found = (n for n in walk(program.ops) if stacks and not stacks.isdisjoint(n.operands))
    return any(isinstance(n, Cond) or (isinstance(n, Op) and kind(n)) for n in found)


# ---------------------------------------------------------------- what readers read
class _Reads:
    """The steps of stacks that are read, by the ops that read them.

    readers: of each value, in all blocks. maker: the op that gives it, for a last port that of the
    body. counts: the loop that gives a size its name. cuts: parts of stacks that loops fill up to
    an exit in their last iteration, and by how much these may be shorter.
    """

    def __init__(self, program: Program) -> None:
        self.readers, self.cuts = all_users(program), dict[Value, int]()
        nodes = list(walk(program.ops))
        self.maker = {r: n for n in nodes if isinstance(n, Op) for r in n.results}
        loops = [n for n in nodes if isinstance(n, Scan)]
        lasts = [p for s in loops for p in s.ports if isinstance(p, Last) and p.inner in self.maker]
        self.maker |= {p.outer: self.maker[p.inner] for p in lasts}
        self.counts = {s.count: s for s in loops if s.count}

    def only_last(self, p: Stack) -> bool:
        """Whether the last step is read, and nothing else."""
        using, last = self.readers.get(p.outer, []), p.outer.type.shape[p.axis] - 1
        return bool(using) and all(self.span(p.outer, p.axis, n) == (last, 1) for n in using)

    def last_read(self, x: Value, axis: int, depth: int = DEEPEST) -> int | None:
        """The least k so that only the last k elements of `x` along the axis are read; None if it
        is not small. Readers may join `x` to what is in front of it."""
        found = [self.last_read_by(n, x, axis, depth) for n in self.readers.get(x, [])]
        known = [k for k in found if k is not None and k <= MOST_STEPS]
        return max(known) if known and len(known) == len(found) else None

    def last_read_by(self, n: object, x: Value, axis: int, depth: int) -> int | None:
        if depth and _joins(n, x, axis):
            return self.last_read(n.result, axis, depth - 1)
        if depth and isinstance(n, Cond):
            inner = [self.last_read(p.inner, axis, depth - 1) for p in n.ins if p.outer is x]
            known = [k for k in inner if k is not None]
            return max(known) if known and len(known) == len(inner) else None
        if depth and isinstance(n, Op) and n.name == "transpose":
            return self.last_read(n.result, _moved(n, axis), depth - 1)
        shorter = self.cut(n, x, axis) if depth else None
        if shorter is None:
            return self.from_end(x, axis, n)
        assert isinstance(n, Op)
        self.cuts[n.result] = shorter
        k = self.last_read(n.result, axis, depth - 1)
        return None if k is None else k + shorter

    def cut(self, n: object, x: Value, axis: int) -> int | None:
        """By how much `n`, the front of what a loop collects, may be shorter than `x`."""
        span = span_of(n)
        if span is None or (span.axis, span.start, span.step) != (axis, 0, 1):
            return None
        loop, counter = (self.counts.get(str(d)) for d in (x.type.shape[axis], span.length))
        if loop is None or counter is None or loop.trip != counter.trip:
            return None
        limit = limit_of(counter, lambda v: self.polynomial(v) == 1)
        starts = None if limit is None or counter.go is None else self.maker.get(counter.go.init)
        if starts is None or starts.name != "greater_than" or starts.operands[0] is not limit:
            return None
        from_0 = self.polynomial(starts.operands[1]) == 0
        return self.behind(limit, loop.length) if from_0 else None

    def span(self, x: Value, axis: int, n: object) -> tuple[Dim, int] | None:
        """The first of the elements of `x` along the axis that `n` reads, and how many it reads.
        None if these are not known, or outside of the axis."""
        span = span_of(n)
        if span is None and isinstance(n, Op) and n.name in DYNAMIC and n.operands[0] is x:
            at, length = self.polynomial(n.operands[1]), n.attrs.get("length", 1)
            span = None if at is None else Span(n.attrs["axis"] % x.type.ndim, at, length, 1)
        if span is None or span.axis != axis or not isinstance(span.length, int) or not span.length:
            return None
        ends = span.start, span.start + (span.length - 1) * span.step
        first, last = ends if span.step > 0 else ends[::-1]
        rest = x.type.shape[axis] - 1 - last
        return (first, span.length) if isinstance(rest, int) and rest >= 0 else None

    def from_end(self, x: Value, axis: int, n: object) -> int | None:
        """A small number k so that `n` reads only the last k elements of `x` along the axis."""
        length, span = x.type.shape[axis], self.span(x, axis, n)
        k: Dim | None = None if span is None else length - span[0]
        if span is None and isinstance(n, Op) and n.name in DYNAMIC and n.operands[0] is x:
            sure = n.name == "dynamic_index" or self.natural(n.operands[1])
            sure = sure and n.attrs["axis"] % x.type.ndim == axis
            k = self.behind(n.operands[1], length) if sure else None
        return k if isinstance(k, int) and 0 < k <= MOST_STEPS else None

    # ------------------------------------------------------------ integers
    def polynomial(self, v: Value, depth: int = DEEPEST) -> Dim | None:
        """An integer that a few ops make of sizes."""
        op = self.maker.get(v)
        if op is None or v.type != Type(I64) or depth == 0:
            return None
        if op.name in ("full", "size"):
            found: Dim = op.attrs["value" if op.name == "full" else "n"]
            return found
        parts = [self.polynomial(o, depth - 1) for o in op.operands if op.name in LINEAR]
        known = [d for d in parts if d is not None]
        return combined(op, known, DIMS) if parts and len(known) == len(parts) else None

    def behind(self, v: Value, n: Dim, depth: int = DEEPEST) -> int | None:
        """A number k so that the integer is surely `n - k` or more."""
        exact = self.polynomial(v)
        if exact is not None:
            return gap if isinstance(gap := n - exact, int) else None
        name, sides = self.sides(v, depth)
        if name == "subtract":
            k, more = self.behind(sides[0], n, depth - 1), self.most(sides[1])
            return None if k is None or more is None else k + more
        known = [k for o in sides if (k := self.behind(o, n, depth - 1)) is not None]
        if name == "maximum":
            return min(known, default=None)
        return max(known, default=None) if len(known) == len(sides) else None

    def most(self, v: Value) -> int | None:
        """A number that the integer surely does not exceed."""
        op = self.maker.get(v)
        flag = op is not None and op.name == "cast" and op.operands[0].type.dtype == BOOL
        return 1 if flag else None

    def natural(self, v: Value, depth: int = DEEPEST) -> bool:
        """Whether the integer is surely not negative."""
        exact = self.polynomial(v)
        if exact is not None:
            return is_natural(exact)
        name, sides = self.sides(v, depth)
        if name == "subtract":
            return False
        found = [self.natural(o, depth - 1) for o in sides]
        return any(found) if name == "maximum" else bool(found) and all(found)

    def sides(self, v: Value, depth: int) -> tuple[str, tuple[Value, ...]]:
        """The integers of which it is one, or the difference, and the op that says which."""
        op = self.maker.get(v)
        if op is None or depth == 0 or op.name not in ("maximum", "minimum", "where", "subtract"):
            return "", ()
        return op.name, op.operands[-2:]


# ---------------------------------------------------------------- the last step
def last_steps(program: Program) -> Program:
    """A stack of which only the last step is read is a last port, if the loop surely runs."""
    if not _read_by(program, lambda op: bool(op.row.views)):
        return program
    reads = _Reads(program)
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
        found = [p for p in node.ports if isinstance(p, Stack) and reads.only_last(p)]
        if not found:
            return None
        lasts.update((p.outer, Value(p.inner.type, p.outer.name)) for p in found)
        put(b, with_ports(node, {p: Last(lasts[p.outer], p.inner) for p in found}))
        return node.results

    return rewrite(program, visit)


# ---------------------------------------------------------------- the last k steps
def last_k_steps(program: Program) -> Program:
    """A stack of which only the last k steps are read is a buffer of k steps."""
    if not _read_by(program, lambda op: bool(op.row.views) or op.name == "concat"):
        return program
    reads, facts = _Reads(program), facts_of(program)
    ends: dict[Value, _End] = {}
    entering: dict[Value, Value] = {}

    def end_of(b: Block, x: Value) -> _End | None:
        """The end of `x`, which a branch reads through a port."""
        ins = b.node.ins if isinstance(b.node, Cond) else ()
        port = next((p for p in ins if p.inner is x), None)
        if x not in ends and port is not None and b.outer is not None:
            end = end_of(b.outer, port.outer)
            if end is not None:
                entering[x] = Value(end.value.type, end.value.name)
                ends[x] = end._replace(value=entering[x])
        return ends.get(x)

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Cond) and any(p.inner in entering for p in node.ins):
            new = {p: Const(entering[p.inner], ends[p.outer].value)
                   for p in node.ins if p.inner in entering}  # fmt: skip
            b.append(replace(node, ins=tuple(new.get(p, p) for p in node.ins)))
            return node.results
        if isinstance(node, Op) and node.name == "concat":
            end = end_of(b, node.operands[-1])
            if end is not None:
                ends[node.result] = end.behind(b, node)
                return node.results
        if isinstance(node, Op) and node.operands:
            end = end_of(b, node.operands[0])
            if end is None:
                return None
            if node.name == "transpose":
                ends[node.result] = end.transposed(b, node)
            elif node.result in reads.cuts:
                ends[node.result] = end.shorter(b, node, reads.cuts[node.result])
            else:
                return [end.read(b, node, reads)]
            return node.results
        if not isinstance(node, Scan):
            return None
        stacks = [p for p in node.ports if isinstance(p, Stack)]
        found = {p: k for p in stacks if (k := reads.last_read(p.outer, p.axis)) and _pays(node, k)}
        if not found:
            return None
        body = Block(b, node)
        for inner in node.body:
            body.append(inner)
        made = {p: _Buffer(node, p, k, _surely(node, k, facts)) for p, k in found.items()}
        s = with_ports(node, {p: q.carry(b, body) for p, q in made.items()})
        put(b, replace(s, body=tuple(body.ops)))
        ends.update((p.outer, q.end(b)) for p, q in made.items())
        return node.results

    return rewrite(program, visit)


def _moved(transpose: Op, axis: int) -> int:
    """Where an axis is after a transpose."""
    perm = transpose.attrs["perm"]
    return [q % len(perm) for q in perm].index(axis)


def _joins(n: object, x: Value, axis: int) -> TypeGuard[Op]:
    """Whether it is a tensor of so many steps that a number says, and `x` behind them."""
    if not isinstance(n, Op) or n.name != "concat" or n.operands[-1] is not x:
        return False
    sizes = [v.type.shape[axis] for v in n.operands[:-1]]
    return n.attrs["axis"] % x.type.ndim == axis and all(type(q) is int for q in sizes)


def _pays(s: Scan, k: int) -> bool:
    return not (isinstance(s.trip, int) and s.trip < 2 * k)


def _surely(s: Scan, k: int, facts: tuple[Dim, ...]) -> bool:
    """Whether the loop has `k` steps or more."""
    if s.count:
        return False
    return s.trip >= k if isinstance(s.trip, int) else never_negative(s.trip - k, facts)


class _Buffer:
    """The last `steps` steps of what `stack` of `loop` collects: `last`, after the loop. If it
    surely has so many, iterations write to the first of them until the last k come, so that they
    are in order; else the buffer is a ring, where step t is in place t % k."""

    def __init__(self, loop: Scan, stack: Stack, steps: int, full: bool) -> None:
        self.loop, self.stack, self.steps, self.full = loop, stack, steps, full
        t = stack.inner.type
        self.last = Value(t.with_shape((steps, *t.shape)), stack.outer.name)

    def carry(self, b: Block, body: Block) -> Carry:
        y, inner = self.stack.inner, Value(self.last.type, self.last.name)
        after = body.set_dynamic_index(inner, y, self.place(body), axis=0, hint=self.last.name)
        return Carry(inner, zeros(b, inner.type, inner.name), after, self.last)

    def place(self, body: Block) -> Value:
        """Where an iteration writes to."""
        at = self.loop.index
        if self.steps == 1:
            return body.full(value=0, dtype=I64)  # type: ignore[no-any-return]
        if not self.full:
            return body.remainder(at, body.full(value=self.steps, dtype=I64))  # type: ignore[no-any-return]
        distance = body.subtract(at, body.size(n=self.loop.trip - self.steps))
        return body.maximum(distance, body.full(value=0, dtype=I64))  # type: ignore[no-any-return]

    def end(self, b: Block) -> _End:
        """The steps in order."""
        k, axis, x = self.steps, self.stack.axis, self.last
        if not self.full and k > 1:
            steps = b.add(b.iota(n=k, dtype=I64), b.size(n=self.loop.length))
            x = b.gather(x, b.remainder(steps, b.full(value=k, dtype=I64)), axis=0)
        if axis:
            x = b.transpose(x, perm=(*range(1, axis + 1), 0, *range(axis + 1, x.type.ndim)))
        return _End(x, axis, self.loop.length, k, self.full)


class _End(NamedTuple):
    """`value`: the last `steps` along an axis of so many, behind zeros if there are fewer; there
    are as many if it is `full`."""

    value: Value
    axis: int
    length: Dim
    steps: int
    full: bool

    def transposed(self, b: Block, op: Op) -> _End:
        moved = b.transpose(self.value, perm=op.attrs["perm"])
        return self._replace(value=moved, axis=_moved(op, self.axis))

    def shorter(self, b: Block, op: Op, most: int) -> _End:
        """The end of what `op` leaves, which is shorter by `most` or less."""
        length, k = op.result.type.shape[self.axis], self.steps - most
        start = b.size(n=length - self.length + most)
        end = b.dynamic_slice(self.value, start, axis=self.axis, length=k)
        return _End(end, self.axis, length, k, False)

    def behind(self, b: Block, op: Op) -> _End:
        """The end of what `op` joins it to. Steps of that are in place of zeros."""
        length, k = op.result.type.shape[self.axis], self.steps
        if self.full:
            return self._replace(length=length)
        front = b.concat(zeros(b, self.value.type), *op.operands[:-1], axis=self.axis)
        n = front.type.shape[self.axis]
        front = b.slice(front, axis=self.axis, start=n - k, length=k)
        at, number = b.iota(n=k, dtype=I64), b.full(value=k, dtype=I64)
        before = b.add(at, b.size(n=self.length))
        at = b.where(b.less_than(before, number), before, b.add(at, number))
        x = b.gather(b.concat(front, self.value, axis=self.axis), at, axis=self.axis)
        return _End(x, self.axis, length, k, False)

    def read(self, b: Block, op: Op, reads: _Reads) -> Value:
        """Return the result of an op that reads the steps."""
        span = span_of(op)
        if span is None:
            at = self.place(b, op.operands[1], reads.natural(op.operands[1]))
            new: Value = b.emit(op.name, (self.value, at), op.attrs)[0]
            return new
        first = span.start + min((span.length - 1) * span.step, 0)  # type: ignore[type-var]
        if op.name == "slice" and not self.full and not is_natural(first):
            begins = b.greater_equal(b.size(n=first), b.full(value=0, dtype=I64))
            b.check(begins, error="ValueError", message=f"slice: outside of axis {span.axis}")
        start = span.start - self.length + self.steps
        new = b.emit(op.name, (self.value,), starting_at(op, start))[0]
        return new

    def place(self, b: Block, at: Value, natural: bool) -> Value:
        """Where step `at` is. One that the loop did not reach is outside of the value, and a
        negative number counts from the end."""
        behind = b.size(n=self.steps - self.length)
        if natural:
            return b.add(at, behind)  # type: ignore[no-any-return]
        zero = b.full(value=0, dtype=I64)
        at = b.where(b.less_than(at, zero), b.add(at, b.size(n=self.length)), at)
        outside = b.full(value=self.steps, dtype=I64)
        return b.where(b.less_than(at, zero), outside, b.add(at, behind))  # type: ignore[no-any-return]


# ---------------------------------------------------------------- sums over time
def sums_in_loops(program: Program) -> Program:
    """A stack of which only the sum over the iterations is read is added up in the loop."""
    if not _read_by(program, lambda op: op.name == "sum"):
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
    init = zeros(b, t, p.outer.name)
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
