"""Attempts to roll a loop, and its parts: the first or last iterations, or all of them, run one by
one."""

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
from dy2st.state.tree import TypeMismatch, is_flag
from dy2st.trace.frames import TracedLoop
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import MOST_SETTLED
from dy2st.trace.trace import Trace
from dy2st.trace.trace_state import Traced
from dy2st.trace.undo import MISSING
from dy2st.trace.user_stack import call_stack
from ir import ENDLESS, Loc, Size
from ir.types import Dim

#: a window of so many elements is filled by iterations that run before the loop
MOST_PEELED = 64
#: so many iterations fill a window that is too short for a loop that fills it
MOST_SHORT = 5
#: how often a loop is split in two
MOST_PARTS = 3


class LoopAttempts:
    """The attempts to roll one loop. `turns`: the iterations from which a comparison of the index
    is another. It may be the first of the `parts` of a loop that has been split, which `fills` a
    window: its iterations run before the loop, as those that are peeled off. `asked`: a trace has
    looked for a bound. `layers`: its index picks Layers. `again`: asking the test in front of the
    loop has changed nothing. `reached`: the integers behind the loop if data does not end it, which
    it cannot if the number of iterations is `fixed`. `tail`: why the last iterations run behind it.
    `beliefs`: what a loop has been rolled under. `leads`: another part follows, which data and the
    test of this one may not prevent; `begun`: another part is in front."""

    def __init__(
        self,
        trace: Trace,
        site: Loc,
        over: LoopIterable,
        code: LoopCode,
        peeled: int = 0,
        parts: int = 0,
    ) -> None:
        self.trace, self.site, self.over, self.code, self.parts = trace, site, over, code, parts
        self.turns: set[int] = set()
        self.fills = self.fixed = self.leads = self.begun = False
        self.whole, self.peeled, self.why, self.tail = over.trip, peeled, "", ""
        self.reached: dict[str, object] = {}
        self.beliefs: object = None
        self.most = 2
        self.asked = self.layers = self.again = False
        self.first_stop: BaseException = NeedsConcrete("")
        self.first: BaseException | None = None
        self.stops: dict[int, tuple[BaseException, str]] = {}

    def begins_as_none(self) -> bool:
        """Whether the first iteration fills a place that is None, or sets one that is not there:
        the remaining iterations may be uniform then."""
        places = [q.get() for q in self.known().places.values()]
        found = any(q is None for q in (*self.code.get_state(), *places))
        return not self.peeled and (found or any(q is MISSING for q in places))

    def turn(self) -> int:
        """The first iteration from which a comparison of the index is another; 0 for none, or where
        peeling serves."""
        able = self.over.more is None and self.again and self.parts < MOST_PARTS
        able = able and (self.leads or self.over.trip == ENDLESS or not self.open())
        able = able and not self.known().assumed
        later = [k for k in self.turns if k > 2 or not getattr(self.first_stop, "peel", True)]
        return min(later) if able and later else 0

    def open(self) -> bool:
        """Whether its test, as far as that is known, may end the loop before its bound."""
        exact = self.over.trip == ENDLESS and self.known().exact
        exact = exact and not any(map(is_flag, self.code.names))
        return not (self.code.test is None or self.fixed or exact)

    def stopped(self, e: BaseException, why: str) -> None:
        self.why, self.first_stop = why, e
        self.first = self.first or e
        self.stops[self.peeled] = e, why

    def keep_stops(self) -> None:
        """Keep the stops of a loop that begins after its first iterations, or is written out, for
        when the code around it is traced again."""
        for peeled, stop in self.stops.items():
            self.known(peeled).stop = (*stop, self.layers)

    def known(self, peeled: int | None = None) -> LearnedFacts:
        """By the calls that led here: a function that is called twice has two loops. What has been
        learned before an iteration ran apart holds behind it."""
        peeled = self.peeled if peeled is None else peeled
        learned, key = self.trace.loop_facts.learned, (call_stack(), self.code.key)
        found = learned.get((key, peeled))
        if found is None:
            less = (learned.get((key, k)) for k in range(peeled - 1, -1, -1))
            before = next((q for q in less if q is not None), LearnedFacts())
            found = learned[key, peeled] = before.behind_an_iteration(peeled)
        return found

    @property
    def traced(self) -> Traced:
        return self.trace.loop_facts.traced.setdefault(call_stack(), Traced(self.site))


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
    state, trip = zip(code.names, code.get_state()), trace.sym(over.trip)
    steps = ((n, x, known.step((n,), x)) for n, x in state)
    return {n: operator.add(x, trip * step) for n, x, step in steps if step is not None}


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
