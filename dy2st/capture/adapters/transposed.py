"""Transposed convolutions as convolutions.

Result `m * s + r` meets the taps `r, r + s, ...` of the weights: each phase r of the stride s is a
convolution with these taps, turned around. One convolution gives all phases as channels, which are
then interleaved:

    y[m * s + r] = sum over t of x[m - t] * w[r + t * s]
"""

from __future__ import annotations

from typing import Any

from dy2st.capture.adapters.images import (
    channels_first,
    image,
    padding_of,
    pair_of,
    taps_of,
)
from dy2st.capture.adapters.table import adapter, int_of
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor


@adapter("conv2d_transpose", "depthwise_conv2d_transpose")
@channels_first
def conv2d_transpose(
    e: Emitter,
    x: object,
    weight: object,
    strides: object = (1, 1),
    paddings: object = (0, 0),
    output_padding: object = (),
    output_size: object = None,
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: object = (1, 1),
    data_format: str = "NCHW",
) -> FakeTensor:
    sizes, taps, stride = image(e, x, data_format)[2:], taps_of(e, weight), pair_of(strides)
    if padding_algorithm == "SAME" or pair_of(dilations) != (1, 1) or not _is_empty(output_size):
        raise NoRow("a transposed convolution with SAME, dilation or an output size")
    if 0 in e.type(x).shape:
        raise NoRow("a transposed convolution of nothing")
    padding = padding_of(paddings, padding_algorithm, sizes, taps, stride)
    more = (0, 0) if _is_empty(output_padding) else pair_of(output_padding)
    phases, reach = _phases(e, weight, taps, stride, int_of(groups))
    wide = tuple((k - 1, k - 1) for k in reach)
    y = e.conv(x, phases, stride=(1, 1), padding=wide, dilation=(1, 1), groups=int_of(groups))
    out = _interleaved(e, y, stride, int_of(groups))
    for k in (0, 1):
        low, high = padding[k]
        length = (sizes[k] - 1) * stride[k] + taps[k] - low - high + more[k]
        room = e.type(out).shape[2 + k] - low - length
        if isinstance(room, int) and room < 0:
            shape = list(e.type(out).shape)
            shape[2 + k] = -room
            out = e.concat(out, e.full(0.0, e.type(out).dtype, shape), axis=2 + k)
        if low or room != 0:
            out = e.slice(out, axis=2 + k, start=low, length=length)
    return out


def _is_empty(sizes: object) -> bool:
    return sizes is None or (
        isinstance(sizes, (list, tuple)) and all(int_of(q) == 0 for q in sizes)
    )


def _phases(
    e: Emitter, weight: object, taps: tuple[int, int], stride: tuple[int, int], groups: int
) -> tuple[object, tuple[int, int]]:
    """Weights with the phases as filters, `[groups * sy * sx * O, C / groups, ky, kx]`, and their
    taps."""
    w, t = weight, e.type(weight)
    channels, filters = t.shape[:2]
    if not isinstance(channels, int) or channels % groups:
        raise NoRow(f"{channels} channels in {groups} groups")
    reach = (-(-taps[0] // stride[0]), -(-taps[1] // stride[1]))
    for k in (0, 1):
        shape = list(e.type(w).shape)
        shape[2 + k] = reach[k] * stride[k] - taps[k]
        if shape[2 + k]:
            w = e.concat(w, e.full(0.0, t.dtype, shape), axis=2 + k)
    part = channels // groups
    (ky, kx), (sy, sx) = reach, stride
    w = e.reshape(w, shape=(groups, part, filters, ky, sy, kx, sx))
    for axis, n in ((3, ky), (5, kx)):
        if n > 1:
            w = e.slice(w, axis=axis, start=n - 1, length=n, step=-1)
    w = e.transpose(w, perm=(0, 4, 6, 2, 1, 3, 5))
    return e.reshape(w, shape=(groups * sy * sx * filters, part, ky, kx)), reach


def _interleaved(e: Emitter, y: object, stride: tuple[int, int], groups: int) -> Any:
    """`[N, groups * sy * sx * O, H, W]` as `[N, groups * O, H * sy, W * sx]`."""
    if stride == (1, 1):
        return y
    (sy, sx), (n, channels, h, w) = stride, e.type(y).shape
    each = channels // (groups * sy * sx)
    y = e.reshape(y, shape=(n, groups, sy, sx, each, h, w))
    y = e.transpose(y, perm=(0, 1, 4, 5, 2, 6, 3))
    return e.reshape(y, shape=(n, groups * each, h * sy, w * sx))


__all__ = ["conv2d_transpose"]
