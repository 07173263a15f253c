"""Kernels of gather_nd and scatter_nd: elements at places that several index tensors give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, nest
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.elementwise import lanes_for, row
from executor.cpu.llvm_text import Int, LlvmModule
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import GatherNd, ScatterNd
from executor.memory import View, collapse
from ir.scalar.language import Scalar, input_
from ir.types import I64


@kernel_for(GatherNd)
def take_kernel(target: Target, module: LlvmModule, x: GatherNd) -> KernelBuilder:
    return _kernel(target, x.x, x.index, x.axis, x.out, [input_(0, x.x.dtype)], False)


@kernel_for(ScatterNd)
def put_kernel(target: Target, module: LlvmModule, x: ScatterNd) -> KernelBuilder:
    return _kernel(target, x.out, x.index, x.axis, x.y, [x.root], True)


def _kernel(
    target: Target,
    table: View,
    index: Sequence[View],
    axis: int,
    rows: View,
    roots: Sequence[Scalar],
    written: bool,
) -> KernelBuilder:
    """`table` is what is indexed, `rows` has one row per place; `written`: the table is."""
    call = KernelBuilder(target)
    f, count, behind = call.f, axis + index[0].ndim, axis + len(index)
    base, other = call.pointer(table), call.pointer(rows)
    pointers = [call.pointer(v) for v in index]
    over = (*table.strides[:axis], *(0 for _ in index[0].shape))
    every = [over, *((*(0,) * axis, *v.strides) for v in index), rows.strides[:count]]
    dims, strides = collapse(rows.shape[:count], every)
    sizes = [call.number(table.shape[axis + k]) for k in range(len(index))]
    steps = [call.number(table.strides[axis + k]) for k in range(len(index))]
    numbers = [call.number(d) for d in dims]
    moves = [[call.number(s) for s in q] for q in strides]
    inner = _RowAxes(call, _rest(table, behind), _rest(rows, count), (base, other), roots, written)

    def body(o: list[Int]) -> None:
        at = o[0]
        for k, pointer in enumerate(pointers):
            i = f.load("i64", OperandAccess(pointer, I64, 1).at(f, o[k + 1]), 8)
            below = f.op(f"icmp slt i64 {i}, 0")
            i = f.op(f"select i1 {below}, i64 {f.op(f'add i64 {i}, {sizes[k]}')}, i64 {i}")
            at = f.add(at, f.mul(i, steps[k]))
        inner.run(at, o[-1])

    nest(f, numbers, moves, body)
    return call


def _rest(v: View, axis: int) -> View:
    return replace(v, shape=v.shape[axis:], strides=v.strides[axis:])


class _RowAxes:
    """The axes behind the indexed ones."""

    def __init__(
        self,
        call: KernelBuilder,
        table: View,
        rows: View,
        pointers: tuple[str, str],
        roots: Sequence[Scalar],
        written: bool,
    ) -> None:
        dims, strides = collapse(table.shape, [table.strides, rows.strides])
        self.call, self.roots, self.written = call, roots, written
        self.dims = dims or [1]
        self.views, self.pointers = (table, rows), pointers
        self.numbers = [call.number(d) for d in self.dims]
        self.steps = [[call.number(s) for s in q] for q in (strides if dims else [[1], [1]])]
        wide = lanes_for(call.target, roots, self.views)
        self.lanes = VectorEmitter(call.f, call.target, 1 if self.dims == [1] else wide)

    def run(self, at: Int, of_row: Int) -> None:
        def along(offsets: list[Int]) -> None:
            table, rows = (
                OperandAccess(OperandAccess(p, v.dtype, 1).at(self.call.f, o), v.dtype, s[-1])
                for p, v, o, s in zip(self.pointers, self.views, offsets, self.steps)
            )
            ins, out = ([table, rows], table) if self.written else ([table], rows)
            row(self.lanes, self.roots, ins, [out], self.numbers[-1], self.dims[-1])

        nest(self.call.f, self.numbers[:-1], [s[:-1] for s in self.steps], along, [at, of_row])
