"""The family scan_persistent: products of a carry with an invariant matrix that stays in registers.

A matrix that no iteration changes is loaded once, before the loop, into registers: a warp has some
columns of it, and its lanes share the rows. In each iteration a warp reads the rows of the other
operand that belong to its group of blocks, and its lanes sum what they have by shuffles. The sums
are those of a product in any order, in the compute type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from executor.gpu.kernel_builder import IntText, Kernel, add, mul, unrolled
from executor.gpu.preamble import WARP
from executor.gpu.scalars import register_type
from executor.launches import Gemm
from ir.types import product

#: registers of a thread for one matrix, and for all of a loop
MOST, MOST_OF_LOOP = 64, 128


@dataclass(frozen=True)
class WorkDistribution(ABC):
    """The distribution of a loop's product over blocks of `threads`: `parts` of them have all
    columns, and `groups` such sets of blocks share the rows."""

    gemm: Gemm
    threads: int
    groups: int

    @property
    @abstractmethod
    def parts(self) -> int: ...

    @property
    @abstractmethod
    def registers(self) -> int:
        """The registers of a thread for the matrix."""

    @property
    def lanes(self) -> int:
        return min(WARP, self.threads)

    @property
    def warps(self) -> int:
        return self.threads // self.lanes

    def rows(self, parts: int) -> int:
        """The rows of the matrix in each of the parts."""
        k = self.gemm.x.shape[-1]
        assert isinstance(k, int)
        return -(-k // parts)


@dataclass(frozen=True)
class Resident(WorkDistribution):
    """Each warp has `columns`, each lane `depth` elements of each."""

    columns: int

    @property
    def parts(self) -> int:
        n = self.gemm.y.shape[-1]
        assert isinstance(n, int)
        return -(-n // (self.columns * self.warps))

    @property
    def depth(self) -> int:
        return self.rows(self.lanes)

    @property
    def registers(self) -> int:
        return self.columns * self.depth


def resident(gemm: Gemm, threads: int, blocks: int) -> Resident | None:
    """Return the distribution of the matrix over `blocks` that run together; None if it does not
    fit. The more columns a block has, the fewer read the same rows, as long as there are rows for
    all blocks."""
    k, n = gemm.y.shape[-2:]
    lanes = min(WARP, threads)
    if not isinstance(k, int) or not isinstance(n, int) or k < lanes or n < 1:
        return None
    if gemm.c.dtype.compute.kind != "f" or threads % lanes or not _is_matrix(gemm):
        return None
    rows = product(gemm.c.shape[:-1])
    found = None
    most = min(MOST // -(-k // lanes), -(-n // (threads // lanes)))
    for columns in range(1, most + 1):
        distribution = Resident(gemm, threads, 1, columns)
        groups = blocks // distribution.parts
        if groups and (found is None or not isinstance(rows, int) or groups <= max(1, rows)):
            found = replace(distribution, groups=groups)
    return found


def _is_matrix(gemm: Gemm) -> bool:
    """Whether all batches have one matrix."""
    return all(s == 0 or d == 1 for d, s in zip(gemm.y.shape[:-2], gemm.y.strides))


# ---------------------------------------------------------------- kernels
def load_kernel(r: Resident) -> Kernel:
    """The columns of the warp into registers; zeros where there is none."""
    kernel, y = _kernel(r), r.gemm.y
    pointer, (down, right) = kernel.pointer(y), kernel.numbers(y.strides[-2:])
    k, n = y.shape[-2:]
    with unrolled(kernel, r.depth) as u, unrolled(kernel, r.columns) as j:
        kernel.emit(f"kept[{u} * {r.columns} + {j}] = 0;")
        row, column = kernel.let(f"lane + {u} * {r.lanes}"), kernel.let(f"first + {j}")
        with kernel.block(f"if ({row} < {k} && {column} < {n})"):
            value = kernel.read(pointer, y.dtype, add(mul(row, down), mul(column, right)))
            kernel.emit(f"kept[{u} * {r.columns} + {j}] = {value};")
    return kernel


def product_kernel(r: Resident) -> Kernel:
    kernel, x = _kernel(r), r.gemm
    left, out = kernel.pointer(x.x), kernel.pointer(x.c)
    dims, n = x.c.shape[:-1], x.c.shape[-1]
    views = [x.x.expand((*dims, x.x.shape[-1])), x.c]
    if x.initial is not None:
        views.append(x.initial.expand(x.c.shape))
        initial = kernel.pointer(x.initial)
    shape, rows = kernel.numbers(dims), [kernel.numbers(v.strides[:-1]) for v in views]
    along, *steps = kernel.numbers([v.strides[-1] for v in views])
    kernel.emit(f"if (blockIdx.x >= {r.parts * r.groups}) return;")
    count = kernel.let(" * ".join(map(str, shape)) or 1)
    group = kernel.let(f"(i64)blockIdx.x / {r.parts}")
    with kernel.loop(count, first=str(group), step=str(r.groups)) as row:
        start, *places = kernel.decoded(row, shape, rows) if shape else [0] * len(rows)
        _sum(kernel, r, left, start, along)
        with unrolled(kernel, r.columns) as j:
            column = kernel.let(f"first + {j}")
            with kernel.block(f"if (lane == {j} % {r.lanes} && {column} < {n})"):
                at = [add(p, mul(column, s)) for p, s in zip(places, steps)]
                value = f"sums[{j}]"
                if x.initial is not None:
                    value = f"({value} + {kernel.read(initial, x.initial.dtype, at[1])})"
                kernel.write(out, x.c.dtype, at[0], value)
    return kernel


def _kernel(r: Resident) -> Kernel:
    """A kernel in which `first` is the first column of the warp."""
    kernel = Kernel(work=r.parts * r.groups * r.threads)
    kernel.keep(r, register_type(r.gemm.c.dtype.compute), r.registers)
    kernel.emit(f"const i64 lane = threadIdx.x % {r.lanes}, warp = threadIdx.x / {r.lanes};")
    of_block = f"blockIdx.x % {r.parts} * {r.warps}"
    kernel.emit(f"const i64 first = ({of_block} + warp) * {r.columns};")
    return kernel


def _sum(kernel: Kernel, r: Resident, left: str, start: IntText, step: IntText) -> None:
    """`sums`: of a row with each column of the warp, in all lanes."""
    x, d = r.gemm.x, r.gemm.x.dtype.compute
    k, kind = x.shape[-1], register_type(d)
    kernel.emit(f"{kind} sums[{r.columns}], row[{r.depth}];")
    with unrolled(kernel, r.depth) as u:
        at = kernel.let(f"lane + {u} * {r.lanes}")
        kernel.emit(f"row[{u}] = 0;")
        with kernel.block(f"if ({at} < {k})"):
            value = kernel.read(left, x.dtype, add(start, mul(at, step)))
            kernel.emit(f"row[{u}] = {value};")
    fma = "fmaf" if d.bits == 32 else "fma"
    with unrolled(kernel, r.columns) as j:
        kernel.emit(f"sums[{j}] = 0;")
        with unrolled(kernel, r.depth) as u:
            element = f"kept[{u} * {r.columns} + {j}]"
            kernel.emit(f"sums[{j}] = {fma}(row[{u}], {element}, sums[{j}]);")
        kernel.emit("#pragma unroll")
        with kernel.block(f"for (u32 m = {r.lanes // 2}; m; m >>= 1)"):
            kernel.emit(f"sums[{j}] += shuffle_xor(sums[{j}], m);")
