"""Buffers of Layers that a loop over the Layers writes in place, one in each iteration.

They are stacked in front of the loop, which writes rows, and get the rows behind it
(`dy2st.state.containers.dynamic_lookup.LookupTable`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import bounds, is_symint
from dy2st.trace.trace import Frame, Trace
from ir import Op
from ir.types import slope
from ir.uses import walk


def is_each_once(trace: Trace, i: Any, n: int, inner: Sequence[Frame]) -> bool:
    """Whether the body that begins the frames `inner`, or a branch of it, picks each of `n`
    elements in one iteration."""
    loop = inner[0].loop
    if not is_symint(i) or loop is None or i.loops != {loop} or any(f.loop for f in inner[1:]):
        return False
    step = slope(i.dim, loop.name)
    return loop.trip == n and step in (1, -1) and bounds(i.dim, trace) == (0, n - 1)


def is_updated(loops: frozenset[Any], key: tuple[int, ...]) -> bool:
    """Whether a loop writes these tensors in place, as an earlier trace of it has found."""
    return any(q.frame is not None and key in q.frame.learned.updated for q in loops)


def check_updates(trace: Trace, body: Frame) -> None:
    """Tensors that a loop writes are known to it by one table only."""
    for whole, table in body.updates.items():
        tables = (members for root, (members, _) in body.tables.items() if root is not whole)
        others = (v for members in tables for v in members)
        known = map(trace.root, (*body.consts, *body.written, *others))
        if not set(map(trace.root, table.members)).isdisjoint(known):
            raise NeedsConcrete("writes a tensor of a Layer that it also knows by another name")


def write_back(trace: Trace, body: Frame) -> None:
    """Behind a loop: the tensors get what it has left in the rows that stood for them."""
    for whole, table in body.updates.items():
        stores = (n for n in walk(body.builder.ops) if isinstance(n, Op) and n.name == "copy_")
        moves = sum(n.attrs["moves"] for n in stores if trace.root(n.operands[0]) is whole)
        for k, fake in enumerate(table.written):
            trace.write(fake, table.fake[k]._value, moves=moves)


__all__ = ["check_updates", "is_each_once", "is_updated", "write_back"]
