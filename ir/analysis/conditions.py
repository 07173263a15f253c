"""Conditions on named sizes that the types of a program assume.

A row infers types from what it assumes about named sizes (`ir.opdef.assume`). Each condition
follows from the program's `requires`, or it is checked when the program runs: one on the sizes of a
call at the door, one on the count of a `while` loop behind the loop, one on the index of a loop in
every iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ir.analysis.ranges import Range, index_range, never_negative
from ir.opdef import Assumption, broadcast, collecting
from ir.program import ENDLESS, Cond, Custom, Fused, Node, Op, Program, Require, Scan, Value
from ir.types import Dim, Size, rests_on, substitute_dim
from ir.uses import blocks, dim_names, loop_sizes

Condition = Require | Assumption
#: how many facts of a kind a proof combines with others, the latest ones
KNOWN = 16
#: comparisons a > b and a >= b, with whether `a` is the second operand, and the least a - b
COMPARED = {
    "greater_than": (False, 1),
    "greater_equal": (False, 0),
    "less_than": (True, 1),
    "less_equal": (True, 0),
}


@dataclass(frozen=True)
class KnownConditions:
    """Facts about sizes: `given` are the conditions of the program, as they are; `natural` are >=
    0, `zero` are 0, and `names` are equal to other dims. `ranges` are those of the indices of loops
    around."""

    given: frozenset[tuple[str, Dim]] = frozenset()
    natural: tuple[Dim, ...] = ()
    zero: tuple[Dim, ...] = ()
    names: tuple[tuple[str, Dim], ...] = ()
    ranges: Mapping[str, Range] = field(default_factory=dict)

    @staticmethod
    def of(requires: Sequence[Require]) -> KnownConditions:
        """Equalities first: the other conditions are kept in the names that these leave."""
        ordered = sorted(requires, key=lambda r: r.relation != "==")
        return KnownConditions(frozenset((r.relation, r.left - r.right) for r in requires)).and_(
            ordered
        )

    def plain(self, d: Dim) -> Dim:
        """`d` in names that are not known to equal others."""
        for name, other in self.names:
            if isinstance(d, Size) and (name in d.names or name in d.quotients):
                d = substitute_dim(d, {name: other})
        return d

    def and_(self, conditions: Iterable[Condition]) -> KnownConditions:
        out = self
        for q in conditions:
            gap = out.plain(q.left - q.right)
            if q.relation == ">=":
                out = replace(out, natural=(*out.natural, gap)[-KNOWN:])
            elif q.relation == "==":
                found = _solved(gap)
                names = () if found is None else (found,)
                out = replace(out, zero=(*out.zero, gap)[-KNOWN:], names=(*out.names, *names))
        return out

    def imply(self, q: Condition) -> bool:
        gap = q.left - q.right
        if (q.relation, gap) in self.given:
            return True
        gap = self.plain(gap)
        if q.relation == "==":
            return gap == 0 or any(z in (gap, 0 - gap) for z in self.zero)
        return never_negative(gap, self.natural, self.ranges.get)

    def inside(self, s: Scan) -> KnownConditions:
        """Return the facts that hold in the body of a loop: it runs, and its index stays below
        `trip`."""
        if s.trip == ENDLESS:
            return self
        facts = self.and_([Assumption(s.trip, ">=", 1)])
        if not s.size:
            return facts
        return replace(facts, ranges={**facts.ranges, s.size: index_range(s.trip)})


def _solved(gap: Dim) -> tuple[str, Dim] | None:
    """A name, or a quotient, and the dim that it equals if `gap` is 0."""
    terms = gap.terms if isinstance(gap, Size) else ()
    for names, factor in terms:
        alone = sum(n in names for n in names) == 1 and len(names) == 1
        once = alone and sum(rests_on(m, names[0]) for m, _ in terms) == 1
        if once and abs(factor) == 1:
            return names[0], Size.named(names[0]) - gap * factor
    return None


def unproven(program: Program) -> dict[Node, tuple[Require, ...]]:
    """For each node the conditions of its types that follow neither from the program's `requires`
    nor from conditions of nodes before it."""
    found: dict[Node, tuple[Require, ...]] = {}
    if program.sizes or any(loop_sizes(program.ops)):
        _block(program.ops, KnownConditions.of(program.requires), found, {})
    return found


def _block(
    ops: Sequence[Node],
    facts: KnownConditions,
    found: dict[Node, tuple[Require, ...]],
    made: dict[Value, Op],
) -> None:
    """`made`: ops that give a single result, in this block and those around it."""
    for node in ops:
        if isinstance(node, Op) and len(node.results) == 1:
            made[node.result] = node
        new = []
        for q in _assumed(node):
            if not facts.imply(q):
                new.append(q)
                facts = facts.and_([q])
        if new:
            found[node] = tuple(new)
        inside = facts.inside(node) if isinstance(node, Scan) else facts
        halves = blocks(node)[:1] if isinstance(node, Custom) else blocks(node)
        for k, (inner, _) in enumerate(halves):
            told = _told(node, made, k == 0) if isinstance(node, Cond) else ()
            _block(inner, inside.and_(told), found, made)


def _told(node: Cond, made: Mapping[Value, Op], holds: bool) -> list[Assumption]:
    """What a branch knows by a comparison of sizes that is its test."""
    test = made.get(node.test)
    if test is None or test.name not in COMPARED:
        return []
    a, b = (_size(made.get(v)) for v in test.operands)
    swapped, least = COMPARED[test.name]
    if a is None or b is None:
        return []
    a, b = (b, a) if swapped else (a, b)
    return [Assumption(a, ">=", b + least) if holds else Assumption(b, ">=", a + 1 - least)]


def _size(op: Op | None) -> Dim | None:
    """The size that an op gives as a number."""
    if op is not None and op.name == "size":
        return op.attrs["n"]  # type: ignore[no-any-return]
    value = op.attrs["value"] if op is not None and op.name == "full" else None
    return value if type(value) is int else None


def _assumed(node: Node) -> list[Require]:
    """The conditions that the result types of a node rest on."""
    if not isinstance(node, (Op, Fused)):
        return []
    named = any(v.type.names for v in (*node.operands, *node.results))
    if not named and not (isinstance(node, Op) and dim_names(tuple(node.attrs.values()))):
        return []
    with collecting() as wanted:
        if isinstance(node, Fused):
            for op in node.body:
                broadcast(*(v.type.shape for v in op.operands))
            for _, inner in node.outs:
                broadcast(inner.type.shape, node.shape)
        elif node.row.kernel is not None:
            broadcast(*(v.type.shape for v in node.operands))
        else:
            node.row.result_types([v.type for v in node.operands], node.attrs)
    return [Require(w.left, w.relation, w.right, node.name, node.loc) for w in wanted]


def with_requires(program: Program) -> Program:
    """The program with every unproven condition on the sizes of a call among its `requires`."""
    known = set(program.sizes) - set(program.capacities)
    every = (r for q in unproven(program).values() for r in q)
    new = {str(r): r for r in every if dim_names((r.left, r.right)) <= known}
    return replace(program, requires=(*program.requires, *new.values())) if new else program


__all__ = ["unproven", "with_requires"]
