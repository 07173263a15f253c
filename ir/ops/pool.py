"""Pooling of images [N, C, H, W] over windows of pixels that may reach beyond the edges.

`max_pool` is as Paddle's kernel: taps in order, `total > pixel ? total : pixel` from the smallest
f32 on; its gradient goes to the first pixel of a window that equals the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from ir.opdef import Example, ShapeError, example, op
from ir.ops.images import Padding, Pair, padded, require_image, tap, windows
from ir.program import Builder, Value
from ir.types import Dim, Type

LOWEST = -float(np.finfo(np.float32).max)
Reference = Callable[..., np.ndarray]


def pooled(x: Type, taps: Pair, stride: Pair, padding: Padding) -> Type:
    require_image("pooling", x)
    if not all(isinstance(d, int) for d in x.shape[2:]):
        raise ShapeError(f"pooling of {x}: named sizes of pixels")
    if any(p < 0 for pair in padding for p in pair):  # type: ignore[operator]
        raise ShapeError(f"pooling with padding {padding}")
    dims = [windows(*q, 1) for q in zip(x.shape[2:], taps, stride, padding)]
    return x.with_shape((*x.shape[:2], *dims))


def _require_result(x: Type, y: Type, taps: Pair, stride: Pair, padding: Padding) -> None:
    want = pooled(x, taps, stride, padding)
    if y != want:
        raise ShapeError(f"pooling of {x} gives {want}, not {y}")


def _seen(x: np.ndarray, taps: Pair, stride: Pair, padding: Any) -> Iterator[Any]:
    """What every tap sees, and where that is a pixel."""
    wide, real = padded(x, padding), padded(np.ones(x.shape, bool), padding, False)
    pairs = zip(wide.shape[2:], taps, stride)
    shape = [(n - k) // s + 1 for n, k, s in pairs]
    for at in product(*map(range, taps)):
        yield tap(wide, at, shape, stride), tap(real, at, shape, stride)


def _max_ref(x: np.ndarray, **a: Any) -> np.ndarray:
    out: Any = None
    for pixel, real in _seen(x, **a):
        out = np.full(pixel.shape, LOWEST, x.dtype) if out is None else out
        out = np.where(real & ~(out > pixel), pixel, out)
    return out


def _sum_ref(x: np.ndarray, **a: Any) -> np.ndarray:
    return sum(p for p, _ in _seen(x.astype(np.float64), **a)).astype(x.dtype)  # type: ignore[union-attr]


def _spread_ref(g: np.ndarray, pixels: Pair, **a: Any) -> np.ndarray:
    """`tap` gives views: what is added to them arrives in `wide`, which is cut in the end."""
    (y0, y1), (x0, x1) = a["padding"]
    wide = np.zeros((*g.shape[:2], pixels[0] + y0 + y1, pixels[1] + x0 + x1))
    for at in product(*map(range, a["taps"])):
        tap(wide, at, g.shape[2:], a["stride"])[...] += g
    return wide[..., y0 : y0 + pixels[0], x0 : x0 + pixels[1]].astype(g.dtype)


def _pick_ref(x: np.ndarray, y: np.ndarray, t: np.ndarray, **a: Any) -> np.ndarray:
    out, done = np.zeros_like(y), np.zeros(y.shape, bool)
    for (pixel, real), (value, _) in zip(_seen(x, **a), _seen(t, **a)):
        hit = real & (pixel == y) & ~done
        out, done = np.where(hit, value, out), done | hit
    return out


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


def _pick_types(x: Type, y: Type, t: Type, **a: Any) -> Type:
    _require_result(x, y, **a)
    _require_result(t, y, **a)
    return y


def _unpool_types(x: Type, y: Type, g: Type, **a: Any) -> Type:
    _require_result(x, y, **a)
    _require_result(x, g, **a)
    return x


def _pixels(x: Value) -> tuple[Dim, ...]:
    return x.type.shape[2:]


_SQUARE = {"taps": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 1))}
_SKEW = {"taps": (2, 3), "stride": (1, 2), "padding": ((0, 1), (2, 0))}
_PLAIN = {"taps": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0))}
_LARGE = {"taps": (6, 5), "stride": (1, 1), "padding": ((0, 0), (2, 2))}
_WIDE = {"taps": (9, 8), "stride": (1, 2), "padding": ((4, 4), (3, 0))}
_FORMS = (
    ("f32[2,3,7,8]", _SQUARE, "4,4"),
    ("f64[1,2,6,9]", _SKEW, "6,5"),
    ("f64[2,2,9,8]", _PLAIN, "4,4"),
    ("f32[1,2,7,6]", _LARGE, "2,6"),
    ("f64[1,2,9,10]", _WIDE, "9,3"),
    ("f32[0,2,7,8]", _SQUARE, "4,4"),
)


def _examples(make: Callable[[str, str, dict[str, Any]], Example]) -> tuple[Example, ...]:
    return tuple(make(x, f"{x[:7]},{y}]", dict(a)) for x, a, y in _FORMS)


_ATTRS = "taps, stride, padding"
op(
    f"max_pool(x, *, {_ATTRS})",
    types=pooled,
    ref=_max_ref,
    grad=lambda b, g, y, x, **a: [b.max_unpool(x, y, g, **a)],
    examples=_examples(lambda x, y, a: example(x, **a)),
)
op(
    f"max_unpool(x, y, g, *, {_ATTRS})",
    types=_unpool_types,
    ref=_unpool_ref,
    grad=lambda b, t, r, x, y, g, **a: [None, None, b.max_pick(x, y, t, **a)],
    examples=_examples(lambda x, y, a: example(x, y, y, **a)),
)
op(
    f"max_pick(x, y, t, *, {_ATTRS})",
    types=_pick_types,
    ref=_pick_ref,
    grad=lambda b, g, r, x, y, t, **a: [None, None, b.max_unpool(x, y, g, **a)],
    examples=_examples(lambda x, y, a: example(x, y, x, **a)),
)
op(
    f"sum_pool(x, *, {_ATTRS})",
    types=pooled,
    ref=_sum_ref,
    grad=lambda b, g, y, x, **a: [b.spread_pool(g, pixels=_pixels(x), **a)],
    examples=_examples(lambda x, y, a: example(x, **a)),
)


def _spread_grad(b: Builder, t: Value, r: Value, g: Value, pixels: Any, **a: Any) -> list[Value]:
    return [b.sum_pool(t, **a)]


op(
    f"spread_pool(g, *, pixels, {_ATTRS})",
    types=_spread_types,
    ref=_spread_ref,
    grad=_spread_grad,
    examples=_examples(
        lambda x, y, a: example(y, pixels=tuple(int(d) for d in x[:-1].split(",")[2:]), **a)
    ),
)


__all__ = ["LOWEST", "pooled"]
