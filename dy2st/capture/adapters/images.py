"""Adapters of convolutions, pooling and batch norm.

Images with channels last are turned around, and results turned back. Half precision and other cases
without a row stay foreign.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dy2st.capture.adapters.table import adapter, dims_of, int_of
from dy2st.capture.detached_writes import write
from dy2st.trace.emitter import Emitter, NoRow, detached
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime
from ir.opdef import collecting
from ir.ops.images import Padding, windows
from ir.types import FLOATS, Dim, Type, divide, floor_divide, product


def image(e: Emitter, x: object, layout: str) -> tuple[Dim, ...]:
    """The shape of an image with channels before pixels, of a type that has rows."""
    t = e.type(x)
    if layout not in ("NCHW", "AnyLayout") or t.ndim != 4 or t.dtype not in FLOATS:
        raise NoRow(f"{t} as {layout}")
    return t.shape


def channels_first(convolve: Callable[..., FakeTensor]) -> Callable[..., FakeTensor]:
    """`convolve` for images with channels last, too."""

    @functools.wraps(convolve)
    def call(e: Emitter, x: object, *args: object, **named: object) -> FakeTensor:
        given = inspect.signature(convolve).bind(e, x, *args, **named)
        given.apply_defaults()
        if given.arguments["data_format"] != "NHWC" or e.type(x).ndim != 4:
            return convolve(*given.args, **given.kwargs)
        given.arguments.update(x=e.transpose(x, perm=(0, 3, 1, 2)), data_format="NCHW")
        out = convolve(*given.args, **given.kwargs)
        return e.assign(e.transpose(out, perm=(0, 2, 3, 1)))

    return call


def pair_of(numbers: object) -> tuple[int, int]:
    if isinstance(numbers, (list, tuple)):
        found = [int_of(q) for q in numbers]
        return (found[0], found[-1]) if len(found) <= 2 else (found[0], found[1])
    return int_of(numbers), int_of(numbers)


def padding_of(
    padding: Any,
    how: str,
    sizes: tuple[Dim, ...],
    taps: tuple[int, int],
    stride: tuple[int, int],
) -> Padding:
    """Resolve padding like Paddle: one number or two for an axis, or by name."""
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
    elif divide(n, stride) is not None:
        total = max(taps - stride, 0)
    else:
        raise NoRow(f"SAME for {n} pixels in steps of {stride}")
    return total // 2, total - total // 2


def windows_of(e: Emitter, n: Dim, taps: int, stride: int, dilation: int) -> Dim:
    """Return the number of windows along an axis, of which there is one in every call."""
    with collecting() as wanted:
        count = windows(n, taps, stride, (0, 0), dilation)
    for q in wanted:
        e.trace.require(q.left - q.right, 0, "one window")
    return count


def taps_of(e: Emitter, w: object) -> tuple[int, int]:
    found = e.type(w).shape[2:]
    if len(found) != 2 or not all(isinstance(d, int) for d in found):
        raise NoRow(f"weights {e.type(w)}")
    return int(found[0]), int(found[1])


@adapter("conv2d")
@channels_first
def conv2d(
    e: Emitter,
    x: object,
    weight: object,
    strides: object = (1, 1),
    paddings: object = (0, 0),
    padding_algorithm: str = "EXPLICIT",
    dilations: object = (1, 1),
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
    e: Emitter, x: object, weight: object, strides: object, paddings: object, *rest: object
) -> FakeTensor:
    """Here groups come before dilations, and options of the kernel last."""
    how, groups, dilations, layout = rest[:4]
    return conv2d(e, x, weight, strides, paddings, how, dilations, groups, layout)


# ---------------------------------------------------------------- padding
@adapter("pad3d")
def pad3d(
    e: Emitter,
    x: object,
    paddings: object,
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCDHW",
) -> object:
    """Paddle counts from the last axis: left, right, top, bottom, front, back."""
    if not isinstance(paddings, (list, tuple)) or mode not in PADDED or e.type(x).ndim != 5:
        raise NoRow(f"padding of {e.type(x)} by {mode}")
    last = 4 if data_format == "NCDHW" else 3
    out = x
    for k in range(3):
        low, high = dims_of(paddings[2 * k : 2 * k + 2])
        out = padded(e, out, last - k, (low, high), mode, pad_value)
    return e.assign(x) if out is x else out


@adapter("pad")
def pad(e: Emitter, x: object, paddings: object, pad_value: object = 0.0) -> object:
    """The first axis first."""
    if not isinstance(paddings, (list, tuple)) or not isinstance(pad_value, (int, float)):
        raise NoRow("padding by tensors")
    out = x
    for axis in range(e.type(x).ndim):
        low, high = dims_of(paddings[2 * axis : 2 * axis + 2])
        out = padded(e, out, axis, (low, high), "constant", pad_value)
    return e.assign(x) if out is x else out


PADDED = ("constant", "replicate", "reflect", "circular")


def padded(e: Emitter, x: object, axis: int, ends: tuple[Dim, Dim], mode: str, value: float) -> Any:
    """With so many elements before and behind an axis."""
    low, high = ends
    if any(isinstance(q, int) and q < 0 for q in ends):
        raise NoRow("padding that leaves out elements")
    for q in ends:
        e.trace.require(q, 0, "padding")
    if low == high == 0:
        return x
    before = [edge(e, x, axis, low, False, mode, value)] if low else []
    behind = [edge(e, x, axis, high, True, mode, value)] if high else []
    return e.concat(*before, x, *behind, axis=axis)


def edge(
    e: Emitter, x: object, axis: int, count: Dim, last: bool, mode: str, value: float
) -> FakeTensor:
    """Return a number of padding elements before an axis, or behind it."""
    t = e.type(x)
    n, shape = t.shape[axis], (*t.shape[:axis], count, *t.shape[axis + 1 :])
    if mode == "constant":
        return e.full(value if t.dtype.kind == "f" else int(value), t.dtype, shape)
    if mode == "reflect":
        start = n - 2 if last else count
        return e.slice(x, axis=axis, start=start, length=count, step=-1)
    if mode == "circular":
        return e.slice(x, axis=axis, start=0 if last else n - count, length=count)
    one = e.slice(x, axis=axis, start=n - 1 if last else 0, length=1)
    return e.expand(one, shape=shape)


# ---------------------------------------------------------------- pooling
@adapter("pool2d")
@channels_first
def pool2d(
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
    sizes = image(e, x, data_format)[2:]
    if isinstance(kernel_size, FakeTensor):
        raise NoRow("a window that is a tensor")
    taps, stride = pair_of(kernel_size), pair_of(strides)
    if global_pooling or (adaptive and taps == (1, 1)):
        return whole_plane(e, x, pooling_type)
    if adaptive:
        return adapted(e, x, taps, pooling_type)
    given = padding_of(paddings, padding_algorithm, sizes, taps, stride)
    padding = reaching(sizes, taps, stride, given) if ceil_mode else given
    attrs = {"taps": taps, "stride": stride, "padding": padding}
    if pooling_type == "max":
        return e.max_pool(x, **attrs)
    total, dtype = e.sum_pool(x, **attrs), e.type(x).dtype
    if exclusive and any(p for pair in padding for p in pair):
        ones = e.full(1.0, dtype, (1, 1, *sizes))
        return e.divide(total, e.sum_pool(ones, **attrs))
    if padding != given:
        wide = (n + low + high for n, (low, high) in zip(sizes, given))
        beyond = tuple((0, p[1] - q[1]) for p, q in zip(padding, given))
        ones = e.full(1.0, dtype, (1, 1, *wide))
        return e.divide(total, e.sum_pool(ones, **{**attrs, "padding": beyond}))
    return e.divide(total, e.full(float(taps[0] * taps[1]), dtype))


def reaching(
    sizes: tuple[Dim, ...], taps: tuple[int, int], stride: tuple[int, int], padding: Padding
) -> Padding:
    """Padding with which the last window, which reaches beyond the given one, is there as well."""
    out = []
    for n, k, s, (low, high) in zip(sizes, taps, stride, padding):
        if not (isinstance(low, int) and isinstance(high, int)):
            raise NoRow(f"ceil_mode over {n} pixels")
        if not isinstance(n, int):
            if s > k - high:
                raise NoRow(f"a window without a pixel, for some number {n} of them")
            out.append((low, high + s - 1))
            continue
        last = -(-(n + low + high - k) // s) * s
        if last >= n + low:
            raise NoRow("a window without a pixel")
        out.append((low, max(high, last + k - n - low)))
    return out[0], out[1]


def whole_plane(e: Emitter, x: object, how: str) -> FakeTensor:
    sizes = e.type(x).shape[2:]
    if how == "avg":
        return e.mean(x, axes=(2, 3), keepdim=True)
    if not all(isinstance(d, int) for d in sizes):
        raise NoRow("the largest of a plane of named sizes")
    return e.max_pool(x, taps=sizes, stride=(1, 1), padding=((0, 0), (0, 0)))


#: windows along both axes that are summed up one by one
UNEQUAL = 32


def adapted(e: Emitter, x: object, count: tuple[int, int], how: str) -> FakeTensor:
    """Adaptive pooling: a number of windows along each axis, which may differ in size and overlap
    by a pixel."""
    sizes, plain = e.type(x).shape[2:], ((0, 0), (0, 0))
    if how != "avg":
        raise NoRow(f"{count} windows over {sizes}")
    if all(isinstance(d, int) and d % n == 0 for d, n in zip(sizes, count)):
        taps = tuple(int_of(floor_divide(d, n)) for d, n in zip(sizes, count))
        total = e.sum_pool(x, taps=taps, stride=taps, padding=plain)
        return e.divide(total, e.full(float(taps[0] * taps[1]), e.type(x).dtype))
    if sum(count) > UNEQUAL:
        raise NoRow(f"{count} windows of different sizes")
    ones = e.full(1.0, e.type(x).dtype, (1, 1, *sizes))
    return e.divide(*(unequal(e, v, count) for v in (x, ones)))


def unequal(e: Emitter, x: object, count: Sequence[int]) -> object:
    """The sums of the windows, along one axis after the other."""
    for axis, n in enumerate(count, 2):
        d, rows = e.type(x).shape[axis], []
        for k in range(n):
            first, end = floor_divide(k * d, n), -1 * floor_divide(-(k + 1) * d, n)
            part = e.slice(x, axis=axis, start=first, length=end - first)
            rows.append(e.sum(part, axes=(axis,), keepdim=True))
        x = rows[0] if n == 1 else e.concat(*rows, axis=axis)
    return x


# ---------------------------------------------------------------- batch norm
def single(x: float) -> float:
    """A number as Paddle's entries take it: in single precision."""
    return float(np.float32(x))


@adapter("batch_norm")
def batch_norm(
    e: Emitter,
    x: object,
    mean: object,
    variance: object,
    scale: object = None,
    bias: object = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    data_format: str = "NCHW",
    use_global_stats: bool = False,
    trainable_statistics: bool = False,
) -> object:
    """Six results, of which Paddle's layers read the first one."""
    t = e.type(x)
    if t.dtype not in FLOATS or t.ndim < 2:
        raise NoRow(f"batch_norm of {t}")
    axis = t.ndim - 1 if data_format == "NHWC" else 1
    n = t.shape[axis]
    weight = e.full(1.0, t.dtype, (n,)) if scale is None else scale
    shift = e.full(0.0, t.dtype, (n,)) if bias is None else bias
    if any(e.type(v) != Type(t.dtype, (n,)) for v in (mean, variance, weight, shift)):
        raise NoRow("statistics or weights of another type")
    if use_global_stats or (is_test and not trainable_statistics):
        y = normalised(e, x, (mean, variance, weight, shift), axis, single(epsilon))
    else:
        y = trained(e, x, mean, variance, weight, shift, axis, momentum, single(epsilon))
    return y, mean, variance, mean, variance, None


def normalised(
    e: Emitter, x: object, of_channels: tuple[object, ...], axis: int, epsilon: float
) -> FakeTensor:
    """By statistics that are given: one product and one sum for an element."""
    mean, variance, weight, shift = of_channels
    slope = e.multiply(e.rsqrt(e.scale(variance, bias=epsilon)), weight)
    start = e.subtract(shift, e.multiply(mean, slope))
    row = [1] * (e.type(x).ndim - axis)
    row[0] = e.type(x).shape[axis]
    slope, start = (e.reshape(v, shape=tuple(row)) for v in (slope, start))
    return e.add(e.multiply(x, slope), start)


def trained(
    e: Emitter,
    x: object,
    mean: object,
    variance: object,
    weight: object,
    shift: object,
    axis: int,
    momentum: float | Tensor,
    epsilon: float,
) -> FakeTensor:
    """By the statistics of the batch, which move those that are kept, in place."""
    if is_runtime(momentum) or isinstance(momentum, FakeTensor):
        raise NoRow("a momentum that the program computes")
    shape = e.type(x).shape
    rest = product(d for k, d in enumerate(shape) if k != axis)
    if isinstance(rest, int) and rest < 2:
        raise NoRow(f"a channel of {rest} elements, of which Paddle takes one as it is")
    e.trace.require(rest, 2, "batch_norm of more than one element of a channel")
    y, own, spread = e.batch_norm(x, weight, shift, axis=axis, epsilon=epsilon)
    still = Emitter(e.trace)
    for kept, new in ((mean, own), (variance, spread)):
        part = still.wrap(detached(e.trace, new._value))
        moved = still.scale(part, scale=1.0 - single(momentum))
        total = still.add(still.scale(kept, scale=single(momentum)), moved)
        write(still, kept, total, own=True, moves=0)
    return y


# ---------------------------------------------------------------- group norm
@adapter("group_norm")
def group_norm(
    e: Emitter,
    x: object,
    scale: object = None,
    bias: object = None,
    epsilon: float = 1e-5,
    groups: int = 1,
    data_format: str = "NCHW",
) -> FakeTensor:
    """Each sample by the mean and variance of each group of its channels, over all pixels. Without
    a scale, the gradient of Paddle's kernel is another one."""
    if data_format.endswith("C") or scale is None and e.trains(x):
        raise NoRow(f"group_norm of {data_format}, or its gradient without a scale")
    return in_groups(e, x, scale, bias, epsilon, int(groups))


@adapter("instance_norm")
def instance_norm(
    e: Emitter, x: object, scale: object = None, bias: object = None, epsilon: float = 1e-5
) -> FakeTensor:
    """Each channel of each sample by its own mean and variance."""
    return in_groups(e, x, scale, bias, epsilon, 0)


def in_groups(
    e: Emitter, x: object, scale: object, bias: object, epsilon: float, groups: int
) -> FakeTensor:
    """In so many groups of channels; 0: each channel is one."""
    t = e.type(x)
    channels = t.shape[1] if t.ndim > 1 else None
    if t.dtype not in FLOATS or not isinstance(channels, int) or 0 in t.shape:
        raise NoRow(f"the norm of {t}")
    groups = groups or channels
    if channels % groups:
        raise NoRow(f"{channels} channels in {groups} groups")
    samples, _, *pixels = t.shape
    apart = e.reshape(x, shape=(samples, groups, channels // groups, *pixels))
    axes = tuple(range(2, t.ndim + 1))
    away = e.subtract(apart, e.mean(apart, axes=axes, keepdim=True))
    spread = e.scale(e.mean(e.square(away), axes=axes, keepdim=True), bias=single(epsilon))
    y = e.reshape(e.multiply(away, e.rsqrt(spread)), shape=t.shape)
    row = (channels, *(1 for _ in pixels))
    if scale is not None:
        y = e.multiply(y, e.reshape(scale, shape=row))
    return y if bias is None else e.add(y, e.reshape(bias, shape=row))
