"""Grid sampling: pixels at data-dependent positions, between pixels or beyond the edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from dy2st.capture.adapters.table import adapter, dims_of
from dy2st.capture.indexing.selection import counting
from dy2st.trace.emitter import Emitter, NoRow, detached
from dy2st.trace.fake_tensor import FakeTensor
from ir.types import F32, F64, I64

#: pixels of an image that single precision counts
COUNTED = 1 << 24


@dataclass(frozen=True)
class NeighborPixel:
    """One of the pixels beside each place along an axis: its number, its weight, and whether it is
    there."""

    pixel: FakeTensor
    weight: FakeTensor | None
    there: FakeTensor


@adapter("grid_sample")
def grid_sample(
    e: Emitter,
    x: object,
    grid: object,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Any:
    """`[N, C, h, w]` at the places `[N, h, w, 2]` of images; -1 and 1 are the edges."""
    t, places = e.type(x), e.type(grid)
    if t.ndim != 4 or t.dtype not in (F32, F64) or places.dtype != t.dtype:
        raise NoRow(f"grid_sample of {t} at {places}")
    sizes = [d for d in t.shape[2:] if isinstance(d, int)]
    if len(sizes) < 2 or not 0 < sizes[0] * sizes[1] < COUNTED:
        raise NoRow(f"images {t}")
    if mode == "nearest" and e.trains(grid):
        raise NoRow("the gradient of places that are rounded")
    axes = []
    for k, size in ((1, sizes[0]), (0, sizes[1])):
        own = e.index(grid, axis=3, index=k)
        at = placed(e, own, size, padding_mode, bool(align_corners))
        axes.append(beside(e, at, size, mode))
    total = None
    for row in axes[0]:
        for column in axes[1]:
            part = corner(e, x, row, column)
            total = part if total is None else e.add(total, part)
    return total


def fixed(e: Emitter, x: object) -> FakeTensor:
    made: FakeTensor = e.trace.fake(detached(e.trace, e.value(x)), True)
    return made


def placed(e: Emitter, at: Any, size: int, padding: str, corners: bool) -> Any:
    """Places in pixels, brought back from beyond the edges if `padding` says so. A place on an
    edge belongs to the image."""
    d = e.type(at).dtype
    number = lambda v: e.full(float(v), d)  # noqa: E731
    half, last = 0.5 * (size - 1 if corners else size), number(size - 1)
    at = e.multiply(e.add(at, number(1)), number(half))
    at = at if corners else e.subtract(at, number(0.5))
    if padding == "reflection":
        at = reflected(e, at, size, corners)
    if padding == "border" or padding == "reflection" and not corners:
        within = e.logical_and(e.greater_equal(at, number(0)), e.less_equal(at, last))
        at = e.where(within, at, fixed(e, e.minimum(e.maximum(at, number(0)), last)))
    return at


def reflected(e: Emitter, at: Any, size: int, corners: bool) -> Any:
    """Places mirrored at the edges, which are the centres of pixels or half a pixel beyond."""
    d = e.type(at).dtype
    shift, period = (0.0, 2.0 * (size - 1)) if corners else (0.5, 2.0 * size)
    if period == 0:
        return e.multiply(at, e.full(0.0, d))
    there, twice, zero = e.full(shift, d), e.full(period, d), e.full(0.0, d)
    at = e.add(at, there) if shift else at
    away = e.where(e.less_than(at, zero), e.neg(at), at)
    rest = e.subtract(away, fixed(e, e.multiply(e.floor(e.divide(away, twice)), twice)))
    back = e.subtract(twice, rest)
    found = e.where(e.greater_than(rest, back), back, rest)
    return e.subtract(found, there) if shift else found


def beside(e: Emitter, at: object, size: int, mode: str) -> list[NeighborPixel]:
    """The pixels that have a part in each place along an axis."""
    if mode == "nearest":
        return [side(e, e.round(at), None, size)]
    one = e.full(1.0, e.type(at).dtype)
    low = fixed(e, e.floor(at))
    high = e.add(low, one)
    return [
        side(e, low, e.subtract(high, at), size),
        side(e, high, e.subtract(at, low), size),
    ]


def side(e: Emitter, pixel: Any, weight: FakeTensor | None, size: int) -> NeighborPixel:
    zero, last = (e.full(float(q), e.type(pixel).dtype) for q in (0, size - 1))
    there = e.logical_and(e.greater_equal(pixel, zero), e.less_equal(pixel, last))
    return NeighborPixel(pixel, weight, there)


def corner(e: Emitter, x: object, row: NeighborPixel, column: NeighborPixel) -> Any:
    """The pixels that two sides name, times their weights."""
    t, (n, h, w) = e.type(x), e.type(row.pixel).shape
    c, (height, width) = t.shape[1], t.shape[2:]
    there = e.logical_and(row.there, column.there)
    flat = e.add(e.multiply(row.pixel, e.full(float(width), t.dtype)), column.pixel)
    pixel = e.cast(e.where(there, flat, e.full(0.0, t.dtype)), dtype=I64)
    pixel = e.reshape(pixel, shape=(n, 1, h * w))
    wide = (n, c, h * w)
    samples = e.reshape(counting(e, n), shape=(n, 1, 1))
    channels = e.reshape(counting(e, c), shape=(1, c, 1))
    index = [e.expand(q, shape=wide) for q in (samples, channels, pixel)]
    planes = e.reshape(x, shape=(n, c, height * width))
    found = e.reshape(e.gather_nd(planes, *index, axis=0), shape=(n, c, h, w))
    alone = (n, 1, h, w)
    found = e.where(e.reshape(there, shape=alone), found, e.full(0.0, t.dtype))
    for q in (column.weight, row.weight):
        found = found if q is None else e.multiply(found, e.reshape(q, shape=alone))
    return found


@adapter("affine_grid")
def affine_grid(e: Emitter, theta: object, shape: object, align_corners: bool = True) -> Any:
    """The places of the pixels of images under an affine map; Paddle says where they are under the
    identity."""
    t, dims = e.type(theta), [d for d in dims_of(shape) if isinstance(d, int)]
    if t.dtype not in (F32, F64) or t.ndim != 3 or len(dims) != 4:
        raise NoRow(f"affine_grid of {t}")
    h, w = dims[2:]
    with e.trace.pause():
        same = paddle.to_tensor(np.eye(2, 3, dtype=t.dtype.numpy)[None])
        found = core.eager.ops.affine_grid(same, [1, 1, h, w], align_corners).numpy()
    places = np.concatenate([found[0], np.ones_like(found[0, :, :, :1])], axis=2)
    out = e.matmul(paddle.to_tensor(places.reshape(-1, 3)), theta, trans_y=True)
    return e.reshape(out, shape=(t.shape[0], h, w, 2))
