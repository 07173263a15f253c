"""Adapters of what vision models consist of: convolutions, pooling, batch norm.

Images whose channels come last, half precision and what else has no row stay foreign.
"""

from __future__ import annotations

from typing import Any

from dy2st.capture.adapters.table import adapter, int_of
from dy2st.capture.emitter import Emitter, NoRow
from dy2st.capture.fake import FakeTensor
from ir.ops.conv import Padding
from ir.types import FLOATS, Dim


def image(e: Emitter, x: Any, layout: str) -> tuple[Dim, ...]:
    """The shape of an image with channels before pixels, of a type that has rows."""
    t = e.type(x)
    if layout not in ("NCHW", "AnyLayout") or t.ndim != 4 or t.dtype not in FLOATS:
        raise NoRow(f"{t} as {layout}")
    return t.shape


def pair_of(numbers: Any) -> tuple[int, int]:
    if isinstance(numbers, (list, tuple)):
        found = [int_of(q) for q in numbers]
        return (found[0], found[-1]) if len(found) <= 2 else (found[0], found[1])
    return int_of(numbers), int_of(numbers)


def padding_of(
    padding: Any, how: str, sizes: tuple[Dim, ...], taps: tuple[int, int], stride: tuple[int, int]
) -> Padding:
    """As Paddle resolves it: one number or two for an axis, or by name."""
    if how == "VALID":
        return ((0, 0), (0, 0))
    if how == "SAME":
        first, second = (same(n, k, s) for n, k, s in zip(sizes, taps, stride))
        return first, second
    given = [int_of(q) for q in padding]
    if len(given) == 4:
        return (given[0], given[1]), (given[2], given[3])
    if len(given) not in (1, 2):
        raise NoRow(f"padding {given}")
    return (given[0], given[0]), (given[-1], given[-1])


def same(n: Dim, taps: int, stride: int) -> tuple[int, int]:
    """Padding such that there is one window for every `stride` pixels."""
    if isinstance(n, int):
        total = max((-(-n // stride) - 1) * stride + taps - n, 0)
    elif stride == 1:
        total = taps - 1
    else:
        raise NoRow(f"SAME for {n} pixels in steps of {stride}")
    return total // 2, total - total // 2


def taps_of(e: Emitter, w: Any) -> tuple[int, int]:
    found = e.type(w).shape[2:]
    if len(found) != 2 or not all(isinstance(d, int) for d in found):
        raise NoRow(f"weights {e.type(w)}")
    return int(found[0]), int(found[1])


@adapter("conv2d")
def conv2d(
    e: Emitter,
    x: Any,
    weight: Any,
    strides: Any = (1, 1),
    paddings: Any = (0, 0),
    padding_algorithm: str = "EXPLICIT",
    dilations: Any = (1, 1),
    groups: int = 1,
    data_format: str = "NCHW",
) -> FakeTensor:
    sizes, taps, stride = image(e, x, data_format)[2:], taps_of(e, weight), pair_of(strides)
    padding = padding_of(paddings, padding_algorithm, sizes, taps, stride)
    dilation = (1, 1) if padding_algorithm == "SAME" else pair_of(dilations)
    return e.conv(
        x, weight, stride=stride, padding=padding, dilation=dilation, groups=int_of(groups)
    )


@adapter("depthwise_conv2d")
def depthwise_conv2d(
    e: Emitter,
    x: Any,
    weight: Any,
    strides: Any = (1, 1),
    paddings: Any = (0, 0),
    padding_algorithm: str = "EXPLICIT",
    groups: int = 1,
    dilations: Any = (1, 1),
    data_format: str = "NCHW",
    *rest: Any,
) -> FakeTensor:
    return conv2d(
        e, x, weight, strides, paddings, padding_algorithm, dilations, groups, data_format
    )
