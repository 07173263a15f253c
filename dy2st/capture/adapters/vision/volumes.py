"""Convolutions and pooling of volumes, `[N, C, D, H, W]`, by those of planes.

The taps along the depth become channels: the frames that one result sees lie side by side, and a
convolution of planes sums them up. Pooling goes over the planes first, and over the depth then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dy2st.capture.adapters.images import padded, pair_of, reaching, same, unequal, windows_of
from dy2st.capture.adapters.table import adapter, int_of
from dy2st.capture.adapters.transposed import conv2d_transpose
from dy2st.capture.indexing.selection import counting
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from ir.ops.images import LOWEST
from ir.types import FLOATS, I32, I64, Dim, divide

Ends: TypeAlias = tuple[int, int]
PLAIN: Ends = (0, 0)


def volume(e: Emitter, x: object, layout: str) -> tuple[Dim, ...]:
    """The depth, height and width of a volume of a type that has rows."""
    t = e.type(x)
    if layout not in ("NCDHW", "NCHW") or t.ndim != 5 or t.dtype not in FLOATS or 0 in t.shape:
        raise NoRow(f"{t} as {layout}")
    return t.shape[2:]


def triple(numbers: object) -> list[int]:
    """A number for each axis of a volume; one may stand for all."""
    found = [int_of(q) for q in (numbers if isinstance(numbers, (list, tuple)) else [numbers])]
    return found * 3 if len(found) == 1 else found


def ends_of(
    padding: object, how: str, sizes: Sequence[Dim], taps: Sequence[int], stride: Sequence[int]
) -> list[Ends]:
    """Padding before and behind each axis: a number for both, a pair, or by name."""
    if how == "SAME":
        return [same(n, k, s) for n, k, s in zip(sizes, taps, stride)]
    given = [0] if how == "VALID" else triple(padding)
    if len(given) == 6:
        return [(given[k], given[k + 1]) for k in (0, 2, 4)]
    return [(q, q) for q in triple(given)]


def frames(
    e: Emitter, x: object, ends: Ends, taps: int, stride: int, dilation: int
) -> tuple[FakeTensor, Dim]:
    """`[N * windows, C * taps, H, W]`, and the number of windows along the depth."""
    n, c, _, h, w = e.type(x).shape
    x = padded(e, x, 2, ends, "constant", 0.0)
    count = windows_of(e, e.type(x).shape[2], taps, stride, dilation)
    turned = e.transpose(x, perm=(0, 2, 1, 3, 4))
    cuts = [
        e.slice(turned, axis=1, start=k * dilation, length=count, step=stride) for k in range(taps)
    ]
    stacked = e.assign(cuts[0]) if taps == 1 else e.stack(*cuts, axis=3)
    return e.reshape(stacked, shape=(n * count, c * taps, h, w)), count


@adapter("conv3d")
def conv3d(
    e: Emitter,
    x: object,
    weight: object,
    strides: object = (1, 1, 1),
    paddings: object = (0, 0, 0),
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: object = (1, 1, 1),
    data_format: str = "NCDHW",
) -> FakeTensor:
    sizes, (filters, part, *taps) = volume(e, x, data_format), e.type(weight).shape
    if not all(isinstance(k, int) for k in taps) or len(taps) != 3:
        raise NoRow(f"weights {e.type(weight)}")
    stride, how = triple(strides), padding_algorithm
    dilation = [1, 1, 1] if how == "SAME" else triple(dilations)
    depth, *plane = ends_of(paddings, how, sizes, taps, stride)
    images, count = frames(e, x, depth, taps[0], stride[0], dilation[0])
    w = e.reshape(weight, shape=(filters, part * taps[0], *taps[1:]))
    attrs = {"stride": tuple(stride[1:]), "dilation": tuple(dilation[1:]), "groups": int_of(groups)}
    return volumes(e, e.conv(images, w, padding=tuple(plane), **attrs), count)


def volumes(e: Emitter, y: object, count: Dim) -> FakeTensor:
    """`[N * count, C, H, W]` as `[N, C, count, H, W]`."""
    n, *rest = e.type(y).shape
    images = divide(n, count)
    if images is None:
        raise NoRow(f"{n} images of volumes with {count} each")
    apart = e.reshape(y, shape=(images, count, *rest))
    return e.assign(e.transpose(apart, perm=(0, 2, 1, 3, 4)))


@adapter("conv3d_transpose")
def conv3d_transpose(
    e: Emitter,
    x: object,
    weight: object,
    strides: object = (1, 1, 1),
    paddings: object = (0, 0, 0),
    output_padding: object = (),
    output_size: Sequence[int] | None = None,
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: object = (1, 1, 1),
    data_format: str = "NCDHW",
) -> FakeTensor:
    """Along the depth by phases, as `conv2d_transpose` along both axes: result `m * s + r` is the
    sum over t of frame `m - t` by the taps `r + t * s`."""
    sizes, (channels, filters, *taps) = volume(e, x, data_format), e.type(weight).shape
    stride, more = triple(strides), triple(output_padding or [0])
    if padding_algorithm == "SAME" or triple(dilations) != [1, 1, 1] or int_of(groups) != 1:
        raise NoRow("a transposed convolution of volumes with SAME, dilation or groups")
    if any(int_of(q) for q in output_size or ()) or not isinstance(channels, int):
        raise NoRow("a transposed convolution with an output size")
    (low, high), *plane = ends_of(paddings, padding_algorithm, sizes, taps, stride)
    step, reach = stride[0], -(-taps[0] // stride[0])
    w = padded(e, weight, 2, (0, reach * step - taps[0]), "constant", 0.0)
    w = e.reshape(w, shape=(channels, filters, reach, step, *taps[1:]))
    if reach > 1:
        w = e.slice(w, axis=2, start=reach - 1, length=reach, step=-1)
    w = e.transpose(w, perm=(0, 2, 3, 1, 4, 5))
    w = e.reshape(e.assign(w), shape=(channels * reach, step * filters, *taps[1:]))
    images, count = frames(e, x, (reach - 1, reach - 1), reach, 1, 1)
    around = [q for ends in plane for q in ends]
    y = conv2d_transpose(e, images, w, stride[1:], around, more[1:] if any(more) else ())
    rows, _, h, wide = e.type(y).shape
    batch = divide(rows, count)
    if batch is None:
        raise NoRow(f"{rows} images of volumes with {count} each")
    y = e.reshape(y, shape=(batch, count, step, filters, h, wide))
    y = e.assign(e.transpose(y, perm=(0, 3, 1, 2, 4, 5)))
    y = e.reshape(y, shape=(batch, filters, count * step, h, wide))
    length = (sizes[0] - 1) * step + taps[0] - low - high + more[0]
    missing = low + length - count * step
    if not isinstance(missing, int):
        raise NoRow(f"a depth of {sizes[0]}")
    y = padded(e, y, 2, (0, max(missing, 0)), "constant", 0.0)
    return e.slice(y, axis=2, start=low, length=length) if low or missing != 0 else y


# ---------------------------------------------------------------- pooling
@adapter("pool3d")
def pool3d(
    e: Emitter,
    x: object,
    kernel_size: object,
    strides: object,
    paddings: object,
    ceil_mode: bool,
    exclusive: bool,
    data_format: str,
    pooling_type: str,
    global_pooling: bool,
    adaptive: bool,
    padding_algorithm: str = "EXPLICIT",
) -> FakeTensor:
    sizes, taps, stride = volume(e, x, data_format), triple(kernel_size), triple(strides)
    whole, dtype = [d for d in sizes if isinstance(d, int)], e.type(x).dtype
    if len(whole) != 3:
        raise NoRow("a volume of named sizes")
    if global_pooling or (adaptive and taps == [1, 1, 1]):
        taps, stride, paddings, ceil_mode, adaptive = whole, [1, 1, 1], [0], False, False
    if adaptive and any(d % n for d, n in zip(whole, taps)):
        if pooling_type != "avg" or sum(taps) > UNEQUAL:
            raise NoRow(f"{taps} windows of different sizes")
        ones = e.full(1.0, dtype, (1, 1, *whole))
        return e.divide(*(unequal(e, v, taps) for v in (x, ones)))
    if adaptive:
        taps = stride = [d // n for d, n in zip(whole, taps)]
        paddings, ceil_mode = [0], False
    given = ends_of(paddings, padding_algorithm, sizes, taps, stride)
    ends = reached(whole, taps, stride, given) if ceil_mode else given
    if pooling_type == "max":
        return pooled(e, x, e.max_pool, taps, stride, ends)
    total = pooled(e, x, e.sum_pool, taps, stride, ends)
    if ends != given and not exclusive:
        raise NoRow("ceil_mode with padding that counts")
    if exclusive and any(p for pair in ends for p in pair):
        ones = e.full(1.0, dtype, (1, 1, *whole))
        return e.divide(total, pooled(e, ones, e.sum_pool, taps, stride, ends))
    return e.divide(total, e.full(float(math.prod(taps)), dtype))


#: windows along all axes that are summed up one by one
UNEQUAL = 32


def reached(
    sizes: Sequence[int], taps: Sequence[int], stride: Sequence[int], given: Sequence[Ends]
) -> list[Ends]:
    out = []
    for n, k, s, pair in zip(sizes, taps, stride, given):
        low, high = reaching((n, n), (k, k), (s, s), (pair, pair))[0]
        out.append((int_of(low), int_of(high)))
    return out


def pooled(
    e: Emitter,
    x: object,
    pool: Callable[..., FakeTensor],
    taps: Sequence[int],
    stride: Sequence[int],
    ends: Sequence[Ends],
) -> FakeTensor:
    """Over the planes, then over the depth: among equal elements the first one stays the first."""
    n, c, d, h, w = e.type(x).shape
    attrs = {"taps": tuple(taps[1:]), "stride": tuple(stride[1:]), "padding": tuple(ends[1:])}
    y = pool(e.reshape(x, shape=(n, c * d, h, w)), **attrs)
    h, w = e.type(y).shape[2:]
    attrs = {"taps": (taps[0], 1), "stride": (stride[0], 1), "padding": (ends[0], PLAIN)}
    y = pool(e.reshape(y, shape=(n, c, d, h * w)), **attrs)
    return e.reshape(y, shape=(n, c, e.type(y).shape[2], h, w))


# ---------------------------------------------------------------- places of the largest
@adapter("max_pool2d_with_index")
def max_pool2d_with_index(
    e: Emitter,
    x: object,
    kernel_size: object,
    strides: object = (1, 1),
    paddings: object = (0, 0),
    global_pooling: bool = False,
    adaptive: bool = False,
    ceil_mode: bool = False,
) -> tuple[FakeTensor, FakeTensor]:
    """The largest pixel of each window, and its number in the plane."""
    t = e.type(x)
    if t.ndim != 4 or t.dtype not in FLOATS or not all(isinstance(d, int) for d in t.shape[1:]):
        raise NoRow(f"pooling of {t}")
    n, c, h, w = t.shape
    sizes, taps, stride, pads = (
        (h, w),
        *(list(pair_of(q)) for q in (kernel_size, strides, paddings)),
    )
    if global_pooling:
        taps, stride, pads = list(sizes), [1, 1], [0, 0]  # type: ignore[arg-type]
    elif adaptive:
        if any(d % k for d, k in zip(sizes, taps)):  # type: ignore[operator]
            raise NoRow(f"{taps} windows of different sizes")
        taps = stride = [d // k for d, k in zip(sizes, taps)]  # type: ignore[operator,misc]
        pads = [0, 0]
    if ceil_mode and any((d + 2 * p - k) % s for d, p, k, s in zip(sizes, pads, taps, stride)):
        raise NoRow("ceil_mode")
    ends = ((pads[0], pads[0]), (pads[1], pads[1]))
    out = e.max_pool(x, taps=tuple(taps), stride=tuple(stride), padding=ends)
    return out, places(e, x, e.type(out).shape, taps, stride, pads)


def places(
    e: Emitter,
    x: object,
    shape: Sequence[Dim],
    taps: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
) -> FakeTensor:
    """The number in its plane of the first largest pixel of each window."""
    width, seen = e.type(x).shape[3], x
    for k in (0, 1):
        seen = padded(e, seen, 2 + k, (pads[k], pads[k]), "constant", LOWEST)
    for k in (0, 1):
        seen = e.unfold(seen, axis=2 + k, size=taps[k], step=stride[k])
    at = e.argmax(e.reshape(seen, shape=(*shape, taps[0] * taps[1])), axis=4, dtype=I64)
    row, column = (f(at, e.full(taps[1], I64)) for f in (e.floor_divide, e.remainder))
    starts = [e.scale(counting(e, n), scale=s, bias=-p) for n, s, p in zip(shape[2:], stride, pads)]
    row = e.add(row, e.reshape(starts[0], shape=(shape[2], 1)))
    column = e.add(column, starts[1])
    return e.cast_to(e.add(e.scale(row, scale=width), column), I32)


__all__ = ["conv3d", "conv3d_transpose", "max_pool2d_with_index", "pool3d"]
