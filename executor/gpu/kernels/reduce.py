"""Reductions: a thread for each result, or a block where a result has many contiguous
elements."""

from __future__ import annotations

import numpy as np

from executor.gpu.kernel_builder import IntText, Kernel, add, kernel_for, mul
from executor.gpu.preamble import THREADS
from executor.gpu.scalars import literal, register_type
from executor.launches import ArgMax, Dots, Reduce
from executor.memory import View, collapse
from ir.opdef import Reduction as Reduction
from ir.scalar.language import cast, input_
from ir.types import I64, Dim, DType, product

#: results up to which a block takes each of them
FEW = 1024


def combined(kernel: Kernel, rule: Reduction, d: DType, a: str, b: str) -> str:
    root = rule.combine(input_(0, d), input_(1, d))
    return kernel.evaluate([root], [a, b])[0]


def over_block(kernel: Kernel, rule: Reduction, d: DType, value: str) -> str:
    """The values of the threads of a block combined: an element of shared memory, until the next
    barrier of the block."""
    shared = kernel.fresh()
    kernel.emit(f"{register_type(d)}* {shared} = ({register_type(d)}*)shared_memory();")
    kernel.emit("__syncthreads();")
    kernel.emit(f"{shared}[threadIdx.x] = {value};")
    kernel.emit("__syncthreads();")
    with kernel.block("for (u32 m = blockDim.x / 2; m; m >>= 1)"):
        with kernel.block("if (threadIdx.x < m)"):
            pair = [f"{shared}[threadIdx.x]", f"{shared}[threadIdx.x + m]"]
            kernel.emit(f"{pair[0]} = {combined(kernel, rule, d, *pair)};")
        kernel.emit("__syncthreads();")
    return f"{shared}[0]"


@kernel_for(Reduce)
def reduce_kernel(r: Reduce) -> Kernel:
    kept = [a for a in range(r.x.ndim) if a not in r.axes]
    shape = [r.x.shape[a] for a in kept]
    inner, (gone,) = collapse([r.x.shape[a] for a in r.axes], [[r.x.strides[a] for a in r.axes]])
    rows = [[r.x.strides[a] for a in kept], r.out.strides]
    by_block = _by_block(shape, inner, gone)
    kernel, d = Kernel(), r.x.dtype.compute
    x, out = kernel.pointer(r.x), kernel.pointer(r.out)
    n, steps = kernel.numbers(inner), kernel.numbers(gone)
    one = ("blockIdx.x", "gridDim.x") if by_block else ("g.thread", "g.threads")
    with kernel.each(shape, rows, one) as (start, place):
        total = kernel.fresh()
        (first,) = kernel.evaluate([r.rule.init(d)], [])
        kernel.emit(f"{register_type(d)} {total} = {first};")

        def take(at: IntText) -> None:
            value = kernel.read(x, r.x.dtype, add(start, at))
            kernel.emit(f"{total} = {combined(kernel, r.rule, d, total, value)};")

        if not by_block:
            with kernel.nest(n, [steps]) as (at,):
                take(at)
            kernel.write(out, r.out.dtype, place, total)
        else:
            count = kernel.let(" * ".join(map(str, n)))
            with kernel.loop(count, "i64", "threadIdx.x", "blockDim.x") as i:
                take(kernel.decoded(i, n, [steps])[0])
            whole = over_block(kernel, r.rule, d, total)
            with kernel.block("if (!threadIdx.x)"):
                kernel.write(out, r.out.dtype, place, whole)
    if not by_block:
        kernel.own.append(r.out)
    return kernel


def _by_block(shape: list[Dim], inner: list[Dim], strides: list[Dim]) -> bool:
    """Whether a result has work for many threads, and its elements or its like are not enough."""
    each, results = product(inner), product(shape)
    if isinstance(each, int) and each < THREADS // 4:
        return False
    return strides[-1] == 1 or (isinstance(results, int) and results <= FEW)


@kernel_for(ArgMax)
def argmax_kernel(r: ArgMax) -> Kernel:
    kernel, d = Kernel(), r.x.dtype.compute
    x, out = kernel.pointer(r.x), kernel.pointer(r.out)
    kept = [a for a in range(r.x.ndim) if a != r.axis]
    n, step = kernel.number(r.x.shape[r.axis]), kernel.number(r.x.strides[r.axis])
    rows = [[r.x.strides[a] for a in kept], r.out.strides]
    with kernel.each([r.x.shape[a] for a in kept], rows) as (start, place):
        best, where = kernel.fresh(), kernel.fresh()
        if d.kind == "f":
            lowest = literal(float(np.finfo(r.x.dtype.numpy).min), d)
        else:
            lowest = kernel.read(x, r.x.dtype, start)
        kernel.emit(f"{register_type(d)} {best} = {lowest};")
        kernel.emit(f"i64 {where} = 0;")
        with kernel.loop(n) as i:
            value = kernel.read(x, r.x.dtype, add(start, mul(i, step)))
            kernel.emit(f"if ({value} > {best}) {best} = {value}, {where} = {i};")
        (index,) = kernel.evaluate([cast(input_(0, I64), r.out.dtype)], [where])
        kernel.store(out, place, index)
    kernel.own.append(r.out)
    return kernel


@kernel_for(Dots)
def dots_kernel(x: Dots) -> Kernel:
    """A block for each sum."""
    kernel = Kernel()
    y = kernel.pointer(x.y)
    for k, (v, out) in enumerate(zip(x.xs, x.outs)):
        left, to = kernel.pointer(v), kernel.pointer(out)
        with kernel.block(f"if ({k} % gridDim.x == blockIdx.x)"):
            _dot(kernel, (left, v), (y, x.y), to)
    return kernel


def _dot(kernel: Kernel, left: tuple[str, View], right: tuple[str, View], out: str) -> None:
    (p, v), (q, y) = left, right
    d = v.dtype.compute
    total = kernel.fresh()
    kernel.emit(f"{register_type(d)} {total} = 0;")
    one = ("threadIdx.x", "blockDim.x")
    with kernel.each(v.shape, [v.strides, y.strides], one) as (a, b):
        product_ = f"{kernel.read(p, v.dtype, a)} * {kernel.read(q, y.dtype, b)}"
        kernel.emit(f"{total} += {product_};")
    add_ = Reduction(init=lambda t: None, combine=lambda a, b: a + b)
    whole = over_block(kernel, add_, d, total)
    with kernel.block("if (!threadIdx.x)"):
        old = kernel.read(out, v.dtype, 0)
        kernel.write(out, v.dtype, 0, f"{old} + {whole}")
