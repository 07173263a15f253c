"""Lowering of `matmul`: shapes are brought to [batch..., M, K] @ [batch..., K, N]."""

from __future__ import annotations

from dataclasses import replace

from executor.launches import Gemm
from executor.lowering.lowerer import Lowerer, rule
from executor.memory import View, collapse
from executor.plan.reuse import added
from ir import Op
from ir.types import Type


@rule("matmul", direct=True)
def matmul(low: Lowerer, op: Op) -> None:
    xv, yv = op.operands
    result, start = op.result, _sum_start(low, op)
    if start is not None:
        result = start[0].result
        low.merged.add(start[0])
    x = _matrix(low.env[xv], op.attrs["trans_x"], 0)
    y = _matrix(low.env[yv], op.attrs["trans_y"], 1)
    out = (start and low.overwrite(start[0], result)) or low.fresh(result)

    def matrix(v: View) -> View:
        v = v.insert(v.ndim - (yv.type.ndim > 1)) if xv.type.ndim == 1 else v
        return v.insert(v.ndim) if yv.type.ndim == 1 else v

    c, initial = matrix(out), matrix(start[1]) if start else None
    if c.shape[-1] == 1 and c.shape[-2] != 1 and c.strides[-2] == 1:
        x, y, c = _turned(y), _turned(x), _turned(c)
        initial = initial and _turned(initial)
    target = c
    if c.shape[-1] != 1 and c.strides[-1] != 1:
        temporary = low.temporary(Type(c.dtype, c.shape))
        target = temporary
    product_of(low, x, y, target, initial)
    if target is not c:
        low.copy(target, c)
        low.keep(result, c, "a product is made row by row, and lies otherwise in its place")
    if start is not None:
        low.settle(result)


def _sum_start(low: Lowerer, op: Op) -> tuple[Op, View] | None:
    """The sum that this product is a part of, if the product can start from the other part."""
    found = added(low.uses[-1], low.uses[-1].defined[op.result])
    if found is None or found[1] not in low.env or op.result in low.places:
        return None
    block = low.uses[-1]
    shared = any(block.of(v) is block.of(found[1]) for v in op.operands)
    if shared and block.updates.get(found[1]) is found[0].result:
        return None
    view = low.env[found[1]].expand(op.result.type.shape)
    return (found[0], view) if _in_rows(view) and found[1] not in low.constants else None


def _in_rows(v: View) -> bool:
    """Whether a product can start from `v`: contiguous rows, or one contiguous column, which
    becomes a row when the product is turned."""
    if v.ndim == 0 or v.shape[-1] != 1:
        return v.ndim > 0 and v.strides[-1] == 1
    return v.ndim == 1 or v.shape[-2] == 1 or v.strides[-2] == 1


def product_of(low: Lowerer, x: View, y: View, c: View, initial: View | None) -> None:
    """c = x @ y."""
    batch = c.shape[:-2]
    x = x.expand((*batch, *x.shape[-2:]))
    if all(d == 1 for d in y.shape[:-2]):
        x, c, initial = _merge(x, c, initial)
        while y.ndim > 2:
            y = y.index(0, 0)
    full = y.expand((*c.shape[:-2], *y.shape[-2:]))
    low.emit(Gemm(x, full, c, initial))


def _turned(x: View) -> View:
    return x.transpose([*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def _matrix(x: View, transposed: bool, new: int) -> View:
    if x.ndim == 1:
        return x.insert(new)
    return _turned(x) if transposed else x


def _merge(x: View, c: View, initial: View | None) -> tuple[View, View, View | None]:
    """Fold the batch into the rows, as far as the strides allow, where `y` is one matrix."""
    views = [v for v in (x, c, initial) if v is not None]
    dims, rows = collapse(c.shape[:-1], [v.strides[:-1] for v in views])
    if not dims:
        dims, rows = [1], [[0] for _ in views]
    out = [
        replace(v, shape=(*dims, v.shape[-1]), strides=(*r, v.strides[-1]))
        for v, r in zip(views, rows)
    ]
    return out[0], out[1], out[2] if initial is not None else None
