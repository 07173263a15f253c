"""Fourier transforms of many sequences side by side: a lane of the vectors is one of them.

A block of sequences is brought into `scratch`, one vector for each number, transformed in stages
from one half of the scratch to the other (Stockham: the results are in order), and written. Real
sequences are transformed in pairs, as the two parts of one complex one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, load, nest, store
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.pack import transposed
from executor.cpu.launches import LaneFourier
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.memory import View, collapse
from ir.ops.linalg import factors, half
from ir.types import Dim, DType

#: roots for transforms of this length stay in registers
MOST_HELD = 5
#: the parts of a complex number
Pair = tuple[str, str]


def span(n: int) -> int:
    """Vectors of the real or of the imaginary parts: two halves of frequencies may be longer."""
    return max(n, 2 * half(n))


def size_of_scratch(n: int, width: int) -> int:
    return 4 * span(n) * width


@dataclass
class _Arithmetic:
    """On vectors of floats."""

    v: VectorEmitter
    dtype: DType

    def add(self, a: str, b: str) -> str:
        return self.v.binary("fadd", self.dtype, a, b)

    def sub(self, a: str, b: str) -> str:
        return self.v.binary("fsub", self.dtype, a, b)

    def mul(self, a: str, b: str) -> str:
        return self.v.binary("fmul", self.dtype, a, b)

    def neg(self, a: str) -> str:
        return self.v.f.op(f"fneg {self.v.type(self.dtype)} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        if self.v.target.fma:
            return self.v.intrinsic("fma", self.dtype, a, b, c)
        return self.add(self.mul(a, b), c)

    def number(self, x: float) -> str:
        return self.v.const(float(self.dtype.numpy.type(x)), self.dtype)

    def plus(self, a: Pair, b: Pair) -> Pair:
        return self.add(a[0], b[0]), self.add(a[1], b[1])

    def minus(self, a: Pair, b: Pair) -> Pair:
        return self.sub(a[0], b[0]), self.sub(a[1], b[1])

    def turned(self, a: Pair, w: Pair) -> Pair:
        """The product of two complex numbers."""
        re = self.fma(a[0], w[0], self.neg(self.mul(a[1], w[1])))
        return re, self.fma(a[0], w[1], self.mul(a[1], w[0]))

    def quarter(self, a: Pair, sign: int) -> Pair:
        """`a` times `sign` i."""
        return (self.neg(a[1]), a[0]) if sign > 0 else (a[1], self.neg(a[0]))

    # ------------------------------------------------------------ short transforms
    def short(self, a: list[Pair], sign: int) -> list[Pair]:
        """The transform of two, four, eight or an odd number of complex numbers."""
        if len(a) == 2:
            return [self.plus(*a), self.minus(*a)]
        if len(a) % 2:
            return self.odd(a, sign)
        even, odd = self.short(a[::2], sign), self.short(a[1::2], sign)
        for k in range(1, len(odd)):
            odd[k] = self.eighths(odd[k], 8 // len(a) * k, sign)
        sums = [self.plus(p, q) for p, q in zip(even, odd)]
        return [*sums, *(self.minus(p, q) for p, q in zip(even, odd))]

    def eighths(self, a: Pair, turns: int, sign: int) -> Pair:
        """`a` turned by one, two or three eighths of a circle."""
        if turns == 2:
            return self.quarter(a, sign)
        half_, b = self.number(0.5**0.5), self.quarter(a, sign)
        x, y = (self.plus if turns == 1 else self.minus)(b, a)
        return self.mul(x, half_), self.mul(y, half_)

    def odd(self, a: list[Pair], sign: int) -> list[Pair]:
        """Numbers that are opposite to each other have the same cosine."""
        n, rest = len(a), range(1, len(a) // 2 + 1)
        sums = {k: self.plus(a[k], a[n - k]) for k in rest}
        differences = {k: self.minus(a[k], a[n - k]) for k in rest}
        first, out = a[0], [a[0]] * n
        for k in rest:
            first = self.plus(first, sums[k])
        out[0] = first
        for j in rest:
            even, odd = a[0], ("", "")
            for k in rest:
                c, s = (self.number(g(2 * pi * (j * k % n) / n)) for g in (cos, sin))
                even = self.fma(sums[k][0], c, even[0]), self.fma(sums[k][1], c, even[1])
                d = differences[k]
                parts = (self.fma(x, s, o) if o else self.mul(x, s) for x, o in zip(d, odd))
                odd = tuple(parts)  # type: ignore[assignment]
            odd = self.quarter(odd, sign)
            out[j], out[n - j] = self.plus(even, odd), self.minus(even, odd)
        return out


@dataclass
class _Transform:
    """`planes`: where a half of the scratch has the real and the imaginary vectors."""

    call: KernelBuilder
    x: LaneFourier
    width: int

    def __post_init__(self) -> None:
        self.f, self.n, self.dtype = self.call.f, self.x.n, self.x.x.dtype
        self.kind = element(self.dtype)
        self.v = VectorEmitter(self.f, self.call.target, self.width)
        self.one = VectorEmitter(self.f, self.call.target, 1)
        self.a = _Arithmetic(self.v, self.dtype)
        self.sign = 1 if self.x.inverse else -1

    # ------------------------------------------------------------ scratch
    def place(self, base: str, part: Int, index: Int) -> OperandAccess:
        at = self.f.add(index, self.f.mul(part, span(self.n)))
        at = self.f.mul(at, self.width)
        return OperandAccess(self.f.at(base, at, self.kind), self.dtype, 1)

    def read(self, base: str, index: Int) -> Pair:
        re, im = (load(self.v, self.place(base, part, index), 0) for part in (0, 1))
        return re, im

    def write(self, base: str, index: Int, value: Pair) -> None:
        for part in (0, 1):
            store(self.v, self.place(base, part, index), 0, value[part])

    # ------------------------------------------------------------ stages
    def stages(self, source: str, to: str) -> str:
        """Transform what lies at `source`; returns where the result is."""
        turns = 2 * np.pi * np.arange(self.n) / self.n
        table = np.stack((np.cos(turns), self.sign * np.sin(turns)), -1).astype(self.dtype.numpy)
        roots, length, apart = self.f.table(table.ravel().tolist(), self.dtype), self.n, 1
        for r in factors(self.n):
            length //= r
            factor = self.x.factor if apart == 1 else 1.0
            with self.f.loop(0, length) as p:
                self.butterflies(source, to, roots, r, length, apart, p, factor)
            source, to, apart = to, source, apart * r
        return source

    def butterflies(
        self,
        source: str,
        to: str,
        roots: str,
        r: int,
        length: int,
        apart: int,
        p: Int,
        factor: float,
    ) -> None:
        """Those that are turned by the same roots."""
        f = self.f
        first, to_first = f.mul(p, apart), f.mul(p, apart * r)

        def turn(k: int) -> Pair:
            return self.root(roots, f.mul(p, k * apart))

        early = r <= MOST_HELD and length > 1
        held = {k: turn(k) for k in range(1, r)} if early else {}
        with f.loop(0, apart) as q:
            at, to_at = f.add(first, q), f.add(to_first, q)
            given = [self.read(source, f.add(at, apart * length * k)) for k in range(r)]
            if factor != 1.0:
                by = self.a.number(factor)
                given = [(self.a.mul(x, by), self.a.mul(y, by)) for x, y in given]
            out = self.a.short(given, self.sign)
            for k, value in enumerate(out):
                if k and length > 1:
                    value = self.a.turned(value, held[k] if held else turn(k))
                self.write(to, f.add(to_at, apart * k), value)

    def root(self, roots: str, at: Int) -> Pair:
        place = OperandAccess(self.f.at(roots, self.f.mul(at, 2), self.kind), self.dtype, 0)
        other = OperandAccess(self.f.at(place.pointer, 1, self.kind), self.dtype, 0)
        return load(self.v, place, 0), load(self.v, other, 0)

    # ------------------------------------------------------------ real sequences
    def parted(self, source: str, to: str) -> None:
        """The frequencies of two real sequences from those of the complex one: the first ones at
        the beginning of the planes, the second ones behind them."""
        f, a, m = self.f, self.a, half(self.n)
        with f.loop(0, m) as k:
            other = f.op(f"srem i64 {f.sub(self.n, k)}, {self.n}")
            z, w = self.read(source, k), self.read(source, other)
            one = a.add(z[0], w[0]), a.sub(z[1], w[1])
            two = a.add(z[1], w[1]), a.sub(w[0], z[0])
            factor = self.scaled(k, 0.5)
            self.write(to, k, (a.mul(one[0], factor), a.mul(one[1], factor)))
            self.write(to, f.add(k, m), (a.mul(two[0], factor), a.mul(two[1], factor)))

    def scaled(self, k: Int, by: float) -> str:
        """`by`, or twice as much for a frequency that stands for its conjugate as well."""
        f, kind = self.f, self.v.type(self.dtype)
        if not self.x.doubled:
            return self.a.number(by)
        single = f.op(f"icmp eq i64 {k}, 0")
        if self.n % 2 == 0:
            middle = f.op(f"icmp eq i64 {k}, {self.n // 2}")
            single = f.op(f"or i1 {single}, {middle}")
        return f.op(
            f"select i1 {single}, {kind} {self.a.number(by)}, {kind} {self.a.number(2 * by)}"
        )

    def joined(self, source: str, to: str) -> None:
        """The complex sequence whose transform has those of two as its parts."""
        f, a, m = self.f, self.a, half(self.n)
        last = (self.n + 1) // 2
        ends = [0, self.n // 2] if self.n % 2 == 0 else [0]
        for end in ends:
            one, two = self.read(source, end), self.read(source, m + end)
            self.write(to, end, (one[0], two[0]))
        factor = self.a.number(1.0 if self.x.doubled else 0.5)
        with f.loop(1, last) as k:
            one, two = self.read(source, k), self.read(source, f.add(k, m))
            low = a.sub(one[0], two[1]), a.add(one[1], two[0])
            high = a.add(one[0], two[1]), a.sub(two[0], one[1])
            self.write(to, k, (a.mul(low[0], factor), a.mul(low[1], factor)))
            self.write(to, f.sub(self.n, k), (a.mul(high[0], factor), a.mul(high[1], factor)))


@dataclass
class _FourierOperand:
    """An operand: number c of sequence j lies at j times `row` and c times `step`; of pairs, part
    p is `apart` from the other one. All of them are `columns`: numbers, or parts in turns."""

    t: _Transform
    pointer: str
    row: Int
    step: Int
    apart: Int
    count: int
    pairs: bool

    @property
    def columns(self) -> int:
        return self.count * (1 + self.pairs)

    @property
    def dense(self) -> bool:
        """Whether the columns of a sequence lie side by side, and fill a vector."""
        steps = (2, 1) if self.pairs else (1, self.apart)
        return (self.step, self.apart) == steps and self.columns >= self.t.width

    def split(self, c: Int, part: int) -> tuple[Int, Int]:
        """The number and the part that column c is; `part` where there are no pairs."""
        if not self.pairs:
            return c, part
        if isinstance(c, int):
            return c // 2, c % 2
        return self.t.f.op(f"lshr i64 {c}, 1"), self.t.f.op(f"and i64 {c}, 1")

    def outside(self, start: str, c: Int) -> str:
        """Return the address of column c of the sequence at `start`."""
        f, (number, part) = self.t.f, self.split(c, 0)
        at = f.add(f.mul(number, self.step), f.mul(part, self.apart) if self.pairs else 0)
        return f.at(start, at, self.t.kind)

    def inside(self, base: str, shift: int, c: Int, part: int) -> OperandAccess:
        number, part_ = self.split(c, part)
        return self.t.place(base, part_, self.t.f.add(number, shift))

    def move(
        self, rows: list[Int], adjacent: bool, base: str, shift: int, part: int, inwards: bool
    ) -> None:
        """The sequences `rows`, a lane each, to or from the scratch at `base`: numbers from `shift`
        on; numbers without pairs are `part` of those there. adjacent: the rows follow on each
        other."""
        t, f, w, n = self.t, self.t.f, self.t.width, self.columns
        starts = [f.at(self.pointer, f.mul(r, self.row), t.kind) for r in rows]

        def carry(v: VectorEmitter, outside: OperandAccess, inside: OperandAccess) -> None:
            given, taken = (outside, inside) if inwards else (inside, outside)
            store(v, taken, 0, load(v, given, 0))

        def square(c: Int) -> None:
            outside = [OperandAccess(f.at(q, c, t.kind), t.dtype, 1) for q in starts]
            inside = [self.inside(base, shift, f.add(c, q), part) for q in range(w)]
            given, taken = (outside, inside) if inwards else (inside, outside)
            block = transposed(t.v, t.dtype, [load(t.v, q, 0) for q in given])
            for q, x in zip(taken, block):
                store(t.v, q, 0, x)

        if self.dense:
            with f.loop(0, n // w * w, w) as c:
                square(c)
            if n % w:
                square(n - w)
            return
        with f.loop(0, n) as c:
            inside = self.inside(base, shift, c, part)
            if adjacent:
                carry(t.v, OperandAccess(self.outside(starts[0], c), t.dtype, self.row), inside)
                return
            for lane, start in enumerate(starts):
                one = OperandAccess(f.at(inside.pointer, lane, t.kind), t.dtype, 1)
                carry(t.one, OperandAccess(self.outside(start, c), t.dtype, 1), one)


def lanes_and_dims(x: View, out: View, axis: int, outer: int) -> tuple[list[Dim], list[list[Dim]]]:
    """The axes besides that of the transform, those whose sequences are lanes last."""
    axes = [a for a in range(outer) if a != axis]
    rows = [[v.strides[a] for a in axes] for v in (x, out)]
    dims, strides = collapse([x.shape[a] for a in axes], rows)
    if not dims:
        return [1], [[0], [0]]
    near = [k for k, s in enumerate(strides[0]) if s in (1, 2) and dims[k] != 1]
    order = [k for k in range(len(dims)) if k not in near[:1]] + near[:1]
    return [dims[k] for k in order], [[row[k] for k in order] for row in strides]


def side_of(x: LaneFourier, v: View, real: str) -> tuple[int, bool]:
    """Return the number of elements of a sequence there, and whether they are pairs: not where the
    transform is of the kind `real`."""
    count = v.shape[x.axis]
    assert isinstance(count, int)
    return count, x.kind != real


@kernel_for(LaneFourier)
def fourier_kernel(target: Target, module: LlvmModule, x: LaneFourier) -> KernelBuilder:
    call = KernelBuilder(target)
    f, n, real = call.f, x.n, x.kind != "complex"
    source, out, scratch = (call.pointer(v) for v in (x.x, x.out, x.scratch))
    outer = x.x.ndim - (x.kind != "analysis")
    dims, strides = lanes_and_dims(x.x, x.out, x.axis, outer)
    numbers = [call.number(d) for d in dims]
    steps = [[call.number(s) for s in row] for row in strides]
    t = _Transform(call, x, x.width)
    step_in, step_out = (call.number(v.strides[x.axis]) for v in (x.x, x.out))
    apart_in = call.number(x.x.strides[-1]) if x.kind != "analysis" else 0
    apart_out = call.number(x.out.strides[-1]) if x.kind != "synthesis" else 0
    block, lanes = x.width * (1 + real), dims[-1]
    fits = isinstance(lanes, int) and lanes >= block
    count, last = numbers[-1], f.sub(numbers[-1], block if fits else 1)
    other = f.at(scratch, size_of_scratch(n, x.width) // 2, t.kind)

    def body(offsets: list[Int]) -> None:
        pointers = [f.at(p, o, t.kind) for p, o in zip((source, out), offsets)]
        given = _FourierOperand(
            t, pointers[0], steps[0][-1], step_in, apart_in, *side_of(x, x.x, "analysis")
        )
        taken = _FourierOperand(
            t, pointers[1], steps[1][-1], step_out, apart_out, *side_of(x, x.out, "synthesis")
        )
        with f.loop(0, count, block) as i:
            at = limited(f, i, last) if fits else i
            rows = [f.add(at, q) if fits else limited(f, f.add(at, q), last) for q in range(block)]
            transform(t, given, taken, rows, fits, scratch, other)

    nest(f, numbers[:-1], [row[:-1] for row in steps], body)
    return call


def transform(
    t: _Transform,
    given: _FourierOperand,
    taken: _FourierOperand,
    rows: list[Int],
    fits: bool,
    one: str,
    two: str,
) -> None:
    """Emit the transform of one block, in the halves `one` and `two` of the scratch."""
    w, m, kind = t.width, half(t.n), t.x.kind
    parts = [rows[:w], rows[w:]] if kind != "complex" else [rows]
    for part, some in enumerate(parts):
        given.move(some, fits, one, part * m if kind == "synthesis" else 0, part, True)
    if kind == "synthesis":
        t.joined(one, two)
        one, two = two, one
    found = t.stages(one, two)
    if kind == "analysis":
        free = two if found == one else one
        t.parted(found, free)
        found = free
    for part, some in enumerate(parts):
        taken.move(some, fits, found, part * m if kind == "analysis" else 0, part, False)


def limited(f: LlvmFunction, i: Int, most: Int) -> Int:
    if isinstance(i, int) and isinstance(most, int):
        return min(i, most)
    return f.intrinsic("i64", "llvm.smin.i64", ("i64", str(i)), ("i64", str(most)))
