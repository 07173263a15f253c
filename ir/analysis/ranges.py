"""Value range analysis: intervals that provably contain the numbers of a program.

Names have ranges: the index of a loop in its body, the count of a `while` loop behind it. The ends
of a range may contain older names, so that those of an inner loop follow the index of an outer one.
A polynomial that only grows, or only falls, with a name takes its extremes at the ends of that
name's range.

    for i < T, j < i:   0 <= j <= i - 1,   the largest i - j is at j = 0 and i = T - 1: T - 1

What a value of a loop's body is as a polynomial, `ir.analysis.affine` says.

The elements of other integer tensors come from `argmax`, constants and remainders, through ops that
only move elements, through ports, and around loops. If all sources that can be reached are bounded,
so is the value (`bounds_of_elements`). Out of scope there: arithmetic, and bounds that are sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ir.analysis.affine import index_name, loops_around, polynomial
from ir.program import Cond, Fused, Last, Node, Op, Program, Scan, Stack, Value
from ir.rewrite import Block
from ir.types import (
    Dim,
    Size,
    is_natural,
    names_in,
    only_terms,
    rests_on,
    slope,
    substitute_dim,
)
from ir.uses import entering, walk

#: by how much a fact is multiplied at most
LARGEST_FACTOR = 4
#: by how much a dim is multiplied at most, so that its quotients go
LARGEST_SCALE = 1 << 20


class Range(NamedTuple):
    """From `least`, which is never negative, to `most`, which is None where nothing says. `limit`
    is (step, bound): `step` times the number is at most `bound`; `floor`: it is at least that."""

    least: Dim
    most: Dim | None
    limit: tuple[int, Dim] | None = None
    floor: tuple[int, Dim] | None = None

    def end(self, factor: Dim, upper: bool) -> Dim | None:
        """`factor` times the largest, or the least, of the numbers."""
        step, bound = (self.limit if upper else self.floor) or (0, 0)
        if step and isinstance(factor, int) and factor % step == 0:
            return bound * (factor // step)
        if not upper:
            return factor * self.least
        return None if self.most is None else factor * self.most


#: the range of a name; None for one that has none, as the sizes of a call
Ranges: TypeAlias = Callable[[str], "Range | None"]
#: a comparison of a number with zero that holds
Comparison: TypeAlias = tuple[str, Dim]


def no_ranges(name: str) -> Range | None:
    return None


def index_range(trip: Dim) -> Range:
    """Return the range of a loop's index in its body."""
    return Range(0, trip - 1)


def facts_of(program: Program) -> tuple[Dim, ...]:
    """Dims that are >= 0 because a call that breaks them is refused."""
    return tuple(r.left - r.right for r in program.requires if r.relation == ">=")


# ---------------------------------------------------------------- extremes
def extreme(d: Dim, ranges: Ranges, largest: bool) -> Dim | None:
    """The largest, or the least, value of `d` in names that have no range; None if not known."""
    for name, found in _youngest_first(d, ranges):
        if name not in names_in(d):
            continue
        up = _rises(d, name, ranges)
        at = None if up is None else _at_end(d, name, found, up == largest)
        if at is None:
            return None
        d = at
    return d


def _at_end(d: Dim, name: str, found: Range, upper: bool) -> Dim | None:
    """`d` for the largest, or the least, number of this name."""
    factor = slope(d, name)
    if factor is not None:
        end, rest = found.end(factor, upper), substitute_dim(d, {name: 0})
        least = rest + factor * found.least
        if not upper and isinstance(least, int):
            return least
        return None if end is None else rest + end
    at = found.most if upper else found.least
    return None if at is None else substitute_dim(d, {name: at})


def _rises(d: Dim, name: str, ranges: Ranges) -> bool | None:
    """Whether `d` surely never falls (True) or never rises (False) with a name."""
    factors = [k for m, k in d.terms if rests_on(m, name)] if isinstance(d, Size) else []
    if min(factors) > 0 or max(factors) < 0:
        return factors[0] > 0
    factor = slope(d, name)
    if factor is None:
        return None
    if never_negative(factor, (), ranges):
        return True
    return False if never_negative(0 - factor, (), ranges) else None


def _youngest_first(d: Dim, ranges: Ranges) -> list[tuple[str, Range]]:
    """The names with a range in `d` and in the ends of these, each before those in its ends."""
    done: dict[str, Range] = {}
    todo = [(name, False) for name in _sorted(d)]
    while todo:
        name, seen = todo.pop()
        found = None if name in done else ranges(name)
        if found is None:
            continue
        if seen:
            done[name] = found
            continue
        todo.append((name, True))
        ends = (found.least, found.most or 0, *(q[1] for q in (found.limit, found.floor) if q))
        todo += [(inner, False) for end in ends for inner in _sorted(end) if inner not in done]
    return list(reversed(done.items()))


def _sorted(d: Dim) -> list[str]:
    """The names in a dim, the youngest first where they are numbered."""
    return sorted(names_in(d), key=lambda name: (len(name), name), reverse=True)


def never_negative(d: Dim, facts: Sequence[Dim] = (), ranges: Ranges = no_ranges) -> bool:
    """Whether `d >= 0` follows from `sizes >= 0`, the ranges, and a multiple of one of the facts,
    which are dims that are >= 0."""
    if is_natural(d):
        return True
    least = extreme(d, ranges, largest=False)
    d = d if least is None else least
    if _follows(d, facts, 1):
        return True
    below, times = _without_quotients(d)
    return times > 1 and _follows(below, facts, times)


def _follows(d: Dim, facts: Sequence[Dim], times: int) -> bool:
    factors = [k * n for n in {1, times} for k in range(1, LARGEST_FACTOR + 1)]
    return is_natural(d) or any(is_natural(d - f * k) for f in facts for k in factors)


def _without_quotients(d: Dim) -> tuple[Dim, int]:
    """`(e, k)` without quotients of sizes, such that `d` is not negative where `e` is not, for a
    positive k: `k * d` lies less than k above `e`. Quotients in products stay."""
    times = 1
    while isinstance(d, Size):
        factors = dict(d.terms)
        q = next((q for q in d.quotients if (q,) in factors), None)
        if q is None or times * q.divisor > LARGEST_SCALE:
            break
        factor, n = factors[(q,)], q.divisor
        rest = d - Size.named(q) * factor
        # n * q lies in [numerator - n + 1, numerator]
        least = q.numerator if factor < 0 else q.numerator - (n - 1)
        d, times = rest * n + least * factor, times * n
    return d + (times - 1), times


def natural_bound(d: Dim, ranges: Ranges) -> Dim | None:
    """Room for a size that names with ranges are in: a dim of other names that is at least `d`
    where `d` is not negative, also where no iteration runs. None where nothing bounds it."""
    named = _youngest_first(d, ranges)
    if not named:
        return d
    most = extreme(d, ranges, largest=True)
    most = None if most is None else only_terms(most, lambda names, k: k > 0 or names != ())
    if most is not None and is_natural(most):
        return most
    for name, found in named:
        d = _without_falling(d, name)
        if name in names_in(d):
            if found.most is None:
                return None
            d = substitute_dim(d, {name: only_terms(found.most, lambda _, k: k > 0)})
    return d


def _without_falling(d: Dim, name: str) -> Dim:
    """`d` without the terms that fall with a name."""
    return only_terms(d, lambda names, k: k > 0 or not rests_on(names, name))


# ---------------------------------------------------------------- what conditions say
#: the largest and the smallest n for which `n op 0`
SIGNS: dict[str, tuple[int | None, int | None]] = {
    "lt": (-1, None), "le": (0, None), "gt": (None, 1), "ge": (None, 0), "eq": (0, 0),
}  # fmt: skip


def compared(d: Dim, known: Iterable[Comparison]) -> tuple[int | None, int | None]:
    """The least and the largest value of `d` by comparisons that hold; None where none says so."""
    least: int | None = None
    most: int | None = None
    for op, gap in known:
        for sign in (1, -1):
            rest = d - gap * sign
            if op not in SIGNS or not isinstance(rest, int):
                continue
            high, low = (None if q is None else q * sign + rest for q in SIGNS[op][::sign])
            most = high if most is None or (high is not None and high < most) else most
            least = low if least is None or (low is not None and low > least) else least
    return least, most


def interval(d: Dim, ranges: Ranges, known: Iterable[Comparison]) -> tuple[Dim, Dim] | None:
    """The least and the largest value of `d`, by the ranges and by comparisons that hold; a number
    is preferred to a size."""
    low, high = (extreme(d, ranges, largest) for largest in (False, True))
    least, most = compared(d, known)
    if least is not None:
        low = max(low, least) if isinstance(low, int) else least
    if most is not None:
        high = min(high, most) if isinstance(high, int) else most
    return None if low is None or high is None else (low, high)


# ---------------------------------------------------------------- indices in loops
def in_range(b: Block, select: Op, facts: Sequence[Dim]) -> bool:
    """Whether the index of a `dynamic_index`, or of a `set_dynamic_index`, is inside of its axis
    where the loops around run."""
    x, at = select.operands[0].type, polynomial(b, select.operands[-1])
    n = x.shape[select.attrs["axis"] % x.ndim]
    return at is not None and is_inside(at, n, facts, b)


def is_inside(at: Dim, n: Dim, facts: Sequence[Dim], b: Block) -> bool:
    """Whether `0 <= at < n`, in all iterations of the loops around a block."""
    around = {index_name(q): s.trip for q, s in loops_around(b)}
    found = {name: index_range(trip) for name, trip in around.items()}
    running = (*facts, *(trip - 1 for trip in around.values()))
    return all(never_negative(d, running, found.get) for d in (at, n - 1 - at))


# ---------------------------------------------------------------- elements of tensors
@dataclass
class ElementBounds:
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


def bounds_of_elements(program: Program) -> ElementBounds:
    out = ElementBounds()
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
    "Comparison",
    "ElementBounds",
    "Range",
    "Ranges",
    "bounds_of_elements",
    "compared",
    "extreme",
    "facts_of",
    "in_range",
    "index_range",
    "interval",
    "is_inside",
    "natural_bound",
    "never_negative",
    "no_ranges",
]
