"""Gathers and scatters: elements at places that tensors of indices give."""

from __future__ import annotations

from collections.abc import Sequence

from executor.gpu.kernel_builder import Int, Kernel, add, kernel_for, mul
from executor.gpu.scalars import memory_type
from executor.launches import Gather, GatherNd, ScatterNd
from executor.memory import View
from ir.types import Dim


@kernel_for(Gather)
def gather_kernel(g: Gather) -> Kernel:
    kernel, axis, end = Kernel(), g.axis, g.axis + g.index.ndim
    x, index, out = (kernel.pointer(v) for v in (g.x, g.index, g.out))
    n, step = kernel.number(g.x.shape[axis]), kernel.number(g.x.strides[axis])
    over_x = (*g.x.strides[:axis], *(0,) * g.index.ndim, *g.x.strides[axis + 1 :])
    over_index = (*(0,) * axis, *g.index.strides, *(0,) * (g.x.ndim - axis - 1))
    assert len(over_x) == len(over_index) == g.out.ndim >= end
    with kernel.each(g.out.shape, [over_x, over_index, g.out.strides]) as (source, place, to):
        at = wrapped(kernel, f"(i64){kernel.load(index, g.index.dtype, place)}", n, g.wrap)
        with kernel.block(f"if ((u64){at} >= (u64){n})"):
            if g.error:
                kernel.emit(f"fail(g, {g.error});")
            kernel.emit("continue;")
        kind = memory_type(g.x.dtype)
        value = f"{x}[{add(source, mul(at, step))}]"
        if g.padding >= 0:
            value = f"{at} == {g.padding} ? ({kind})0 : {value}"
        kernel.store(out, to, value)
    kernel.own.append(g.out)
    return kernel


def wrapped(kernel: Kernel, index: str, n: Int, wrap: bool = True) -> Int:
    """Negative indices count from the end."""
    at = kernel.let(index)
    return kernel.let(f"{at} < 0 ? {at} + {n} : {at}") if wrap else at


@kernel_for(GatherNd)
def gather_nd_kernel(x: GatherNd) -> Kernel:
    kernel = Kernel()
    table, out = kernel.pointer(x.x), kernel.pointer(x.out)
    indices = _Indices(kernel, x.x, x.index, x.axis)
    rows = [indices.over, *indices.strides(x.out.ndim), x.out.strides]
    with kernel.each(x.out.shape, rows) as (start, *places, to):
        kernel.store(out, to, f"{table}[{indices.at(start, places)}]")
    kernel.own.append(x.out)
    return kernel


@kernel_for(ScatterNd)
def scatter_nd_kernel(x: ScatterNd) -> Kernel:
    """A thread has the places of all indices for one element of the other axes, in their order."""
    kernel = Kernel()
    out, y = kernel.pointer(x.out), kernel.pointer(x.y)
    indices, count, end = _Indices(kernel, x.out, x.index, x.axis), x.index[0].ndim, x.axis
    others = [*range(end), *range(end + len(x.index), x.out.ndim)]
    of_y = [*range(end), *range(end + count, x.y.ndim)]
    shape = [x.out.shape[a] for a in others]
    rows = [[x.out.strides[a] for a in others], [x.y.strides[a] for a in of_y]]
    places = kernel.numbers(x.index[0].shape)
    steps = [kernel.numbers(v.strides) for v in x.index]
    steps.append(kernel.numbers(x.y.strides[end : end + count]))
    with kernel.each(shape, rows) as (start, row):
        with kernel.nest(places, steps) as (*at, of_row):
            to = indices.at(start, at)
            old = kernel.load(out, x.out.dtype, to)
            new = kernel.load(y, x.y.dtype, add(row, of_row))
            (value,) = kernel.evaluate([x.root], [old, new])
            kernel.store(out, to, value)
    return kernel


class _Indices:
    """Index tensors for the axes of a table from `axis` on."""

    def __init__(self, kernel: Kernel, table: View, index: Sequence[View], axis: int) -> None:
        self.kernel, self.axis, self.index = kernel, axis, index
        self.pointers = [kernel.pointer(v) for v in index]
        behind = axis + len(index)
        self.sizes = kernel.numbers(table.shape[axis:behind])
        self.steps = kernel.numbers(table.strides[axis:behind])
        none: tuple[Dim, ...] = (0,) * index[0].ndim
        self.over = (*table.strides[:axis], *none, *table.strides[behind:])

    def strides(self, ndim: int) -> list[tuple[Dim, ...]]:
        """Of each index tensor over the axes of the result."""
        front = (0,) * self.axis
        back = (0,) * (ndim - self.axis - self.index[0].ndim)
        return [(*front, *v.strides, *back) for v in self.index]

    def at(self, start: Int, places: Sequence[Int]) -> Int:
        """The offset of the element in the table."""
        at = start
        for p, v, place, n, step in zip(self.pointers, self.index, places, self.sizes, self.steps):
            i = wrapped(self.kernel, self.kernel.load(p, v.dtype, place), n)
            at = self.kernel.let(add(at, mul(i, step)))
        return at
