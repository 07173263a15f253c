"""How the rows of pooling become launches: plane by plane, region by region or tap by tap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from executor.launches import Launch, Map
from executor.lower.lowerer import Lowerer, rule
from executor.lower.sliding_windows import Axis, each_plane, folded, part
from executor.memory import View
from ir import Op
from ir.ops.pool import LOWEST
from ir.scalar import language as k
from ir.types import BOOL, Size, Type


def _axes(op: Op, x: View, out: View) -> list[Axis]:
    a = op.attrs
    columns: Any = (x.shape[2:], out.shape[2:], a["taps"], a["stride"], a["padding"])
    return [Axis(*q) for q in zip(*columns)]


def _larger(total: k.Scalar, pixel: k.Scalar) -> k.Scalar:
    return k.select(total > pixel, total, pixel)


def _sum(total: k.Scalar, pixel: k.Scalar) -> k.Scalar:
    return total + pixel


@rule("max_pool", "sum_pool")
def pool(low: Lowerer, op: Op) -> None:
    x, out = low.env[op.operands[0]], low.fresh(op.result)
    start, term = (LOWEST, _larger) if op.name == "max_pool" else (0.0, _sum)
    axes = _axes(op, x, out)

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        return folded(x.pick(0, n).pick(0, c), out.pick(0, n).pick(0, c), axes, start, term)

    each_plane(low, out.shape[:2], plane)


def _taps(axes: list[Axis]) -> Iterator[tuple[tuple[int, int], tuple[range, range]]]:
    """Taps in order, each with the windows in which it meets a pixel."""
    down, across = axes
    for i, j in product(range(down.taps), range(across.taps)):
        ys, xs = down.meeting(i), across.meeting(j)
        if len(ys) and len(xs):
            yield (i, j), (ys, xs)


def _fill(out: View, value: float | bool) -> Map:
    return Map(out.shape, (), (k.const(value, out.dtype),), (out,))


@rule("spread_pool")
def spread_pool(low: Lowerer, op: Op) -> None:
    g, out = low.env[op.operands[0]], low.fresh(op.result)
    axes = _axes(op, out, g)

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        source, to = g.pick(0, n).pick(0, c), out.pick(0, n).pick(0, c)
        launches: list[Launch] = [_fill(to, 0.0)]
        for (i, j), (ys, xs) in _taps(axes):
            place = axes[1].seen(axes[0].seen(to, 0, i, ys), 1, j, xs)
            total = k.input_(0, g.dtype) + k.input_(1, g.dtype)
            launches.append(Map(place.shape, (place, part(source, ys, xs)), (total,), (place,)))
        return tuple(launches)

    each_plane(low, out.shape[:2], plane)


@rule("max_unpool", "max_pick")
def first_largest(low: Lowerer, op: Op) -> None:
    """`done` says of a plane in which windows the largest pixel has been found."""
    x, y, given = (low.env[v] for v in op.operands)
    out = low.fresh(op.result)
    done = low.temporary(Type(BOOL, y.shape[2:]))
    axes, backward = _axes(op, x, y), op.name == "max_unpool"
    d = out.dtype
    pixel, best, value, old = (k.input_(q, d) for q in range(4))
    found = k.input_(4, BOOL)
    hit = k.eq(pixel, best) & ~found
    new = old + k.select(hit, value, k.const(0, d)) if backward else k.select(hit, value, old)

    def plane(n: Size, c: Size) -> tuple[Launch, ...]:
        planes = [v.pick(0, n).pick(0, c) for v in (x, y, given, out)]
        launches: list[Launch] = [_fill(planes[3], 0.0), _fill(done, False)]
        for (i, j), (ys, xs) in _taps(axes):

            def tapped(v: View, at: tuple[int, int] = (i, j), w: tuple = (ys, xs)) -> View:
                return axes[1].seen(axes[0].seen(v, 0, at[0], w[0]), 1, at[1], w[1])

            result, other = part(planes[1], ys, xs), part(done, ys, xs)
            source = part(planes[2], ys, xs) if backward else tapped(planes[2])
            place = tapped(planes[3]) if backward else part(planes[3], ys, xs)
            ins = (tapped(planes[0]), result, source, place, other)
            launches.append(Map(place.shape, ins, (new, found | hit), (place, other)))
        return tuple(launches)

    each_plane(low, out.shape[:2], plane)
