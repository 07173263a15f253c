"""Convolutions as implicit GEMM: the im2col matrix is packed panel by panel, never as a whole.

The weights are the left matrix, [filters, channels * taps], and a panel of the right one holds what
some consecutive results read (`executor.cpu.kernels.im2col`). The sum over channels and taps is
taken in parts, such that the weights of a part stay in the second cache while all panels pass, and
a panel in the first one; every panel is packed once for a part.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, load, store
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.gemm import LONG_SUM, Corner, GemmBuilder, GemmShape
from executor.cpu.kernels.im2col import form, patches
from executor.cpu.launches import PanelConv
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from ir.types import DType, product


def least(f: LlvmFunction, x: Int, y: Int) -> Int:
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y)
    return f.intrinsic("i64", "llvm.smin.i64", ("i64", str(x)), ("i64", str(y)))


def weights_part(target: Target, d: DType) -> LlvmFunction:
    """(w, out, filters, channels, lines, taps, and the strides of w): a part of the weights, row
    after row."""
    f, e = LlvmFunction("?", "i64"), element(d)
    w, out = f.argument("ptr"), f.argument("ptr")
    filters, channels, lines, taps, *steps = (f.argument("i64") for _ in range(8))
    one, wide = VectorEmitter(f, target, 1), VectorEmitter(f, target, target.lanes(d))
    at = f.alloca("i64")
    f.store("i64", "0", at, 8)

    def along(source: str, n: Int) -> None:
        """`n` elements side by side."""
        start = f.load("i64", at, 8)
        to, whole = OperandAccess(f.at(out, start, e), d, 1), f.floor_to(n, wide.width)
        for v, low, high in ((wide, 0, whole), (one, whole, n)):
            with f.loop(low, high, v.width) as k:
                store(v, to, k, load(v, OperandAccess(source, d, 1), k))
        f.store("i64", str(f.add(start, n)), at, 8)

    def each(source: str) -> None:
        with f.loop(0, channels) as c, f.loop(0, lines) as i, f.loop(0, taps) as j:
            offset = f.add(f.mul(c, steps[1]), f.add(f.mul(i, steps[2]), f.mul(j, steps[3])))
            place = f.load("i64", at, 8)
            store(
                one,
                OperandAccess(f.at(out, place, e), d, 1),
                0,
                load(one, OperandAccess(source, d, 1), offset),
            )
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


@dataclass
class _Convolution:
    """The function of one launch under construction; `x`, `w`, `out` are strides, outermost first,
    `n` the number of results of an image, or of images that lie side by side."""

    call: KernelBuilder
    module: LlvmModule
    c: PanelConv

    def __post_init__(self) -> None:
        c, number = self.c, self.call.number
        self.f, self.element = self.call.f, element(c.x.dtype)
        views = (c.x, c.w, c.out, c.left, c.panel)
        self.pointers = [self.call.pointer(v) for v in views]
        self.groups, self.images, self.filters, _, *plane = map(number, c.out.shape)
        self.channels, _, *pixels = map(number, c.x.shape[2:])
        self.lines, self.taps = map(number, c.w.shape[3:])
        self.x, self.w = ([number(s) for s in v.strides] for v in (c.x, c.w))
        self.out = [number(s) for s in c.out.strides[:3]]
        self.n = number(product(c.out.shape[3:]))
        self.most = number(c.channels), number(c.lines)
        steps = [number(d) for pair in (c.stride, c.before, c.dilation) for d in pair]
        self.geometry = (*plane, *pixels, self.x[3], self.x[2], *self.x[4:], *steps)
        target = self.call.target
        self.pack = self.module.helper(patches, target, form(target, c))
        self.copy = self.module.helper(weights_part, target, c.x.dtype)
        self.whole = c.channels == c.x.shape[2] and c.lines == c.w.shape[3]

    def at(self, pointer: str, *steps: tuple[Int, Int]) -> str:
        """The address some steps along some strides away."""
        offset: Int = 0
        for index, stride in steps:
            offset = self.f.add(offset, self.f.mul(index, stride))
        return self.f.at(pointer, offset, self.element)

    def run(self) -> None:
        f, c = self.f, self.c
        with f.loop(0, self.groups) as group:
            if self.whole:
                self.part(group, 0, 0)
                return
            with f.loop(0, self.channels, c.channels) as first, f.loop(0, self.lines, c.lines) as i:
                self.part(group, first, i)

    def part(self, group: Int, first: Int, line: Int) -> None:
        """The sums over some channels and lines of taps, for all images."""
        f = self.f
        some = least(f, self.most[0], f.sub(self.channels, first))
        few = least(f, self.most[1], f.sub(self.lines, line))
        x, w, out, left, _ = self.pointers
        source = self.at(w, (group, self.w[0]), (first, self.w[2]), (line, self.w[3]))
        numbers = (self.filters, some, few, self.taps, *self.w[1:])
        f.call("i64", self.copy, ("ptr", source), ("ptr", left), *_numbers(numbers))
        with f.loop(0, self.images) as b:
            pixels = self.at(x, (group, self.x[0]), (b, self.x[1]), (first, self.x[2]))
            place = self.at(out, (group, self.out[0]), (b, self.out[1]))
            if self.whole:
                self.image(pixels, place, (some, line, few), True)
                return
            begun = f.op(f"icmp eq i64 {f.op(f'or i64 {first}, {line}')}, 0")
            f.either(
                begun,
                lambda: self.image(pixels, place, (some, line, few), True),
                lambda: self.image(pixels, place, (some, line, few), False),
            )

    def image(self, pixels: str, place: str, of: tuple[Int, Int, Int], new: bool) -> None:
        """Emit all panels of an image; `of` is the part: channels, the first line and lines of
        taps. `new`: there is no sum yet to which it is added."""
        f, e, c, panel = self.f, self.element, self.c, self.pointers[4]

        def packed(at: Corner, column: Int, count: Int) -> tuple[Corner, Int]:
            numbers = (column, count, *of, self.taps, *self.geometry)
            f.call("i64", self.pack, ("ptr", pixels), ("ptr", panel), *_numbers(numbers))
            moved = at.moved(f, e, c=column, s=column)
            return Corner(moved.a, panel, moved.c, moved.s), c.columns

        depth = f.mul(of[0], f.mul(of[2], self.taps))
        sides = ((depth, 1), (c.columns, 1), (self.out[2], self.out[2]))
        products = GemmShape(c.x.dtype, c.out.shape[2], c.columns, not new)
        numbers = (self.filters, self.n, depth)
        p = GemmBuilder(self.call, self.module, products, *numbers, *sides)
        p.panels(Corner(self.pointers[3], panel, place, place), packed)


@kernel_for(PanelConv)
def conv_kernel(target: Target, module: LlvmModule, c: PanelConv) -> KernelBuilder:
    """x is [groups, images, C, images together, H, W], w [groups, filters, C, KH, KW], and out
    [groups, images, filters, images together, H, W]."""
    call = KernelBuilder(target)
    _Convolution(call, module, c).run()
    taps = product(c.w.shape[2:])
    call.f.cold = isinstance(taps, int) and taps >= LONG_SUM
    return call


def _numbers(values: tuple[Int, ...]) -> list[tuple[str, str]]:
    return [("i64", str(q)) for q in values]
