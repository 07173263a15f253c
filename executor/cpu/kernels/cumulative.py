"""Cumulative sums along rows, in the order of the elements: a vector has one element of each of
several rows, by transposing square blocks."""

from __future__ import annotations

from dataclasses import dataclass

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, load, nest, store
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.pack import transposed
from executor.cpu.llvm_text import Int, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import Running
from executor.memory import collapse
from ir.types import DType

#: rows of a block, at least
FEW = 4


@dataclass(frozen=True)
class _RowOperand:
    """An operand or the result: `step`, 1 or -1, leads along a row, `apart` to the next row."""

    pointer: str
    dtype: DType
    step: int
    apart: Int

    def row(self, v: VectorEmitter, i: Int) -> _RowOperand:
        pointer = v.f.at(self.pointer, v.f.mul(i, self.apart), element(self.dtype))
        return _RowOperand(pointer, self.dtype, self.step, self.apart)

    def place(self, v: VectorEmitter, at: Int) -> OperandAccess:
        """Return the access to `v.width` elements from `at` on, as they lie in memory."""
        f = v.f
        first = at if self.step == 1 else f.sub(0, f.add(at, v.width - 1))
        return OperandAccess(f.at(self.pointer, first, element(self.dtype)), self.dtype, 1)

    def read(self, v: VectorEmitter, at: Int) -> list[str]:
        """Element `at` and those behind it of as many rows, a vector of rows for each."""
        rows = [load(v, self.row(v, q).place(v, at), 0) for q in range(v.width)]
        return transposed(v, self.dtype, rows)[:: self.step] if v.width > 1 else rows

    def write(self, v: VectorEmitter, at: Int, values: list[str]) -> None:
        """Store vectors as `read` returns them."""
        rows = transposed(v, self.dtype, values[:: self.step]) if v.width > 1 else values
        for q, x in enumerate(rows):
            store(v, self.row(v, q).place(v, at), 0, x)


@kernel_for(Running)
def running_kernel(target: Target, module: LlvmModule, x: Running) -> KernelBuilder:
    call = KernelBuilder(target)
    f, d, views = call.f, x.out.dtype, (*x.ins, x.out)
    pointers = [call.pointer(v) for v in views]
    kept = [a for a in range(x.out.ndim) if a != x.axis]
    dims, strides = collapse(
        [x.out.shape[a] for a in kept], [[v.strides[a] for a in kept] for v in views]
    )
    if not dims:
        dims, strides = [1], [[0] for _ in views]
    n, rows = call.number(x.out.shape[x.axis]), [call.number(q) for q in dims]
    moves = [[call.number(s) for s in row] for row in strides]
    steps = [1 if v.strides[x.axis] == 1 else -1 for v in views]
    widths = [target.lanes(d)]
    while widths[-1] > FEW:
        widths.append(widths[-1] // 2)
    known = dims[-1] if isinstance(dims[-1], int) else None
    wide = [VectorEmitter(f, target, w) for w in widths if known is None or w <= known]
    one = VectorEmitter(f, target, 1)
    slots = {v.width: f.alloca(v.type(d), 64) for v in (*wide, one)}

    def body(offsets: list[Int]) -> None:
        sides = [
            _RowOperand(f.at(p, o, element(d)), d, s, m[-1])
            for p, o, s, m in zip(pointers, offsets, steps, moves)
        ]
        done: Int = 0
        for v in wide:
            end = f.floor_to(rows[-1], v.width)
            with f.loop(done, end, v.width) as i:
                group = [s.row(v, i) for s in sides]
                whole = f.floor_to(n, v.width)
                with f.loop(0, whole, v.width) as at:
                    _block(v, x, group, at, slots[v.width])
                with f.loop(0, v.width) as q:
                    _rest(one, x, [s.row(one, q) for s in group], whole, n, slots[1])
            done = end
        with f.loop(done, rows[-1]) as i:
            _rest(one, x, [s.row(one, i) for s in sides], 0, n, slots[1])

    nest(f, rows[:-1], [row[:-1] for row in moves], body)
    return call


def _block(v: VectorEmitter, x: Running, sides: list[_RowOperand], at: Int, slot: str) -> None:
    """`v.width` elements of each of as many rows; `slot` has the last ones."""
    f, d = v.f, x.out.dtype
    t = v.type(d)
    columns = list(zip(*(s.read(v, at) for s in sides[:-1])))
    first = f.op(f"icmp eq i64 {at}, 0")
    last, out = f.load(t, slot, 64), []
    for q, ins in enumerate(columns):
        new = v.evaluate([x.root], [last, *ins])[0]
        last = f.op(f"select i1 {first}, {t} {ins[-1]}, {t} {new}") if q == 0 else new
        out.append(last)
    f.store(t, last, slot, 64)
    sides[-1].write(v, at, out)


def _rest(
    one: VectorEmitter, x: Running, sides: list[_RowOperand], low: Int, n: Int, slot: str
) -> None:
    """The elements of a row from `low` on, of which the result has those before."""
    f, t, out = one.f, one.type(x.out.dtype), sides[-1]

    def start() -> None:
        with f.when(f.op(f"icmp sgt i64 {n}, 0")):
            (value,) = sides[-2].read(one, 0)
            out.write(one, 0, [value])
            f.store(t, value, slot, 64)

    def go_on() -> None:
        (value,) = out.read(one, f.sub(low, 1))
        f.store(t, value, slot, 64)

    begun = f.op(f"icmp sgt i64 {low}, 0")
    f.either(begun, go_on, start)
    behind = f.op(f"select i1 {begun}, i64 {low}, i64 1")
    with f.loop(behind, n) as at:
        ins = [s.read(one, at)[0] for s in sides[:-1]]
        new = one.evaluate([x.root], [f.load(t, slot, 64), *ins])[0]
        f.store(t, new, slot, 64)
        out.write(one, at, [new])
