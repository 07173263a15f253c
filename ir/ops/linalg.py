"""Products of matrices."""

from __future__ import annotations

import numpy as np

from ir.opdef import ShapeError, broadcast, example, op, same_dim
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import fitted
from ir.program import Builder, Value
from ir.types import Type, product


def matmul_types(x: Type, y: Type, trans_x: bool, trans_y: bool) -> Type:
    same_dtype("matmul", x, y)
    require_kind("matmul", x, "f")
    if not x.ndim or not y.ndim:
        raise ShapeError("matmul of a 0-d tensor")
    a, b = list(x.shape), list(y.shape)
    row, column = len(a) == 1, len(b) == 1
    a = [1, *a] if row else a
    b = [*b, 1] if column else b
    m, ka = (a[-1], a[-2]) if trans_x and not row else (a[-2], a[-1])
    kb, n = (b[-1], b[-2]) if trans_y and not column else (b[-2], b[-1])
    try:
        same_dim(ka, kb)
    except ShapeError:
        raise ShapeError(f"matmul of {x} and {y}: {ka} columns meet {kb} rows") from None
    batch = broadcast(a[:-2], b[:-2])
    return Type(x.dtype, (*batch, *([] if row else [m]), *([] if column else [n])))


def matmul_ref(x: np.ndarray, y: np.ndarray, trans_x: bool, trans_y: bool) -> np.ndarray:
    a = np.swapaxes(x, -1, -2) if trans_x and x.ndim > 1 else x
    b = np.swapaxes(y, -1, -2) if trans_y and y.ndim > 1 else y
    out: np.ndarray = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(x.dtype)
    return out


def _matmul_grad(
    b: Builder, g: Value, out: Value, x: Value, y: Value, trans_x: bool, trans_y: bool
) -> list[Value]:
    """Vectors are matrices of one row or column, whose flags mean nothing."""
    m, n = x, y
    if x.type.ndim == 1:
        m, trans_x = b.reshape(x, shape=(1, x.type.shape[0])), False
    if y.type.ndim == 1:
        n, trans_y = b.reshape(y, shape=(y.type.shape[0], 1)), False
    rows, columns = m.type.shape[-1 if trans_x else -2], n.type.shape[-2 if trans_y else -1]
    batch = out.type.shape[: out.type.ndim - (x.type.ndim > 1) - (y.type.ndim > 1)]
    if 1 in (x.type.ndim, y.type.ndim):
        g = b.reshape(g, shape=(*batch, rows, columns))
    if trans_x:
        dx = b.matmul(n, g, trans_x=trans_y, trans_y=True)
    else:
        dx = b.matmul(g, n, trans_y=not trans_y)
    dy = _right_grad(b, g, m, n, trans_x, trans_y)
    pairs = ((fitted(b, dx, m.type), x), (fitted(b, dy, n.type), y))
    return [d if d.type == v.type else b.reshape(d, shape=v.type.shape) for d, v in pairs]


def _right_grad(b: Builder, g: Value, x: Value, y: Value, trans_x: bool, trans_y: bool) -> Value:
    """One matrix for a batch of left ones: all their rows are rows of one product."""
    if y.type.ndim == 2 and x.type.ndim > 2 and not trans_x:
        x, g = (b.reshape(v, shape=(product(v.type.shape[:-1]), v.type.shape[-1])) for v in (x, g))
    new: Value
    if trans_y:
        new = b.matmul(g, x, trans_x=True, trans_y=trans_x)
    else:
        new = b.matmul(x, g, trans_x=not trans_x)
    return new


op(
    "matmul(x, y, *, trans_x=False, trans_y=False)",
    types=matmul_types,
    ref=matmul_ref,
    grad=_matmul_grad,
    examples=(
        example("f32[3,4]", "f32[4,5]"),
        example("f64[3,4]", "f64[4,5]"),
        example("f32[4,3]", "f32[5,4]", trans_x=True, trans_y=True),
        example("f32[2,3,4]", "f32[4,5]"),
        example("f32[2,1,3,4]", "f32[3,4,5]"),
        example("f32[2,3,4]", "f32[2,5,4]", trans_y=True),
        example("f32[4]", "f32[4]"),
        example("f32[4]", "f32[4,5]"),
        example("f32[3,4]", "f32[4]"),
        example("f32[0,4]", "f32[4,5]"),
        example("f32[3,0]", "f32[0,5]"),
        example("f32[17,33]", "f32[33,70]"),
    ),
)
