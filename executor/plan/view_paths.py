"""The path of a view that shows all elements of a tensor: the reshapes and transposes between them.

A `ViewPath` lists them from the tensor to the view. Steps that cancel are left out, so a view in
the tensor's own layout has the path ().
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ir import Op
from ir.types import Dim


@dataclass(frozen=True)
class Transpose:
    """Axis k of the view is axis `perm[k]`."""

    perm: tuple[int, ...]


@dataclass(frozen=True)
class Reshape:
    """The same elements, in row-major order, in another shape."""

    before: tuple[Dim, ...]
    after: tuple[Dim, ...]


ViewPath: TypeAlias = tuple["Transpose | Reshape", ...]


def extended(path: ViewPath, op: Op) -> ViewPath | None:
    """The path of the result of a view, from that of its operand; None if it shows a part only."""
    x = op.operands[0].type
    if op.name == "reshape":
        return _then(path, Reshape(x.shape, op.result.type.shape))
    if op.name == "transpose":
        return _then(path, Transpose(tuple(p % x.ndim for p in op.attrs["perm"])))
    return None


def joined_paths(path: ViewPath, behind: ViewPath) -> ViewPath:
    """The concatenation of two paths."""
    for step in behind:
        path = _then(path, step)
    return path


def _then(path: ViewPath, step: Transpose | Reshape) -> ViewPath:
    """
    [Transpose((1, 0))], Transpose((1, 0))            =>  []
    [Reshape((4, 6), (24,))], Reshape((24,), (8, 3))  =>  [Reshape((4, 6), (8, 3))]
    """
    last = path[-1] if path else None
    if isinstance(last, Transpose) and isinstance(step, Transpose):
        path, step = path[:-1], Transpose(tuple(last.perm[p] for p in step.perm))
    elif isinstance(last, Reshape) and isinstance(step, Reshape):
        path, step = path[:-1], Reshape(last.before, step.after)
    if isinstance(step, Transpose):
        nothing = step.perm == tuple(range(len(step.perm)))
    else:
        nothing = step.before == step.after
    return path if nothing else (*path, step)


__all__ = ["ViewPath", "extended", "joined_paths"]
