"""Rules of creation ops whose length is that of the sequence, and of table rows for its frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from ir.program import Op, Value
from ir.streaming.chunks import Chunk, ChunkBuilder, refuse
from ir.streaming.facts import HeadValue, Stream, StreamLength, constant, slope
from ir.streaming.rules import chunk_attrs, emit, rule, time_axis
from ir.types import I64


@rule("full", makes=True)
def full(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    return [uniform(c, op, emit(c, op, [], **chunk_attrs(c, op)))]


@rule("expand", moves=True, makes=True)
def expand(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    new = emit(c, op, [x.value], **chunk_attrs(c, op))
    if not isinstance(x.fact, Stream):
        s = uniform(c, op, new).stream
        late = x.fact.ready * s.rate if isinstance(x.fact, HeadValue) else 0
        made = replace(s, uniform=x.fact is None, delay=max(s.delay, late))
        return [Chunk(new, made)]
    axis = x.stream.axis + op.result.type.ndim - x.value.type.ndim
    time_axis(op, op.result.type)
    return [Chunk(new, replace(x.stream, axis=axis))]


def uniform(c: ChunkBuilder, op: Op, new: object) -> Chunk:
    """A tensor as long as the sequence of which all frames are equal."""
    t = op.result.type
    axis = time_axis(op, t)
    rate, rest = slope(t.shape[axis]), constant(t.shape[axis])
    if not isinstance(rate, int) or not isinstance(rest, int):
        refuse(
            op.loc,
            f"`{op.name}` of {t}",
            "Its length is not a number of frames for each chunk.",
            "Give sizes other than the time as numbers in input_spec.",
        )
    length = whole_length(c, rate, rest)
    return Chunk(new, Stream(axis, rate, rest, max(0, -rest), length, uniform=True))  # type: ignore[arg-type]


def whole_length(c: ChunkBuilder, rate: int, rest: int) -> StreamLength:
    """The length of a tensor by the arithmetic of its size: that of a stream of this size, or else
    so many frames for each frame of the sequence. Where streams of this size differ in length, the
    sequence is refused when it ends (`ChunkBuilder.assumed`)."""
    factor = gcd(rate, c.frames)
    computed = StreamLength().then(by=c.frames // factor, times=rate // factor).then(add=rest)
    c.assumed.add((rate, rest))
    return c.lengths.setdefault((rate, rest), [computed])[0]


@rule("iota", makes=True)
def iota(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    a = op.attrs
    made = uniform(c, op, None)
    s = replace(made.stream, uniform=False)
    at = c.positions(s)
    if a["dtype"] != I64:
        at = c.b.cast(at, dtype=a["dtype"])
    step = c.b.full(value=a["step"], dtype=a["dtype"])
    first = c.b.full(value=a["start"], dtype=a["dtype"])
    return [Chunk(c.b.add(first, c.b.multiply(at, step)), s)]


@rule("size", makes=True)
def size(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    refuse(
        op.loc,
        "the length of the sequence as a number",
        "It is known at the end only.",
        "Compute with what has come so far: a counter that is carried from frame to frame.",
    )


def table(c: ChunkBuilder, rows: Value, axis: int, start: int, step: int, s: Stream) -> Chunk:
    """Rows `start + step * j` of a tensor for the frames j of a chunk. For frames that are no data
    it is any of the rows; a sequence with more frames than rows is an error."""
    at = c.positions(s)
    inside = c.inside(s)
    at = c.b.where(inside, at, c.number(0))
    if step != 1:
        at = c.b.multiply(at, c.number(step))
    at = c.b.add(at, c.number(start))
    return Chunk(c.b.gather(rows, at, axis=axis), s)


__all__ = ["table", "uniform", "whole_length"]
