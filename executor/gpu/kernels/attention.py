"""Attention of few queries as one kernel: scores, row reductions such as softmax, and the product
with the values.

A block has a query at a time and all of its row, in shared memory where it fits, so that a step of
a decoder reads keys and values once, and the blocks do not wait for each other in between. What
stands between the products (a scale, a mask, a softmax) runs as it is written, as long as it is
elementwise or reduces whole rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from executor.gpu.kernel_builder import IntText, Kernel, add, kernel_for, mul
from executor.gpu.kernels.launch_fusion import Own
from executor.gpu.kernels.row_reductions import RowGroup, RowPlace, RowWriter, over_rows, place
from executor.gpu.preamble import SHARED, THREADS, WARP
from executor.gpu.scalars import memory_type, register_type
from executor.launches import BackendLaunch, Check, Gemm, Launch, Map, Reduce, When, results
from executor.memory import Buffer, View, collapse, memory_of
from ir.types import Dim, DType, product

#: queries that share keys, beyond which tiles read them less often
MOST_QUERIES = 8
#: threads that share a key whose elements lie next to each other, and elements of a query that each
#: of them keeps in registers
LANES, MOST_KEPT = 8, 32
#: elements to which rows in shared memory are rounded
ROUNDED = 8
#: blocks of a multiprocessor: to have room for more of them, compilers spill registers
BESIDE = 2


@dataclass(frozen=True, eq=False)
class Attention(BackendLaunch):
    """`scores`, then `parts` on its rows, then `result`. `outs` is what `result` writes, and memory
    for `rows` that shared memory has no room for; `kept` says which of these has a value. `ins` is
    what the parts read, `operands` what the products do."""

    operands: tuple[View, ...]
    ins: tuple[View, ...]
    outs: tuple[View, ...]
    scores: Gemm
    parts: tuple[Map | Reduce, ...]
    result: Gemm
    kept: Mapping[RowPlace, int]

    @property
    def lead(self) -> tuple[Dim, ...]:
        return self.scores.c.shape[:-1]

    @property
    def rows(self) -> tuple[View, ...]:
        return self.outs[1:]


# ---------------------------------------------------------------- which launches
def attention(launches: Sequence[Launch], at: int, own: Own) -> tuple[list[Launch], int] | None:
    """The run that begins there as one launch, and how many it takes. Checks between them come
    first: nothing of the run fails, and nobody sees what it writes until its end."""
    first, checks = launches[at], []
    if not isinstance(first, Gemm) or not _is_few(first):
        return None
    group = RowGroup(first.c.shape[:-1], first.c.shape[-1:], others=_memory(_read(first)))
    group.made[place(first.c, len(group.lead))] = first.c
    for end, x in enumerate(launches[at + 1 :], at + 1):
        if _only_checks(x):
            checks.append(x)
        elif isinstance(x, Gemm):
            found = _whole(first, group, x, partial(own, launches[at : end + 1]))
            return None if found is None else ([*checks, found], end + 1 - at)
        elif not group.takes(x):
            return None
    return None


def _whole(
    scores: Gemm, group: RowGroup, result: Gemm, own: Callable[[Buffer], bool]
) -> Attention | None:
    """None if the last product takes something else, or others see a row."""
    lead, written = len(group.lead), {v.buffer for v in group.made.values()}
    fits = place(result.x, lead) in group.made and result.x.shape == (*group.lead, *group.row)
    others = _memory(_read(result)[1:])
    if not fits or result.y.ndim < 3 or not any(isinstance(p, Reduce) for p in group.parts):
        return None
    if written & others or result.c.buffer in {*written, *others, *group.read}:
        return None
    parts = _needed(group, result)
    kept = _RowAllocation.of(scores, parts, result)
    if not all(map(own, written)) or any(v.strides[-1] != 1 for v in kept.rows):
        return None
    ins, operands = tuple(group.loaded.values()), (*_read(scores), *_read(result)[1:])
    return Attention(operands, ins, (result.c, *kept.rows), scores, parts, result, kept.of_value)


def _needed(group: RowGroup, result: Gemm) -> tuple[Map | Reduce, ...]:
    """The launches of which something is read."""
    read, out = [result.x], []
    for part in reversed(group.parts):
        seen = {place(v, len(group.lead)) for v in read}
        if any(place(v, len(group.lead)) in seen for v in results(part)):
            out.append(part)
            read += part.ins if isinstance(part, Map) else [part.x]
    return tuple(reversed(out))


def _is_few(x: Gemm) -> bool:
    """Whether few rows take the same matrix: each batch has its own, which weights have not."""
    queries, keys = x.c.shape[-2:]
    few = isinstance(queries, int) and queries <= MOST_QUERIES and x.y.ndim > 2
    return few and keys != 1 and x.c.dtype.compute.kind == "f"


def _only_checks(x: Launch) -> bool:
    return isinstance(x, Check) or isinstance(x, When) and all(map(_only_checks, x.body))


def _read(x: Gemm) -> list[View]:
    return [x.x, x.y, *summand_of(x)]


def _memory(read: Sequence[View]) -> frozenset[Buffer]:
    return frozenset(b for v in read for b in memory_of(v.buffer))


@dataclass
class _RowAllocation:
    """Allocation of values of places to as few rows as possible."""

    lead: int
    rows: list[View] = field(default_factory=list)
    of_value: dict[RowPlace, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)

    @staticmethod
    def of(scores: Gemm, parts: Sequence[Map | Reduce], result: Gemm) -> _RowAllocation:
        """A thread reads what an elementwise launch takes before it stores what that makes."""
        kept = _RowAllocation(scores.c.ndim - 1)
        used = [*(p.ins if isinstance(p, Map) else (p.x,) for p in parts), (result.x,)]
        last = {place(v, kept.lead): k for k, vs in enumerate(used) for v in vs}
        kept.put(scores.c)
        for k, part in enumerate(parts):
            ends = {kept.of_value.get(q) for q, at in last.items() if at == k} - {None}
            kept.free += [n for n in ends if n is not None]
            if isinstance(part, Map) and part.shape == scores.c.shape:
                for v in part.outs:
                    kept.put(v)
        return kept

    def put(self, v: View) -> None:
        key = place(v, self.lead)
        if key in self.of_value:
            return
        found = next((n for n in self.free if self.rows[n].dtype == v.dtype), None)
        if found is None:
            found = len(self.rows)
            self.rows.append(v)
        else:
            self.free.remove(found)
        self.of_value[key] = found


# ---------------------------------------------------------------- the kernel
@kernel_for(Attention)
def whole_blocks(x: Attention) -> Kernel:
    return attention_kernel(x, THREADS)


def attention_kernel(x: Attention, threads: int) -> Kernel:
    return AttentionWriter(x, threads).kernel


class AttentionWriter(RowWriter):
    """Values of the elements are in rows that the threads of a block share. `count` is the number
    of keys of a block, `first` the first of them."""

    x: Attention

    def __init__(self, x: Attention, threads: int) -> None:
        super().__init__(x.lead, x.scores.c.shape[-1:], None)
        self.x, self.threads, at = x, threads, len(x.lead)
        kernel, queries = self.kernel, x.scores.x.expand((*x.lead, x.scores.x.shape[-1]))
        kernel.beside = BESIDE
        kernel.work, self.count = product(x.lead) * threads, str(kernel.number(self.row[0]))
        self.first: IntText = 0
        first = [queries, _of_queries(x.scores.y, x.lead), *summand_of(x.scores)]
        last = [_of_queries(x.result.y, x.lead), *self.results()]
        memory = [*first, *last, *x.rows, *x.ins]
        pointers = [kernel.pointer(v) for v in memory]
        dims, over = collapse(x.lead, [over_rows(v, at) for v in memory])
        n, rows = kernel.numbers(dims), [kernel.numbers(r) for r in over]
        total = kernel.let(" * ".join(map(str, n)) or 1)
        with self.queries(total) as query:
            starts = kernel.decoded(query, n, rows) if n else [0] * len(memory)
            placed = [f"({p} + {s})" for p, s in zip(pointers, starts)]
            behind = len(memory) - len(x.ins)
            self.pointers = dict(zip(map(self.place, x.ins), pointers[behind:]))
            self.starts = dict(zip(map(self.place, x.ins), starts[behind:]))
            far = placed[len(first) + len(last) : behind]
            self.names = [self.row_at(*q) for q in zip(self.near, far, x.rows)]
            kernel.emit("__syncthreads();")
            self.scores(placed[: len(first)])
            for part in x.parts:
                self.reduce(part) if isinstance(part, Reduce) else self.map(part)
            kernel.emit("__syncthreads();")
            self.result(placed[len(first) : len(first) + len(last)])

    def results(self) -> list[View]:
        """The summand and the result of the last product, query by query."""
        return [*summand_of(self.x.result), self.x.result.c]

    @contextmanager
    def queries(self, total: IntText) -> Iterator[str]:
        """Those of a block, one after the other, behind what all have alike."""
        self.near = self.shared([v.dtype for v in self.x.rows])
        with self.kernel.loop(total, first="blockIdx.x", step="gridDim.x") as query:
            yield query

    # ------------------------------------------------------------ rows
    def shared(self, types: Sequence[DType]) -> list[str]:
        """Return the addresses of rows in shared memory, behind that of reductions; `near` if
        they fit."""
        sizes, rounded = [d.size for d in types], f"({self.count} + {ROUNDED - 1}) / {ROUNDED}"
        self.kernel.emit(f"const i64 room = {rounded} * {ROUNDED};")
        free = SHARED - self.threads * 8
        self.kernel.emit(f"const bool near = room <= {free // sum(sizes)};")
        start = f"shared_memory() + {self.threads * 8}"
        return [f"({start} + {sum(sizes[:k])} * room)" for k in range(len(sizes))]

    def row_at(self, near: str, far: str, v: View) -> str:
        name, kind = self.kernel.fresh(), memory_type(v.dtype)
        self.kernel.emit(f"{kind}* {name} = near ? ({kind}*){near} : {add(far, self.first)};")
        return name

    def arrays(self, m: Map) -> list[str]:
        return [self.names[self.x.kept[self.place(v)]] for v in m.outs]

    @contextmanager
    def elements(self) -> Iterator[tuple[str, str]]:
        with self.kernel.loop(self.count, "i64", "threadIdx.x", "blockDim.x") as at:
            yield at, str(add(at, self.first))

    # ------------------------------------------------------------ products
    def scores(self, at: Sequence[str]) -> None:
        """Neighbouring threads share a key, or have keys that are neighbours."""
        x, kernel = self.x.scores, self.kernel
        lanes = 1 if x.y.strides[-1] == 1 else min(LANES, self.threads)
        kind, out = register_type(x.c.dtype.compute), self.names[self.x.kept[self.place(x.c)]]
        self.each[self.place(x.c)] = out
        query = _Query(kernel, x.x, at[0], lanes)
        down, over = kernel.numbers(x.y.strides[-2:])
        with kernel.loop(self.count, step=f"blockDim.x / {lanes}") as first:
            key = str(kernel.let(f"{first} + threadIdx.x / {lanes}"))
            total = self.variable(kind)
            with kernel.block(f"if ({key} < {self.count})"):
                place = str(kernel.let(add(key, self.first)))
                with query.elements() as (k, value):
                    y = kernel.read(at[1], x.y.dtype, add(mul(k, down), mul(place, over)))
                    kernel.emit(f"{total} = {_fma(kind)}({value}, {y}, {total});")
            with kernel.block(f"for (u32 m = {lanes // 2}; m; m >>= 1)"):
                kernel.emit(f"{total} += shuffle_xor({total}, m);")
            with kernel.block(f"if ({key} < {self.count} && threadIdx.x % {lanes} == 0)"):
                self.store(x, out, key, total, at[2:], add(key, self.first))
        kernel.emit("__syncthreads();")

    def result(self, at: Sequence[str]) -> None:
        """Neighbouring threads have neighbouring columns; groups of them share the keys."""
        x, kernel = self.x.result, self.kernel
        kind, row = register_type(x.c.dtype.compute), self.each[self.weights()]
        columns, width = kernel.number(x.c.shape[-1]), _width(x.c.shape[-1], self.threads)
        down, over = kernel.numbers(x.y.strides[-2:])
        kernel.emit(f"{kind}* sums = ({kind}*)shared_memory();")
        with kernel.loop(columns, step=str(width)) as first:
            column = str(kernel.let(f"{first} + threadIdx.x % {width}"))
            total = self.variable(kind)
            with kernel.block(f"if ({column} < {columns})"):
                group = (f"threadIdx.x / {width}", str(self.threads // width))
                with kernel.loop(self.count, "i64", *group) as key:
                    p = kernel.read(row, x.x.dtype, key)
                    place = mul(str(add(key, self.first)), down)
                    y = kernel.read(at[0], x.y.dtype, add(place, mul(column, over)))
                    kernel.emit(f"{total} = {_fma(kind)}({p}, {y}, {total});")
            kernel.emit(f"sums[threadIdx.x] = {total};")
            kernel.emit("__syncthreads();")
            with kernel.block(f"if (threadIdx.x < {width} && {column} < {columns})"):
                with kernel.loop(self.threads // width, "i32", "1") as k:
                    kernel.emit(f"{total} += sums[threadIdx.x + {k} * {width}];")
                self.finish(at[1:], column, total)
            kernel.emit("__syncthreads();")

    def weights(self) -> RowPlace:
        """The operand of the last product that has a row for each key."""
        return self.place(self.x.result.x)

    def finish(self, at: Sequence[str], column: str, total: str) -> None:
        """A sum of the last product."""
        x = self.x.result
        (right,) = self.kernel.numbers(x.c.strides[-1:])
        self.store(x, at[-1], mul(column, right), total, at[:-1], column)

    def variable(self, kind: str) -> str:
        name = self.kernel.fresh()
        self.kernel.emit(f"{kind} {name} = 0;")
        return name

    def store(
        self, x: Gemm, to: str, at: IntText, total: str, summand: Sequence[str], column: IntText
    ) -> None:
        for p, v in zip(summand, summand_of(x)):
            (step,) = self.kernel.numbers(v.strides[-1:])
            total = f"({total} + {self.kernel.read(p, v.dtype, mul(column, step))})"
        self.kernel.write(to, x.c.dtype, at, total)


def _of_queries(matrix: View, lead: Sequence[Dim]) -> View:
    """A matrix of each batch, with the axes of the queries in front."""
    return matrix.expand((*lead[:-1], *matrix.shape[-2:])).insert(len(lead) - 1)


def summand_of(x: Gemm) -> list[View]:
    return [] if x.initial is None else [x.initial]


def _fma(kind: str) -> str:
    return "fmaf" if kind == "float" else "fma"


def _width(columns: Dim, threads: int) -> int:
    """Columns of a block at once: a power of two."""
    width = min(threads, WARP)
    while isinstance(columns, int) and width < min(columns, threads):
        width *= 2
    return width


class _Query:
    """The elements of a query of which a thread multiplies each of so many: in registers if they
    are few."""

    def __init__(self, kernel: Kernel, v: View, at: str, lanes: int) -> None:
        self.kernel, self.view, self.at, self.lanes = kernel, v, at, lanes
        self.depth, (self.step,) = v.shape[-1], kernel.numbers(v.strides[-1:])
        self.first, self.count = f"threadIdx.x % {lanes}", kernel.number(self.depth)
        self.steps = -(-self.depth // lanes) if isinstance(self.depth, int) else MOST_KEPT + 1
        if self.steps <= MOST_KEPT:
            kernel.emit(f"{register_type(v.dtype.compute)} query[{self.steps}];")
            with self.registers() as (u, k):
                kernel.emit(f"query[{u}] = {self.element(k)};")

    @contextmanager
    def registers(self) -> Iterator[tuple[str, str]]:
        kernel = self.kernel
        kernel.emit("#pragma unroll")
        with kernel.loop(self.steps, "i32") as u:
            k = str(kernel.let(f"{self.first} + {u} * {self.lanes}", "i32"))
            with kernel.block(f"if ({k} < {self.count})"):
                yield u, k

    def element(self, k: str) -> str:
        return self.kernel.read(self.at, self.view.dtype, mul(k, self.step))

    @contextmanager
    def elements(self) -> Iterator[tuple[str, str]]:
        if self.steps <= MOST_KEPT:
            with self.registers() as (u, k):
                yield k, f"query[{u}]"
            return
        with self.kernel.loop(self.count, "i64", self.first, str(self.lanes)) as k:
            yield k, self.element(k)
