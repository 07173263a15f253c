"""Views by strides: diagonals, inputs that share memory, and overlapping windows.

Element (i, j, ...) of `strided` is `x[offset + i * strides[0] + j * strides[1] + ...]`; `x` has one
axis. `unfold` has the windows of an axis side by side. Places may overlap: their gradients add up.
A write needs places that differ (`overlaps`); whoever emits a view that is written sees to that.
`as_real` and `as_complex` stand in the record of a function only; in a program both are `alias`
(`ir.pairs`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ir.layout import Strided, extent, overlaps
from ir.opdef import OPS, ShapeError, ViewRule, assume, axis_in, example, op, stored_by, unchanged
from ir.ops.gradients import ScatterGradient, ViewGradient
from ir.ops.views import write_row
from ir.program import Builder, Value
from ir.types import (
    COMPLEX,
    I64,
    Dim,
    Size,
    Type,
    complex_type,
    divide,
    floor_divide,
    is_natural,
    pair_type,
    product,
)

Dims = tuple[Dim, ...]


def _types(x: Type, shape: Dims, strides: Dims, offset: Dim) -> Type:
    if x.ndim != 1 or len(shape) != len(strides):
        raise ShapeError(f"strided of {x}: {len(shape)} dims and {len(strides)} strides")
    if 0 in shape:
        return x.with_shape(shape)
    for s in strides:
        if not is_natural(s) and not is_natural(0 - s):
            assume(s, ">=", 0)
    low, high = extent(shape, strides, offset)
    try:
        assume(low, ">=", 0)
        assume(x.shape[0], ">=", high + 1)
    except ShapeError:
        raise ShapeError(f"strided: places {low} to {high} of {x}") from None
    return x.with_shape(shape)


def _view(x: np.ndarray, shape: Any, strides: Any, offset: Any) -> np.ndarray:
    steps = [s * x.strides[0] for s in strides]
    return as_strided(x[offset:] if 0 not in shape else x[:0], shape, steps)


def _places(b: Builder, shape: Dims, strides: Dims, offset: Dim) -> Value:
    """The place of every element, as i64[n]."""
    at: Value = b.expand(b.size(n=offset), shape=shape)
    for axis, (d, s) in enumerate(zip(shape, strides)):
        steps = b.multiply(b.iota(n=d, dtype=I64), b.size(n=s))
        at = b.add(at, b.reshape(steps, shape=(d, *(1 for _ in shape[axis + 1 :]))))
    out: Value = b.reshape(at, shape=(product(shape),))
    return out


def _grad(
    b: Builder, g: Value, y: Value, x: Value, shape: Dims, strides: Dims, offset: Dim
) -> list[ViewGradient | ScatterGradient]:
    if not overlaps(shape, strides):
        attrs = {"shape": shape, "strides": strides, "offset": offset}
        return [ViewGradient("strided", g, (), attrs)]
    flat = b.reshape(g, shape=(product(shape),))
    return [ScatterGradient(flat, _places(b, shape, strides, offset), 0)]


op(
    "strided(x, *, shape, strides, offset=0)",
    types=_types,
    ref=_view,
    grad=_grad,
    view=ViewRule(
        layout=Strided.strided,
        python=lambda x, shape, strides, offset: x.as_strided(shape, strides, offset),
        unview=stored_by("set_strided"),
        overlaps=lambda y, shape, strides, offset: overlaps(shape, strides),
    ),
    examples=(
        example("f32[16]", shape=(4,), strides=(5,)),
        example("f64[24]", shape=(2, 3, 2), strides=(12, 2, 1), offset=3),
        example("i64[9]", shape=(3, 2), strides=(-3, 1), offset=7),
        example("f32[5]", shape=(0, 2), strides=(1, 1)),
    ),
)
write_row(
    "set_strided(x, y, *, strides, offset=0)",
    OPS["strided"],
    (
        example("f32[16]", "f32[4]", strides=(5,)),
        example("f32[12]", "f32[3,2]", strides=(-4, 1), offset=9),
        example("i64[7]", "i64[3,0]", strides=(1, 1)),
    ),
    lambda attrs, shape: {**attrs, "shape": shape},
)


# ---------------------------------------------------------------- windows along an axis
def _unfold_types(x: Type, axis: int, size: int, step: int) -> Type:
    at = axis_in(axis, x.ndim)
    if size < 1 or step < 1:
        raise ShapeError(f"unfold into windows of {size} every {step} elements")
    n = x.shape[at]
    try:
        assume(n, ">=", size)
    except ShapeError:
        raise ShapeError(f"unfold: a window of {size} along axis {at} of {x}") from None
    count = _windows(n, size, step)
    return x.with_shape((*x.shape[:at], count, *x.shape[at + 1 :], size))


def _windows(n: Dim, size: int, step: int) -> Dim:
    """Return the number of windows in `n` elements."""
    return floor_divide(n - size, step) + 1


def _unfolded(x: Strided, axis: int, size: int, step: int) -> Strided:
    return x.unfold(axis, size, step, _windows(x.shape[axis % x.ndim], size, step))


def _unfold_ref(x: np.ndarray, axis: int, size: int, step: int) -> np.ndarray:
    at = axis % x.ndim
    every = np.lib.stride_tricks.sliding_window_view(x, size, at, writeable=True)
    steps = (*(slice(None),) * at, slice(None, None, step))
    return every[steps]


def _windows_overlap(y: Type, axis: int, size: int, step: int) -> bool:
    several = y.shape[axis % (y.ndim - 1)] != 1
    return size > step and several and 0 not in y.shape


def _unfold_grad(
    b: Builder, g: Value, y: Value, x: Value, axis: int, size: int, step: int
) -> list[ViewGradient | ScatterGradient]:
    """Gradients of overlapping windows are added."""
    if step >= size:
        return [ViewGradient("unfold", g, (), {"axis": axis, "size": size, "step": step})]
    shape, at = x.type.shape, axis % x.type.ndim
    n = y.type.shape[at]
    side_by_side = (*range(at + 1), len(shape), *range(at + 1, len(shape)))
    rows = b.transpose(g, perm=side_by_side)
    rows = b.reshape(rows, shape=(*shape[:at], n * size, *shape[at + 1 :]))
    first = b.reshape(b.iota(n=n, step=step, dtype=I64), shape=(n, 1))
    places = b.add(first, b.iota(n=size, dtype=I64))
    return [ScatterGradient(rows, b.reshape(places, shape=(n * size,)), at)]


op(
    "unfold(x, *, axis, size, step)",
    types=_unfold_types,
    ref=_unfold_ref,
    grad=_unfold_grad,
    view=ViewRule(
        layout=_unfolded,
        python=lambda x, axis, size, step: x.unfold(axis, size, step),
        unview=stored_by("set_unfold"),
        overlaps=_windows_overlap,
    ),
    examples=(
        example("f32[8]", axis=0, size=2, step=2),
        example("f64[3,7,2]", axis=1, size=2, step=3),
        example("f64[2,7,2]", axis=1, size=4, step=2),
        example("i64[2,5]", axis=1, size=5, step=1),
        example("f32[0,4]", axis=1, size=2, step=2),
    ),
)
write_row(
    "set_unfold(x, y, *, axis, size, step)",
    OPS["unfold"],
    (
        example("f32[8]", "f32[4,2]", axis=0, size=2, step=2),
        example("f64[3,7,2]", "f64[3,2,2,2]", axis=1, size=2, step=3),
        example("f32[0,4]", "f32[0,2,2]", axis=1, size=2, step=2),
    ),
)


# ---------------------------------------------------------------- diagonals
def diagonal_length(shape: Dims, offset: int, axis1: int, axis2: int) -> Dim | None:
    """How many elements it has; None where named sizes decide."""
    rows, columns = shape[axis1] + min(offset, 0), shape[axis2] - max(offset, 0)
    if isinstance(rows, Size) or isinstance(columns, Size):
        return rows if rows == columns else None
    return max(0, min(rows, columns))


def _diagonal_types(x: Type, offset: int, axis1: int, axis2: int) -> Type:
    a, b = axis_in(axis1, x.ndim), axis_in(axis2, x.ndim)
    count = diagonal_length(x.shape, offset, a, b)
    if a == b or count is None:
        raise ShapeError(f"diagonal {offset} of axes {a} and {b} of {x}")
    return x.with_shape((*(d for k, d in enumerate(x.shape) if k not in (a, b)), count))


def _diagonal_ref(x: np.ndarray, offset: int, axis1: int, axis2: int) -> np.ndarray:
    out = np.diagonal(x, offset, axis1, axis2)
    out.setflags(write=x.flags.writeable)
    return out


def _diagonal(x: Strided, offset: int, axis1: int, axis2: int) -> Strided | None:
    count = diagonal_length(x.shape, offset, axis1, axis2)
    return None if count is None else x.diagonal(axis1, axis2, offset, count)


op(
    "diagonal(x, *, offset=0, axis1=0, axis2=1)",
    types=_diagonal_types,
    ref=_diagonal_ref,
    grad=lambda b, g, y, x, **attrs: [ViewGradient("diagonal", g, (), attrs)],
    view=ViewRule(
        layout=_diagonal,
        python=lambda x, offset, axis1, axis2: x.diagonal(offset, axis1, axis2),
        unview=stored_by("set_diagonal"),
    ),
    examples=(
        example("f32[4,4]"),
        example("f64[3,2,5]", offset=1, axis1=2, axis2=-3),
        example("i64[4,3]", offset=-2),
        example("f32[2,3]", offset=3),
    ),
)
write_row(
    "set_diagonal(x, y, *, offset=0, axis1=0, axis2=1)",
    OPS["diagonal"],
    (
        example("f32[4,4]", "f32[3]", offset=1),
        example("i64[3,2,4]", "i64[2,3]", axis1=0, axis2=2),
    ),
)


# ---------------------------------------------------------------- complex numbers
def _to_pairs(x: Type) -> Type:
    if x.dtype.kind != "c":
        raise ShapeError(f"as_real of {x}, which is not complex")
    return pair_type(x)


def _of_pairs(x: Type) -> Type:
    if x.dtype not in COMPLEX or x.shape[-1:] != (2,):
        raise ShapeError(f"as_complex of {x}: it takes floats with a last axis of 2")
    return complex_type(x)


def _halves(x: Strided) -> Strided | None:
    """None where the pairs do not lie as complex numbers do."""
    strides = [divide(s, 2) for s in x.strides[:-1]]
    offset, known = divide(x.offset, 2), tuple(s for s in strides if s is not None)
    if x.strides[-1:] != (1,) or offset is None or len(known) < len(strides):
        return None
    return x.lying(offset, x.shape[:-1], known)


def _doubled(x: Strided) -> Strided:
    return x.lying(x.offset * 2, (*x.shape, 2), (*(s * 2 for s in x.strides), 1))


def _parts(x: np.ndarray) -> np.ndarray:
    """On the same memory."""
    out: np.ndarray = as_strided(x.real, (*x.shape, 2), (*x.strides, x.real.itemsize))
    return out


def _whole(x: np.ndarray) -> np.ndarray:
    """On the same memory, if the pairs lie as complex numbers do."""
    if x.strides[-1] == x.itemsize:
        return x.view(f"c{2 * x.itemsize}")[..., 0]
    out: np.ndarray = x[..., 0] + 1j * x[..., 1]
    return out


op(
    "as_real(x)",
    types=_to_pairs,
    pairs=unchanged,
    ref=_parts,
    grad=lambda b, g, y, x: [b.as_complex(g)],
    view=ViewRule(
        layout=_doubled,
        python=lambda x: x.as_real(),
        unview=lambda b, base, new: b.as_complex(new),
    ),
)
op(
    "as_complex(x)",
    types=_of_pairs,
    pairs=unchanged,
    ref=_whole,
    grad=lambda b, g, y, x: [b.as_real(g)],
    view=ViewRule(
        layout=_halves,
        python=lambda x: x.as_complex(),
        unview=lambda b, base, new: b.as_real(new),
        copies=True,
    ),
)
