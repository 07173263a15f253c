"""Products with one to three rows, which read the right matrix once and as it lies in memory."""

from __future__ import annotations

from executor.cpu.kernel_builder import Place, load, store
from executor.cpu.kernels.reduce import across
from executor.cpu.llvm_text import Function, Int, element
from executor.cpu.target import Target
from executor.cpu.vector_math import Lanes
from ir.opdef import OPS
from ir.types import DType

#: A, B, C, what C starts from, K, N, row and k stride of A, k and n stride of B, row strides of C
#: and of what it starts from
ARGUMENTS = (*["ptr"] * 4, *["i64"] * 8)

#: rows of the right matrix taken at once, by rows of the left one
STRIPS = {1: 8, 2: 4, 3: 4}


def strip_kernel(target: Target, dtype: DType, rows: int, initial: bool) -> Function:
    """Few rows against a row-major matrix that is read once, in order and not packed:
    C += A[:, k:k+s] @ B[k:k+s]. Arguments as in `ARGUMENTS`."""
    f = Function("?", "i64")
    a, b, c, s, depth, n, a_row, a_k, b_row, _, c_row, s_row = map(f.argument, ARGUMENTS)
    e = element(dtype)
    wide = Lanes(f, target, target.lanes(dtype))
    one = Lanes(f, target, 1)

    def strip(k: Int, count: int, first: bool) -> None:
        left = [
            [_scalar(f, a, dtype, i, a_row, f.add(k, u), a_k) for u in range(count)]
            for i in range(rows)
        ]
        lines = [Place(f.at(b, f.mul(f.add(k, u), b_row), e), dtype, 1) for u in range(count)]
        outs = [Place(f.at(c, f.mul(i, c_row), e), dtype, 1) for i in range(rows)]

        def columns(v: Lanes, j: Int, factors: list[list[str]]) -> None:
            loaded = [load(v, line, j) for line in lines]
            for i, (out, row) in enumerate(zip(outs, factors)):
                start = Place(f.at(s, f.mul(i, s_row), e), dtype, 1) if first else out
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


def _scalar(f: Function, a: str, d: DType, i: int, row: Int, k: Int, step: Int) -> str:
    e = element(d)
    return f.load(e, f.at(a, f.add(f.mul(i, row), f.mul(k, step)), e), d.size)


#: columns of a tile of dot products
TILE = 4


def dot_kernel(target: Target, dtype: DType, rows: int, initial: bool) -> Function:
    """Both matrices are contiguous along K: vectors along K, a tile of results at a time."""
    f = Function("?", "i64")
    a, b, c, s, depth, n, a_row, _, _, b_n, c_row, s_row = map(f.argument, ARGUMENTS)
    e = element(dtype)
    wide, one = Lanes(f, target, target.lanes(dtype)), Lanes(f, target, 1)
    left = [Place(f.at(a, f.mul(i, a_row), e), dtype, 1) for i in range(rows)]
    whole = f.floor_to(depth, wide.width)

    def tile(first: Int, count: int) -> None:
        columns = [f.at(b, f.mul(f.add(first, j), b_n), e) for j in range(count)]
        places = [Place(q, dtype, 1) for q in columns]
        totals = []
        for v, low, high in ((wide, 0, whole), (one, whole, depth)):
            slots = {(i, j): f.alloca(v.type(dtype), 64) for i in range(rows) for j in range(count)}
            for slot in slots.values():
                f.store(v.type(dtype), v.const(0, dtype), slot, 64)
            with f.loop(low, high, v.width) as k:
                xs, ys = [load(v, q, k) for q in left], [load(v, q, k) for q in places]
                for (i, j), slot in slots.items():
                    old = f.load(v.type(dtype), slot, 64)
                    f.store(v.type(dtype), multiply_add(v, dtype, xs[i], ys[j], old), slot, 64)
            totals.append(slots)
        add = OPS["sum"].reduce
        assert add is not None
        for i, j in totals[0]:
            x = across(wide, add, dtype, f.load(wide.type(dtype), totals[0][i, j], 64))
            x = one.binary("fadd", dtype, x, f.load(e, totals[1][i, j], 64))
            at = f.add(first, j)
            if initial:
                old = f.load(e, f.at(s, f.add(f.mul(i, s_row), at), e), dtype.size)
                x = one.binary("fadd", dtype, x, old)
            f.store(e, x, f.at(c, f.add(f.mul(i, c_row), at), e), dtype.size)

    tiles = f.floor_to(n, TILE)
    with f.loop(0, tiles, TILE) as j:
        tile(j, TILE)
    with f.loop(tiles, n) as j:
        tile(j, 1)
    return f


def multiply_add(v: Lanes, dtype: DType, x: str, y: str, z: str) -> str:
    if v.target.fma:
        return v.intrinsic("fma", dtype, x, y, z)
    return v.binary("fadd", dtype, v.binary("fmul", dtype, x, y), z)
