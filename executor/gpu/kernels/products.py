"""Direct matrix products, convolutions and Fourier transforms: one thread for each result, which
sums in the compute type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import pi

from executor.gpu.kernel_builder import IntText, Kernel, add, kernel_for, mul
from executor.gpu.scalars import register_type
from executor.launches import Contract, Conv, Fourier, Gemm
from executor.memory import View
from ir.scalar.exponential import cos, sin
from ir.scalar.language import cast, const, input_
from ir.types import F64, I64, Dim, DType


class _Sum:
    """The sum of products of elements of `x` and `y`, in a register."""

    def __init__(self, kernel: Kernel, x: View, y: View) -> None:
        self.kernel, self.views = kernel, (x, y)
        self.pointers = [kernel.pointer(v) for v in (x, y)]
        self.dtype: DType = x.dtype.compute
        self.name = ""

    def start(self, value: str = "0") -> None:
        self.name = self.kernel.fresh()
        self.kernel.emit(f"{register_type(self.dtype)} {self.name} = {value};")

    def take(self, *at: IntText) -> None:
        a, b = (self.kernel.read(p, v.dtype, o) for p, v, o in zip(self.pointers, self.views, at))
        if self.dtype.kind == "f":
            fma = "fmaf" if self.dtype.bits == 32 else "fma"
            self.kernel.emit(f"{self.name} = {fma}({a}, {b}, {self.name});")
        else:
            self.kernel.emit(f"{self.name} += {a} * {b};")


@kernel_for(Gemm)
def gemm_kernel(x: Gemm) -> Kernel:
    kernel = Kernel()
    total, out = _Sum(kernel, x.x, x.y), kernel.pointer(x.c)
    batch = x.c.ndim - 2
    left, right = (v.expand((*x.c.shape[:-2], *v.shape[-2:])) for v in (x.x, x.y))
    over_x: Sequence[Dim] = (*left.strides[:batch], left.strides[-2], 0)
    over_y: Sequence[Dim] = (*right.strides[:batch], 0, right.strides[-1])
    depth = kernel.number(x.x.shape[-1])
    steps = [[kernel.number(left.strides[-1])], [kernel.number(right.strides[-2])]]
    rows = [over_x, over_y, x.c.strides]
    first = "" if x.initial is None else kernel.pointer(x.initial)
    if x.initial is not None:
        rows.append(x.initial.strides)
    with kernel.each(x.c.shape, rows) as (a, b, to, *initial):
        start = "0"
        if x.initial is not None:
            start = kernel.read(first, x.initial.dtype, initial[0])
        total.start()
        with kernel.nest([depth], steps, [a, b]) as at:
            total.take(*at)
        kernel.write(out, x.c.dtype, to, f"({total.name} + {start})" if first else total.name)
    kernel.own += [x.c] if x.initial is None else [x.c, x.initial]
    return kernel


@kernel_for(Contract)
def contract_kernel(x: Contract) -> Kernel:
    kernel = Kernel()
    total, out = _Sum(kernel, x.x, x.y), kernel.pointer(x.out)
    over_x = (*x.x.strides[:2], 0)
    over_y = (x.y.strides[0], 0, x.y.strides[-1])
    places = kernel.numbers(x.x.shape[2:])
    steps = [kernel.numbers(x.x.strides[2:]), kernel.numbers(x.y.strides[1:-1])]
    with kernel.each(x.out.shape, [over_x, over_y, x.out.strides]) as (a, b, to):
        total.start()
        with kernel.nest(places, steps, [a, b]) as at:
            total.take(*at)
        kernel.write(out, x.out.dtype, to, total.name)
    kernel.own.append(x.out)
    return kernel


@kernel_for(Conv)
def conv_kernel(x: Conv) -> Kernel:
    """Axes: x [g, b, c, m, y, z], w [g, r, c, i, j], out [g, b, r, m, p, q]."""
    kernel = Kernel()
    total, out = _Sum(kernel, x.x, x.w), kernel.pointer(x.out)
    a, w = x.x.strides, x.w.strides
    unit = ((0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 0, 1))
    over_x, over_w = (a[0], a[1], 0, a[3], 0, 0), (w[0], 0, w[1], 0, 0, 0)
    limits = kernel.numbers(x.x.shape[-2:])
    before = kernel.numbers(x.before)
    moves = kernel.numbers((a[2], w[2], a[4], a[5], w[3], w[4]))
    channels, *taps = kernel.numbers(x.w.shape[2:])
    with kernel.each(x.out.shape, [over_x, over_w, *unit, x.out.strides]) as at:
        start, weights, p, q, to = at
        total.start()
        with kernel.loop(channels) as c:
            with _inside(kernel, taps[0], p, 0, x, before, limits) as (i, y):
                with _inside(kernel, taps[1], q, 1, x, before, limits) as (j, z):
                    pixel = add(start, mul(c, moves[0]), mul(y, moves[2]), mul(z, moves[3]))
                    tap = add(weights, mul(c, moves[1]), mul(i, moves[4]), mul(j, moves[5]))
                    total.take(pixel, tap)
        kernel.write(out, x.out.dtype, to, total.name)
    kernel.own.append(x.out)
    return kernel


@contextmanager
def _inside(
    kernel: Kernel,
    taps: IntText,
    place: IntText,
    axis: int,
    x: Conv,
    before: Sequence[IntText],
    limits: Sequence[IntText],
) -> Iterator[tuple[IntText, IntText]]:
    """A loop over the taps of an axis, and the pixel of each that there is."""
    with kernel.loop(taps) as i:
        first = mul(f"({place})", x.stride[axis])
        at = kernel.let(f"{first} + {mul(i, x.dilation[axis])} - {before[axis]}")
        with kernel.block(f"if ({at} >= 0 && {at} < {limits[axis]})"):
            yield i, at


@kernel_for(Fourier)
def fourier_kernel(x: Fourier) -> Kernel:
    """Powers of a root of unity are kept in double precision."""
    kernel, real, d = Kernel(), x.kind == "analysis", x.x.dtype
    source, out = kernel.pointer(x.x), kernel.pointer(x.out)
    count, step = kernel.number(x.x.shape[x.axis]), kernel.number(x.x.strides[x.axis])
    apart = 0 if real else kernel.number(x.x.strides[-1])
    outer = x.x.ndim - (not real)
    pair = () if x.kind == "synthesis" else (0,)
    start = (*(0 if a == x.axis else x.x.strides[a] for a in range(outer)), *pair)
    number = (*(1 if a == x.axis else 0 for a in range(outer)), *pair)
    part = (*(0,) * outer, *(1 for _ in pair))
    rows = [start, number, part, x.out.strides]
    angle = cast(input_(0, I64), F64) * const((2 if x.inverse else -2) * pi / x.n, F64)
    with kernel.each(x.out.shape, rows) as (first, k, which, place):
        re, im = kernel.evaluate([cos(angle), sin(angle)], [f"(i64)({k})"])
        kernel.emit(f"double c = 1, s = 0, total = 0; const double re = {re}, im = {im};")
        with kernel.loop(count) as j:
            at = add(first, mul(j, step))
            a = kernel.read(source, d, at)
            b = "0.0" if real else kernel.read(source, d, add(at, apart))
            kernel.emit(f"double more = {which} ? {a} * s + {b} * c : {a} * c - {b} * s;")
            if x.kind == "synthesis" and x.doubled:
                kernel.emit(f"if ({j} && 2 * {j} != {x.n}) more *= 2;")
            kernel.emit("total += more;")
            kernel.emit("const double next = c * re - s * im; s = c * im + s * re; c = next;")
        if real and x.doubled:
            kernel.emit(f"if ({k} && 2 * ({k}) != {x.n}) total *= 2;")
        (value,) = kernel.evaluate([cast(input_(0, F64), d)], [f"(total * {x.factor!r})"])
        kernel.store(out, place, value)
    kernel.own.append(x.out)
    return kernel
