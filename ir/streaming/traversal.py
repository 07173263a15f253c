"""The interface of the traversal for the rules of loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from ir.loc import Loc
from ir.program import Builder, Carry, Const, Node, Seq, Value
from ir.streaming.chunks import Chunk, ChunkBuilder

#: the ports through which a loop reads
In: TypeAlias = Const | Seq | Carry


class Traversal(Protocol):
    """The traversal of a program (`ir.streaming.transform.StreamTransform`)."""

    c: ChunkBuilder
    env: dict[Value, Chunk]

    def nodes(self, ops: Sequence[Node]) -> None: ...
    def define(self, old: Sequence[Value], new: Sequence[Chunk]) -> None: ...


def in_block(t: Traversal, loc: Loc, emit: Callable[[], None]) -> Builder:
    """A block of its own for what `emit` emits."""
    outer, inner = t.c.b, Builder(loc)
    t.c.b = inner
    try:
        emit()
    finally:
        t.c.b = outer
    return inner


__all__ = ["In", "Traversal", "in_block"]
