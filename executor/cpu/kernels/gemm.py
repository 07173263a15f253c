"""Matrix products: a register tile over panels of packed weights.

A panel holds `columns` columns of the right matrix, [K][columns]. The micro-kernel keeps
rows x vectors accumulators in registers over the whole of K; its strides are run-time arguments,
so the left matrix may be any strided view, and the right one may be read in place: its row stride
is an argument too. Few rows need more accumulators than the tile has, or the latency of the
multiply-add shows: K is then split over several sets of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from executor.cpu.kernel_builder import (
    KernelBuilder,
    OperandAccess,
    lane_mask,
    nest,
    prefetch,
    read,
    write,
)
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.gemv import ARGUMENTS as SMALL_ARGUMENTS
from executor.cpu.kernels.gemv import STRIPS, dot_kernel, multiply_add, strip_kernel
from executor.cpu.kernels.pack import pack_panel, unit_steps
from executor.cpu.launches import PackedGemm, PanelGemm
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import Gemm
from executor.memory import View, collapse
from ir.types import Dim, DType

ROWS = 6
#: chains of dependent multiply-adds that hide their latency
CHAINS = 8
#: blocks of rows that read the right matrix as it lies in memory: to pack it would cost more than
#: it saves; and the rows that such a matrix is asked for ahead of its use, because each lies on
#: another page of memory, where the processor does not prefetch by itself
LOW_BLOCKS, ROWS_AHEAD = 4, 16
#: products that are summed up at a time at most, and bytes of the left matrix that take part
DEPTH = 384
LEFT = 1 << 19
#: products of a sum, and of a matrix, from which on hardly any time is spent outside of
#: micro-kernels and packing
LONG_SUM, LARGE_PRODUCT = 64, 1 << 15


def vectors_for(target: Target, rows: Dim) -> int:
    """Vectors of a tile: more where there are few rows."""
    small = {1: 8, 2: 8, 3: 8, 4: 6} if target.bits == 512 else {1: 8, 2: 6, 3: 4, 4: 3}
    most = 4 if target.bits == 512 else 2
    return small.get(rows, most) if isinstance(rows, int) else most


def columns(target: Target, dtype: DType, rows: Dim, n: Dim) -> int:
    """The width of a panel for a product with `rows` rows and `n` columns."""
    lanes = target.lanes(dtype)
    most = vectors_for(target, rows) * lanes
    return min(most, -(-max(n, 1) // lanes) * lanes) if isinstance(n, int) else most


def depth(dtype: DType, rows: Dim) -> int:
    """Products that are summed up at a time: a part of the left matrix stays in the second cache,
    a panel in the first one."""
    tall = rows if isinstance(rows, int) else 1
    return max(64, min(DEPTH, LEFT // (max(tall, 1) * dtype.size)))


@dataclass(frozen=True)
class RegisterTile:
    """A micro-kernel: `masked` the last vector is partial; `direct` the right matrix is not
    padded, so that the partial vector must be loaded with the mask as well; `initial` the sum
    starts from a matrix."""

    rows: int
    vectors: int
    masked: bool
    direct: bool
    initial: bool


ARGUMENTS = ("ptr", "ptr", "ptr", "ptr", *["i64"] * 7)


class _Micro:
    """(A, B, C, initial, K, A row stride, A k stride, B row stride, C row stride, row stride of
    initial, lanes of the last vector)."""

    def __init__(self, target: Target, dtype: DType, tile: RegisterTile) -> None:
        self.f, self.dtype, self.tile = LlvmFunction("?", "i64"), dtype, tile
        self.arguments = [self.f.argument(t) for t in ARGUMENTS]
        self.v = VectorEmitter(self.f, target, target.lanes(dtype))
        self.one = VectorEmitter(self.f, target, 1)
        self.type, self.element = self.v.type(dtype.compute), element(dtype)
        self.mask = lane_mask(self.v, self.arguments[-1]) if tile.masked else ""
        self.cells = [(i, j) for i in range(tile.rows) for j in range(tile.vectors)]
        sets = 1
        while sets * len(self.cells) < CHAINS:
            sets *= 2
        self.slots = [{q: self.f.alloca(self.type, 64) for q in self.cells} for _ in range(sets)]
        a, a_row = self.arguments[0], self.arguments[5]
        self.rows = [self.f.at(a, self.f.mul(i, a_row), self.element) for i in range(tile.rows)]

    def mask_of(self, j: int) -> str:
        return self.mask if j == self.tile.vectors - 1 else ""

    def start(self) -> None:
        f, v, s, s_row = self.f, self.v, self.arguments[3], self.arguments[9]
        for n, slot in enumerate(self.slots):
            for (i, j), address in slot.items():
                value = "zeroinitializer"
                if self.tile.initial and n == 0:
                    line = OperandAccess(f.at(s, f.mul(i, s_row), self.element), self.dtype, 1)
                    value = read(v, line, j * v.width, self.mask_of(j))
                f.store(self.type, value, address, 64)

    def step(self, k: Int, slot: dict[tuple[int, int], str]) -> None:
        f, v, d, e = self.f, self.v, self.dtype, self.element
        b, a_k, b_row = (self.arguments[n] for n in (1, 6, 7))
        line = OperandAccess(f.at(b, f.mul(k, b_row), e), d, 1)
        along = f.mul(k, a_k)
        if self.tile.direct:
            ahead = f.at(b, f.mul(f.add(k, ROWS_AHEAD), b_row), e)
            prefetch(f, ahead, d, 0, self.tile.vectors * v.width)
        right = [
            read(v, line, j * v.width, self.mask_of(j) if self.tile.direct else "")
            for j in range(self.tile.vectors)
        ]
        for i in range(self.tile.rows):
            x = v.splat(
                read(self.one, OperandAccess(f.at(self.rows[i], along, e), d, 1), 0), d.compute
            )
            for j, y in enumerate(right):
                total = multiply_add(v, d.compute, x, y, f.load(self.type, slot[i, j], 64))
                f.store(self.type, total, slot[i, j], 64)

    def finish(self) -> None:
        f, v, c, c_row = self.f, self.v, self.arguments[2], self.arguments[8]
        for i, j in self.cells:
            total = f.load(self.type, self.slots[0][i, j], 64)
            for slot in self.slots[1:]:
                more = f.load(self.type, slot[i, j], 64)
                total = v.binary("fadd", self.dtype.compute, total, more)
            place = OperandAccess(f.at(c, f.mul(i, c_row), self.element), self.dtype, 1)
            write(v, place, j * v.width, total, self.mask_of(j))


def micro_kernel(target: Target, dtype: DType, tile: RegisterTile) -> LlvmFunction:
    m = _Micro(target, dtype, tile)
    f, depth, sets = m.f, m.arguments[4], len(m.slots)
    m.start()
    whole = f.floor_to(depth, sets) if sets > 1 else depth
    with f.loop(0, whole, sets) as k:
        for u, slot in enumerate(m.slots):
            m.step(f.add(k, u), slot)
    if sets > 1:
        with f.loop(whole, depth) as k:
            m.step(k, m.slots[0])
    m.finish()
    return f


def heights(rows: int) -> list[tuple[int, int]]:
    """(height, how many) blocks of nearly equal height: 16 rows are 6 + 5 + 5."""
    count = -(-rows // ROWS)
    if count == 0:
        return []
    low, more = divmod(rows, count)
    return [(h, n) for h, n in ((low + 1, more), (low, count - more)) if n]


@dataclass(frozen=True)
class Corner:
    """The corner of a block: its offsets in the left and right matrix, the result and the initial
    sum."""

    a: str
    b: str
    c: str
    s: str

    def moved(self, f: LlvmFunction, e: str, **steps: Int) -> Corner:
        return replace(self, **{q: f.at(getattr(self, q), n, e) for q, n in steps.items()})


#: where a panel lies and what it is for, and its row stride
Panel: TypeAlias = Callable[[Corner, Int, Int], tuple[Corner, Int]]


@dataclass(frozen=True)
class GemmShape:
    """The static shape of a product: its type and rows, the columns of a panel, and whether the sum
    starts from a matrix."""

    dtype: DType
    rows: Dim
    columns: int
    initial: bool


@dataclass
class GemmBuilder:
    """The function of one launch under construction: all that is left to a call are numbers."""

    call: KernelBuilder
    module: LlvmModule
    form: GemmShape
    m: Int
    n: Int
    depth: Int
    left: tuple[Int, Int]
    right: tuple[Int, Int]
    rows: tuple[Int, Int]
    direct: bool = False

    @property
    def f(self) -> LlvmFunction:
        return self.call.f

    @property
    def element(self) -> str:
        return element(self.form.dtype)

    def blocks(self, vectors: int, masked: bool, at: Corner, b_row: Int, rest: Int) -> None:
        """Multiply all rows with one panel; `rest` lanes of its last vector count."""
        f, target, d = self.f, self.call.target, self.form.dtype

        def block(height: int, first: Int) -> None:
            tile = RegisterTile(height, vectors, masked, self.direct, self.form.initial)
            name = self.module.helper(micro_kernel, target, d, tile)
            own = at.moved(f, self.element, **self.down(first))
            values = (own.a, own.b, own.c, own.s, self.depth, *self.left, b_row, *self.rows, rest)
            f.call("i64", name, *((t, str(q)) for t, q in zip(ARGUMENTS, values)))

        if isinstance(self.form.rows, int):
            top = 0
            for height, n in heights(self.form.rows):
                with f.loop(0, n) as q:
                    block(height, f.add(f.mul(q, height), top))
                top += height * n
            return
        done: Int = 0
        for height in (6, 4, 2, 1):
            left = f.op(f"sub i64 {self.m}, {done}")
            stop = f.op(f"sub i64 {self.m}, {f.op(f'urem i64 {left}, {height}')}")
            with f.loop(done, stop, height) as first:
                block(height, first)
            done = stop

    def down(self, rows: Int) -> dict[str, Int]:
        strides = {"a": self.left[0], "c": self.rows[0], "s": self.rows[1]}
        return {q: self.f.mul(rows, s) for q, s in strides.items()}

    def panels(self, at: Corner, panel: Panel) -> None:
        """Emit all panels, each by `panel` from its corner, first column and number of columns."""
        f, n, width = self.f, self.n, self.form.columns
        lanes = self.call.target.lanes(self.form.dtype)
        whole = n // width * width if isinstance(n, int) else _floor(f, n, width)
        with f.loop(0, whole, width) as first:
            corner, b_row = panel(at, first, width)
            self.blocks(width // lanes, False, corner, b_row, 0)
        rest = f.sub(n, whole)
        if rest == 0:
            return
        if isinstance(rest, int):
            corner, b_row = panel(at, whole, rest)
            last = (rest - 1) % lanes + 1
            self.blocks(-(-rest // lanes), last != lanes, corner, b_row, last)
            return
        with f.when(f.op(f"icmp sgt i64 {rest}, 0")):
            corner, b_row = panel(at, whole, rest)
            with f.loop(0, rest, lanes) as j:
                own = corner.moved(f, self.element, b=j, c=j, s=j)
                self.blocks(1, True, own, b_row, f.sub(rest, j))


def _floor(f: LlvmFunction, n: Int, width: int) -> Int:
    if width & (width - 1) == 0:
        return f.floor_to(n, width)
    return f.op(f"sub i64 {n}, {f.op(f'urem i64 {n}, {width}')}")


def _matrices(
    call: KernelBuilder,
    module: LlvmModule,
    views: tuple[View, View, View, View | None],
    width: int,
    each: Callable[[GemmBuilder, Corner], None],
    direct: bool = False,
) -> KernelBuilder:
    """The kernel of a product in panels of `width` columns: `each` makes the blocks of one matrix
    of the batch. `views`: x, the right matrix or its panels, c, and what it starts from."""
    x, y, c, initial = views
    f, every = call.f, [v for v in views if v is not None]
    pointers = [call.pointer(v) for v in every]
    batch, strides = collapse(c.shape[:-2], [v.strides[:-2] for v in every])
    dims = [call.number(q) for q in batch]
    steps = [[call.number(s) for s in row] for row in strides]
    m, n = (call.number(q) for q in c.shape[-2:])
    start = call.number(initial.strides[-2]) if initial is not None else 0
    left, right = ((call.number(v.strides[-2]), call.number(v.strides[-1])) for v in (x, y))
    rows, depth = (call.number(c.strides[-2]), start), call.number(x.shape[-1])
    form = GemmShape(x.dtype, c.shape[-2], width, initial is not None)
    p = GemmBuilder(call, module, form, m, n, depth, left, right, rows, direct)
    known = [q for q in (x.shape[-1], *c.shape[-2:]) if isinstance(q, int)]
    long = isinstance(x.shape[-1], int) and x.shape[-1] >= LONG_SUM
    f.cold = long and prod(known) >= LARGE_PRODUCT

    def body(offsets: list[Int]) -> None:
        at = [f.at(q, o, p.element) for q, o in zip(pointers, offsets)]
        each(p, Corner(at[0], at[1], at[2], at[3] if initial is not None else "null"))

    nest(f, dims, steps, body)
    return call


def _is_strip(target: Target, g: Gemm) -> bool:
    """It sums up in `c`, so that must have the type of the sum."""
    return g.c.dtype.compute == g.c.dtype and g.c.shape[-2] in STRIPS and g.y.strides[-1] == 1


@kernel_for(Gemm, when=_is_strip)
def strips(target: Target, module: LlvmModule, g: Gemm) -> KernelBuilder:
    return _few_rows(target, module, g, strip_kernel)


def _is_dots(target: Target, g: Gemm) -> bool:
    return g.c.shape[-2] in STRIPS and g.y.strides[-2] == 1 == g.x.strides[-1]


@kernel_for(Gemm, when=_is_dots)
def dots(target: Target, module: LlvmModule, g: Gemm) -> KernelBuilder:
    return _few_rows(target, module, g, dot_kernel)


def _few_rows(
    target: Target,
    module: LlvmModule,
    g: Gemm,
    kernel: Callable[[Target, DType, int, bool], LlvmFunction],
) -> KernelBuilder:
    """The right matrix is read once, as it lies in memory."""
    rows = g.c.shape[-2]
    assert isinstance(rows, int)
    name = module.helper(kernel, target, g.x.dtype, rows, g.initial is not None)

    def each(p: GemmBuilder, at: Corner) -> None:
        values = (*vars(at).values(), p.depth, p.n, *p.left, *p.right, *p.rows)
        p.f.call("i64", name, *((t, str(q)) for t, q in zip(SMALL_ARGUMENTS, values)))

    return _matrices(KernelBuilder(target), module, (g.x, g.y, g.c, g.initial), 0, each)


def _is_low(target: Target, g: Gemm) -> bool:
    m = g.c.shape[-2]
    return g.y.strides[-1] == 1 and isinstance(m, int) and m <= LOW_BLOCKS * ROWS


@kernel_for(Gemm, when=_is_low)
def in_place(target: Target, module: LlvmModule, g: Gemm) -> KernelBuilder:
    def each(p: GemmBuilder, at: Corner) -> None:
        def panel(at: Corner, first: Int, count: Int) -> tuple[Corner, Int]:
            return at.moved(p.f, p.element, b=first, c=first, s=first), p.right[0]

        p.panels(at, panel)

    width = columns(target, g.x.dtype, *g.c.shape[-2:])
    return _matrices(
        KernelBuilder(target), module, (g.x, g.y, g.c, g.initial), width, each, direct=True
    )


@kernel_for(PackedGemm)
def packed(target: Target, module: LlvmModule, g: PackedGemm) -> KernelBuilder:
    def each(p: GemmBuilder, at: Corner) -> None:
        def panel(at: Corner, first: Int, count: Int) -> tuple[Corner, Int]:
            below = p.f.mul(first, p.depth)
            return at.moved(p.f, p.element, b=below, c=first, s=first), g.columns

        p.panels(at, panel)

    views = (g.x, g.panels, g.out, g.initial)
    return _matrices(KernelBuilder(target), module, views, g.columns, each)


@kernel_for(PanelGemm)
def panel_by_panel(target: Target, module: LlvmModule, g: PanelGemm) -> KernelBuilder:
    call = KernelBuilder(target)
    scratch = call.pointer(g.scratch)
    pack = module.helper(pack_panel, target, g.x.dtype, g.columns, *unit_steps(g.y))

    def each(p: GemmBuilder, at: Corner) -> None:
        def panel(at: Corner, first: Int, count: Int) -> tuple[Corner, Int]:
            y = p.f.at(at.b, p.f.mul(first, p.right[1]), p.element)
            numbers = (("i64", str(q)) for q in (p.depth, *p.right, count))
            p.f.call("i64", pack, ("ptr", y), ("ptr", scratch), *numbers)
            return replace(at.moved(p.f, p.element, c=first, s=first), b=scratch), g.columns

        p.panels(at, panel)

    return _matrices(call, module, (g.x, g.y, g.out, g.initial), g.columns, each)
