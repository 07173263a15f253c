"""Runs of stores into one tensor, element after element, as an unrolled loop leaves them.

    %a = set_index(%x, %u, axis=0, index=0)
    %b = set_index(%a, %v, axis=0, index=1)

`behind` finds the tensor behind all stores that a read has nothing to do with, without a walk over
the run: else a program that reads every element of n that it has stored would take n^2 steps.
"""

from __future__ import annotations

from bisect import bisect_left
from weakref import WeakKeyDictionary

from ir.program import Op, Value
from ir.rewrite import Block
from ir.types import Dim, Size


class StoreRun:
    """`set_index` of one axis, each on the result of the one before, at known distances.

    source: the tensor that the first one stores into.
    results: those of the stores, in their order.
    places: the distance of an index from `first` -> the numbers of its stores, ascending.
    """

    def __init__(self, axis: int, first: Dim, source: Value) -> None:
        self.axis, self.first, self.source = axis, first, source
        self.results: list[Value] = []
        self.places: dict[int, list[int]] = {}

    def takes(self, op: Op) -> bool:
        """Whether `op` goes on from the last store."""
        at_end = op.operands[0] is self.results[-1]
        return at_end and axis_of(op) == self.axis and self.distance(op) is not None

    def distance(self, op: Op) -> int | None:
        """Return the distance of the index of `op` from the first one, if it is a number."""
        apart = op.attrs["index"] - self.first
        return None if isinstance(apart, Size) else apart

    def add(self, op: Op, distance: int) -> None:
        self.places.setdefault(distance, []).append(len(self.results))
        self.results.append(op.result)

    def latest(self, distance: int, end: int) -> int | None:
        """The number of the last store at a place, among the first `end`."""
        found = self.places.get(distance, ())
        k = bisect_left(found, end)
        return found[k - 1] if k else None


#: block -> result of a store -> its run and its number in it
_RUNS: WeakKeyDictionary[Block, dict[Value, tuple[StoreRun, int]]] = WeakKeyDictionary()


def axis_of(op: Op) -> int:
    return int(op.attrs["axis"]) % op.operands[0].type.ndim


def behind(b: Block, read: Op) -> Value:
    """Return the value that an `index` reads from, past the stores to other elements."""
    source, axis = read.operands[0], axis_of(read)
    while (found := run_of(b, source)) is not None:
        run, number = found
        distance = run.distance(read) if run.axis == axis else None
        if distance is None:
            break
        latest = run.latest(distance, number + 1)
        if latest is not None:
            return run.results[latest]
        source = run.source
    return source


def run_of(b: Block, v: Value) -> tuple[StoreRun, int] | None:
    """The run in which a store of the block makes `v`, and the number of the store."""
    known = _RUNS.setdefault(b, {})
    new: list[Op] = []
    while v not in known and (op := b.op_of(v, "set_index")) is not None:
        new.append(op)
        v = op.operands[0]
    for op in reversed(new):
        run = known[op.operands[0]][0] if op.operands[0] in known else None
        if run is None or not run.takes(op):
            run = StoreRun(axis_of(op), op.attrs["index"], op.operands[0])
        known[op.result] = run, len(run.results)
        run.add(op, run.distance(op) or 0)
    return known.get(new[0].result if new else v)
