"""Nested structures of tensors: tuples, named tuples, lists and dicts, with None as no tensor.

A structure is taken apart into its leaves once, and other values of the same structure are taken
apart after it, so that a dict may come back with its keys in another order. Leaves have the names
that errors use: `init['h'][0]`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import paddle

from dy2st.functional.errors import fault
from dy2st.state.ownership import note_contents
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import current

DICTS = (dict, collections.OrderedDict)


@dataclass(frozen=True)
class Structure:
    """`kind` is the class of a container, `keys` those of its `parts`; None for a leaf."""

    kind: type | None
    keys: tuple[object, ...] = ()
    parts: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        if self.kind is None:
            return "a tensor"
        if self.kind is type(None):
            return "None"
        if self.kind in DICTS:
            return f"a dict with the keys {', '.join(map(repr, self.keys)) or 'of none'}"
        return f"a {self.kind.__name__} of {len(self.keys)}"


LEAF = Structure(None)


def structure_of(x: Any) -> Structure:
    """The structure of a value. What is no container is a leaf."""
    kind = list if isinstance(x, TraceList) else type(x)
    if x is None:
        return Structure(kind)
    if not (isinstance(x, tuple) or kind is list or kind in DICTS):
        return LEAF
    if current() is not None:
        note_contents(current(), x)  # type: ignore[arg-type]
    items = dict(x) if kind in DICTS else dict(enumerate(x))
    return Structure(kind, tuple(items), tuple(map(structure_of, items.values())))


def leaves(x: Any, like: Structure, name: str, raises: Callable[[str], BaseException]) -> list[Any]:
    """The leaves of `x`, in the order of `like`; `raises` makes the error of another structure."""
    found = structure_of(x)
    if like.kind is None and found.kind is None:
        return [x]
    keyed = set(found.keys) == set(like.keys) and len(found.keys) == len(like.keys)
    if found.kind is not like.kind or not keyed:
        raise raises(f"{name} is {found}, not {like}")
    return [
        leaf
        for key, part in zip(like.keys, like.parts)
        for leaf in leaves(x[key], part, f"{name}[{key!r}]", raises)
    ]


def names(like: Structure, name: str) -> list[str]:
    """The name of each leaf."""
    if like.kind is None:
        return [name]
    pairs = zip(like.keys, like.parts)
    return [q for key, part in pairs for q in names(part, f"{name}[{key!r}]")]


def filled(like: Structure, values: Iterator[object]) -> object:
    """A value of the structure `like` with these leaves, in containers of its own."""
    if like.kind is None:
        return next(values)
    if like.kind is type(None):
        return None
    parts = [filled(q, values) for q in like.parts]
    if like.kind in DICTS:
        made = like.kind(zip(like.keys, parts))
        trace = current()
        if trace is not None:
            trace.make(made)
        return made
    if like.kind is list:
        return TraceList(parts) if current() is not None else parts
    return like.kind(*parts) if hasattr(like.kind, "_fields") else like.kind(parts)


# ---------------------------------------------------------------- leaves
def tensor(x: object, name: str) -> paddle.Tensor:
    """A leaf as a tensor; a Python number has no axes, and the default type of its kind."""
    if isinstance(x, paddle.Tensor):
        return x
    if type(x) in (bool, int, float) or is_symint(x) or is_runtime_scalar(x):
        return paddle.to_tensor(x)
    raise fault(TypeError, f"{name} is {described(x)}, not a tensor")


def described(x: object) -> str:
    return f"of type {type(x).__name__}"


def type_of(x: paddle.Tensor) -> object:
    """Return the type of a tensor: the element type and the shape."""
    trace = current()
    return (x.dtype, tuple(x.shape)) if trace is None else lift(trace, x)._value.type


def spelled(x: paddle.Tensor) -> str:
    """The type of a tensor in words: `float32[2, 3]`."""
    return f"{str(x.dtype).removeprefix('paddle.')}{list(x.shape)}"


__all__ = [
    "LEAF", "Structure", "described", "filled", "leaves", "names", "spelled", "structure_of",
    "tensor", "type_of",
]  # fmt: skip
