"""The traversal that passes share: a program is re-emitted node by node, never changed.

A pass hands `rewrite` a `visit(block, node)`. The node arrives with its operands already replaced;
`visit` emits the replacement on `block` and returns the values that stand for the results, or None
to keep the node. The body of a loop or branch is re-emitted before the node itself is visited.
Values that nobody replaces keep their identity, so names and locations survive.

Passes see the bodies of loops and branches as `blocks(node)`, and rebuild a node around other
blocks by `with_blocks`; only code about ports or joins distinguishes the two.

A replacement assumes no more about named sizes than the original, so `requires` stay.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ir.program import (
    Builder,
    Carry,
    Cond,
    Const,
    Custom,
    Fused,
    Join,
    Last,
    LoopCondition,
    Node,
    Op,
    Port,
    Program,
    Scan,
    Seq,
    Slot,
    Stack,
    Value,
)
from ir.uses import blocks, consts, dim_names, gives, has_effect, needs, walk

Region: TypeAlias = Scan | Cond | Custom
REGIONS = (Scan, Cond, Custom)


class Block(Builder):
    """A block being emitted.

    env: old value -> the new one, for the values that were replaced.
    producer: value -> the node of this block that defines it.
    outer, node: the block around it and the node that it is inside of: a loop, a branch, a custom.
    """

    def __init__(self, outer: Block | None = None, node: Region | None = None) -> None:
        super().__init__()
        self.outer, self.node = outer, node
        self.env: dict[Value, Value] = {}
        self.producer: dict[Value, Node] = {}
        self.hint = ""

    @staticmethod
    def inside(node: Region, outer: Block | None) -> tuple[Block, ...]:
        """The blocks inside of a node as they are, to ask who produces a value."""
        out = []
        for ops, _ in blocks(node):
            block = Block(outer, node)
            for n in ops:
                block.append(n)
            out.append(block)
        return tuple(out)

    @property
    def scan(self) -> Scan | None:
        """The loop of whose body this is the block."""
        return self.node if isinstance(self.node, Scan) else None

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: dict[str, Any] | None = None,
        hint: str = "",
    ) -> tuple[Value, ...]:
        results = super().emit(name, operands, attrs, hint or self.hint)
        for v in results:
            self.producer[v] = self.ops[-1]
        return results

    def append(self, node: Node) -> None:
        self.ops.append(node)
        for v in node.results:
            self.producer[v] = node

    def new(self, v: Value) -> Value:
        return self.env.get(v, v)

    def at(self, node: Node) -> Block:
        """Give the location and the name of `node` to the ops emitted from here on."""
        self.loc = node.loc
        self.hint = node.results[0].name if node.results else ""
        return self

    def op_of(self, v: Value, *names: str) -> Op | None:
        """The op of this block that produces `v`, if it is one of `names`."""
        node = self.producer.get(v)
        return node if isinstance(node, Op) and node.name in names else None

    def indices(self) -> set[str]:
        """The sizes that are indices of the loops around."""
        outer = self.outer.indices() if self.outer is not None else set()
        return outer | {self.scan.size} if self.scan is not None and self.scan.size else outer

    def in_its_branch(self, op: Op) -> bool:
        """Whether an op of a branch in this block may hold there only: `x[:t]` under `t < 3`."""
        return not self.indices().isdisjoint(dim_names(tuple(op.attrs.values())))

    def resolve(self, v: Value) -> tuple[Block, Value]:
        """Follow const ports outwards from `v`; return the block and the value."""
        block, at = self, v
        while block.outer is not None and block.node is not None:
            port = next((p for p in consts(block.node) if p.inner is at), None)
            if port is None:
                break
            block, at = block.outer, port.outer
        return block, at

    def constant(self, v: Value) -> Any:
        """The number that fills `v`, here or outside, or None."""
        block, at = self.resolve(v)
        op = block.op_of(at, "full")
        return op.attrs["value"] if op is not None else None


New: TypeAlias = Callable[[Value], Value]
Visit: TypeAlias = Callable[[Block, Node], "Sequence[Value] | None"]


def rewrite(program: Program, visit: Visit) -> Program:
    """Re-emit `program`; see the module's docstring for `visit`."""
    block = Block()
    reemit(program.ops, block, visit)
    return with_ops(program, block)


MOST_ROUNDS = 20


def rewrite_all(program: Program, visit: Visit) -> Program:
    """Apply `rewrite` until `visit` keeps every node."""
    changed = True

    def noted(b: Block, node: Node) -> Sequence[Value] | None:
        nonlocal changed
        out = visit(b, node)
        changed |= out is not None
        return out

    for _ in range(MOST_ROUNDS):
        changed = False
        program = rewrite(program, noted)
        if not changed:
            break
    return program


def with_ops(program: Program, block: Block) -> Program:
    """`program` with the ops of `block`; outputs and writes follow its `env`. The same object when
    nothing changes."""
    if not block.env and is_same(program.ops, block.ops):
        return program
    return replace(
        program,
        ops=tuple(block.ops),
        outputs=tuple(v if isinstance(v, Slot) else block.new(v) for v in program.outputs),
        writes=tuple((target, block.new(v)) for target, v in program.writes),
    )


def is_same(old: Sequence[object], new: Sequence[object]) -> bool:
    """Whether two sequences have the same objects."""
    return len(old) == len(new) and all(map(operator.is_, old, new))


def reemit(ops: Iterable[Node], block: Block, visit: Visit) -> None:
    for old in ops:
        node = with_operands(old, block.new) if block.env else old
        if not isinstance(node, Op) and isinstance(node, REGIONS):
            inside = []
            for inner, _ in blocks(node):
                body = Block(block, node)
                reemit(inner, body, visit)
                inside.append((body.ops, body.new))
            node = with_blocks(node, inside)
        out = visit(block.at(node), node)
        if out is None:
            block.append(node)
        else:
            block.env.update(zip(node.results, out))


def with_operands(node: Node, new: New) -> Node:
    """`node` reading the new values; the same object when nothing changes."""
    if all(new(v) is v for v in node.operands):
        return node
    if isinstance(node, Op):
        return replace(node, operands=tuple(map(new, node.operands)))
    if isinstance(node, Scan):
        return replace(node, ports=tuple(_outside(p, new) for p in node.ports))
    ins = tuple(Const(p.inner, new(p.outer)) for p in node.ins)
    if isinstance(node, Cond):
        return replace(node, test=new(node.test), ins=ins)
    return replace(node, ins=ins)


def _outside(p: Port, new: New) -> Port:
    if isinstance(p, (Const, Seq)):
        return p if new(p.outer) is p.outer else replace(p, outer=new(p.outer))
    if isinstance(p, (Carry, LoopCondition)):
        return p if new(p.init) is p.init else replace(p, init=new(p.init))
    return p


def renewed(node: Node) -> Node:
    """The node with results of its own, so that it can stand beside the old one."""
    new = {r: Value(r.type, r.name) for r in node.results}
    if isinstance(node, Op):
        return replace(node, results=tuple(new.values()))
    if isinstance(node, (Fused, Custom)):
        return replace(node, outs=tuple((new[o], i) for o, i in node.outs))
    if isinstance(node, Cond):
        return replace(node, outs=tuple(replace(j, outer=new[j.outer]) for j in node.outs))
    ports: list[Port] = []
    for p in node.ports:
        if isinstance(p, Carry) and p.last is not None:
            p = replace(p, last=new[p.last])
        elif isinstance(p, (Stack, Last)):
            p = replace(p, outer=new[p.outer])
        ports.append(p)
    return replace(node, ports=tuple(ports))


# ---------------------------------------------------------------- blocks inside of nodes


def with_blocks(node: Node, inside: Sequence[tuple[Sequence[Node], New]]) -> Node:
    """`node` around other blocks, in the order of `blocks`; what leaves one follows its `new`. The
    same object when nothing changes."""
    if isinstance(node, Scan):
        ((body, new),) = inside
        return with_body(node, body, new)
    if isinstance(node, Custom):
        return _with_halves(node, *inside)
    if not isinstance(node, Cond):
        return node
    (then, new_then), (orelse, new_orelse) = inside
    if is_same(node.then, then) and is_same(node.orelse, orelse):
        if all(new_then(j.then) is j.then and new_orelse(j.orelse) is j.orelse for j in node.outs):
            return node
    outs = tuple(Join(j.outer, new_then(j.then), new_orelse(j.orelse)) for j in node.outs)
    return replace(node, then=tuple(then), orelse=tuple(orelse), outs=outs)


def _with_halves(
    c: Custom, forward: tuple[Sequence[Node], New], backward: tuple[Sequence[Node], New]
) -> Custom:
    (ops, new), (back, new_back) = forward, backward
    return replace(
        c,
        forward=tuple(ops),
        outs=tuple((outer, new(inner)) for outer, inner in c.outs),
        saved=tuple(Const(p.inner, new(p.outer)) for p in c.saved),
        backward=tuple(back),
        grads=tuple(g if g is None else new_back(g) for g in c.grads),
    )


def inlined(b: Builder, c: Custom) -> Sequence[Value]:
    """Emit the forward block of `c` on `b`; returns what stands for its results."""
    env = {p.inner: p.outer for p in c.ins}
    for node in substitute(c.forward, env):
        b.append(node)
    return [env.get(inner, inner) for _, inner in c.outs]


def map_blocks(
    node: Node, change: Callable[[Sequence[Node], tuple[Value, ...]], Sequence[Node]]
) -> Node:
    """`node` with `change(ops, values that leave)` in place of the ops of each block inside."""
    if isinstance(node, Op):
        return node
    return with_blocks(node, [(change(*block), _as_is) for block in blocks(node)])


def _as_is(v: Value) -> Value:
    return v


def with_body(scan: Scan, body: Sequence[Node], new: New) -> Scan:
    """`scan` around another body; what leaves the body follows `new`. The same object when nothing
    changes."""
    if is_same(scan.body, body) and all(new(v) is v for v in scan.needed):
        return scan
    ports: list[Port] = []
    for p in scan.ports:
        if isinstance(p, (Carry, LoopCondition)):
            p = p if new(p.next) is p.next else replace(p, next=new(p.next))
        elif isinstance(p, (Stack, Last)):
            p = p if new(p.inner) is p.inner else replace(p, inner=new(p.inner))
        ports.append(p)
    return replace(scan, ports=tuple(ports), body=tuple(body))


ORDER = (LoopCondition, Const, Seq, Carry, Stack, Last)


def in_order(ports: Iterable[Port]) -> tuple[Port, ...]:
    """Ports in the order of the text: go, const, seq, carry, stack, last."""
    return tuple(sorted(ports, key=lambda p: ORDER.index(type(p))))


def substitute(ops: Iterable[Node], env: dict[Value, Value]) -> tuple[Node, ...]:
    """`ops` reading `env[v]` for `v`."""
    return tuple(with_operands(n, lambda v: env.get(v, v)) for n in ops)


# ---------------------------------------------------------------- composites
def expand_composites(program: Program) -> Program:
    """Without composite rows and custom blocks; the same object if there is none."""
    if not any(map(_is_composite, walk(program.ops))):
        return program
    return rewrite(program, _expanded)


def _is_composite(node: Node) -> bool:
    if isinstance(node, Op):
        return node.row.expand is not None
    return isinstance(node, Custom)


def _expanded(b: Block, node: Node) -> Sequence[Value] | None:
    if isinstance(node, Custom):
        return inlined(b, node)
    return expand_op(b, node) if isinstance(node, Op) else None


def expand_op(b: Block, node: Op) -> Sequence[Value] | None:
    """Emit what `node` consists of and return what stands for its results; None if primitive."""
    if node.row.expand is None:
        return None
    inner = Block()
    inner.loc, inner.hint = node.loc, b.hint
    out = node.row.expand(inner, *node.operands, **node.attrs)
    results: tuple[Value, ...] = out if isinstance(out, tuple) else (out,)
    env: dict[Value, Value] = {}
    for part in inner.ops:
        assert isinstance(part, Op)
        operands = tuple(env.get(v, v) for v in part.operands)
        smaller = Op(part.name, operands, part.results, part.attrs, part.loc)
        values = expand_op(b, smaller)
        if values is None:
            b.append(smaller)
        else:
            env.update(zip(part.results, values))
    return tuple(env.get(v, v) for v in results)


# ---------------------------------------------------------------- dead code
def drop_dead(program: Program) -> Program:
    """Without ops whose results nobody reads; effects stay, and so do all ports of a loop."""
    ops = live_ops(program.ops, program.needed)
    return program if is_same(program.ops, ops) else replace(program, ops=ops)


def live_ops(ops: Sequence[Node], needed: Iterable[Value]) -> tuple[Node, ...]:
    """The ops that `needed` and the effects need, in order, also in the blocks inside."""
    live: set[Value | str] = set(needed)
    named = {n.count for n in ops if isinstance(n, Scan) and n.count}
    out: list[Node] = []
    for node in reversed(ops):
        if not has_effect(node) and live.isdisjoint(gives(node)):
            continue
        node = map_blocks(node, live_ops)
        live |= needs(node, named)
        out.append(node)
    return tuple(reversed(out))


def same(a: Program, b: Program) -> bool:
    """Whether two programs are the same text; locations and names count."""
    return a is b or str(a) == str(b)


__all__ = [
    "REGIONS",
    "Block",
    "New",
    "Region",
    "drop_dead",
    "expand_composites",
    "expand_op",
    "in_order",
    "inlined",
    "live_ops",
    "map_blocks",
    "reemit",
    "renewed",
    "rewrite",
    "rewrite_all",
    "same",
    "substitute",
    "with_blocks",
    "with_body",
    "with_operands",
    "with_ops",
]
