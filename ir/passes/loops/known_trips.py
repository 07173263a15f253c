"""Trip counts of `while` loops that count to a number.

    while %t as n1 {                                scan %t < 10 {
      go    %yes then %p                              carry %h = %h0 then %h2
      carry %i = %zero then %i2                       stack %ys = %h2 axis 0  : f32[10,B]
      carry %h = %h0 then %h2
      stack %ys = %h2 axis 0  : f32[n1,B]    =>
      body
        %i2 = scale(%i, bias=1.0)
        %p = less_than(%i2, %ten)

The counter is a carry, or made of one, and of any type that counts so far without rounding; it is
compared with a number or a named size. A loop that goes on while this and something else hold stays
a `while`, with a bound. Types that named the count name the number; where it does not fit them, the
loop stays one, too. Out of scope: counters that begin at or are compared with data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ir.analysis.affine import counted, index_name, is_size
from ir.analysis.ranges import facts_of, never_negative
from ir.loc import VerifyError
from ir.ops.binary import EXCHANGED
from ir.passes.cloning import NodeCopier
from ir.program import ENDLESS, LoopCondition, Node, Op, Program, Require, Scan, Slot, Value
from ir.rewrite import Block, rewrite
from ir.types import F32, F64, I32, I64, Dim, is_natural, line, names_in
from ir.uses import walk
from ir.verifier import verify

NonNegativeDims: TypeAlias = tuple[Dim, ...]

#: up to which number each type counts without rounding
EXACT = {I32: 1 << 30, I64: 1 << 62, F32: 1 << 24, F64: 1 << 53}
#: the comparisons of a counter with a bound after which a loop goes on
TESTS = tuple(n for n in EXCHANGED if n != "equal")


@dataclass(frozen=True)
class _Trip:
    """The trip count of a loop: a bound, and whether it is exact."""

    most: Dim
    surely: bool


def known_trips(program: Program) -> Program:
    """Loops that only count are scans; those that also ask data have the count as their bound."""
    found: dict[Value, _Trip] = {}
    facts = facts_of(program)

    def visit(b: Block, node: Node) -> None:
        trip = _trip(b, node, facts) if isinstance(node, Scan) and node.go is not None else None
        if isinstance(node, Scan) and trip is not None and (trip.surely or trip.most != node.trip):
            found[node.index] = trip

    if not any(isinstance(n, Scan) and n.count for n in walk(program.ops)):
        return program
    rewrite(program, visit)
    if not found:
        return program
    known = _Known(found).program(program)
    if _fits(known):
        return known
    return _Known({v: replace(q, surely=False) for v, q in found.items()}).program(program)


def _fits(program: Program) -> bool:
    """Whether the numbers of iterations fit what named the counts. A loop whose results are read
    beyond their end stays a `while`, and what checks that fails when the program runs."""
    try:
        verify(program)
    except VerifyError:
        return False
    return True


class _Known(NodeCopier):
    """Copies a program; `found` are the trips of loops, by their index."""

    def __init__(self, found: dict[Value, _Trip]) -> None:
        super().__init__(fresh=lambda name: name)
        self.found = found

    def program(self, p: Program) -> Program:
        ops = tuple(self.nodes(p.ops))
        outputs = tuple(v if isinstance(v, Slot) else self.new(v) for v in p.outputs)
        writes = tuple((target, self.new(v)) for target, v in p.writes)
        requires = tuple(map(self.require, p.requires))
        return replace(p, ops=ops, outputs=outputs, writes=writes, requires=requires)

    def require(self, r: Require) -> Require:
        return replace(r, left=self.attr(r.left), right=self.attr(r.right))

    def scan(self, s: Scan) -> Scan:
        trip = self.found.get(s.index)
        if trip is None:
            return super().scan(s)
        if not trip.surely:
            return replace(super().scan(s), trip=self.attr(trip.most))
        self.sizes[s.count] = self.attr(trip.most)
        ports = tuple(p for p in s.ports if not isinstance(p, LoopCondition))
        return super().scan(replace(s, trip=trip.most, ports=ports, count=""))


# ---------------------------------------------------------------- counting
def _trip(b: Block, s: Scan, facts: NonNegativeDims) -> _Trip | None:
    """Derive the number of iterations from the go port; None if it does not bound it."""
    assert s.go is not None
    (body,) = Block.inside(s, b)
    tests = [_test(body, v) for v in _conjuncts(body, s.go.next)]
    known = [q for q in tests if q is not None]
    starts = bool(b.constant(s.go.init))
    trips = [s.trip] if s.trip != ENDLESS else []
    whole = known[0].trip_from_first(b, s.go.init) if len(tests) == len(known) == 1 else None
    for q in known:
        trip = whole if whole is not None else q.trip_once_started(facts)
        if trip is None:
            return None
        trips.append(trip)
    surely = len(tests) == len(known) and (starts or whole is not None)
    numbers = [d for d in trips if isinstance(d, int)]
    if len(numbers) == len(trips) and numbers:
        return _Trip(min(numbers), surely)
    return _Trip(trips[0], surely) if len(set(trips)) == 1 else None


def _conjuncts(b: Block, v: Value) -> Iterator[Value]:
    """Flags that all hold if `v` does, and the other way round; not those that always hold."""
    todo = [v]
    while todo:
        v = todo.pop()
        op = b.op_of(v, "logical_and", "reshape")
        if op is not None:
            todo += op.operands
        elif not b.constant(v):
            yield v


@dataclass(frozen=True)
class _Test:
    """`start + step * t` against `bound`, after iteration t; `compare` is less_than,
    less_equal, greater_than, greater_equal or not_equal."""

    compare: str
    start: Dim
    step: int
    bound: Dim

    @property
    def holds(self) -> Dim | None:
        """After how many iterations in a row it holds, where that is not negative; None if for
        ever, or if that is not known."""
        start, step, bound = self.start, self.step, self.bound
        if self.compare.startswith("greater"):
            start, step, bound = -start, -step, -bound
        bound = (
            bound + 1 if self.compare.endswith("equal") and self.compare != "not_equal" else bound
        )
        gap = bound - start
        if step == 1:
            return gap
        if not isinstance(gap, int):
            return None
        if self.compare == "not_equal":
            return gap // step if gap % step == 0 else None
        return -(-gap // step) if step > 0 else None

    def trip_once_started(self, facts: NonNegativeDims) -> Dim | None:
        """Return the trip count of the loop if it runs at all."""
        n = self.holds
        if n is None or (self.compare == "not_equal" and not never_negative(n, facts)):
            return None
        if isinstance(n, int):
            return 1 + max(n, 0)
        return 1 + n if never_negative(n, facts) else None

    def trip_from_first(self, b: Block, init: Value) -> Dim | None:
        """Return the trip count of the loop if `init` is this test before the first iteration."""
        op = b.op_of(init, *TESTS) or b.op_of(init, "reshape")
        if op is not None and op.name == "reshape":
            op = b.op_of(op.operands[0], *TESTS)
        test = _compared(b, op) if op is not None else None
        n = self.holds
        if test is None or n is None or self.compare == "not_equal" or not is_natural(n + 1):
            return None
        before = _Test(self.compare, self.start - self.step, 0, self.bound)
        return n + 1 if test == before else None


def _test(body: Block, v: Value) -> _Test | None:
    """A comparison of a counter of `s` with a bound."""
    op = body.op_of(v, *TESTS)
    test = _compared(body, op, index_name(body)) if op is not None else None
    return test if test is not None and test.step else None


def _compared(b: Block, op: Op, index: str = "") -> _Test | None:
    """A comparison in block `b`, of which one side may move with a loop's `index`."""
    x, y = (counted(b, v) for v in op.operands)
    limit = EXACT.get(op.operands[0].type.dtype)
    if x is None or y is None or limit is None:
        return None
    name, x, y = (EXCHANGED[op.name], y, x) if index in names_in(y) else (op.name, x, y)
    start, step = line(x, index) or (0, None)
    if not isinstance(step, int) or index in names_in(y) or not (is_size(start) and is_size(y)):
        return None
    return _Test(name, start, step, y) if _counts((start, step, y), limit) else None


def _counts(ends: Sequence[Dim], limit: int) -> bool:
    """Whether numbers up to these are far from the limit of their type; sizes are, from that of
    i64."""
    numbers = [d for d in ends if isinstance(d, int)]
    return 4 * sum(map(abs, numbers)) < limit and (len(numbers) == len(ends) or limit == EXACT[I64])


__all__ = ["known_trips"]
