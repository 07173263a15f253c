"""The parts of a saved file: program, manifest and weights of a translated function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle

from dy2st.api import StaticFunction, to_static
from dy2st.compiled.entry import Entry
from dy2st.export.load import attrs_text
from dy2st.results.leaves import (
    Choice,
    Element,
    Elements,
    Final,
    Joined,
    Number,
    Out,
    Rows,
    Same,
    Scalar,
    ShapeOf,
)
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.undo import Location
from ir import Dy2stError, Program
from ir.literal import print_attr


def parts_of(
    function: Any, input_spec: Sequence[Any]
) -> tuple[Program, dict[str, Any], dict[str, np.ndarray]]:
    """The program, the manifest's entries, and weights by the number of their input."""
    original = _original(function)
    with paddle.no_grad():
        entry = StaticFunction(original, input_spec).entry()
    foreign = entry.report.foreign_counts
    if foreign:
        raise Dy2stError(
            f"the program cannot be saved: {', '.join(sorted(foreign))} "
            f"run{'s' if len(foreign) == 1 else ''} on Paddle's own kernels."
        )
    if entry.plan.reshaped or any(q.share is not None for q in entry.lifted):
        raise Dy2stError(
            "the program cannot be saved: its arguments share memory, or change their shape."
        )
    weights = {}
    for k, q in enumerate(entry.shown_bound):
        number = entry.lifted.index(q)
        if entry.args[number] is None:
            weights[str(k)] = _array(entry.input(number, ()))
    manifest = {
        "result": _tree(entry, entry.plan.result),
        "stores": [
            [_input_of(entry, place), _tree(entry, t)]
            for place, t in entry.plan.stores
            if not _holds(place, t)
        ],
    }
    return entry.program, manifest, weights


def _original(function: Any) -> Any:
    if isinstance(function, paddle.nn.Layer):
        forward = function.forward
        return getattr(forward, "__dy2st_original__", forward)
    static = function if isinstance(function, StaticFunction) else to_static(function)
    return static.__dy2st_original__


def _array(tensor: Any) -> np.ndarray:
    return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))


def _input_of(entry: Entry, place: Location) -> int:
    """The input that reads a stored place: it is state of the program."""
    for k, q in enumerate(entry.shown_bound):
        if q.place is not None and q.place.key == place.key:
            return k
    raise Dy2stError(
        f"the program cannot be saved: it stores {place}, which it does not read as a tensor. "
        "Make it a buffer (register_buffer) of the right shape."
    )


def _holds(place: Location, tree: Any) -> bool:
    """Whether a stored Python constant is what the place holds anyway: Paddle's batch norm stores
    its own format in every call."""
    old = place.get()
    return isinstance(tree, (str, int, float)) and type(old) is type(tree) and bool(old == tree)


def _tree(entry: Entry, tree: Any) -> Any:
    if isinstance(tree, (Out, Same)) and any(
        n in ("dynamic_index", "dynamic_slice") for n, _ in tree.recipe
    ):
        raise Dy2stError("the program cannot be saved: it returns a view at an index from data.")
    if isinstance(tree, (Element, Final)):
        tree = tree.other
    if isinstance(tree, Choice):
        tree = replace(tree.other, recipe=tree.recipe)
    if isinstance(tree, Out):
        return ["out", tree.index, [[n, attrs_text(a)] for n, a in tree.recipe]]
    if isinstance(tree, Same):
        wanted = entry.lifted[tree.index]
        index = next((k for k, q in enumerate(entry.shown_bound) if q is wanted), None)
        if index is None:
            raise Dy2stError(f"the program cannot be saved: it returns {wanted.name} unread.")
        return ["same", index, [[n, attrs_text(a)] for n, a in tree.recipe]]
    if isinstance(tree, Number):
        return ["size", print_attr(tree.dim)]
    if isinstance(tree, Scalar):
        return ["number", tree.index]
    if isinstance(tree, Elements):
        return ["elements", _tree(entry, tree.tree)]
    if isinstance(tree, Rows):
        return ["rows", tree.index, tree.number]
    if isinstance(tree, Joined):
        raise Dy2stError("the program cannot be saved: it returns views that a loop has collected.")
    if isinstance(tree, ShapeOf):
        return ["list", [["size", print_attr(d)] for d in tree.dims]]
    if isinstance(tree, dict):
        return ["dict", [[print_attr(k), _tree(entry, q)] for k, q in tree.items()]]
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return [kind, [_tree(entry, q) for q in tree]]
    if isinstance(tree, Tensor):
        raise Dy2stError("the program cannot be saved: its result holds a tensor from outside.")
    try:
        return ["constant", print_attr(tree)]
    except TypeError as e:
        raise Dy2stError(f"the program cannot be saved: {e}") from None
