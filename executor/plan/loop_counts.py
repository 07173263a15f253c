"""Sizes that a program finds while it runs: the trip counts of its `while` loops, and the indices
of loops in their bodies.

The count of a loop names a size from the loop to the end of its block. Until then only its bound,
the loop's `trip`, says how much memory a value of such a size may take; the same bound holds for
its index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import TypeAlias

from ir import Scan
from ir.program import Node
from ir.types import Dim, Size
from ir.uses import blocks, walk

#: a loop of more iterations than this counts as one without a bound: its results grow in chunks
LIMIT = 1 << 31
#: a loop that reads and makes more elements than this takes minutes
LONG = 1 << 38

#: the most that each of these sizes can be; None where nothing says
Bounds: TypeAlias = Mapping[str, Dim | None]


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
    """How many elements nodes read and make, where a size that is a name counts as 1."""
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


def most(trip: Dim, bounds: Bounds) -> Dim | None:
    """The largest trip count of a loop, as a dim that is never negative; None if it is
    unbounded."""
    at_most = bound(trip, bounds)
    if isinstance(at_most, Size):
        return _sum(t for t in at_most.terms if t[1] > 0)
    return at_most if at_most is None or at_most <= LIMIT else None


def bound(d: Dim, bounds: Bounds) -> Dim | None:
    """A dim of known sizes that is at least `d`, for a `d` that is not negative."""
    if isinstance(d, int) or not any(n in bounds for n in d.names):
        return d
    known = {n: bounds[n] for n in d.names if n in bounds}
    found = {n: b for n, b in known.items() if b is not None}
    if len(found) < len(known):
        return None
    kept = _sum(t for t in d.terms if t[1] > 0 or not any(n in found for n in t[0]))
    return kept.substitute(found) if isinstance(kept, Size) else kept


def bounds_of(nodes: Iterable[Node], outer: Bounds | None = None) -> dict[str, Dim | None]:
    """`outer`, and the bounds of the sizes that the loops of a block define, a loop's own before
    those of loops inside."""
    out = dict(outer or {})
    for node in nodes:
        if isinstance(node, Scan):
            names = (name for name in (node.count, node.size) if name)
            out.update(dict.fromkeys(names, most(node.trip, out)))
    return out


def _sum(terms: Iterable[tuple[tuple[str, ...], int]]) -> Dim:
    total: Dim = 0
    for names, k in terms:
        total = total + (Size(((names, k),)) if names else k)
    return total
