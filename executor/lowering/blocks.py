"""Lowering of blocks: destinations of values are chosen, then nodes are lowered to launches."""

from __future__ import annotations

from functools import partial

from executor.lowering.lowerer import DIRECT, Lowerer
from executor.lowering.movement import part_of, parts_of_join
from executor.memory import View
from executor.plan.destinations import Destinations, StoreDestination, destinations
from ir import Op


def lower_block(low: Lowerer) -> None:
    """Lower the innermost block of `low.uses`, when the places of what leaves it are known."""
    block = low.uses[-1]
    prepare(low, destinations(block, low.places, low.wants, DIRECT, low.program.sizes))
    low.block(block.nodes)


def prepare(low: Lowerer, found: Destinations) -> None:
    for v, place, want in found.views:
        low.want(v, place, want)
    for op in found.joins:
        _join(low, op, found)
    for v, store in found.stores.items():
        low.ahead[v] = partial(_part, low, store)


def _join(low: Lowerer, op: Op, found: Destinations) -> None:
    """Pieces are made in the place of the result, or in storage that it gets for that."""
    places = low.places.get(op.result, [])
    storage = places[0] if places else low.temporary(op.result.type)
    low.ahead[op.result] = partial(_same, storage)
    for v, part in zip(op.operands, parts_of_join(op, storage)):
        if v in found.joins[op]:
            low.ahead[v] = partial(_same, part)


def _same(view: View) -> View:
    return view


def _part(low: Lowerer, store: StoreDestination) -> View | None:
    """The part that is stored into, unless the op that makes it reads others of it."""
    op, owner = store.op, store.owner
    x, block = op.operands[0], low.uses[-1]
    if owner not in low.owned or x not in low.env:
        return None
    if low.env[x].buffer is not low.env[owner].buffer:
        return None
    if any(v not in low.env and v not in low.known for v in op.operands[2:]):
        return None
    part = part_of(low, op)
    place = part(low.env[x])
    if any(low.env[v] != place for v in store.maker.operands if block.of(v) is owner):
        return None
    low.parts[op] = part
    return place
