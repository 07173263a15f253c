"""Overflow analysis: bounds of sizes and offsets, which compiled code computes in 64 bits.

An extent is a dim in which every term counts as positive and every named size is at least 1: if it
is below `LARGEST`, so is every element count, stride, offset and distance that the code computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ir.layout import row_major
from ir.opdef import view_rule
from ir.ops.views import place_of
from ir.program import ENDLESS, Node, Op, Program, Scan, Seq, Value
from ir.types import Dim, Quotient, Size, evaluate_dim, substitute_dim
from ir.uses import sizes_of, walk

#: extents are in bytes: more than memory holds, far below 64 bits, and small enough that one kernel
#: comes to an end
LARGEST = 1 << 44


def extents(program: Program, bounds: Mapping[str, Dim | None] | None = None) -> tuple[Dim, ...]:
    """The extents of a program, each once. `bounds` are the largest values of the counts of loops;
    an extent that names another count is left out."""
    known = {n: absolute(b) for n, b in (bounds or {}).items() if b is not None}
    sizes = {*program.sizes, *known}
    out: dict[Dim, None] = {}
    for node in walk(program.ops):
        for d in _of(node):
            if not isinstance(d, Size) or d.names <= sizes:
                out[substitute_dim(absolute(d), known)] = None
        for q in _quotients(node):
            if q.numerator.names <= sizes:
                out[substitute_dim(absolute(q.numerator), known)] = None
    return tuple(out)


def _quotients(node: Node) -> Iterator[Quotient]:
    """The quotients in the types and attributes of a node, and those in their numerators."""
    todo = [q for d in sizes_of(node) for q in d.quotients]
    for q in todo:
        yield q
        todo += q.numerator.quotients


def too_large(program_extents: tuple[Dim, ...], sizes: Mapping[str, int]) -> bool:
    """Whether one of them is too large for the sizes of a call."""
    at_least = {n: max(1, d) for n, d in sizes.items()}
    return any(evaluate_dim(d, at_least) >= LARGEST for d in program_extents)


def absolute(d: Dim) -> Dim:
    """`d` with the sign of every term positive, and with quotients that are at least 1."""
    if not isinstance(d, Size):
        return abs(d)
    up: dict[str, Dim] = {q: Size.named(q) + 1 for q in d.quotients}
    return substitute_dim(Size(tuple((names, abs(k)) for names, k in d.terms)), up)


def _of(node: Node) -> Iterator[Dim]:
    for v in (*node.operands, *node.results):
        yield _bytes(v)
    if isinstance(node, Scan):
        trip = 0 if node.trip == ENDLESS else node.trip
        yield trip
        for p in node.ports:
            if isinstance(p, Seq):
                yield absolute(p.start) + absolute(trip) * abs(p.step)
    elif isinstance(node, Op):
        yield from _reach(node)


def _bytes(v: Value) -> Dim:
    """At least the bytes of the value, and of its parts if a dim is 0."""
    total: Dim = v.type.dtype.size
    for d in v.type.shape:
        total = total * (1 if d == 0 else absolute(d))
    return total


def _reach(op: Op) -> Iterator[Dim]:
    """Yield the distances by which the attributes of an op reach beyond its operand's first
    element."""
    if "n" in op.attrs:
        yield absolute(op.attrs["n"])
    if op.row.is_address or op.row.through:
        place, whole = place_of(op), row_major(op.operands[0].type.shape)
        part = view_rule(place.name).layout(whole, *(0 for _ in place.at), **place.attrs)
        total = absolute(part.offset)
        for d, s in zip(part.shape, part.strides):
            total = total + (absolute(d) + 1) * absolute(s)
        yield total
    for q in op.attrs.get("padding", ()):
        yield absolute(q[0]) + absolute(q[1])


__all__ = ["LARGEST", "extents", "too_large"]
