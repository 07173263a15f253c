"""Rules of writes to a part of a tensor: along another axis than time, and to frames.

y[:, 2:] = x[:, :-2]     frame j of what is written comes to position j + 2
y[:, 0] = 0              a number of frames from a fixed place on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.program import Op, Value
from ir.streaming.chunks import Chunk, ChunkBuilder, refuse
from ir.streaming.facts import Stream
from ir.streaming.rules import emit, grows, rule, time_axis


@rule("set_slice", "set_index", "set_dynamic_slice", "set_dynamic_index")
def write(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    axis = op.attrs["axis"] % op.result.type.ndim
    at = time_axis(op, op.result.type)
    if axis == at:
        return [to_frames(c, op, xs[0], xs[1])]
    lost = op.name.endswith("_index") and axis < at
    if grows(op) or isinstance(xs[1].fact, Stream) and xs[1].stream.axis != at - lost:
        refuse(
            op.loc,
            "a write of frames across axes",
            "The time of what is written is another axis than that of the tensor.",
            "Bring the time to one axis in both (`transpose`).",
        )
    xs, s = c.aligned(xs, [at] * len(xs))
    return [Chunk(emit(c, op, [x.value for x in xs]), replace(s, axis=at))]


def to_frames(c: ChunkBuilder, op: Op, x: Chunk, y: Chunk) -> Chunk:
    place = op.attrs.get("start", op.attrs.get("index"))
    moving = isinstance(y.fact, Stream)
    if (
        not isinstance(place, int)
        or op.attrs.get("step", 1) != 1
        or (moving and (y.stream.axis, y.stream.rate) != (x.stream.axis, x.stream.rate))
    ):
        refuse(
            op.loc,
            "a write to frames in steps, from the end on, or at a place that the program computes",
            "A stream has its frames one after another, from the first one on.",
            "Write frames from a fixed place on, `y[:, 2:] = x[:, :-2]`, or choose them by "
            "`paddle.where`.",
        )
    x, axis = c.plain(x, "a write"), x.stream.axis
    if moving:
        x, new, mask = _stream(c, x, c.plain(y, "a write"), place)
    else:
        x, new, mask = _fixed(c, x, y.value, place, op.name == "set_index")
    wide = c.spread(mask, axis, x.value.type.ndim)
    made = replace(x.stream, uniform=False, outside=None, fill=None)
    return Chunk(c.b.where(wide, new, x.value), made)


def _stream(c: ChunkBuilder, x: Chunk, y: Chunk, place: int) -> tuple[Chunk, Value, Value]:
    """The tensor, the written values frame by frame, and the mask of the written frames."""
    s, part = x.stream, y.stream
    moved = replace(
        part,
        rest=part.rest + place,
        delay=part.delay - place,
        length=part.length.then(add=place),
        fill=None,
        outside=None,
    )
    c.agree(s.length.then(add=moved.rest - s.rest), moved.length)
    late = [q.delay for q in (s, moved) if not q.uniform]
    x = c.delayed(x, max([0, -s.rest, -moved.rest, *late]))
    new = c.delayed(Chunk(y.value, moved), x.stream.delay)
    at = c.positions(x.stream)
    behind = c.b.greater_equal(at, c.number(place))
    return x, new.value, c.b.logical_and(behind, c.b.less_than(at, c.length(moved.length)))


def _fixed(
    c: ChunkBuilder, x: Chunk, rows: Value, place: int, single: bool
) -> tuple[Chunk, Value, Value]:
    x, axis = c.settled(x), x.stream.axis
    shape = rows.type.shape
    if single:
        rows = c.b.reshape(rows, shape=(*shape[:axis], 1, *shape[axis:]))
    (count,) = c.numbers(rows.type.shape[axis : axis + 1])
    at = c.b.subtract(c.positions(x.stream), c.number(place))
    here = c.b.logical_and(c.b.greater_equal(at, c.number(0)), c.b.less_than(at, c.number(count)))
    if not count:
        return x, x.value, here
    return x, c.b.gather(rows, c.b.where(here, at, c.number(0)), axis=axis), here


__all__ = ["write"]
