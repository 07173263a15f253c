"""Fused row kernels (softmax, norms): reductions of rows and elementwise launches between them.

A block has a row at a time, each thread some of its elements in registers; what the launches hand
on to each other within a row does not touch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from executor.gpu.kernel_builder import IntText, Kernel, add, injective, kernel_for
from executor.gpu.kernels.launch_fusion import Own
from executor.gpu.kernels.reduce import combined, over_block
from executor.gpu.preamble import THREADS
from executor.gpu.scalars import memory_type, register_type
from executor.launches import BackendLaunch, Launch, Map, Reduce, results
from executor.memory import Buffer, Element, View, collapse
from ir.types import Dim, product

#: elements of a thread of a whole block
MOST = 16

#: where a value of a row lies: memory, strides over the rows and within one; empty where all are 0
RowPlace: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Rows(BackendLaunch):
    """`parts` for rows of the shape `row`, one for each place of `lead`; all that is needed of them
    is `out`. `ins` is what they read from memory."""

    out: View
    ins: tuple[View, ...]
    parts: tuple[Map | Reduce, ...]
    lead: tuple[Dim, ...]
    row: tuple[Dim, ...]

    def place(self, v: View) -> RowPlace:
        """Return a key of the place of a value, of a row or of each of its elements."""
        return place(v, len(self.lead))


def place(v: View, lead: int) -> RowPlace:
    strides = tuple(0 if d == 1 else s for d, s in zip(v.shape, v.strides))
    parts = (s if any(q != 0 for q in s) else () for s in (strides[:lead], strides[lead:]))
    return v.buffer, v.dtype, v.offset, *parts


def over_rows(v: View, lead: int) -> tuple[Dim, ...]:
    """Return the strides from row to row; a value without axes is the same for all rows."""
    return tuple(v.strides[:lead]) or (0,) * lead


# ---------------------------------------------------------------- which launches
def merged(launches: Sequence[Launch], at: int, own: Own) -> tuple[list[Launch], int] | None:
    """The longest run of launches over the same rows that begins there as one, and how many it
    takes."""
    rows = _shape(launches[at:])
    if rows is None:
        return None
    lead, row = rows
    end, group = at, RowGroup(lead, row)
    best: tuple[list[Launch], int] | None = None
    while end < len(launches) and group.takes(launches[end]):
        end += 1
        run = launches[at:end]
        if len(run) > 1 and (out := group.result(partial(own, run))) is not None:
            ins = tuple(group.loaded.values())
            best = [Rows(out, ins, tuple(group.parts), lead, row)], len(run)
    return best


def _shape(launches: Sequence[Launch]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]] | None:
    """The rows of the first reduction, which only elementwise launches stand in front of."""
    for x in launches:
        if isinstance(x, Map):
            continue
        if not isinstance(x, Reduce):
            return None
        lead = x.x.ndim - len(x.axes)
        row = x.x.shape[lead:]
        fits = isinstance(product(row), int) and 1 < int(str(product(row))) <= MOST * THREADS
        last = x.axes == tuple(range(lead, x.x.ndim))
        return (x.x.shape[:lead], row) if fits and last else None
    return None


@dataclass
class RowGroup:
    """Launches that hand values of a row, or of its elements, on to each other: `made` ones, and
    those `loaded` from memory. `others` is memory that is read besides."""

    lead: tuple[Dim, ...]
    row: tuple[Dim, ...]
    parts: list[Map | Reduce] = field(default_factory=list)
    made: dict[RowPlace, View] = field(default_factory=dict)
    loaded: dict[RowPlace, View] = field(default_factory=dict)
    others: frozenset[Buffer] = frozenset()

    def result(self, own: Callable[[Buffer], bool]) -> View | None:
        """Return the view that launches outside of the group read, if there is exactly one; they do
        not read `own` memory."""
        seen = [v for p in self.parts for v in results(p) if not own(v.buffer)]
        places = {place(v, len(self.lead)) for v in seen}
        reduces = any(isinstance(p, Reduce) for p in self.parts)
        if not reduces or len(places) != 1 or seen[-1].ndim < len(self.lead):
            return None
        return seen[-1]

    @property
    def read(self) -> Collection[Buffer]:
        return self.others | {v.buffer for v in self.loaded.values()}

    def takes(self, x: Launch) -> bool:
        """Whether the launch belongs to it; then it does."""
        if not isinstance(x, (Map, Reduce)) or not self.fits(x):
            return False
        ins = x.ins if isinstance(x, Map) else (x.x,)
        written = {v.buffer for v in self.made.values()}
        loaded = {}
        for v in ins:
            key = place(v, len(self.lead))
            if key in self.made:
                continue
            if isinstance(v.buffer, Element) or v.buffer in written:
                return False
            loaded[key] = v
        outs, read = results(x), {**self.loaded, **loaded}
        each = isinstance(x, Map) and x.shape == (*self.lead, *self.row)
        if not all(self.is_alone(v, read, each) for v in outs):
            return False
        self.loaded = read
        self.made |= {place(v, len(self.lead)): v for v in outs}
        self.parts.append(x)
        return True

    def is_alone(self, v: View, read: Mapping[RowPlace, View], each: bool) -> bool:
        """Whether a value has its memory for itself, or replaces what is there: `each` element by
        the thread that reads it."""
        key = place(v, len(self.lead))
        there = [k for q in (self.made, read) for k, w in q.items() if w.buffer is v.buffer]
        taken = v.buffer in {*self.others, *(w.buffer for w in read.values() if not each)}
        return injective(v) and not taken and all(k == key for k in there)

    def fits(self, x: Map | Reduce) -> bool:
        whole = (*self.lead, *self.row)
        if isinstance(x, Reduce):
            return x.x.shape == whole and x.axes == tuple(range(len(self.lead), len(whole)))
        once = (*self.lead, *(1 for _ in self.row))
        return not x.error and x.shape in (whole, once, self.lead, ())


# ---------------------------------------------------------------- the kernel
@kernel_for(Rows)
def whole_blocks(x: Rows) -> Kernel:
    return rows_kernel(x, THREADS)


def rows_kernel(x: Rows, threads: int) -> Kernel:
    return _RegisterRowWriter(x, threads).kernel


class RowWriter:
    """Emits the work of a block on a row. `once` are the values that a row has once, `each` arrays
    of those of its elements; `pointers` and `starts` are where memory of a place begins, and where
    the row does in it."""

    def __init__(self, lead: tuple[Dim, ...], row: tuple[Dim, ...], out: View | None) -> None:
        self.lead, self.row, self.out, self.kernel = lead, row, out, Kernel()
        self.once: dict[RowPlace, str] = {}
        self.each: dict[RowPlace, str] = {}
        self.pointers: dict[RowPlace, str] = {}
        self.starts: dict[RowPlace, IntText] = {}

    def place(self, v: View) -> RowPlace:
        return place(v, len(self.lead))

    @contextmanager
    def elements(self) -> Iterator[tuple[str, str]]:
        """The elements of a thread: their numbers in the arrays, and in the row."""
        raise NotImplementedError

    def arrays(self, m: Map) -> Sequence[str]:
        """The arrays for what a launch makes of each element."""
        raise NotImplementedError

    def value(self, v: View, u: str, at: str) -> str:
        """In a register, as memory has it."""
        key = self.place(v)
        if key in self.once:
            return self.once[key]
        return f"{self.each[key]}[{u}]" if key in self.each else self.element(v, at)

    def element(self, v: View, at: str) -> str:
        key, lead = self.place(v), len(self.lead)
        dims, (strides,) = collapse(v.shape[lead:], [v.strides[lead:]])
        within: IntText = 0
        if key[-1] and at:
            numbers = self.kernel.numbers
            (within,) = self.kernel.decoded(at, numbers(dims), [numbers(strides)])
        return f"{self.pointers[key]}[{add(self.starts[key], within)}]"

    def map(self, m: Map) -> None:
        if m.shape != (*self.lead, *self.row):
            return self.map_once(m)
        kernel, names = self.kernel, self.arrays(m)
        with self.elements() as (u, at):
            ins = [kernel.loaded(self.value(v, u, at), v.dtype) for v in m.ins]
            for v, name, found in zip(m.outs, names, kernel.evaluate(m.roots, ins)):
                kernel.emit(f"{name}[{u}] = {found};")
                if v is self.out:
                    kernel.emit(f"{self.element(v, at)} = {name}[{u}];")
        self.each |= {self.place(v): name for v, name in zip(m.outs, names)}

    def map_once(self, m: Map) -> None:
        """A value of the row, by all threads alike."""
        ins = [self.kernel.loaded(self.value(v, "", ""), v.dtype) for v in m.ins]
        for v, found in zip(m.outs, self.kernel.evaluate(m.roots, ins)):
            self.keep(v, found)

    def keep(self, v: View, found: str) -> None:
        name = self.kernel.let(f"({memory_type(v.dtype)})({found})", memory_type(v.dtype))
        self.once[self.place(v)] = str(name)
        if v is self.out:
            with self.kernel.block("if (!threadIdx.x)"):
                self.kernel.emit(f"{self.element(v, '')} = {name};")

    def reduce(self, r: Reduce) -> None:
        kernel, d = self.kernel, r.x.dtype.compute
        total = kernel.fresh()
        (first,) = kernel.evaluate([r.rule.init(d)], [])
        kernel.emit(f"{register_type(d)} {total} = {first};")
        with self.elements() as (u, at):
            found = kernel.loaded(self.value(r.x, u, at), r.x.dtype)
            value = kernel.expressions().cast(found, r.x.dtype, d)
            kernel.emit(f"{total} = {combined(kernel, r.rule, d, total, value)};")
        whole = str(kernel.let(over_block(kernel, r.rule, d, total), register_type(d)))
        self.keep(r.out, kernel.expressions().cast(whole, d, r.out.dtype))


class _RegisterRowWriter(RowWriter):
    """The elements of a thread are in its registers."""

    def __init__(self, x: Rows, threads: int) -> None:
        super().__init__(x.lead, x.row, x.out)
        self.x = x
        kernel, memory = self.kernel, (*x.ins, x.out)
        self.count = int(str(product(x.row)))
        self.steps = -(-self.count // threads)
        self.threads = threads
        self.pointers = {x.place(v): kernel.pointer(v) for v in memory}
        lead = len(x.lead)
        dims, over = collapse(x.lead, [over_rows(v, lead) for v in memory])
        n, rows = kernel.numbers(dims), [kernel.numbers(r) for r in over]
        kernel.work = product(x.lead) * threads
        total = kernel.let(" * ".join(map(str, n)) or 1)
        with kernel.loop(total, first="blockIdx.x", step="gridDim.x") as at:
            starts = kernel.decoded(at, n, rows) if n else [0] * len(memory)
            self.starts = dict(zip(map(x.place, memory), starts))
            for part in x.parts:
                self.reduce(part) if isinstance(part, Reduce) else self.map(part)

    @contextmanager
    def elements(self) -> Iterator[tuple[str, str]]:
        """The elements of a thread: their numbers in its registers, and in the row."""
        kernel = self.kernel
        kernel.emit("#pragma unroll")
        with kernel.loop(self.steps, "i32") as u:
            at = str(kernel.let(f"(i32)threadIdx.x + {u} * {self.threads}", "i32"))
            with kernel.block(f"if ({at} < {self.count})"):
                yield u, at

    def arrays(self, m: Map) -> list[str]:
        names = [self.kernel.fresh() for _ in m.outs]
        for v, name in zip(m.outs, names):
            self.kernel.emit(f"{memory_type(v.dtype)} {name}[{self.steps}];")
        return names
