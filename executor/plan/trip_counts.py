"""Sizes that are known only when a program runs: the trip counts of its `while` loops, and the
indices of loops in their bodies.

The count of a loop names a size from the loop to the end of its block. Until then only its range
says how much memory a value of such a size may take; the same holds for its index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

from ir import Scan
from ir.analysis.ranges import Range, Ranges, index_range, natural_bound
from ir.program import Node
from ir.types import Dim, Size, only_terms
from ir.uses import blocks, walk

#: a loop of more iterations than this counts as one without a bound: its results grow in chunks
LIMIT = 1 << 31
#: a loop that reads and makes more elements than this takes minutes
LONG = 1 << 38


def counts(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The counts that the loops of a block define, in order; not those of blocks inside."""
    return tuple(n.count for n in nodes if isinstance(n, Scan) and n.count)


def asks(nodes: Iterable[Node], capacities: Collection[str]) -> bool:
    """Whether there is a loop that may not end, or not soon, here or inside."""
    return any(isinstance(n, Scan) and is_long(n, capacities) for n in walk(nodes))


def is_long(s: Scan, capacities: Collection[str]) -> bool:
    """Whether a loop has to ask if a signal has come."""
    if isinstance(s.trip, Size):
        return str(s.trip) in capacities
    return s.trip > LIMIT or _work([s]) > LONG


def _work(nodes: Iterable[Node]) -> int:
    """Count the elements that nodes read and make; a named size counts as 1."""
    total = 0
    for n in nodes:
        inside = sum(_work(ops) for ops, _ in blocks(n))
        if isinstance(n, Scan):
            total += (1 + inside) * (n.trip if isinstance(n.trip, int) else 1)
            continue
        values = (*n.operands, *n.results)
        known = ([d for d in v.type.shape if isinstance(d, int)] for v in values)
        total += inside + sum(map(prod, known))
    return total


def ranges_of(trip: Dim, around: Ranges) -> tuple[Range, Range]:
    """Return the ranges of a loop's index in its body and of its count behind it; `around`: those
    that are known in front of it. No largest number where so many iterations are none in
    particular."""
    most = natural_bound(trip, around)
    if most is None or isinstance(most, int) and most > LIMIT:
        return Range(0, None), Range(0, None)
    return index_range(trip), Range(0, only_terms(most, lambda _, k: k > 0))


def all_ranges(nodes: Iterable[Node]) -> dict[str, Range]:
    """Return the ranges of all sizes that loops among nodes define; those inside of them follow
    them."""
    out: dict[str, Range] = {}
    for node in nodes:
        if isinstance(node, Scan):
            found = ranges_of(node.trip, out.get)
            out.update((n, r) for n, r in zip((node.size, node.count), found) if n)
    return out
