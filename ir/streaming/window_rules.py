"""Rules of ops that look at several frames or move them: convolutions, pooling, slices, joins.

A window of `extent` frames every `stride` frames, the first one `low` frames before the sequence:

    result j  reads  frames j * stride - low ... j * stride - low + extent - 1

    delay = ceil((delay of x + extent - low - stride) / stride), 0 at least
    before = delay * stride + low - delay of x      frames in front of the chunk, kept as state
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ir.ops.images import LOWEST
from ir.program import Op, Value
from ir.streaming.chunks import Chunk, ChunkBuilder, refuse
from ir.streaming.creation_rules import table, uniform
from ir.streaming.facts import HeadValue, Stream, constant, mentions, slope
from ir.streaming.rules import emit, rule, time_axis, tracked_view
from ir.types import Dim


def windows(
    c: ChunkBuilder,
    op: Op,
    x: Chunk,
    extent: int,
    stride: int,
    low: int,
    high: int,
    fill: float | None,
) -> tuple[Value, Stream]:
    """The frames that the windows of one chunk meet, and the fact of one result a window."""
    x = c.plain(x, "windows")
    s = x.stream
    if s.rate % stride:
        refuse(
            op.loc,
            f"`{op.name}` with a stride of {stride} for {s.rate} frames a chunk",
            f"A chunk has {s.rate} frames there, which is not a multiple of the stride.",
            "Take a chunk that is a multiple of all strides together.",
        )
    if fill is not None and s.delay < 0 and s.fill != fill:
        x = c.delayed(x, 0)
        s = x.stream
    rest = (s.rest + low + high - extent) // stride + 1
    delay = max(-(-(s.delay + extent - low - stride) // stride), 0, -rest)
    before = delay * stride + low - s.delay
    whole = c.window(x, max(before, 0), fill)
    made = Stream(
        s.axis,
        s.rate // stride,
        rest,
        delay,
        s.length.then(low + high - extent).then(by=stride).then(add=1),
    )
    need: Dim = c.frames_of(s) + (extent - stride)
    start = max(0, -before)
    if start or whole.type.shape[s.axis] != need:
        whole = c.b.slice(whole, axis=s.axis, start=start, length=need)
    return whole, made


@rule("conv", moves=True)
def conv(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    x, w = xs
    if isinstance(w.fact, Stream):
        refuse(
            op.loc,
            "a convolution with weights that grow with the sequence",
            "All of them meet each frame.",
            "Limit the weights to a window of frames.",
        )
    s, a = x.stream, op.attrs
    if s.axis == 1:
        refuse(
            op.loc,
            "a convolution whose channels are the time",
            "It sums over all of them.",
            "Bring the time into the last axis (`transpose`).",
        )
    if s.axis == 0:
        x = c.settled(x)
        return [Chunk(emit(c, op, [x.value, w.value]), replace(x.stream, outside=None))]
    k, pair = s.axis - 2, op.operands[1].type.shape[s.axis]
    (low, high), stride = a["padding"][k], a["stride"][k]
    fill = 0.0 if low > 0 or high > 0 else None
    extent = (pair - 1) * a["dilation"][k] + 1
    whole, made = windows(c, op, x, extent, stride, low, high, fill)
    return [Chunk(emit(c, op, [whole, w.value], padding=_without(a["padding"], k)), made)]


@rule("max_pool", "sum_pool", moves=True)
def pool(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    s, a = x.stream, op.attrs
    if s.axis < 2:
        x = c.settled(x)
        return [Chunk(pooled(c, op, x.value, a["padding"]), replace(x.stream, outside=None))]
    k = s.axis - 2
    (low, high), stride = a["padding"][k], a["stride"][k]
    empty = LOWEST if op.name == "max_pool" else 0.0
    fill = empty if low > 0 or high > 0 else None
    whole, made = windows(c, op, x, a["taps"][k], stride, low, high, fill)
    return [Chunk(pooled(c, op, whole, _without(a["padding"], k)), made)]


def pooled(c: ChunkBuilder, op: Op, x: Value, padding: Any) -> Value:
    """The kernels of pooling are made for sizes that are numbers; others reduce over views."""
    if not x.type.names:
        return emit(c, op, [x], padding=padding)
    empty = LOWEST if op.name == "max_pool" else 0.0
    for axis, (low, high) in enumerate(padding, 2):
        for k, count in enumerate((low, high)):
            if count:
                shape = (*x.type.shape[:axis], count, *x.type.shape[axis + 1 :])
                edge = c.b.full(value=empty, shape=shape, dtype=x.type.dtype)
                x = c.b.concat(*((x, edge) if k else (edge, x)), axis=axis)
    for axis, (size, step) in enumerate(zip(op.attrs["taps"], op.attrs["stride"]), 2):
        x = c.b.unfold(x, axis=axis, size=size, step=step)
    found: Value = (c.b.max if op.name == "max_pool" else c.b.sum)(x, axes=(4, 5))
    return found


def _without(padding: Any, k: int) -> tuple[Any, ...]:
    return tuple((0, 0) if q == k else p for q, p in enumerate(padding))


@rule("unfold", moves=True)
def unfold(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    axis = op.attrs["axis"] % x.value.type.ndim
    if axis != x.stream.axis:
        return tracked_view(c, op, x)
    time_axis(op, op.result.type)
    whole, made = windows(c, op, x, op.attrs["size"], op.attrs["step"], 0, 0, None)
    return [Chunk(emit(c, op, [whole]), made)]


# ---------------------------------------------------------------- slices
@rule("slice", moves=True, makes=True)
def slice_(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    a = op.attrs
    axis, start, step = a["axis"] % x.value.type.ndim, a["start"], a["step"]
    if not isinstance(x.fact, Stream):
        return [_table(c, op, x, axis, start, step)]
    if axis != x.stream.axis:
        return tracked_view(c, op, x)
    if mentions(start):
        if step < 0 and mentions(a["length"]):
            refuse(
                op.loc,
                "a sequence that is read backwards",
                "Its last frame comes first.",
                "Use a causal model, or reverse chunks of a fixed size.",
            )
        refuse(
            op.loc,
            "a slice that begins at the end of the sequence",
            "Where the sequence ends is known at the end only.",
            "Pad its end with a constant, and take the last frames from what `flush` returns.",
        )
    if not mentions(a["length"]):
        x = c.plain(x, "the first frames")
        frames = [c.latched(x, start + step * k) for k in range(a["length"])]
        return [_heads(c, op, frames, axis)]
    return [_moved(c, op, x, start, step)]


def _moved(c: ChunkBuilder, op: Op, x: Chunk, start: int, step: int) -> Chunk:
    """Without the first frames, and perhaps the last ones."""
    x = c.plain(x, "a slice")
    s = x.stream
    made = op.result.type.shape[s.axis]
    rate, rest = slope(made), constant(made)
    if s.rate % step == 0 and step > 1 and rest == (s.rest - start - 1) // step + 1:
        whole, fact = windows(c, op, x, 1, step, -start, 0, None)
        n = c.frames_of(fact)
        return Chunk(c.b.slice(whole, axis=s.axis, start=0, length=n, step=step), fact)
    if step > 1 or rate != s.rate or not isinstance(rest, int):
        refuse(
            op.loc,
            f"a slice of {made} of {op.operands[0].type.shape[s.axis]} frames",
            "The part of the sequence that it takes depends on its length, or its end is no "
            "multiple of the step.",
            "Slice from a fixed frame to the end, and let groups of frames do the rest.",
        )
    delay = s.delay + start
    fact = replace(
        s,
        rest=rest,
        delay=delay,
        length=s.length.then(add=rest - s.rest),
        fill=s.fill if delay < 0 else None,
        outside=None,
    )
    moved = Chunk(x.value, fact)
    return moved if fact.uniform or delay >= -rest else c.delayed(moved, -rest)


def _heads(c: ChunkBuilder, op: Op, frames: Sequence[Chunk], axis: int) -> Chunk:
    """Frames one by one as a tensor that is the same in all later calls."""
    if not frames:
        return Chunk(c.b.full(value=0, shape=op.result.type.shape, dtype=op.result.type.dtype))
    ready = max(f.fact.ready for f in frames if isinstance(f.fact, HeadValue))
    return Chunk(c.b.stack(*(f.value for f in frames), axis=axis), HeadValue(ready))


def _table(c: ChunkBuilder, op: Op, x: Chunk, axis: int, start: Any, step: int) -> Chunk:
    """The rows of a table, as many as the sequence has frames: positional encodings."""
    time_axis(op, op.result.type)
    if axis != time_axis(op, op.result.type) or mentions(start) or x.fact is not None:
        refuse(
            op.loc,
            "a slice whose place depends on the length of the sequence",
            "The length is known at the end only.",
            "Slice from a fixed place: `table[:t]`.",
        )
    s = replace(uniform(c, op, x.value).stream, uniform=False)
    return table(c, x.value, axis, start, step, s)


@rule("index", moves=True)
def index(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    if op.attrs["axis"] % x.value.type.ndim != x.stream.axis:
        return tracked_view(c, op, x)
    at = op.attrs["index"]
    if mentions(at):
        refuse(
            op.loc,
            "a frame at the end of the sequence",
            "It is known at the end only.",
            "Return all frames; the last one of `flush()` is the last frame.",
        )
    return [c.latched(x, at)]


# ---------------------------------------------------------------- joins
@rule("concat", moves=True)
def concat(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """Along time: one stream, with tensors of fixed length before and behind it."""
    axis = op.attrs["axis"] % op.result.type.ndim
    if axis != time_axis(op, op.result.type):
        xs, s = c.aligned(xs, [x.stream.axis if isinstance(x.fact, Stream) else 0 for x in xs])
        return [Chunk(emit(c, op, [x.value for x in xs]), s)]
    at = [k for k, x in enumerate(xs) if isinstance(x.fact, Stream)]
    if len(at) != 1 or xs[at[0]].stream.axis != axis:
        refuse(
            op.loc,
            "a concat of two sequences along time",
            "The second one begins where the first one ends, which is known at the end only.",
            "Join them along another axis.",
        )
    x = c.plain(xs[at[0]], "a concat")
    for part in reversed(xs[: at[0]]):
        x = _before(c, op, x, part, axis)
    for part in xs[at[0] + 1 :]:
        x = _behind(c, op, x, part, axis)
    return [x]


def _constant(c: ChunkBuilder, part: Chunk) -> float | None:
    """The one number of which a part consists."""
    node = next((n for n in c.top.ops if part.value in n.results), None)
    if isinstance(node, Op) and node.name == "full":
        return float(node.attrs["value"])
    sources = node.row.sources(node.operands) if isinstance(node, Op) else ()
    return _constant(c, Chunk(sources[0])) if len(sources) == 1 else None


def _before(c: ChunkBuilder, op: Op, x: Chunk, part: Chunk, axis: int) -> Chunk:
    """The stream with the frames of `part` before it."""
    (count,) = c.numbers(part.value.type.shape[axis : axis + 1])
    if count == 0:
        return x
    number = _constant(c, part) if part.fact is None else None
    x = x if x.stream.delay >= 0 or x.stream.fill == number else c.delayed(x, 0)
    s = x.stream
    made = replace(
        s,
        rest=s.rest + count,
        delay=s.delay - count,
        length=s.length.then(count),
        outside=None,
        uniform=False,
    )
    if number is not None:
        x = c.masked(x, number) if s.uniform or s.delay > 0 else x
        outside = number if x.stream.outside == number else None
        return Chunk(
            x.value, replace(made, fill=number if made.delay < 0 else None, outside=outside)
        )
    ready = part.fact.ready if isinstance(part.fact, HeadValue) else 0
    delay = max(0, made.delay, ready * s.rate)
    late = (
        c.delayed(Chunk(x.value, replace(made, fill=None)), delay)
        if delay > made.delay
        else Chunk(x.value, made)
    )
    s = replace(late.stream, fill=None)
    at = c.positions(s)
    first = c.b.less_than(at, c.number(count))
    rows = c.b.gather(part.value, c.b.where(_inside(c, at, 0, count), at, c.number(0)), axis=axis)
    mask = c.spread(first, axis, x.value.type.ndim)
    return Chunk(c.b.where(mask, rows, late.value), s)


def _behind(c: ChunkBuilder, op: Op, x: Chunk, part: Chunk, axis: int) -> Chunk:
    """The stream with the frames of `part` behind its end."""
    (count,) = c.numbers(part.value.type.shape[axis : axis + 1])
    if count == 0:
        return x
    x = c.settled(x) if isinstance(part.fact, HeadValue) else x
    s = x.stream
    at = c.b.subtract(c.positions(s), c.length(s.length))
    place = c.b.where(_inside(c, at, 0, count), at, c.number(0))
    number = _constant(c, part) if part.fact is None else None
    if number is None:
        rows = c.b.gather(part.value, place, axis=axis)
    else:
        rows = c.b.full(value=number, dtype=part.value.type.dtype)
    behind = c.spread(c.b.greater_equal(at, c.number(0)), axis, x.value.type.ndim)
    made = replace(s, rest=s.rest + count, length=s.length.then(count), outside=None, uniform=False)
    return Chunk(c.b.where(behind, rows, x.value), made)


def _inside(c: ChunkBuilder, at: Value, low: int, high: int) -> Value:
    new: Value = c.b.logical_and(
        c.b.greater_equal(at, c.number(low)), c.b.less_than(at, c.number(high))
    )
    return new
