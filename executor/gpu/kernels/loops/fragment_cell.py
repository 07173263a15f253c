"""Recurrent cells by tensor cores, where less than the precision of float32 is requested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from executor.gpu.kernel_builder import Kernel, unrolled
from executor.gpu.kernels.fragments import HEIGHT, Fragments
from executor.gpu.kernels.loops.cell import MOST, Cell, CellDistribution, CellWriter
from executor.gpu.preamble import SHARED, WARP

#: results of a lane in a tile
RESULTS = 4


@dataclass(frozen=True)
class FragmentDistribution(CellDistribution):
    """`splits` warps have the same units, each some of the rows of the matrix; a block has the
    units of its warps."""

    fragments: Fragments
    splits: int

    @property
    def parts(self) -> int:
        return -(-self.cell.units // (HEIGHT * (self.warps // self.splits)))

    @property
    def tiles(self) -> int:
        """Along the rows of the matrix, of a warp."""
        return self.rows(self.fragments.depth * self.splits)

    @property
    def registers(self) -> int:
        return self.tiles * self.cell.count * 4

    @property
    def shared(self) -> int:
        """Bytes for the sums of all warps."""
        return self.warps * self.cell.count * RESULTS * WARP * 4


def fragment_distribution(
    cell: Cell, fragments: Fragments, threads: int, blocks: int, room: int
) -> FragmentDistribution | None:
    """The fewer warps share units, the fewer blocks read the same rows of the state."""
    splits = 1
    while splits <= threads // WARP:
        distribution = FragmentDistribution(cell.gemm, threads, 1, cell, fragments, splits)
        groups = blocks // distribution.parts
        if groups and distribution.registers <= min(room, MOST) and distribution.shared <= SHARED:
            return replace(distribution, groups=groups)
        splits *= 2
    return None


def fragment_matrix(distribution: FragmentDistribution) -> Kernel:
    """The tiles of the warp into registers; zeros where the matrix has no element."""
    return _FragmentCellWriter(distribution).matrix()


def fragment_cell(distribution: FragmentDistribution) -> Kernel:
    return _FragmentCellWriter(distribution).cell()


class _FragmentCellWriter(CellWriter):
    def __init__(self, distribution: FragmentDistribution) -> None:
        super().__init__(distribution)
        self.tiles = distribution
        self.kernel.keep(distribution, "u32", distribution.registers)
        self.kernel.emit(
            f"const i32 warp = threadIdx.x / {WARP}, split = warp % {distribution.splits};"
        )

    def share(self, number: str) -> None:
        d = self.tiles
        tile = f"{number} % {d.parts} * {d.warps // d.splits} + warp / {d.splits}"
        self.kernel.emit(f"const i32 first = ({tile}) * {HEIGHT}, group = {number} / {d.parts};")

    def start(self, t: str) -> str:
        """The first row of the matrix of a tile."""
        d = self.tiles
        return str(self.kernel.let(f"(split * {d.tiles} + {t}) * {d.fragments.depth}", "i32"))

    def matrix(self) -> Kernel:
        kernel, d, x = self.kernel, self.tiles, self.x
        self.share("blockIdx.x")
        with unrolled(kernel, d.tiles) as t, unrolled(kernel, x.count) as gate:
            with unrolled(kernel, 4) as i:
                unit = str(kernel.let(f"first + lane / 4 + {i} % 2 * 8", "i32"))

                def read(k: str) -> str:
                    inside = f"{k} < {x.gemm.y.shape[-2]} && {unit} < {x.units}"
                    column = f"({unit} + {gate} * {x.units})"
                    return self.guarded(inside, lambda: self.rows.of_matrix(x.gemm.y, k, column))

                word = d.fragments.word(read, self.start(t), f"{i} / 2")
                kernel.emit(f"kept[({t} * {x.count} + {gate}) * 4 + {i}] = {word};")
        return kernel

    def guarded(self, inside: str, read: Callable[[], str]) -> str:
        """A value that is 0 where there is none."""
        name = self.kernel.fresh()
        self.kernel.emit(f"float {name} = 0;")
        with self.kernel.block(f"if ({inside})"):
            self.kernel.emit(f"{name} = {read()};")
        return name

    def step(self, row: str, end: str) -> None:
        """Emit the cell for `WIDTH` rows: the sums of all warps lie in shared memory, where the
        warps that have the same units share the results."""
        kernel, d, x = self.kernel, self.tiles, self.x
        results = x.count * RESULTS
        self.sums(row, end)
        kernel.emit("float* all = (float*)shared_memory();")
        kernel.emit("__syncthreads();")
        with unrolled(kernel, results) as j:
            kernel.emit(f"all[(warp * {results} + {j}) * {WARP} + lane] = sums[{j}];")
        kernel.emit("__syncthreads();")

        with kernel.block(f"for (i32 e = split; e < {RESULTS}; e += {d.splits})"):
            mine = str(kernel.let(f"{row} + lane % 4 * 2 + e % 2"))
            unit = str(kernel.let("first + lane / 4 + e / 2 * 8", "i32"))
            with kernel.block(f"if ({mine} < {end} && {unit} < {x.units})"):
                kernel.emit(f"float gates[{x.count}] = {{}};")
                with unrolled(kernel, x.count) as gate, unrolled(kernel, d.splits) as s:
                    at = f"(warp / {d.splits} * {d.splits} + {s}) * {results}"
                    place = f"({at} + {gate} * {RESULTS} + e) * {WARP} + lane"
                    kernel.emit(f"gates[{gate}] += all[{place}];")
                self.store(mine, unit)

    def sums(self, row: str, end: str) -> None:
        """Lanes of rows that there are not multiply the last one."""
        kernel, d, x = self.kernel, self.tiles, self.x
        kernel.emit(f"float sums[{x.count * RESULTS}] = {{}};")
        behind = f"{row} + lane / 4"
        mine = str(kernel.let(f"{behind} < {end} ? {behind} : {end} - 1"))
        depth = x.gemm.x.shape[-1]

        def read(k: str) -> str:
            if depth == d.tiles * d.splits * d.fragments.depth:
                return self.rows.read(x.gemm.x, mine, k)
            return self.guarded(f"{k} < {depth}", lambda: self.rows.read(x.gemm.x, mine, k))

        with unrolled(kernel, d.tiles) as t:
            start = self.start(t)
            words = [d.fragments.word(read, start, half) for half in "01"]
            right = str(kernel.let(words[0], "u32")), str(kernel.let(words[1], "u32"))
            with unrolled(kernel, x.count) as gate:
                left = f"kept + ({t} * {x.count} + {gate}) * 4"
                kernel.emit(d.fragments.multiply(f"sums + {gate} * {RESULTS}", left, right))
