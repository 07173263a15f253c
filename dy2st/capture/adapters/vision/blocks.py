"""Blocks of pixels: unfold and fold, pixel shuffle and unshuffle, temporal shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dy2st.capture.adapters.images import padded, windows_of
from dy2st.capture.adapters.table import adapter, int_of
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from ir.types import FLOATS, Dim


def numbers(*lists: Any) -> list[list[int]]:
    return [[int_of(q) for q in values] for values in lists]


@adapter("unfold")
def unfold(
    e: Emitter, x: Any, taps: object, strides: object, paddings: object, dilations: object
) -> FakeTensor:
    """`[N, C * kh * kw, windows]`: every window of an image as a column."""
    t = e.type(x)
    if t.ndim != 4 or t.dtype not in FLOATS:
        raise NoRow(f"unfold of {t}")
    k, s, p, d = numbers(taps, strides, paddings, dilations)
    if k == s and d == [1, 1] and not any(p) and all(isinstance(q, int) for q in t.shape[2:]):
        return patches(e, x, k)
    count: list[Dim] = []
    for axis in (0, 1):
        x = padded(e, x, 2 + axis, (p[axis], p[axis + 2]), "constant", 0.0)
        count.append(windows_of(e, e.type(x).shape[2 + axis], k[axis], s[axis], d[axis]))
    n, c = t.shape[:2]
    parts = []
    for i, j in np.ndindex(k[0], k[1]):
        rows = e.slice(x, axis=2, start=i * d[0], length=count[0], step=s[0])
        parts.append(e.slice(rows, axis=3, start=j * d[1], length=count[1], step=s[1]))
    return e.reshape(e.stack(*parts, axis=2), shape=(n, c * k[0] * k[1], count[0] * count[1]))


def patches(e: Emitter, x: object, k: list[int]) -> FakeTensor:
    """Like `unfold`, for adjacent windows."""
    n, c, h, w = e.type(x).shape
    rows, columns = h // k[0], w // k[1]
    cut = e.slice(x, axis=2, start=0, length=rows * k[0])
    cut = e.slice(cut, axis=3, start=0, length=columns * k[1])
    parts = e.reshape(e.assign(cut), shape=(n, c, rows, k[0], columns, k[1]))
    found = e.assign(e.transpose(parts, perm=(0, 1, 3, 5, 2, 4)))
    return e.reshape(found, shape=(n, c * k[0] * k[1], rows * columns))


@adapter("fold")
def fold(
    e: Emitter,
    x: object,
    sizes: object,
    taps: object,
    strides: object,
    paddings: object,
    dilations: object,
) -> FakeTensor:
    """Columns added up where their windows are in the image."""
    t = e.type(x)
    out, k, s, p, d = numbers(sizes, taps, strides, paddings, dilations)
    wide = [out[a] + p[a] + p[a + 2] for a in (0, 1)]
    count = [(wide[a] - (k[a] - 1) * d[a] - 1) // s[a] + 1 for a in (0, 1)]
    if t.ndim != 3 or t.dtype not in FLOATS or t.shape[2] != count[0] * count[1]:
        raise NoRow(f"fold of {t}")
    if not isinstance(t.shape[1], int) or t.shape[1] % (k[0] * k[1]):
        raise NoRow(f"fold of {t}")
    if d == [1, 1]:
        found = _blocks_added(e, x, k, s, count, wide)
    else:
        found = _taps_added(e, x, k, s, d, count, wide)
    for a in (0, 1):
        found = e.slice(found, axis=2 + a, start=p[a], length=out[a])
    return e.assign(found)


#: blocks of a window, or taps, that are added up one by one
MOST_PARTS = 64


def _blocks_added(
    e: Emitter, x: object, k: list[int], s: list[int], count: list[int], wide: list[int]
) -> FakeTensor:
    """Windows in blocks as large as the stride: equal blocks of all windows lie side by side in the
    image, which is `[N, C, rows, s, columns, s]`."""
    t, reach = e.type(x), [-(-k[a] // s[a]) for a in (0, 1)]
    if reach[0] * reach[1] > MOST_PARTS:
        raise NoRow("fold of windows with many blocks")
    n, c = t.shape[0], t.shape[1] // (k[0] * k[1])
    columns = e.reshape(x, shape=(n, c, *k, *count))
    columns = e.transpose(columns, perm=(0, 1, 4, 2, 5, 3))
    rows = [max(count[a] - 1 + reach[a], -(-wide[a] // s[a])) for a in (0, 1)]
    found = e.full(0.0, t.dtype, (n, c, rows[0], s[0], rows[1], s[1]))
    for at in np.ndindex(*reach):
        size = [min(s[a], k[a] - at[a] * s[a]) for a in (0, 1)]
        part, where = columns, []
        for a in (0, 1):
            part = e.slice(part, axis=3 + 2 * a, start=at[a] * s[a], length=size[a])
            where += [(2 + 2 * a, at[a], count[a]), (3 + 2 * a, 0, size[a])]
        found = _added(e, found, part, where)
    found = e.reshape(found, shape=(n, c, rows[0] * s[0], rows[1] * s[1]))
    for a in (0, 1):
        found = e.slice(found, axis=2 + a, start=0, length=wide[a])
    return found


def _taps_added(
    e: Emitter,
    x: object,
    k: list[int],
    s: list[int],
    d: list[int],
    count: list[int],
    wide: list[int],
) -> FakeTensor:
    """The pixels that a tap has seen in all windows, tap by tap."""
    if k[0] * k[1] > MOST_PARTS:
        raise NoRow("fold of dilated windows with many taps")
    t = e.type(x)
    n, c = t.shape[0], t.shape[1] // (k[0] * k[1])
    columns = e.reshape(x, shape=(n, c, *k, *count))
    found = e.full(0.0, t.dtype, (n, c, *wide))
    for at in np.ndindex(*k):
        part = e.index(e.index(columns, axis=2, index=at[0]), axis=2, index=at[1])
        where = [(2 + a, at[a] * d[a], count[a], s[a]) for a in (0, 1)]
        found = _added(e, found, part, where)
    return found


def _added(e: Emitter, base: object, part: object, where: Sequence[tuple[int, ...]]) -> FakeTensor:
    """`base` with `part` added where the slices (axis, start, length, step) of it are."""
    if not where:
        return e.add(base, part)
    axis, start, length, *step = where[0]
    how = {"axis": axis, "start": start, "step": step[0] if step else 1}
    if how["step"] == 1 and length == e.type(base).shape[axis]:
        return _added(e, base, part, where[1:])
    inner = _added(e, e.slice(base, length=length, **how), part, where[1:])
    return e.set_slice(base, inner, **how)


@adapter("pixel_unshuffle")
def pixel_unshuffle(e: Emitter, x: object, factor: object, data_format: str = "NCHW") -> FakeTensor:
    """A square of pixels becomes the channels of one."""
    n, c, h, w = e.type(x).shape
    r = int_of(factor)
    if data_format != "NCHW" or not isinstance(h, int) or not isinstance(w, int) or h % r or w % r:
        raise NoRow("pixel_unshuffle of these images")
    parts = e.reshape(x, shape=(n, c, h // r, r, w // r, r))
    spread = e.assign(e.transpose(parts, perm=(0, 1, 3, 5, 2, 4)))
    return e.reshape(spread, shape=(n, c * r * r, h // r, w // r))


@adapter("channel_shuffle")
def channel_shuffle(e: Emitter, x: object, groups: object, data_format: str = "NCHW") -> FakeTensor:
    """The channels of all groups in turn."""
    g, shape, axis = int_of(groups), e.type(x).shape, 1 if data_format == "NCHW" else 3
    c = shape[axis]
    if not isinstance(c, int) or c % g:
        raise NoRow(f"{c} channels in {g} groups")
    parts = e.reshape(x, shape=(*shape[:axis], g, c // g, *shape[axis + 1 :]))
    perm = [*range(len(shape) + 1)]
    perm[axis], perm[axis + 1] = perm[axis + 1], perm[axis]
    return e.reshape(e.assign(e.transpose(parts, perm=tuple(perm))), shape=shape)


@adapter("temporal_shift")
def temporal_shift(
    e: Emitter, x: object, frames: object, ratio: float = 0.25, data_format: str = "NCHW"
) -> FakeTensor:
    """Some channels are those of the frame before, as many those of the next one."""
    (n, c, h, w), t = e.type(x).shape, int_of(frames)
    if data_format != "NCHW" or not isinstance(n, int) or not isinstance(c, int) or n % t:
        raise NoRow("temporal_shift of these images")
    ends = (0, int(c * np.float32(ratio)), int(c * 2 * np.float32(ratio)), c)
    clips, parts = e.reshape(x, shape=(n // t, t, c, h, w)), []
    for k, shift in enumerate((1, -1, 0)):
        count = ends[k + 1] - ends[k]
        if not count:
            continue
        part = e.slice(clips, axis=2, start=ends[k], length=count)
        blank = e.full(0.0, e.type(x).dtype, (n // t, 1, count, h, w))
        if shift:
            kept = e.slice(part, axis=1, start=0 if shift > 0 else 1, length=t - 1)
            part = e.concat(*((blank, kept) if shift > 0 else (kept, blank)), axis=1)
        parts.append(part)
    found = parts[0] if len(parts) == 1 else e.concat(*parts, axis=2)
    return e.assign(e.reshape(found, shape=(n, c, h, w)))
