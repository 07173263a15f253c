"""Lowering of `conv` to launches.

Taps of one pixel at every place are products of matrices as they are. A convolution of every
channel for itself folds its few taps (`executor.lowering.sliding_windows`). All others are
launches of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product as pairs
from typing import Any

from executor.launches import Contract, Conv, Dots, Launch
from executor.lowering.lowerer import Lowerer, rule
from executor.lowering.matmul import product_of
from executor.lowering.sliding_windows import (
    UNROLLED,
    Axis,
    each_plane,
    fill,
    folded,
    frame,
    loop,
    part,
)
from executor.memory import View
from ir import Op
from ir.scalar import language as k
from ir.types import Size, Type, divide, product

#: filters of a channel that are no matrix worth the name
THIN = 2
#: pixels from which on a plane is summed up for each result, of which there are so many at most
PLANE = 32
RESULTS = 64
#: sums over the same plane that are made at a time
SUMS = 12


@rule("conv", direct=True)
def conv(low: Lowerer, op: Op) -> None:
    x, w = (low.env[v] for v in op.operands)
    groups = op.attrs["groups"]
    if _is_product(op):
        out = low.fresh(op.result)
        if _as_product(low, op, x, w, out):
            return
    elif _is_whole(op):
        out = low.fresh(op.result)
        if _whole_plane(low, x, w, out, groups):
            return
    elif _is_correlation(op, x, w):
        _correlation(low, op, x, w, low.fresh(op.result))
        return
    elif _is_thin(op, w, groups, x):
        _each_channel(low, op, x, w, low.fresh(op.result))
        return
    else:
        out = _result(low, op)
    target = out
    if not _in_lines(out):
        target = low.temporary(op.result.type)
    _convolution(low, op, x, w, target)
    if target is not out:
        low.copy(target, out)
        low.keep(
            op.result, out, "a convolution is made line by line, and lies otherwise in its place"
        )


def _in_lines(v: View) -> bool:
    """Whether the results of an image lie in memory as a row."""
    _, _, h, w = v.shape
    across = v.strides[3] == 1 or w == 1
    return across and (v.strides[2] == w or h == 1)


def _result(low: Lowerer, op: Op) -> View:
    """Return the view for the results; where an image has few, those of all images lie side by
    side."""
    v = op.result
    n, o, h, w = v.type.shape
    final = low.final(v)
    joined = n != 1 and low.machine.joins_images(v.type)
    if not joined or final in low.places or final in low.ahead:
        return low.fresh(v)
    out = low.temporary(Type(v.type.dtype, (o, n, h, w))).transpose((1, 0, 2, 3))
    low.bind(v, out)
    low.owned.add(v)
    return out


# ---------------------------------------------------------------- as a product of matrices
def _is_product(op: Op) -> bool:
    a, shape = op.attrs, op.operands[1].type.shape
    plain = all(p == 0 for pair in a["padding"] for p in pair)
    return shape[2:] == (1, 1) and a["stride"] == (1, 1) and plain


def _as_product(low: Lowerer, op: Op, x: View, w: View, out: View) -> bool:
    """Launches for taps of one pixel; False if the strides do not allow it."""
    groups = op.attrs["groups"]
    n, size = x.shape[0], product(x.shape[2:])
    filters, channels = divide(w.shape[0], groups), w.shape[1]
    assert filters is not None
    right = x.reshape((n, groups, channels, size))
    c = out.reshape((n, groups, filters, size))
    left = w.reshape((groups, filters, channels))
    if right is None or c is None or left is None or (size != 1 and c.strides[-1] != 1):
        return False
    if size == 1:
        turned = left.transpose((0, 2, 1))
        rows, results = (v.index(3, 0).transpose((1, 0, 2)) for v in (right, c))
        return _row_major(low, rows, turned, results)
    return _row_major(low, left, right, c)


def _row_major(low: Lowerer, x: View, y: View, c: View) -> bool:
    if c.strides[-1] != 1 and c.shape[-1] != 1:
        return False
    product_of(low, x, y, c, None)
    return True


# ---------------------------------------------------------------- one window for a plane
def _is_whole(op: Op) -> bool:
    """Whether one window takes a whole image: the weights' gradient of taps of one pixel."""
    x, w = (v.type.shape for v in op.operands)
    plain = all(p == 0 for pair in op.attrs["padding"] for p in pair)
    return plain and w[2:] == x[2:] and op.result.type.shape[2:] == (1, 1)


def _whole_plane(low: Lowerer, x: View, w: View, out: View, groups: int) -> bool:
    """Rows of images times rows of weights, summed up over what does not lie in one row; False if
    the result lies in memory in another way."""
    c = _grouped(out.index(3, 0).index(2, 0), 1, groups).transpose((1, 0, 2))
    left, right = _grouped(x, 1, groups).transpose((1, 0, 2, 3, 4)), _grouped(w, 0, groups)
    if c.strides[2] != 1 and c.shape[2] != 1:
        c, left, right = c.transpose((0, 2, 1)), right, left
    if c.strides[2] != 1 and c.shape[2] != 1:
        return False
    low.emit(Contract(left, right.transpose((0, 2, 3, 4, 1)), c))
    return True


# ---------------------------------------------------------------- as a convolution
def _grouped(v: View, axis: int, groups: int) -> View:
    """`axis` in two: the groups, and what belongs to one."""
    part = divide(v.shape[axis], groups)
    assert part is not None
    shape = (*v.shape[:axis], groups, part, *v.shape[axis + 1 :])
    step = v.strides[axis]
    strides = (*v.strides[:axis], part * step, step, *v.strides[axis + 1 :])
    return replace(v, shape=shape, strides=strides)


def _convolution(low: Lowerer, op: Op, x: View, w: View, out: View) -> None:
    a, groups = op.attrs, op.attrs["groups"]
    n, (high, wide) = out.shape[0], out.shape[2:]
    images = _grouped(x, 1, groups).transpose((1, 0, 2, 3, 4)).insert(3)
    results = _grouped(out, 1, groups).transpose((1, 0, 2, 3, 4)).insert(3)
    if n != 1 and out.strides[0] == product((high, wide)):
        images, results = (v.transpose((0, 3, 2, 1, 4, 5)) for v in (images, results))
    weights = _grouped(w, 0, groups)
    before = (a["padding"][0][0], a["padding"][1][0])
    low.emit(Conv(images, weights, results, a["stride"], before, a["dilation"]))


# ---------------------------------------------------------------- channel by channel
def _is_thin(op: Op, w: View, groups: int, x: View) -> bool:
    fixed = all(isinstance(d, int) for d in w.shape[1:])
    ends = zip(x.shape[2:], op.attrs["padding"])
    taken = (isinstance(n, int) or all(isinstance(p, int) and p >= 0 for p in q) for n, q in ends)
    if not fixed or not all(taken) or not _is_few(w, groups) or w.shape[1] != 1:
        return False
    return product(w.shape[2:]) <= UNROLLED  # type: ignore[operator]


def _is_few(w: View, groups: int) -> bool:
    return groups > 1 and isinstance(w.shape[0], int) and w.shape[0] <= THIN * groups


def _axes(op: Op, x: View, w: View, out: View) -> list[Axis]:
    a = op.attrs
    rows: Any = (x.shape[2:], out.shape[2:], w.shape[2:], a["stride"], a["padding"], a["dilation"])
    return [Axis(*q) for q in zip(*rows)]


def _each_channel(low: Lowerer, op: Op, x: View, w: View, out: View) -> None:
    axes, groups = _axes(op, x, w, out), op.attrs["groups"]
    weights, results = _grouped(w, 0, groups), _grouped(out, 1, groups)
    around = frame(low, axes, x.dtype, 0.0)

    def plane(n: Size, g: Size) -> tuple[Launch, ...]:
        pixels, copies = around.entered(x.index(0, n).index(0, g))
        r = low.symbol("i")
        place = results.index(0, n).index(0, g).index(0, Size.named(r))
        taps = weights.index(0, g).index(0, Size.named(r)).index(0, 0)
        filters = folded(low, [pixels], place, around.own, 0.0, _term, taps)
        return *copies, loop(low, r, results.shape[2], filters)

    each_plane(low, results.shape[:2], plane)


def _term(total: k.Scalar, pixel: k.Scalar, weight: k.Scalar) -> k.Scalar:
    return total + pixel * weight


def _is_correlation(op: Op, x: View, w: View) -> bool:
    """Whether a few results sum up whole planes, group by group: the gradient of the weights of a
    convolution of every channel for itself."""
    results = op.result.type.shape[2:]
    dims = (*x.shape[2:], *w.shape[2:], *results)
    if not all(isinstance(d, int) for d in dims) or not _is_few(w, op.attrs["groups"]):
        return False
    return product(results) <= RESULTS and product(w.shape[2:]) >= PLANE  # type: ignore[operator]


def _correlation(low: Lowerer, op: Op, x: View, w: View, out: View) -> None:
    """Here the results are the taps, and the weights the windows, of a convolution whose stride and
    dilation have changed places. Sums over a plane are made together."""
    axes = [
        replace(a, windows=a.taps, taps=a.fixed[1], stride=a.dilation, dilation=a.stride)
        for a in _axes(op, x, w, out)
    ]
    groups, around = op.attrs["groups"], frame(low, axes, x.dtype, 0.0)
    pixels, results = (_grouped(v, 1, groups) for v in (x, out))
    weights = _grouped(w, 0, groups)
    low.emit(fill(out, 0.0))

    def plane(b: Size, g: Size, n: Size) -> tuple[Launch, ...]:
        seen, copies = around.entered(pixels.index(0, b).index(0, g).index(0, n))
        r = low.symbol("i")
        place = results.index(0, b).index(0, g).index(0, Size.named(r))
        taps = weights.index(0, g).index(0, Size.named(r)).index(0, n)
        return *copies, loop(low, r, weights.shape[1], list(_sums(seen, taps, place, around.own)))

    each_plane(low, (out.shape[0], groups, weights.shape[2]), plane)


def _sums(x: View, w: View, out: View, axes: Sequence[Axis]) -> Iterator[Dots]:
    down, across = axes
    for (ys, above), (xs, beside) in pairs(down.regions(), across.regions()):
        at = list(pairs(above, beside))
        for some in (at[q : q + SUMS] for q in range(0, len(at), SUMS)):
            seen = [across.seen(down.seen(x, 0, i, ys), 1, j, xs) for i, j in some]
            outs = [out.index(0, i).index(0, j) for i, j in some]
            yield Dots(tuple(seen), part(w, ys, xs), tuple(outs))
