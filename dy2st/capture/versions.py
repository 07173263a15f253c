"""How often the version counters of inputs move: as often as eager Paddle moves them.

A counter is shared by a tensor, its views, its `detach()` and what `reshape` copies of it; every
in-place call raises it by one, but for `copy_`, `set_value` and a few others. A loop multiplies
what its body does by its length. What a branch does is counted by the program itself, in a storage
next to the input.
"""

from __future__ import annotations

from dataclasses import dataclass

from dy2st.trace.signals import Retrace
from dy2st.trace.trace import Frame, Trace
from ir import Size, Value
from ir.types import I64, Dim


@dataclass(frozen=True)
class Moves:
    """The input `root` is raised by `fixed`, and by what the value `counted` says at the end."""

    root: Value
    fixed: Dim
    counted: Value | None


def raise_by(trace: Trace, value: Value, n: int) -> None:
    """An in-place call has written `value`, or a view of it."""
    root = trace.root(value)
    while root in trace.heirs or root in trace.counted_with:
        root = trace.root(trace.heirs.get(root) or trace.counted_with[root])
    if n and any(q.value is root for q in trace.inputs.by_id.values()):
        add(trace, trace.frame, root, n)


def add(trace: Trace, frame: Frame, root: Value, n: Dim) -> None:
    """In `frame`, which is the innermost one, the counter of `root` is raised by `n`."""
    if frame.branch or trace.count_inside and len(trace.frames) > 2:
        emit(trace, root, n)
        return
    old = frame.raised.get(root, 0)
    frame.raised[root] = old + n
    trace.undo_log.note(lambda: frame.raised.__setitem__(root, old))


def depends(trace: Trace, frame: Frame, n: Dim) -> bool:
    """Whether `n` differs from one iteration of `frame` to the next."""
    names = n.names if isinstance(n, Size) else frozenset()
    local = trace.sizes.counts if frame is not trace.frames[0] else {}
    return any(q in trace.sizes.loops or q in local for q in names)


def emit(trace: Trace, root: Value, n: Dim) -> None:
    if root not in trace.counters:
        inner, trace.frames[1:] = trace.frames[1:], []
        attrs = {"value": 0, "shape": (), "dtype": I64}
        trace.counters[root] = trace.emit("full", [], attrs)
        trace.frames += inner
    counter = trace.counters[root]
    more = trace.emit("add", [counter, trace.dim_value(n)], {})
    trace.write(trace.fake(counter), more)


def leave(trace: Trace, raised: dict[Value, Dim], length: Dim) -> None:
    """A loop has been traced; the innermost frame is the one around it.

    Where its length is known in that frame only, the loop itself has to count: trace again.
    """
    if raised and depends(trace, trace.frame, length):
        trace.count_inside = True
        raise Retrace
    for root, n in raised.items():
        add(trace, trace.frame, root, n * length)


def moves(trace: Trace) -> list[Moves]:
    """What becomes of every input whose counter moves.

    What depends on the counts of loops that data ends is a value: it keeps those loops.
    """
    fixed = trace.frames[0].raised
    for root, n in fixed.items():
        if isinstance(n, Size) and not n.names.isdisjoint(trace.sizes.counts):
            emit(trace, root, n)
            fixed[root] = 0
    roots = dict.fromkeys((*fixed, *trace.counters))
    return [Moves(r, fixed.get(r, 0), trace.counters.get(r)) for r in roots]


__all__ = ["Moves", "leave", "moves", "raise_by"]
