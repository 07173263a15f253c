"""Saving a translated function to one file (`dy2st.export.manifest`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.api import StaticFunction, to_static
from dy2st.compiled.entry import Entry
from dy2st.export.complex_arrays import pairs_of
from dy2st.export.manifest import write
from dy2st.results.leaves import SaveContext
from dy2st.results.leaves import save as saved
from dy2st.streaming.api import LazyStream
from dy2st.streaming.file import entries
from dy2st.streaming.program import StreamingProgram
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.signals import SAVED, RetraceForGradients
from dy2st.trace.undo import AttributeLocation, Location
from ir import Dy2stError, Program


def save(
    function: object, path: str | os.PathLike[str], input_spec: Sequence[object] | None = None
) -> None:
    """Save a translated function or Layer, or a streaming program, to one file.

    Args:
        function: a result of `to_static` or `stream`, or a function or Layer that `to_static` would
            take.
        path: the file to write; it appears whole or not at all.
        input_spec: `paddle.static.InputSpec` for each tensor argument; dims of None stay open. A
            streaming program has one.

    Raises:
        SourceError: the function cannot be translated for these inputs.
        Dy2stError: the program needs Paddle's own kernels, or carries Python state.
    """
    if isinstance(function, LazyStream):
        function = function.program_made()
    if isinstance(function, StreamingProgram):
        write(path, *entries(function))
        return
    if input_spec is None:
        raise TypeError(
            "save needs `input_spec=`: a paddle.static.InputSpec for each tensor argument"
        )
    write(path, *parts_of(function, input_spec))


def parts_of(
    function: object, input_spec: Sequence[object]
) -> tuple[Program, dict[str, object], dict[str, np.ndarray]]:
    """The program, the manifest's entries, and weights by the number of their input."""
    original = _original(function)
    entry = _entry(original, input_spec)
    if entry.report.hosted:
        name, loc = entry.report.hosted[0]
        raise Dy2stError(
            f"the program cannot be saved: {name}() at {loc} is called again on every call, in the "
            "process that translates. Pass its result as an argument."
        )
    foreign = dict.fromkeys(f"{name} ({loc})" for name, loc in entry.report.foreign)
    if foreign:
        raise Dy2stError(
            f"the program cannot be saved: {', '.join(foreign)} "
            f"run{'s' if len(foreign) == 1 else ''} on Paddle's own kernels. Write it with other "
            "functions, or pass its result as an argument."
        )
    shared = dict.fromkeys(q.name for q in entry.traced if q.share is not None)
    if shared:
        raise Dy2stError(
            f"the program cannot be saved: its tensors share memory ({', '.join(shared)}). Give "
            "each of them memory of its own (`.clone()`)."
        )
    weights = {}
    for k, q in enumerate(entry.displayed_bound):
        number = entry.traced.index(q)
        if entry.args[number] is None:
            array = _array(entry.input(number, ()))
            weights[str(k)] = pairs_of(array) if q.pairs else array
    file = SaveContext(entry.traced, entry.displayed_bound)
    manifest: dict[str, object] = {
        "result": saved(entry.plan.result, file),
        "stores": [
            [_input_of(entry, place), _tensor(place, saved(t, file))]
            for place, t in entry.plan.stores
            if not _holds(place, t) and not _stored_only(entry, place)
        ],
    }
    inputs = [k for k, q in enumerate(entry.displayed_bound) if q.pairs]
    if inputs or entry.plan.complex:
        manifest["complex"] = {"inputs": inputs, "outputs": sorted(entry.plan.complex)}
    return entry.program, manifest, weights


def _entry(original: Callable[..., object], input_spec: Sequence[object]) -> Entry:
    """A file has no backward, so no gradients are recorded, unless the function takes some."""
    before = SAVED.set("first")
    try:
        with paddle.no_grad():
            return StaticFunction(original, input_spec).entry()
    except RetraceForGradients:
        SAVED.set("again")
        return StaticFunction(original, input_spec).entry()
    finally:
        SAVED.reset(before)


def _original(function: object) -> Any:
    if isinstance(function, paddle.nn.Layer):
        forward = function.forward
        return getattr(forward, "__dy2st_original__", forward)
    static = function if isinstance(function, StaticFunction) else to_static(function)
    return static.__dy2st_original__


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))


def _stored_only(entry: Entry, place: Location) -> bool:
    """Whether it is an attribute that no call reads before it has stored it, as the weight that a
    weight norm computes: no result follows from it, so a file does without."""
    if not isinstance(place, AttributeLocation):
        return False
    of, fields = id(place.obj), id(getattr(place.obj, "__dict__", None))
    of_all = (("names", fields), ("members", of))
    return not any(
        key[:2] in of_all or (key[1:] == (of, place.name) and key[0] != "unregistered")
        for key in entry.checks.terms
    )


def _input_of(entry: Entry, place: Location) -> int:
    """The input that reads a stored place: it is state of the program."""
    for k, q in enumerate(entry.displayed_bound):
        if q.place is not None and q.place.key == place.key:
            return k
    raise Dy2stError(
        f"the program cannot be saved: it stores {place}, which it does not read as a tensor. "
        "Make it a buffer (register_buffer) of the right shape."
    )


def _tensor(place: Location, part: list[object]) -> list[object]:
    """Return the part that is stored in an input; refuse a Python value in place of a tensor."""
    if part[0] not in ("out", "same"):
        raise Dy2stError(
            f"the program cannot be saved: it stores a Python value in {place}, which holds a "
            "tensor. Store a tensor of the same type."
        )
    return part


def _holds(place: Location, tree: object) -> bool:
    """Whether a stored Python constant is what the place holds anyway: Paddle's batch norm stores
    its own format in every call."""
    old = place.get()
    return isinstance(tree, (str, int, float)) and type(old) is type(tree) and bool(old == tree)
