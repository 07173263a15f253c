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
from typing import TypeAlias

from executor.cpu.kernel_builder import Call, Place, lane_mask, load, nest, store
from executor.cpu.kernels.gemv import ARGUMENTS as SMALL_ARGUMENTS
from executor.cpu.kernels.gemv import STRIPS, dot_kernel, multiply_add, strip_kernel
from executor.cpu.kernels.pack import pack_panel
from executor.cpu.llvm_text import Function, Int, Module, element
from executor.cpu.target import Target
from executor.cpu.vector_math import Lanes
from executor.launches import Gemm
from executor.memory import collapse
from ir.types import Dim, DType

ROWS = 6
#: chains of dependent multiply-adds that hide their latency
CHAINS = 8
#: products that are summed up at a time at most, and bytes of the left matrix that take part
DEPTH = 384
LEFT = 1 << 19


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
class Tile:
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

    def __init__(self, target: Target, dtype: DType, tile: Tile) -> None:
        self.f, self.dtype, self.tile = Function("?", "i64"), dtype, tile
        self.arguments = [self.f.argument(t) for t in ARGUMENTS]
        self.v = Lanes(self.f, target, target.lanes(dtype))
        self.type, self.element = self.v.type(dtype), element(dtype)
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
                    line = Place(f.at(s, f.mul(i, s_row), self.element), self.dtype, 1)
                    value = load(v, line, j * v.width, self.mask_of(j))
                f.store(self.type, value, address, 64)

    def step(self, k: Int, slot: dict[tuple[int, int], str]) -> None:
        f, v, d, e = self.f, self.v, self.dtype, self.element
        b, a_k, b_row = (self.arguments[n] for n in (1, 6, 7))
        line = Place(f.at(b, f.mul(k, b_row), e), d, 1)
        along = f.mul(k, a_k)
        right = [
            load(v, line, j * v.width, self.mask_of(j) if self.tile.direct else "")
            for j in range(self.tile.vectors)
        ]
        for i in range(self.tile.rows):
            x = v.splat(f.load(e, f.at(self.rows[i], along, e), d.size), d)
            for j, y in enumerate(right):
                total = multiply_add(v, d, x, y, f.load(self.type, slot[i, j], 64))
                f.store(self.type, total, slot[i, j], 64)

    def finish(self) -> None:
        f, v, c, c_row = self.f, self.v, self.arguments[2], self.arguments[8]
        for i, j in self.cells:
            total = f.load(self.type, self.slots[0][i, j], 64)
            for slot in self.slots[1:]:
                more = f.load(self.type, slot[i, j], 64)
                total = v.binary("fadd", self.dtype, total, more)
            place = Place(f.at(c, f.mul(i, c_row), self.element), self.dtype, 1)
            store(v, place, j * v.width, total, self.mask_of(j))


def micro_kernel(target: Target, dtype: DType, tile: Tile) -> Function:
    m = _Micro(target, dtype, tile)
    f, depth, unroll = m.f, m.arguments[4], max(2, len(m.slots))
    m.start()
    whole = f.floor_to(depth, unroll)
    with f.loop(0, whole, unroll) as k:
        for u in range(unroll):
            m.step(f.add(k, u), m.slots[u % len(m.slots)])
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
    """Where a block begins: in the left and right matrix, the result, and what it starts from."""

    a: str
    b: str
    c: str
    s: str

    def moved(self, f: Function, e: str, **steps: Int) -> Corner:
        return replace(self, **{q: f.at(getattr(self, q), n, e) for q, n in steps.items()})


#: where a panel lies and what it is for, and its row stride
Panel: TypeAlias = Callable[[Corner, Int, Int], tuple[Corner, Int]]


@dataclass
class Product:
    """The function of one launch under construction. Only the types, the number of rows and the
    columns of a panel are taken from `g`."""

    call: Call
    module: Module
    g: Gemm
    m: Int
    n: Int
    depth: Int
    left: tuple[Int, Int]
    right: tuple[Int, Int]
    rows: tuple[Int, Int]
    direct: bool
    scratch: str

    @property
    def f(self) -> Function:
        return self.call.f

    @property
    def element(self) -> str:
        return element(self.g.x.dtype)

    def blocks(self, vectors: int, masked: bool, at: Corner, b_row: Int, rest: Int) -> None:
        """All rows against one panel; `rest` lanes of its last vector count."""
        f, target, d = self.f, self.call.target, self.g.x.dtype

        def block(height: int, first: Int) -> None:
            tile = Tile(height, vectors, masked, self.direct, self.g.initial is not None)
            name = self.module.define(micro_kernel(target, d, tile), "0")
            own = at.moved(f, self.element, **self.down(first))
            values = (own.a, own.b, own.c, own.s, self.depth, *self.left, b_row, *self.rows, rest)
            f.call("i64", name, *((t, str(q)) for t, q in zip(ARGUMENTS, values)))

        if isinstance(self.g.c.shape[-2], int):
            top = 0
            for height, n in heights(self.g.c.shape[-2]):
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

    def panel(self, at: Corner, first: Int, width: Int, pack: str) -> tuple[Corner, Int]:
        """The corner of the panel that begins at a column, and the panel's row stride."""
        f, e = self.f, self.element
        moved = at.moved(f, e, c=first, s=first)
        if self.direct:
            return moved.moved(f, e, b=first), self.right[0]
        if not self.scratch:
            return moved.moved(f, e, b=f.mul(first, self.depth)), self.g.columns
        y = f.at(at.b, f.mul(first, self.right[1]), e)
        numbers = (("i64", str(q)) for q in (self.depth, *self.right, width))
        f.call("i64", pack, ("ptr", y), ("ptr", self.scratch), *numbers)
        return replace(moved, b=self.scratch), self.g.columns

    def panels(self, at: Corner, panel: Panel) -> None:
        """All panels, each made by `panel` from its corner, first column and number of columns."""
        f, n, width = self.f, self.n, self.g.columns
        lanes = self.call.target.lanes(self.g.x.dtype)
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


def _floor(f: Function, n: Int, width: int) -> Int:
    if width & (width - 1) == 0:
        return f.floor_to(n, width)
    return f.op(f"sub i64 {n}, {f.op(f'urem i64 {n}, {width}')}")


def gemm_kernel(target: Target, module: Module, g: Gemm) -> Call:
    call = Call(target)
    f = call.f
    small = small_kernel(target, g)
    direct = g.packed is None and reads_in_place(g)
    right = g.packed if g.packed is not None else g.y
    views = [q for q in (g.x, right, g.c, g.initial) if q is not None]
    pointers = [call.pointer(q) for q in views]
    scratch = call.pointer(g.scratch) if g.scratch is not None and packs(g) else ""
    batch, strides = collapse(g.c.shape[:-2], [q.strides[:-2] for q in views])
    dims = [call.number(q) for q in batch]
    steps = [[call.number(s) for s in row] for row in strides]
    m, n = (call.number(q) for q in g.c.shape[-2:])
    start = call.number(g.initial.strides[-2]) if g.initial is not None else 0
    x_strides, y_strides = (
        (call.number(q.strides[-2]), call.number(q.strides[-1])) for q in (g.x, g.y)
    )
    rows = (call.number(g.c.strides[-2]), start)
    depth = call.number(g.x.shape[-1])
    p = Product(call, module, g, m, n, depth, x_strides, y_strides, rows, direct, scratch)
    name = module.define(small, "0") if small is not None else ""
    pack = module.define(*pack_panel(target, g.x.dtype, g.columns, g.y)) if scratch else ""

    def body(offsets: list[Int]) -> None:
        at = [f.at(q, o, p.element) for q, o in zip(pointers, offsets)]
        corner = Corner(at[0], at[1], at[2], at[3] if g.initial is not None else "null")
        if not name:
            p.panels(corner, lambda at, first, n: p.panel(at, first, n, pack))
            return
        values = (*vars(corner).values(), p.depth, n, *p.left, *p.right, *p.rows)
        f.call("i64", name, *((t, str(q)) for t, q in zip(SMALL_ARGUMENTS, values)))

    nest(f, dims, steps, body)
    return call


def reads_in_place(g: Gemm) -> bool:
    """One or two blocks of rows: packing would cost more than it saves."""
    m = g.c.shape[-2]
    return g.y.strides[-1] == 1 and isinstance(m, int) and m <= 2 * ROWS


def reads_once(g: Gemm) -> bool:
    """Very few rows against a matrix that is read once, as it lies in memory."""
    m = g.c.shape[-2]
    if g.packed is not None or not isinstance(m, int) or m not in STRIPS:
        return False
    return g.y.strides[-1] == 1 or g.y.strides[-2] == 1 == g.x.strides[-1]


def packs(g: Gemm) -> bool:
    """Whether the right matrix is copied into the scratch, panel by panel."""
    return g.packed is None and not reads_in_place(g) and not reads_once(g)


def small_kernel(target: Target, g: Gemm) -> Function | None:
    m = g.c.shape[-2]
    if not isinstance(m, int) or not reads_once(g):
        return None
    make = strip_kernel if g.y.strides[-1] == 1 else dot_kernel
    return make(target, g.x.dtype, m, g.initial is not None)
