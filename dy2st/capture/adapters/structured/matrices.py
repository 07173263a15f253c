"""Adapters of structured matrices (identity, diagonals), Kronecker and cross products."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from dy2st.capture.adapters.elementwise import arithmetic
from dy2st.capture.adapters.gather_scatter import same_dtype, unseen
from dy2st.capture.adapters.strided import diagonal
from dy2st.capture.adapters.table import adapter, dims_of, dtype_of, given, int_of
from dy2st.capture.indexing.selection import counting
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from ir.types import F32, I32, I64, Dim


@adapter("eye")
def eye(
    e: Emitter, rows: object, columns: object, dtype: object = None, place: object = None
) -> FakeTensor:
    n, m = dims_of((rows, columns))
    lines = e.reshape(counting(e, n), shape=(n, 1)), e.reshape(counting(e, m), shape=(1, m))
    return e.cast(e.equal(*lines), dtype=dtype_of(dtype) if given(dtype) else F32)


def places(n: int, offset: int) -> tuple[Any, Any]:
    """The rows and columns of a diagonal of `n` elements."""
    rows = np.arange(n) + max(-offset, 0)
    columns = np.arange(n) + max(offset, 0)
    return paddle.to_tensor(rows), paddle.to_tensor(columns)


@adapter("diag")
def diag(e: Emitter, x: object, offset: object = 0, padding: float = 0.0) -> FakeTensor:
    """A matrix with this diagonal, or the diagonal of a matrix."""
    t, k = e.type(x), int_of(offset)
    if t.ndim == 2:
        return e.assign(diagonal(e, x, k, 0, 1))
    n = size_of(t.shape[0]) if t.ndim == 1 else 1
    wide = n + abs(k)
    kind = {"f": float, "b": bool}.get(t.dtype.kind, int)
    start = e.full(kind(padding), t.dtype, (wide, wide))
    return e.scatter_nd(start, e.reshape(x, shape=(n,)), *places(n, k), axis=0)


def size_of(d: Dim) -> int:
    if not isinstance(d, int):
        raise NoRow(f"a diagonal of {d} elements")
    return d


@adapter("diag_embed")
def diag_embed(
    e: Emitter, x: object, offset: object = 0, dim1: int = -2, dim2: int = -1
) -> FakeTensor:
    """Matrices with the rows of `x` as their diagonals; Paddle has no gradient for them."""
    t, k = e.type(x), int_of(offset)
    n, rest = size_of(t.shape[-1]), t.ndim - 1
    wide = n + abs(k)
    start = e.full(
        {"f": 0.0, "b": False}.get(t.dtype.kind, 0), t.dtype, (*t.shape[:-1], wide, wide)
    )
    found = e.scatter_nd(start, unseen(e, x), *places(n, k), axis=rest)
    a, b = dim1 % (rest + 2), dim2 % (rest + 2)
    if (a, b) == (rest, rest + 1):
        return found
    others = iter(range(rest))
    perm = tuple(rest if d == a else rest + 1 if d == b else next(others) for d in range(rest + 2))
    return e.assign(e.transpose(found, perm=perm))


@adapter("trace")
def trace(e: Emitter, x: object, offset: int = 0, axis1: int = 0, axis2: int = 1) -> FakeTensor:
    return e.sum(diagonal(e, x, offset, axis1, axis2), axes=(-1,))


@adapter("kron")
def kron(e: Emitter, x: object, y: object) -> FakeTensor:
    """`y` as many times as `x` has elements, each time with one of them."""
    ndim = max(e.type(x).ndim, e.type(y).ndim)
    a, b = ((1,) * (ndim - e.type(q).ndim) + e.type(q).shape for q in (x, y))
    left = e.reshape(x, shape=tuple(q for d in a for q in (d, 1)))
    right = e.reshape(y, shape=tuple(q for d in b for q in (1, d)))
    blocks = arithmetic(e, "multiply", left, right)
    return e.reshape(blocks, shape=tuple(p * q for p, q in zip(a, b)))


@adapter("cross")
def cross(e: Emitter, x: object, y: object, axis: int = 9) -> FakeTensor:
    """Along the first axis with three components, if none is given."""
    t = e.type(x)
    if e.type(y) != t or axis == 9 and 3 not in t.shape:
        raise NoRow(f"cross of {t} and {e.type(y)}")
    at = t.shape.index(3) if axis == 9 else int_of(axis) % t.ndim
    (a, b, c), (p, q, r) = (
        [e.slice(v, axis=at, start=k, length=1) for k in range(3)] for v in (x, y)
    )
    pairs = (b, r, c, q), (c, p, a, r), (a, q, b, p)
    parts = [e.subtract(e.multiply(i, j), e.multiply(k, m)) for i, j, k, m in pairs]
    return e.concat(*parts, axis=at)


#: boundaries up to which all of them are compared
COMPARED = 64


@adapter("searchsorted")
def searchsorted(
    e: Emitter, boundaries: object, x: object, short: bool = False, right: bool = False
) -> FakeTensor:
    """Count the boundaries below each element, or with `right` not above; all of them where it
    is not finite, as Paddle's kernel counts."""
    same_dtype(e, boundaries, x)
    line = e.type(boundaries)
    if line.ndim != 1 or not isinstance(line.shape[0], int) or line.shape[0] > COMPARED:
        raise NoRow(f"searchsorted in {line}")
    alone = e.reshape(x, shape=(*e.type(x).shape, 1))
    passed = e.less_equal(boundaries, alone) if right else e.less_than(boundaries, alone)
    if e.type(x).dtype.kind == "f":
        passed = e.logical_or(passed, e.logical_not(e.isfinite(alone)))
    return e.sum(e.cast(passed, dtype=I32 if short else I64), axes=(-1,))
