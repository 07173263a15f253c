"""Convolutions and pooling of images: [N, C, H, W], weights [O, C / groups, KH, KW].

The gradients of a convolution are convolutions again. That of the input is one per phase of the
stride: the pixels of a phase meet the same taps of the weights, turned around. That of the weights
has the channels as its batch and the result's gradient as its weights; stride and dilation change
places. Pooling windows may reach beyond the edges. `max_pool` is as Paddle's kernel: taps in order,
`total > pixel ? total : pixel` from the smallest f32 on; its gradient goes to the first pixel of a
window that equals the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from ir.opdef import Example, ShapeError, assume, example, op, same_dim
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import zeros
from ir.program import Builder, Value
from ir.types import F32, I64, Dim, Size, Type, divide, floor_divide

Pair: TypeAlias = tuple[int, int]
PairAttrs: TypeAlias = dict[str, tuple[Any, ...]]
#: (before, after) for rows and columns; less than 0: pixels are left out
Padding: TypeAlias = tuple[tuple[Dim, Dim], tuple[Dim, Dim]]


def windows(n: Dim, k: Dim, stride: int, padding: tuple[Dim, Dim], dilation: int) -> Dim:
    """Return the number of windows of `k` taps along an axis of `n` pixels."""
    gap = n + padding[0] + padding[1] - dilation * (k - 1) - 1
    assume(gap, ">=", 0)
    return floor_divide(gap, stride) + 1


def require_image(name: str, x: Type) -> None:
    require_kind(name, x, "f")
    if x.ndim != 4:
        raise ShapeError(f"{name} takes [N, C, H, W], not {x}")


def _types(x: Type, w: Type, stride: Pair, padding: Padding, dilation: Pair, groups: int) -> Type:
    require_image("conv", x)
    require_image("conv", w)
    same_dtype("conv", x, w)
    same_dim(x.shape[1], w.shape[1] * groups)
    if isinstance(w.shape[0], int) and w.shape[0] % groups:
        raise ShapeError(f"conv: {w.shape[0]} filters in {groups} groups")
    dims = [windows(*q) for q in zip(x.shape[2:], w.shape[2:], stride, padding, dilation)]
    return x.with_shape((x.shape[0], w.shape[0], *dims))


def padded(x: np.ndarray, padding: Any, value: float = 0.0) -> np.ndarray:
    """With `value` around the last two axes, or pixels left out."""
    pairs = [(0, 0)] * (x.ndim - 2) + [(max(a, 0), max(b, 0)) for a, b in padding]
    x = np.pad(x, pairs, constant_values=value)
    cuts = [slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(padding, x.shape[-2:])]
    return x[..., cuts[0], cuts[1]]


def tap(x: np.ndarray, at: Sequence[int], shape: Sequence[int], stride: Pair) -> np.ndarray:
    """Return the elements that the tap at pixel `at` reads, for all windows."""
    (y, x0), (h, w), (sy, sx) = at, shape, stride
    return x[..., y : y + (h - 1) * sy + 1 : sy, x0 : x0 + (w - 1) * sx + 1 : sx]


def _ref(
    x: np.ndarray, w: np.ndarray, stride: Pair, padding: Any, dilation: Pair, groups: int
) -> np.ndarray:
    wide = padded(x.astype(np.float64), padding)
    n, (o, c, kh, kw) = len(x), w.shape
    pairs = zip(wide.shape[2:], (kh, kw), stride, dilation)
    shape = [(m - d * (k - 1) - 1) // s + 1 for m, k, s, d in pairs]
    out = np.zeros((n, groups, o // groups, *shape))
    wide = wide.reshape(n, groups, c, *wide.shape[2:])
    parts = w.astype(np.float64).reshape(groups, o // groups, c, kh, kw)
    for i, j in np.ndindex(kh, kw):
        seen = tap(wide, (i * dilation[0], j * dilation[1]), shape, stride)
        out += np.einsum("ngcyx,goc->ngoyx", seen, parts[..., i, j])
    return out.reshape(n, o, *shape).astype(x.dtype)


# ---------------------------------------------------------------- gradients
def _grouped(b: Builder, v: Value, axis: int, groups: int) -> Value:
    """`axis` cut into groups: [..., groups, the rest of it, ...]."""
    s = v.type.shape
    part = divide(s[axis], groups)
    assert part is not None
    new: Value = b.reshape(v, shape=(*s[:axis], groups, part, *s[axis + 1 :]))
    return new


def _swapped(b: Builder, v: Value, groups: int, split: int) -> Value:
    """The first two axes change places, group by group: [G * a, b, ...] becomes [G * b, a, ...]
    where the groups are in axis `split` = 0, and [a, G * b, ...] becomes [b, G * a, ...] where
    they are in axis 1."""
    if groups == 1:
        new: Value = b.transpose(v, perm=(1, 0, 2, 3))
        return new
    v = _grouped(b, v, split, groups)
    v = b.transpose(v, perm=(0, 2, 1, 3, 4) if split == 0 else (2, 1, 0, 3, 4))
    s = v.type.shape
    first = (s[0] * s[1], s[2]) if split == 0 else (s[0], s[1] * s[2])
    new = b.reshape(v, shape=(*first, *s[3:]))
    return new


def taps_of_phase(k: int, stride: int, low: Dim, dilation: int, phase: int) -> list[int]:
    """The taps that pixels phase, phase + stride, ... of the input have met."""
    if stride == 1:
        return list(range(k))
    assert isinstance(low, int)
    return [i for i in range(k) if (phase + low - i * dilation) % stride == 0]


def _phase(
    b: Builder, g: Value, w: Value, phase: Pair, counts: Sequence[Dim], a: PairAttrs
) -> Value | None:
    """The gradient of the pixels (y, x) of a phase of the stride; `w` is swapped already."""
    padding, dilation = [], []
    for axis in (0, 1):
        s, d, low = a["stride"][axis], a["dilation"][axis], a["padding"][axis][0]
        k = w.type.shape[2 + axis]
        assert isinstance(k, int)
        taps = taps_of_phase(k, s, low, d, phase[axis])
        if not taps:
            return None
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        if k > 1:
            w = b.slice(w, axis=2 + axis, start=taps[-1], length=len(taps), step=-step)
        apart = step * d // s if len(taps) > 1 else 1
        first = divide(low + (phase[axis] - taps[-1] * d), s)
        assert first is not None
        rest = counts[axis] + apart * (len(taps) - 1) - g.type.shape[2 + axis] + first
        padding.append((-1 * first, rest))
        dilation.append(apart)
    new: Value = b.conv(
        g, w, padding=tuple(padding), dilation=tuple(dilation), groups=a["groups"][0]
    )
    return new


def _are_patches(x: Value, w: Value, a: PairAttrs) -> bool:
    """Whether the windows lie side by side, each pixel in one of them at most."""
    plain = all(p == 0 for pair in a["padding"] for p in pair) and a["dilation"] == (1, 1)
    fixed = all(isinstance(n, int) for n in x.type.shape[2:])
    return plain and fixed and w.type.shape[2:] == a["stride"] != (1, 1)


def _patches_input_grad(b: Builder, g: Value, x: Value, w: Value, groups: int) -> Value:
    """Every tap is a channel of a convolution of one pixel; then the taps go to their pixels."""
    _, c, ky, kx = w.type.shape
    n, _, oh, ow = g.type.shape
    taps = b.transpose(_grouped(b, w, 0, groups), perm=(0, 2, 3, 4, 1))
    taps = b.reshape(taps, shape=(groups * c * ky * kx, taps.type.shape[-1], 1, 1))
    pixels = b.reshape(b.conv(g, taps, groups=groups), shape=(n, groups * c, ky, kx, oh, ow))
    pixels = b.transpose(pixels, perm=(0, 1, 4, 2, 5, 3))
    out: Value = b.reshape(pixels, shape=(n, groups * c, oh * ky, ow * kx))
    for axis in (2, 3):
        rest = x.type.shape[axis] - out.type.shape[axis]
        if rest != 0:
            shape = (*out.type.shape[:axis], rest, *out.type.shape[axis + 1 :])
            out = b.concat(out, zeros(b, out.type.with_shape(shape)), axis=axis)
    return out


def _patches_weight_grad(b: Builder, g: Value, x: Value, w: Value, groups: int) -> Value:
    """The product of the results' gradients with the patches, group by group."""
    o, c, ky, kx = w.type.shape
    n, _, oh, ow = g.type.shape
    for axis, size in ((2, oh * ky), (3, ow * kx)):
        if x.type.shape[axis] != size:
            x = b.slice(x, axis=axis, start=0, length=size)
    patches = b.reshape(x, shape=(n, groups, c, oh, ky, ow, kx))
    patches = b.transpose(patches, perm=(1, 0, 3, 5, 2, 4, 6))
    patches = b.reshape(patches, shape=(groups, n * oh * ow, c * ky * kx))
    results = b.transpose(_grouped(b, g, 1, groups), perm=(1, 2, 0, 3, 4))
    results = b.reshape(results, shape=(groups, results.type.shape[1], n * oh * ow))
    out: Value = b.reshape(b.matmul(results, patches), shape=(o, c, ky, kx))
    return out


def _input_grad(b: Builder, g: Value, x: Value, w: Value, a: PairAttrs) -> Value:
    if 0 in x.type.shape:
        return zeros(b, x.type)
    if _are_patches(x, w, a):
        return _patches_input_grad(b, g, x, w, a["groups"][0])
    w, (sy, sx) = _swapped(b, w, a["groups"][0], 0), a["stride"]
    sizes = x.type.shape[2:]
    if (sy, sx) == (1, 1):
        whole = _phase(b, g, w, (0, 0), sizes, a)
        assert whole is not None
        return whole
    named = any(isinstance(n, Size) for n in sizes)
    most = [_count(n, s, 0) for n, s in zip(sizes, (sy, sx))]
    wide = (most[0] * sy, most[1] * sx) if named else sizes
    out = zeros(b, x.type.with_shape((*x.type.shape[:2], *wide)))
    for py, px in np.ndindex(sy, sx):
        # a phase of a named size, which may have no pixel, gets as many as the first one has
        counts = [_count(n, s, p) for n, s, p in zip(wide, (sy, sx), (py, px))]
        part = _phase(b, g, w, (py, px), counts, a) if 0 not in counts else None
        if part is not None:
            rows = b.slice(out, axis=2, start=py, length=counts[0], step=sy)
            rows = b.set_slice(rows, part, axis=3, start=px, step=sx)
            out = b.set_slice(out, rows, axis=2, start=py, step=sy)
    for axis, n in enumerate(sizes, 2):
        out = out if wide[axis - 2] == n else b.slice(out, axis=axis, start=0, length=n)
    return out


def _count(n: Dim, stride: int, phase: int) -> Dim:
    """Return the number of pixels phase, phase + stride, ... below `n`."""
    return floor_divide(n - phase + (stride - 1), stride)


def _weight_grad(b: Builder, g: Value, x: Value, w: Value, a: PairAttrs) -> Value:
    groups = a["groups"][0]
    if _are_patches(x, w, a):
        return _patches_weight_grad(b, g, x, w, groups)
    images = _swapped(b, x, groups, 1)
    filters = b.transpose(g, perm=(1, 0, 2, 3))
    padding = []
    for axis in (0, 1):
        s, d, (low, _) = a["stride"][axis], a["dilation"][axis], a["padding"][axis]
        n, k, m = (v.type.shape[2 + axis] for v in (x, w, g))
        padding.append((low, s * (m - 1) + d * (k - 1) + 1 - n - low))
    out = b.conv(
        images,
        filters,
        stride=a["dilation"],
        padding=tuple(padding),
        dilation=a["stride"],
        groups=groups,
    )
    new: Value = b.transpose(out, perm=(1, 0, 2, 3))
    return new


def _grad(
    b: Builder,
    g: Value,
    y: Value,
    x: Value,
    w: Value,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> list[Value]:
    a = {"stride": stride, "padding": padding, "dilation": dilation, "groups": (groups,)}
    return [_input_grad(b, g, x, w, a), _weight_grad(b, g, x, w, a)]


_SAME = ((1, 1), (1, 1))
op(
    "conv(x, w, *, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1)",
    types=_types,
    ref=_ref,
    grad=_grad,
    examples=(
        example("f32[2,3,5,6]", "f32[4,3,3,3]", padding=_SAME),
        example("f64[2,3,5,6]", "f64[4,3,3,2]", stride=(2, 1), padding=((0, 2), (1, 0))),
        example("f32[1,3,9,20]", "f32[7,3,1,1]"),
        example("f32[2,3,9,8]", "f32[5,3,1,1]", stride=(2, 2)),
        example("f32[1,4,8,9]", "f32[6,2,3,3]", groups=2, padding=_SAME, stride=(2, 2)),
        example("f64[1,3,8,9]", "f64[6,1,3,3]", groups=3, padding=_SAME, stride=(3, 2)),
        example("f32[1,2,9,9]", "f32[3,2,3,3]", dilation=(2, 3), padding=((1, 2), (3, 3))),
        example("f32[2,2,9,9]", "f32[3,2,2,3]", dilation=(3, 2), stride=(2, 4)),
        example("f32[2,4,9,7]", "f32[6,2,4,2]", stride=(4, 2), groups=2),
        example("f32[1,2,6,7]", "f32[3,2,2,2]", padding=((-1, 0), (0, -2))),
        example("f32[2,40,3,3]", "f32[13,40,3,3]", padding=_SAME),
        example("f32[3,5,1,1]", "f32[4,5,1,1]"),
        example("f32[2,3,4,5]", "f32[7,3,4,5]"),
        example("f64[2,6,4,25]", "f64[4,3,4,25]", groups=2),
        example("f32[0,2,4,4]", "f32[3,2,3,3]"),
        example("f64[2,2,0,3]", "f64[3,2,2,1]", padding=((1, 1), (0, 0))),
    ),
)


LOWEST = -float(np.finfo(np.float32).max)


def pooled(x: Type, taps: Pair, stride: Pair, padding: Padding) -> Type:
    require_image("pooling", x)
    if any(isinstance(p, Size) or p < 0 for pair in padding for p in pair):
        raise ShapeError(f"pooling with padding {padding}")
    dims = [windows(*q, 1) for q in zip(x.shape[2:], taps, stride, padding)]
    return x.with_shape((*x.shape[:2], *dims))


def _require_result(x: Type, y: Type, taps: Pair, stride: Pair, padding: Padding) -> None:
    want = pooled(x, taps, stride, padding)
    if y != want:
        raise ShapeError(f"pooling of {x} gives {want}, not {y}")


def _seen(x: np.ndarray, taps: Pair, stride: Pair, padding: Any) -> Iterator[Any]:
    """Yield the elements that each tap reads, and a mask of those inside of the image."""
    wide, real = padded(x, padding), padded(np.ones(x.shape, bool), padding, False)
    pairs = zip(wide.shape[2:], taps, stride)
    shape = [(n - k) // s + 1 for n, k, s in pairs]
    for at in product(*map(range, taps)):
        yield tap(wide, at, shape, stride), tap(real, at, shape, stride)


def _max_ref(x: np.ndarray, **a: Any) -> np.ndarray:
    out: np.ndarray | None = None
    for pixel, real in _seen(x, **a):
        out = np.full(pixel.shape, LOWEST, x.dtype) if out is None else out
        out = np.where(real & ~(out > pixel), pixel, out)
    assert out is not None, "a window without taps"
    return out


def _sum_ref(x: np.ndarray, **a: Any) -> np.ndarray:
    pixels = (p for p, _ in _seen(x.astype(np.float64), **a))
    total: np.ndarray = sum(pixels, start=np.zeros(()))
    return total.astype(x.dtype)


def _spread_ref(g: np.ndarray, pixels: Pair, **a: Any) -> np.ndarray:
    """Adds into views of `wide` that `tap` gives, and cuts the padding off."""
    (y0, y1), (x0, x1) = a["padding"]
    wide = np.zeros((*g.shape[:2], pixels[0] + y0 + y1, pixels[1] + x0 + x1))
    for at in product(*map(range, a["taps"])):
        tap(wide, at, g.shape[2:], a["stride"])[...] += g
    return wide[..., y0 : y0 + pixels[0], x0 : x0 + pixels[1]].astype(g.dtype)


def _unpool_ref(x: np.ndarray, y: np.ndarray, g: np.ndarray, **a: Any) -> np.ndarray:
    (y0, y1), (x0, x1) = a["padding"]
    wide = np.zeros((*x.shape[:2], x.shape[2] + y0 + y1, x.shape[3] + x0 + x1))
    done = np.zeros(y.shape, bool)
    places = product(*map(range, a["taps"]))
    for at, (pixel, real) in zip(places, _seen(x, **a)):
        hit = real & (pixel == y) & ~done
        tap(wide, at, g.shape[2:], a["stride"])[...] += np.where(hit, g, 0)
        done |= hit
    return wide[..., y0 : y0 + x.shape[2], x0 : x0 + x.shape[3]].astype(x.dtype)


def _spread_types(g: Type, pixels: Pair, **a: Any) -> Type:
    x = g.with_shape((*g.shape[:2], *pixels))
    _require_result(x, g, **a)
    return x


def _unpool_types(x: Type, y: Type, g: Type, **a: Any) -> Type:
    _require_result(x, y, **a)
    _require_result(x, g, **a)
    return x


def _pixels(x: Value) -> tuple[Dim, ...]:
    return x.type.shape[2:]


def _max_pool_grad(b: Builder, g: Value, y: Value, x: Value, **a: Any) -> list[Value]:
    """Where one window is the whole plane, its first largest pixel is found in rows."""
    n, c, *plane = x.type.shape
    whole = a["taps"] == tuple(plane) and not any(p for pair in a["padding"] for p in pair)
    if not whole:
        return [b.max_unpool(x, y, g, **a)]
    count = plane[0] * plane[1]
    pixels = b.reshape(x, shape=(n, c, count))
    largest, given = (b.reshape(v, shape=(n, c, 1)) for v in (y, g))
    hits = b.equal(pixels, largest)
    first = b.argmax(b.cast(hits, dtype=F32), axis=2, keepdim=True, dtype=I64)
    nothing = zeros(b, pixels.type)
    given = b.where(b.equal(b.iota(n=count, dtype=I64), first), given, nothing)
    out = b.where(hits, given, nothing)
    return [b.reshape(out, shape=x.type.shape)]


_SQUARE = {"taps": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1))}
_SKEW = {"taps": (2, 3), "stride": (1, 2), "padding": ((0, 1), (2, 0))}
_PLAIN = {"taps": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0))}
_LARGE = {"taps": (6, 5), "stride": (1, 1), "padding": ((0, 0), (2, 2))}
_WIDE = {"taps": (9, 8), "stride": (1, 2), "padding": ((4, 4), (3, 0))}
_WHOLE = {"taps": (7, 6), "stride": (7, 6), "padding": ((0, 0), (0, 0))}
_FORMS = (
    ("f32[2,3,7,8]", _SQUARE, "4,4"),
    ("f64[1,2,6,9]", _SKEW, "6,5"),
    ("f64[2,2,9,8]", _PLAIN, "4,4"),
    ("f32[1,2,7,6]", _LARGE, "2,6"),
    ("f64[1,2,9,10]", _WIDE, "9,3"),
    ("f32[2,3,7,6]", _WHOLE, "1,1"),
    ("f32[0,2,7,8]", _SQUARE, "4,4"),
)


def _examples(make: Callable[[str, str, dict[str, Any]], Example]) -> tuple[Example, ...]:
    return tuple(make(x, f"{x[:7]},{y}]", dict(a)) for x, a, y in _FORMS)


_ATTRS = "taps, stride, padding"
op(
    f"max_pool(x, *, {_ATTRS})",
    types=pooled,
    ref=_max_ref,
    grad=_max_pool_grad,
    examples=_examples(lambda x, y, a: example(x, **a)),
)
op(
    f"max_unpool(x, y, g, *, {_ATTRS})",
    types=_unpool_types,
    ref=_unpool_ref,
    examples=_examples(lambda x, y, a: example(x, y, y, **a)),
)
op(
    f"sum_pool(x, *, {_ATTRS})",
    types=pooled,
    ref=_sum_ref,
    grad=lambda b, g, y, x, **a: [b.spread_pool(g, pixels=_pixels(x), **a)],
    examples=_examples(lambda x, y, a: example(x, **a)),
)


op(
    f"spread_pool(g, *, pixels, {_ATTRS})",
    types=_spread_types,
    ref=_spread_ref,
    grad=lambda b, t, r, g, pixels, **a: [b.sum_pool(t, **a)],
    examples=_examples(
        lambda x, y, a: example(y, pixels=tuple(int(d) for d in x[:-1].split(",")[2:]), **a)
    ),
)


__all__ = ["LOWEST", "Pair", "Padding", "padded", "require_image", "tap", "windows"]
