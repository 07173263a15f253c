"""Softmax, norms and what is like them: reductions of rows and elementwise launches between them.

A block has a row at a time, each thread some of its elements in registers; what the launches hand
on to each other within a row does not touch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from executor.gpu.kernel_builder import Int, Kernel, add, injective, kernel_for
from executor.gpu.kernels.reduce import combined, over_block
from executor.gpu.preamble import THREADS
from executor.gpu.scalars import memory_type, register_type
from executor.launches import BackendLaunch, Launch, Map, Reduce, blocks, results, views
from executor.memory import Buffer, Element, View, collapse, memory_of
from ir.types import Dim, product

#: elements of a thread of a whole block
MOST = 16

#: where a value of a row lies: memory, strides over the rows and within one; empty where all are 0
Place: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Rows(BackendLaunch):
    """`parts` for rows of the shape `row`, one for each place of `lead`; all that is needed of them
    is `out`. `ins` is what they read from memory."""

    out: View
    ins: tuple[View, ...]
    parts: tuple[Map | Reduce, ...]
    lead: tuple[Dim, ...]
    row: tuple[Dim, ...]

    def place(self, v: View) -> Place:
        """Of a value of a row, or of one for each of its elements."""
        return place(v, len(self.lead))


def place(v: View, lead: int) -> Place:
    strides = tuple(0 if d == 1 else s for d, s in zip(v.shape, v.strides))
    parts = (s if any(q != 0 for q in s) else () for s in (strides[:lead], strides[lead:]))
    return v.buffer, v.dtype, v.offset, *parts


# ---------------------------------------------------------------- which launches
def merged(launches: Sequence[Launch], live: Callable[[int, int, Buffer], bool]) -> list[Launch]:
    """Runs of launches over the same rows as one. `live(a, b, buffer)`: whether launches outside of
    [a, b), or the caller, see the memory."""
    out: list[Launch] = []
    at = 0
    while at < len(launches):
        found = _run(launches, at, live)
        out.append(launches[at] if found is None else found[0])
        at += 1 if found is None else found[1]
    return out


def _run(
    launches: Sequence[Launch], at: int, live: Callable[[int, int, Buffer], bool]
) -> tuple[Rows, int] | None:
    """The longest one that begins there, and how many launches it takes."""
    rows = _shape(launches[at:])
    if rows is None:
        return None
    lead, row = rows
    end, best, group = at, None, _Group(lead, row)
    while end < len(launches) and group.takes(launches[end]):
        end += 1
        if end > at + 1 and (out := group.result(partial(live, at, end))) is not None:
            ins = tuple(group.loaded.values())
            best = Rows(out, ins, tuple(group.parts), lead, row), end - at
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
class _Group:
    lead: tuple[Dim, ...]
    row: tuple[Dim, ...]
    parts: list[Map | Reduce] = field(default_factory=list)
    made: dict[Place, View] = field(default_factory=dict)
    loaded: dict[Place, View] = field(default_factory=dict)

    def result(self, live: Callable[[Buffer], bool]) -> View | None:
        """What others see, if it is one value of each row or of its elements."""
        seen = [v for p in self.parts for v in results(p) if live(v.buffer)]
        places = {place(v, len(self.lead)) for v in seen}
        reduces = any(isinstance(p, Reduce) for p in self.parts)
        if not reduces or len(places) != 1 or seen[-1].ndim < len(self.lead):
            return None
        return seen[-1]

    @property
    def read(self) -> Collection[Buffer]:
        return {v.buffer for v in self.loaded.values()}

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
        outs = results(x)
        used = {*self.read, *(v.buffer for v in loaded.values())}
        if any(v.buffer in used or not self.is_alone(v) for v in outs):
            return False
        self.loaded |= loaded
        self.made |= {place(v, len(self.lead)): v for v in outs}
        self.parts.append(x)
        return True

    def is_alone(self, v: View) -> bool:
        """Whether a value has its memory for itself, or replaces the one that is there."""
        key = place(v, len(self.lead))
        return injective(v) and all(k == key for k, q in self.made.items() if q.buffer is v.buffer)

    def fits(self, x: Map | Reduce) -> bool:
        whole = (*self.lead, *self.row)
        if isinstance(x, Reduce):
            return x.x.shape == whole and x.axes == tuple(range(len(self.lead), len(whole)))
        once = (*self.lead, *(1 for _ in self.row))
        return not x.error and x.shape in (whole, once, self.lead, ())


def outside(launches: Sequence[Launch]) -> Callable[[int, int, Buffer], bool]:
    """For `merged`: whether other launches than some in a row touch a buffer."""
    seen: dict[Buffer, list[int]] = {}
    for k, x in enumerate(launches):
        for v in _touched(x):
            for b in memory_of(v.buffer):
                seen.setdefault(b, []).append(k)

    def live(first: int, end: int, b: Buffer) -> bool:
        return b.kind != "arena" or any(not first <= k < end for k in seen[b])

    return live


def _touched(x: Launch) -> Iterator[View]:
    yield from views(x)
    for inside in blocks(x):
        for q in inside:
            yield from _touched(q)


# ---------------------------------------------------------------- the kernel
@kernel_for(Rows)
def whole_blocks(x: Rows) -> Kernel:
    return rows_kernel(x, THREADS)


def rows_kernel(x: Rows, threads: int) -> Kernel:
    return _Writer(x, threads).kernel


class _Writer:
    """`once` are the values that a row has once, `each` arrays of those of a thread's elements."""

    def __init__(self, x: Rows, threads: int) -> None:
        self.x, self.kernel = x, Kernel()
        kernel, memory = self.kernel, (*x.ins, x.out)
        self.count = int(str(product(x.row)))
        self.steps = -(-self.count // threads)
        self.threads = threads
        self.once: dict[Place, str] = {}
        self.each: dict[Place, str] = {}
        self.pointers = {x.place(v): kernel.pointer(v) for v in memory}
        lead = len(x.lead)
        strides = [tuple(v.strides[:lead]) for v in memory]
        dims, over = collapse(x.lead, strides)
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

    def value(self, v: View, u: str, at: str) -> str:
        """In a register, as memory has it."""
        key = self.x.place(v)
        if key in self.once:
            return self.once[key]
        return f"{self.each[key]}[{u}]" if key in self.each else self.element(v, at)

    def element(self, v: View, at: str) -> str:
        key, lead = self.x.place(v), len(self.x.lead)
        dims, (strides,) = collapse(v.shape[lead:], [v.strides[lead:]])
        within: Int = 0
        if key[-1] and at:
            numbers = self.kernel.numbers
            (within,) = self.kernel.decoded(at, numbers(dims), [numbers(strides)])
        return f"{self.pointers[key]}[{add(self.starts[key], within)}]"

    def map(self, m: Map) -> None:
        if m.shape != (*self.x.lead, *self.x.row):
            return self.map_once(m)
        kernel = self.kernel
        names = [kernel.fresh() for _ in m.outs]
        for v, name in zip(m.outs, names):
            kernel.emit(f"{memory_type(v.dtype)} {name}[{self.steps}];")
        with self.elements() as (u, at):
            ins = [kernel.loaded(self.value(v, u, at), v.dtype) for v in m.ins]
            for v, name, found in zip(m.outs, names, kernel.evaluate(m.roots, ins)):
                kernel.emit(f"{name}[{u}] = {found};")
                if v is self.x.out:
                    kernel.emit(f"{self.element(v, at)} = {name}[{u}];")
        self.each |= {self.x.place(v): name for v, name in zip(m.outs, names)}

    def map_once(self, m: Map) -> None:
        """A value of the row, by all threads alike."""
        ins = [self.kernel.loaded(self.value(v, "", ""), v.dtype) for v in m.ins]
        for v, found in zip(m.outs, self.kernel.evaluate(m.roots, ins)):
            self.keep(v, found)

    def keep(self, v: View, found: str) -> None:
        name = self.kernel.let(f"({memory_type(v.dtype)})({found})", memory_type(v.dtype))
        self.once[self.x.place(v)] = str(name)
        if v is self.x.out:
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
