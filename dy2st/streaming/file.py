"""Streaming programs in files: the state is saved as it is at the start of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dy2st.streaming.program import FrameCondition, StreamData, StreamInfo, StreamingProgram
from ir import Program
from ir.streaming import StreamLength, StreamOutput


def entries(s: StreamingProgram) -> tuple[Program, dict[str, object], dict[str, np.ndarray]]:
    """The program, the manifest's entries, and weights and states by the number of their input."""
    c, parts = s.chunked, s.parts
    stream = {
        "chunk": c.chunk,
        "frames": c.frames,
        "axes": c.axes,
        "tree": c.tree,
        "outputs": [[o.axis, o.rate, o.delay, o.length.steps, o.final] for o in c.outputs],
        "requires": [[r.relation, r.factor, r.rest, r.reason, r.unit] for r in c.requires],
        "agreeing": [[q.steps for q in lengths] for lengths in c.agreeing],
        "states": sorted(parts.initial),
    }
    arrays = {}
    for k, i in enumerate(s.program.inputs):
        if i.kind != "arg":
            arrays[str(k)] = parts.weights[k] if k in parts.weights else parts.initial[i.name]
    nothing = {"result": ["constant", "None"], "stores": []}
    return s.program, {**nothing, "stream": stream}, arrays


def restored(
    program: Program, manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> StreamingProgram:
    """The streaming program of a file; raises an exception for one that `entries` has not made."""
    m = manifest["stream"]
    states = {str(n) for n in m["states"]}
    outputs = tuple(
        StreamOutput(
            _axis(axis, v.type.ndim), _number(rate), _number(delay), _length(steps), bool(final)
        )
        for (axis, rate, delay, steps, final), v in zip(m["outputs"], program.outputs, strict=True)
    )
    requires = tuple(
        FrameCondition(str(relation), _number(factor), _number(rest), str(reason), _number(unit))
        for relation, factor, rest, reason, unit in m["requires"]
    )
    agreeing = tuple(tuple(map(_length, lengths)) for lengths in m["agreeing"])
    chunk = None if m["chunk"] is None else _number(m["chunk"])
    ndim = {i.name: i.value.type.ndim for i in program.inputs if i.kind == "arg"}
    axes = {name: _number(axis) for name, axis in m["axes"].items()}
    if not all(0 <= axis < ndim[name] for name, axis in axes.items()):
        raise ValueError("an axis of time that its argument does not have")
    tree = _tree(m["tree"], len(outputs))
    chunked = StreamInfo(chunk, _number(m["frames"]), axes, tree, outputs, requires, agreeing)
    weights, initial = {}, {}
    for k, i in enumerate(program.inputs):
        if i.kind == "arg":
            continue
        a = np.array(arrays[str(k)], order="C")
        if a.dtype != i.value.type.dtype.numpy or a.shape != i.value.type.shape:
            raise ValueError(f"{i.name} is {a.dtype}{list(a.shape)}, not {i.value.type}")
        if i.name in states:
            initial[i.name] = a
        else:
            weights[k] = a
    written = {v for v, _ in program.writes}
    held = {i.value for i in program.inputs if i.kind == "buffer" and i.name in states}
    if not written <= held:
        raise ValueError("it writes to an input that is not a state")
    return StreamingProgram(StreamData(program, chunked, weights, initial))


def _number(n: object) -> int:
    if type(n) is not int or abs(n) > 1 << 40:
        raise ValueError(f"{n!r:.80} is not a number of frames")
    return n


def _axis(axis: object, ndim: int) -> int | None:
    if axis is not None and not 0 <= _number(axis) < ndim:
        raise ValueError(f"a result of {ndim} axes has no axis {axis}")
    return None if axis is None else _number(axis)


def _length(steps: Any) -> StreamLength:
    found = tuple((_number(add), _number(by), _number(times)) for add, by, times in steps)
    if any(by < 1 for _, by, _ in found):
        raise ValueError("a length that is divided by nothing")
    return StreamLength(found)


def _tree(tree: Any, outputs: int) -> object:
    """The tree of a result, checked."""
    kind, part = tree
    if kind == "out":
        if not 0 <= _number(part) < outputs:
            raise ValueError(f"there is no output {part}")
        return [kind, part]
    if kind == "constant":
        if part is not None and not isinstance(part, (bool, int, float, str)):
            raise ValueError("a constant that is not a number")
        return [kind, part]
    if kind == "dict":
        return [kind, [[str(k), _tree(q, outputs)] for k, q in part]]
    if kind not in ("list", "tuple"):
        raise ValueError(f"{kind!r:.80} is not a part of a result")
    return [kind, [_tree(q, outputs) for q in part]]


__all__ = ["entries", "restored"]
