"""Composite rows expanded into smaller ops, so that a backend never meets one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir import OPS, Builder, Fused, Op, Program, Scan, Value
from ir.core import Carry, Last, Node, Port, Stack


def expand_composites(program: Program) -> Program:
    """The program without rows that have an `expand`; the same object if there is none."""
    if not _has_composite(program.ops):
        return program
    names: dict[Value, Value] = {}
    ops = _block(program.ops, names)
    return replace(
        program,
        ops=ops,
        outputs=tuple(names.get(v, v) for v in program.outputs),
        writes=tuple((t, names.get(v, v)) for t, v in program.writes),
    )


def _composite(node: Node) -> bool:
    if not isinstance(node, Op):
        return False
    row = OPS[node.name]
    return row.expand is not None and row.kernel is None and row.reduce is None


def _has_composite(ops: Sequence[Node]) -> bool:
    return any(_composite(n) or (isinstance(n, Scan) and _has_composite(n.body)) for n in ops)


def _block(ops: Sequence[Node], names: dict[Value, Value]) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in ops:
        if isinstance(node, Scan):
            out.append(_scan(node, names))
        elif isinstance(node, Fused):
            ins = tuple(replace(p, outer=names.get(p.outer, p.outer)) for p in node.ins)
            out.append(replace(node, ins=ins))
        elif _composite(node):
            out += _expanded(node, names)
        else:
            out.append(replace(node, operands=tuple(names.get(v, v) for v in node.operands)))
    return tuple(out)


def _expanded(op: Op, names: dict[Value, Value]) -> tuple[Node, ...]:
    row, b = OPS[op.name], Builder(op.loc)
    assert row.expand is not None
    out = row.expand(b, *(names.get(v, v) for v in op.operands), **op.attrs)
    results = out if isinstance(out, (tuple, list)) else (out,)
    nodes = _block(tuple(b.ops), names)
    names.update((v, names.get(r, r)) for v, r in zip(op.results, results))
    return nodes


def _scan(scan: Scan, names: dict[Value, Value]) -> Scan:
    body = _block(scan.body, names)
    return replace(scan, body=body, ports=tuple(_port(p, names) for p in scan.ports))


def _port(p: Port, names: dict[Value, Value]) -> Port:
    if isinstance(p, Carry):
        return replace(p, init=names.get(p.init, p.init), next=names.get(p.next, p.next))
    if isinstance(p, (Stack, Last)):
        return replace(p, inner=names.get(p.inner, p.inner))
    return replace(p, outer=names.get(p.outer, p.outer))
