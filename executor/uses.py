"""Which values of a block share storage, where each storage is used last, and what may be updated
in place.

A block is the op list of a program or of a loop body; it reads only its own values, so every
analysis here is of one block. Position `len(block)` is its end: ports and outputs use values there.

A value may be updated in place when the op that makes its successor is its last use: `set_*` ops,
nested loops that carry it and, for carries, elementwise ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ir import OPS, Fused, Op, Scan, Value
from ir.core import Carry, Node

VIEWS = {"slice", "pick", "select", "reshape", "transpose", "expand", "split"}
SETTERS = {"set_slice", "set_pick", "set_select"}


@dataclass
class Block:
    """`root` maps a value to the value whose storage it shares; `last` is by root.

    `updates` maps a value to the one that takes over its storage.
    """

    nodes: Sequence[Node]
    root: dict[Value, Value] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)
    updates: dict[Value, Value] = field(default_factory=dict)

    def of(self, v: Value) -> Value:
        return self.root.get(v, v)


def analyse(
    nodes: Sequence[Node], carries: Sequence[Carry] = (), needed: Iterable[Value] = ()
) -> Block:
    """`needed` are used at the end of the block."""
    b = Block(nodes)
    for at, node in enumerate(nodes):
        for v in node.operands:
            b.last[b.of(v)] = at
        if isinstance(node, Op) and node.name in VIEWS:
            b.root.update((r, b.of(node.operands[0])) for r in node.results)
    for v in needed:
        b.last[b.of(v)] = len(nodes)
    following = {p.inner: p.next for p in carries}
    for v in [*following, *(r for n in nodes for r in n.results)]:
        after = _successor(b, v, following.get(v)) if b.of(v) is v else None
        if after is not None:
            b.updates[v] = after
    return b


def added(b: Block, at: int) -> tuple[Op, Value] | None:
    """The `add` that is the only use of the product at position `at`, and its other operand.

    That operand is not used between the two, so the sum can be formed where the product is.
    """
    v = b.nodes[at].results[0]
    end = b.last.get(v, -1)
    if not at < end < len(b.nodes) or any(
        b.of(q) is v for n in b.nodes[at:end] for q in n.operands
    ):
        return None
    node = b.nodes[end]
    if not isinstance(node, Op) or node.name != "add" or node.result.type != v.type:
        return None
    x, y = node.operands
    other = y if x is v else x
    between = [q for n in b.nodes[at + 1 : end] for q in n.operands]
    if other is v or b.of(other) is v or any(b.of(q) is b.of(other) for q in between):
        return None
    return node, other


def carried(carries: Iterable[Carry], b: Block) -> dict[Carry, bool]:
    """For every carry whether its storage is updated in place through the whole block."""
    out = {}
    for p in carries:
        v = p.inner
        while v is not p.next and v in b.updates:
            v = b.updates[v]
        out[p] = v is p.next and v is not p.inner
    return out


def body(scan: Scan) -> Block:
    return analyse(scan.body, scan.carries, scan.needed)


def _successor(b: Block, v: Value, following: Value | None) -> Value | None:
    """`following` is the next value of the carry `v`, which an elementwise op may put there."""
    at = b.last.get(v, -1)
    if not 0 <= at < len(b.nodes):
        return None
    node = b.nodes[at]
    sharing = [q for q in node.operands if b.of(q) is v]
    if isinstance(node, Scan):
        return _through_loop(node, v, sharing)
    if isinstance(node, Op) and node.name in SETTERS:
        return node.result if node.operands[0] is v else None
    kernel = isinstance(node, Fused) or OPS[node.name].kernel is not None
    if not kernel or any(q is not v for q in sharing):
        return None
    return following if following in node.results else None


def _through_loop(scan: Scan, v: Value, sharing: Sequence[Value]) -> Value | None:
    ports = [p for p in scan.carries if p.init is v and p.last is not None]
    if len(sharing) != 1 or not ports:
        return None
    return ports[0].last if carried(ports, body(scan))[ports[0]] else None
