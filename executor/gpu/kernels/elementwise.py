"""Elementwise kernels: every thread computes the elements that belong to it."""

from __future__ import annotations

from executor.gpu.kernel_builder import Kernel, injective, kernel_for
from executor.launches import Iota, Map
from ir.scalar.language import cast, const, input_
from ir.types import F64, I64


@kernel_for(Map)
def map_kernel(m: Map) -> Kernel:
    kernel = Kernel()
    views = [*m.ins, *m.outs]
    pointers = [kernel.pointer(v) for v in views]
    with kernel.each(m.shape, [v.strides for v in views]) as at:
        places = list(zip(pointers, views, at))
        ins = [kernel.load(p, v.dtype, o) for p, v, o in places[: len(m.ins)]]
        values = kernel.evaluate(m.roots, ins, m.error)
        for (p, _, o), value in zip(places[len(m.ins) :], values):
            kernel.store(p, o, value)
    kernel.own += filter(injective, views)
    return kernel


@kernel_for(Iota)
def iota_kernel(m: Iota) -> Kernel:
    kernel = Kernel()
    wide = I64 if isinstance(m.start, int) and isinstance(m.step, int) else F64
    index = cast(input_(0, I64), wide)
    root = cast(index * const(m.step, wide) + const(m.start, wide), m.out.dtype)
    out = kernel.pointer(m.out)
    with kernel.each(m.out.shape, [(1,), m.out.strides]) as (i, at):
        (value,) = kernel.evaluate([root], [f"(i64)({i})"])
        kernel.store(out, at, value)
    kernel.own.append(m.out)
    return kernel
