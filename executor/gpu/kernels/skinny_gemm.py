"""Skinny GEMM: products of few rows with a large matrix, such as a layer at batch size one. A block
has some columns, and its threads share the terms.

The matrix is read once. Neighbouring threads have neighbouring columns, or neighbouring terms where
those lie next to each other.
"""

from __future__ import annotations

from executor.gpu.kernel_builder import Kernel, add, mul, unrolled
from executor.gpu.preamble import WARP
from executor.gpu.scalars import register_type
from executor.launches import Gemm
from ir.types import product

#: rows that are few, and terms of a sum that threads share
MOST_ROWS, LEAST_TERMS = 8, 64
#: columns of a block: those of a sector of memory, or more of them where many blocks have work
NARROW, WIDE, BLOCKS, FEW_BLOCKS = 8, 32, 128, 16


def has_few_rows(x: Gemm) -> bool:
    rows, terms = x.c.shape[-2], x.x.shape[-1]
    few = isinstance(rows, int) and 1 <= rows <= MOST_ROWS
    many = not isinstance(terms, int) or terms >= LEAST_TERMS
    return few and many and x.c.dtype.compute.kind == "f"


def fills_blocks(x: Gemm) -> bool:
    """Whether there are columns for many of them."""
    n = x.c.shape[-1]
    return has_few_rows(x) and not (isinstance(n, int) and n < NARROW * FEW_BLOCKS)


def few_rows_kernel(x: Gemm, threads: int) -> Kernel:
    kernel, batch, d = Kernel(), x.c.shape[:-2], x.c.dtype.compute
    rows, n, kind = x.c.shape[-2], x.c.shape[-1], register_type(d)
    assert isinstance(rows, int)
    wide = isinstance(n, int) and n >= WIDE * BLOCKS
    by_term = x.y.strides[-2] == 1 and x.y.strides[-1] != 1
    width = threads // min(WARP, threads) if by_term else min(WIDE if wide else NARROW, threads)
    group = threads // width
    kernel.work = product(batch) * (-(-n // width) if isinstance(n, int) else n) * threads
    views = [v.expand((*batch, *v.shape[-2:])) for v in (x.x, x.y)]
    views += [x.c] if x.initial is None else [x.c, x.initial]
    pointers = [kernel.pointer(v) for v in views]
    dims, over = kernel.numbers(batch), [kernel.numbers(v.strides[:-2]) for v in views]
    lies = [kernel.numbers(v.strides[-2:]) for v in views]
    columns, terms = kernel.number(n), kernel.number(x.x.shape[-1])
    tiles = kernel.let(f"({columns} + {width - 1}) / {width}")
    count = kernel.let(" * ".join(map(str, (tiles, *dims))))
    own, first = (f"threadIdx.x % {width}", f"threadIdx.x / {width}")
    if by_term:
        own, first = (f"threadIdx.x / {group}", f"threadIdx.x % {group}")
    kernel.emit(f"{kind}* all = ({kind}*)shared_memory();")

    def read(which: int, row: str, column: str) -> str:
        down, right = lies[which]
        at = add(starts[which], mul(row, down), mul(column, right))
        return kernel.read(pointers[which], views[which].dtype, at)

    with kernel.loop(count, first="blockIdx.x", step="gridDim.x") as place:
        number = str(kernel.let(f"{place} / {tiles}"))
        starts = kernel.decoded(number, dims, over) if dims else [0] * len(views)
        start = kernel.let(f"{place} % {tiles} * {width}")
        column = str(kernel.let(f"{start} + {own}"))
        kernel.emit(f"{kind} sums[{rows}] = {{}};")
        with kernel.block(f"if ({column} < {columns})"):
            kernel.emit("#pragma unroll 4")
            with kernel.loop(terms, first=first, step=str(group)) as k:
                y = read(1, k, column)
                with unrolled(kernel, rows) as r:
                    fma = "fmaf" if d.bits == 32 else "fma"
                    kernel.emit(f"sums[{r}] = {fma}({read(0, r, k)}, {y}, sums[{r}]);")
        kernel.emit("__syncthreads();")
        with unrolled(kernel, rows) as r:
            kernel.emit(f"all[{r} * {threads} + threadIdx.x] = sums[{r}];")
        kernel.emit("__syncthreads();")
        with kernel.loop(rows * width, "i32", "threadIdx.x", "blockDim.x") as o:
            row, w = (str(kernel.let(f"{o} {q} {width}", "i32")) for q in "/%")
            at = str(kernel.let(f"{start} + {w}"))
            with kernel.block(f"if ({at} < {columns})"):
                kernel.emit(f"{kind} total = 0;")
                with kernel.loop(group, "i32") as g:
                    lane = f"{w} * {group} + {g}" if by_term else f"{g} * {width} + {w}"
                    kernel.emit(f"total += all[{row} * {threads} + {lane}];")
                summand = f" + {read(3, row, at)}" if x.initial is not None else ""
                to = add(starts[2], mul(row, lies[2][0]), mul(at, lies[2][1]))
                kernel.write(pointers[2], x.c.dtype, to, f"(total{summand})")
    return kernel
