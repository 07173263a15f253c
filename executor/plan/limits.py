"""Ranges of index values: an index that is provably below a bound needs no check.

The elements of a value come from `argmax`, constants and remainders, through ops that only move
elements, through ports, and around loops. If all sources that can be reached are bounded, so is the
value. A call that cannot fail may write its inputs at once (`executor.plan.atomicity`).
Out of scope: arithmetic, and bounds that are named sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ir import Cond, Fused, Op, Program, Scan, Value
from ir.program import Carry, Const, Last, Node, Seq, Stack
from ir.uses import walk


@dataclass
class Limits:
    """`sources`: the values that the elements of a value come from; `bounds`: bounds of values
    without sources; `found`: the bounds that have been asked for."""

    sources: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    bounds: dict[Value, int] = field(default_factory=dict)
    found: dict[Value, int | None] = field(default_factory=dict)

    def below(self, v: Value) -> int | None:
        """A number n with 0 <= element < n for all elements of `v`; None if none is known."""
        if v not in self.found:
            self.found[v] = self._below(v)
        return self.found[v]

    def _below(self, v: Value) -> int | None:
        seen, todo, most = {v}, [v], 0
        while todo:
            q = todo.pop()
            known = self.bounds.get(q, self.found.get(q))
            if known is not None:
                most = max(most, known)
                continue
            if q not in self.sources or q in self.found:
                return None
            todo += [o for o in self.sources[q] if o not in seen]
            seen.update(self.sources[q])
        return most


def limits(program: Program) -> Limits:
    out = Limits()
    ops: list[Op] = []
    for node in walk(program.ops):
        out.sources.update(_ports(node))
        if isinstance(node, (Op, Fused)):
            ops += node.body if isinstance(node, Fused) else [node]
    for op in ops:
        _op(out, op)
    full = (op for op in ops if op.name == "full" and _fits(op.attrs["value"], op))
    constants = {op.result: op.attrs["value"] for op in full}
    for op in ops:
        if op.name == "remainder" and op.result.type.dtype.kind == "i":
            divisor = constants.get(_only_origin(out, op.operands[1]), 0)
            if divisor > 0:
                out.bounds[op.result] = int(divisor)
    return out


def _only_origin(out: Limits, v: Value) -> Value:
    while len(out.sources.get(v, ())) == 1:
        (v,) = out.sources[v]
    return v


def _op(out: Limits, op: Op) -> None:
    integer = all(r.type.dtype.kind in "iu" for r in op.results)
    if not integer:
        return
    bound = _bound(op)
    if bound is not None:
        out.bounds.update(dict.fromkeys(op.results, bound))
        return
    sources = op.row.sources(op.operands)
    if op.name == "cast" and op.operands[0].type.dtype.kind == "i":
        wide = op.result.type.dtype.bits >= op.operands[0].type.dtype.bits
        sources = op.operands if wide else ()
    if sources:
        out.sources.update(dict.fromkeys(op.results, tuple(sources)))


def _bound(op: Op) -> int | None:
    if op.name == "argmax":
        n = op.operands[0].type.shape[op.attrs["axis"]]
        return n if isinstance(n, int) and _fits(n - 1, op) else None
    if op.name == "full" and op.attrs["value"] >= 0 and _fits(op.attrs["value"], op):
        return int(op.attrs["value"]) + 1
    return None


def _fits(number: float, op: Op) -> bool:
    """Whether the result's element type has the number, which is not negative."""
    return bool(number < 1 << (op.result.type.dtype.bits - 1))


def _ports(node: Node) -> Iterable[tuple[Value, tuple[Value, ...]]]:
    if isinstance(node, Scan):
        for p in node.ports:
            if isinstance(p, (Const, Seq)):
                yield p.inner, (p.outer,)
            elif isinstance(p, Carry):
                yield p.inner, (p.init, p.next)
                if p.last is not None:
                    yield p.last, (p.init, p.next)
            elif isinstance(p, (Stack, Last)):
                yield p.outer, (p.inner,)
    elif isinstance(node, (Cond, Fused)):
        yield from ((p.inner, (p.outer,)) for p in node.ins)
        if isinstance(node, Fused):
            yield from ((outer, (inner,)) for outer, inner in node.outs)
        else:
            yield from ((j.outer, (j.then, j.orelse)) for j in node.outs)
