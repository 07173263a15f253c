"""Large products of matrices: a block for each tile of the result.

The block keeps a slice of both operands in shared memory, a thread 4 x 4 sums in registers. They
are the sums of `products`, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from executor.gpu.kernel_builder import Int, Kernel, add, mul
from executor.gpu.kernels.fragments import HEIGHT, WIDTH, Fragments
from executor.gpu.kernels.resident import unrolled
from executor.gpu.preamble import SHARED, WARP
from executor.gpu.scalars import register_type
from executor.launches import Gemm
from executor.memory import View
from ir.types import Dim, product

#: results of a thread along each axis; elements between the rows of a slice
SIDE, GAP = 4, 4
#: blocks of a multiprocessor: to have room for more of them, compilers spill registers
BESIDE = 2


@dataclass(frozen=True)
class Tile:
    """What a block does of a product: `height` x `width` results, `depth` terms at once."""

    height: int
    width: int
    depth: int

    @staticmethod
    def of(gemm: Gemm, threads: int) -> Tile:
        down = 1 << ((threads.bit_length() - 1) // 2)
        height, width = SIDE * down, SIDE * (threads // down)
        tile = Tile(height, width, 64 // gemm.c.dtype.compute.size)
        assert tile.elements * gemm.c.dtype.compute.size <= SHARED
        return tile

    @property
    def across(self) -> int:
        """Threads of a row."""
        return self.width // SIDE

    @property
    def elements(self) -> int:
        """Of shared memory."""
        return self.depth * (self.height + self.width + 2 * GAP)


def is_large(gemm: Gemm, threads: int) -> bool:
    """Whether the results fill tiles; a size that has a name may be large."""
    if gemm.c.dtype.compute.kind != "f":
        return False
    tile = Tile.of(gemm, threads)
    sizes = zip(gemm.c.shape[-2:], (tile.height, tile.width))
    return all(not isinstance(n, int) or 2 * n > side for n, side in sizes)


def tiled_kernel(x: Gemm, threads: int, fragments: Fragments | None = None) -> Kernel:
    """By tensor cores, if there are `fragments`."""
    kernel, tile, d = Kernel(), Tile.of(x, threads), x.c.dtype.compute
    kind = register_type(d)
    views = [x.x.expand((*x.c.shape[:-2], *x.x.shape[-2:]))]
    views += [x.y.expand((*x.c.shape[:-2], *x.y.shape[-2:])), x.c]
    views += [] if x.initial is None else [x.initial]
    pointers = [kernel.pointer(v) for v in views]
    batch = kernel.numbers(x.c.shape[:-2])
    steps = [kernel.numbers(v.strides[:-2]) for v in views]
    m, n, k = kernel.numbers((*x.c.shape[-2:], x.x.shape[-1]))
    kernel.work, kernel.beside = _work(x, tile, threads), BESIDE
    kernel.emit(f"{kind} *left = ({kind}*)shared_memory();")
    kernel.emit(f"{kind} *right = left + {tile.depth * (tile.height + GAP)};")
    column = f"(i32)threadIdx.x % {tile.across} * {SIDE}"
    if fragments is None:
        kernel.emit(f"const i32 down = threadIdx.x / {tile.across} * {SIDE}, across = {column};")
    else:
        _places_of_warps(kernel, tile)
    rows = kernel.let(f"({m} + {tile.height - 1}) / {tile.height}")
    columns = kernel.let(f"({n} + {tile.width - 1}) / {tile.width}")
    count = kernel.let(" * ".join([str(rows), str(columns), *map(str, batch)]))
    with kernel.loop(count, first="blockIdx.x", step="gridDim.x") as place:
        start: list[Int] = [0] * len(views)
        if batch:
            start = kernel.decoded(str(kernel.let(f"{place} / ({rows} * {columns})")), batch, steps)
        top = kernel.let(f"{place} / {columns} % {rows} * {tile.height}")
        first = kernel.let(f"{place} % {columns} * {tile.width}")
        kernel.emit(f"{kind} sums[{SIDE}][{SIDE}] = {{}};")
        with kernel.loop(k, step=str(tile.depth)) as behind:
            kernel.emit("__syncthreads();")
            for name, v, pointer, at, side, corner, limit, axis in (
                ("left", views[0], pointers[0], start[0], tile.height, top, m, -2),
                ("right", views[1], pointers[1], start[1], tile.width, first, n, -1),
            ):
                slice_ = _Slice(kernel, name, v, pointer, at, axis)
                slice_.load(tile.depth, side, (str(behind), str(k)), (str(corner), str(limit)))
            kernel.emit("__syncthreads();")
            if fragments is None:
                _multiply(kernel, tile, "fmaf" if d.bits == 32 else "fma")
            else:
                _multiply_fragments(kernel, tile, fragments)
        moved = _of_thread if fragments is None else _of_lane
        _store(kernel, x, views, pointers, start, (top, m), (first, n), moved)
    return kernel


def _work(x: Gemm, tile: Tile, threads: int) -> Dim:
    whole = product(x.c.shape)
    if not isinstance(whole, int) or not all(isinstance(d, int) for d in x.c.shape):
        return whole
    tiles = [-(-int(str(d)) // s) for d, s in zip(x.c.shape[-2:], (tile.height, tile.width))]
    return product(x.c.shape[:-2]) * tiles[0] * tiles[1] * threads


@dataclass(frozen=True)
class _Slice:
    """Some terms of an operand in shared memory, `axis` being the one that is no sum."""

    kernel: Kernel
    name: str
    view: View
    pointer: str
    start: Int
    axis: int

    def load(self, depth: int, side: int, term: tuple[str, str], result: tuple[str, str]) -> None:
        """Zeros where there is nothing; neighbouring threads read neighbouring elements."""
        kernel, v = self.kernel, self.view
        other = -3 - self.axis
        step, over = kernel.numbers((v.strides[other], v.strides[self.axis]))
        with kernel.loop(depth * side, "i32", "threadIdx.x", "blockDim.x") as i:
            pair = (f"{i} / {depth}", f"{i} % {depth}")
            if v.strides[self.axis] == 1:
                pair = (f"{i} % {side}", f"{i} / {side}")
            r, t = (str(kernel.let(q, "i32")) for q in pair)
            down, right = kernel.let(f"{result[0]} + {r}"), kernel.let(f"{term[0]} + {t}")
            to = f"{self.name}[{t} * {side + GAP} + {r}]"
            kernel.emit(f"{to} = 0;")
            with kernel.block(f"if ({down} < {result[1]} && {right} < {term[1]})"):
                at = add(self.start, mul(down, over), mul(right, step))
                kernel.emit(f"{to} = {kernel.read(self.pointer, v.dtype, at)};")


def _multiply(kernel: Kernel, tile: Tile, fma: str) -> None:
    kernel.emit("#pragma unroll")
    with kernel.loop(tile.depth, "i32") as t:
        for i in range(SIDE):
            for j in range(SIDE):
                a = f"left[{t} * {tile.height + GAP} + down + {i}]"
                b = f"right[{t} * {tile.width + GAP} + across + {j}]"
                kernel.emit(f"sums[{i}][{j}] = {fma}({a}, {b}, sums[{i}][{j}]);")


def _places_of_warps(kernel: Kernel, tile: Tile) -> None:
    """Where the results of a lane begin: a warp has `SIDE` tiles next to each other."""
    kernel.emit(f"const i32 lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
    tiles = tile.height // HEIGHT
    kernel.emit(f"const i32 down = warp % {tiles} * {HEIGHT};")
    kernel.emit(f"const i32 across = warp / {tiles} * {SIDE * WIDTH};")


def _multiply_fragments(kernel: Kernel, tile: Tile, fragments: Fragments) -> None:
    """The elements of a tile that are no sum are those of rows of shared memory."""
    with unrolled(kernel, tile.depth // fragments.depth) as t:
        first = f"{t} * {fragments.depth}"
        kernel.emit("u32 words[4];")
        for i in range(4):
            left = _Column("left", tile.height, f"down + lane / 4 + {i % 2 * 8}")
            kernel.emit(f"words[{i}] = {fragments.word(left.term, first, str(i // 2))};")
        for j in range(SIDE):
            right = _Column("right", tile.width, f"across + {j * WIDTH} + lane / 4")
            words = fragments.word(right.term, first, "0"), fragments.word(right.term, first, "1")
            kernel.emit(fragments.multiply(f"sums[{j}]", "words", words))


@dataclass(frozen=True)
class _Column:
    """The terms of one row or column of the result, in a slice of `side` of them."""

    slice: str
    side: int
    place: str

    def term(self, k: str) -> str:
        return f"{self.slice}[{k} * {self.side + GAP} + {self.place}]"


def _of_thread(i: int, j: int) -> tuple[str, str]:
    """Where the result `sums[i][j]` of a thread is in the tile of its block."""
    return f"down + {i}", f"across + {j}"


def _of_lane(i: int, j: int) -> tuple[str, str]:
    """As `_of_thread`, of the result j of the tile i of a warp."""
    return f"down + lane / 4 + {j // 2 * 8}", f"across + {i * WIDTH + j % 2} + lane % 4 * 2"


def _store(
    kernel: Kernel, x: Gemm, views: list[View], pointers: list[str], start: list[Int],
    rows: tuple[Int, Int], columns: tuple[Int, Int],
    place: Callable[[int, int], tuple[str, str]],
) -> None:  # fmt: skip
    lies = [kernel.numbers(v.strides[-2:]) for v in views[2:]]
    for i in range(SIDE):
        for j in range(SIDE):
            down, across = place(i, j)
            row = kernel.let(f"{rows[0]} + {down}")
            column = kernel.let(f"{columns[0]} + {across}")
            with kernel.block(f"if ({row} < {rows[1]} && {column} < {columns[1]})"):
                at = [
                    add(s, mul(row, step), mul(column, right))
                    for s, (step, right) in zip(start[2:], lies)
                ]
                value = f"sums[{i}][{j}]"
                if x.initial is not None:
                    value = f"({value} + {kernel.read(pointers[3], x.initial.dtype, at[1])})"
                kernel.write(pointers[2], x.c.dtype, at[0], value)
