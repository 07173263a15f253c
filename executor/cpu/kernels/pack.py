"""Packing of the right matrix of a product into panels, [K][columns]."""

from __future__ import annotations

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, load, nest, prefetch, store
from executor.cpu.kernel_table import kernel_for
from executor.cpu.launches import Pack
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.memory import View, collapse
from ir.types import DType


def unit_steps(y: View) -> tuple[bool, bool]:
    """Whether the rows of a matrix, and its columns, lie side by side in memory."""
    return y.strides[-2] == 1, y.strides[-1] == 1


def pack_panel(target: Target, d: DType, width: int, upright: bool, lying: bool) -> LlvmFunction:
    """(y, out, K, k stride, n stride, columns): columns beyond the last are left as they are,
    as nothing that is computed from them is stored. Of a matrix that lies row by row, every row
    of the next panel is asked for: it is far from that of the row before."""
    f, e = LlvmFunction("?", "i64"), element(d)
    source, out = f.argument("ptr"), f.argument("ptr")
    depth, k_stride, n_stride, n = (f.argument("i64") for _ in range(4))
    one = VectorEmitter(f, target, 1)

    def scalars(low: Int, first: Int, stride: Int) -> None:
        """The elements from row `low` and column `first` on, one at a time."""
        with f.loop(low, depth) as k, f.loop(first, n) as j:
            x = load(one, OperandAccess(f.at(source, f.mul(k, k_stride), e), d, stride), j)
            store(one, OperandAccess(f.at(out, f.mul(k, width), e), d, 1), j, x)

    if not upright and not lying:
        scalars(0, 0, n_stride)
        return f
    v = VectorEmitter(f, target, target.lanes(d))
    if lying:
        full = f.op(f"icmp eq i64 {n}, {width}")
        with f.when(full), f.loop(0, depth) as line:
            row = OperandAccess(f.at(source, f.mul(line, k_stride), e), d, 1)
            to = OperandAccess(f.at(out, f.mul(line, width), e), d, 1)
            prefetch(f, row.pointer, d, width, width)
            for q in range(0, width, v.width):
                store(v, to, q, load(v, row, q))
        with f.when(f.op(f"xor i1 {full}, true")):
            scalars(0, 0, 1)
        return f
    whole, columns = f.floor_to(depth, v.width), f.floor_to(n, v.width)
    with f.loop(0, columns, v.width) as j, f.loop(0, whole, v.width) as k:
        corner = f.at(source, f.add(f.mul(j, n_stride), k), e)
        corners = [f.at(corner, f.mul(q, n_stride), e) for q in range(v.width)]
        rows = [load(v, OperandAccess(q, d, 1), 0) for q in corners]
        for q, x in enumerate(transposed(v, d, rows)):
            store(v, OperandAccess(f.at(out, f.mul(f.add(k, q), width), e), d, 1), j, x)
    scalars(whole, 0, n_stride)
    with f.loop(0, whole) as k, f.loop(columns, n) as j:
        x = load(one, OperandAccess(f.at(source, k, e), d, n_stride), j)
        store(one, OperandAccess(f.at(out, f.mul(k, width), e), d, 1), j, x)
    return f


def transposed(v: VectorEmitter, d: DType, rows: list[str]) -> list[str]:
    """A square block in registers: swap the halves of every pair of rows, at every scale."""
    t, w, scale = v.type(d), v.width, 1
    while scale < w:
        out = list(rows)
        for i in range(w):
            if i & scale:
                continue
            a, b = rows[i], rows[i + scale]
            low = [w + q - scale if q & scale else q for q in range(w)]
            high = [w + q if q & scale else q + scale for q in range(w)]
            for at, picks in ((i, low), (i + scale, high)):
                mask = ", ".join(f"i32 {q}" for q in picks)
                out[at] = v.f.op(f"shufflevector {t} {a}, {t} {b}, <{w} x i32> <{mask}>")
        rows, scale = out, scale * 2
    return rows


@kernel_for(Pack)
def pack_kernel(target: Target, module: LlvmModule, p: Pack) -> KernelBuilder:
    call = KernelBuilder(target)
    f, d, e = call.f, p.y.dtype, element(p.y.dtype)
    y, out = call.pointer(p.y), call.pointer(p.out)
    batch, strides = collapse(p.y.shape[:-2], [q.strides[:-2] for q in (p.y, p.out)])
    dims = [call.number(q) for q in batch]
    steps = [[call.number(s) for s in row] for row in strides]
    depth, n = (call.number(q) for q in p.y.shape[-2:])
    k_stride, n_stride = (call.number(s) for s in p.y.strides[-2:])
    name = module.helper(pack_panel, target, d, p.columns, *unit_steps(p.y))

    def body(o: list[Int]) -> None:
        source, to = f.at(y, o[0], e), f.at(out, o[1], e)
        with f.loop(0, n, p.columns) as first:
            rest = f.op(f"sub i64 {n}, {first}")
            less = f.op(f"icmp slt i64 {rest}, {p.columns}")
            width = f.op(f"select i1 {less}, i64 {rest}, i64 {p.columns}")
            arguments = (depth, k_stride, n_stride, width)
            f.call(
                "i64",
                name,
                ("ptr", f.at(source, f.mul(first, n_stride), e)),
                ("ptr", f.at(to, f.mul(first, depth), e)),
                *(("i64", str(q)) for q in arguments),
            )

    nest(f, dims, steps, body)
    return call
