"""Append-only buffers of loops: the backward pass reads their final values.

    scan %t < T {
      carry %b = %b0 then %b2 last %bT
      body
        %p  = slice(%b, start=0, length=t+n)        # the same elements of %bT
        %b2 = set_slice(%b, %x, start=t+n)

What an iteration has stored is never stored again, so in every iteration the elements in front of
the next store are those after the loop. A slice of them is taken of `%bT`, where a stack would hold
one buffer for each iteration. A carry counts only if all that reads it in the body is such a slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ir.ops.views import span_of
from ir.program import Carry, Node, Op, Scan, Value
from ir.types import Dim, Size, is_natural, substitute_dim
from ir.uses import users


def appended(s: Scan, emitted: Sequence[Node]) -> dict[Value, Carry]:
    """The values of the body that are a buffer which the loop only appends to, with its carry.
    emitted: ops of the backward pass, which may read them, too."""
    if not s.size:
        return {}
    readers = users([*s.body, *emitted])
    makers = {v: n for n in s.body for v in n.results}
    out: dict[Value, Carry] = {}
    for p in s.carries:
        found = _stores(p, makers)
        if found and _only_appends(s, p, found, readers):
            out.update(dict.fromkeys([p.inner, *(op.result for op in found)], p))
    return out


def _stores(p: Carry, makers: Mapping[Value, Node]) -> list[Op]:
    """The stores that make the next value of a carry from its last one; none for another value."""
    out: list[Op] = []
    v = p.next
    while v is not p.inner:
        op = makers.get(v)
        if not isinstance(op, Op) or op.name not in ("set_slice", "set_dynamic_index"):
            return []
        out.append(op)
        v = op.operands[0]
    return out[::-1]


def _only_appends(
    s: Scan, p: Carry, stores: Sequence[Op], readers: Mapping[Value, Sequence[Node]]
) -> bool:
    index, axis = Size.named(s.size), stores[0].attrs["axis"] % p.inner.type.ndim
    first = _place(s, stores[0])
    if first is None:
        return False
    value, end = p.inner, first[0]
    for op in (*stores, None):
        rest = [n for n in readers.get(value, ()) if n is not op]
        if not all(_reads_front(n, axis, end) for n in rest):
            return False
        if op is None:
            break
        place = _place(s, op)
        same = op.attrs["axis"] % value.type.ndim == axis and value not in op.operands[1:]
        if place is None or not same or not is_natural(place[0] - end):
            return False
        value, end = op.result, place[0] + place[1]
    following = substitute_dim(first[0], {s.size: index + 1})
    return is_natural(following - first[0]) and is_natural(following - end)


def _place(s: Scan, op: Op) -> tuple[Dim, Dim] | None:
    """Return the start of a store and its length along its axis."""
    if op.name == "set_dynamic_index":
        return (Size.named(s.size), 1) if op.operands[2] is s.index else None
    axis = op.attrs["axis"] % op.result.type.ndim
    return (op.attrs["start"], op.operands[1].type.shape[axis]) if op.attrs["step"] == 1 else None


def _reads_front(n: Node, axis: int, end: Dim) -> bool:
    """Whether a node reads nothing of `v` but elements in front of `end`."""
    span = span_of(n)
    if span is None or span.axis != axis or span.step != 1:
        return False
    return is_natural(span.start) and is_natural(end - span.start - span.length)


__all__ = ["appended"]
