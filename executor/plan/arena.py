"""The arena: lifetimes of buffers from the launches that touch them, and where each one lies.

A buffer lives from its first to its last launch. Where it is touched inside of a loop or a branch
and also outside of it, it lives through all of that; buffers of the two sides of a branch never
live at the same time. Buffers whose size is a number share memory by
offset; a buffer of symbolic size shares a slot with buffers of the same size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from executor.allocation import HOST
from executor.launches import Launch, blocks, views
from executor.memory import Buffer, memory_of
from ir.types import Dim, evaluate_dim

Interval = tuple[int, int]


@dataclass(frozen=True)
class ArenaSlot:
    """Memory of one size for buffers that never live at the same time."""

    size: Dim
    buffers: list[Buffer]


@dataclass(frozen=True)
class ArenaLayout:
    """`fixed` bytes come first, with `offsets` in them; then the slots. All lie at multiples of
    `alignment`."""

    fixed: int
    offsets: dict[Buffer, int]
    slots: tuple[ArenaSlot, ...]
    lives: dict[Buffer, Interval]
    alignment: int = HOST.alignment

    def bytes(self, sizes: Mapping[str, int]) -> int:
        total = self.fixed
        for s in self.slots:
            total += aligned(max(0, evaluate_dim(s.size, sizes)), self.alignment)
        return total


def aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


@dataclass
class _BlockLifetimes:
    """Numbers of the first and the last launch; buffers touched directly, and by the blocks
    inside."""

    start: int
    end: int = 0
    touched: dict[Buffer, Interval] = field(default_factory=dict)
    inside: list[_BlockLifetimes] = field(default_factory=list)


def lifetimes(launches: Sequence[Launch]) -> dict[Buffer, Interval]:
    """For every arena buffer the numbers of the first and the last launch of its life."""
    top, _ = _walk(launches, 0)
    out: dict[Buffer, Interval] = {}
    _resolve(top, out)
    return out


def _walk(launches: Sequence[Launch], at: int) -> tuple[_BlockLifetimes, int]:
    block = _BlockLifetimes(at)
    for launch in launches:
        for b in (b for v in views(launch) for b in memory_of(v.buffer)):
            if b.kind == "arena":
                low, high = block.touched.get(b, (at, at))
                block.touched[b] = (min(low, at), max(high, at))
        at += 1
        for body in blocks(launch):
            inner, at = _walk(body, at)
            block.inside.append(inner)
    block.end = max(block.start, at - 1)
    return block, at


def _resolve(block: _BlockLifetimes, out: dict[Buffer, Interval]) -> list[Buffer]:
    """The buffers touched in `block`; their lives go to `out`, as seen from the innermost block
    that holds all their launches (an outer block overrides what an inner one found). In an order
    that every process has: code of an earlier one is found by its text."""
    seen = dict(block.touched)
    shared = dict.fromkeys(seen)
    for inner in block.inside:
        for b in _resolve(inner, out):
            if b in seen:
                shared[b] = None
            low, high = seen.get(b, (inner.start, inner.end))
            seen[b] = (min(low, inner.start), max(high, inner.end))
    out.update((b, seen[b]) for b in shared)
    return list(seen)


def overlap(a: Interval, b: Interval) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def layout(launches: Sequence[Launch], alignment: int = HOST.alignment) -> ArenaLayout:
    lives = lifetimes(launches)
    fixed = [b for b in lives if isinstance(b.size, int)]
    taken = _OccupiedAreas(1 + max((end for _, end in lives.values()), default=0))
    offsets: dict[Buffer, int] = {}
    top = 0
    for b in sorted(fixed, key=lambda q: (-_size(q, alignment), lives[q])):
        offsets[b] = taken.place(_size(b, alignment), lives[b])
        top = max(top, offsets[b] + _size(b, alignment))
    rest = sorted((b for b in lives if b not in offsets), key=lambda q: lives[q])
    return ArenaLayout(top, offsets, _shared(rest, lives), lives, alignment)


def _size(b: Buffer, alignment: int) -> int:
    assert isinstance(b.size, int)
    return aligned(max(b.size, 1), alignment)


class _OccupiedAreas:
    """The taken areas of the arena over time: a segment tree over the numbers of the launches.

    A lifetime is the union of few nodes of the tree. For node i, `whole[i]` are the areas of
    lifetimes that consist of it, and `parts[i]` those of it and of the nodes below it. Places are
    kept as sorted bounds: low, high, low, high, ... of areas that do not touch. Most lie without
    gaps, so that there are few.
    """

    def __init__(self, launches: int) -> None:
        self.leaves = 1 << (launches - 1).bit_length()
        self.whole: dict[int, list[int]] = {}
        self.parts: dict[int, list[int]] = {}

    def place(self, size: int, life: Interval) -> int:
        """Take the lowest place that is free all the time."""
        nodes = self.nodes(life)
        above = {i >> k for i in nodes for k in range(1, i.bit_length())}
        found = [self.parts[i] for i in nodes if i in self.parts]
        found += [self.whole[i] for i in above if i in self.whole]
        at = _lowest(size, found)
        for i in nodes:
            _take(self.whole.setdefault(i, []), at, at + size)
        for i in above.union(nodes):
            _take(self.parts.setdefault(i, []), at, at + size)
        return at

    def nodes(self, life: Interval) -> list[int]:
        """The nodes that a life consists of; the root is 1, below i are 2 i and 2 i + 1."""
        low, high = life[0] + self.leaves, life[1] + self.leaves + 1
        out = []
        while low < high:
            if low & 1:
                out.append(low)
                low += 1
            if high & 1:
                high -= 1
                out.append(high)
            low, high = low >> 1, high >> 1
        return out


def _lowest(size: int, taken: Sequence[Sequence[int]]) -> int:
    """The lowest place where `size` bytes are free of all that is taken."""
    at = 0
    for low, high in sorted((b[k], b[k + 1]) for b in taken for k in range(0, len(b), 2)):
        if at + size <= low:
            break
        at = max(at, high)
    return at


def _take(bounds: list[int], low: int, high: int) -> None:
    """Add an area, which may overlap and touch others."""
    first, last = bisect_left(bounds, low), bisect_right(bounds, high)
    ends = [low] if first % 2 == 0 else []
    if last % 2 == 0:
        ends.append(high)
    bounds[first:last] = ends


def _shared(buffers: Sequence[Buffer], lives: Mapping[Buffer, Interval]) -> tuple[ArenaSlot, ...]:
    """Slots for buffers in the order of their lives: each gets the first of its size that is free.

    `busy` are slots with the ends of their last lives, `free` those that may be used again.
    """
    slots: list[ArenaSlot] = []
    busy: dict[Dim, list[tuple[int, int]]] = {}
    free: dict[Dim, list[int]] = {}
    for b in buffers:
        start, end = lives[b]
        waiting, ready = busy.setdefault(b.size, []), free.setdefault(b.size, [])
        while waiting and waiting[0][0] < start:
            heappush(ready, heappop(waiting)[1])
        if not ready:
            heappush(ready, len(slots))
            slots.append(ArenaSlot(b.size, []))
        at = heappop(ready)
        slots[at].buffers.append(b)
        heappush(waiting, (end, at))
    return tuple(slots)
