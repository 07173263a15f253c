"""Reductions: along contiguous elements with several vector accumulators, or a vector of results
at a time where the results lie side by side, else one element at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from executor.cpu.kernel_builder import (
    Call,
    Place,
    lane_mask,
    maskable,
    nest,
    read,
    store,
    tail,
    write,
)
from executor.cpu.kernel_table import kernel_for
from executor.cpu.llvm_text import Int, Module, element
from executor.cpu.target import Target
from executor.cpu.vector_math import Lanes
from executor.launches import ArgMax, Reduce
from executor.memory import collapse
from ir.opdef import Reduce as Reduction
from ir.scalar.language import eq, input_
from ir.types import I64, Dim, DType

ACCUMULATORS = 4
#: vectors of a row from which on the largest is sought in every lane
LONG = 4


@dataclass
class _Accumulator:
    """A value of `v.width` lanes in memory that `sroa` makes a register."""

    v: Lanes
    rule: Reduction
    dtype: DType
    slot: str = ""

    def __post_init__(self) -> None:
        self.slot = self.v.f.alloca(self.v.type(self.dtype), 64)

    def start(self) -> None:
        init = self.v.evaluate([self.rule.init(self.dtype)], [])[0]
        self.v.f.store(self.v.type(self.dtype), init, self.slot, 64)

    def value(self) -> str:
        return self.v.f.load(self.v.type(self.dtype), self.slot, 64)

    def take(self, x: str) -> None:
        r = combine(self.v, self.rule, self.dtype, self.value(), x)
        self.v.f.store(self.v.type(self.dtype), r, self.slot, 64)


def combine(v: Lanes, rule: Reduction, dtype: DType, a: str, b: str) -> str:
    root = rule.combine(input_(0, dtype), input_(1, dtype))
    return v.evaluate([root], [a, b])[0]


def across(v: Lanes, rule: Reduction, dtype: DType, x: str) -> str:
    """The lanes of a vector combined, halves first."""
    f, width = v.f, v.width
    while width > 1:
        t, half = f"<{width} x {element(dtype)}>", width // 2
        parts = []
        for first in (0, half):
            picks = ", ".join(f"i32 {first + k}" for k in range(half))
            parts.append(f.op(f"shufflevector {t} {x}, {t} poison, <{half} x i32> <{picks}>"))
        if half == 1:
            one = f"<1 x {element(dtype)}>"
            parts = [f.op(f"extractelement {one} {p}, i64 0") for p in parts]
        x = combine(Lanes(f, v.target, half), rule, dtype, *parts)
        width = half
    return x


@kernel_for(Reduce)
def reduce_kernel(target: Target, module: Module, r: Reduce) -> Call:
    call = Call(target)
    f = call.f
    x, out = call.pointer(r.x), call.pointer(r.out)
    kept = [a for a in range(r.x.ndim) if a not in r.axes]
    unit = [
        k for k, a in enumerate(kept) if r.x.strides[a] == 1 == r.out.strides[k] != r.x.shape[a]
    ]
    gone = sorted(r.axes, key=lambda a: r.x.strides[a] == 1)
    by_row = any(r.x.strides[a] == 1 and r.x.shape[a] != 1 for a in gone)
    pairs = list(enumerate(kept))
    if unit and not by_row:
        pairs.append(pairs.pop(unit[-1]))
    outer, (xs, os) = collapse(
        [r.x.shape[a] for _, a in pairs],
        [[r.x.strides[a] for _, a in pairs], [r.out.strides[k] for k, _ in pairs]],
    )
    inner, (gs,) = collapse([r.x.shape[a] for a in gone], [[r.x.strides[a] for a in gone]])
    columns = bool(unit) and not by_row and bool(outer)
    n_outer, n_inner = _numbers(call, outer), _numbers(call, inner)
    xs_, os_, gs_ = _numbers(call, xs), _numbers(call, os), _numbers(call, gs)
    width = target.lanes(r.x.dtype)

    def body(offsets: list[Int]) -> None:
        source = Place(Place(x, r.x.dtype, 1).at(f, offsets[0]), r.x.dtype, 1)
        result = Place(Place(out, r.x.dtype, 1).at(f, offsets[1]), r.x.dtype, 1)
        one = Lanes(f, target, 1)
        if columns:
            _columns(Lanes(f, target, width), r.rule, source, result, n_outer[-1], n_inner, gs_)
        elif by_row and n_inner:
            value = _row(Lanes(f, target, width), r.rule, source, n_inner, gs_)
            write(one, result, 0, value)
        else:
            acc = _Accumulator(one, r.rule, r.x.dtype.compute)
            acc.start()
            nest(f, n_inner, [gs_], lambda o: acc.take(read(one, source, o[0])))
            write(one, result, 0, acc.value())

    last = -1 if columns else len(n_outer)
    nest(f, n_outer[:last], [xs_[:last], os_[:last]], body)
    return call


def _numbers(call: Call, dims: list[Dim]) -> list[Int]:
    return [call.number(d) for d in dims]


def _row(v: Lanes, rule: Reduction, p: Place, dims: list[Int], strides: list[Int]) -> str:
    """One result: the last dim is contiguous."""
    f, w, d = v.f, v.width, p.dtype.compute
    one = Lanes(f, v.target, 1)
    wide = [_Accumulator(v, rule, d) for _ in range(ACCUMULATORS)]
    single = _Accumulator(one, rule, d)
    for acc in (*wide, single):
        acc.start()

    def along(offsets: list[Int]) -> None:
        q, n = Place(p.at(f, offsets[0]), p.dtype, 1), dims[-1]
        blocks = f.floor_to(n, w * ACCUMULATORS)
        with f.loop(0, blocks, w * ACCUMULATORS) as i:
            for k, acc in enumerate(wide):
                acc.take(read(v, q, f.add(i, k * w)))
        whole = f.floor_to(n, w)
        with f.loop(blocks, whole, w) as i:
            wide[0].take(read(v, q, i))
        with f.loop(whole, n) as i:
            single.take(read(one, q, i))

    nest(f, dims[:-1], [strides[:-1]], along)
    total = wide[0].value()
    for acc in wide[1:]:
        total = combine(v, rule, d, total, acc.value())
    return combine(one, rule, d, across(v, rule, d, total), single.value())


def _columns(
    v: Lanes, rule: Reduction, p: Place, out: Place, n: Int, dims: list[Int], strides: list[Int]
) -> None:
    """`n` results side by side, a few vectors at a time."""
    f, w, d = v.f, v.width, p.dtype.compute

    def block(lanes: Lanes, count: int, at: Int, mask: str = "") -> None:
        accs = [_Accumulator(lanes, rule, d) for _ in range(count)]
        for acc in accs:
            acc.start()

        def take(offsets: list[Int]) -> None:
            for k, acc in enumerate(accs):
                acc.take(read(lanes, p, f.add(f.add(offsets[0], at), k * w), mask))

        nest(f, dims, [strides], take)
        for k, acc in enumerate(accs):
            write(lanes, out, f.add(at, k * w), acc.value(), mask)

    blocks, whole = f.floor_to(n, w * ACCUMULATORS), f.floor_to(n, w)
    with f.loop(0, blocks, w * ACCUMULATORS) as i:
        block(v, ACCUMULATORS, i)
    with f.loop(blocks, whole, w) as i:
        block(v, 1, i)
    if maskable(v.target, [p, out]):
        with tail(f, whole, n):
            block(v, 1, whole, lane_mask(v, f.sub(n, whole)))
        return
    with f.loop(whole, n) as i:
        block(Lanes(f, v.target, 1), 1, i)


@kernel_for(ArgMax)
def argmax_kernel(target: Target, module: Module, r: ArgMax) -> Call:
    call = Call(target)
    f, v = call.f, Lanes(call.f, target, 1)
    x, out = call.pointer(r.x), call.pointer(r.out)
    kept = [a for a in range(r.x.ndim) if a != r.axis]
    dims, (xs, os) = collapse(
        [r.x.shape[a] for a in kept], [[r.x.strides[a] for a in kept], r.out.strides]
    )
    n, step = call.number(r.x.shape[r.axis]), call.number(r.x.strides[r.axis])
    n_outer, xs_, os_ = _numbers(call, dims), _numbers(call, xs), _numbers(call, os)
    d = r.x.dtype.compute
    e = element(d)
    best, where = f.alloca(e), f.alloca("i64")
    lowest = float(np.finfo(r.x.dtype.numpy).min) if d.kind == "f" else None
    length, wide = r.x.shape[r.axis], Lanes(f, target, target.lanes(d))
    long = isinstance(length, int) and length >= LONG * wide.width and r.x.dtype.size >= 4
    lanes = (f.alloca(wide.type(d), 64), f.alloca(wide.type(I64), 64))

    def body(offsets: list[Int]) -> None:
        p = Place(Place(x, r.x.dtype, 1).at(f, offsets[0]), r.x.dtype, step)
        f.store(e, read(v, p, 0) if lowest is None else v.const(lowest, d), best, 8)
        f.store("i64", "0", where, 8)
        done: Int = 1 if lowest is None else 0
        if long and step == 1:
            done = f.floor_to(n, wide.width)
            _side_by_side(wide, d, p, done, lanes, (best, where))
        with f.loop(done, n) as i:
            _challenge(v, d, read(v, p, i), i, best, where)
        index = f.load("i64", where, 8)
        short = index if r.out.dtype == I64 else f.op(f"trunc i64 {index} to i{r.out.dtype.bits}")
        place = Place(Place(out, r.out.dtype, 1).at(f, offsets[1]), r.out.dtype, 1)
        store(v, place, 0, short)

    nest(f, n_outer, [xs_, os_], body)
    return call


def _side_by_side(
    v: Lanes, d: DType, p: Place, n: Int, lanes: tuple[str, str], found: tuple[str, str]
) -> None:
    """The best of the first n elements, a multiple of `v.width`: of each lane, then of all. `found`
    has where to begin, and gets the best and its index."""
    f, t, ids, e = v.f, v.type(d), v.type(I64), element(d)
    f.store(t, v.splat(f.load(e, found[0], 8), d), lanes[0], 64)
    f.store(ids, "zeroinitializer", lanes[1], 64)
    count = "<" + ", ".join(f"i64 {q}" for q in range(v.width)) + ">"
    with f.loop(0, n, v.width) as i:
        at = f.op(f"add {ids} {v.splat(str(i), I64)}, {count}")
        _challenge(v, d, read(v, p, i), at, *lanes)
    one, values = Lanes(f, v.target, 1), [f.load(t, lanes[0], 64), f.load(ids, lanes[1], 64)]
    new, old, new_at, old_at = input_(0, d), input_(1, d), input_(2, I64), input_(3, I64)
    for q in range(v.width):
        x, at = (f.op(f"extractelement {k} {y}, i64 {q}") for k, y in zip((t, ids), values))
        best, where = f.load(e, found[0], 8), f.load("i64", found[1], 8)
        ins = [x, best, at, where]
        more, same, before = one.evaluate([new > old, eq(new, old), new_at < old_at], ins)
        first = f.op(f"and i1 {same}, {before}")
        wins = f.op(f"or i1 {more}, {first}")
        f.store(e, one.choose(wins, d, x, best), found[0], 8)
        f.store("i64", one.choose(wins, I64, at, where), found[1], 8)


def _challenge(v: Lanes, d: DType, x: str, i: Int, best: str, where: str) -> None:
    """Larger than the best, lane by lane."""
    f, t, ids = v.f, v.type(d), v.type(I64)
    align = 8 if v.width == 1 else 64
    old = f.load(t, best, align)
    wins = v.evaluate([input_(0, d) > input_(1, d)], [x, old])[0]
    f.store(t, v.choose(wins, d, x, old), best, align)
    f.store(ids, v.choose(wins, I64, str(i), f.load(ids, where, align)), where, align)
