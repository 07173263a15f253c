"""Tiled matrix products, contractions and implicit-GEMM convolutions: a block for each tile of the
result.

The block keeps a slice of both operands in shared memory, a thread 4 x 4 sums in registers. They
are the sums of `products`, in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from executor.gpu.kernel_builder import IntText, Kernel, add, mul, unrolled
from executor.gpu.kernels.fragments import HEIGHT, WIDTH, Fragments
from executor.gpu.preamble import SHARED, WARP
from executor.gpu.scalars import register_type
from executor.launches import (
    Contract,
    Conv,
    Gemm,
    results,
)
from executor.memory import View, collapse
from ir.types import Dim, DType, Size, product, substitute_dim

#: results of a thread along each axis; elements between the rows of a slice
SIDE, GAP = 4, 4
#: blocks of a multiprocessor: to have room for more of them, compilers spill registers
BESIDE = 2


@dataclass(frozen=True)
class BlockTile:
    """The part of a product that a block computes: `height` x `width` results, `depth` terms at
    once."""

    height: int
    width: int
    depth: int

    @staticmethod
    def of(d: DType, threads: int) -> BlockTile:
        down = 1 << ((threads.bit_length() - 1) // 2)
        height, width = SIDE * down, SIDE * (threads // down)
        tile = BlockTile(height, width, 64 // d.size)
        assert tile.elements * d.size <= SHARED
        return tile

    @property
    def across(self) -> int:
        """Threads of a row."""
        return self.width // SIDE

    @property
    def elements(self) -> int:
        """The number of elements in shared memory."""
        return self.depth * (self.height + self.width + 2 * GAP)


#: what is taken by tiles
Tiled: TypeAlias = Gemm | Contract | Conv
#: tiles that are worth a barrier, and terms; what a named size counts for
FEWEST, NAMED = 32, 64


def depth_of(x: Tiled) -> Dim:
    """Terms of a sum."""
    if isinstance(x, Gemm):
        return x.x.shape[-1]
    return product(x.x.shape[2:] if isinstance(x, Contract) else x.w.shape[2:])


def tiles_of(x: Tiled, threads: int, named: int = 0) -> Dim:
    """Return the number of tiles of the result, with an assumed value for named sizes."""
    (out,), dims = results(x), []
    for d in (*_sides(x), _batch(x)):
        names = d.names if named and isinstance(d, Size) else ()
        dims.append(substitute_dim(d, dict.fromkeys(names, named)))
    m, n, batch = dims
    if not isinstance(m, int) or not isinstance(n, int):
        return m * n
    tile = BlockTile.of(out.dtype.compute, threads)
    return batch * (-(-m // tile.height) * -(-n // tile.width))


def _batch(x: Tiled) -> Dim:
    return product(x.c.shape[:-2]) if isinstance(x, Gemm) else x.out.shape[0]


def is_large(x: Tiled, threads: int) -> bool:
    """Whether the results fill tiles; a size that has a name may be large."""
    d = results(x)[0].dtype.compute
    if d.kind != "f":
        return False
    tile = BlockTile.of(d, threads)
    sizes = zip(_sides(x), (tile.height, tile.width))
    return all(not isinstance(n, int) or 2 * n > side for n, side in sizes)


def is_large_in_a_loop(x: Tiled, threads: int) -> bool:
    """Whether tiles make up for the barrier behind them, which a thread for each result does
    without: they are for many multiprocessors, and sums have some terms."""
    tiles, depth = tiles_of(x, threads, NAMED), depth_of(x)
    many = isinstance(tiles, int) and tiles >= FEWEST
    return many and is_large(x, threads) and (not isinstance(depth, int) or depth >= FEWEST)


def _sides(x: Tiled) -> tuple[Dim, Dim]:
    """Rows and columns of the result as a matrix."""
    if not isinstance(x, Conv):
        return results(x)[0].shape[-2], results(x)[0].shape[-1]
    _, b, r, *places = x.out.shape
    return r, product((b, *places))


class Operands(ABC):
    """A product of matrices, some of them side by side, by what is read and stored. `depth` is the
    number of terms of a sum; it is in `parts`, of which `part` is taken. `alike` says of each
    operand whether its elements for neighbouring results, and not those of neighbouring terms, lie
    next to each other."""

    batch: Sequence[Dim]
    sides: tuple[Dim, Dim]
    depth: Dim
    alike: tuple[bool, bool]
    parts = 1
    part = "0"

    @abstractmethod
    def begin(self, number: str) -> None:
        """The product with this number, in all that follows."""

    def behind(self, out: View) -> IntText:
        """Return the offset of the part; with parts, all sizes of the result are known."""
        n = product(out.shape)
        return mul(self.part, n) if self.parts > 1 and isinstance(n, int) else 0

    def enter(self, term: str) -> None:
        """The terms from this one on, in what follows in the same block of the text."""
        return

    @abstractmethod
    def left(self, row: str, term: str) -> str: ...
    @abstractmethod
    def right(self, term: str, column: str) -> str: ...
    @abstractmethod
    def store(self, row: str, column: str, value: str) -> None: ...


def tiled_kernel(
    x: Tiled, threads: int, fragments: Fragments | None = None, parts: int = 1
) -> Kernel:
    """By tensor cores, if there are `fragments`; sums in so many parts, one behind the other."""
    kernel = Kernel()
    operands: Operands
    if isinstance(x, Gemm):
        operands = _Matrices(kernel, x)
    else:
        operands = _Pixels(kernel, x) if isinstance(x, Conv) else _Places(kernel, x)
    operands.parts = parts
    return _tiled(kernel, operands, results(x)[0].dtype.compute, threads, fragments)


def _tiled(
    kernel: Kernel, x: Operands, d: DType, threads: int, fragments: Fragments | None
) -> Kernel:
    tile, kind = BlockTile.of(d, threads), register_type(d)
    batch, (m, n), k = kernel.numbers(x.batch), kernel.numbers(x.sides), kernel.number(x.depth)
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
    count = kernel.let(" * ".join([str(rows), str(columns), str(x.parts), *map(str, batch)]))
    with kernel.loop(count, first="blockIdx.x", step="gridDim.x") as place:
        number = f"{place} / ({rows} * {columns})"
        start, end = "0", str(k)
        if x.parts > 1:
            x.part, number = str(kernel.let(f"{number} % {x.parts}")), f"{number} / {x.parts}"
            most = tile.depth * x.parts
            each = kernel.let(f"({k} + {most - 1}) / {most} * {tile.depth}")
            start = str(kernel.let(f"{x.part} * {each}"))
            end = str(kernel.let(f"{start} + {each} < {k} ? {start} + {each} : {k}"))
        x.begin(number)
        top = str(kernel.let(f"{place} / {columns} % {rows} * {tile.height}"))
        first = str(kernel.let(f"{place} % {columns} * {tile.width}"))
        kernel.emit(f"{kind} sums[{SIDE}][{SIDE}] = {{}};")
        with kernel.loop(end, first=start, step=str(tile.depth)) as behind:
            kernel.emit("__syncthreads();")
            x.enter(behind)
            load = _Slices(kernel, tile.depth, behind, end)
            load.all("left", (tile.height, top, str(m)), x.alike[0], x.left)
            load.all("right", (tile.width, first, str(n)), x.alike[1], lambda r, t: x.right(t, r))
            kernel.emit("__syncthreads();")
            if fragments is None:
                _multiply(kernel, tile, "fmaf" if d.bits == 32 else "fma")
            else:
                _multiply_fragments(kernel, tile, fragments)
        _store(kernel, x, (top, str(m)), (first, str(n)), _of_lane if fragments else _of_thread)
    return kernel


def _work(x: Operands, tile: BlockTile, threads: int) -> Dim:
    m, n = x.sides
    if not isinstance(m, int) or not isinstance(n, int):
        return product((*x.batch, m, n))
    return x.parts * product(x.batch) * -(-m // tile.height) * -(-n // tile.width) * threads


class _Matrices(Operands):
    def __init__(self, kernel: Kernel, x: Gemm) -> None:
        self.kernel, self.x = kernel, x
        self.batch, self.sides = x.c.shape[:-2], (x.c.shape[-2], x.c.shape[-1])
        self.depth, self.alike = x.x.shape[-1], (x.x.strides[-2] == 1, x.y.strides[-1] == 1)
        self.views = [v.expand((*self.batch, *v.shape[-2:])) for v in (x.x, x.y)]
        self.views += [x.c] if x.initial is None else [x.c, x.initial]
        self.pointers = [kernel.pointer(v) for v in self.views]
        self.over = [kernel.numbers(v.strides[:-2]) for v in self.views]
        self.lies = [kernel.numbers(v.strides[-2:]) for v in self.views]
        self.dims = kernel.numbers(self.batch)
        self.start: list[IntText] = [0] * len(self.views)

    def begin(self, number: str) -> None:
        if self.dims:
            self.start = self.kernel.decoded(str(self.kernel.let(number)), self.dims, self.over)

    def place(self, which: int, row: str, column: str) -> IntText:
        down, right = self.lies[which]
        return add(self.start[which], mul(row, down), mul(column, right))

    def read(self, which: int, row: str, column: str) -> str:
        at = self.place(which, row, column)
        return self.kernel.read(self.pointers[which], self.views[which].dtype, at)

    def left(self, row: str, term: str) -> str:
        return self.read(0, row, term)

    def right(self, term: str, column: str) -> str:
        return self.read(1, term, column)

    def store(self, row: str, column: str, value: str) -> None:
        if self.x.initial is not None:
            summand = self.read(3, row, column)
            first = f"({self.part} ? 0 : {summand})" if self.parts > 1 else summand
            value = f"({value} + {first})"
        at = add(self.behind(self.x.c), self.place(2, row, column))
        self.kernel.write(self.pointers[2], self.x.c.dtype, at, value)


class _Places(Operands):
    """Sums over all places of some axes; axes that both operands walk as one are one."""

    def __init__(self, kernel: Kernel, x: Contract) -> None:
        self.kernel, self.x, (b, m, n) = kernel, x, x.out.shape
        self.batch, self.sides, self.depth = (b,), (m, n), product(x.x.shape[2:])
        self.alike = (x.x.strides[1] == 1, x.y.strides[-1] == 1)
        self.pointers = [kernel.pointer(v) for v in (x.x, x.y, x.out)]
        self.over = kernel.numbers([v.strides[0] for v in (x.x, x.y, x.out)])
        self.below, self.beside = kernel.number(x.x.strides[1]), kernel.number(x.y.strides[-1])
        self.out = kernel.numbers(x.out.strides[1:])
        dims, rows = collapse(x.x.shape[2:], [x.x.strides[2:], x.y.strides[1:-1]])
        self.places, self.steps = kernel.numbers(dims), [kernel.numbers(r) for r in rows]
        self.first, self.along, self.before = "", "", ""

    def begin(self, number: str) -> None:
        batch = str(self.kernel.let(number))
        self.start = [mul(batch, s) for s in self.over]

    def enter(self, term: str) -> None:
        """A term of the slice is not far behind its first one: no division for each."""
        if len(self.places) == 2:
            n = self.places[-1]
            self.first, self.before = term, str(self.kernel.let(f"{term} / {n}"))
            self.along = str(self.kernel.let(f"{term} % {n}"))

    def at(self, which: int, term: str) -> IntText:
        kernel, steps = self.kernel, self.steps[which]
        if len(self.places) != 2:
            return kernel.decoded(term, self.places, [steps])[0] if self.places else 0
        name, row = kernel.fresh(), kernel.fresh()
        kernel.emit(f"i64 {name} = {self.along} + {term} - {self.first}, {row} = {self.before};")
        kernel.emit(f"for (; {name} >= {self.places[-1]}; {name} -= {self.places[-1]}) {row}++;")
        return add(mul(row, steps[0]), mul(name, steps[1]))

    def left(self, row: str, term: str) -> str:
        at = add(self.start[0], mul(row, self.below), self.at(0, term))
        return self.kernel.read(self.pointers[0], self.x.x.dtype, at)

    def right(self, term: str, column: str) -> str:
        at = add(self.start[1], mul(column, self.beside), self.at(1, term))
        return self.kernel.read(self.pointers[1], self.x.y.dtype, at)

    def store(self, row: str, column: str, value: str) -> None:
        at = add(
            self.behind(self.x.out), self.start[2], mul(row, self.out[0]), mul(column, self.out[1])
        )
        self.kernel.write(self.pointers[2], self.x.out.dtype, at, value)


class _Pixels(Operands):
    """The matrix of weights times that of pixels, which is in shared memory only, slice by slice.

    Axes: x [g, b, c, m, y, z], w [g, r, c, i, j], out [g, b, r, m, p, q]; a term is a channel and a
    tap, a column a place of the result in a batch.
    """

    alike = (False, True)

    def __init__(self, kernel: Kernel, x: Conv) -> None:
        self.kernel, self.x, (g, b, _, *places) = kernel, x, x.out.shape
        self.batch, self.sides, self.depth = (g,), _sides(x), product(x.w.shape[2:])
        self.pixels, self.weights, self.out = (kernel.pointer(v) for v in (x.x, x.w, x.out))
        self.of_x, self.of_w, self.of_out = (kernel.numbers(v.strides) for v in (x.x, x.w, x.out))
        self.places, self.taps = kernel.numbers((b, *places)), kernel.numbers(x.w.shape[2:])
        self.limits, self.before = kernel.numbers(x.x.shape[-2:]), kernel.numbers(x.before)
        self.group = ""

    def begin(self, number: str) -> None:
        self.group = str(self.kernel.let(number))

    def left(self, row: str, term: str) -> str:
        of_group, over, *steps = self.of_w
        (tap,) = self.kernel.decoded(term, self.taps, [steps])
        at = add(mul(self.group, of_group), mul(row, over), tap)
        return self.kernel.read(self.weights, self.x.w.dtype, at)

    def right(self, term: str, column: str) -> str:
        """Zero where there is no pixel."""
        kernel, (g, b, c, m, y, z) = self.kernel, self.of_x
        units: list[list[IntText]] = [[0, 0, 1, 0], [0, 0, 0, 1]]
        start, p, q = kernel.decoded(column, self.places, [[b, m, 0, 0], *units])
        channel, i, j = kernel.decoded(term, self.taps, [[c, 0, 0], [0, 1, 0], [0, 0, 1]])
        at = [self.pixel(0, p, i), self.pixel(1, q, j)]
        inside = " && ".join(f"{a} >= 0 && {a} < {n}" for a, n in zip(at, self.limits))
        name = kernel.fresh()
        kernel.emit(f"{register_type(self.x.x.dtype.compute)} {name} = 0;")
        with kernel.block(f"if ({inside})"):
            place = add(mul(self.group, g), start, channel, mul(at[0], y), mul(at[1], z))
            kernel.emit(f"{name} = {kernel.read(self.pixels, self.x.x.dtype, place)};")
        return name

    def pixel(self, axis: int, place: IntText, tap: IntText) -> str:
        x = self.x
        first, behind = mul(f"({place})", x.stride[axis]), mul(f"({tap})", x.dilation[axis])
        return str(self.kernel.let(f"{first} + {behind} - {self.before[axis]}"))

    def store(self, row: str, column: str, value: str) -> None:
        g, b, r, *steps = self.of_out
        (start,) = self.kernel.decoded(column, self.places, [[b, *steps]])
        at = add(self.behind(self.x.out), mul(self.group, g), mul(row, r), start)
        self.kernel.write(self.out, self.x.out.dtype, at, value)


@dataclass(frozen=True)
class _Slices:
    """Terms from `first` on, as far as there are, in shared memory."""

    kernel: Kernel
    depth: int
    first: str
    end: str

    def all(
        self, name: str, side: tuple[int, str, str], alike: bool, read: Callable[[str, str], str]
    ) -> None:
        """Of so many results from a place on, as far as there are; zeros where there is nothing.
        Neighbouring threads read neighbouring elements."""
        kernel, (count, start, end) = self.kernel, side
        with kernel.loop(self.depth * count, "i32", "threadIdx.x", "blockDim.x") as i:
            pair = (f"{i} / {self.depth}", f"{i} % {self.depth}")
            if alike:
                pair = (f"{i} % {count}", f"{i} / {count}")
            r, t = (str(kernel.let(q, "i32")) for q in pair)
            result, term = kernel.let(f"{start} + {r}"), kernel.let(f"{self.first} + {t}")
            to = f"{name}[{t} * {count + GAP} + {r}]"
            kernel.emit(f"{to} = 0;")
            with kernel.block(f"if ({result} < {end} && {term} < {self.end})"):
                kernel.emit(f"{to} = {read(str(result), str(term))};")


def _multiply(kernel: Kernel, tile: BlockTile, fma: str) -> None:
    kernel.emit("#pragma unroll")
    with kernel.loop(tile.depth, "i32") as t:
        for i in range(SIDE):
            for j in range(SIDE):
                a = f"left[{t} * {tile.height + GAP} + down + {i}]"
                b = f"right[{t} * {tile.width + GAP} + across + {j}]"
                kernel.emit(f"sums[{i}][{j}] = {fma}({a}, {b}, sums[{i}][{j}]);")


def _places_of_warps(kernel: Kernel, tile: BlockTile) -> None:
    """Emit the position of a lane's results: a warp has `SIDE` tiles next to each other."""
    kernel.emit(f"const i32 lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
    tiles = tile.height // HEIGHT
    kernel.emit(f"const i32 down = warp % {tiles} * {HEIGHT};")
    kernel.emit(f"const i32 across = warp / {tiles} * {SIDE * WIDTH};")


def _multiply_fragments(kernel: Kernel, tile: BlockTile, fragments: Fragments) -> None:
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
    """Return the position of the result `sums[i][j]` of a thread in the tile of its block."""
    return f"down + {i}", f"across + {j}"


def _of_lane(i: int, j: int) -> tuple[str, str]:
    """Like `_of_thread`, for the result j of the tile i of a warp."""
    return f"down + lane / 4 + {j // 2 * 8}", f"across + {i * WIDTH + j % 2} + lane % 4 * 2"


def _store(
    kernel: Kernel, x: Operands, rows: tuple[str, str], columns: tuple[str, str],
    place: Callable[[int, int], tuple[str, str]],
) -> None:  # fmt: skip
    for i in range(SIDE):
        for j in range(SIDE):
            down, across = place(i, j)
            row = str(kernel.let(f"{rows[0]} + {down}"))
            column = str(kernel.let(f"{columns[0]} + {across}"))
            with kernel.block(f"if ({row} < {rows[1]} && {column} < {columns[1]})"):
                x.store(row, column, f"sums[{i}][{j}]")
