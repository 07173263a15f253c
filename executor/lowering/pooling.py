"""Lowering of pooling: plane by plane, region by region or tap by tap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from executor.launches import Launch, Map, Reduce
from executor.lowering.lowerer import Lowerer, rule
from executor.lowering.sliding_windows import (
    UNROLLED,
    Axis,
    PaddedPlane,
    PixelSpan,
    copy,
    each_plane,
    fill,
    folded,
    frame,
    loop,
    part,
)
from executor.memory import View
from ir import OPS, Op
from ir.ops.images import LOWEST
from ir.scalar import language as k
from ir.types import BOOL, Dim, DType, Size, Type


def _axes(op: Op, x: View, out: View) -> list[Axis]:
    a = op.attrs
    columns: Any = (x.shape[2:], out.shape[2:], a["taps"], a["stride"], a["padding"])
    return [Axis(*q) for q in zip(*columns)]


def _larger(total: k.Scalar, pixel: k.Scalar, outside: k.Scalar | None = None) -> k.Scalar:
    stays = total > pixel
    return k.select(stays if outside is None else stays | (outside > 0), total, pixel)


def _sum(total: k.Scalar, pixel: k.Scalar) -> k.Scalar:
    return total + pixel


def _is_large(axes: Sequence[Axis]) -> bool:
    """Whether windows have too many taps for launches of their own."""
    return axes[0].taps * axes[1].taps > UNROLLED


@rule("max_pool", "sum_pool", direct=True)
def pool(low: Lowerer, op: Op) -> None:
    x, out = low.env[op.operands[0]], low.fresh(op.result)
    axes = _axes(op, x, out)
    if op.name == "sum_pool" and _is_large(axes):
        _window_sums(low, x, out, axes)
        return
    start, term = (LOWEST, _larger) if op.name == "max_pool" else (0.0, _sum)
    around = _frame(low, axes, x.dtype, 0.0)
    masked = op.name == "max_pool" and around.room is not None
    more = [_outside(low, around, around.room)] if masked and around.room else []

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        pixels, copies = around.entered(x.index(0, n).index(0, c))
        place = out.index(0, n).index(0, c)
        return *copies, *folded(low, [pixels, *more], place, around.own, start, term)

    each_plane(low, out.shape[:2], plane)


def _outside(low: Lowerer, around: PaddedPlane, room: View) -> View:
    """1 beyond the edges, 0 where pixels are. No number is smaller than all pixels and also smaller
    than NaN, so that it could stand there."""
    out = low.temporary(Type(room.dtype, room.shape))
    low.emit(fill(out, 1.0))
    low.emit(fill(around.inside(out), 0.0))
    return out


def _windows(plane: View, axes: Sequence[Axis]) -> View:
    """The pixels of all windows, [windows down, windows across, taps down, taps across]; windows
    may overlap, but not reach beyond the edges."""
    down, across = axes
    sy, sx = plane.strides
    shape = (down.windows, across.windows, down.taps, across.taps)
    inner = plane.slice(0, down.place(0, 0), 1).slice(1, across.place(0, 0), 1)
    return replace(inner, shape=shape, strides=(sy * down.stride, sx * across.stride, sy, sx))


def _window_sums(low: Lowerer, x: View, out: View, axes: Sequence[Axis]) -> None:
    add, around = OPS["sum"].reduce, frame(low, axes, x.dtype, 0.0)
    assert add is not None

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        pixels, copies = around.entered(x.index(0, n).index(0, c))
        place = out.index(0, n).index(0, c)
        return *copies, Reduce(_windows(pixels, around.own), (2, 3), add, place)

    each_plane(low, out.shape[:2], plane)


def _each_tap(
    low: Lowerer, axes: Sequence[Axis], body: Callable[[Dim, Dim, PixelSpan, PixelSpan], Launch]
) -> list[Launch]:
    """A launch for every tap in order, with the windows in which it meets a pixel; where there are
    many taps, which then meet one in every window, in a loop."""
    down, across = axes
    if _is_large(axes):
        p, q = low.symbol("i"), low.symbol("i")
        line = [body(Size.named(p), Size.named(q), down.every, across.every)]
        line = [loop(low, q, across.taps, line)]
        return [loop(low, p, down.taps, line)]
    found = []
    for i, j in product(range(down.taps), range(across.taps)):
        ys, xs = down.meeting(i), across.meeting(j)
        if ys.length != 0 and xs.length != 0:
            found.append(body(i, j, ys, xs))
    return found


def _frame(low: Lowerer, axes: Sequence[Axis], dtype: DType, value: float) -> PaddedPlane:
    """Room beyond the edges where all taps are in a loop, or all windows in one launch."""
    whole = _is_large(axes) or any(a.named for a in axes)
    return frame(low, axes, dtype, value) if whole else PaddedPlane(axes, None)


@rule("spread_pool")
def spread_pool(low: Lowerer, op: Op) -> None:
    g, out = low.env[op.operands[0]], low.fresh(op.result)
    axes = _axes(op, out, g)
    down, across = axes
    around = _frame(low, axes, g.dtype, 0.0)
    apart = down.stride >= down.taps and across.stride >= across.taps

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        source, to = g.index(0, n).index(0, c), out.index(0, n).index(0, c)
        room, launches = around.cleared(to)

        def spread(i: Dim, j: Dim, ys: PixelSpan, xs: PixelSpan) -> Launch:
            place = tapped(room, around.own, (i, j), ys, xs)
            total = k.input_(0, g.dtype) + k.input_(1, g.dtype)
            return Map(place.shape, (place, part(source, ys, xs)), (total,), (place,))

        if _is_large(axes) and apart:
            every = _windows(room, around.own)
            launches.append(copy(source.insert(2).insert(3).expand(every.shape), every))
        else:
            launches += _each_tap(low, around.own, spread)
        return *launches, *around.left(to)

    each_plane(low, out.shape[:2], plane)


@rule("max_unpool")
def max_unpool(low: Lowerer, op: Op) -> None:
    """`done` says of a plane in which windows the largest pixel has been found. What is beyond the
    edges equals nothing."""
    x, y, g = (low.env[v] for v in op.operands)
    out = low.fresh(op.result)
    done = low.temporary(Type(BOOL, y.shape[2:]))
    axes = _axes(op, x, y)
    pixels, others = _frame(low, axes, x.dtype, math.nan), _frame(low, axes, x.dtype, 0.0)

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        image, best, given, result = (v.index(0, n).index(0, c) for v in (x, y, g, out))
        seen, copies = pixels.entered(image)
        room, more = others.cleared(result)

        def tap(i: Dim, j: Dim, ys: PixelSpan, xs: PixelSpan) -> Launch:
            pixel, place = (tapped(v, pixels.own, (i, j), ys, xs) for v in (seen, room))
            largest, part_of, found = (part(v, ys, xs) for v in (best, given, done))
            ins = (pixel, largest, part_of, place, found)
            return Map(place.shape, ins, _first(x.dtype), (place, found))

        taps = _each_tap(low, pixels.own, tap)
        return *copies, *more, fill(done, False), *taps, *others.left(result)

    each_plane(low, out.shape[:2], plane)


def _first(d: DType) -> tuple[k.Scalar, k.Scalar]:
    """From a pixel, the largest one, a value, what is there and whether one was found: what will be
    there, and whether one is found now."""
    pixel, best, value, old = (k.input_(q, d) for q in range(4))
    found = k.input_(4, BOOL)
    hit = k.eq(pixel, best) & ~found
    return old + k.select(hit, value, k.const(0, d)), found | hit


def tapped(
    v: View, axes: Sequence[Axis], at: tuple[Dim, Dim], ys: PixelSpan, xs: PixelSpan
) -> View:
    """Return the elements that a tap reads in some windows."""
    down, across = axes
    return across.seen(down.seen(v, 0, at[0], ys), 1, at[1], xs)
