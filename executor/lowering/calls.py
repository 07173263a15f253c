"""Lowering of foreign ops: calls of kernels that Python runs, on contiguous memory."""

from __future__ import annotations

from executor.launches import Call
from executor.lowering.lowerer import Lowerer, rule
from executor.memory import View
from ir import Op
from ir.types import Size, Type
from ir.uses import size_names


@rule("foreign")
def foreign(low: Lowerer, op: Op) -> None:
    ins = tuple(_contiguous(low, low.env[v]) for v in op.operands)
    places = [low.fresh(r) for r in op.results]
    outs = tuple(p if p.contiguous else low.temporary(r.type) for p, r in zip(places, op.results))
    operands = (v.type.names for v in op.operands)
    names = tuple(sorted(size_names(op).union(*operands)))
    error = low.failure(RuntimeError, str(op.attrs["call"]), op.loc)
    low.calls.append((op, names))
    low.emit(Call(len(low.calls) - 1, ins, outs, tuple(map(Size.named, names)), error))
    for made, place in zip(outs, places):
        if made is not place:
            low.copy(made, place)


def _contiguous(low: Lowerer, x: View) -> View:
    if x.contiguous:
        return x
    made = low.temporary(Type(x.dtype, x.shape))
    low.copy(x, made)
    return made
