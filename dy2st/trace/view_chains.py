"""The chain of views from a storage to a value, as rows and attributes that can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dy2st.trace.trace import Frame, Trace
from ir import Size, Value
from ir.types import Dim, substitute_dim

Recipe: TypeAlias = tuple[tuple[str, tuple[tuple[str, object], ...]], ...]


def chain_of(
    trace: Trace, value: Value, root: Value, output: Callable[[Value], int]
) -> Recipe | None:
    """The views from `root` to `value`; None when one of them has an index that is written later.

    `output` gives the number of the output that an index from data becomes.
    """
    steps: list[Any] = []
    while value is not root:
        op = trace.values.makers.get(value)
        if op is None or any(trace.root(v) in trace.values.written for v in op.operands[1:]):
            return None
        found = [("output", output(v)) for v in op.operands[1:]]
        steps.append((op.name, tuple(sorted([*op.attrs.items(), *found]))))
        value = op.operands[0]
    return tuple(reversed(steps)) or (("alias", ()),)


def chain_in_loop(trace: Trace, value: Value, root: Value, frame: Frame) -> Recipe | None:
    """As `chain_of`, of a value in a loop's body: indices are expressions of the iteration. Empty
    for the object `root` itself."""
    known = {v: dim for dim, v in frame.indices.items()}
    if frame.loop is not None:
        known[frame.loop.index] = Size.named(frame.loop.name)
    steps: list[Any] = []
    for v in trace.chain(value):
        op = trace.values.makers.get(v)
        if v is root:
            return tuple(reversed(steps))
        if op is None:
            continue
        name, attrs, found = op.name, dict(op.attrs), [known.get(q) for q in op.operands[1:]]
        if None in found:
            return None
        if name == "dynamic_index":
            name, attrs = "index", {**attrs, "index": found[0]}
        elif name == "dynamic_slice":
            name, attrs = "slice", {**attrs, "start": found[0], "step": 1}
        steps.append((name, tuple(sorted(attrs.items()))))
    return None


def is_apart(recipe: Recipe, loop: str) -> bool:
    """Whether no two iterations look at the same element: each one takes a slice of its own."""
    name, attrs = recipe[0] if recipe else ("", ())
    index = dict(attrs).get("index")
    return name == "index" and isinstance(index, Size) and loop in index.names


def dims_of(x: object) -> Sequence[Any]:
    """The sizes in an attribute."""
    return x if isinstance(x, tuple) else (x,)


def in_iteration(recipe: Recipe, loop: str, index: Dim) -> Recipe:
    """A chain in a loop's body, in iteration `index`."""

    def fixed(a: object) -> object:
        if isinstance(a, tuple):
            return tuple(map(fixed, a))
        return substitute_dim(a, {loop: index}) if isinstance(a, Size) else a

    return tuple((name, tuple((k, fixed(a)) for k, a in attrs)) for name, attrs in recipe)


__all__ = ["Recipe", "chain_in_loop", "chain_of", "dims_of", "in_iteration"]
