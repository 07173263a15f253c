"""Work leaves loops: what is the same in every iteration, and what can be done for all at once.

`hoist_invariants`: ops that read only const ports. `hoist_from_scan`: ops that read only slices of
tensors known before the loop, and ops whose results are only collected after it. The prize is a
matmul: T small ones become one large one. Elementwise work stays in the loop, where it is fused
and its data is in cache, unless a matmul or an embedding that leaves needs it, or it replaces its
operand by something as large (a bias added to a matmul that left).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ir.alias import at_least_once
from ir.core import Carry, Const, Fused, Last, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.passes.affine import facts_of, in_range
from ir.passes.batch import Batched, batch
from ir.passes.loops import is_reversed, is_whole, put
from ir.passes.rules import may_raise
from ir.rewrite import Block, has_effect, live_ops, rewrite, users, uses, with_operands
from ir.types import Dim, Type

ANCHORS = ("matmul", "embedding")


# ---------------------------------------------------------------- invariants
def hoist_invariants(program: Program) -> Program:
    """Ops on const ports are computed once, before the loop.

        body                                         %y = tanh(%w)
          %y = tanh(%w1)   of const %w1 = %w   =>    const %y1 = %y

    An op that checks its data stays where the loop may run no iteration.
    """
    facts = facts_of(program)

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        return _invariants(b, node, program, facts) if isinstance(node, Scan) else None

    return rewrite(program, visit)


def _invariants(
    b: Block, s: Scan, program: Program, facts: tuple[Dim, ...]
) -> Sequence[Value] | None:
    runs = at_least_once(s.trip, program)
    outside = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    body, made = [], []
    for node in s.body:
        if has_effect(node) or not all(v in outside for v in node.operands):
            body.append(node)
            continue
        moved = with_operands(node, lambda v: outside[v])
        if not (runs or _safe(b, moved, facts)):
            body.append(node)
            continue
        fresh = _renewed(moved)
        b.append(fresh)
        outside.update(zip(node.results, fresh.results))
        made += [Const(r, v) for r, v in zip(node.results, fresh.results)]
    if not made:
        return None
    read = uses(body, s.needed)
    kept = [p for p in s.ports if not isinstance(p, Const) or p.inner in read]
    ports: list[Port] = [*kept, *(p for p in made if p.inner in read)]
    put(b, replace(s, ports=tuple(ports), body=tuple(body)))
    return s.results


def _safe(b: Block, node: Node, facts: tuple[Dim, ...]) -> bool:
    """Whether the node can run although the loop around it may not."""
    if isinstance(node, Scan):
        inner = Block.of_body(node, b)
        return all(_safe(inner, n, facts) for n in node.body) and not any(
            isinstance(p, Last) for p in node.ports
        )
    if isinstance(node, Fused):
        return not any(map(may_raise, node.body))
    return not may_raise(node) or node.name == "select" and in_range(b, node, facts)


def _renewed(node: Node) -> Node:
    """The node with results of its own."""
    if isinstance(node, Op):
        return replace(node, results=tuple(Value(r.type, r.name) for r in node.results))
    new = {r: Value(r.type, r.name) for r in node.results}
    if not isinstance(node, Scan):
        return replace(node, outs=tuple((new[o], i) for o, i in node.outs))
    ports: list[Port] = []
    for p in node.ports:
        if isinstance(p, Carry) and p.last is not None:
            p = replace(p, last=new[p.last])
        elif isinstance(p, (Stack, Last)):
            p = replace(p, outer=new[p.outer])
        ports.append(p)
    return replace(node, ports=tuple(ports))


# ---------------------------------------------------------------- batches
def hoist_from_scan(program: Program) -> Program:
    """Matmuls and embeddings of sequences run once, before the loop, on all iterations.

        seq %xt = %x[:, %t]                          %a = matmul(%x, %w)
        body                                   =>    seq %at = %a[:, %t]
          %at = matmul(%xt, %w1)

    And, mirrored, matmuls whose results are only collected run once after it.
    """

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if not isinstance(node, Scan):
            return None
        before = _before(b, node)
        after = _after(b, before or node)
        if after is None and before is not None:
            put(b, before)
            return before.results
        return after

    return rewrite(program, visit)


@dataclass(eq=False)
class _Plan:
    """Which ops of a body leave it, with what they are outside."""

    b: Block
    scan: Scan
    outside: dict[Value, Batched] = field(default_factory=dict)

    def tried(self, b: Block, op: Op) -> Batched | None:
        if not all(v in self.outside for v in op.operands):
            return None
        return batch(b, op, [self.outside[v] for v in op.operands], self.scan.trip)


def _before(b: Block, s: Scan) -> Scan | None:
    chosen = _worth_hoisting(s)
    if not chosen:
        return None
    plan = _Plan(b, s, _known_outside(b, s))
    seqs: list[Port] = []
    for op in chosen:
        out = plan.tried(b.at(op), op)
        assert out is not None and out.axis is not None
        plan.outside[op.result] = out
        seqs.append(Seq(op.result, out.value, out.axis, out.start, out.step))
    gone = set(chosen)
    body = live_ops([n for n in s.body if n not in gone], s.needed)
    return _read_only(replace(s, ports=(*s.ports, *seqs), body=body))


def _known_outside(b: Block, s: Scan) -> dict[Value, Batched]:
    """What const and seq ports bring in, for all iterations."""
    out: dict[Value, Batched] = {}
    for p in s.ports:
        if isinstance(p, Const):
            out[p.inner] = Batched(p.outer)
        elif isinstance(p, Seq):
            out[p.inner] = Batched(p.outer, p.axis, p.start, p.step)
            if not is_whole(s, p) and not is_reversed(s, p):
                cut = {"axis": p.axis, "start": p.start, "length": s.trip, "step": p.step}
                out[p.inner] = Batched(b.slice(p.outer, hint=p.inner.name, **cut), p.axis)
    return out


def _worth_hoisting(s: Scan) -> list[Op]:
    """Ops to hoist, in order: anchors, what they need, and what rides along."""
    trial = Block()
    plan = _Plan(trial, s, _known_outside(trial, s))
    able: dict[Value, Op] = {}
    for node in s.body:
        if isinstance(node, Op) and not has_effect(node):
            out = plan.tried(trial, node)
            if out is not None:
                plan.outside[node.result] = out
                able[node.result] = node
    wanted: set[Op] = set()
    for op in reversed(able.values()):
        if op.name in ANCHORS or op in wanted:
            wanted.add(op)
            wanted.update(able[v] for v in op.operands if v in able)
    count = uses(s.body, s.needed)
    for op in able.values():
        if op not in wanted and _rides_along(op, able, wanted, count):
            wanted.add(op)
    return [op for op in able.values() if op in wanted]


def _rides_along(op: Op, able: dict[Value, Op], wanted: set[Op], count: dict[Value, int]) -> bool:
    """An elementwise op that takes the place of one that leaves, as large and read once."""
    if op.row.kernel is None:
        return False
    left = [v for v in op.operands if v in able]
    if not all(able[v] in wanted for v in left):
        return False
    return any(count[v] == 1 and v.type == op.result.type for v in left)


# ---------------------------------------------------------------- sinking
def _after(b: Block, s: Scan) -> Sequence[Value] | None:
    """Stacked results of matmuls: their operands are stacked instead, the matmul runs after."""
    sunk = _worth_sinking(s)
    if not sunk:
        return None
    inside = {op.result for op in sunk}
    stacks: dict[tuple[Value, int], Stack] = {}
    for op, axis in sunk.items():
        for v in op.operands:
            if v not in inside and not _is_const(s, v):
                stacks.setdefault((v, axis), _stack_of(s, v, axis))
    kept = [p for p in s.ports if not (isinstance(p, Stack) and p.inner in inside)]
    ports = (*kept, *(p for p in stacks.values() if p not in kept))
    body = tuple(n for n in s.body if n not in sunk)
    put(b, _read_only(replace(s, ports=ports, body=body)))
    outside = {(v, axis): Batched(p.outer, axis) for (v, axis), p in stacks.items()}
    consts = {p.inner: Batched(p.outer) for p in s.ports if isinstance(p, Const)}
    for op, axis in sunk.items():
        operands = [consts[v] if v in consts else outside[v, axis] for v in op.operands]
        out = batch(b.at(op), op, operands, s.trip)
        assert out is not None
        outside[op.result, axis] = out
    gone = {p.outer: (p.inner, p.axis) for p in s.ports if isinstance(p, Stack)}
    return [outside[gone[r]].value if r not in _outers(kept) else r for r in s.results]


def _outers(ports: Sequence[Port]) -> set[Value]:
    return {v for p in ports for v in (p.last if isinstance(p, Carry) else p.outer,) if v}


def _is_const(s: Scan, v: Value) -> bool:
    return any(isinstance(p, Const) and p.inner is v for p in s.ports)


def _read_only(s: Scan) -> Scan:
    """`s` without the const and seq ports that its body does not read."""
    read = uses(s.body, s.needed)
    kept = [p for p in s.ports if not isinstance(p, (Const, Seq)) or p.inner in read]
    return replace(s, ports=tuple(kept))


def _stack_of(s: Scan, v: Value, axis: int) -> Stack:
    for p in s.ports:
        if isinstance(p, Stack) and p.inner is v and p.axis == axis:
            return p
    shape = (*v.type.shape[:axis], s.trip, *v.type.shape[axis:])
    return Stack(Value(Type(v.type.dtype, shape), v.name), v, axis)


def _worth_sinking(s: Scan) -> dict[Op, int]:
    """Ops that only feed stack ports and contain a matmul, with the axis that their operands
    are stacked along; in order."""
    axes = _only_stacked(s)
    read = users(s.body)
    other = set(s.needed) - set(axes) | {p.next for p in s.carries}
    consts = {p.inner for p in s.ports if isinstance(p, Const)}
    sunk: dict[Op, int] = {}
    for node in reversed(s.body):
        if not isinstance(node, Op) or has_effect(node) or may_raise(node):
            continue
        if len(node.results) != 1 or node.result in other:
            continue
        using = read.get(node.result, [])
        wanted = {sunk.get(u, -1) for u in using if isinstance(u, Op)}
        wanted |= {axes[node.result]} if node.result in axes else set()
        if len(wanted) != 1 or not all(u in sunk for u in using):
            continue
        axis = wanted.pop()
        if _sinks(node, consts, axis, s.trip):
            sunk[node] = axis
    return _with_matmul(dict(reversed(sunk.items())))


def _only_stacked(s: Scan) -> dict[Value, int]:
    """Values that leave through one axis of stack ports, and that axis."""
    axes: dict[Value, set[int]] = {}
    for p in s.ports:
        if isinstance(p, Stack):
            axes.setdefault(p.inner, set()).add(p.axis)
        elif isinstance(p, Last):
            axes.setdefault(p.inner, set()).add(-1)
    return {v: min(a) for v, a in axes.items() if len(a) == 1 and min(a) >= 0}


def _sinks(op: Op, consts: set[Value], axis: int, trip: Dim) -> bool:
    """Whether the op, on operands stacked along `axis`, gives its results along `axis`."""
    if op.row.kernel is None and op.name != "matmul":
        return False
    operands = []
    for v in op.operands:
        if v in consts:
            operands.append(Batched(v))
        elif axis <= v.type.ndim:
            shape = (*v.type.shape[:axis], trip, *v.type.shape[axis:])
            operands.append(Batched(Value(v.type.with_shape(shape)), axis))
        else:
            return False
    out = batch(Block(), op, operands, trip)
    return out is not None and out.axis == axis


def _with_matmul(sunk: dict[Op, int]) -> dict[Op, int]:
    """Only what a sunk matmul leads to: elementwise work without one stays in the loop."""
    led: set[Value] = set()
    out: dict[Op, int] = {}
    for op, axis in sunk.items():
        if op.name == "matmul" or any(v in led for v in op.operands):
            led.add(op.result)
            out[op] = axis
    return out


__all__ = ["hoist_from_scan", "hoist_invariants"]
