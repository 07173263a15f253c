"""Convolutions as products of matrices, of which the right one is never there as a whole.

The weights are the left matrix, [filters, channels * taps], and a panel of the right one holds what
some consecutive results read (`executor.cpu.patches`). The sum over channels and taps is taken in
parts, such that the weights of a part stay in the second cache while all panels pass, and a panel
in the first one; every panel is packed once for a part.
"""

from __future__ import annotations

from executor.cpu.gemm import Corner, Product
from executor.cpu.kernel import Call, Place, load, store
from executor.cpu.patches import form, patches
from executor.cpu.scalar import Lanes
from executor.cpu.target import Target
from executor.cpu.text import Function, Int, Module, element
from executor.launches import Conv, Gemm
from executor.views import View
from ir.types import DType, product


def least(f: Function, x: Int, y: Int) -> Int:
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y)
    return f.intrinsic("i64", "llvm.smin.i64", ("i64", str(x)), ("i64", str(y)))


def weights_part(target: Target, d: DType) -> Function:
    """(w, out, filters, channels, lines, taps, and the strides of w): a part of the weights, row
    after row."""
    f, e = Function("?", "i64"), element(d)
    w, out = f.argument("ptr"), f.argument("ptr")
    filters, channels, lines, taps, *steps = (f.argument("i64") for _ in range(8))
    one, wide = Lanes(f, target, 1), Lanes(f, target, target.lanes(d))
    at = f.alloca("i64")
    f.store("i64", "0", at, 8)

    def along(source: str, n: Int) -> None:
        """`n` elements side by side."""
        start = f.load("i64", at, 8)
        to, whole = Place(f.at(out, start, e), d, 1), f.floor_to(n, wide.width)
        for v, low, high in ((wide, 0, whole), (one, whole, n)):
            with f.loop(low, high, v.width) as k:
                store(v, to, k, load(v, Place(source, d, 1), k))
        f.store("i64", str(f.add(start, n)), at, 8)

    def each(source: str) -> None:
        with f.loop(0, channels) as c, f.loop(0, lines) as i, f.loop(0, taps) as j:
            offset = f.add(f.mul(c, steps[1]), f.add(f.mul(i, steps[2]), f.mul(j, steps[3])))
            place = f.load("i64", at, 8)
            store(one, Place(f.at(out, place, e), d, 1), 0, load(one, Place(source, d, 1), offset))
            f.store("i64", f.op(f"add i64 {place}, 1"), at, 8)

    side = f.op(f"icmp eq i64 {steps[3]}, 1")
    side = f.op(f"and i1 {side}, {f.op(f'icmp eq i64 {steps[2]}, {taps}')}")
    dense = f.op(f"icmp eq i64 {steps[1]}, {f.mul(lines, taps)}")
    single = f.op(f"icmp eq i64 {channels}, 1")
    side = f.op(f"and i1 {side}, {f.op(f'or i1 {dense}, {single}')}")
    with f.loop(0, filters) as r:
        source = f.at(w, f.mul(r, steps[0]), e)
        length = f.mul(channels, f.mul(lines, taps))
        f.either(side, lambda: along(source, length), lambda: each(source))
    return f


def conv_kernel(target: Target, module: Module, c: Conv) -> Call:
    """x is [groups, images, C, images together, H, W], w [groups, filters, C, KH, KW]."""
    call = Call(target)
    f, e, number = call.f, element(c.x.dtype), call.number
    x, w, out, left, panel = map(call.pointer, (c.x, c.w, c.out, c.left, c.panel))
    groups, images, filters, together, height, width = map(number, c.out.shape)
    channels, _, rows, columns = map(number, c.x.shape[2:])
    lines, taps = map(number, c.w.shape[3:])
    x_group, x_image, *xs = map(number, c.x.strides)
    w_group, *ws = map(number, c.w.strides)
    out_group, out_image, out_row = map(number, c.out.strides[:3])
    stride, before, apart = (list(map(number, q)) for q in (c.stride, c.before, c.dilation))
    n = number(product(c.out.shape[3:]))
    most, high = number(c.channels), number(c.lines)
    pack = module.define(patches(target, form(target, c)), "0")
    copy = module.define(weights_part(target, c.x.dtype), "0")
    whole = c.channels == c.x.shape[2] and c.lines == c.w.shape[3]
    geometry = (height, width, rows, columns, xs[1], xs[0], *xs[2:], *stride, *before, *apart)

    def part(group: Int, first: Int, line: Int) -> None:
        some = least(f, most, f.sub(channels, first))
        few = least(f, high, f.sub(lines, line))
        depth = f.mul(some, f.mul(few, taps))
        source = f.add(f.mul(group, w_group), f.add(f.mul(first, ws[1]), f.mul(line, ws[2])))
        numbers = (filters, some, few, taps, *ws)
        f.call("i64", copy, ("ptr", f.at(w, source, e)), ("ptr", left), *_numbers(numbers))
        with f.loop(0, images) as b:
            at = f.add(f.mul(group, x_group), f.add(f.mul(b, x_image), f.mul(first, xs[0])))
            pixels = f.at(x, at, e)
            place = f.at(out, f.add(f.mul(group, out_group), f.mul(b, out_image)), e)

            def packed(at: Corner, column: Int, count: Int) -> tuple[Corner, Int]:
                numbers = (column, count, some, line, few, taps, *geometry)
                f.call("i64", pack, ("ptr", pixels), ("ptr", panel), *_numbers(numbers))
                moved = at.moved(f, e, c=column, s=column)
                return Corner(moved.a, panel, moved.c, moved.s), c.columns

            def sums(first_part: bool) -> None:
                g = _as_gemm(c, None if first_part else c.out)
                sides = ((depth, 1), (c.columns, 1), (out_row, out_row))
                p = Product(call, module, g, filters, n, depth, *sides, False, panel)
                p.panels(Corner(left, panel, place, place), packed)

            if whole:
                sums(True)
                return
            begun = f.op(f"icmp eq i64 {f.op(f'or i64 {first}, {line}')}, 0")
            f.either(begun, lambda: sums(True), lambda: sums(False))

    with f.loop(0, groups) as group:
        if whole:
            part(group, 0, 0)
            return call
        with f.loop(0, channels, c.channels) as first, f.loop(0, lines, c.lines) as line:
            part(group, first, line)
    return call


def _numbers(values: tuple[Int, ...]) -> list[tuple[str, str]]:
    return [("i64", str(q)) for q in values]


def _as_gemm(c: Conv, initial: View | None) -> Gemm:
    """Types and sizes of the products that a convolution consists of."""
    n = product(c.out.shape[3:])
    rows = View(c.out.buffer, c.out.dtype, 0, (c.out.shape[2], n), (c.out.strides[2], 1))
    start = rows if initial is not None else None
    return Gemm(c.x, c.w, rows, c.columns, None, c.panel, start)
