"""Ranges: the interval in which a number of the program provably stays.

`Ranges` gives the least and the largest value of names: of a loop's index in its body, of the
count of a `while` loop behind it. The bounds of a name may contain names before it, so that those
of an inner loop follow the index of an outer one. A polynomial that is linear in a name takes its
extremes at the ends of that name's range.

    for i < T, j < i:   0 <= j <= i - 1,   the largest i - j is at j = 0 and i = T - 1: T - 1

What a value of a loop's body is as a polynomial, `ir.analysis.induction` says.

The elements of other integer tensors come from `argmax`, constants and remainders, through ops that
only move elements, through ports, and around loops. If all sources that can be reached are bounded,
so is the value (`bounds_of_elements`). Out of scope there: arithmetic, and bounds that are sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from ir.program import Cond, Fused, Last, Node, Op, Program, Scan, Stack, Value
from ir.types import Dim, Size, is_natural, substitute_dim
from ir.uses import entering, walk

#: name -> (least, largest), the names of outer loops first
Ranges: TypeAlias = Mapping[str, tuple[Dim, Dim]]
NO_RANGES: Ranges = MappingProxyType({})
#: by how much a fact is multiplied at most
LARGEST_FACTOR = 4


def names_in(d: Dim) -> frozenset[str]:
    return d.names if isinstance(d, Size) else frozenset()


def slope(d: Dim, name: str) -> Dim | None:
    """By how much `d` grows with `name`; None where it is not linear in it."""
    if isinstance(d, Size) and any(names.count(name) > 1 for names, _ in d.terms):
        return None
    return substitute_dim(d, {name: 1}) - substitute_dim(d, {name: 0})


def rises(factor: Dim) -> bool | None:
    """Whether a factor is surely 0 or more (True) or 0 or less (False); None if not known."""
    if is_natural(factor):
        return True
    return False if is_natural(0 - factor) else None


def extreme(d: Dim, ranges: Ranges, largest: bool) -> Dim | None:
    """The largest, or the least, value of `d` in names that have no range; None if not known."""
    for name in reversed(tuple(ranges)):
        if name not in names_in(d):
            continue
        factor = slope(d, name)
        up = None if factor is None else rises(factor)
        if up is None:
            return None
        d = substitute_dim(d, {name: ranges[name][up == largest]})
    return d


def facts_of(program: Program) -> tuple[Dim, ...]:
    """Dims that are >= 0 because a call that breaks them is refused."""
    return tuple(r.left - r.right for r in program.requires if r.relation == ">=")


def never_negative(d: Dim, facts: Sequence[Dim], ranges: Ranges = NO_RANGES) -> bool:
    """Whether `d >= 0` follows from `sizes >= 0`, the ranges, and a multiple of one of the facts,
    which are dims that are >= 0."""
    least = extreme(d, ranges, largest=False)
    d = d if least is None else least
    factors = range(1, LARGEST_FACTOR + 1)
    return is_natural(d) or any(is_natural(d - f * k) for f in facts for k in factors)


def is_inside(at: Dim, n: Dim, facts: Sequence[Dim], ranges: Ranges) -> bool:
    """Whether `0 <= at < n`, in all iterations of the loops that the ranges are of."""
    running = (*facts, *(most for _, most in ranges.values()))
    return all(never_negative(d, running, ranges) for d in (at, n - 1 - at))


# ---------------------------------------------------------------- elements of tensors
@dataclass
class Elements:
    """`sources`: the values that the elements of a value come from; `bounds`: bounds of values
    without sources; `found`: the bounds that have been asked for."""

    sources: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    bounds: dict[Value, int] = field(default_factory=dict)
    found: dict[Value, int | None] = field(default_factory=dict)

    def below(self, v: Value) -> int | None:
        """A number n with 0 <= element < n for all elements of `v`; None if none is known."""
        if v not in self.found:
            self.found[v] = self.bound(v)
        return self.found[v]

    def bound(self, v: Value) -> int | None:
        seen, todo, most = {v}, [v], 0
        while todo:
            q = todo.pop()
            known = self.bounds.get(q, self.found.get(q))
            if known is not None:
                most = max(most, known)
                continue
            if q not in self.sources or q in self.found:
                return None
            todo += [o for o in self.sources[q] if o not in seen]
            seen.update(self.sources[q])
        return most


def bounds_of_elements(program: Program) -> Elements:
    out = Elements()
    ops: list[Op] = []
    for node in walk(program.ops):
        out.sources.update(_through_ports(node))
        ops += node.body if isinstance(node, Fused) else [node] if isinstance(node, Op) else []
    ops = [op for op in ops if all(r.type.dtype.kind in "iu" for r in op.results)]
    for op in ops:
        most = _largest(op)
        if most is not None and 0 <= most < 1 << (op.results[0].type.dtype.bits - 1):
            out.bounds.update(dict.fromkeys(op.results, most + 1))
        elif sources := _moved(op):
            out.sources.update(dict.fromkeys(op.results, sources))
    for op in ops:
        below = out.bound(op.operands[1]) if op.name == "remainder" else None
        if below is not None and op.result.type.dtype.kind == "i":
            out.bounds[op.result] = below - 1  # a divisor of 0 is an error
    return out


def _largest(op: Op) -> int | None:
    """The largest element that the op itself gives; its elements are not negative."""
    if op.name in ("argmax", "first", "order"):
        n = op.operands[0].type.shape[op.attrs["axis"]]
        return n - 1 if isinstance(n, int) else None
    if op.name == "positions":
        n = op.operands[0].type.shape[0]
        return n if isinstance(n, int) else None
    return int(op.attrs["value"]) if op.name == "full" else None


def _moved(op: Op) -> tuple[Value, ...]:
    """The operands of which the op moves the elements."""
    if op.name == "cast" and op.operands[0].type.dtype.kind == "i":
        wide = op.result.type.dtype.bits >= op.operands[0].type.dtype.bits
        return op.operands if wide else ()
    return tuple(op.row.sources(op.operands))


def _through_ports(node: Node) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    ins = node.ins if isinstance(node, Fused) else entering(node)
    yield from ((p.inner, (p.outer,)) for p in ins)
    if isinstance(node, Scan):
        for p in node.carries:
            yield p.inner, (p.init, p.next)
            if p.last is not None:
                yield p.last, (p.init, p.next)
        outs = (p for p in node.ports if isinstance(p, (Stack, Last)))
        yield from ((p.outer, (p.inner,)) for p in outs)
    elif isinstance(node, Fused):
        yield from ((outer, (inner,)) for outer, inner in node.outs)
    elif isinstance(node, Cond):
        yield from ((j.outer, (j.then, j.orelse)) for j in node.outs)


__all__ = [
    "Elements",
    "Ranges",
    "bounds_of_elements",
    "extreme",
    "facts_of",
    "is_inside",
    "names_in",
    "never_negative",
    "rises",
    "slope",
]
