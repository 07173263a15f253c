"""The table of streaming rules, and the default rules that follow from rows.

A rule takes the op and its operands as chunks and returns a chunk for each result. Rows that work
element by element, reductions over other axes and views whose axes merely follow the stream need
none: the row says where each axis goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ir.analysis.alias import view_layout
from ir.layout import StridedLayout
from ir.program import Op, Value
from ir.streaming.chunks import Chunk, ChunkBuilder, refuse
from ir.streaming.facts import QUANTUM, FinalValue, HeadValue, Stream, mentions, slope
from ir.types import Dim, Size, Type, names_in
from ir.uses import dim_names

StreamingRule: TypeAlias = Callable[[ChunkBuilder, Op, Sequence[Chunk]], "Sequence[Chunk]"]
RULES: dict[str, StreamingRule] = {}
#: the rules that take streams with frames before their first chunk
MOVES: set[str] = set()
#: those that make a stream of what is none
MAKES: set[str] = set()


def rule(
    *names: str, moves: bool = False, makes: bool = False
) -> Callable[[StreamingRule], StreamingRule]:
    """Declare the rule of rows that move frames, or whose axes do not follow from the row.
    `moves`: it takes streams with a negative delay as well; `makes`: it also makes streams."""

    def declare(f: StreamingRule) -> StreamingRule:
        RULES.update(dict.fromkeys(names, f))
        MOVES.update(names if moves else ())
        MAKES.update(names if makes else ())
        return f

    return declare


def apply(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """The chunks of an op with a stream among its operands, or whose type grows with it; raises
    SourceError if it cannot be streamed."""
    if any(isinstance(x.fact, FinalValue) for x in xs):
        refuse(
            op.loc,
            f"`{op.name}` of the last state of a loop over time",
            "It is known at the end only.",
            "Return the state, or use the state of every frame.",
        )
    if not any(isinstance(x.fact, Stream) for x in xs) and op.name not in MAKES:
        refuse(
            op.loc,
            f"`{op.name}` at a place or of a size that depends on the length",
            "The length is known at the end only.",
            "Compute it for each frame, from frames at a fixed distance.",
        )
    found = RULES.get(op.name)
    whole = found is None and op.row.views and len(op.operands) == 1
    if not (op.name in MOVES or whole) or (op.name != "concat" and ready(xs) is not None):
        xs = waiting(c, xs)
    if found is not None:
        return found(c, op, xs)
    row = op.row
    if row.kernel is not None:
        return elementwise(c, op, xs)
    if row.reduce is not None:
        return reduction(c, op, xs)
    if row.views and len(op.operands) == 1:
        return tracked_view(c, op, xs[0])
    refuse(
        op.loc,
        f"`{op.name}` over time",
        "There is no rule for it.",
        "Apply it to other axes, or within windows of frames (`unfold`).",
    )


def waiting(c: ChunkBuilder, xs: Sequence[Chunk]) -> list[Chunk]:
    """Streams late enough that what comes from the first frames is there for all of them."""
    ready = max((x.fact.ready for x in xs if isinstance(x.fact, HeadValue)), default=0)
    out = []
    for x in xs:
        if isinstance(x.fact, Stream):
            x = c.settled(x)
            x = c.delayed(x, max(x.stream.delay, ready * x.stream.rate))
        out.append(x)
    return out


def chunk_dim(d: Dim, units: Dim) -> Dim:
    """A dim of a whole value as one of its chunk."""
    return slope(d) * units if mentions(d) else d


def chunk_attrs(c: ChunkBuilder, op: Op) -> dict[str, Any]:
    """The attributes of an op on chunks."""

    def new(value: Any) -> Any:
        if isinstance(value, Size):
            return chunk_dim(value, c.units)
        if isinstance(value, tuple):
            return tuple(map(new, value))
        return value

    return {k: new(v) for k, v in op.attrs.items()}


def grows(op: Op) -> bool:
    """Whether an attribute of an op depends on the length of the sequence."""
    return QUANTUM in dim_names(tuple(op.attrs.values()))


def emit(c: ChunkBuilder, op: Op, values: Sequence[Value], **attrs: Any) -> Value:
    (new,) = c.b.emit(op.name, values, {**op.attrs, **attrs}, op.results[0].name)
    return new


def elementwise(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """Axes are aligned from the right."""
    ndim = op.result.type.ndim
    axes = [
        x.stream.axis + ndim - x.value.type.ndim if isinstance(x.fact, Stream) else 0 for x in xs
    ]
    if len(xs) == 1 and isinstance(xs[0].fact, Stream) and op.name == "assign":
        return [Chunk(emit(c, op, [xs[0].value]), xs[0].fact)]
    xs, s = c.aligned(xs, axes)
    if op.row.divides and op.result.type.dtype.kind != "f" and isinstance(xs[1].fact, Stream):
        xs = [xs[0], c.masked(xs[1], 1)]
    return [Chunk(emit(c, op, [x.value for x in xs]), s)]


def reduction(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """A reduction over other axes than time."""
    (x,) = xs
    ndim = x.value.type.ndim
    axes = {a % ndim for a in op.attrs["axes"]} or set(range(ndim))
    s = x.stream
    if s.axis in axes:
        refuse(
            op.loc,
            f"`{op.name}` over time",
            "It needs the whole sequence before its first result.",
            "Reduce over a window of frames, or use a running statistic (`cumsum`).",
        )
    kept = op.attrs["keepdim"]
    axis = s.axis if kept else s.axis - sum(a < s.axis for a in axes)
    return [Chunk(emit(c, op, [x.value]), moved(s, axis))]


def moved(s: Stream, axis: int) -> Stream:
    """The fact of an op that computes along other axes."""
    return replace(s, axis=axis, outside=None)


def tracked_view(c: ChunkBuilder, op: Op, x: Chunk) -> Sequence[Chunk]:
    """A view that has the time in one axis, from its first frame to its last: its strides say
    where."""
    s, whole = x.stream, op.operands[0].type
    strides = tuple(Size.named(f"stride{k}") for k in range(whole.ndim))
    found = view_layout(op, StridedLayout(0, whole.shape, strides))
    at = (
        []
        if found is None
        else [
            k
            for k, (stride, d) in enumerate(zip(found.strides, found.shape))
            if stride == strides[s.axis] and d == whole.shape[s.axis]
        ]
    )
    in_offset = found is not None and f"stride{s.axis}" in names_in(found.offset)
    if len(at) != 1 or in_offset or grows(op) and op.name != "expand":
        refuse(
            op.loc,
            f"`{op.name}` over time",
            "It moves frames in a way that has no rule.",
            "Slice, pad, join and reshape frames, or take windows of them (`unfold`).",
        )
    return [Chunk(emit(c, op, [x.value]), replace(s, axis=at[0]))]


def result_type(c: ChunkBuilder, t: Type) -> Type:
    """The type of the chunk of a whole value."""
    return t.with_shape(chunk_dim(d, c.units) for d in t.shape)


def time_axis(op: Op, t: Type) -> int:
    """The axis of a type that grows with the sequence; refused if there are two."""
    axes = [k for k, d in enumerate(t.shape) if mentions(d)]
    if len(axes) != 1:
        refuse(
            op.loc,
            f"`{op.name}`, whose result {t} has the time along {len(axes)} axes",
            "It grows with the square of the sequence.",
            "Limit the context: attend to a window of frames.",
        )
    return axes[0]


def ready(xs: Sequence[Chunk]) -> HeadValue | FinalValue | None:
    """The fact of what is computed from values that are no streams."""
    if any(isinstance(x.fact, FinalValue) for x in xs):
        return FinalValue()
    found = [x.fact.ready for x in xs if isinstance(x.fact, HeadValue)]
    return HeadValue(max(found)) if found else None


__all__ = [
    "RULES",
    "apply",
    "chunk_attrs",
    "chunk_dim",
    "elementwise",
    "emit",
    "grows",
    "moved",
    "ready",
    "result_type",
    "rule",
    "time_axis",
]
