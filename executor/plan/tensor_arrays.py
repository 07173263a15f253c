"""Tensor arrays that are only read at an index: arrays of addresses, without copies of elements."""

from __future__ import annotations

from collections.abc import Iterator

from ir import Op, Program, Scan, Value
from ir.program import Carry, LoopCondition, Node, Seq
from ir.types import Type, product
from ir.uses import blocks, consts, walk

#: an element of fewer bytes is copied, as an address takes eight itself
FEWEST_BYTES = 64


def addressed(program: Program) -> frozenset[Node]:
    """The `tensor_array`s of which each use reads one element."""
    arrays = {n.results[0]: n for n in walk(program.ops) if n.name == "tensor_array"}
    arrays = {v: n for v, n in arrays.items() if not _is_small(n.operands[0].type)}
    if not arrays:
        return frozenset()
    whole = set(program.needed)
    inner: dict[Value, list[Value]] = {}
    for n in walk(program.ops):
        whole.update(_read_whole(n), *(leaving for _, leaving in blocks(n)))
        for p in consts(n):
            inner.setdefault(p.outer, []).append(p.inner)
    return frozenset(n for v, n in arrays.items() if whole.isdisjoint(_names(v, inner)))


def _is_small(t: Type) -> bool:
    size = product(t.shape) * t.dtype.size
    return isinstance(size, int) and size < FEWEST_BYTES


def _names(v: Value, inner: dict[Value, list[Value]]) -> Iterator[Value]:
    """`v`, and what it is called inside of loops and branches."""
    yield v
    for q in inner.get(v, ()):
        yield from _names(q, inner)


def _read_whole(n: Node) -> Iterator[Value]:
    """The operands of which a node reads more than one slice of the first axis."""
    if isinstance(n, Scan):
        for p in n.ports:
            if isinstance(p, (Carry, LoopCondition)):
                yield p.init
            elif isinstance(p, Seq) and p.axis:
                yield p.outer
    elif isinstance(n, Op):
        first = n.name in ("index", "dynamic_index")
        if not first or n.attrs["axis"] % n.operands[0].type.ndim != 0:
            yield from n.operands
        else:
            yield from n.operands[1:]
    else:
        read = {p.outer for p in consts(n)}
        yield from (v for v in n.operands if v not in read)
