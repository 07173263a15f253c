"""Runs of launches that become one, in a program and in its loops and branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from executor.launches import Launch, blocks, views, with_blocks
from executor.memory import Buffer, memory_of

#: whether some launches are the only ones that touch memory, and the caller does not see it
Own: TypeAlias = Callable[[Sequence[Launch], Buffer], bool]
#: what stands for the launches from a place on, and how many those are
Family: TypeAlias = Callable[[Sequence[Launch], int, Own], tuple[list[Launch], int] | None]


def owner(launches: Sequence[Launch]) -> Own:
    """For the launches of a program, or those that stand for some of them."""
    touches = Counter(touched(launches))

    def own(some: Sequence[Launch], b: Buffer) -> bool:
        return b.kind == "arena" and touches[b] == sum(q is b for q in touched(some))

    return own


def grouped(launches: Sequence[Launch], *families: Family) -> list[Launch]:
    """The launches with each run that a family covers as one; families that come first choose
    first."""
    return _grouped(launches, families, owner(launches))


def _grouped(launches: Sequence[Launch], families: Sequence[Family], own: Own) -> list[Launch]:
    out: list[Launch] = []
    at = 0
    while at < len(launches):
        runs = (f(launches, at, own) for f in families)
        found, count = next((r for r in runs if r is not None), ([], 0))
        if not count:
            found = [with_blocks(launches[at], lambda q: _grouped(q, families, own))]
        out += found
        at += max(count, 1)
    return out


def touched(launches: Sequence[Launch]) -> Iterator[Buffer]:
    """The memory that launches touch, each as often as they do."""
    for x in launches:
        for v in views(x):
            yield from memory_of(v.buffer)
        for inside in blocks(x):
            yield from touched(inside)
