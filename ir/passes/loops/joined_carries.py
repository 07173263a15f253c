"""Merging of carries that the body concatenates, and of which it slices the next values.

    carry %a = %a0 then %a2                          carry %s = %s0 then %s2
    carry %b = %b0 then %b2                          body
    body                                      =>       %s2 = ... %s ...
      %s = tensor_array(%a, %b)
      %s2 = ... %s ...
      %a2 = index(%s2, axis=0, index=0)
      %b2 = index(%s2, axis=0, index=1)

So are the states of layers, `hs[l]`, where an inner loop over the layers reads and stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.passes.loops.slices_to_ports import put, rename
from ir.program import Carry, Node, Op, Program, Scan, Value
from ir.rewrite import Block, live_ops, rewrite_all
from ir.uses import uses


def join_carries(program: Program) -> Program:
    """No loop takes its next states out of one tensor and puts them together again."""
    return rewrite_all(program, _visit)


def _visit(b: Block, s: Node) -> Sequence[Value] | None:
    if not isinstance(s, Scan):
        return None
    (body,) = Block.inside(s, b)
    count = uses(s.body, s.needed)
    carries = {p.inner: p for p in s.carries}
    for n in s.body:
        if n.name == "tensor_array" and all(v in carries and count[v] == 1 for v in n.operands):
            parts = [carries[v] for v in n.operands]
            whole = _whole(body, [p.next for p in parts], n.results[0])
            if whole is not None and len(set(parts)) == len(parts):
                return _joined(b, s, n.results[0], parts, whole)
    return None


def _whole(b: Block, parts: Sequence[Value], like: Value) -> Value | None:
    """The tensor of which these are all slices along the first axis, in order."""
    taken = [b.op_of(v, "index") for v in parts]
    first = taken[0]
    if first is None or first.operands[0].type != like.type:
        return None
    for k, op in enumerate(taken):
        if op is None or op.operands != first.operands or not _is_slice(op, k):
            return None
    return first.operands[0]


def _is_slice(op: Op, k: int) -> bool:
    return bool(op.attrs["axis"] % op.operands[0].type.ndim == 0 and op.attrs["index"] == k)


def _joined(
    b: Block, s: Scan, array: Value, parts: Sequence[Carry], whole: Value
) -> Sequence[Value]:
    inits = [p.init for p in parts]
    init = _whole(b, inits, array)
    init = b.stack(*inits) if init is None else init
    last = Value(array.type) if any(p.last is not None for p in parts) else None
    one = Carry(Value(array.type, array.name), init, whole, last)
    body = tuple(n for n in s.body if array not in n.results)
    ports = tuple(p for p in s.ports if p not in parts)
    loop = rename(replace(s, ports=(*ports, one), body=body), {array: one.inner})
    put(b, replace(loop, body=live_ops(loop.body, loop.needed)))
    found = {}
    if last is not None:
        found = {p.last: b.index(last, axis=0, index=k) for k, p in enumerate(parts) if p.last}
    return [found.get(r, r) for r in s.results]


__all__ = ["join_carries"]
