"""Split-KV attention: few queries with many keys, where blocks share the keys of a query.

Each has a part of the keys, its own largest score, and the sums of the powers of how far its scores
are below that; one more launch gives these parts their weights and merges them. The powers are as
the program has them, and so is what happens where a row has no finite score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from executor.gpu.kernel_builder import IntText, Kernel, add, kernel_for, mul
from executor.gpu.kernels.attention import Attention, AttentionWriter, summand_of
from executor.gpu.kernels.reduce import combined
from executor.gpu.kernels.row_reductions import RowPlace, place
from executor.gpu.preamble import THREADS
from executor.gpu.scalars import ExpressionEmitter, literal, register_type
from executor.launches import BackendLaunch, Launch, Map, Reduce, with_blocks
from executor.memory import Buffer, View
from ir.layout import contiguous
from ir.opdef import OPS
from ir.scalar.language import Scalar, const, input_
from ir.types import DType, Size, product

#: blocks for which keys are shared, and keys of a block that are worth it
SHARES, LEAST_KEYS = 128, 128


@dataclass(frozen=True)
class Softmax:
    """The largest score of a row, `power` of each score and of that, and the sum of these. Input
    `score` of `power` is the score, the other one the largest."""

    largest: Reduce
    power: Map
    total: Reduce
    score: int


@dataclass(frozen=True, eq=False)
class Shared(Attention):
    """Like `Attention`, but blocks share the keys of a query. `outs` begins with what each of them
    has: the product of its powers, its largest score and its sum of powers."""

    softmax: Softmax

    @property
    def rows(self) -> tuple[View, ...]:
        return self.outs[3:]


@dataclass(frozen=True, eq=False)
class Merge(BackendLaunch):
    """Combines the partial results of the blocks of `shared`; `ins` ends with the summand."""

    ins: tuple[View, ...]
    outs: tuple[View, ...]
    shared: Shared


# ---------------------------------------------------------------- which launches
def shared(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with such attention as two."""
    return [q for x in launches for q in _shared(with_blocks(x, shared))]


def _shared(x: Launch) -> list[Launch]:
    softmax = _softmax(x) if isinstance(x, Attention) and _may_share(x) else None
    if not isinstance(x, Attention) or softmax is None:
        return [x]
    queries, d = product(x.lead), x.result.c.dtype
    slots = max(queries, SHARES) if isinstance(queries, int) else queries + SHARES
    made = []
    for shape in ((slots, x.result.c.shape[-1]), (slots,), (slots,)):
        memory = Buffer("arena", 0, product(shape) * d.size)
        made.append(View(memory, d, 0, shape, contiguous(shape)))
    fields = {**vars(x), "outs": (*made, *x.rows), "parts": x.parts[:-1]}
    summand = summand_of(x.result)
    fields["operands"] = x.operands[: len(x.operands) - len(summand)]
    return [part := Shared(**fields, softmax=softmax), Merge((*made, *summand), x.outs[:1], part)]


def _may_share(x: Attention) -> bool:
    """Whether there may be few queries and many keys. No size of the memory depends on a loop."""
    queries, keys = product(x.lead), x.scores.c.shape[-1]
    sizes = [d for d in (queries, x.result.c.shape[-1]) if isinstance(d, Size)]
    if any(n.startswith("#") for d in sizes for n in d.names):
        return False
    few = isinstance(queries, Size) or 0 < 2 * queries <= SHARES
    return few and (isinstance(keys, Size) or keys >= 2 * LEAST_KEYS)


def _softmax(x: Attention) -> Softmax | None:
    """That of the rows, if nothing else looks at more than one score."""
    kinds = [type(p) for p in x.parts]
    if kinds[-4:] != [Reduce, Map, Reduce, Map] or kinds.count(Reduce) != 2:
        return None
    largest, power, total, quotient = x.parts[-4:]
    assert isinstance(largest, Reduce) and isinstance(total, Reduce)
    assert isinstance(power, Map) and isinstance(quotient, Map)
    if len(power.outs) != 1 or len(quotient.outs) != 1:
        return None
    (e,), (p,), d = power.outs, quotient.outs, largest.x.dtype
    types = {v.dtype for v in (largest.out, e, total.out, p, x.result.c)}
    rules = (OPS["max"].reduce, OPS["sum"].reduce)
    if (largest.rule, total.rule) != rules or types != {d} or d.compute != d:
        return None

    def places(*found: View) -> list[RowPlace]:
        return [place(v, len(x.lead)) for v in found]

    pair, read = places(largest.x, largest.out), places(*power.ins)
    divided = places(*quotient.ins, total.x, x.result.x) == places(e, total.out, e, p)
    if read not in (pair, pair[::-1]) or not divided:
        return None
    score = read.index(pair[0])
    known = any(_text(power.roots[0]) == _text(q) for q in _powers(d, score))
    exact = _text(quotient.roots[0]) == _text(input_(0, d) / input_(1, d))
    return Softmax(largest, power, total, score) if known and exact else None


def _powers(d: DType, score: int) -> Iterator[Scalar]:
    """exp(score - largest), and as softmax has it, which takes no difference below -64."""
    exp, maximum = OPS["exp"].kernel, OPS["maximum"].kernel
    assert exp is not None and maximum is not None
    apart = input_(score, d) - input_(1 - score, d)
    yield exp(apart)
    yield exp(maximum(apart, const(-64.0, d)))


def _text(root: Scalar) -> list[str]:
    """Equal for equal expressions."""
    lines: list[str] = []
    names = count()
    expressions = ExpressionEmitter(lines.append, lambda: f"v{next(names)}")
    return [*expressions.evaluate([root], ["a", "b"]), *lines]


def _shares(kernel: Kernel, queries: IntText, keys: IntText) -> tuple[str, str]:
    """Return the number of blocks that share a query, and the number of keys of each."""
    most = f"({keys} + {LEAST_KEYS - 1}) / {LEAST_KEYS}"
    room = kernel.let(f"{queries} > 0 ? {SHARES} / ({queries} > 0 ? {queries} : 1) : 1")
    few = kernel.let(f"{most} < {room} ? {most} : {room}")
    parts = str(kernel.let(f"{few} > 1 ? {few} : 1"))
    return parts, str(kernel.let(f"({keys} + {parts} - 1) / {parts}"))


# ---------------------------------------------------------------- the kernels
@kernel_for(Shared)
def whole_blocks(x: Shared) -> Kernel:
    return shared_kernel(x, THREADS)


def shared_kernel(x: Shared, threads: int) -> Kernel:
    return _SplitKeysWriter(x, threads).kernel


class _SplitKeysWriter(AttentionWriter):
    """A block has some of the keys of a query at a time. Where it finds no score above -inf, the
    powers are those of the lowest number, as others may have found one."""

    x: Shared

    def results(self) -> list[View]:
        return []

    @contextmanager
    def queries(self, total: IntText) -> Iterator[str]:
        kernel, keys = self.kernel, self.count
        kernel.work = self.x.outs[1].shape[0] * self.threads
        self.sums, self.largest, self.totals = map(kernel.pointer, self.x.outs[:3])
        self.columns = kernel.number(self.x.outs[0].shape[-1])
        parts, self.count = _shares(kernel, total, keys)
        self.near = self.shared([v.dtype for v in self.x.rows])
        each = self.count
        with kernel.loop(f"{total} * {parts}", first="blockIdx.x", step="gridDim.x") as number:
            self.number = number
            self.first = kernel.let(f"{number} % {parts} * {each}")
            rest = f"{keys} - {self.first}"
            self.count = str(kernel.let(f"{rest} < {each} ? {rest} : {each}"))
            yield str(kernel.let(f"{number} / {parts}"))

    def weights(self) -> RowPlace:
        return self.place(self.x.softmax.power.outs[0])

    def keep(self, v: View, found: str) -> None:
        super().keep(v, found)
        softmax, key = self.x.softmax, self.place(v)
        if v is softmax.total.out:
            self.kernel.emit(f"if (!threadIdx.x) {self.totals}[{self.number}] = {self.once[key]};")
        elif v is softmax.largest.out:
            self.kernel.emit(f"if (!threadIdx.x) {self.largest}[{self.number}] = {self.once[key]};")
            self.once[key] = _finite(self.kernel, self.once[key], v.dtype)

    def finish(self, at: Sequence[str], column: str, total: str) -> None:
        self.kernel.emit(f"{self.sums}[{self.number} * {self.columns} + {column}] = {total};")


def _finite(kernel: Kernel, value: str, d: DType, unless: str = "false") -> str:
    """The value, or the lowest number for -inf."""
    lowest = literal(float(np.finfo(d.numpy).min), d)
    least = f"{value} == {literal(-np.inf, d)} && !({unless})"
    return str(kernel.let(f"{least} ? {lowest} : {value}", register_type(d)))


@kernel_for(Merge)
def merge_kernel(x: Merge) -> Kernel:
    """The parts of a query have weights by how far their largest score is below that of all."""
    kernel, (c,), softmax = Kernel(), x.outs, x.shared.softmax
    d, lead, keys = c.dtype, c.shape[:-1], kernel.number(x.shared.scores.c.shape[-1])
    sums, largest, totals, *summand = (kernel.pointer(v) for v in x.ins)
    kind, columns = register_type(d), kernel.number(c.shape[-1])
    rows = [(*contiguous(lead), 0), (*(0 for _ in lead), 1), c.strides]
    rows += [v.expand(c.shape).strides for v in x.ins[3:]]
    queries = kernel.let(" * ".join(map(str, kernel.numbers(lead))) or 1)
    parts, _ = _shares(kernel, queries, keys)
    to = kernel.pointer(c)
    with kernel.each(c.shape, rows) as (query, column, place, *initial):
        (lowest,) = kernel.evaluate([softmax.largest.rule.init(d)], [])
        kernel.emit(f"{kind} most = {lowest}, total = 0, sum = 0;")
        first = str(kernel.let(mul(str(query), parts)))
        with kernel.loop(parts) as p:
            score = f"{largest}[{first} + {p}]"
            kernel.emit(f"most = {combined(kernel, softmax.largest.rule, d, 'most', score)};")
        with kernel.loop(parts) as p:
            at = str(kernel.let(f"{first} + {p}"))
            none = f"most == {literal(-np.inf, d)}"
            given = [_finite(kernel, f"{largest}[{at}]", d, none), "most"]
            (weight,) = kernel.evaluate(softmax.power.roots, given[:: 1 - 2 * softmax.score])
            kernel.emit(f"total += {weight} * {totals}[{at}];")
            kernel.emit(f"sum += {weight} * {sums}[{add(mul(at, columns), column)}];")
        value = str(kernel.let(f"{keys} ? sum / total : 0", kind))
        for p, v, o in zip(summand, x.ins[3:], initial):
            value = f"({value} + {kernel.read(p, v.dtype, o)})"
        kernel.write(to, d, place, value)
    kernel.own += [c, *x.ins[3:]]
    return kernel
