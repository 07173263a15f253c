"""Gather of rows by indices, which are checked one by one."""

from __future__ import annotations

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, nest
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.elementwise import row
from executor.cpu.llvm_text import Int, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import Gather
from executor.memory import View, collapse
from ir.scalar.language import Scalar, const, input_
from ir.types import I64, Dim


class _RowCopy:
    """The part behind the gathered axis: one row of x is copied, or zeros are stored."""

    def __init__(self, call: KernelBuilder, g: Gather, x: str, out: str) -> None:
        behind = (g.x.strides[g.axis + 1 :], g.out.strides[g.axis + g.index.ndim :])
        dims, strides = collapse(g.x.shape[g.axis + 1 :], behind)
        self.dims = dims or [1]
        self.call, self.dtype, self.pointers = call, g.x.dtype, (x, out)
        self.numbers = [call.number(d) for d in self.dims]
        self.steps = [[call.number(s) for s in q] for q in (strides if dims else [[1], [1]])]
        width = 1 if self.dims == [1] else call.target.lanes(g.x.dtype)
        self.lanes = VectorEmitter(call.f, call.target, width)

    def store(self, source: Int, to: Int, root: Scalar) -> None:
        def along(offsets: list[Int]) -> None:
            places = [
                OperandAccess(OperandAccess(p, self.dtype, 1).at(self.call.f, o), self.dtype, s[-1])
                for p, o, s in zip(self.pointers, offsets, self.steps)
            ]
            ins = places[:1] if root.op == "input" else []
            row(self.lanes, [root], ins, places[1:], self.numbers[-1], self.dims[-1])

        outer = [s[:-1] for s in self.steps]
        nest(self.call.f, self.numbers[:-1], outer, along, [source, to])


@kernel_for(Gather)
def gather_kernel(target: Target, module: LlvmModule, g: Gather) -> KernelBuilder:
    """It returns 1 for an index out of range, with that index above the code."""
    call = KernelBuilder(target)
    f, axis, count = call.f, g.axis, g.axis + g.index.ndim
    x, index, out = (call.pointer(v) for v in (g.x, g.index, g.out))
    none: tuple[Dim, ...] = (0,) * axis
    over_x = (*g.x.strides[:axis], *(0 for _ in g.index.shape))
    dims, strides = collapse(
        g.out.shape[:count], [over_x, (*none, *g.index.strides), g.out.strides[:count]]
    )
    n, step = call.number(g.x.shape[axis]), call.number(g.x.strides[axis])
    numbers = [call.number(d) for d in dims]
    steps = [[call.number(s) for s in q] for q in strides]
    rows = _RowCopy(call, g, x, out)
    take, zero = input_(0, g.x.dtype), const(0, g.x.dtype)

    def body(o: list[Int]) -> None:
        given = at = _index(call, g.index, OperandAccess(index, g.index.dtype, 1).at(f, o[1]))
        if g.wrap:
            below = f.op(f"icmp slt i64 {at}, 0")
            at = f.op(f"select i1 {below}, i64 {f.op(f'add i64 {at}, {n}')}, i64 {at}")
        f.leave_with(f.op(f"icmp uge i64 {at}, {n}"), 1, given)
        source = f.add(o[0], f.mul(at, step))
        if g.padding < 0:
            rows.store(source, o[2], take)
            return
        padded = f.op(f"icmp eq i64 {at}, {g.padding}")
        with f.when(padded):
            rows.store(source, o[2], zero)
        with f.when(f.op(f"xor i1 {padded}, true")):
            rows.store(source, o[2], take)

    nest(f, numbers, steps, body)
    return call


def _index(call: KernelBuilder, index: View, address: str) -> str:
    d = index.dtype
    value = call.f.load(element(d, True), address, d.size)
    return value if d == I64 else call.f.op(f"sext {element(d)} {value} to i64")
