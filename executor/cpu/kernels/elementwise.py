"""Elementwise kernels and copies: loops over the outer dims, vectors along the innermost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from executor.cpu.kernel_builder import (
    KernelBuilder,
    OperandAccess,
    lane_mask,
    load,
    maskable,
    nest,
    store,
    tail,
)
from executor.cpu.kernel_table import kernel_for
from executor.cpu.kernels.pack import transposed
from executor.cpu.llvm_text import Int, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter, divides, serial
from executor.launches import Iota, Map
from executor.memory import View, collapse
from ir.scalar.language import Scalar, cast, const, input_, nodes
from ir.types import F64, I64, Dim, DType


def lanes_for(target: Target, roots: Sequence[Scalar], views: Sequence[View]) -> int:
    """Lanes of the widest type that takes part; 1 for what has no vector form."""
    if serial(roots):
        return 1
    types = {s.dtype for s in nodes(roots)} | {v.dtype for v in views}
    return min((target.lanes(d) for d in types), default=1)


def order(views: Sequence[View], shape: Sequence[Dim]) -> list[int]:
    """Axes from the outermost: the results decide which axis is walked innermost."""
    axes = list(range(len(shape)))
    unit = [a for a in axes if shape[a] != 1 and all(v.strides[a] == 1 for v in views)]
    if unit and unit[-1] != axes[-1]:
        axes.remove(unit[-1])
        axes.append(unit[-1])
    return axes


@dataclass(frozen=True)
class Transposition:
    """A copy whose source lies along `axis` and whose result along the last one; pairs of floats
    are moved as one element, of `dtype`."""

    dtype: DType
    dims: list[Dim]
    strides: list[list[Dim]]
    axis: int


def transposition(target: Target, m: Map) -> Transposition | None:
    """Match a copy, or a function of one operand, that reads across the lines of memory; None for
    any other launch."""
    if len(m.ins) != 1 or len(m.roots) != 1 or serial(m.roots):
        return None
    plain = m.roots[0].op == "input"
    if not plain and any(s.dtype.size > m.ins[0].dtype.size for s in nodes(m.roots)):
        return None
    views, d = (*m.ins, *m.outs), m.outs[0].dtype
    if m.ins[0].dtype != d or d.storage != d or d.size not in (4, 8):
        return None
    axes = order(m.outs, m.shape)
    dims, strides = collapse(
        [m.shape[a] for a in axes], [[v.strides[a] for a in axes] for v in views]
    )
    flat = [s for row in strides for s in row[:-1]]
    if (
        plain
        and d.size == 4
        and dims[-1:] == [2]
        and all(isinstance(s, int) and s % 2 == 0 for s in flat)
    ):
        if all(row[-1] == 1 for row in strides):
            halves = [[s // 2 for s in row[:-1]] for row in strides]  # type: ignore[operator]
            d, (dims, strides) = F64, collapse(dims[:-1], halves)
    if len(dims) < 2 or strides[1][-1] != 1 or strides[0][-1] in (0, 1):
        return None
    found = [a for a, s in enumerate(strides[0]) if s == 1]
    least = target.lanes(d)
    wide = all(not isinstance(dims[a], int) or dims[a] >= least for a in (*found, -1))  # type: ignore[operator]
    return Transposition(d, dims, strides, found[0]) if found and wide else None


@kernel_for(Map, when=lambda target, m: transposition(target, m) is not None)
def transposing_kernel(target: Target, module: LlvmModule, m: Map) -> KernelBuilder:
    """Square blocks, transposed in registers."""
    t = transposition(target, m)
    assert t is not None
    call = KernelBuilder(target)
    f, d, e, at = call.f, t.dtype, element(t.dtype), t.axis
    pointers = [call.pointer(v) for v in (*m.ins, *m.outs)]
    n = [call.number(q) for q in t.dims]
    steps = [[call.number(s) for s in row] for row in t.strides]
    rows, columns, across, down = n[at], n[-1], steps[0][-1], steps[1][at]
    v, one = VectorEmitter(f, target, target.lanes(d)), VectorEmitter(f, target, 1)

    def result(w: VectorEmitter, x: str) -> str:
        return w.evaluate(m.roots, [x])[0] if m.roots[0].op != "input" else x

    def single(source: str, to: str, i: Int, j: Int) -> None:
        x = load(one, OperandAccess(f.at(source, f.add(f.mul(j, across), i), e), d, 1), 0)
        store(one, OperandAccess(f.at(to, f.add(f.mul(i, down), j), e), d, 1), 0, result(one, x))

    def body(offsets: list[Int]) -> None:
        source, to = (f.at(p, o, e) for p, o in zip(pointers, offsets))
        high, wide = f.floor_to(rows, v.width), f.floor_to(columns, v.width)
        with f.loop(0, wide, v.width) as j, f.loop(0, high, v.width) as i:
            corner = f.at(source, f.add(f.mul(j, across), i), e)
            lines = [f.at(corner, f.mul(q, across), e) for q in range(v.width)]
            block = transposed(v, d, [load(v, OperandAccess(q, d, 1), 0) for q in lines])
            for q, x in enumerate(block):
                place = f.at(to, f.add(f.mul(f.add(i, q), down), j), e)
                store(v, OperandAccess(place, d, 1), 0, result(v, x))
        with f.loop(high, rows) as i, f.loop(0, columns) as j:
            single(source, to, i, j)
        with f.loop(0, high) as i, f.loop(wide, columns) as j:
            single(source, to, i, j)

    outer = [a for a in range(len(n) - 1) if a != at]
    nest(f, [n[a] for a in outer], [[row[a] for a in outer] for row in steps], body)
    return call


@kernel_for(Map)
def map_kernel(target: Target, module: LlvmModule, m: Map) -> KernelBuilder:
    """It returns 1 for a division by zero."""
    views = [*m.ins, *m.outs]
    axes = order(m.outs, m.shape)
    dims, strides = collapse(
        [m.shape[a] for a in axes], [[v.strides[a] for a in axes] for v in views]
    )
    if not dims:
        dims, strides = [1], [[1] for _ in views]
    width = 1 if dims == [1] else lanes_for(target, m.roots, views)
    dims, strides = along_lines(dims, strides, len(m.ins), width)
    call = KernelBuilder(target)
    f = call.f
    pointers = [call.pointer(v) for v in views]
    n = [call.number(d) for d in dims]
    steps = [[call.number(s) for s in row] for row in strides]
    for own, found in zip(steps, strides):
        own[-1] = 2 if found[-1] == 2 else own[-1]
    failed = ""
    if divides(m.roots):
        failed = f.alloca("i64")
        f.store("i64", "0", failed, 8)

    def inner(offsets: list[Int]) -> None:
        places = [
            OperandAccess(OperandAccess(p, v.dtype, 1).at(f, o), v.dtype, row[-1])
            for p, v, o, row in zip(pointers, views, offsets, steps)
        ]
        ins, outs = places[: len(m.ins)], places[len(m.ins) :]
        row(VectorEmitter(f, target, width, failed), m.roots, ins, outs, n[-1], dims[-1])

    nest(f, n[:-1], [row[:-1] for row in steps], inner)
    if failed:
        call.result = f.load("i64", failed, 8)
    return call


def along_lines(
    dims: list[Dim], strides: list[list[Dim]], ins: int, width: int
) -> tuple[list[Dim], list[list[Dim]]]:
    """Walk another dim innermost, where the last one is shorter than a vector and an operand lies
    along the other: a shuffle of pixels reads lines and writes every second element."""
    last = dims[-1]
    if not isinstance(last, int) or last >= width or all(row[-1] in (0, 1) for row in strides):
        return dims, strides
    long = [a for a, d in enumerate(dims[:-1]) if not isinstance(d, int) or d >= width]
    found = [a for a in long if any(row[a] == 1 for row in strides[:ins])]
    if not found:
        return dims, strides
    axes = [*(a for a in range(len(dims)) if a != found[-1]), found[-1]]
    return [dims[a] for a in axes], [[row[a] for a in axes] for row in strides]


def row(
    v: VectorEmitter,
    roots: Sequence[Scalar],
    ins: Sequence[OperandAccess],
    outs: Sequence[OperandAccess],
    n: Int,
    length: Dim,
) -> None:
    """`n` elements along the innermost dim; code that `length`, what is known of n, makes dead
    is left out."""
    f, w = v.f, v.width
    known = length if isinstance(length, int) else None
    done: Int = 0
    if w > 1 and (known is None or known >= w):
        fixed = _invariant(v, ins)
        done = f.floor_to(n, w)
        with f.loop(0, done, w) as i:
            _vector(v, roots, ins, outs, i, fixed)
    if w > 1 and multiple(length, w):
        return
    if w > 1 and maskable(v.target, [*ins, *outs]):
        with tail(f, done, n):
            mask = lane_mask(v, f.sub(n, done))
            _vector(v, roots, ins, outs, done, _invariant(v, ins), mask)
        return
    one = VectorEmitter(f, v.target, 1, v.failed)
    fixed = _invariant(one, ins)
    with f.loop(done, n) as i:
        _vector(one, roots, ins, outs, i, fixed)


def multiple(d: Dim, of: int) -> bool:
    """Whether a dim is a multiple whatever the named sizes are."""
    return d % of == 0 if isinstance(d, int) else all(k % of == 0 for _, k in d.terms)


def _invariant(v: VectorEmitter, ins: Sequence[OperandAccess]) -> dict[OperandAccess, str]:
    return {p: load(v, p, 0) for p in ins if p.stride == 0}


def _vector(
    v: VectorEmitter,
    roots: Sequence[Scalar],
    ins: Sequence[OperandAccess],
    outs: Sequence[OperandAccess],
    i: Int,
    fixed: dict[OperandAccess, str],
    mask: str = "",
) -> None:
    values = [fixed[p] if p in fixed else load(v, p, i, mask) for p in ins]
    for p, value in zip(outs, v.evaluate(roots, values)):
        store(v, p, i, value, mask)


@kernel_for(Iota)
def iota_kernel(target: Target, module: LlvmModule, m: Iota) -> KernelBuilder:
    """One element at a time: iotas are short or rare."""
    call = KernelBuilder(target)
    f = call.f
    pointer, n = call.pointer(m.out), call.number(m.out.shape[0])
    stride = call.number(m.out.strides[0])
    wide = I64 if isinstance(m.start, int) and isinstance(m.step, int) else F64
    index = cast(input_(0, I64), wide)
    root = cast(index * const(m.step, wide) + const(m.start, wide), m.out.dtype)
    v = VectorEmitter(f, target, 1)
    with f.loop(0, n) as i:
        value = v.evaluate([root], [str(i)])[0]
        store(v, OperandAccess(pointer, m.out.dtype, stride), i, value)
    return call
