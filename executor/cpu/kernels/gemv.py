"""GEMV: products with one to three rows, which read the unpacked right matrix once; and dot
products of several operands with the same one."""

from __future__ import annotations

from executor.cpu.kernel_builder import (
    KernelBuilder,
    OperandAccess,
    lane_mask,
    load,
    maskable,
    nest,
    read,
    store,
    tail,
    write,
)
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.elementwise import order
from executor.cpu.kernels.reduce import across
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import Dots
from executor.memory import collapse
from ir.opdef import OPS
from ir.types import DType

#: A, B, C, what C starts from, K, N, row and k stride of A, k and n stride of B, row strides of C
#: and of what it starts from
ARGUMENTS = (*["ptr"] * 4, *["i64"] * 8)

#: rows of the right matrix taken at once, by rows of the left one
STRIPS = {1: 8, 2: 4, 3: 4}


def strip_kernel(target: Target, dtype: DType, rows: int, initial: bool) -> LlvmFunction:
    """Few rows against a row-major matrix that is read once, in order and not packed:
    C += A[:, k:k+s] @ B[k:k+s]. Arguments as in `ARGUMENTS`."""
    f = LlvmFunction("?", "i64")
    a, b, c, s, depth, n, a_row, a_k, b_row, _, c_row, s_row = map(f.argument, ARGUMENTS)
    e = element(dtype)
    wide = VectorEmitter(f, target, target.lanes(dtype))
    one = VectorEmitter(f, target, 1)

    def strip(k: Int, count: int, first: bool) -> None:
        left = [
            [_scalar(f, a, dtype, i, a_row, f.add(k, u), a_k) for u in range(count)]
            for i in range(rows)
        ]
        lines = [
            OperandAccess(f.at(b, f.mul(f.add(k, u), b_row), e), dtype, 1) for u in range(count)
        ]
        outs = [OperandAccess(f.at(c, f.mul(i, c_row), e), dtype, 1) for i in range(rows)]

        def columns(v: VectorEmitter, j: Int, factors: list[list[str]]) -> None:
            loaded = [load(v, line, j) for line in lines]
            for i, (out, row) in enumerate(zip(outs, factors)):
                start = OperandAccess(f.at(s, f.mul(i, s_row), e), dtype, 1) if first else out
                total = load(v, start, j) if initial or not first else v.const(0, dtype)
                for x, y in zip(row, loaded):
                    total = multiply_add(v, dtype, x, y, total)
                store(v, out, j, total)

        whole = f.floor_to(n, wide.width)
        factors = [[wide.splat(x, dtype) for x in row] for row in left]
        with f.loop(0, whole, wide.width) as j:
            columns(wide, j, factors)
        with f.loop(whole, n) as j:
            columns(one, j, left)

    size = STRIPS[rows]
    start = f.op(f"urem i64 {depth}, {size}")
    strip(0, 0, True)
    with f.loop(0, start) as k:
        strip(k, 1, False)
    with f.loop(start, depth, size) as k:
        strip(k, size, False)
    return f


def _scalar(f: LlvmFunction, a: str, d: DType, i: int, row: Int, k: Int, step: Int) -> str:
    e = element(d)
    return f.load(e, f.at(a, f.add(f.mul(i, row), f.mul(k, step)), e), d.size)


#: columns of a tile of dot products
TILE = 4


def dot_kernel(target: Target, dtype: DType, rows: int, initial: bool) -> LlvmFunction:
    """Both matrices are contiguous along K: vectors along K, a tile of results at a time."""
    f = LlvmFunction("?", "i64")
    a, b, c, s, depth, n, a_row, _, _, b_n, c_row, s_row = map(f.argument, ARGUMENTS)
    e, d = element(dtype), dtype.compute
    wide, one = VectorEmitter(f, target, target.lanes(dtype)), VectorEmitter(f, target, 1)
    left = [OperandAccess(f.at(a, f.mul(i, a_row), e), dtype, 1) for i in range(rows)]
    whole = f.floor_to(depth, wide.width)

    def tile(first: Int, count: int) -> None:
        columns = [f.at(b, f.mul(f.add(first, j), b_n), e) for j in range(count)]
        places = [OperandAccess(q, dtype, 1) for q in columns]
        totals = []
        for v, low, high in ((wide, 0, whole), (one, whole, depth)):
            slots = {(i, j): f.alloca(v.type(d), 64) for i in range(rows) for j in range(count)}
            for slot in slots.values():
                f.store(v.type(d), v.const(0, d), slot, 64)
            with f.loop(low, high, v.width) as k:
                xs, ys = [read(v, q, k) for q in left], [read(v, q, k) for q in places]
                for (i, j), slot in slots.items():
                    old = f.load(v.type(d), slot, 64)
                    f.store(v.type(d), multiply_add(v, d, xs[i], ys[j], old), slot, 64)
            totals.append(slots)
        add = OPS["sum"].reduce
        assert add is not None
        for i, j in totals[0]:
            x = across(wide, add, d, f.load(wide.type(d), totals[0][i, j], 64))
            x = one.binary("fadd", d, x, f.load(one.type(d), totals[1][i, j], 64))
            at = f.add(first, j)
            if initial:
                old = read(one, OperandAccess(f.at(s, f.mul(i, s_row), e), dtype, 1), at)
                x = one.binary("fadd", d, x, old)
            write(one, OperandAccess(f.at(c, f.mul(i, c_row), e), dtype, 1), at, x)

    tiles = f.floor_to(n, TILE)
    with f.loop(0, tiles, TILE) as j:
        tile(j, TILE)
    with f.loop(tiles, n) as j:
        tile(j, 1)
    return f


def multiply_add(v: VectorEmitter, dtype: DType, x: str, y: str, z: str) -> str:
    if v.target.fma:
        return v.intrinsic("fma", dtype, x, y, z)
    return v.binary("fadd", dtype, v.binary("fmul", dtype, x, y), z)


@kernel_for(Dots)
def dots_kernel(target: Target, module: LlvmModule, d: Dots) -> KernelBuilder:
    """One accumulator for each sum, so that independent sums hide the latency of additions."""
    views = [d.y, *d.xs]
    axes = order(views, d.y.shape)
    dims, strides = collapse(
        [d.y.shape[a] for a in axes], [[v.strides[a] for a in axes] for v in views]
    )
    if not dims:
        dims, strides = [1], [[1] for _ in views]
    call = KernelBuilder(target)
    f, dtype = call.f, d.y.dtype
    pointers, outs = ([call.pointer(v) for v in part] for part in (views, d.outs))
    n = [call.number(q) for q in dims]
    steps = [[call.number(s) for s in row] for row in strides]
    wide, one = VectorEmitter(f, target, target.lanes(dtype)), VectorEmitter(f, target, 1)
    sums = {v: [f.alloca(v.type(dtype), 64) for _ in outs] for v in (wide, one)}
    for v, slots in sums.items():
        for slot in slots:
            f.store(v.type(dtype), v.const(0, dtype), slot, 64)

    def inner(offsets: list[Int]) -> None:
        places = [
            OperandAccess(f.at(p, o, element(dtype)), dtype, row[-1])
            for p, o, row in zip(pointers, offsets, steps)
        ]
        _along(wide, one, sums, places, n[-1])

    nest(f, n[:-1], [row[:-1] for row in steps], inner)
    for k, out in enumerate(outs):
        _finish(wide, one, [slots[k] for slots in sums.values()], OperandAccess(out, dtype, 1))
    return call


def _along(
    wide: VectorEmitter,
    one: VectorEmitter,
    sums: dict[VectorEmitter, list[str]],
    places: list[OperandAccess],
    n: Int,
) -> None:
    """`n` places side by side; the first operand is multiplied by each of the rest."""
    f, dtype = wide.f, places[0].dtype

    def step(v: VectorEmitter, i: Int, mask: str = "") -> None:
        y, *xs = (load(v, p, i, mask) for p in places)
        for slot, x in zip(sums[v], xs):
            old = f.load(v.type(dtype), slot, 64)
            f.store(v.type(dtype), multiply_add(v, dtype, x, y, old), slot, 64)

    whole = f.floor_to(n, wide.width)
    with f.loop(0, whole, wide.width) as i:
        step(wide, i)
    if maskable(wide.target, places):
        with tail(f, whole, n):
            step(wide, whole, lane_mask(wide, f.sub(n, whole)))
        return
    with f.loop(whole, n) as i:
        step(one, i)


def _finish(wide: VectorEmitter, one: VectorEmitter, slots: list[str], out: OperandAccess) -> None:
    f, dtype, add = wide.f, out.dtype, OPS["sum"].reduce
    assert add is not None
    lanes, rest = (f.load(v.type(dtype), q, 64) for v, q in zip((wide, one), slots))
    total = one.binary("fadd", dtype, across(wide, add, dtype, lanes), rest)
    store(one, out, 0, one.binary("fadd", dtype, load(one, out, 0), total))
