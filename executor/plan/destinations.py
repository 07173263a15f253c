"""Destination passing: memory is chosen for a value before the op that computes it is lowered.

A piece of a `concat` or `stack` is computed, or collected by a loop, in its part of the joined
tensor. The value that a `set_*` op stores is computed in the part that it goes to, if the op
updates its operand in place and nothing reads the operand in between; so is a part of that part:
`x[i, j] = y` stores `y` and nothing else. The operand of a view of all its elements (`transpose`,
`reshape`) at the end of a block is computed in the layout of the result. Each is tried only where
no value that is still read lies in that memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import ChainMap, Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from executor.memory import View
from executor.plan.copies import CopyPurpose
from executor.plan.reuse import BlockReuse, elementwise, first_made
from ir import Fused, Op, Scan, Value
from ir.opdef import view_rule
from ir.ops.views import place_of
from ir.program import Last, Node, Stack


@dataclass(frozen=True)
class StoreDestination:
    """The result of `maker` is computed in the part of the storage of `owner` that `op` stores."""

    op: Op
    maker: Node
    owner: Value


@dataclass
class Destinations:
    """The destinations of values of a block.

    `views` are values that are made in a place as a view at the end of the block shows it, `joins`
    the operands of a `concat` or `stack` that are made in its result, and `stores` the values that
    are made in a part of another one.
    """

    views: list[tuple[Value, View, CopyPurpose]] = field(default_factory=list)
    joins: dict[Op, list[Value]] = field(default_factory=dict)
    stores: dict[Value, StoreDestination] = field(default_factory=dict)


@dataclass
class _Search:
    """`places` are views that must hold a value at the end of the block, and `wants` says what for.
    `direct` are names of ops that make their results in any place, `sizes` the dims that are known
    before the program runs. `loud` are the positions of nodes that may fail. `inner` are stores
    that change a part, with the value whose storage the part is taken out of, and `taken` the
    values that have a destination in another one."""

    block: BlockReuse
    places: ChainMap[Value, list[View]]
    wants: ChainMap[View, CopyPurpose]
    direct: Collection[str]
    sizes: Collection[str]
    found: Destinations = field(default_factory=Destinations)
    loud: list[int] = field(default_factory=list)
    inner: dict[Node, Value] = field(default_factory=dict)
    taken: set[Value] = field(default_factory=set)

    def made_for_one(self, v: Value, at: int) -> bool:
        """Whether `v` is an op's own result, and only the op at `at` reads it."""
        b = self.block
        if v in self.places or b.of(v) is not v or b.users.get(v) != [at]:
            return False
        return b.last.get(v) == at and v in b.defined

    def makes_storage(self, node: Node) -> bool:
        if isinstance(node, Fused):
            return True
        if not isinstance(node, Op):
            return False
        direct = node.name in self.direct
        return node.row.kernel is not None or node.row.reduce is not None or direct


def destinations(
    block: BlockReuse,
    places: dict[Value, list[View]],
    wants: dict[View, CopyPurpose],
    direct: Collection[str],
    sizes: Collection[str],
) -> Destinations:
    """Return the destinations of values of a block, besides those at its end (`places`).

    The arguments are those of `_Search`.
    """
    p = _Search(block, ChainMap({}, places), ChainMap({}, wants), direct, sizes)
    p.loud += [at for at, node in enumerate(block.nodes) if not _quiet(p, node)]
    for at in range(len(block.nodes) - 1, -1, -1):
        node = block.nodes[at]
        if not isinstance(node, Op):
            continue
        if node.row.shows_all:
            _seen_through(p, node, at)
        elif node.row.joins:
            _join(p, node, at)
        elif node.row.through:
            _store(p, node, at)
    return p.found


def _collects(node: Node, v: Value) -> bool:
    """True if `v` is a stack or a last value of a loop with a known number of iterations."""
    if not isinstance(node, Scan) or node.count:
        return False
    return any(isinstance(q, (Stack, Last)) and q.outer is v for q in node.ports)


# ---------------------------------------------------------------- views at the end
def _seen_through(p: _Search, op: Op, at: int) -> None:
    """A view `v` of `u` is wanted somewhere: make `u` there, as the view shows it."""
    (u,), v = op.operands, op.result
    places, start = p.places.get(v, []), p.block.defined.get(u)
    if start is None or u in p.places or not places or not _stays(p.block, v, at):
        return
    if not p.makes_storage(p.block.nodes[start]) and not _collects(p.block.nodes[start], u):
        return
    place = _base_of(op, places[0])
    if place is not None:
        p.places[u], p.wants[place] = [place], p.wants[places[0]]
        p.found.views.append((u, place, p.wants[place]))


def _stays(b: BlockReuse, v: Value, at: int) -> bool:
    """True if nothing overwrites the elements of the view `v`, made at position `at`."""
    return v not in b.early or b.last.get(b.of(v), at) in (at, len(b.nodes))


def _base_of(op: Op, place: View) -> View | None:
    """The memory for the operand of `op` such that the view that `op` takes of it is `place`."""
    rule = view_rule(op.name)
    assert rule.inverse is not None
    base: View | None = rule.layout(place, **rule.inverse(op.operands[0].type, **op.attrs))
    same = base is not None and rule.layout(base, **op.attrs) == place
    return base if same else None


# ---------------------------------------------------------------- pieces
def _join(p: _Search, op: Op, at: int) -> None:
    out, times = op.result, Counter(op.operands)
    pieces = [v for v in op.operands if p.made_for_one(v, at) and v not in p.taken]
    made = {v: p.block.nodes[p.block.defined[v]] for v in pieces}
    pieces = [v for v, n in made.items() if p.makes_storage(n) or _collects(n, v)]
    if not pieces or not out.type.names <= set(p.sizes):
        return
    places = p.places.get(out, [])
    if out in p.block.updates or out in p.taken or any(not p.wants[q].idle for q in places[:1]):
        return
    p.found.joins[op] = [v for v in pieces if times[v] == 1]
    p.taken.update(p.found.joins[op], (out,))


# ---------------------------------------------------------------- stores
def _store(p: _Search, op: Op, at: int) -> None:
    x, y, *index = op.operands
    b = p.block
    owner = _owner(p, op)
    if owner is None or not p.made_for_one(y, at):
        return
    start, maker = first_made(b, y), b.nodes[b.defined[y]]
    between = b.used(owner, start, at)
    if not (p.makes_storage(maker) or isinstance(maker, Op) and maker.row.updates):
        return
    changed = _changed_part(b, op, maker)
    own = between == [b.defined[y]] == [start] and (changed or _may_read_its_place(maker))
    if y in p.taken or (between and not own):
        return
    ready = all(b.defined.get(v, -1) < start for v in (x, *index))
    quiet = bisect_left(p.loud, start) == bisect_left(p.loud, at)
    if not ready or not (changed or quiet):
        return
    p.found.stores[y] = StoreDestination(op, maker, owner)
    p.taken.add(y)
    if changed and all(b.of(v) is not owner for v in maker.operands[1:]):
        p.inner[maker] = owner


def _owner(p: _Search, op: Op) -> Value | None:
    """The value whose storage `op` updates in place, as a whole or within a part of it."""
    owner = p.block.of(op.operands[0])
    return owner if p.block.updates.get(owner) is op.result else p.inner.get(op)


def _changed_part(b: BlockReuse, op: Op, maker: Node) -> bool:
    """True if `op` stores the part of its operand that `maker` has read from it and changed: then
    its index has been checked already."""
    if not isinstance(maker, Op) or not maker.row.updates:
        return False
    at = b.defined.get(maker.operands[0], -1)
    if at < 0 or b.nodes[at].operands[:1] != op.operands[:1]:
        return False
    taken = b.nodes[at]
    return isinstance(taken, Op) and taken.row.views and place_of(taken) == place_of(op)


def _quiet(p: _Search, node: Node) -> bool:
    """Whether a node cannot fail, so that a check behind it may as well come before it."""
    if isinstance(node, Fused):
        return not any(map(_may_raise, node.body))
    if not isinstance(node, Op) or _may_raise(node):
        return False
    row = node.row
    return row.may_alias or bool(row.through) or row.is_constant or p.makes_storage(node)


def _may_raise(op: Op) -> bool:
    return op.row.may_raise([r.type for r in op.results])


def _may_read_its_place(node: Node) -> bool:
    """True if the result may be computed in the memory of an operand of the same size."""
    if isinstance(node, Op) and node.row.updates:
        whole = all(v is not node.operands[0] for v in node.operands[1:])
        return bool(node.row.through) and whole
    return elementwise(node)
