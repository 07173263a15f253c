"""Products of matrices, and Fourier transforms along an axis.

A complex number is a pair along the last axis. With w = exp(2 pi i / n), or its conjugate where it
is not `inverse`, a transform is a sum over its operand times powers of w, times `factor`:

    complex   n numbers from n numbers
    analysis  frequencies 0 ... n // 2 of n real numbers
    synthesis the real parts of n numbers, from frequencies 0 ... n // 2

Frequencies that stand for their conjugates too are doubled where `doubled` says so: the result of
an analysis, the operand of a synthesis. So each of the two is the adjoint of the other one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.opdef import ShapeError, axis_in, broadcast, example, op, same_dim
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import fitted
from ir.program import Builder, Value
from ir.types import Type, product

TRANSFORMS = ("complex", "analysis", "synthesis")
ADJOINT = {"complex": "complex", "analysis": "synthesis", "synthesis": "analysis"}
#: the largest prime factor of a length, and the longest
MOST_PRIME, LONGEST = 13, 1 << 13


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


# ---------------------------------------------------------------- Fourier transforms
def factors(n: int) -> list[int]:
    """Eights and fours first, a two only where it is alone, then odd primes in order."""
    twos = (n & -n).bit_length() - 1
    fours = (0, 2, 1)[twos % 3] if twos > 1 else 0
    found = [8] * ((twos - 2 * fours) // 3) + [4] * fours + [2] * (twos == 1)
    rest, q = n >> twos, 3
    while rest > 1:
        while rest % q == 0:
            found.append(q)
            rest //= q
        q += 2
    return found


def is_smooth(n: int) -> bool:
    """Whether there is a transform of this length."""
    if not 1 < n <= LONGEST:
        return False
    rest = n
    for q in range(2, MOST_PRIME + 1):
        while rest % q == 0:
            rest //= q
    return rest == 1


def half(n: int) -> int:
    return n // 2 + 1


def weights(n: int, doubled: bool) -> np.ndarray:
    """Return the multiplicities of frequencies 0 ... n // 2."""
    k = np.arange(half(n))
    return np.where((k == 0) | (2 * k == n) | (not doubled), 1.0, 2.0)


def _fourier_types(
    x: Type, axis: int, n: int, kind: str, inverse: bool, factor: float, doubled: bool
) -> Type:
    require_kind("fourier", x, "f")
    paired = kind != "analysis"
    if kind not in TRANSFORMS or x.ndim <= paired or (paired and x.shape[-1] != 2):
        raise ShapeError(f"fourier: {kind} of {x}")
    if not isinstance(n, int) or not is_smooth(n):
        raise ShapeError(f"fourier: a transform of length {n}")
    at = axis_in(axis, x.ndim - paired)
    outer = list(x.shape[: x.ndim - paired])
    if outer[at] != (half(n) if kind == "synthesis" else n):
        raise ShapeError(f"fourier: {kind} of {x} along axis {axis}, length {n}")
    outer[at] = half(n) if kind == "analysis" else n
    return x.with_shape((*outer, 2) if kind != "synthesis" else tuple(outer))


def transform(
    x: np.ndarray, n: int, axis: int, kind: str, inverse: bool, factor: float, doubled: bool
) -> np.ndarray:
    """The row on arrays, in float64."""
    x = x.astype(np.float64)
    z = np.moveaxis(x if kind == "analysis" else x[..., 0] + 1j * x[..., 1], axis, -1)
    if kind == "synthesis":
        z = z * weights(n, doubled)
    turns = np.outer(np.arange(z.shape[-1]), np.arange(n)) % n
    y = factor * (z @ np.exp((2j if inverse else -2j) * np.pi * turns / n))
    if kind == "synthesis":
        return np.moveaxis(y.real, -1, axis)
    if kind == "analysis":
        y = y[..., : half(n)] * weights(n, doubled)
    y = np.moveaxis(y, -1, axis)
    return np.stack((y.real, y.imag), -1)


def _fourier_ref(x: np.ndarray, axis: int, kind: str, **how: Any) -> np.ndarray:
    outer = x.ndim - (kind != "analysis")
    return transform(x, axis=axis % outer, kind=kind, **how).astype(x.dtype)


def _fourier_grad(
    b: Builder, g: Value, y: Value, x: Value, axis: int, kind: str, inverse: bool, **how: Any
) -> list[Value]:
    axis %= x.type.ndim - (kind != "analysis")
    return [b.fourier(g, axis=axis, kind=ADJOINT[kind], inverse=not inverse, **how)]


op(
    "fourier(x, *, axis, n, kind, inverse=False, factor=1.0, doubled=False)",
    types=_fourier_types,
    ref=_fourier_ref,
    grad=_fourier_grad,
    examples=(
        example("f32[3,20,2]", axis=1, n=20, kind="complex"),
        example("f64[21,35,2]", axis=0, n=21, kind="complex", inverse=True, factor=0.5),
        example("f32[2,9,12]", axis=-1, n=12, kind="analysis"),
        example("f32[26,40]", axis=0, n=26, kind="analysis", inverse=True, doubled=True),
        example("f64[37,8,2]", axis=1, n=15, kind="synthesis", factor=0.25),
        example("f32[33,5,2]", axis=1, n=8, kind="synthesis", inverse=True, doubled=True),
        example("f32[0,8]", axis=1, n=8, kind="analysis"),
    ),
)
__all__ = ["factors", "half", "is_smooth", "transform", "weights"]
