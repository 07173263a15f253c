"""Image resizing, one axis after the other: each pixel of the result is a sum of pixels at
known places, its taps, times weights. Paddle's kernels find places and weights each in its own
precision, so they are asked for them: by images with one pixel that is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from dy2st.capture.adapters.repeated import each_repeated
from dy2st.capture.adapters.table import adapter, dims_of
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from ir.types import F32, F64, Dim, divide

#: factors for which the pixel that Paddle finds in single precision is the exact one
MOST_REPEATED = 16
#: images that a kernel is asked about at a time
CHUNK = 64


@dataclass(frozen=True)
class ResizeTap:
    """For each element of an axis of the result, an element of the operand, and its weight."""

    index: np.ndarray
    weight: np.ndarray


def taps_of(response: Callable[[np.ndarray], np.ndarray], n: int, dtype: Any) -> list[ResizeTap]:
    """The taps of a linear function of `n` elements, `response`, which takes rows of them. A tap
    with the weight zero is one, too: of a pixel that is infinite, it makes NaN."""
    found: list[list[tuple[int, float]]] = []
    for start in range(0, n, CHUNK):
        ones = np.eye(min(CHUNK, n - start), n, start, dtype=dtype)
        weights = response(ones)
        touched = np.isnan(response(np.where(ones == 1, np.nan, 0).astype(dtype)))
        found = found or [[] for _ in range(weights.shape[1])]
        for k, j in zip(*np.nonzero(touched)):
            found[j].append((start + int(k), weights[k, j]))
    most = max(map(len, found))
    full = [_filled(q, most) for q in found]
    return [
        ResizeTap(np.array([q[k][0] for q in full]), np.array([q[k][1] for q in full], dtype))
        for k in range(most)
    ]


def _filled(taps: list[tuple[int, float]], count: int) -> list[tuple[int, float]]:
    """Return `count` taps: the weight of the last one is split."""
    parts = count - len(taps) + 1
    (last, weight) = taps[-1]
    shares = [weight / 2**k for k in range(1, parts)]
    return [*taps[:-1], *((last, q) for q in shares), (last, weight - sum(shares))]


# ---------------------------------------------------------------- adapters
@dataclass(frozen=True)
class ResizedAxis:
    """One axis of `n` elements becomes one of `out`, by a factor if the caller has given one."""

    n: int
    out: int
    factor: float | None

    def taps(
        self, kernel: str, ndim: int, corners: bool, mode: int, dtype: object
    ) -> list[ResizeTap]:
        """Asked with other axes of one element; of two where a kernel would else only copy."""
        more = 2 if self.n == self.out else 1
        others = ndim - 3
        sizes = [more] * others + [self.out]
        scales = [] if self.factor is None else [float(more)] * others + [self.factor]
        dims = [-1] * 3 if scales else [-1] * (3 - len(sizes)) + sizes
        entry = getattr(core.eager.ops, kernel)

        def response(rows: np.ndarray) -> np.ndarray:
            images = paddle.to_tensor(rows.reshape(len(rows), *[1] * (ndim - 2), self.n))
            args = (images, None, None, None, "NCHW", *dims, scales, kernel[:-7], corners, mode)
            out: np.ndarray = entry(*args).numpy()
            return out.reshape(len(rows), -1, self.out)[:, 0]

        return taps_of(response, self.n, dtype)


def resized(
    e: Emitter,
    kernel: str,
    x: object,
    out_size: object = None,
    size_tensor: object = None,
    scale_tensor: object = None,
    data_format: str = "NCHW",
    depth: object = -1,
    height: object = -1,
    width: object = -1,
    scale: Any = (),
    method: str = "",
    align_corners: bool = False,
    align_mode: int = 1,
) -> FakeTensor:
    """By sizes, or by factors, of the axes that are not samples or channels."""
    if not (out_size is size_tensor is scale_tensor is None):
        raise NoRow("a size that is a tensor")
    t, first = e.type(x), 1 if data_format.endswith("C") else 2
    sizes = t.shape[first : first + t.ndim - 2]
    if 0 in sizes:
        raise NoRow("an image without a pixel")
    wanted = dims_of((depth, height, width)[5 - t.ndim :])
    factors = tuple(map(float, scale)) if scale else (None,) * len(sizes)
    asked = list(zip(sizes, wanted, factors))
    if kernel == "nearest_interp" and not align_corners:
        times = [n for q in asked if (n := _repeats(*q))]
        if len(times) == len(asked):
            for d in sizes:
                e.trace.require(d, 1, "an image to be enlarged")
            return each_repeated(e, x, [1] * first + times + [1] * (2 - first))
    axes = [_resizing(*q) for q in asked]
    return along_axes(e, kernel, x, first, axes, (align_corners, align_mode))


def _repeats(n: Dim, wanted: Dim, factor: float | None) -> int | None:
    """Return the number of repeats of each element, if it is an integer."""
    times = factor if factor is not None else divide(wanted, n)
    if not isinstance(times, (int, float)) or times != int(times):
        return None
    return int(times) if 1 <= times <= MOST_REPEATED else None


def along_axes(
    e: Emitter,
    kernel: str,
    x: Any,
    first: int,
    axes: Sequence[ResizedAxis],
    modes: tuple[bool, int],
) -> FakeTensor:
    """Axes that shrink come first, and among those that grow the last one: most elements are then
    read row by row."""
    t, nearest = e.type(x), kernel == "nearest_interp"
    if not nearest and t.dtype not in (F32, F64):
        raise NoRow(f"interpolation of {t}")
    if kernel == "linear_interp" and axes[0].out == 1 != axes[0].n and e.trains(x):
        raise NoRow("one element, whose gradient goes to another one than it comes from")
    if all(q.n == q.out for q in axes):
        return e.assign(x)
    dtype = np.float32 if nearest else t.dtype.numpy
    for k in sorted(range(len(axes)), key=lambda k: -k if axes[k].out > axes[k].n else k - 3):
        with e.trace.pause():
            taps = axes[k].taps(kernel, t.ndim, *modes, dtype)
        x = picked(e, x, first + k, taps[0]) if nearest else weighed(e, x, first + k, taps)
    made: FakeTensor = x
    return made


def _resizing(n: Dim, wanted: Dim, factor: float | None) -> ResizedAxis:
    if not isinstance(n, int) or not isinstance(wanted, int) or n == 0:
        raise NoRow(f"{n} pixels as {wanted}")
    out = wanted if factor is None else int(np.float32(n) * np.float32(factor))
    if out < 1:
        raise NoRow(f"{out} pixels")
    return ResizedAxis(n, out, factor)


def picked(e: Emitter, x: object, axis: int, tap: ResizeTap) -> Any:
    return e.gather_nd(x, paddle.to_tensor(tap.index), axis=axis)


def weighed(e: Emitter, x: object, axis: int, taps: list[ResizeTap]) -> Any:
    """The sum over the taps along an axis."""
    total = None
    row = tuple(-1 if k == axis else 1 for k in range(e.type(x).ndim))
    for tap in taps:
        weight = paddle.to_tensor(tap.weight.reshape(row))
        part = e.multiply(picked(e, x, axis, tap), weight)
        total = part if total is None else e.add(total, part)
    return total


def _declare(kernel: str) -> None:
    adapter(kernel)(lambda e, x, *args, **named: resized(e, kernel, x, *args, **named))


for _name in ("nearest", "linear", "bilinear", "trilinear", "bicubic"):
    _declare(f"{_name}_interp")
