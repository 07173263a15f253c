"""Poison: dead memory is overwritten, so that a read of it becomes visible.

With `DY2ST_POISON=1`, or `poison=True`, buffers and outputs are filled with bytes of 0xFF (NaN, or
-1) before the first launch, and every buffer again behind its last one. Results stay the same.
Liveness is found from the launches alone, independently of the planner.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from executor.launches import Branch, Launch, Loop, Lowered, Map, When, blocks, views
from executor.memory import Buffer, View, memory_of
from ir import Value
from ir.scalar import language as k
from ir.types import U8

BYTE = 0xFF


def wanted() -> bool:
    return os.environ.get("DY2ST_POISON", "") == "1"


def poisoned(lowered: Lowered, donated: Iterable[int] = ()) -> tuple[Launch, ...]:
    """The launches, with fills before and between them, and donated inputs filled at the end."""
    outputs = zip(lowered.outputs, lowered.program.outputs)
    fresh = [b for b, v in outputs if isinstance(v, Value)]
    fresh += list(dict.fromkeys(_every(lowered.launches)))
    known = set(lowered.program.sizes)
    sized = [b for b in fresh if isinstance(b.size, int) or b.size.names <= known]
    given = (lowered.inputs[n] for n in donated)
    return (*map(fill, sized), *_block(lowered.launches, frozenset()), *map(fill, given))


def fill(b: Buffer) -> Launch:
    out = View(b, U8, 0, (b.size,), (1,))
    return Map(out.shape, (), (k.const(BYTE, U8),), (out,))


def _block(launches: Sequence[Launch], outside: frozenset[Buffer]) -> tuple[Launch, ...]:
    """A buffer that only one block inside of a launch touches dies in that block; those of
    `outside` live on."""
    touched = [set(_every([x])) - outside for x in launches]
    users = Counter(b for found in touched for b in found)
    inner = Counter(b for x in launches for body in blocks(x) for b in set(_every(body)))
    own = {b for x in launches for b in _own(x)}
    here = {b for b in users if users[b] > 1 or inner[b] != 1 or b in own}
    last = {b: at for at, found in enumerate(touched) for b in found}
    out: list[Launch] = []
    for at, x in enumerate(launches):
        dying = [b for b in last if b in here and last[b] == at]
        entered = [b for b in dying if isinstance(x, Branch) and inner[b] == 0]
        out.append(_inside(x, outside | here, tuple(map(fill, entered))))
        out += [fill(b) for b in dying if b not in entered]
    return tuple(out)


def _inside(x: Launch, outside: frozenset[Buffer], first: tuple[Launch, ...]) -> Launch:
    """With fills inside; `first` are fills for the test of a branch, dead when a side begins."""
    if isinstance(x, (When, Loop)):
        return replace(x, body=_block(x.body, outside))
    if isinstance(x, Branch):
        then, orelse = (_block(b, outside) for b in (x.then, x.orelse))
        return replace(x, then=(*first, *then), orelse=(*first, *orelse))
    return x


def _own(x: Launch) -> Iterable[Buffer]:
    found = (b for v in views(x) for b in memory_of(v.buffer))
    return (b for b in found if b.kind == "arena")


def _every(launches: Sequence[Launch]) -> Iterable[Buffer]:
    """The arena buffers that launches touch, and those inside of them."""
    for x in launches:
        yield from _own(x)
        for body in blocks(x):
            yield from _every(body)
