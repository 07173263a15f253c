"""Capture of a function on whole sequences, and its transformation to the program of one chunk.

The function is traced for a sequence of `stream_units` units of `frames` frames. A chunk is one
unit, or any number of them if its length stays open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from dy2st.capture.foreign.run import HOST_CALLS
from dy2st.compiled.arguments import argument_names
from dy2st.compiled.translate import capture, functional, prune_inputs
from dy2st.results import leaves
from dy2st.state.signature import Signature
from dy2st.streaming.program import FrameCondition, StreamData, StreamInfo
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.trace import TracedInput
from dy2st.trace.user_stack import definition
from ir import Builder, Input, Loc, Op, Program, SourceError, Value
from ir.analysis.history import History
from ir.passes import expand, simplify, undistinguished
from ir.streaming import QUANTUM, banded, stream
from ir.types import BOOL, Dim, Size, Type, names_in
from ir.uses import walk

#: the sequence that stands for all while Python is traced has about so many frames; the smaller
#: number is for functions with tables of fewer rows
TYPICAL_FRAMES = (1 << 12, 1 << 7)
ONE_LENGTH = "a function that is for one length of the sequence only cannot be streamed."
#: a multiple of the strides that models have, all together
MANY_STRIDES = 2**7 * 3 * 5**2
#: the name of the units of one call
UNITS = "units"


@dataclass(frozen=True)
class SequenceSpec:
    """An argument as `paddle.static.InputSpec` describes one; dims may be sizes of a stream."""

    shape: tuple[Dim, ...]
    dtype: object
    name: str


@dataclass(frozen=True)
class SequenceProgram:
    """The program of a whole sequence, and its weights by the number of their input."""

    program: Program
    weights: Mapping[int, np.ndarray]


def translated(
    function: Callable[..., object],
    tensors: Sequence[tuple[Sequence[int], object]],
    axes: Mapping[object, int],
    chunk: int | None,
) -> tuple[StreamData, SequenceProgram]:
    """The parts of a streaming program, and the program of the whole sequence.

    Args:
        function: a function or a bound method.
        tensors: shape and dtype of each argument; what a shape says of the time is ignored.
        axes: the axis of time of arguments, by name or number.
        chunk: frames in a call; None leaves them open, up to a multiple of all strides together.

    Raises SourceError for what cannot be translated, or cannot be streamed.
    """
    try:
        return _translated(function, tensors, axes, chunk, chunk or 1)
    except SourceError as error:
        frames = multiple_of_strides(function, tensors, axes, chunk or 1, error)
        if chunk is None:
            return _translated(function, tensors, axes, None, frames)
        raise SourceError(
            f"a chunk of {chunk} frames cannot be streamed.",
            error.loc,
            reason="It is not a multiple of the frames that the windows here move by.",
            remedy=f"Give a multiple of all strides together: `chunk={frames}`.",
        ) from None


def multiple_of_strides(
    function: Callable[..., object],
    tensors: Sequence[tuple[Sequence[int], object]],
    axes: Mapping[object, int],
    chunk: int,
    error: SourceError,
) -> int:
    """The smallest multiple of a chunk that can be streamed, of those that divide one with many
    divisors. If that cannot be streamed either, raises what it ends with: `error`, which the chunk
    ends with, or a later one."""

    def streams(frames: int) -> bool:
        return _streams(function, tensors, axes, frames)

    frames = math.lcm(chunk, MANY_STRIDES)
    try:
        _translated(function, tensors, axes, frames, frames)
    except SourceError as later:
        raise (error if later.loc == error.loc else later) from None
    for p in (2, 3, 5):
        while frames // chunk % p == 0 and streams(frames // p):
            frames //= p
    return frames


def _streams(
    function: Callable[..., object],
    tensors: Sequence[tuple[Sequence[int], object]],
    axes: Mapping[object, int],
    chunk: int,
) -> bool:
    """Whether a function can be streamed in chunks of this size."""
    try:
        _translated(function, tensors, axes, chunk, chunk)
    except SourceError:
        return False
    return True


def _translated(
    function: Callable[..., object],
    tensors: Sequence[tuple[Sequence[int], object]],
    axes: Mapping[object, int],
    chunk: int | None,
    frames: int,
) -> tuple[StreamData, SequenceProgram]:
    """Like `translated`, with units of `frames` frames."""
    long, short = TYPICAL_FRAMES
    try:
        return _for_sequences_of(long, function, tensors, axes, chunk, frames)
    except SourceError as error:
        if error.message != ONE_LENGTH:
            error.loc = error.loc or definition(function)
            raise
        return _for_sequences_of(short, function, tensors, axes, chunk, frames)


def _for_sequences_of(
    typical: int,
    function: Callable[..., object],
    tensors: Sequence[tuple[Sequence[int], object]],
    axes: Mapping[object, int],
    chunk: int | None,
    frames: int,
) -> tuple[StreamData, SequenceProgram]:
    units = max(3, typical // frames)
    names = names_of(function, tensors)
    at = axes_by_name(names, tensors, axes)
    specs, values = [], []
    for name, (shape, dtype) in zip(names, tensors):
        dims: list[Dim] = [int(d) for d in shape]
        sizes = list(dims)
        if name in at:
            dims[at[name]] = Size.named(QUANTUM) * frames
            sizes[at[name]] = units * frames
        specs.append(SequenceSpec(tuple(dims), dtype, name))
        values.append(paddle.zeros(sizes, dtype))
    with paddle.no_grad():
        raw, plan, inputs, sizes, stored = capture(function, Signature(values, {}), specs)
    check_stores(plan, stored)
    check_real(plan, inputs)
    program, tree = with_results(pure(raw, inputs), plan, inputs)
    program, bound = prune_inputs(banded(program), inputs)
    requires = (*checked(program, frames), *multiples(sizes.divided, frames))
    streamed = stream(program, Size.named(UNITS) if chunk is None else 1, frames)
    kinds = [i.kind for i in program.inputs]
    weights = {k: array(q.tensor) for k, q in enumerate(bound) if kinds[k] != "arg"}
    agreeing = streamed.agreeing
    if sizes.measured:
        pairs = [pair for n in streamed.lengths for pair in n.exact()]
        agreeing = tuple(dict.fromkeys((*agreeing, *pairs)))
    chunked = StreamInfo(chunk, frames, at, tree, streamed.outputs, requires, agreeing)
    initial = {s.name: s.initial for s in streamed.states}
    return StreamData(streamed.program, chunked, weights, initial), SequenceProgram(
        program, weights
    )


def names_of(function: Callable[..., object], tensors: Sequence[object]) -> list[str]:
    zeros = [paddle.zeros([1]) for _ in tensors]
    return argument_names(function, Signature(zeros, {}))


def axes_by_name(
    names: Sequence[str],
    tensors: Sequence[tuple[Sequence[int], object]],
    axes: Mapping[object, int],
) -> dict[str, int]:
    """The axis of time of each argument that has one; raises TypeError for unknown arguments."""
    found = {}
    for key, axis in axes.items():
        name = names[key] if isinstance(key, int) and key < len(names) else key
        if name not in names:
            raise TypeError(f"the function has no argument {key!r}; it takes {', '.join(names)}")
        found[str(name)] = axis_in(str(name), axis, tensors[names.index(str(name))][0])
    return found


def axis_in(name: str, axis: int, shape: Sequence[object]) -> int:
    """The number of an axis from the front; raises TypeError if there is none."""
    if not -len(shape) <= axis < len(shape):
        raise TypeError(f"{name} has no axis {axis}: it has {len(shape)} axes")
    return axis % len(shape)


def pure(raw: Program, inputs: Sequence[TracedInput]) -> Program:
    """A program that writes nothing."""
    for op in walk(raw.ops):
        if isinstance(op, Op) and op.attrs.get("call") in HOST_CALLS:
            raise SourceError(
                "a call of Python code, made again on every call, cannot be streamed.",
                op.loc,
                reason="It would be made for every chunk.",
                remedy="Call it outside, and pass its result as an argument.",
            )
    for q in inputs:
        if q.share is not None:
            raise SourceError(
                f"{q.name}, a view of other memory whose strides are read, cannot be streamed.",
                reason="Its strides are those of the memory at this moment.",
                remedy="Take a copy of it before: `.clone()`.",
            )
    marker = Input(Value(Type(BOOL, (Size.named(QUANTUM),))), "arg", "units of the sequence")
    program = replace(raw, inputs=(*raw.inputs, marker))
    program = undistinguished(functional(program, History(program)))
    return replace(program, inputs=program.inputs[:-1])


def check_stores(plan: leaves.OutputPlan, stored: Mapping[object, Loc | None]) -> None:
    """Refuse a function that stores results in Python objects."""
    if not plan.stores:
        return
    place = plan.stores[0][0]
    raise SourceError(
        f"a function that stores {place} cannot be streamed.",
        stored.get(place.key) or next((loc for loc in stored.values() if loc is not None), None),
        reason="A call with the whole sequence stores it once; a chunk is a part of that call.",
        remedy="Return it instead. What is carried from frame to frame is kept by the program: "
        "begin with a constant state, and loop over the frames.",
    )


def check_real(plan: leaves.OutputPlan, inputs: Sequence[TracedInput]) -> None:
    """Refuse complex arguments, weights and results."""
    views = [
        q for q in leaves.leaves((plan.result, plan.stores)) if isinstance(q, leaves.ViewOutput)
    ]
    names = {name for q in views for name, _ in q.recipe}
    if plan.complex or any(q.pairs for q in inputs) or names & {"as_real", "as_complex"}:
        raise SourceError(
            "a function with complex arguments, weights or results cannot be streamed.",
            reason="What a streaming program takes, keeps and gives is real.",
            remedy="Return the parts as tensors of their own: `paddle.as_real(y).clone()`.",
        )


def with_results(
    program: Program, plan: leaves.OutputPlan, inputs: Sequence[TracedInput]
) -> tuple[Program, object]:
    """The program whose outputs are the tensors of the result, and the tree of their numbers."""
    b = Builder()
    outputs: list[Value] = []

    def tensor(leaf: leaves.ResultLeaf) -> Value:
        if isinstance(leaf, leaves.TensorOutput):
            found = program.outputs[leaf.index]
            if isinstance(found, Value):
                return found
        if isinstance(leaf, leaves.InputOutput):
            value: Value = inputs[leaf.index].value
            return value
        if isinstance(leaf, leaves.ViewOutput):
            value = tensor(leaf.of)
            for name, attrs in leaf.recipe:
                (value,) = b.emit(name, [value], dict(attrs))
            return value
        raise SourceError(
            f"a function that returns {leaf.about} cannot be streamed.",
            reason="The results of a streaming program are tensors that it computes.",
            remedy="Return tensors, and numbers and texts that are the same in every call.",
        )

    def tree(part: object) -> object:
        if isinstance(part, leaves.ResultLeaf):
            outputs.append(tensor(part))
            return ["out", len(outputs) - 1]
        if isinstance(part, dict):
            return ["dict", [[k, tree(q)] for k, q in part.items()]]
        if isinstance(part, (list, tuple)):
            return ["list" if isinstance(part, list) else "tuple", [tree(q) for q in part]]
        if part is None or isinstance(part, (bool, int, float, str)):
            return ["constant", part]
        raise SourceError(
            f"a function that returns a {type(part).__name__} cannot be streamed.",
            reason="The results of a streaming program are tensors that it computes.",
            remedy="Return tensors in tuples, lists and dicts.",
        )

    found = tree(plan.result)
    program = replace(program, ops=(*program.ops, *b.ops), outputs=tuple(outputs))
    return simplify(expand(program)), found


def checked(program: Program, frames: int) -> tuple[FrameCondition, ...]:
    """Return the conditions of the function on the length of a sequence."""
    out = []
    for r in program.requires:
        at_0, at_1 = line(r.left - r.right, r.loc)
        if r.relation == "==":
            only = -at_0 * frames / (at_1 - at_0)
            raise SourceError(
                ONE_LENGTH,
                r.loc,
                reason=f"This is for {only:g} frames.",
                remedy="Take sizes from the shape of the argument, and do not decide on them.",
            )
        out.append(FrameCondition(r.relation, at_1 - at_0, at_0 * frames, f"{r.reason}, {r.loc}"))
    return tuple(out)


def multiples(divided: Sequence[tuple[Dim, Dim, Loc]], frames: int) -> tuple[FrameCondition, ...]:
    """Return the conditions of Python's divisions of sizes on the length of a sequence: no
    remainder."""
    out = {}
    for dim, by, loc in divided:
        at_0, at_1 = line(dim, loc)
        if not isinstance(by, int):
            raise SourceError(
                "a function that divides one size of the sequence by another cannot be streamed.",
                loc,
                reason="Only a division by a number is the same for every chunk.",
                remedy="Divide by a number.",
            )
        why = f"Python divides a number of frames by {by}, {loc}"
        out[dim, by] = FrameCondition("multiple", at_1 - at_0, at_0 * frames, why, abs(by) * frames)
    return tuple(out.values())


def line(dim: Dim, loc: Loc) -> tuple[int, int]:
    """A size for no units, and for one; it is on a line with them."""
    if names_in(dim) - {QUANTUM} or any(len(m) > 1 for m, _ in getattr(dim, "terms", ())):
        raise SourceError(
            "a function that decides on a product of sizes of the sequence cannot be streamed.",
            loc,
            reason="What it decides has to change evenly with the number of frames.",
            remedy="Decide on one size at a time.",
        )
    at_0, at_1 = (dim if isinstance(dim, int) else dim.evaluate({QUANTUM: k}) for k in (0, 1))
    return at_0, at_1


def array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))


def shapes(spec: Sequence[Any], axes: Mapping[object, int]) -> list[tuple[list[int], object]]:
    """Shape and dtype of each argument by an input_spec, whose open dims are those of time."""
    out = []
    for k, s in enumerate(spec):
        axis = axes.get(s.name, axes.get(k))
        axis = next(iter(axes.values())) if axis is None and len(spec) == len(axes) == 1 else axis
        name = s.name or f"argument {k}"
        dims = [1 if d is None or int(d) < 0 else int(d) for d in s.shape]
        open_ = {a for a, d in enumerate(s.shape) if d is None or int(d) < 0}
        if open_ - ({axis_in(name, axis, dims)} if axis is not None else set()):
            raise TypeError(f"{name}: only the axis of time may be open in {list(s.shape)}")
        out.append((dims, s.dtype))
    return out


__all__ = ["UNITS", "SequenceProgram", "shapes", "translated"]
