"""Lowered programs run launch by launch with NumPy, on memory that remembers who wrote it.

Every byte of the arena belongs to the buffer through which it was written last. A read through
another buffer, of a byte that nobody wrote, or outside of a buffer is an error of the plan, and so
is a launch whose operands share memory in a way that its order of reads and writes could show.
Knows the launches and where the plan put the buffers, nothing of how it decided.

It is a backend, by the name of `checked`; `checked-cpu` runs the launches that the CPU would.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field, replace

import numpy as np

from executor import cpu, launches, register
from executor.allocation import HOST, Memory
from executor.cpu.launches import MapReduce, Pack, PackedGemm, PanelConv, PanelGemm
from executor.executable import CallTable, output_bounds
from executor.host_calls import FUNCTION, RAISED
from executor.launches import (
    Branch,
    Call,
    Contract,
    Conv,
    Dots,
    Fail,
    Gather,
    GatherNd,
    Gemm,
    Index,
    Loop,
    Lowered,
    Map,
    Reduce,
    ScatterNd,
    When,
)
from executor.memory import Buffer, Element, View
from executor.plan.arena import ArenaLayout, aligned
from executor.plan.trip_counts import counts
from ir import Slot
from ir.ops.gather_scatter import positions
from ir.ops.linalg import transform
from ir.ops.reduce import argmax, first, order
from ir.scalar import language as k
from ir.scalar.evaluate import evaluate
from ir.types import Type, evaluate_dim

NOBODY = -1
#: what fresh memory holds: NaN, or -1
POISON = 0xFF


class PlanError(AssertionError):
    """Memory is used in a way that loses a value."""


class Stop(Exception):
    """The program fails with this error number."""


@dataclass
class Bytes:
    """`owner` says for every byte through which buffer it was written last."""

    data: np.ndarray
    owner: np.ndarray


def memory(size: int) -> Bytes:
    return Bytes(np.full(size, POISON, np.uint8), np.full(size, NOBODY, np.int64))


def reduced(rule, axes, source, d):
    """Along `axes`, in the type `d`."""
    flat = np.moveaxis(source.astype(d.numpy), axes, range(len(axes)))
    rest = flat.shape[len(axes) :]
    flat = flat.reshape(math.prod(flat.shape[: len(axes)]), *rest)
    total = np.broadcast_to(evaluate(rule.init(d), []), rest)
    combine = rule.combine(k.input_(0, d), k.input_(1, d))
    for row in flat:
        total = evaluate(combine, [total, row])
    return total


@dataclass
class Machine:
    lowered: Lowered
    layout: ArenaLayout
    sizes: dict[str, int]
    places: dict[Buffer, tuple[Bytes, int]] = field(default_factory=dict)
    numbers: dict[Buffer, int] = field(default_factory=dict)
    room: dict[Buffer, int] = field(default_factory=dict)
    panels: dict = field(default_factory=dict)
    shown: list = field(default_factory=list)
    table: int = 0

    def __post_init__(self):
        self.symbols = dict(self.sizes)

    def run(self, arrays):
        """The outputs and the inputs afterwards, or the error number of the call."""
        self.allocate(arrays)
        try:
            self.block(self.lowered.launches)
        except Stop as e:
            return int(e.args[0]), self.arrays(self.lowered.inputs)
        return self.arrays(self.lowered.outputs), self.arrays(self.lowered.inputs)

    # ------------------------------------------------------------ memory
    def allocate(self, arrays):
        for b, a in zip(self.lowered.inputs, arrays, strict=True):
            m = memory(self.bytes(b))
            m.data[:] = np.frombuffer(a.tobytes(), np.uint8)
            m.owner[:] = self.number(b)
            self.places[b] = m, 0
        program = self.lowered.program
        for b, v, n in zip(self.lowered.outputs, program.outputs, output_bounds(program)):
            self.room[b] = max(0, self.dim(n)) * v.type.dtype.size
            self.places[b] = memory(self.room[b]), 0
        arena = memory(self.layout.bytes(self.sizes))
        for b, at in self.layout.offsets.items():
            self.places[b] = arena, at
        at = self.layout.fixed
        for slot in self.layout.slots:
            self.places.update((b, (arena, at)) for b in slot.buffers)
            size = max(0, evaluate_dim(slot.size, self.sizes))
            at += aligned(size, self.layout.alignment)

    def number(self, b):
        return self.numbers.setdefault(b, len(self.numbers))

    def bytes(self, b):
        return self.room[b] if b in self.room else max(0, self.dim(b.size))

    def arrays(self, buffers):
        return [self.places[b][0].data for b in buffers]

    def dim(self, d):
        return evaluate_dim(d, self.symbols)

    def real(self, v: View):
        """The view that an element of an array is, if its address has been stored."""
        if not isinstance(v.buffer, Element):
            return v
        array, at = v.buffer.array, self.dim(v.buffer.at)
        self.read(array.addresses)
        if not 0 <= at < len(array.views):
            raise PlanError(f"{v} is no element of its array")
        one = self.real(array.views[at])
        return replace(v, buffer=one.buffer, offset=v.offset + one.offset)

    def geometry(self, v: View):
        """Shape, and offset and strides in bytes; every element lies in the buffer."""
        shape = tuple(self.dim(d) for d in v.shape)
        offset, strides = self.dim(v.offset), [self.dim(s) for s in v.strides]
        if min(shape, default=1) < 0:
            raise PlanError(f"a negative dim in {v}")
        if 0 not in shape:
            reach = [s * (n - 1) for s, n in zip(strides, shape)]
            low = offset + sum(r for r in reach if r < 0)
            high = offset + sum(r for r in reach if r > 0)
            if low < 0 or (high + 1) * v.dtype.size > self.bytes(v.buffer):
                raise PlanError(f"{v} leaves its buffer")
        size = v.dtype.size
        return shape, offset * size, tuple(s * size for s in strides)

    def cells(self, v: View, kind: str, byte: int = 0):
        v = self.real(v)
        shape, offset, strides = self.geometry(v)
        m, base = self.places[v.buffer]
        if 0 in shape:
            return np.empty(shape, np.int64 if kind == "owner" else v.dtype.numpy)
        if kind == "owner":
            wide = tuple(8 * s for s in strides)
            return np.ndarray(shape, np.int64, m.owner, 8 * (base + offset + byte), wide)
        return np.ndarray(shape, v.dtype.numpy, m.data, base + offset, strides)

    def touched(self, v: View):
        v = self.real(v)
        shape, offset, strides = self.geometry(v)
        m, base = self.places[v.buffer]
        at = np.full(shape, base + offset, np.int64)
        for axis, s in enumerate(strides):
            at += s * np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1))
        every = (at[..., None] + np.arange(v.dtype.size)).ravel()
        return id(m), np.unique(every)

    def read(self, v: View):
        v = self.real(v)
        for byte in (0, v.dtype.size - 1):
            if (self.cells(v, "owner", byte) != self.number(v.buffer)).any():
                raise PlanError(f"{v} is read, but another buffer was written there")
        return np.array(self.cells(v, "data"))

    def computed(self, v: View):
        return self.read(v).astype(v.dtype.compute.numpy)

    def write(self, v: View, value):
        v = self.real(v)
        self.cells(v, "data")[...] = value
        for byte in range(v.dtype.size):
            self.cells(v, "owner", byte)[...] = self.number(v.buffer)

    def apart(self, reads, writes, same=()):
        """No write shares memory with a read or another write; `same` may be equal to a write."""
        for n, w in enumerate(writes):
            place, own = self.touched(w)
            others = [*reads, *writes[:n], *(v for v in same if v != w)]
            for v in others:
                where, theirs = self.touched(v)
                if where == place and np.intersect1d(own, theirs).size:
                    raise PlanError(f"{v} and {w} overlap in one launch")

    # ------------------------------------------------------------ launches
    def block(self, launches):
        for x in launches:
            getattr(self, type(x).__name__.lower())(x)

    def map(self, x: Map):
        self.apart((), x.outs, x.ins)
        ins = [self.read(v) for v in x.ins]
        every = [s for s in k.nodes(list(x.roots)) if s.op in ("div", "rem")]
        for s in every if x.error else ():
            if s.dtype.kind in "iu" and (evaluate(s.args[1], ins) == 0).any():
                raise Stop(x.error)
        values = [evaluate(r, ins) for r in x.roots]
        for v, value in zip(x.outs, values, strict=True):
            self.write(v, value)

    def iota(self, x: launches.Iota):
        (n,) = (self.dim(d) for d in x.out.shape)
        self.write(x.out, (x.start + x.step * np.arange(n)).astype(x.out.dtype.numpy))

    def number64(self, x: launches.Number64):
        self.write(x.out, self.dim(x.value))

    def addresses(self, x: launches.Addresses):
        self.write(x.out, 0)

    def reduce(self, x: Reduce):
        self.apart([x.x], [x.out])
        self.write(x.out, reduced(x.rule, x.axes, self.computed(x.x), x.x.dtype.compute))

    def mapreduce(self, x: MapReduce):
        stored = [v for v, rule in zip(x.outs, x.rules) if rule is None]
        totals = [v for v, rule in zip(x.outs, x.rules) if rule is not None]
        self.apart((), stored, x.ins)
        self.apart([*x.ins, *stored], totals)
        ins = [self.read(v) for v in x.ins]
        values = [
            np.broadcast_to(evaluate(r, ins), [self.dim(d) for d in x.shape]) for r in x.roots
        ]
        for v, value, rule in zip(x.outs, values, x.rules, strict=True):
            self.write(v, value if rule is None else reduced(rule, x.axes, value, v.dtype.compute))

    def argmax(self, x: launches.ArgMax):
        self.apart([x.x], [x.out])
        self.write(x.out, argmax(self.read(x.x), x.axis))

    def first(self, x: launches.First):
        self.apart([x.x], [x.out])
        self.write(x.out, first(self.read(x.x), x.axis, self.dim(x.out.shape[x.axis]), x.largest))

    def order(self, x: launches.Order):
        self.apart([x.x], [x.out])
        self.write(x.out, order(self.read(x.x), x.axis, x.count, x.largest, x.stable))

    def fourier(self, x: launches.Fourier):
        self.apart([x.x], [x.out])
        how = {name: q for name, q in vars(x).items() if name not in ("x", "out")}
        self.write(x.out, transform(self.read(x.x), **how).astype(x.out.dtype.numpy))

    def running(self, x: launches.Running):
        self.apart([], [x.out], x.ins)
        out, ins = self.read(x.ins[-1]), [np.moveaxis(self.read(v), x.axis, 0) for v in x.ins]
        rows = np.moveaxis(out, x.axis, 0)
        for n in range(1, len(rows)):
            rows[n] = evaluate(x.root, [rows[n - 1], *(v[n] for v in ins)])
        self.write(x.out, out)

    def positions(self, x: launches.Positions):
        self.apart([x.x], x.outs)
        list(map(self.write, x.outs, positions(self.read(x.x))))

    def gather(self, x: Gather):
        self.apart([x.x, x.index], [x.out])
        source, index = self.read(x.x), self.read(x.index).astype(np.int64)
        n = source.shape[x.axis]
        if x.wrap:
            index = np.where(index < 0, index + n, index)
        if ((index < 0) | (index >= n)).any() and self.geometry(x.out)[0].count(0) == 0:
            raise Stop(x.error)
        out = np.take(source, index, x.axis, mode="clip" if n else "raise") if n else source
        if x.padding >= 0:
            shape = (*(1,) * x.axis, *index.shape, *(1,) * (source.ndim - x.axis - 1))
            out = np.where((index == x.padding).reshape(shape), 0, out)
        self.write(x.out, out)

    def gathernd(self, x: GatherNd):
        self.apart([x.x, *x.index], [x.out])
        index = tuple(self.read(v) for v in x.index)
        self.write(x.out, self.read(x.x)[(*(slice(None),) * x.axis, *index)])

    def scatternd(self, x: ScatterNd):
        self.apart([x.y, *x.index], [x.out])
        index = [self.read(v) for v in x.index]
        y, new = self.read(x.y), self.read(x.out)
        for p in np.ndindex(index[0].shape):
            lead = (slice(None),) * x.axis
            at = (*lead, *(int(i[p]) for i in index))
            new[at] = evaluate(x.root, [new[at], y[(*lead, *p)]])
        self.write(x.out, new)

    def gemm(self, x: Gemm):
        self.product(x, self.computed(x.y), x.c, [x.x, x.y])

    def product(self, x, right, out: View, reads):
        self.apart(reads, [out], [] if x.initial is None else [x.initial])
        total = np.matmul(self.computed(x.x), right)
        self.write(out, total if x.initial is None else total + self.computed(x.initial))

    def contract(self, x: Contract):
        self.apart([x.x, x.y], [x.out])
        left, right = self.computed(x.x), self.computed(x.y)
        left = left.reshape(*left.shape[:2], math.prod(left.shape[2:]))
        right = right.reshape(right.shape[0], left.shape[2], right.shape[-1])
        self.write(x.out, np.matmul(left, right))

    def conv(self, x: Conv):
        """One result after the other."""
        self.apart([x.x, x.w], [x.out])
        pixels, weights, before = self.read(x.x), self.read(x.w), [self.dim(d) for d in x.before]
        out = np.zeros(self.geometry(x.out)[0], x.out.dtype.numpy)
        for i, j, p, q in np.ndindex(*weights.shape[-2:], *out.shape[-2:]):
            y, z = (
                n * s + t * d - b
                for n, s, t, d, b in zip((p, q), x.stride, (i, j), x.dilation, before)
            )
            if 0 <= y < pixels.shape[-2] and 0 <= z < pixels.shape[-1]:
                seen = np.einsum("gbcm,grc->gbrm", pixels[..., y, z], weights[..., i, j])
                out[..., p, q] += seen
        self.write(x.out, out)

    def dots(self, x: Dots):
        self.apart([*x.xs, x.y], x.outs)
        y = self.read(x.y)
        for v, out in zip(x.xs, x.outs, strict=True):
            self.write(out, self.read(out) + (self.read(v) * y).sum())

    # ------------------------------------------------------------ launches of the CPU
    def pack(self, x: Pack):
        """The panels stay what they are here: where the matrix would lie, behind its own marks."""
        self.apart([x.y], [x.out])
        self.panels[self.panel(x.out)] = self.computed(x.y)
        whole = View(x.out.buffer, x.out.dtype, 0, (self.elements(x.out),), (1,))
        self.write(whole, 0)

    def panel(self, v: View):
        m, base = self.places[v.buffer]
        return id(m), base, self.dim(v.offset)

    def elements(self, v: View):
        return self.bytes(v.buffer) // v.dtype.size

    def packedgemm(self, x: PackedGemm):
        v = x.panels
        self.read(View(v.buffer, v.dtype, 0, (self.elements(v),), (1,)))
        right = np.broadcast_to(self.panels[self.panel(v)], self.geometry(v)[0])
        self.product(x, right, x.out, [x.x, v])

    def panelgemm(self, x: PanelGemm):
        self.scratch([x.x, x.y, x.out, *([] if x.initial is None else [x.initial])], [x.scratch])
        self.product(x, self.computed(x.y), x.out, [x.x, x.y])

    def panelconv(self, x: PanelConv):
        """The weights of a part and a panel lie in scratch memory."""
        self.scratch([x.x, x.w, x.out], [x.left, x.panel])
        self.conv(x)

    def scratch(self, others, room):
        """What lies in scratch memory is lost."""
        self.apart(others, room)
        for v in room:
            self.write(v, 0)

    def check(self, x: launches.Check):
        if self.dim(x.value) < 0:
            raise Stop(x.error)

    def fail(self, x: Fail):
        self.shown[:] = [
            np.ascontiguousarray(self.read(v)).reshape(self.geometry(v)[0]) for v in x.shown
        ]
        if not self.read(x.unless):
            raise Stop(x.error)

    def call(self, x: Call):
        """Python gets memory of its own, whose addresses are in the table."""
        self.apart(x.ins, x.outs)
        ins = [np.ascontiguousarray(self.read(v)).reshape(self.geometry(v)[0]) for v in x.ins]
        outs = [np.zeros(self.geometry(v)[0], v.dtype.numpy) for v in x.outs]
        at_ = self.table + 8 * CallTable.of(self.lowered.program).calls
        entries = [*(a.ctypes.data for a in (*ins, *outs)), *map(self.dim, x.sizes)]
        (ctypes.c_int64 * len(entries)).from_address(at_ + 8)[:] = entries
        if FUNCTION(ctypes.c_int64.from_address(at_).value)(x.number):
            raise Stop(RAISED)
        for v, a in zip(x.outs, outs):
            self.write(v, a)

    def index(self, x: Index):
        n = self.dim(x.n)
        at = int(self.read(x.source)) if isinstance(x.source, View) else self.dim(x.source)
        at += n if x.wrap and at < 0 else 0
        if x.error and not 0 <= at < n:
            raise Stop(x.error)
        self.symbols[x.symbol] = at

    def when(self, x: When):
        value = self.dim(x.value)
        if value == 0 if x.relation == "eq" else value >= 0:
            self.block(x.body)

    def branch(self, x: Branch):
        self.block(x.then if self.read(x.test) else x.orelse)

    def loop(self, x: Loop):
        trip, ran = max(0, self.dim(x.trip)), 0
        while ran < trip and (x.go is None or self.read(x.go)):
            self.symbols[x.index], self.symbols[x.parity] = ran, ran & 1
            self.block(x.body)
            ran += 1
        if x.count:
            self.symbols[x.count] = ran
        self.symbols[x.after] = ran & 1


def shown_words(x):
    """A value of a message as it is in the table."""
    if not x.ndim:
        return x.tobytes().ljust(8, b"\0")
    steps = [n // x.itemsize for n in x.strides]
    return np.array([x.ctypes.data, *x.shape, *steps], np.int64).tobytes()


# ---------------------------------------------------------------- the machine as a backend
@dataclass
class Run:
    """A program that the machine runs; called with the address of the table of a call."""

    lowered: Lowered
    layout: ArenaLayout
    shown: list = field(default_factory=list)

    def run(self, table):
        program, at_ = self.lowered.program, CallTable.of(self.lowered.program)
        entries = (ctypes.c_int64 * at_.asks).from_address(table)
        machine = Machine(self.lowered, self.layout, dict(zip(program.sizes, entries)))
        machine.table, machine.shown = table, self.shown
        ins, outs = entries[at_.inputs : at_.outputs], entries[at_.outputs : at_.arena]
        memory = [at(a, machine.bytes(b)) for a, b in zip(ins, self.lowered.inputs)]
        results, after = machine.run([m.copy() for m in memory])
        for m, new in zip(memory, after):
            if not np.array_equal(m, new):
                m[:] = new
        if isinstance(results, int):
            words = b"".join(map(shown_words, machine.shown))
            at(table + 8 * at_.shown, len(words))[:] = np.frombuffer(words, np.uint8)
            return results
        for v, a, new in zip(program.outputs, outs, results):
            if not isinstance(v, Slot):
                at(a, new.size)[:] = new
        for n, name in enumerate(counts(program.ops), at_.counts):
            entries[n] = machine.symbols[name]
        return 0


def at(address, size):
    """The bytes at an address."""
    if size == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


@dataclass(frozen=True)
class Checked:
    """`like`: the backend whose launches are run; None: they are run as they were lowered."""

    name: str
    like: cpu.Cpu | None = None
    memory: Memory = HOST

    @property
    def families(self):
        kinds = [q for q in vars(launches).values() if isinstance(q, type)]
        own = [] if self.like is None else self.like.families
        return [*own, *(q for q in kinds if hasattr(Machine, q.__name__.lower()))]

    def joins_images(self, t: Type):
        return self.like is not None and self.like.joins_images(t)

    def legalize(self, lowered: Lowered):
        return lowered if self.like is None else self.like.legalize(lowered)

    def build(self, lowered: Lowered, layout: ArenaLayout):
        return Run(lowered, layout)


CHECKED, CHECKED_CPU = Checked("checked"), Checked("checked-cpu", cpu.machine())
register(CHECKED)
register(CHECKED_CPU)
