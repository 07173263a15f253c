"""Im2col packing of a panel of a convolution: one row for each tap of each channel.

The columns of a panel are consecutive results. Results of one line of one image form a *run*: what
they read of a channel are pixels at equal distances. A vector takes the pixels of every run that it
may meet with a mask that says which lanes belong to the run and have a pixel, and joins them; the
masks are made once for a tap, for all channels. Where a vector would meet too many runs, or
cannot be read with a mask, elements are copied one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from executor.cpu.kernel_builder import OperandAccess, load, prefetch, store
from executor.cpu.launches import PanelConv
from executor.cpu.llvm_text import Int, LlvmFunction, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from ir.types import I64, DType

NAMES = (
    *("first", "count", "channels", "line", "lines", "taps", "height", "width", "rows", "columns"),
    *("x_image", "x_channel", "x_row", "x_column", "stride_y", "stride_x"),
    *("before_y", "before_x", "apart_y", "apart_x"),
)
ARGUMENTS = ("ptr", "ptr", *["i64"] * len(NAMES))
#: a row that no pixel has, whatever is added to it
NOWHERE = -(1 << 30)
#: runs that one vector may meet
RUNS = 4


@dataclass(frozen=True)
class PanelShape:
    """`runs[j]`: the runs that vector j of a panel may meet; none: one element at a time."""

    dtype: DType
    columns: int
    stride: int
    runs: tuple[range, ...]


def form(target: Target, c: PanelConv) -> PanelShape:
    width, lanes, n = c.columns, target.lanes(c.x.dtype), c.out.shape[-1]
    scalar = PanelShape(c.x.dtype, width, 0, ())
    if not target.masks or c.x.strides[-1] != 1 or c.stride[1] > 2 or not isinstance(n, int):
        return scalar
    if n % width == 0:
        return PanelShape(c.x.dtype, width, c.stride[1], (range(1),) * (width // lanes))
    runs = [range(j // n, -(-(j + lanes - 1) // n) + 1) for j in range(0, width, lanes)]
    if max(map(len, runs)) > RUNS:
        return scalar
    return PanelShape(c.x.dtype, width, c.stride[1], tuple(runs))


@dataclass
class _Patches:
    """(x, panel, and what `NAMES` says): `first` is the first column and `count` how many there
    are; `line` and `lines` the lines of taps; `height` and `width` those of the result, `rows` and
    `columns` those of an image. `ys`, `xs`, `run` hold for every column where it reads at tap 0,
    and its run; `base` for every run the place of column 0, if it belonged to it."""

    f: LlvmFunction
    target: Target
    form: PanelShape

    def __post_init__(self) -> None:
        f, n = self.f, self.form.columns
        self.x, self.panel = f.argument("ptr"), f.argument("ptr")
        self.n = {name: f.argument("i64") for name in NAMES}
        self.number = f"i{self.form.dtype.bits}"
        self.element = element(self.form.dtype)
        self.ys, self.xs, self.run = (f.alloca(f"[{n} x {self.number}]", 64) for _ in range(3))
        self.base = f.alloca(f"[{n} x i64]", 64)

    # ------------------------------------------------------------ columns
    def columns(self) -> None:
        """Fill `ys`, `xs`, `run` and `base`."""
        f, n = self.f, self.n
        image = f.mul(n["height"], n["width"])
        rest = f.op(f"urem i64 {n['first']}, {image}")
        starts = (
            f.op(f"udiv i64 {n['first']}, {image}"),
            f.op(f"udiv i64 {rest}, {n['width']}"),
            f.op(f"urem i64 {rest}, {n['width']}"),
            "0",
        )
        slots = [f.alloca("i64") for _ in starts]
        for slot, value in zip(slots, starts):
            f.store("i64", value, slot, 8)
        wide = VectorEmitter(f, self.target, self.target.lanes(I64))
        for q in range(0, self.form.columns, wide.width):
            store(wide, OperandAccess(self.base, I64, 1), q, wide.const(0, I64))
        with f.loop(0, self.form.columns) as k:
            m, y, x, run = (f.load("i64", slot, 8) for slot in slots)
            self.column(k, m, y, x, run)
            right = f.op(f"add i64 {x}, 1")
            ends = f.op(f"icmp eq i64 {right}, {n['width']}")
            below = f.op(f"add i64 {y}, {f.op(f'zext i1 {ends} to i64')}")
            last = f.op(f"icmp eq i64 {below}, {n['height']}")
            f.store("i64", f.op(f"add i64 {m}, {f.op(f'zext i1 {last} to i64')}"), slots[0], 8)
            f.store("i64", f.op(f"select i1 {last}, i64 0, i64 {below}"), slots[1], 8)
            f.store("i64", f.op(f"select i1 {ends}, i64 0, i64 {right}"), slots[2], 8)
            f.store("i64", f.op(f"add i64 {run}, {f.op(f'zext i1 {ends} to i64')}"), slots[3], 8)

    def column(self, k: Int, m: str, y: str, x: str, run: str) -> None:
        f, n = self.f, self.n
        top = f.sub(f.mul(y, n["stride_y"]), n["before_y"])
        left = f.sub(f.mul(x, n["stride_x"]), n["before_x"])
        at = f.add(f.mul(m, n["x_image"]), f.mul(top, n["x_row"]))
        at = f.add(at, f.mul(left, n["x_column"]))
        apart = f.mul(n["stride_x"], n["x_column"])
        f.store("i64", str(f.sub(at, f.mul(k, apart))), f.at(self.base, run, "i64"), 8)
        wanted = f.op(f"icmp slt i64 {k}, {n['count']}")
        top = f.op(f"select i1 {wanted}, i64 {top}, i64 {NOWHERE}")
        for array, value in ((self.ys, top), (self.xs, left), (self.run, run)):
            short = str(value)
            if self.number == "i32":
                short = f.op(f"trunc i64 {value} to i32")
            size = self.form.dtype.size
            f.store(self.number, short, f.at(array, k, self.number), size)

    # ------------------------------------------------------------ rows
    def next_panel(self) -> None:
        """Ask for what the last line of taps reads for the next panel: of every channel, which are
        far from each other."""
        f, n, count = self.f, self.n, self.form.columns * self.form.stride
        last = f.sub(f.add(n["line"], n["lines"]), 1)
        below = f.mul(f.mul(last, n["apart_y"]), n["x_row"])
        start = f.add(f.load("i64", self.base, 8), f.add(below, count))
        with f.loop(0, n["channels"]) as c:
            prefetch(f, self.x, self.form.dtype, f.add(start, f.mul(c, n["x_channel"])), count)

    def rows(self) -> None:
        f, n = self.f, self.n
        if self.form.runs:
            self.next_panel()
        with f.loop(0, n["lines"]) as i, f.loop(0, n["taps"]) as j:
            below = f.mul(f.add(n["line"], i), n["apart_y"])
            right = f.mul(j, n["apart_x"])
            offset = f.add(f.mul(below, n["x_row"]), f.mul(right, n["x_column"]))
            row = f.add(f.mul(i, n["taps"]), j)
            step = f.mul(n["lines"], n["taps"])
            if self.form.runs:
                self.vectors(below, right, offset, row, step)
            else:
                self.elements(below, right, offset, row, step)

    def to(self, row: Int, step: Int, channel: Int) -> str:
        f = self.f
        line = f.mul(f.add(row, f.mul(channel, step)), self.form.columns)
        return f.at(self.panel, line, self.element)

    def vectors(self, below: Int, right: Int, offset: Int, row: Int, step: Int) -> None:
        f, v = self.f, VectorEmitter(self.f, self.target, self.target.lanes(self.form.dtype))
        bounds = ((self.ys, below, "rows"), (self.xs, right, "columns"))
        sides = [
            (array, self.splat(v.width, more), self.splat(v.width, self.n[end]))
            for array, more, end in bounds
        ]
        masks = [self.masks(v, j, sides) for j in range(len(self.form.runs))]
        every = sorted({run for runs in self.form.runs for run in runs})
        bases = {r: f.load("i64", f.at(self.base, r, "i64"), 8) for r in every}
        places = {r: f.at(self.x, f.add(b, offset), self.element) for r, b in bases.items()}
        with f.loop(0, self.n["channels"]) as c:
            moved = f.mul(c, self.n["x_channel"])
            out = OperandAccess(self.to(row, step, c), self.form.dtype, 1)
            for j, runs in enumerate(self.form.runs):
                total = ""
                for run, mask in zip(runs, masks[j]):
                    at = f.at(
                        places[run], f.add(moved, j * v.width * self.form.stride), self.element
                    )
                    total = self.joined(v, total, self.piece(v, at, mask))
                store(v, out, j * v.width, total)

    def masks(self, v: VectorEmitter, j: int, sides: Sequence[tuple[str, str, str]]) -> list[str]:
        """For each of its runs all ones in the lanes of vector j that belong to the run and have a
        pixel. `sides`: an array, what is added to it, and what the sum is less than."""
        f, w, runs = self.f, v.width, self.form.runs[j]
        t = f"<{w} x {self.number}>"
        tests = []
        for array, more, end in sides:
            place = f.op(f"add {t} {f.load(t, f.at(array, j * w, self.number), 4)}, {more}")
            tests.append(f.op(f"icmp ult {t} {place}, {end}"))
        found = [f.op(f"and <{w} x i1> {', '.join(tests)}")]
        if len(runs) > 1:
            of = f.load(t, f.at(self.run, j * w, self.number), 4)
            own = [f.op(f"icmp eq {t} {of}, splat ({self.number} {run})") for run in runs]
            found = [f.op(f"and <{w} x i1> {found[0]}, {q}") for q in own]
        return [f.op(f"sext <{w} x i1> {q} to {t}") for q in found]

    def splat(self, width: int, value: Int) -> str:
        f, t, short = self.f, f"<{width} x {self.number}>", str(value)
        if self.number == "i32":
            short = f.op(f"trunc i64 {value} to i32")
        one = f.op(f"insertelement {t} poison, {self.number} {short}, i64 0")
        return f.op(f"shufflevector {t} {one}, {t} poison, <{width} x i32> zeroinitializer")

    def piece(self, v: VectorEmitter, at: str, mask: str) -> str:
        """The elements of the lanes in the mask, which lie `stride` apart, and zeros."""
        f, w, s = self.f, v.width, self.form.stride
        t = f"<{w} x {self.number}>"
        if s > 1:
            picks = ", ".join(f"i32 {q // s if q % s == 0 else w}" for q in range(w * s))
            wide = f"<{w * s} x i32> <{picks}>"
            mask = f.op(f"shufflevector {t} {mask}, {t} zeroinitializer, {wide}")
        all_ = VectorEmitter(f, self.target, w * s)
        bits = f.op(f"icmp slt <{w * s} x {self.number}> {mask}, zeroinitializer")
        x = load(all_, OperandAccess(at, self.form.dtype, 1), 0, bits)
        if s == 1:
            return x
        whole, picks = all_.type(self.form.dtype), ", ".join(f"i32 {q * s}" for q in range(w))
        return f.op(f"shufflevector {whole} {x}, {whole} poison, <{w} x i32> <{picks}>")

    def joined(self, v: VectorEmitter, x: str, y: str) -> str:
        """Lanes of which at most one is not zero, as they are."""
        if not x:
            return y
        f, t, i = self.f, v.type(self.form.dtype), f"<{v.width} x {self.number}>"
        both = [f.op(f"bitcast {t} {q} to {i}") for q in (x, y)]
        return f.op(f"bitcast {i} {f.op(f'or {i} {both[0]}, {both[1]}')} to {t}")

    def elements(self, below: Int, right: Int, offset: Int, row: Int, step: Int) -> None:
        f, n, d = self.f, self.n, self.form.dtype
        one = VectorEmitter(f, self.target, 1)
        with f.loop(0, self.form.columns) as k:
            tests = []
            for array, more, end in ((self.ys, below, "rows"), (self.xs, right, "columns")):
                place = f.op(f"add i64 {self.widened(array, k)}, {more}")
                tests.append(f.op(f"icmp ult i64 {place}, {n[end]}"))
            base = f.load("i64", f.at(self.base, self.widened(self.run, k), "i64"), 8)
            at = f.add(f.add(base, f.mul(k, f.mul(n["stride_x"], n["x_column"]))), offset)
            source = f.at(self.x, at, self.element)

            def fill(found: bool) -> None:
                with f.loop(0, n["channels"]) as c:
                    x = one.const(0, d)
                    if found:
                        x = load(one, OperandAccess(source, d, 1), f.mul(c, n["x_channel"]))
                    store(one, OperandAccess(self.to(row, step, c), d, 1), k, x)

            both = f.op(f"and i1 {tests[0]}, {tests[1]}")
            f.either(both, lambda: fill(True), lambda: fill(False))

    def widened(self, array: str, k: Int) -> str:
        f = self.f
        x = f.load(self.number, f.at(array, k, self.number), self.form.dtype.size)
        return x if self.number == "i64" else f.op(f"sext i32 {x} to i64")


def patches(target: Target, form_: PanelShape) -> LlvmFunction:
    """A function with `ARGUMENTS` that packs one panel."""
    p = _Patches(LlvmFunction("?", "i64"), target, form_)
    p.columns()
    p.rows()
    return p.f
