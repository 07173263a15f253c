"""The streaming transformation: a traversal that emits the program of one chunk.

`stream` walks the program once. Every value becomes a chunk and what is known of it
(`ir.streaming.facts`); rules (`ir.streaming.rules`) emit what stands for an op. Afterwards no node
names the size of the sequence, and the type of every value is checked against the one that its
whole value has for one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ir.loc import VerifyError
from ir.opdef import ShapeError
from ir.program import Cond, Input, Node, Op, Program, Scan, Slot, Value
from ir.rewrite import drop_dead
from ir.streaming import (
    creation_rules,
    cumulative_rules,
    layout_rules,
    loops,
    window_rules,
    write_rules,
)
from ir.streaming.chunks import Chunk, ChunkBuilder, NeedsUnrolling, StreamState, refuse
from ir.streaming.facts import (
    QUANTUM,
    FinalValue,
    HeadValue,
    Stream,
    StreamLength,
    constant,
    mentions,
    slope,
)
from ir.streaming.rules import apply, ready, result_type
from ir.types import Dim, LongSize, Type
from ir.uses import size_names, walk
from ir.verifier import verify

#: calls that run on Paddle's kernels: what is known of them, and what to do instead
FOREIGN = {
    "": (
        "Nothing is known of how it moves frames.",
        "Write it with other ops, or pass what it gives as an argument.",
    ),
    "roll": (
        "It brings the last frames to the front.",
        "Shift frames by a join: `paddle.concat([paddle.zeros_like(x[:, :1]), x[:, :-1]], 1)`.",
    ),
    "conv2d": ("Channels come last.", "Give channels first: `data_format` NCL or NCHW."),
    "conv2d_transpose": (
        "It has a dilation or an output size.",
        "Use `output_padding`, or repeat frames before a convolution.",
    ),
    **dict.fromkeys(
        ("linear_interp", "bilinear_interp"),
        (
            "It repeats the last frame behind the end.",
            "Enlarge to the nearest frame, or use a transposed convolution.",
        ),
    ),
}
FAMILIES = (cumulative_rules, layout_rules, loops, creation_rules, window_rules, write_rules)


@dataclass(frozen=True)
class StreamOutput:
    """An output of a streaming program. `axis` is None for one that is no stream; `final` if it is
    the state after the frames so far. A stream has `rate` frames for each unit, of which the first
    `delay` are no data, and `length` frames of data altogether."""

    axis: int | None = None
    rate: int = 0
    delay: int = 0
    length: StreamLength = StreamLength()
    final: bool = False


@dataclass(frozen=True, eq=False)
class StreamedProgram:
    """The program for one call, the buffers that it keeps, and what its outputs are. `agreeing`:
    lengths that have to be equal for a sequence; `lengths`: those of all values."""

    program: Program
    states: tuple[StreamState, ...]
    outputs: tuple[StreamOutput, ...]
    agreeing: tuple[tuple[StreamLength, ...], ...] = ()
    lengths: tuple[StreamLength, ...] = ()


class StreamTransform:
    """One walk. `env`: the chunk of every value of the old program so far."""

    def __init__(self, units: Dim, frames: int) -> None:
        self.c = ChunkBuilder(units, frames)
        self.env: dict[Value, Chunk] = {}

    def chunks(self, values: Iterable[Value]) -> list[Chunk]:
        return [self.env[v] for v in values]

    def nodes(self, ops: Sequence[Node]) -> None:
        for node in ops:
            self.c.b.loc = node.loc
            if isinstance(node, Scan):
                loops.scan(self, node)
            elif isinstance(node, Cond):
                loops.cond(self, node)
            else:
                assert isinstance(node, Op)
                try:
                    self.op(node)
                except (ShapeError, LongSize) as e:
                    refuse(node.loc, f"`{node.name}` on chunks", f"{e}.", "Take another chunk.")

    def op(self, op: Op) -> None:
        xs = self.chunks(op.operands)
        if op.name == "foreign":
            call = op.attrs["call"]
            reason, remedy = FOREIGN.get(call, FOREIGN[""])
            refuse(op.loc, f"`{call}`, which runs on Paddle's own kernel,", reason, remedy)
        moving = any(isinstance(x.fact, Stream) for x in xs)
        early = any(isinstance(x.fact, (HeadValue, FinalValue)) for x in xs)
        if (
            op.row.effect
            and (moving or early)
            or (early and op.row.may_raise([r.type for r in op.results]))
        ):
            refuse(
                op.loc,
                f"`{op.name}`, which may raise an error, on frames",
                "It would look at frames that are no data, too.",
                "Check arguments outside, or clip them.",
            )
        if moving or QUANTUM in size_names(op):
            made = apply(self.c, op, xs)
        else:
            values = self.c.b.emit(op.name, [x.value for x in xs], op.attrs)
            made = [Chunk(v, ready(xs)) for v in values]
        self.define(op.results, made)

    def define(self, old: Sequence[Value], new: Sequence[Chunk]) -> None:
        """The chunks of values; their types are those of the whole values for so many units."""
        for v, x in zip(old, new, strict=True):
            want = result_type(self.c, v.type)
            if x.value.type != want:
                raise VerifyError(f"a chunk of {v.type} is {x.value.type}, not {want}")
            if isinstance(x.fact, Stream) != any(map(mentions, v.type.shape)):
                raise VerifyError(f"a chunk of {v.type} has the fact {x.fact}")
            self.env[v] = x
            if isinstance(x.fact, Stream):
                known = self.c.lengths.setdefault((x.fact.rate, x.fact.rest), [])
                known += [x.fact.length] if x.fact.length not in known else []


def stream(program: Program, units: Dim, frames: int) -> StreamedProgram:
    """The program that takes `units` units of `frames` frames of the sequence.

    `program` is functional and without composite ops; its inputs that grow with QUANTUM are the
    sequence. Raises SourceError for an op that cannot be streamed.
    """
    t = StreamTransform(units, frames)
    inputs = [_input(t, i) for i in program.inputs]
    if program.writes:
        target, value = program.writes[0]
        i = next(i for i in program.inputs if i.value is target)
        node = next((n for n in program.ops if value in n.results), None)
        refuse(
            t.c.b.loc if node is None else node.loc,
            f"a write to {i.name}",
            "A call with the whole sequence writes it once; a chunk is a part of that call.",
            "Write to a copy: `.clone()`."
            if i.kind == "arg"
            else "Call `.eval()` first, or return what is written: a state that is carried from "
            "frame to frame is kept by the program.",
        )
    try:
        t.nodes(program.ops)
        outputs = [_output(t, v) for v in program.outputs]
    except NeedsUnrolling as e:
        refuse(
            e.loc,
            f"a part of a loop or branch that needs {e.why}",
            "State belongs to the program, and is kept for each chunk.",
            "Move that out of the loop or branch.",
        )
    c = t.c
    step = c.b.size(n=units) if not isinstance(units, int) else c.number(units)
    c.keep(c.clock, c.b.add(c.clock, step))
    held = tuple(Input(s.value, "buffer", s.name) for s in c.states)
    new = Program(
        program.name,
        (*inputs, *held),
        tuple(c.b.ops),
        tuple(x.value for x in outputs),
        tuple(c.writes),
        tuple(c.b.requires),
    )
    found = {QUANTUM} & set().union(*map(size_names, walk(new.ops)))
    if found:
        raise VerifyError("a node of a streaming program names the size of the sequence")
    new = verify(drop_dead(new))
    agreeing = tuple(tuple(c.lengths[q]) for q in sorted(c.assumed) if len(c.lengths[q]) > 1)
    described = tuple(map(_described, outputs))
    every = tuple(dict.fromkeys(n for found in c.lengths.values() for n in found))
    return StreamedProgram(new, tuple(c.states), described, (*agreeing, *c.agreeing), every)


def _input(t: StreamTransform, i: Input) -> Input:
    v, shape = i.value, i.value.type.shape
    at = [k for k, d in enumerate(shape) if mentions(d)]
    if not at:
        t.env[v] = Chunk(v)
        return i
    (axis,) = at
    assert slope(shape[axis]) == t.c.frames and constant(shape[axis]) == 0
    new = Value(Type(v.type.dtype, result_type(t.c, v.type).shape), v.name)
    outside = 0.0
    t.env[v] = Chunk(new, Stream(axis, t.c.frames, 0, 0, StreamLength(), outside=outside))
    t.c.lengths[t.c.frames, 0] = [StreamLength()]
    return Input(new, i.kind, i.name)


def _output(t: StreamTransform, v: Value | Slot) -> Chunk:
    assert isinstance(v, Value)
    x = t.env[v]
    if isinstance(x.fact, Stream):
        x = t.c.plain(t.c.settled(x), "a result")
    return x


def _described(x: Chunk) -> StreamOutput:
    s = x.fact
    if isinstance(s, Stream):
        return StreamOutput(s.axis, s.rate, s.delay, s.length)
    return StreamOutput(final=isinstance(s, FinalValue))


__all__ = ["StreamOutput", "StreamState", "StreamedProgram", "StreamTransform", "stream"]
