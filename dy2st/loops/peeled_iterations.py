"""Parts of a loop: its first or last iterations, or all of them, run one by one."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator, Set
from typing import Any

from dy2st.branches.cond import condition, decide
from dy2st.loops.iterables import lose
from dy2st.loops.learned_facts import LearnedFacts
from dy2st.loops.loop_code import LoopCode, LoopIterable
from dy2st.loops.record import Goes
from dy2st.state.tree import TypeMismatch
from dy2st.trace.frames import TracedLoop
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import MOST_SETTLED
from dy2st.trace.trace import Trace
from ir import ENDLESS, Size
from ir.types import Dim

#: a window of so many elements is filled by iterations that run before the loop
MOST_PEELED = 64
#: so many iterations fill a window that is too short for a loop that fills it
MOST_SHORT = 5
#: how often a loop is split in two
MOST_PARTS = 3


def there_is_one(trace: Trace, trip: Dim, go: Goes) -> Goes:
    """Whether a first iteration runs. `go`: what the test says; over what a loop that data ends has
    made, there may be none."""
    counts = trace.sizes.counts.keys() - trace.sizes.quotients.keys()
    counted = isinstance(trip, Size) and not trip.names.isdisjoint(counts)
    return condition(trace, trace.sym(trip) > 0) if go is True and counted else go


def most_peeled(stop: BaseException, trip: Dim, peeled: int, peel: int, turns: Set[int]) -> int:
    """How many of the first iterations may run before the others if `peel` more may settle what
    stops the loop: a window that they fill, or a tensor that one of them makes longer. `turns`: as
    of `LoopRoller`; a length that is compared with 0, 1, 2 turns in each of them."""
    before, fills = getattr(stop, "before", ""), getattr(stop, "fills", 0)
    if (peel > 1 or before == "None" or fills) and peeled + peel <= MOST_PEELED:
        return peeled + peel
    if peel and 1 in turns:
        return min(peeled + 1, MOST_SHORT)
    if not isinstance(stop, TypeMismatch) or not isinstance(trip, int):
        return 0
    types = [q.partition("[") for q in (before, stop.after)]
    resized = len({(kind, shape.count(",")) for kind, _, shape in types}) == 1
    return min(peeled + 1, MOST_SHORT) if resized and types[0][1] else 0


def most_apart(over: LoopIterable, loop: TracedLoop, is_open: bool) -> int:
    """How many of the last iterations may run behind the others: one where data may end the loop
    before."""
    able = over.uncut and loop.trip != ENDLESS and (over.more is None or bool(over.limit))
    return int(able) if is_open else able * MOST_SETTLED


def beliefs(known: LearnedFacts) -> object:
    """The steps of numbers and lengths that the body is believed to have."""
    return dict(known.steps), dict(known.numbers), dict(known.growth)


def moved(
    trace: Trace, over: LoopIterable, code: LoopCode, known: LearnedFacts
) -> dict[str, object]:
    """The integers that move by a constant after all iterations."""
    if over.trip == ENDLESS or over.more is not None:
        return {}
    state, steps, trip = zip(code.names, code.get_state()), known.steps, trace.sym(over.trip)
    return {n: operator.add(x, trip * steps[(n,)]) for n, x in state if (n,) in steps}


def first_of(code: LoopCode, reached: dict[str, object]) -> LoopCode:
    """The code of the iterations behind a loop that data has not ended before."""

    def body(item: object) -> None:
        state = zip(code.names, code.get_state())
        code.set_state(tuple(reached.pop(n, x) for n, x in state))
        code.body(item)

    return dataclasses.replace(code, body=body)


def unrolled(
    trace: Trace,
    items: Iterator[tuple[object, object]],
    code: LoopCode,
    more: Callable[[Any], Goes],
    go: Goes | None = None,
    of: object = None,
) -> None:
    """Iteration by iteration; after a test on data the rest runs in a branch. `items`: with their
    numbers. `go`: what `more` has answered for the first one. `of`: the user's iterator, of which
    none is taken before the test has been asked."""
    while True:
        if of is not None and go is None:
            go = more(0)
        if go is False or (found := next(items, None)) is None:
            return
        go = more(found[0]) if go is None else go
        if is_runtime_scalar(go):

            def rest(first: object = found[1]) -> None:
                code.body(first)
                unrolled(trace, items, code, more, of=of)

            if of is not None:
                lose(trace, of)
            state = (code.get_state, code.set_state, code.names, None, True)
            return decide(trace, go, rest, lambda: None, *state)
        if go is not False:
            code.body(found[1])
            go = None
