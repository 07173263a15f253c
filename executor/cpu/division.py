"""Division of a long program into native functions, each compiled by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from executor.launches import Launch, Loop, blocks

#: the most launches in one native function: LLVM takes more than twice as long for twice the length
LONGEST = 128
#: the most launches that the loops of a cold function make: each takes a nanosecond more there
SELDOM = 512


def weight(launches: Sequence[Launch]) -> int:
    """Count launches, nested ones included."""
    return len(launches) + sum(weight(b) for x in launches for b in blocks(x))


def is_seldom(launches: Sequence[Launch]) -> bool:
    """Whether loops make few launches more than there are."""
    return made(launches) - weight(launches) <= SELDOM


def made(launches: Sequence[Launch]) -> float:
    """Return a bound of the number of short launches that run; infinite for a loop whose length is
    a size."""
    total: float = len(launches)
    for x in launches:
        inside = sum(map(made, blocks(x)))
        if isinstance(x, Loop) and not x.coarse:
            inside = inside * x.trip if isinstance(x.trip, int) else inf
        total += inside
    return total


def runs(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    """Launches that are next to each other, at most `LONGEST`; a longer one is alone."""
    run: list[Launch] = []
    have = 0
    for x in launches:
        more = weight([x])
        if run and have + more > LONGEST:
            yield run
            run, have = [], 0
        run.append(x)
        have += more
    if run:
        yield run
