"""The traversal that passes share: a program is re-emitted node by node, never changed.

A pass hands `rewrite` a `visit(block, node)`. The node arrives with its operands already replaced;
`visit` returns the values that stand for its results, having emitted on `block` what computes
them, or None to keep the node. A loop's body is re-emitted before the loop itself is visited.
Values that nobody replaces keep their identity, so names and locations survive.

What a pass emits assumes no more about named sizes than what it replaces, so `requires` stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ir.core import (
    Builder,
    Carry,
    Const,
    Fused,
    Node,
    Op,
    Port,
    Program,
    Scan,
    Seq,
    Value,
)


class Block(Builder):
    """A block being emitted.

    env: old value -> the new one, for the values that were replaced.
    producer: value -> the node of this block that defines it.
    outer, scan: for the body of a loop, the block around it and the loop.
    """

    def __init__(self, outer: Block | None = None, scan: Scan | None = None) -> None:
        super().__init__()
        self.outer, self.scan = outer, scan
        self.env: dict[Value, Value] = {}
        self.producer: dict[Value, Node] = {}
        self.hint = ""

    @staticmethod
    def of_body(scan: Scan, outer: Block | None) -> Block:
        """The body of `scan` as a block, to ask who produces a value."""
        block = Block(outer, scan)
        for node in scan.body:
            block.append(node)
        return block

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: dict[str, Any] | None = None,
        hint: str = "",
    ) -> tuple[Value, ...]:
        results = super().emit(name, operands, attrs, hint or self.hint)
        self.producer.update(dict.fromkeys(results, self.ops[-1]))
        return results

    def append(self, node: Node) -> None:
        super().append(node)
        self.producer.update(dict.fromkeys(node.results, node))

    def new(self, v: Value) -> Value:
        return self.env.get(v, v)

    def at(self, node: Node) -> Block:
        """What is emitted from here on has the location and the name of `node`."""
        self.loc = node.loc
        self.hint = node.results[0].name if node.results else ""
        return self

    def op_of(self, v: Value, *names: str) -> Op | None:
        """The op of this block that produces `v`, if it is one of `names`."""
        node = self.producer.get(v)
        return node if isinstance(node, Op) and node.name in names else None

    def resolve(self, v: Value) -> tuple[Block, Value]:
        """Where `v` comes from when const ports are followed outwards."""
        block, at = self, v
        while block.outer is not None and block.scan is not None:
            port = next(
                (p for p in block.scan.ports if isinstance(p, Const) and p.inner is at), None
            )
            if port is None:
                break
            block, at = block.outer, port.outer
        return block, at


Visit: TypeAlias = Callable[[Block, Node], "Sequence[Value] | None"]


def rewrite(program: Program, visit: Visit) -> Program:
    """Re-emit `program`; see the module's docstring for `visit`."""
    block = Block()
    reemit(program.ops, block, visit)
    return with_ops(program, block)


def with_ops(program: Program, block: Block) -> Program:
    """`program` with the ops of `block`; outputs and writes follow its `env`."""
    return replace(
        program,
        ops=tuple(block.ops),
        outputs=tuple(map(block.new, program.outputs)),
        writes=tuple((target, block.new(v)) for target, v in program.writes),
    )


def reemit(ops: Iterable[Node], block: Block, visit: Visit) -> None:
    for old in ops:
        node = with_operands(old, block.new)
        if isinstance(node, Scan):
            body = Block(block, node)
            reemit(node.body, body, visit)
            node = with_body(node, body.ops, body.new)
        out = visit(block.at(node), node)
        if out is None:
            block.append(node)
        else:
            block.env.update(zip(node.results, out))


def with_operands(node: Node, new: Callable[[Value], Value]) -> Node:
    """`node` reading the new values; the same object when nothing changes."""
    if all(new(v) is v for v in node.operands):
        return node
    if isinstance(node, Op):
        return replace(node, operands=tuple(map(new, node.operands)))
    if isinstance(node, Fused):
        return replace(node, ins=tuple(Const(p.inner, new(p.outer)) for p in node.ins))
    return replace(node, ports=tuple(_outside(p, new) for p in node.ports))


def _outside(p: Port, new: Callable[[Value], Value]) -> Port:
    if isinstance(p, (Const, Seq)):
        return replace(p, outer=new(p.outer))
    return replace(p, init=new(p.init)) if isinstance(p, Carry) else p


def with_body(scan: Scan, body: Iterable[Node], new: Callable[[Value], Value]) -> Scan:
    """`scan` around another body; what leaves the body follows `new`."""
    ports = []
    for p in scan.ports:
        if isinstance(p, Carry):
            p = replace(p, next=new(p.next))
        elif not isinstance(p, (Const, Seq)):
            p = replace(p, inner=new(p.inner))
        ports.append(p)
    return replace(scan, ports=tuple(ports), body=tuple(body))


def substitute(ops: Iterable[Node], env: dict[Value, Value]) -> tuple[Node, ...]:
    """`ops` reading `env[v]` for `v`."""
    return tuple(with_operands(n, lambda v: env.get(v, v)) for n in ops)


# ---------------------------------------------------------------- uses
def uses(ops: Iterable[Node], needed: Iterable[Value] = ()) -> Counter[Value]:
    """How often each value is read by a block; bodies read only through their ports."""
    count = Counter(needed)
    for node in ops:
        count.update(node.operands)
    return count


def users(ops: Iterable[Node]) -> dict[Value, list[Node]]:
    """The nodes of a block that read each value, in order."""
    out: dict[Value, list[Node]] = {}
    for node in ops:
        for v in dict.fromkeys(node.operands):
            out.setdefault(v, []).append(node)
    return out


def free_values(ops: Iterable[Node]) -> tuple[Value, ...]:
    """What `ops` read without defining it, in order of first use."""
    defined: set[Value] = set()
    found: dict[Value, None] = {}
    for node in ops:
        found.update(dict.fromkeys(v for v in node.operands if v not in defined))
        defined.update(node.results)
    return tuple(found)


def has_effect(node: Node) -> bool:
    """Whether the node, or one inside of it, must stay where it is."""
    if isinstance(node, Scan):
        return any(map(has_effect, node.body))
    return isinstance(node, Op) and (node.row.effect or node.row.writes)


# ---------------------------------------------------------------- dead code
def drop_dead(program: Program) -> Program:
    """Without ops whose results nobody reads; effects stay, and so do all ports of a loop."""
    needed = {*program.outputs, *(v for _, v in program.writes)}
    return replace(program, ops=live_ops(program.ops, needed))


def live_ops(ops: Sequence[Node], needed: Iterable[Value]) -> tuple[Node, ...]:
    live, out = set(needed), []
    for node in reversed(ops):
        if not has_effect(node) and live.isdisjoint(node.results):
            continue
        if isinstance(node, Scan):
            node = replace(node, body=live_ops(node.body, node.needed))
        live.update(node.operands)
        out.append(node)
    return tuple(reversed(out))


def same(a: Program, b: Program) -> bool:
    """Whether two programs are the same text; locations and names count."""
    return a is b or str(a) == str(b)


__all__ = [
    "Block",
    "drop_dead",
    "free_values",
    "has_effect",
    "live_ops",
    "reemit",
    "rewrite",
    "same",
    "substitute",
    "users",
    "uses",
    "with_body",
    "with_operands",
    "with_ops",
]
