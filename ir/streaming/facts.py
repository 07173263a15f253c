"""Facts about values of a program that is made to stream.

The sequence has `unit * QUANTUM` frames, where QUANTUM is the one named size of the stream. A value
with one axis that grows with QUANTUM is a stream. A call takes a whole number of units; each unit
gives `rate` frames of a value. Frame `j` of a value is at position `j`; `n` units after the start
of the stream a chunk begins at position `n * rate - delay`:

    position   -2 -1 | 0  1  2  3 | 4  5 ...          rate 4, delay 2
    first call [ .  .  x0 x1 ]   second call [ x2 x3 x4 x5 ]

Frames before position 0 and behind the end are no data: they hold anything, unless a fact says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ir.opdef import ShapeError
from ir.program import Builder, Value
from ir.types import I64, Dim, line, names_in, substitute_dim

#: the name of the size that counts the units of the whole sequence
QUANTUM = "stream_units"


@dataclass(frozen=True)
class StreamLength:
    """The frames of a value from the frames of the sequence: each step makes `n` into
    `(n + add) // by * times`."""

    steps: tuple[tuple[int, int, int], ...] = ()

    def then(self, add: int = 0, by: int = 1, times: int = 1) -> StreamLength:
        steps = self.steps
        if steps and steps[-1][1:] == (1, 1):
            add, steps = add + steps[-1][0], steps[:-1]
        return StreamLength(steps if (add, by, times) == (0, 1, 1) else (*steps, (add, by, times)))

    def of(self, frames: int) -> int:
        for add, by, times in self.steps:
            frames = (frames + add) // by * times
        return max(0, frames)

    def exact(self) -> list[tuple[StreamLength, StreamLength]]:
        """Lengths that are equal where each division leaves what it leaves for whole chunks, so
        that the length follows from the number of chunks."""
        out, whole, start = [], StreamLength(), 0
        for add, by, times in self.steps:
            rest = (start + add) % by
            if by > 1:
                even = whole.then(add=add - rest)
                out.append((even, even.then(by=by, times=by)))
            whole, start = whole.then(add, by, times), (start + add) // by * times
        return out

    def emit(self, b: Builder, frames: Value) -> Value:
        """Like `of`, for an i64 value; it may be negative."""
        for add, by, times in self.steps:
            if add:
                frames = b.add(frames, b.full(value=add, dtype=I64))
            if by != 1:
                frames = b.floor_divide(frames, b.full(value=by, dtype=I64))
            if times != 1:
                frames = b.multiply(frames, b.full(value=times, dtype=I64))
        return frames


@dataclass(frozen=True)
class Stream:
    """A value whose `axis` is time.

    rate, rest: it has `rate * QUANTUM + rest` frames.
    delay: see the module's docstring. Below 0, the first `-delay` frames are in no chunk: each of
    their elements is `fill`.
    length: its frames for sequences of any length.
    outer: the axis holds so many streams, one behind the other.
    outside: what frames that are no data hold; None if anything.
    uniform: all frames are equal, those that are no data as well.
    """

    axis: int
    rate: int
    rest: int
    delay: int
    length: StreamLength
    outer: Dim = 1
    fill: float | None = None
    outside: float | None = None
    uniform: bool = False


@dataclass(frozen=True)
class HeadValue:
    """A value computed from the first frames: it is there `ready` units after the start."""

    ready: int


@dataclass(frozen=True)
class FinalValue:
    """A value that is known when the stream ends; until then it is that of the frames so far."""


Fact: TypeAlias = Stream | HeadValue | FinalValue


def mentions(d: Dim) -> bool:
    return QUANTUM in names_in(d)


def slope(d: Dim) -> Dim:
    """By how much a dim grows with each unit; raises ShapeError if that is not always the same."""
    found = line(d, QUANTUM)
    if found is None:
        raise ShapeError(f"{d} grows faster than the sequence")
    return found[1]


def constant(d: Dim) -> Dim:
    """Return the constant term of a dim: its value for a sequence of no units."""
    return substitute_dim(d, {QUANTUM: 0})


__all__ = [
    "QUANTUM",
    "Fact",
    "FinalValue",
    "HeadValue",
    "StreamLength",
    "Stream",
    "constant",
    "mentions",
    "slope",
]
