"""Facts about the sizes of a trace: loop indices, counts of while loops, and named sizes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from dy2st.trace.frames import Frame, TracedLoop
from ir import ENDLESS, MIN_CAPACITY, Loc, Size, Type, Value
from ir.analysis.ranges import Range, extreme, never_negative
from ir.types import I64, Dim, names_in, substitute_dim

#: What an undetermined size is taken to be where Python has to branch on it.
TYPICAL = 1 << 20


def _limit(trip: Dim) -> tuple[int, Dim] | None:
    """The upper bound of the index of a loop over a quotient, times the divisor (`TracedLoop`)."""
    if not isinstance(trip, Size) or len(trip.quotients) != 1:
        return None
    (q,) = trip.quotients
    rest = trip - Size.named(q)
    return (q.divisor, q.numerator + (rest - 1) * q.divisor) if isinstance(rest, int) else None


@dataclass(eq=False)
class SizeFacts:
    """Names of sizes, with the range of each.

    loops: loops by the name of their index, which is also a size in the body.
    counts: the least and the largest number of iterations of a while loop, by name.
    quotients: for a count that is a size by a number, rounded up, that number and the range of the
    count times it: from that size on.
    nonempty: the largest count where it is not 0, if that is less than the largest one.
    sides: for a count that a branch decides about, that of each side, by what holds there.
    count_homes: the frame in which a count is known.
    hints: the size of the call that is traced, for each named size of the arguments.
    streamed: whether sizes are those of a sequence of chunks: the program is only captured.
    divided: the sizes of a stream that have been divided, by what, and where. measured: where the
    end of a slice of a stream is a size: that of another tensor, perhaps.
    capacities: sizes that nothing bounds: the largest number of iterations of a `while` loop that
    makes tensors longer.
    births: for indices and counts, the order in which they were named: a bound names older ones.
    """

    loops: dict[str, TracedLoop] = field(default_factory=dict)
    counts: dict[str, tuple[int, Dim]] = field(default_factory=dict)
    quotients: dict[str, tuple[int, Dim, Dim]] = field(default_factory=dict)
    nonempty: dict[str, Dim] = field(default_factory=dict)
    sides: dict[str, dict[Hashable, Dim]] = field(default_factory=dict)
    count_homes: dict[str, Frame] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    births: dict[str, int] = field(default_factory=dict)
    streamed: bool = False
    divided: list[tuple[Dim, Dim, Loc]] = field(default_factory=list)
    measured: list[Loc] = field(default_factory=list)
    capacities: list[str] = field(default_factory=list)
    counter: Iterator[int] = field(default_factory=itertools.count)

    def text_of(self, x: object) -> str:
        """The text of a size or a type, as the user reads it: every index is `t`."""
        return re.sub(r"\w+", lambda m: "t" if m[0] in self.loops else m[0], str(x))

    def settle(self, dim: Dim) -> int:
        """The value of a size in this call; typical numbers stand for open names."""
        if not isinstance(dim, Size):
            return dim
        return dim.evaluate({n: self.settled(n) for n in dim.names})

    def settled(self, name: str) -> int:
        if name in self.quotients:
            number, total, _ = self.quotients[name]
            return -(-self.settle(total) // number)
        return self.hints.get(name, TYPICAL)

    def of_dividend(self, gap: Dim, relation: str) -> list[Dim]:
        """The sizes that are 0 or more where this number of iterations is; none for no quotient."""
        names = names_in(gap)
        number, total, _ = self.quotients.get(next(iter(names), ""), (0, 0, 0))
        rest = gap - Size.named(next(iter(names))) if number else gap
        if not number or not isinstance(rest, int) or relation == "!=":
            return []
        above = total - (number * (-rest - 1) + 1)
        return [above] if relation == ">=" else [above, number * -rest - total]

    def spread(self, dim: Dim) -> tuple[int, int]:
        """The least and the largest value in this call for small and large capacities."""
        ends = [dim]
        for name in names_in(dim).intersection(self.capacities):
            ends = [substitute_dim(q, {name: n}) for q in ends for n in (MIN_CAPACITY, ENDLESS)]  # type: ignore[arg-type]
        found = [self.settle(q) for q in ends]
        return min(found), max(found)

    def range_of(self, name: str, skip: int = 0) -> Range | None:
        """Return the range of an index (from iteration `skip` on) or of a count."""
        loop = self.loops.get(name)
        if loop is not None:
            return Range(skip, loop.trip - 1, loop.limit)
        if name not in self.counts:
            return None
        number, low, high = self.quotients.get(name, (0, 0, 0))
        ends = ((number, high), (number, low)) if number else ()
        return Range(*self.counts[name], *ends)

    def extreme(
        self, dim: Dim, largest: bool, over: Callable[[str], bool] | None = None
    ) -> Dim | None:
        """The largest, or the least, value over all iterations of the loops, and over all counts of
        the while loops that ended; None if it is not known. `over`: only over these."""

        def ranges(name: str) -> Range | None:
            return self.range_of(name) if over is None or over(name) else None

        return extreme(dim, ranges, largest)

    def surely(self, dim: Dim, least: int) -> bool:
        """Whether this size is at least `least` in every call."""

        def ranges(name: str) -> Range | None:
            room = Range(MIN_CAPACITY, None) if name in self.capacities else None
            return room or self.range_of(name)

        return never_negative(dim - least, (), ranges)

    def new_count(self, least: int, most: Dim, home: Frame) -> str:
        """A name for the number of iterations of a while loop in the frame `home`."""
        name = self.new_name("n")
        self.counts[name] = (least, most)
        self.count_homes[name] = home
        return name

    def new_capacity(self) -> Size:
        """The number of iterations that a loop may have, as large as it turns out to be needed."""
        name = f"capacity{len(self.capacities)}"
        while name in self.hints:
            name += "_"
        self.capacities.append(name)
        return Size.named(name)

    def new_loop(self, trip: Dim) -> TracedLoop:
        """A loop of at most `trip` iterations, with a new index."""
        name = self.new_name("t")
        loop = TracedLoop(name, trip, Value(Type(I64), "t"), limit=_limit(trip))
        self.loops[name] = loop
        return loop

    def new_name(self, letter: str) -> str:
        while (name := f"{letter}{(number := next(self.counter))}") in self.hints:
            pass
        self.births[name] = number
        return name

    def is_known(self, dim: Dim, frames: list[Frame]) -> bool:
        """Whether every count in `dim` is known in one of these frames."""
        names = names_in(dim)
        return all(self.count_homes[n] in frames for n in names if n in self.count_homes)
