"""Chunks of values: their positions, and the state that keeps the frames before them.

`ChunkBuilder` is what the rules emit with. State and positions belong to the outermost block: a
rule that needs them inside of a loop raises `NeedsUnrolling`, and the loop is taken apart if it can
be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from ir.loc import Loc, SourceError
from ir.program import Builder, Value
from ir.streaming.facts import Fact, HeadValue, Stream, StreamLength
from ir.types import BOOL, I64, Dim, Type, dtype_of

#: the frames of a sequence whose end is not known
ENDLESS_FRAMES = 1 << 40


class NeedsUnrolling(Exception):
    """A value inside of a loop or a branch needs state, or its position in the sequence."""

    def __init__(self, why: str, loc: Loc) -> None:
        super().__init__(why)
        self.why, self.loc = why, loc


@dataclass(frozen=True, eq=False)
class StreamState:
    """A buffer: `value` is what a call finds, `initial` what it holds when a stream starts."""

    value: Value
    name: str
    initial: np.ndarray


@dataclass(frozen=True, eq=False)
class Chunk:
    """A new value and what is known of it; None for one that is the same in every call."""

    value: Value
    fact: Fact | None = None

    @property
    def stream(self) -> Stream:
        assert isinstance(self.fact, Stream)
        return self.fact


class ChunkBuilder:
    """The program that is made.

    units: how many units a call takes: 1, or a named size.
    frames: how many frames of the sequence a unit is.
    lengths: the lengths of streams of one rate and rest; `assumed`: rates and rests of tensors of
    which nothing but their size says how long they are; `agreeing`: lengths that have to be equal.
    """

    def __init__(self, units: Dim, frames: int) -> None:
        self.units, self.frames = units, frames
        self.b = Builder()
        self.top = self.b
        self.states: list[StreamState] = []
        self.writes: list[tuple[Value, Value]] = []
        self.lengths: dict[tuple[int, int], list[StreamLength]] = {}
        self.assumed: set[tuple[int, int]] = set()
        self.agreeing: dict[tuple[StreamLength, ...], None] = {}
        self._cache: dict[object, Value] = {}
        self.clock = self.state("units", np.zeros((), np.int64))
        self.end = self.state("frames of the sequence", np.array(ENDLESS_FRAMES, np.int64))

    # ------------------------------------------------------------ state
    def state(self, name: str, initial: np.ndarray) -> Value:
        """A new buffer of the type of `initial`."""
        self._at_top(f"state ({name})")
        count = sum(s.name.split(" #")[0] == name for s in self.states)
        unique = f"{name} #{count + 1}" if count else name
        value = Value(Type(dtype_of(initial.dtype), initial.shape), "state")
        self.states.append(StreamState(value, unique, initial))
        return value

    def numbers(self, shape: Sequence[Dim]) -> tuple[int, ...]:
        """The shape of a state, whose memory is made before the first call."""
        found = tuple(d for d in shape if isinstance(d, int))
        if len(found) < len(shape):
            refuse(
                self.b.loc,
                f"state of the open size {list(shape)}",
                "The memory of a state is made before the first call.",
                "Give sizes other than the time as numbers in input_spec.",
            )
        return found

    def keep(self, state: Value, new: Value) -> None:
        """Set the value of a state after the call."""
        self.writes.append((state, new))

    def _at_top(self, what: str) -> None:
        if self.b is not self.top:
            raise NeedsUnrolling(what, self.b.loc)

    # ------------------------------------------------------------ positions
    def number(self, value: int) -> Value:
        new: Value = self.b.full(value=value, dtype=I64)
        return new

    def _once(self, key: object, make: object) -> Value:
        self._at_top("its position in the sequence")
        if key not in self._cache:
            self._cache[key] = make()  # type: ignore[operator]
        return self._cache[key]

    def start(self, rate: int, delay: int) -> Value:
        """i64[]: the position of the first frame of a chunk."""

        def make() -> Value:
            first = self.b.multiply(self.clock, self.number(rate))
            return self.b.subtract(first, self.number(delay)) if delay else first  # type: ignore[no-any-return]

        return self._once(("start", rate, delay), make)

    def length(self, length: StreamLength) -> Value:
        """i64[]: the frames of a value in the whole sequence."""
        return self._once(length, lambda: length.emit(self.b, self.end))

    def positions(self, s: Stream) -> Value:
        """i64[c]: the position of every frame of a chunk."""

        def make() -> Value:
            n = self.b.iota(n=self.frames_of(s), dtype=I64)
            return self.b.add(n, self.start(s.rate, s.delay))  # type: ignore[no-any-return]

        return self._once(("positions", s.rate, s.delay), make)

    def frames_of(self, s: Stream) -> Dim:
        """The frames of a chunk."""
        return s.rate * self.units

    def inside(self, s: Stream, first: int = 0) -> Value:
        """bool[c]: which frames of a chunk are data, from position `first` on."""

        def make() -> Value:
            at = self.positions(s)
            below = self.b.less_than(at, self.length(s.length))
            if s.delay <= -first:
                return below  # type: ignore[no-any-return]
            above = self.b.greater_equal(at, self.number(first))
            return self.b.logical_and(above, below)  # type: ignore[no-any-return]

        return self._once(("inside", s.rate, s.delay, s.length, first), make)

    # ------------------------------------------------------------ chunks
    def plain(self, x: Chunk, why: str) -> Chunk:
        """A stream that is not one of several behind each other along its axis."""
        if x.stream.outer != 1:
            refuse(
                self.b.loc,
                f"{why} of several sequences that lie behind each other along one axis",
                "Its frames are not those of one stream.",
                "Keep batch and time in axes of their own: reshape to [batch, time, ...] first.",
            )
        return x

    def spread(self, v: Value, axis: int, ndim: int) -> Value:
        """A vector along `axis` of a value with `ndim` axes."""
        shape: list[Dim] = [1] * ndim
        (shape[axis],) = v.type.shape
        new: Value = self.b.reshape(v, shape=tuple(shape))
        return new

    def masked(self, x: Chunk, fill: float, first: int = 0) -> Chunk:
        """`fill` in all frames that are no data, and in those before position `first`."""
        s = self.plain(x, "positions").stream
        if not first and (s.outside == fill and type(s.outside) is type(fill)):
            return x
        mask = self.inside(s, first)
        other = self.b.full(value=_literal(fill, x.value.type), dtype=x.value.type.dtype)
        new = self.b.where(self.spread(mask, s.axis, x.value.type.ndim), x.value, other)
        return Chunk(new, replace(s, outside=fill, uniform=False))

    def window(self, x: Chunk, before: int, fill: float | None) -> Value:
        """A chunk with the `before` frames in front of it; with `fill` for what is no data."""
        s = self.plain(x, "frames").stream
        if fill is not None:
            x = self.masked(x, fill)
        if not before:
            return x.value
        t, axis = x.value.type, s.axis
        shape = (*t.shape[:axis], before, *t.shape[axis + 1 :])
        initial = np.full(self.numbers(shape), _literal(fill or 0, t), t.dtype.numpy)
        if s.delay < 0:
            at = [slice(None)] * t.ndim
            at[axis] = slice(max(0, before + s.delay), None)
            initial[tuple(at)] = s.fill or 0
        state = self.state(f"{x.value.name or 'frames'} at {self.b.loc}", initial)
        whole = self.b.concat(state, x.value, axis=axis)
        n = self.frames_of(s)
        self.keep(state, self.b.slice(whole, axis=axis, start=n, length=before))
        return whole  # type: ignore[no-any-return]

    def delayed(self, x: Chunk, delay: int) -> Chunk:
        """The same stream, later."""
        s = x.stream
        if s.uniform:
            return Chunk(x.value, replace(s, delay=delay))
        if s.delay == delay:
            return x
        assert delay > s.delay, "a stream cannot be earlier"
        whole = self.window(x, delay - s.delay, s.outside)
        new = self.b.slice(whole, axis=s.axis, start=0, length=self.frames_of(s))
        fill = s.fill if delay < 0 else None
        return Chunk(new, replace(s, delay=delay, fill=fill))

    def settled(self, x: Chunk) -> Chunk:
        """A stream of which every frame comes in a chunk, and none before it is sure to exist."""
        s = x.stream
        return self.delayed(x, max(s.delay, 0, -s.rest))

    def latched(self, x: Chunk, index: int) -> Chunk:
        """Frame `index` of a stream, for all calls after it has come; the axis goes."""
        x = self.plain(self.settled(x), "a frame")
        s = x.stream
        t, n = x.value.type, self.frames_of(s)
        at = self.b.subtract(self.number(index), self.start(s.rate, s.delay))
        count = self.b.size(n=n) if not isinstance(n, int) else self.number(n)
        here = self.b.logical_and(
            self.b.greater_equal(at, self.number(0)), self.b.less_than(at, count)
        )
        last = self.b.subtract(count, self.number(1))
        near = self.b.minimum(self.b.maximum(at, self.number(0)), last)
        frame = self.b.dynamic_index(x.value, near, axis=s.axis)
        shape = (*t.shape[: s.axis], *t.shape[s.axis + 1 :])
        state = self.state(
            f"frame {index} at {self.b.loc}", np.zeros(self.numbers(shape), t.dtype.numpy)
        )
        new = self.b.where(here, frame, state)
        self.keep(state, new)
        return Chunk(new, HeadValue((index + s.delay) // s.rate))

    def agree(self, one: StreamLength, other: StreamLength) -> None:
        """A sequence for which these differ has no result."""
        if one != other:
            self.agreeing[one, other] = None

    def aligned(self, xs: Sequence[Chunk], axes: Sequence[int]) -> tuple[list[Chunk], Stream]:
        """Streams with one delay, and that of a result whose `axes[k]` is the time of stream k; it
        follows those that are no streams as well (`HeadValue`)."""
        found = [(x.stream, a) for x, a in zip(xs, axes) if isinstance(x.fact, Stream)]
        if len({a for _, a in found}) > 1:
            refuse(
                self.b.loc,
                "a tensor with the time along two axes",
                "It grows with the square of the sequence.",
                "Limit the context: attend to a window of frames.",
            )
        moving = [s for s, _ in found if not s.uniform]
        pairs = {(s.rate, s.outer) for s in moving}
        if len(pairs) > 1 or len({s.rate * s.outer for s, _ in found}) > 1:
            refuse(
                self.b.loc,
                "an op on sequences of different rates",
                "Their frames do not pair.",
                "Bring them to one rate first: a stride, or each frame several times.",
            )
        ready = max((x.fact.ready for x in xs if isinstance(x.fact, HeadValue)), default=0)
        s = moving[0] if moving else found[0][0]
        for q in moving[1:]:
            self.agree(s.length, q.length)
        delay = max([ready * s.rate, 0, *(max(q.delay, -q.rest) for q in moving)])
        out = [self.delayed(x, delay) if isinstance(x.fact, Stream) else x for x in xs]
        uniform = not moving and not ready
        plain = replace(s, axis=found[0][1], delay=delay, fill=None, outside=None, uniform=uniform)
        return out, plain


def _literal(value: float, t: Type) -> float | int | bool:
    if t.dtype == BOOL:
        return bool(value)
    return float(value) if t.dtype.kind == "f" else int(value)


def refuse(loc: Loc, what: str, reason: str, remedy: str) -> NoReturn:
    """Raise the error of an op that cannot be streamed."""
    raise SourceError(f"{what} cannot be streamed.", loc, reason=reason, remedy=remedy)


__all__ = ["ENDLESS_FRAMES", "Chunk", "ChunkBuilder", "NeedsUnrolling", "StreamState", "refuse"]
