"""Reductions: along contiguous elements with several vector accumulators, or a vector of results
at a time where the results lie side by side, else one element at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from executor.cpu.kernel_builder import (
    KernelBuilder,
    OperandAccess,
    lane_mask,
    load,
    maskable,
    nest,
    read,
    store,
    tail,
    write,
)
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.elementwise import lanes_for
from executor.cpu.launches import MapReduce
from executor.cpu.llvm_text import Int, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import ArgMax, Reduce
from executor.memory import collapse
from ir.opdef import Reduction as Reduction
from ir.scalar.language import cast, eq, input_
from ir.types import I64, Dim, DType

ACCUMULATORS = 4
#: lanes of the vectors of eager's sums, which take the elements behind a multiple of them one by
#: one: so do these, and short rows have eager's sums to the last bit
PACKET = 8
#: vectors of a row from which on the largest is sought in every lane
LONG = 4


@dataclass
class _Accumulator:
    """A value of `v.width` lanes in memory that `sroa` makes a register."""

    v: VectorEmitter
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

    def take(self, x: str, mask: str = "") -> None:
        old = self.value()
        r = combine(self.v, self.rule, self.dtype, old, x)
        r = self.v.choose(mask, self.dtype, r, old) if mask else r
        self.v.f.store(self.v.type(self.dtype), r, self.slot, 64)


def combine(v: VectorEmitter, rule: Reduction, dtype: DType, a: str, b: str) -> str:
    root = rule.combine(input_(0, dtype), input_(1, dtype))
    return v.evaluate([root], [a, b])[0]


def across(v: VectorEmitter, rule: Reduction, dtype: DType, x: str) -> str:
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
        x = combine(VectorEmitter(f, v.target, half), rule, dtype, *parts)
        width = half
    return x


def order(m: MapReduce) -> tuple[str, list[int], list[int]]:
    """Return the strategy of a reduction, the kept axes and the reduced axes, outermost first.

    By `rows` of elements that lie side by side, or by `columns` if results do, or one element at a
    time.
    """
    full = [*m.ins, *(v for v, rule in zip(m.outs, m.rules) if rule is None)]
    kept = [a for a in range(len(m.shape)) if a not in m.axes]
    totals = [v for v, rule in zip(m.outs, m.rules) if rule is not None]

    def close(a: int) -> bool:
        steps = {v.strides[a] for v in full}
        return m.shape[a] != 1 and 1 in steps and steps <= {0, 1}

    gone = sorted(m.axes, key=close)
    if any(map(close, gone)):
        return "rows", kept, gone
    unit = [a for k, a in enumerate(kept) if close(a) and all(v.strides[k] == 1 for v in totals)]
    if not unit:
        return "elements", kept, gone
    return "columns", [*(a for a in kept if a != unit[-1]), unit[-1]], gone


@kernel_for(Reduce)
def reduce_kernel(target: Target, module: LlvmModule, r: Reduce) -> KernelBuilder:
    return map_reduce_kernel(target, module, as_map_reduce(r))


def as_map_reduce(r: Reduce) -> MapReduce:
    root = cast(input_(0, r.x.dtype), r.x.dtype.compute)
    return MapReduce(r.x.shape, (r.x,), (root,), r.axes, (r.rule,), (r.out,))


@kernel_for(MapReduce)
def map_reduce_kernel(target: Target, module: LlvmModule, m: MapReduce) -> KernelBuilder:
    call = KernelBuilder(target)
    f = call.f
    way, kept, gone = order(m)
    views = (*m.ins, *m.outs)
    pointers = [call.pointer(v) for v in views]
    strides = [list(v.strides) for v in m.ins]
    for v, rule in zip(m.outs, m.rules):
        at = iter(v.strides)
        held = [a for a in range(len(m.shape)) if rule is None or a not in m.axes]
        strides.append([next(at) if a in held else 0 for a in range(len(m.shape))])
    outer, outer_steps = collapse(
        [m.shape[a] for a in kept], [[s[a] for a in kept] for s in strides]
    )
    inner, inner_steps = collapse(
        [m.shape[a] for a in gone], [[s[a] for a in gone] for s in strides]
    )
    n_outer, n_inner = _numbers(call, outer), _numbers(call, inner)
    by_kept = [_numbers(call, s) for s in outer_steps]
    by_gone = [_numbers(call, s) for s in inner_steps]
    width = lanes_for(target, m.roots, views)
    way = "elements" if not (inner if way == "rows" else outer) else way
    last = -1 if way == "columns" else len(outer)

    def body(offsets: list[Int]) -> None:
        starts = [
            OperandAccess(p, v.dtype, 1).at(f, o) for p, v, o in zip(pointers, views, offsets)
        ]
        if way == "columns":
            steps = [s[-1] for s in by_kept]
            places = [OperandAccess(p, v.dtype, s) for p, v, s in zip(starts, views, steps)]
            _columns(VectorEmitter(f, target, width), m, places, n_outer[-1], n_inner, by_gone)
            return
        steps = [s[-1] if s else 0 for s in by_gone]
        places = [OperandAccess(p, v.dtype, s) for p, v, s in zip(starts, views, steps)]
        v = VectorEmitter(f, target, width if way == "rows" else 1)
        _row(v, m, places, n_inner, [s[:-1] for s in by_gone])

    nest(f, n_outer[:last], [s[:last] for s in by_kept], body)
    return call


def _numbers(call: KernelBuilder, dims: list[Dim]) -> list[Int]:
    return [call.number(d) for d in dims]


class _Step:
    """The elements from one index on: they are stored, and taken by accumulators."""

    def __init__(self, v: VectorEmitter, m: MapReduce) -> None:
        self.v, self.m = v, m
        self.roots = [
            r if rule is None else cast(r, r.dtype.compute) for r, rule in zip(m.roots, m.rules)
        ]

    def accumulators(self) -> list[_Accumulator]:
        pairs = zip(self.m.rules, self.m.outs)
        found = [_Accumulator(self.v, r, o.dtype.compute) for r, o in pairs if r is not None]
        for acc in found:
            acc.start()
        return found

    def __call__(
        self,
        places: Sequence[OperandAccess],
        accs: Sequence[_Accumulator],
        i: Int,
        fixed: Mapping[int, str],
        mask: str = "",
    ) -> None:
        ins, outs = places[: len(self.m.ins)], places[len(self.m.ins) :]
        loaded = [fixed[k] if k in fixed else load(self.v, p, i, mask) for k, p in enumerate(ins)]
        todo = iter(accs)
        for x, p, rule in zip(self.v.evaluate(self.roots, loaded), outs, self.m.rules):
            if rule is None:
                store(self.v, p, i, x, mask)
            else:
                next(todo).take(x, mask)

    def fixed(self, places: Sequence[OperandAccess]) -> dict[int, str]:
        """The inputs that are the same everywhere."""
        ins = enumerate(places[: len(self.m.ins)])
        return {k: load(self.v, p, 0) for k, p in ins if p.stride == 0}


def _row(
    v: VectorEmitter,
    m: MapReduce,
    places: Sequence[OperandAccess],
    dims: list[Int],
    strides: list[list[Int]],
) -> None:
    """One result each: the elements of the last dim lie side by side."""
    f, w = v.f, v.width
    one = VectorEmitter(f, v.target, 1)
    step, single = _Step(v, m), _Step(one, m)
    full = [p for p, rule in zip(places, (*(None for _ in m.ins), *m.rules)) if rule is None]
    masked = w > PACKET and maskable(v.target, full)
    sets = [step.accumulators() for _ in range(ACCUMULATORS if w > 1 else 0)]
    lone = single.accumulators()

    def along(offsets: list[Int]) -> None:
        row = [replace(p, pointer=p.at(f, o)) for p, o in zip(places, offsets)]
        n = dims[-1] if dims else 1
        done: Int = 0
        if w > 1:
            fixed = step.fixed(row)
            blocks, done = f.floor_to(n, w * len(sets)), f.floor_to(n, w)
            with f.loop(0, blocks, w * len(sets)) as i:
                for k, accs in enumerate(sets):
                    step(row, accs, f.add(i, k * w), fixed)
            with f.loop(blocks, done, w) as i:
                step(row, sets[0], i, fixed)
        if masked:
            packets = f.floor_to(n, PACKET)
            if packets != done:
                with tail(f, done, packets):
                    step(row, sets[0], done, fixed, lane_mask(v, PACKET))
            done = packets
        fixed = single.fixed(row)
        with f.loop(done, n) as i:
            single(row, lone, i, fixed)

    nest(f, dims[:-1], strides, along)
    results = [p for p, rule in zip(places[len(m.ins) :], m.rules) if rule is not None]
    for k, p in enumerate(results):
        parts = [accs[k] for accs in sets]
        d = p.dtype.compute
        rule, found = lone[k].rule, []
        if parts:
            total = parts[0].value()
            for acc in parts[1:]:
                total = combine(v, rule, d, total, acc.value())
            found.append(across(v, rule, d, total))
        found.append(lone[k].value())
        write(one, p, 0, found[0] if len(found) == 1 else combine(one, rule, d, *found))


def _columns(
    v: VectorEmitter,
    m: MapReduce,
    places: Sequence[OperandAccess],
    n: Int,
    dims: list[Int],
    strides: list[list[Int]],
) -> None:
    """`n` results side by side, a few vectors at a time."""
    f, w = v.f, v.width
    results = [p for p, rule in zip(places[len(m.ins) :], m.rules) if rule is not None]

    def block(lanes: VectorEmitter, count: int, at: Int, mask: str = "") -> None:
        step = _Step(lanes, m)
        sets = [step.accumulators() for _ in range(count)]

        def take(offsets: list[Int]) -> None:
            row = [replace(p, pointer=p.at(f, o)) for p, o in zip(places, offsets)]
            fixed = step.fixed(row)
            for k, accs in enumerate(sets):
                step(row, accs, f.add(at, k * w), fixed, mask)

        nest(f, dims, strides, take)
        for k, accs in enumerate(sets):
            for p, acc in zip(results, accs):
                write(lanes, p, f.add(at, k * w), acc.value(), mask)

    blocks, whole = f.floor_to(n, w * ACCUMULATORS), f.floor_to(n, w)
    if w > 1:
        with f.loop(0, blocks, w * ACCUMULATORS) as i:
            block(v, ACCUMULATORS, i)
        with f.loop(blocks, whole, w) as i:
            block(v, 1, i)
        if maskable(v.target, places):
            with tail(f, whole, n):
                block(v, 1, whole, lane_mask(v, f.sub(n, whole)))
            return
    with f.loop(whole if w > 1 else 0, n) as i:
        block(VectorEmitter(f, v.target, 1), 1, i)


@kernel_for(ArgMax)
def argmax_kernel(target: Target, module: LlvmModule, r: ArgMax) -> KernelBuilder:
    call = KernelBuilder(target)
    f, v = call.f, VectorEmitter(call.f, target, 1)
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
    length, wide = r.x.shape[r.axis], VectorEmitter(f, target, target.lanes(d))
    long = isinstance(length, int) and length >= LONG * wide.width and r.x.dtype.size >= 4
    lanes = (f.alloca(wide.type(d), 64), f.alloca(wide.type(I64), 64))

    def body(offsets: list[Int]) -> None:
        p = OperandAccess(OperandAccess(x, r.x.dtype, 1).at(f, offsets[0]), r.x.dtype, step)
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
        place = OperandAccess(OperandAccess(out, r.out.dtype, 1).at(f, offsets[1]), r.out.dtype, 1)
        store(v, place, 0, short)

    nest(f, n_outer, [xs_, os_], body)
    return call


def _side_by_side(
    v: VectorEmitter,
    d: DType,
    p: OperandAccess,
    n: Int,
    lanes: tuple[str, str],
    found: tuple[str, str],
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
    one, values = (
        VectorEmitter(f, v.target, 1),
        [f.load(t, lanes[0], 64), f.load(ids, lanes[1], 64)],
    )
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


def _challenge(v: VectorEmitter, d: DType, x: str, i: Int, best: str, where: str) -> None:
    """Larger than the best, lane by lane."""
    f, t, ids = v.f, v.type(d), v.type(I64)
    align = 8 if v.width == 1 else 64
    old = f.load(t, best, align)
    wins = v.evaluate([input_(0, d) > input_(1, d)], [x, old])[0]
    f.store(t, v.choose(wins, d, x, old), best, align)
    f.store(ids, v.choose(wins, I64, str(i), f.load(ids, where, align)), where, align)
