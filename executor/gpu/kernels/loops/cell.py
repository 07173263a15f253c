"""Recurrent cells of the family scan_persistent: a loop's product with an invariant matrix, fused
with the elementwise launch that uses it.

The columns that make one unit of the state (the gates of a cell) belong to one warp, and so what
the product makes stays in registers. As a state that the product reads is written by other blocks,
iterations read one half of it and write the other one: a block waits for the others once in an
iteration. The matrix is in registers where it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from executor.gpu.kernel_builder import Kernel, add, kernel_for, mul, unrolled
from executor.gpu.kernels.launch_fusion import (
    LoopParts,
    Own,
    copied,
    is_constant,
    joined,
    owner,
    reading,
    touched,
)
from executor.gpu.kernels.loops.resident import WorkDistribution
from executor.gpu.preamble import THREADS, WARP
from executor.gpu.scalars import register_type
from executor.launches import (
    BackendLaunch,
    Gemm,
    Launch,
    Loop,
    Map,
    results,
    views,
    with_blocks,
)
from executor.memory import Buffer, View
from ir.layout import contiguous
from ir.types import Dim, Size, divide, is_natural, product, substitute_dim

#: registers of a thread for the matrix
MOST = 128


@dataclass(frozen=True, eq=False)
class Cell(BackendLaunch):
    """`gemm`, then `map`, whose input k is gate `gates[k]` of the product, or memory (-1): that of
    `ins`. `operands` is what the product reads."""

    operands: tuple[View, ...]
    ins: tuple[View, ...]
    outs: tuple[View, ...]
    gemm: Gemm
    map: Map
    gates: tuple[int, ...]

    @property
    def units(self) -> int:
        n = self.map.shape[-1]
        assert isinstance(n, int)
        return n

    @property
    def count(self) -> int:
        """The number of gates."""
        n = self.gemm.c.shape[-1]
        assert isinstance(n, int)
        return n // self.units


# ---------------------------------------------------------------- which launches
def celled(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with each product of a loop that the family covers and its elementwise launch as
    one."""
    return _celled(launches, owner(launches))


def _celled(launches: Sequence[Launch], own: Own) -> list[Launch]:
    out: list[Launch] = []
    for x in launches:
        before, x, after = _loop(with_blocks(x, lambda q: _celled(q, own)), own)
        out += [*before, x, *after]
    return out


def _loop(x: Launch, own: Own) -> tuple[list[Launch], Launch, list[Launch]]:
    """The loop with its cells, and what stands before and behind it."""
    before: list[Launch] = []
    after: list[Launch] = []
    at = 0
    while isinstance(x, Loop) and at + 1 < len(x.body):
        joint = joined(x, at, own)
        if joint is not None:
            x, before = replace(x, body=joint.body), before + joint.before
        gemm, map_ = x.body[at : at + 2]
        found = None
        if isinstance(gemm, Gemm) and isinstance(map_, Map):
            alone = joint is not None or own((gemm, map_), gemm.c.buffer)
            found = _cell(x, at, gemm, map_) if alone and _fits(x, gemm, map_) else None
        if found is not None:
            x = replace(x, body=found.body)
            before, after = before + found.before, found.after + after
        at += 1
    return before, x, after


def _fits(x: Loop, gemm: Gemm, map_: Map) -> bool:
    """Whether the elementwise launch takes the product unit by unit."""
    names = frozenset({x.index, x.parity, x.after, x.count})
    sizes = (*gemm.y.shape[-2:], map_.shape[-1] if map_.shape else "")
    if map_.error or gemm.y.ndim > 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
        return False
    gates = [_gate(gemm.c, map_, v) for v in map_.ins]
    if None in gates or max((g for g in gates if g is not None), default=-1) < 0:
        return False
    count = int(str(gemm.c.shape[-1])) // int(str(map_.shape[-1]))
    small = count * -(-int(str(gemm.y.shape[-2])) // WARP) <= MOST
    same = map_.shape[:-1] == gemm.c.shape[:-1]
    return same and small and is_constant(gemm.y, names) and gemm.c.dtype.compute.kind == "f"


def _gate(c: View, m: Map, v: View) -> int | None:
    """Return the gate whose columns of a product a view shows; -1 for other memory, None for
    neither."""
    if v.buffer is not c.buffer:
        return -1
    gate = divide(v.offset - c.offset, m.shape[-1])
    whole = divide(c.shape[-1], m.shape[-1])
    fits = v.shape == m.shape and v.strides == c.strides and c.strides[-1] == 1
    if not fits or not isinstance(gate, int) or not isinstance(whole, int):
        return None
    return gate if 0 <= gate < whole and whole * m.shape[-1] == c.shape[-1] else None


def cell_of(gemm: Gemm, map_: Map) -> Cell:
    gates = tuple(_gate(gemm.c, map_, v) for v in map_.ins)
    found = tuple(g for g in gates if g is not None)
    assert len(found) == len(gates)
    operands = (gemm.x, gemm.y, *([] if gemm.initial is None else [gemm.initial]))
    ins = tuple(v for v, g in zip(map_.ins, found) if g == -1)
    return Cell(operands, ins, map_.outs, gemm, map_, found)


def _cell(x: Loop, at: int, gemm: Gemm, map_: Map) -> LoopParts | None:
    """The loop with launches `at` and the next one as a cell. If they replace what the product
    reads, that gets a second half."""
    read = (gemm.x, *([] if gemm.initial is None else [gemm.initial]), gemm.y)
    met = ((v, q) for v in map_.outs for q in read if v.buffer is q.buffer)
    shared = {v for v, q in met if not _halves(x, v, q)}
    rest = (*x.body[:at], *x.body[at + 2 :])
    if not shared:
        return LoopParts([], (*x.body[:at], cell_of(gemm, map_), *x.body[at + 2 :]), [])
    state = shared.pop()
    bound = frozenset({x.index, x.parity, x.after, x.count})
    seen = [v for v in (*views(gemm), *views(map_)) if v.buffer is state.buffer]
    used = [q for q in rest if state.buffer in touched([q])]
    simple = all(isinstance(q, (Gemm, Map, Cell)) and state not in results(q) for q in used)
    seen += [v for q in used for v in views(q) if v.buffer is state.buffer]
    if shared or not simple or any(v != state for v in seen) or not is_constant(state, bound):
        return None
    if x.go is not None and x.go.buffer is state.buffer:
        return None
    return _doubled(x, at, gemm, map_, state)


def _halves(x: Loop, v: View, q: View) -> bool:
    """Whether two views are different parts of memory in all iterations."""
    if _is_behind(v, q) or _is_behind(q, v):
        return True
    n = product(v.shape)
    apart = [substitute_dim(v.offset - q.offset, {x.parity: p}) for p in (0, 1)]
    same = v.contiguous and q.contiguous and v.shape == q.shape
    return same and all(d == n or d == -n for d in apart)


def _is_behind(v: View, q: View) -> bool:
    """Whether a view begins behind the last element of another one."""
    forward = all(map(is_natural, (*v.strides, *q.strides)))
    return forward and is_natural(v.offset - q.offset - q.span)


def _doubled(x: Loop, at: int, gemm: Gemm, map_: Map, state: View) -> LoopParts:
    """Launches before the product see the old half, those behind the cell the new one."""
    n, parity = product(state.shape), Size.named(x.parity)
    memory = Buffer("arena", 0, 2 * n * state.dtype.size)

    def half(which: Dim) -> View:
        return View(memory, state.dtype, which * n, state.shape, contiguous(state.shape))

    old, new = {state: half(parity)}, {state: half(1 - parity)}
    ins, outs = (tuple(h.get(v, v) for v in q) for h, q in ((old, map_.ins), (new, map_.outs)))
    map_ = replace(map_, ins=ins, outs=outs)
    first = (_moved(q, old) for q in x.body[:at])
    last = (_moved(q, new) for q in x.body[at + 2 :])
    body = (*first, cell_of(_product(gemm, old), map_), *last)
    return LoopParts([copied(state, half(0))], body, [copied(half(Size.named(x.after)), state)])


def _moved(x: Launch, other: Mapping[View, View]) -> Launch:
    """A launch that reads other memory."""
    if isinstance(x, Cell):
        return cell_of(_product(x.gemm, other), reading(x.map, other))
    if isinstance(x, Map):
        return reading(x, other)
    return _product(x, other) if isinstance(x, Gemm) else x


def _product(x: Gemm, other: Mapping[View, View]) -> Gemm:
    initial = None if x.initial is None else other.get(x.initial, x.initial)
    return replace(x, x=other.get(x.x, x.x), y=other.get(x.y, x.y), initial=initial)


# ---------------------------------------------------------------- the matrix
@dataclass(frozen=True)
class CellDistribution(WorkDistribution):
    cell: Cell


@dataclass(frozen=True)
class LaneDistribution(CellDistribution):
    """A warp has `units`, a block those of its warps. `kept`: the matrix is in registers."""

    units: int
    kept: bool

    @property
    def parts(self) -> int:
        return -(-self.cell.units // (self.units * self.warps))

    @property
    def columns(self) -> int:
        return self.units * self.cell.count

    @property
    def depth(self) -> int:
        """Rows of the matrix of a lane."""
        return self.rows(self.lanes)

    @property
    def registers(self) -> int:
        return self.columns * self.depth


def distributed(cell: Cell, threads: int, blocks: int, room: int = MOST) -> LaneDistribution:
    """The more units a warp has, the fewer blocks read the same rows, as long as there are rows
    for all of `blocks`, which run together. `room` are registers for the matrix."""
    rows, lanes = product(cell.map.shape[:-1]), min(WARP, threads)
    found = LaneDistribution(cell.gemm, threads, 1, cell, 1, False)
    units = 1
    while units <= lanes and units < 2 * -(-cell.units // found.warps):
        distribution = replace(found, units=units, groups=1, kept=True)
        groups = blocks // distribution.parts
        fits = groups and distribution.registers <= min(room, MOST)
        if fits and (not found.kept or not isinstance(rows, int) or groups <= max(1, rows)):
            found = replace(distribution, groups=groups)
        units *= 2
    return found if found.kept else replace(found, groups=max(1, blocks // found.parts))


# ---------------------------------------------------------------- the kernels
@kernel_for(Cell)
def whole_blocks(x: Cell) -> Kernel:
    return cell_kernel(distributed(x, THREADS, 1, room=0))


def matrix_kernel(distribution: LaneDistribution) -> Kernel:
    """The columns of the warp into registers; zeros where there is none."""
    writer, y = _LaneCellWriter(distribution), distribution.cell.gemm.y
    kernel = writer.kernel
    writer.share("blockIdx.x")
    with writer.matrix() as (u, j, k, column, inside):
        kernel.emit(f"{writer.element(u, j)} = 0;")
        with kernel.block(f"if ({inside})"):
            kernel.emit(f"{writer.element(u, j)} = {writer.rows.of_matrix(y, k, column)};")
    return kernel


def cell_kernel(distribution: LaneDistribution) -> Kernel:
    return _LaneCellWriter(distribution).cell()


class CellWriter:
    """`lane` is a thread's number in its warp. A step takes `at_once` rows."""

    at_once = 8

    def __init__(self, distribution: CellDistribution) -> None:
        self.distribution, self.x = distribution, distribution.cell
        self.kernel = Kernel(work=distribution.parts * distribution.groups * distribution.threads)
        self.dtype = self.x.gemm.c.dtype.compute
        self.rows = _Memory(self.kernel, self.x)
        self.kernel.emit(f"const i32 lane = threadIdx.x % {distribution.lanes};")

    def share(self, number: str) -> None:
        """Emit the share of a block: the first unit of the warp, and the number of the group."""
        raise NotImplementedError

    def step(self, row: str, end: str) -> None:
        """Emit the cell for the rows from `row` on."""
        raise NotImplementedError

    def cell(self) -> Kernel:
        """Each group of blocks has some rows, and takes some at once."""
        kernel, d, many = self.kernel, self.distribution, self.at_once
        with kernel.loop(d.parts * d.groups, "i32", "blockIdx.x", "gridDim.x") as number:
            self.share(number)
            count = self.rows.count
            steps = f"({count} + {many * d.groups - 1}) / {many * d.groups}"
            each = kernel.let(f"{steps} * {many}")
            start = kernel.let(f"group * {each}")
            end = kernel.let(f"{start} + {each} < {count} ? {start} + {each} : {count}")
            with kernel.loop(end, first=str(start), step=str(many)) as row:
                self.step(row, str(end))
        return kernel

    def store(self, row: str, unit: str) -> None:
        """Emit the elementwise part of the cell for the `gates` of a unit, and store its
        results."""
        kernel, x = self.kernel, self.x
        gates, others = [], iter(x.ins)
        for gate in range(x.count):
            value = f"gates[{gate}]"
            if x.gemm.initial is not None:
                column = str(kernel.let(f"{unit} + {gate * x.units}", "i32"))
                value = f"({value} + {self.rows.read(x.gemm.initial, row, column)})"
            gates.append(kernel.expressions().cast(value, self.dtype, x.gemm.c.dtype))
        ins = [gates[g] if g >= 0 else self.rows.load(next(others), row, unit) for g in x.gates]
        found = kernel.evaluate(x.map.roots, ins)
        for v, value in zip(x.outs, found):
            kernel.emit(f"{self.rows.element(v, row, unit)} = {value};")


class _LaneCellWriter(CellWriter):
    """Each lane multiplies some rows of the columns of its warp."""

    def __init__(self, distribution: LaneDistribution) -> None:
        super().__init__(distribution)
        self.lanes, self.at_once = distribution, distribution.lanes // distribution.units
        self.kind = register_type(self.dtype)
        if distribution.kept:
            self.kernel.keep(distribution, self.kind, distribution.registers)

    def share(self, number: str) -> None:
        d = self.lanes
        warp = f"{number} % {d.parts} * {d.warps} + threadIdx.x / {d.lanes}"
        self.kernel.emit(f"const i32 first = ({warp}) * {d.units}, group = {number} / {d.parts};")

    def element(self, u: str, j: str) -> str:
        return f"kept[{u} * {self.lanes.columns} + {j}]"

    @contextmanager
    def matrix(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Rows and columns of a thread: their numbers, those in the matrix, and whether there
        are."""
        kernel, d, x = self.kernel, self.lanes, self.x
        with unrolled(kernel, d.depth) as u, unrolled(kernel, d.columns) as j:
            k = str(kernel.let(f"lane + {u} * {d.lanes}", "i32"))
            unit = str(kernel.let(f"first + {j} % {d.units}", "i32"))
            column = str(kernel.let(f"{unit} + {j} / {d.units} * {x.units}", "i32"))
            yield u, j, k, column, f"{k} < {x.gemm.y.shape[-2]} && {unit} < {x.units}"

    def step(self, row: str, end: str) -> None:
        """Emit the cell for as many rows as give each lane one unit."""
        kernel, d, x = self.kernel, self.lanes, self.x
        kernel.emit(f"{self.kind} gates[{x.count}];")
        with kernel.loop(self.at_once, "i32") as r:
            now = str(kernel.let(f"{row} + {r}"))
            with kernel.block(f"if ({now} < {end})"):
                self.sums(now)
                with unrolled(kernel, d.units) as u:
                    with kernel.block(f"if (lane == {r} * {d.units} + {u})"):
                        for gate in range(x.count):
                            kernel.emit(f"gates[{gate}] = sums[{gate * d.units} + {u}];")
        mine = str(kernel.let(f"{row} + lane / {d.units}"))
        unit = str(kernel.let(f"first + lane % {d.units}", "i32"))
        with kernel.block(f"if ({mine} < {end} && {unit} < {x.units})"):
            self.store(mine, unit)

    def sums(self, row: str) -> None:
        """`sums`: of a row with each column of the warp, in all lanes."""
        kernel, d, x = self.kernel, self.lanes, self.x.gemm
        fma = "fmaf" if self.dtype.bits == 32 else "fma"
        kernel.emit(f"{self.kind} sums[{d.columns}] = {{}}, row[{d.depth}] = {{}};")
        with unrolled(kernel, d.depth) as u:
            k = str(kernel.let(f"lane + {u} * {d.lanes}", "i32"))
            with kernel.block(f"if ({k} < {x.x.shape[-1]})"):
                kernel.emit(f"row[{u}] = {self.rows.read(x.x, row, k)};")
        with self.matrix() as (u, j, k, column, inside):
            element = self.element(u, j)
            if not d.kept:
                kernel.emit(f"{self.kind} y = 0;")
                with kernel.block(f"if ({inside})"):
                    kernel.emit(f"y = {self.rows.of_matrix(x.y, k, column)};")
                element = "y"
            kernel.emit(f"sums[{j}] = {fma}(row[{u}], {element}, sums[{j}]);")
        with unrolled(kernel, d.columns) as j:
            with kernel.block(f"for (u32 m = {d.lanes // 2}; m; m >>= 1)"):
                kernel.emit(f"sums[{j}] += shuffle_xor(sums[{j}], m);")


class _Memory:
    """Elements of views by the number of their row, and their place in it."""

    def __init__(self, kernel: Kernel, x: Cell) -> None:
        self.kernel, lead = kernel, x.map.shape[:-1]
        self.matrix = kernel.pointer(x.gemm.y)
        views_ = [v for v in (*x.operands, *x.ins, *x.outs) if v is not x.gemm.y]
        self.pointers = {id(v): kernel.pointer(v) for v in views_}
        wide = {id(v): v.expand((*lead, v.shape[-1])) for v in views_}
        self.strides = {k: kernel.numbers(v.strides) for k, v in wide.items()}
        self.dims = kernel.numbers(lead)
        self.count = str(kernel.let(" * ".join(map(str, self.dims)) or "1"))

    def element(self, v: View, row: str, at: str) -> str:
        *over, along = self.strides[id(v)]
        start = self.kernel.decoded(row, self.dims, [over])[0] if self.dims else 0
        return f"{self.pointers[id(v)]}[{add(start, mul(at, along))}]"

    def load(self, v: View, row: str, at: str) -> str:
        """Return the element as it is stored in memory."""
        return self.kernel.loaded(self.element(v, row, at), v.dtype)

    def read(self, v: View, row: str, at: str) -> str:
        """In the compute type."""
        value = self.load(v, row, at)
        return self.kernel.expressions().cast(value, v.dtype, v.dtype.compute)

    def of_matrix(self, y: View, k: str, column: str) -> str:
        down, right = self.kernel.numbers(y.strides[-2:])
        return self.kernel.read(self.matrix, y.dtype, add(mul(k, down), mul(column, right)))
