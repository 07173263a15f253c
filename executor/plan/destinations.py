"""Destination passing: memory is chosen for a value before the op that computes it is lowered.

A piece of a `concat` or `stack` is computed in its part of the joined tensor. The value that a
`set_*` op stores is computed in the part that it goes to, if the op updates its operand in place
and nothing reads the operand in between; so is a part of that part: `x[i, j] = y` stores `y` and
nothing else. The operand of a `transpose` or `reshape` at the end of a block is computed in the
layout of the result. Each is tried only where no value that is still read lies in that memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from executor.lower.lowerer import DIRECT, Lowerer, starts_block
from executor.lower.movement import part_of, parts_of_join, stores
from executor.memory import View
from executor.plan.reuse import Block, elementwise, first_made
from ir import Fused, Op, Scan, Value
from ir.program import Last, Node, Stack


@dataclass
class Destinations:
    """`users`: the positions at which a storage is used, by root. `inner`: stores that change a
    part of a tensor, with the value whose storage the part belongs to."""

    low: Lowerer
    block: Block
    users: dict[Value, list[int]] = field(default_factory=dict)
    inner: dict[Node, Value] = field(default_factory=dict)

    def made_for_one(self, v: Value, at: int) -> bool:
        """Whether `v` is an op's own result, and only the op at `at` reads it."""
        b = self.block
        if v in self.low.places or b.of(v) is not v or self.users.get(v) != [at]:
            return False
        return b.last.get(v) == at and v in b.defined


@starts_block
def assign_destinations(low: Lowerer, nodes: Sequence[Node]) -> None:
    block = low.uses[-1]
    p = Destinations(low, block)
    for at, node in enumerate(nodes):
        for v in {block.of(q) for q in node.operands}:
            p.users.setdefault(v, []).append(at)
    for at in range(len(nodes) - 1, -1, -1):
        node = nodes[at]
        if not isinstance(node, Op):
            continue
        if node.name in ("transpose", "reshape"):
            _seen_through(p, node, at)
        elif node.row.joins:
            _join(p, node, at)
        elif node.row.through:
            _store(p, node, at)


def _makes_storage(node: Node) -> bool:
    if isinstance(node, Fused):
        return True
    if not isinstance(node, Op):
        return False
    return node.row.kernel is not None or node.row.reduce is not None or node.name in DIRECT


def _collects(node: Node, v: Value) -> bool:
    """True if `v` is a stack or a last value of a loop with a known number of iterations."""
    if not isinstance(node, Scan) or node.count:
        return False
    return any(isinstance(q, (Stack, Last)) and q.outer is v for q in node.ports)


# ---------------------------------------------------------------- views at the end
def _seen_through(p: Destinations, op: Op, at: int) -> None:
    """If the view `v` of `u` has a destination, compute `u` there, in the layout of the view."""
    (u,), v, low = op.operands, op.result, p.low
    places, start = low.places.get(v, []), p.block.defined.get(u)
    if start is None or u in low.places or not places or not _stays(p.block, v, at):
        return
    if not _makes_storage(p.block.nodes[start]) and not _collects(p.block.nodes[start], u):
        return
    place = _base_of(op, places[0])
    if place is not None:
        low.want(u, place, low.wants[places[0]])


def _stays(b: Block, v: Value, at: int) -> bool:
    """True if nothing overwrites the elements of the view `v`, made at position `at`."""
    return v not in b.early or b.last.get(b.of(v), at) in (at, len(b.nodes))


def _base_of(op: Op, place: View) -> View | None:
    """The memory for the operand of `op` such that the view that `op` takes of it is `place`."""
    u = op.operands[0].type
    if op.name == "reshape":
        base = place.reshape(u.shape)
        same = base is not None and base.reshape(op.result.type.shape) == place
        return base if same else None
    perm = [q % u.ndim for q in op.attrs["perm"]]
    return place.transpose([perm.index(axis) for axis in range(u.ndim)])


# ---------------------------------------------------------------- pieces
def _join(p: Destinations, op: Op, at: int) -> None:
    out, low = op.result, p.low
    pieces = [v for v in op.operands if p.made_for_one(v, at) and v not in low.ahead]
    pieces = [v for v in pieces if _makes_storage(p.block.nodes[p.block.defined[v]])]
    if not pieces or not out.type.names <= set(low.program.sizes):
        return
    places = low.places.get(out, [])
    if out in p.block.updates or out in low.ahead or any(not low.wants[q].idle for q in places[:1]):
        return
    storage = places[0] if places else low.temporary(out.type)
    low.ahead[out] = partial(_same, storage)
    for v, part in zip(op.operands, parts_of_join(op, storage)):
        if v in pieces and op.operands.count(v) == 1:
            low.ahead[v] = partial(_same, part)


def _same(view: View) -> View:
    return view


# ---------------------------------------------------------------- stores
def _store(p: Destinations, op: Op, at: int) -> None:
    x, y, *index = op.operands
    b, low = p.block, p.low
    owner = _owner(p, op)
    if owner is None or not p.made_for_one(y, at):
        return
    start, maker = first_made(b, y), b.nodes[b.defined[y]]
    between = [q for q in p.users[owner] if start <= q < at]
    if not (_makes_storage(maker) or isinstance(maker, Op) and maker.row.updates):
        return
    changed = _changed_part(b, op, maker)
    own = between == [b.defined[y]] == [start] and (changed or _may_read_its_place(maker))
    if y in low.ahead or (between and not own):
        return
    ready = all(b.defined.get(v, -1) < start for v in (x, *index))
    if not ready or not (changed or all(map(_quiet, b.nodes[start:at]))):
        return
    low.ahead[y] = partial(_part, low, op, maker, owner)
    if changed and all(b.of(v) is not owner for v in maker.operands[1:]):
        p.inner[maker] = owner


def _owner(p: Destinations, op: Op) -> Value | None:
    """The value whose storage `op` updates in place, as a whole or within a part of it."""
    owner = p.block.of(op.operands[0])
    return owner if p.block.updates.get(owner) is op.result else p.inner.get(op)


def _changed_part(b: Block, op: Op, maker: Node) -> bool:
    """True if `op` stores the part of its operand that `maker` has read from it and changed: then
    its index has been checked already."""
    if not isinstance(maker, Op) or not maker.row.updates:
        return False
    at = b.defined.get(maker.operands[0], -1)
    if at < 0 or b.nodes[at].operands[:1] != op.operands[:1]:
        return False
    taken = b.nodes[at]
    return isinstance(taken, Op) and stores(taken, op)


def _quiet(node: Node) -> bool:
    """True if a node cannot fail, so that a later check may run before it."""
    if isinstance(node, Fused):
        return not any(map(_may_raise, node.body))
    if not isinstance(node, Op) or _may_raise(node):
        return False
    row = node.row
    return row.may_alias or bool(row.through) or node.name == "full" or _makes_storage(node)


def _may_raise(op: Op) -> bool:
    return op.row.may_raise([r.type for r in op.results])


def _may_read_its_place(node: Node) -> bool:
    """True if the result may be computed in the memory of an operand of the same size."""
    if isinstance(node, Op) and node.row.updates:
        whole = all(v is not node.operands[0] for v in node.operands[1:])
        return bool(node.row.through) and whole
    return elementwise(node)


def _part(low: Lowerer, op: Op, maker: Node, owner: Value) -> View | None:
    """The part that `op` stores into; None if `maker`, which computes the new part, also reads
    other parts."""
    x, block = op.operands[0], low.uses[-1]
    if owner not in low.owned or x not in low.env:
        return None
    if low.env[x].buffer is not low.env[owner].buffer:
        return None
    if any(v not in low.env and v not in low.known for v in op.operands[2:]):
        return None
    part = part_of(low, op)
    place = part(low.env[x])
    if any(low.env[v] != place for v in maker.operands if block.of(v) is owner):
        return None
    low.parts[op] = part
    return place
