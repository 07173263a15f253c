"""Rules of ops that arrange axes: products, reshapes, joins, lookups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.program import Op
from ir.streaming.chunks import Chunk, ChunkBuilder, refuse
from ir.streaming.facts import Stream
from ir.streaming.rules import (
    emit,
    grows,
    moved,
    result_type,
    rule,
    time_axis,
)
from ir.types import divide, product


# ---------------------------------------------------------------- products
@rule("matmul")
def matmul(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    ndim = op.result.type.ndim
    axes = []
    for k, x in enumerate(xs):
        axes.append(0)
        if not isinstance(x.fact, Stream):
            continue
        n, axis = x.value.type.ndim, x.stream.axis
        turned = op.attrs["trans_x" if k == 0 else "trans_y"]
        summed = n - 1 if n == 1 or (k == 0) != turned else n - 2
        if axis == summed:
            refuse(
                op.loc,
                "a product that sums over time",
                "It needs the whole sequence.",
                "Limit the context: multiply within a window of frames.",
            )
        if axis >= n - 2:
            other = xs[1 - k].value.type.ndim
            axes[k] = ndim - 1 if k == 1 or other == 1 else ndim - 2
        else:
            axes[k] = axis + (ndim - n) + (other_is_vector(xs, k))
    xs, s = c.aligned(xs, axes)
    time_axis(op, op.result.type)
    return [Chunk(emit(c, op, [x.value for x in xs]), s)]


def other_is_vector(xs: Sequence[Chunk], k: int) -> int:
    """1 if the other operand of a product is a vector, so that the result has an axis less."""
    return int(xs[1 - k].value.type.ndim == 1)


# ---------------------------------------------------------------- shapes
@rule("transpose", moves=True)
def transpose(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    perm = [p % x.value.type.ndim for p in op.attrs["perm"]]
    return [Chunk(emit(c, op, [x.value]), replace(x.stream, axis=perm.index(x.stream.axis)))]


@rule("reshape", moves=True)
def reshape(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """Axes around the time may change, it may be cut into groups of frames (a lower rate), each
    frame into several (a higher one), and be merged with axes before it, or be taken out of it
    again: what comes first in memory is the sequence."""
    (x,) = xs
    s, old, new = x.stream, op.operands[0].type.shape, op.result.type.shape
    at = time_axis(op, op.result.type)
    before, behind = product(old[: s.axis]), product(old[s.axis + 1 :])
    first, rest = product(new[:at]), product(new[at + 1 :])
    lanes = divide(before * s.outer, first)
    if lanes is None:
        refuse(
            op.loc,
            f"a reshape of {op.operands[0].type} to {op.result.type}",
            "It takes frames of different sequences together.",
            "Keep the batch before the time, in an axis of its own or merged with it.",
        )
    group, apart = divide(rest, behind), divide(behind, rest)
    if isinstance(group, int) and group > 1:
        x = c.plain(x, "groups of frames")
        x = c.delayed(x, -(-max(x.stream.delay, 0) // group) * group)
        s = x.stream
        if s.rate % group:
            refuse(
                op.loc,
                f"groups of {group} frames of {s.rate} for each chunk",
                "A chunk has no whole number of groups.",
                f"Take a chunk that is a multiple of {group} frames there.",
            )
        c.agree(s.length, s.length.then(by=group, times=group))
        made = replace(
            s,
            rate=s.rate // group,
            rest=s.rest // group,
            delay=s.delay // group,
            length=s.length.then(by=group),
            outside=s.outside,
        )
    elif isinstance(apart, int) and apart > 0:
        made = replace(
            s,
            rate=s.rate * apart,
            rest=s.rest * apart,
            delay=s.delay * apart,
            length=s.length.then(times=apart),
        )
    else:
        refuse(
            op.loc,
            f"a reshape of {op.operands[0].type} to {op.result.type}",
            "Its frames are not those of one axis.",
            "Reshape other axes, groups of frames, or parts of each frame, in one step each.",
        )
    shape = result_type(c, op.result.type).shape
    return [Chunk(emit(c, op, [x.value], shape=shape), replace(made, axis=at, outer=lanes))]


@rule("stack")
def stack(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    new = op.attrs["axis"] % op.result.type.ndim
    axes = [x.stream.axis if isinstance(x.fact, Stream) else 0 for x in xs]
    xs, s = c.aligned(xs, axes)
    made = replace(s, axis=s.axis + (new <= s.axis))
    return [Chunk(emit(c, op, [x.value for x in xs]), made)]


@rule("split")
def split(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    if op.attrs["axis"] % x.value.type.ndim == x.stream.axis:
        refuse(
            op.loc,
            "a split of the time",
            "Where its parts begin depends on the length.",
            "Slice the frames that are needed: `x[:, 2:]`.",
        )
    parts = c.b.emit("split", [x.value], op.attrs, op.results[0].name)
    return [Chunk(p, x.fact) for p in parts]


@rule("argmax")
def argmax(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    (x,) = xs
    axis = op.attrs["axis"]
    at = None if axis is None else axis % x.value.type.ndim
    if at is None or at == x.stream.axis:
        refuse(
            op.loc,
            "`argmax` over time",
            "It needs the whole sequence.",
            "Return the values of all frames and search them outside.",
        )
    lost = at < x.stream.axis and not op.attrs["keepdim"]
    s = c.settled(x).stream
    x = c.settled(x) if s is not x.stream else x
    return [Chunk(emit(c, op, [x.value]), moved(x.stream, x.stream.axis - lost))]


# ---------------------------------------------------------------- lookups
@rule("gather", "embedding")
def gather(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    table, index = (xs[1], xs[0]) if op.name == "embedding" else (xs[0], xs[1])
    axis = 0 if op.name == "embedding" else op.attrs["axis"] % table.value.type.ndim
    if isinstance(table.fact, Stream) and (
        isinstance(index.fact, Stream) or table.stream.axis == axis
    ):
        refuse(
            op.loc,
            "a lookup of frames by data",
            "An index may reach any frame.",
            "Look up rows of tables, or slice frames at a fixed distance.",
        )
    if isinstance(table.fact, Stream):
        s = table.stream
        more = index.value.type.ndim - 1 if axis < s.axis else 0
        return [
            Chunk(
                emit(c, op, [x.value for x in xs]),
                replace(s, axis=s.axis + more, outside=None, fill=None),
            )
        ]
    index = c.masked(c.settled(index), 0)
    values = [
        index.value if x.fact is not None and isinstance(x.fact, Stream) else x.value for x in xs
    ]
    s = index.stream
    made = replace(s, axis=s.axis + axis, outside=None)
    return [Chunk(emit(c, op, values), made)]


@rule("dynamic_index", "dynamic_slice")
def read(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """A read along another axis than time, at a place that the program computes."""
    x, place = xs
    axis = op.attrs["axis"] % x.value.type.ndim
    if not isinstance(x.fact, Stream) or axis == x.stream.axis or grows(op):
        refuse(
            op.loc,
            "frames at a place that the program computes",
            "It may be any place of the sequence.",
            "Slice frames by their distance from this one: `x[:, :-3]`.",
        )
    lost = op.name == "dynamic_index" and axis < x.stream.axis
    made = moved(x.stream, x.stream.axis - lost)
    return [Chunk(emit(c, op, [x.value, place.value]), made)]
