"""Comparison of a streaming program with the function on the whole sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import executor
from dy2st.streaming.capture import UNITS, SequenceProgram
from dy2st.streaming.program import StreamData, StreamInfo, StreamingProgram
from ir import Input, Loc, Program, Value
from ir.passes import run as run_passes
from ir.passes.cloning import NodeCopier
from ir.streaming import QUANTUM, stream
from ir.types import Size


@dataclass(frozen=True)
class StreamCheck:
    """The result of a comparison; true if nothing differs.

    chunks: the sizes of the chunks that were fed, a list for each time.
    output, frame, error: the result that differs first, its first frame that does, and by how much.
    op, loc: the first op whose frames differ; "" if every op of the program is right, so that the
    function is another one since the program was made: its weights, say.
    """

    chunks: tuple[tuple[int, ...], ...]
    output: int | None = None
    frame: int | None = None
    error: float = 0.0
    op: str = ""
    loc: Loc | None = None

    def __bool__(self) -> bool:
        return self.output is None

    def __str__(self) -> str:
        if self:
            return f"equal to the whole sequence, in {len(self.chunks)} ways of cutting it"
        where = (
            f"the first op that differs is {self.op} at {self.loc}"
            if self.op
            else ("no op of the program differs: the function has changed since it was made")
        )
        return (
            f"result {self.output} differs by {self.error:.3g} from frame {self.frame} on; {where}"
        )


def fed(
    s: StreamingProgram, arrays: dict[str, np.ndarray], cuts: Sequence[int]
) -> list[np.ndarray]:
    """The frames of data of every result: the sequence in chunks of these sizes, the rest at the
    end."""
    s.reset()
    at, parts = 0, []
    for n in cuts:
        parts.append(s.outputs(s.part(arrays, at, n)))
        at += n
    parts.append(s.tail(s.part(arrays, at, None)))
    out = []
    for k, o in enumerate(s.chunked.outputs):
        if o.axis is None:
            out.append(parts[-1][k])
            continue
        whole = np.concatenate([p[k] for p in parts], o.axis)
        out.append(whole[(slice(None),) * o.axis + (slice(o.delay, None),)])
    return out


def first_difference(
    have: np.ndarray, want: np.ndarray, axis: int | None, tolerance: float
) -> tuple[int, float] | None:
    """The first frame that differs, and the largest difference, relative to numbers above 1."""
    if have.shape != want.shape:
        frames = min(have.shape[axis], want.shape[axis]) if axis is not None else 0
        return frames, float("inf")
    with np.errstate(invalid="ignore"):
        error = np.abs(have.astype(float) - want) / np.maximum(1, np.abs(want))
    error[(have == want) | ((have != have) & (want != want))] = 0
    if error.size == 0 or error.max() <= tolerance:
        return None
    if axis is None:
        return 0, float(error.max())
    by_frame = error.max(tuple(k for k in range(error.ndim) if k != axis))
    return int(np.argmax(by_frame > tolerance)), float(error.max())


# ---------------------------------------------------------------- op by op
def at_length(program: Program, units: int) -> Program:
    """The program for a sequence of so many units."""
    copier = NodeCopier(str, {}, {QUANTUM: units})
    inputs = tuple(Input(copier.made(i.value), i.kind, i.name) for i in program.inputs)
    ops = tuple(copier.nodes(program.ops))
    outputs = tuple(copier.new(v) for v in program.outputs if isinstance(v, Value))
    return Program(program.name, inputs, ops, outputs)


def first_op(
    whole: SequenceProgram, chunked: StreamInfo, arrays: dict[str, np.ndarray], tolerance: float
) -> tuple[str, Loc, int] | None:
    """The first op whose frames differ, its line and its first frame that does."""
    frames = chunked.frames
    seen = [(n, r) for n in whole.program.ops for r in n.results if QUANTUM in r.type.names]
    program = replace(whole.program, outputs=tuple(r for _, r in seen))
    made = stream(program, Size.named(UNITS) if chunked.chunk is None else 1, frames)
    many = replace(chunked, tree=["tuple", []], outputs=made.outputs, requires=(), agreeing=())
    initial = {s.name: s.initial for s in made.states}
    s = StreamingProgram(StreamData(made.program, many, whole.weights, initial))
    name, axis = next(iter(chunked.axes.items()))
    units = arrays[name].shape[axis] // frames
    arrays = {
        n: a[(slice(None),) * chunked.axes[n] + (slice(0, units * frames),)]
        if n in chunked.axes
        else a
        for n, a in arrays.items()
    }
    have = fed(s, arrays, [frames] * units)
    run = executor.compile(run_passes(at_length(program, units), start_at="expand"))
    given: list[Any] = [
        whole.weights[k] if k in whole.weights else np.ascontiguousarray(arrays[i.name])
        for k, i in enumerate(program.inputs)
    ]
    want = run(*given)
    for (node, _), a, b, o in zip(seen, have, want, made.outputs):
        found = first_difference(a, b, o.axis, tolerance)
        if found is not None:
            return node.name, node.loc, found[0]
    return None


__all__ = ["StreamCheck", "fed", "first_difference", "first_op"]
