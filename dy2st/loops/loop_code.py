"""A loop as converted code gives it: the items that it runs over, its body and its test."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from dy2st.branches.cond import condition, decide
from dy2st.branches.predicates import testing
from dy2st.loops.record import Goes
from dy2st.state.traced_list import TraceList
from dy2st.trace.scalar import RuntimeScalar
from dy2st.trace.symint import SymInt
from dy2st.trace.trace import Trace
from ir import ENDLESS
from ir.types import Dim

Item = Callable[[Any], object]


@dataclasses.dataclass
class LoopIterable:
    """The iterable of a loop: at most `trip` items, `item(i)` for an int or a symbolic i.

    `more(i)` tells if there is an item i, where `trip` is only a bound; `limit` is a bound of
    `trip` as a number. `uncut`: the last iterations may run apart. `computed`: a function makes the
    items, which is called once for each. `lists`: those that it runs over, with their lengths.
    """

    trip: Dim
    item: Item
    more: Item | None = None
    limit: tuple[int, Dim] | None = None
    uncut: bool = True
    computed: bool = False
    lists: tuple[tuple[TraceList, Dim], ...] = ()

    def is_open(self) -> bool:
        """Whether Python does not know the number of items."""
        return self.more is not None or not isinstance(self.trip, int)

    def rest(self, k: int = 1) -> LoopIterable:
        """Without the first `k` items."""
        more, trip = self.more, self.trip if self.trip == ENDLESS else self.trip - k
        later = None if more is None else lambda i: more(i + k)
        return LoopIterable(
            trip, lambda i: self.item(i + k), later, uncut=self.uncut, lists=self.lists
        )


#: a `while` loop
UNKNOWN = LoopIterable(ENDLESS, lambda i: None)


@dataclasses.dataclass
class LoopCode:
    """The converted loop: its body, the variables that it assigns, and the test before each
    iteration, if there is one. `key` tells loops apart that the same calls lead to. `unroll` steps
    become one iteration of the code."""

    body: Callable[[Any], None]
    get_state: Callable[[], tuple[object, ...]]
    set_state: Callable[[tuple[object, ...]], None]
    names: Sequence[str]
    test: Callable[[], object] | None = None
    key: object = None
    unroll: int = 1

    def more(self, trace: Trace, over: LoopIterable, i: int | SymInt) -> Goes:
        """Whether iteration i runs: a bool or a runtime scalar. Without an item it asks no test."""
        exists = True if over.more is None else condition(trace, over.more(i))
        if self.test is None or exists is False:
            return exists
        if exists is not True:
            return both(trace, exists, self.test)
        with testing(trace):
            return condition(trace, self.test())


def both(trace: Trace, first: RuntimeScalar, test: Callable[[], object]) -> Goes:
    """`first and test()`."""
    held: list[Any] = [False]

    def then() -> None:
        held[0] = condition(trace, test())

    def restore(values: tuple[object, ...]) -> None:
        held[0] = values[0]

    decide(trace, first, then, lambda: None, lambda: (held[0],), restore, ("the test",))
    return held[0]


__all__ = ["UNKNOWN", "Item", "LoopCode", "LoopIterable"]
