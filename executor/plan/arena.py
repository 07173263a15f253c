"""The arena: lifetimes of buffers from the launches that touch them, and where each one lies.

A buffer lives from its first to its last launch. Where it is touched inside of a loop or a branch
and also outside of it, it lives through all of that; buffers of the two sides of a branch never
live at the same time. Buffers whose size is a number share memory by
offset; a buffer of symbolic size shares a slot with buffers of the same size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from executor.allocation import HOST
from executor.launches import Launch, blocks, views
from executor.memory import Buffer
from ir.types import Dim, evaluate_dim

Interval = tuple[int, int]


@dataclass(frozen=True)
class Slot:
    """Memory of one size for buffers that never live at the same time."""

    size: Dim
    buffers: list[Buffer]


@dataclass(frozen=True)
class Layout:
    """`fixed` bytes come first, with `offsets` in them; then the slots. All lie at multiples of
    `alignment`."""

    fixed: int
    offsets: dict[Buffer, int]
    slots: tuple[Slot, ...]
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
class _Block:
    """Numbers of the first and the last launch; buffers touched directly, and by the blocks
    inside."""

    start: int
    end: int = 0
    touched: dict[Buffer, Interval] = field(default_factory=dict)
    inside: list[_Block] = field(default_factory=list)


def lifetimes(launches: Sequence[Launch]) -> dict[Buffer, Interval]:
    """For every arena buffer the numbers of the first and the last launch of its life."""
    top, _ = _walk(launches, 0)
    out: dict[Buffer, Interval] = {}
    _resolve(top, out)
    return out


def _walk(launches: Sequence[Launch], at: int) -> tuple[_Block, int]:
    block = _Block(at)
    for launch in launches:
        for v in views(launch):
            if v.buffer.kind == "arena":
                low, high = block.touched.get(v.buffer, (at, at))
                block.touched[v.buffer] = (min(low, at), max(high, at))
        at += 1
        for body in blocks(launch):
            inner, at = _walk(body, at)
            block.inside.append(inner)
    block.end = max(block.start, at - 1)
    return block, at


def _resolve(block: _Block, out: dict[Buffer, Interval]) -> set[Buffer]:
    """The buffers touched in `block`; their lives go to `out`, as seen from the innermost block
    that holds all their launches (an outer block overrides what an inner one found)."""
    seen = dict(block.touched)
    shared = set(seen)
    for inner in block.inside:
        for b in _resolve(inner, out):
            if b in seen:
                shared.add(b)
            low, high = seen.get(b, (inner.start, inner.end))
            seen[b] = (min(low, inner.start), max(high, inner.end))
    out.update((b, seen[b]) for b in shared)
    return set(seen)


def overlap(a: Interval, b: Interval) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def layout(launches: Sequence[Launch], alignment: int = HOST.alignment) -> Layout:
    lives = lifetimes(launches)
    fixed = [b for b in lives if isinstance(b.size, int)]
    offsets: dict[Buffer, int] = {}
    top = 0
    for b in sorted(fixed, key=lambda q: (-_size(q, alignment), lives[q])):
        offsets[b] = _place(b, offsets, lives, alignment)
        top = max(top, offsets[b] + _size(b, alignment))
    slots: list[Slot] = []
    for b in sorted((b for b in lives if b not in offsets), key=lambda q: lives[q]):
        _share(b, slots, lives)
    return Layout(top, offsets, tuple(slots), lives, alignment)


def _size(b: Buffer, alignment: int) -> int:
    assert isinstance(b.size, int)
    return aligned(max(b.size, 1), alignment)


def _place(
    b: Buffer, offsets: dict[Buffer, int], lives: dict[Buffer, Interval], alignment: int
) -> int:
    """The lowest offset that no buffer alive at the same time uses."""
    near = ((q, at) for q, at in offsets.items() if overlap(lives[q], lives[b]))
    taken = [(at, at + _size(q, alignment)) for q, at in near]
    at = 0
    for low, high in sorted(taken):
        if at + _size(b, alignment) <= low:
            break
        at = max(at, high)
    return at


def _share(b: Buffer, slots: list[Slot], lives: dict[Buffer, Interval]) -> None:
    for s in slots:
        if s.size == b.size and not any(overlap(lives[q], lives[b]) for q in s.buffers):
            s.buffers.append(b)
            return
    slots.append(Slot(b.size, [b]))
