"""Loop batching: ops on sequences are hoisted and computed for all iterations at once.

Ops that read only slices of tensors known before the loop run before it, ops whose results are
only collected run after it. The prize is a matmul: T small ones become one large one. Elementwise
work stays in the loop, where it is fused and its data is in cache, unless a matmul or an embedding
that leaves needs it, or it replaces its operand by something as large (a bias added to a matmul
that left). Views of sequences that are only collected leave, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ir.analysis.cost import is_product
from ir.passes.loops.slices_to_ports import is_reversed, is_whole, put
from ir.passes.loops.vectorize import Batched, batch
from ir.passes.rules import may_raise
from ir.program import Carry, Const, Last, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, live_ops, rewrite_all
from ir.types import Dim, Type
from ir.uses import consts, depends_on_index, has_effect, users, uses


def hoist_from_scan(program: Program) -> Program:
    """Matmuls and embeddings of sequences run once, before the loop, on all iterations.

        seq %xt = %x[:, %t]                          %a = matmul(%x, %w)
        body                                   =>    seq %at = %a[:, %t]
          %at = matmul(%xt, %w1)

    And, mirrored, matmuls whose results are only collected run once after it. For a while loop that
    is more than it asks for if it ends before `trip` iterations; one large matmul is worth that.
    What may raise does not leave a while loop, nor a loop with effects.
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

    return rewrite_all(program, visit)


@dataclass(eq=False)
class _BatchPlan:
    """The ops that leave a body, with their counterparts outside."""

    b: Block
    scan: Scan
    outside: dict[Value, Batched] = field(default_factory=dict)

    def tried(self, b: Block, op: Op) -> Batched | None:
        if not all(v in self.outside for v in op.operands) or depends_on_index(self.scan, op):
            return None
        return batch(b, op, [self.outside[v] for v in op.operands], self.scan.trip)


def _before(b: Block, s: Scan) -> Scan | None:
    chosen = _worth_hoisting(b, s)
    if not chosen:
        return None
    plan = _BatchPlan(b, s, _known_outside(b, s, b))
    seqs: list[Port] = []
    for op in chosen:
        out = plan.tried(b.at(op), op)
        assert out is not None and out.axis is not None
        plan.outside[op.result] = out
        seqs.append(Seq(op.result, out.value, out.axis, out.start, out.step))
    gone = set(chosen)
    body = live_ops([n for n in s.body if n not in gone], s.needed)
    return _read_only(replace(s, ports=(*s.ports, *seqs), body=body))


def _known_outside(b: Block, s: Scan, around: Block) -> dict[Value, Batched]:
    """Return the values of const and seq ports, batched over all iterations; `around` is the block
    of the loop."""
    out: dict[Value, Batched] = {}
    for p in s.ports:
        if isinstance(p, Const):
            out[p.inner] = Batched(p.outer)
        elif isinstance(p, Seq) and not _is_array(around, p.outer):
            out[p.inner] = Batched(p.outer, p.axis, p.start, p.step)
            if not is_whole(s, p) and not is_reversed(s, p):
                cut = {"axis": p.axis, "start": p.start, "length": s.trip, "step": p.step}
                out[p.inner] = Batched(b.slice(p.outer, hint=p.inner.name, **cut), p.axis)
    return out


def _is_array(b: Block, v: Value) -> bool:
    """Whether an op on all elements at once would have to copy them."""
    block, source = b.resolve(v)
    return block.op_of(source, "tensor_array") is not None


def _worth_hoisting(around: Block, s: Scan) -> list[Op]:
    """Ops to hoist, in order: anchors, what they need, and what rides along."""
    trial = Block()
    plan = _BatchPlan(trial, s, _known_outside(trial, s, around))
    able: dict[Value, Op] = {}
    in_place = s.count != "" or any(map(has_effect, s.body))
    for node in s.body:
        if isinstance(node, Op) and not has_effect(node) and not (in_place and may_raise(node)):
            out = plan.tried(trial, node)
            if out is not None:
                plan.outside[node.result] = out
                able[node.result] = node
    wanted: set[Op] = set()
    for op in reversed(able.values()):
        if is_product(op) or op in wanted:
            wanted.add(op)
            wanted.update(able[v] for v in op.operands if v in able)
    count = uses(s.body, s.needed)
    for op in able.values():
        if op not in wanted and _rides_along(op, able, wanted, count):
            wanted.add(op)
    wanted |= _only_collected(s, able, wanted)
    return [op for op in able.values() if op in wanted]


def _rides_along(op: Op, able: dict[Value, Op], wanted: set[Op], count: dict[Value, int]) -> bool:
    """An elementwise op that takes the place of one that leaves, as large and read once."""
    if op.row.kernel is None:
        return False
    left = [v for v in op.operands if v in able]
    if not all(able[v] in wanted for v in left):
        return False
    return any(count[v] == 1 and v.type == op.result.type for v in left)


def _only_collected(s: Scan, able: dict[Value, Op], wanted: set[Op]) -> set[Op]:
    """Views that lead to nothing but stacks: a sequence is not copied step by step. Not of a while
    loop, which may end before it has read all of it."""
    if s.count:
        return set()
    stacks, read = _only_stacked(s), users(s.body)
    other = set(s.needed) - stacks.keys() | {p.next for p in s.carries}
    found: set[Op] = set()
    for op in reversed(able.values()):
        leads = op.result in stacks or op.result in read
        alone = op.result not in other and found.issuperset(read.get(op.result, ()))
        if op.row.views and leads and alone:
            found.add(op)
    for op in able.values():
        if not all(able[v] in wanted | found for v in op.operands if v in able):
            found.discard(op)
    return found


# ---------------------------------------------------------------- sinking
def _after(b: Block, s: Scan) -> Sequence[Value] | None:
    """Stacked results of matmuls: their operands are stacked instead, the matmul runs after."""
    sunk = worth_sinking(s)
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
    constant = {p.inner: Batched(p.outer) for p in consts(s)}
    for op, axis in sunk.items():
        operands = [constant[v] if v in constant else outside[v, axis] for v in op.operands]
        out = batch(b.at(op), op, operands, s.length)
        assert out is not None
        outside[op.result, axis] = out
    gone = {p.outer: (p.inner, p.axis) for p in s.ports if isinstance(p, Stack)}
    return [outside[gone[r]].value if r not in _outers(kept) else r for r in s.results]


def _outers(ports: Sequence[Port]) -> set[Value]:
    lasts = {p.last for p in ports if isinstance(p, Carry) and p.last is not None}
    return lasts | {p.outer for p in ports if isinstance(p, (Stack, Last))}


def _is_const(s: Scan, v: Value) -> bool:
    return any(p.inner is v for p in consts(s))


def _read_only(s: Scan) -> Scan:
    """`s` without the const and seq ports that its body does not read."""
    read = uses(s.body, s.needed)
    kept = [p for p in s.ports if not isinstance(p, (Const, Seq)) or p.inner in read]
    return replace(s, ports=tuple(kept))


def _stack_of(s: Scan, v: Value, axis: int) -> Stack:
    for p in s.ports:
        if isinstance(p, Stack) and p.inner is v and p.axis == axis:
            return p
    shape = (*v.type.shape[:axis], s.length, *v.type.shape[axis:])
    return Stack(Value(Type(v.type.dtype, shape), v.name), v, axis)


def worth_sinking(s: Scan) -> dict[Op, int]:
    """Ops that only feed stack ports and contain a matmul, with the axis that their operands
    are stacked along; in order."""
    axes = _only_stacked(s)
    read = users(s.body)
    other = set(s.needed) - set(axes) | {p.next for p in s.carries}
    other |= {s.go.next} if s.go is not None else set()
    constant = {p.inner for p in consts(s)}
    sunk: dict[Op, int] = {}
    for node in reversed(s.body):
        if not isinstance(node, Op) or has_effect(node) or may_raise(node):
            continue
        if len(node.results) != 1 or node.result in other or depends_on_index(s, node):
            continue
        using = read.get(node.result, [])
        wanted = {sunk.get(u, -1) for u in using if isinstance(u, Op)}
        wanted |= {axes[node.result]} if node.result in axes else set()
        if len(wanted) != 1 or not all(u in sunk for u in using):
            continue
        axis = wanted.pop()
        if _sinks(node, constant, axis, s.length):
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


def _sinks(op: Op, constant: set[Value], axis: int, length: Dim) -> bool:
    """Whether the op, on operands stacked along `axis`, gives its results along `axis`."""
    if op.row.kernel is None and op.name != "matmul":
        return False
    operands = []
    for v in op.operands:
        if v in constant:
            operands.append(Batched(v))
        elif axis <= v.type.ndim:
            shape = (*v.type.shape[:axis], length, *v.type.shape[axis:])
            operands.append(Batched(Value(v.type.with_shape(shape)), axis))
        else:
            return False
    out = batch(Block(), op, operands, length)
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


__all__ = ["hoist_from_scan", "worth_sinking"]
