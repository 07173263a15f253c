"""Legalization for the CPU: right matrices are packed into panels, and scratch is allocated.

The right matrix of a product that stays the same in a loop is packed once, before the outermost
such loop; where that loop is inside of a branch, only if the branch runs. All other products pack
one panel after the other, but for those that read the matrix as it lies. A contraction becomes
products of rows, and a convolution is summed up in parts that fit the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from executor.cpu.fusion import fused
from executor.cpu.kernel_table import matching
from executor.cpu.kernels.fourier import size_of_scratch
from executor.cpu.kernels.gemm import columns, depth
from executor.cpu.launches import LaneFourier, Pack, PackedGemm, PanelConv, PanelGemm
from executor.cpu.target import Target
from executor.cpu.tiling import tiled
from executor.launches import (
    Branch,
    Contract,
    Conv,
    Dots,
    Fourier,
    Gemm,
    Index,
    Launch,
    Loop,
    Map,
    When,
    blocks,
    results,
    with_blocks,
)
from executor.memory import Buffer, Element, View, collapse, whole
from executor.plan.trip_counts import ranges_of
from ir.analysis.ranges import Range, natural_bound
from ir.layout import contiguous
from ir.scalar import language as k
from ir.types import Dim, DType, Size, Type, product

#: bytes of a vector of transforms: their scratch shall stay in the nearest caches
MOST_SIDE_BY_SIDE = 32


def legalize(target: Target, launches: Sequence[Launch]) -> tuple[Launch, ...]:
    return _Legalizer(target).block(tiled(fused(target, launches)))


@dataclass(frozen=True)
class _Changes:
    """The buffers that a block of launches writes, and the symbols that it binds."""

    written: frozenset[Buffer]
    bound: frozenset[str]

    def touch(self, v: View, every: bool = False) -> bool:
        """`every`: what is asked for is the same part of each element of an array."""
        names = (d.names for d in (v.offset, *v.shape, *v.strides) if isinstance(d, Size))
        if not self.bound.isdisjoint(frozenset().union(*names)):
            return True
        if not isinstance(v.buffer, Element):
            return v.buffer in self.written
        array = v.buffer.array
        if any(map(self.touch, (array.addresses, *array.views))):
            return True
        return not every and self.picks(v.buffer)

    def picks(self, b: Element) -> bool:
        return isinstance(b.at, Size) and not self.bound.isdisjoint(b.at.names)


@dataclass
class _LegalizedBlock:
    """A block that is being made; `loop`: what changes in it, if it is the body of a loop.

    `packed` are matrices packed in it, by their buffer.
    """

    loop: _Changes | None = None
    launches: list[Launch] = field(default_factory=list)
    packed: dict[Buffer, dict[tuple[View, int], View]] = field(default_factory=dict)


class _Legalizer:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.scopes: list[_LegalizedBlock] = []
        self.changes: dict[Launch, _Changes] = {}
        self.ranges: dict[str, Range] = {}
        self.symbols = 0

    def block(self, launches: Sequence[Launch], loop: _Changes | None = None) -> tuple[Launch, ...]:
        self.scopes.append(_LegalizedBlock(loop))
        for x in launches:
            self.launch(x)
        return tuple(self.scopes.pop().launches)

    def emit(self, x: Launch) -> None:
        self.scopes[-1].launches.append(x)

    def launch(self, x: Launch) -> None:
        FORMS.get(type(x), _Legalizer.emit)(self, x)
        self.forget(v.buffer for v in results(x))

    def choice(self, x: When | Branch) -> None:
        self.emit(with_blocks(x, self.block))

    def loop(self, x: Loop) -> None:
        trip = x.trip if x.most is None else x.most
        self.ranges[x.index], counted = ranges_of(trip, self.ranges.get)
        changes = self.changes_in(x)
        self.forget(changes.written)
        self.emit(replace(x, body=self.block(x.body, changes)))
        if x.count:
            self.ranges[x.count] = counted

    # ------------------------------------------------------------ what changes
    def changes_in(self, x: Launch) -> _Changes:
        """In all blocks inside of a launch, and by the launch itself."""
        if x in self.changes:
            return self.changes[x]
        inner = [self.changes_in(q) for inside in blocks(x) for q in inside]
        written = {v.buffer for v in results(x)}
        names: set[str] = set()
        if isinstance(x, Loop):
            names = {x.index, x.parity, x.after, x.count}
        elif isinstance(x, Index):
            names = {x.symbol}
        found = _Changes(
            frozenset(written.union(*(q.written for q in inner))),
            frozenset(names.union(*(q.bound for q in inner))),
        )
        if blocks(x):
            self.changes[x] = found
        return found

    def forget(self, written: Iterable[Buffer]) -> None:
        for b in written:
            for scope in self.scopes:
                scope.packed.pop(b, None)

    def constant_in(self, y: View) -> int | None:
        """The number of the scope around the outermost loop in which `y` stays the same, or in
        which an inner loop picks it from an array that stays the same."""
        for at, scope in enumerate(self.scopes):
            if scope.loop is None:
                continue
            inner = (q.loop for q in self.scopes[at + 1 :] if q.loop is not None)
            every = isinstance(y.buffer, Element) and any(q.picks(y.buffer) for q in inner)
            if not scope.loop.touch(y, every):
                return at - 1
        return None

    # ------------------------------------------------------------ memory
    def arena(self, elements: Dim, dtype: DType) -> Buffer:
        at_most = natural_bound(elements, self.ranges.get)
        assert at_most is not None, "an operand of this size has no memory either"
        return Buffer("arena", 0, at_most * dtype.size)

    def scratch(self, dtype: DType, *shape: Dim) -> View:
        return whole(self.arena(product(shape), dtype), Type(dtype, shape))

    # ------------------------------------------------------------ products
    def gemm(self, g: Gemm) -> None:
        if g.x.shape[-1] == 1 and g.initial is None and g.c.dtype.compute == g.c.dtype:
            self.emit(_outer(g))
            return
        width = columns(self.target, g.y.dtype, *g.c.shape[-2:])
        at = self.constant_in(g.y)
        if at is not None:
            loop = self.scopes[at + 1].loop
            panels = self.panels(self.scopes[at], g.y, width, loop is not None and loop.touch(g.y))
            self.emit(PackedGemm(g.c, g.x, panels, g.initial, width))
        elif matching(self.target, g) is not None:
            self.emit(g)
        else:
            room = self.scratch(g.y.dtype, g.y.shape[-2], width)
            self.emit(PanelGemm(g.c, g.x, g.y, g.initial, width, room))

    def panels(self, scope: _LegalizedBlock, y: View, width: int, every: bool) -> View:
        """Panels of `y`, packed in `scope` or before; what is broadcast is packed once. `every`: so
        is the same part of the other elements of its array."""
        once = y
        for axis in reversed(range(y.ndim - 2)):
            if y.shape[axis] == 1 or y.strides[axis] == 0:
                once = once.index(axis, 0)
        for s in self.scopes:
            if (once, width) in s.packed.get(y.buffer, {}):
                found = s.packed[y.buffer][once, width]
                break
        else:
            found = self.pack(scope, once, width, every)
        for axis in range(y.ndim - 2):
            if y.shape[axis] == 1 or y.strides[axis] == 0:
                found = found.insert(axis)
        return found.expand(y.shape)

    def pack(self, scope: _LegalizedBlock, y: View, width: int, every: bool) -> View:
        batch, (rows, n) = y.shape[:-2], y.shape[-2:]
        wide = -(-n // width) * width if isinstance(n, int) else n + (width - 1)
        size = product(batch) * rows * wide
        strides = (*(s * rows * wide for s in contiguous(batch)), width, 1)
        if every and isinstance(y.buffer, Element):
            out = self.pack_all(scope, y, y.buffer, width, size, strides)
        else:
            out = View(self.arena(size, y.dtype), y.dtype, 0, y.shape, strides)
            scope.launches.append(Pack(out, y, width))
        scope.packed.setdefault(y.buffer, {})[y, width] = out
        return out

    def pack_all(
        self,
        scope: _LegalizedBlock,
        y: View,
        of: Element,
        width: int,
        size: Dim,
        strides: tuple[Dim, ...],
    ) -> View:
        """Pack the same part of all elements of an array; the panels of the one that is picked."""
        count = len(of.array.views)
        all_ = self.arena(count * size, y.dtype)
        every = View(all_, y.dtype, 0, (count, *y.shape), (size, *strides))

        def one(at: Size) -> Launch:
            return Pack(every.index(0, at), replace(y, buffer=replace(of, at=at)), width)

        scope.launches.append(self.nest([count], one))
        return every.index(0, of.at)

    def contract(self, x: Contract) -> None:
        """One product for all rows that lie alike; a long row is summed up in parts."""
        _require_sums_in(x.out)
        dims, (a, b) = collapse(x.x.shape[2:], (x.x.strides[2:], x.y.strides[1:-1]))
        dims, a, b = _cut(x.out.dtype, dims or [1], a or [0], b or [0])
        left = replace(x.x, shape=(*x.x.shape[:2], *dims), strides=(*x.x.strides[:2], *a))
        shape, strides = (x.y.shape[0], *dims, x.y.shape[-1]), (x.y.strides[0], *b, x.y.strides[-1])
        right = replace(x.y, shape=shape, strides=strides)
        if len(dims) == 1:
            self.gemm(Gemm(left, right, x.out, None))
            return
        self.emit(_zeros(x.out))

        def row(*at: Size) -> Launch:
            rows, sides = left, right
            for q in at:
                rows, sides = rows.index(2, q), sides.index(1, q)
            return Gemm(rows, sides, x.out, x.out)

        self.launch(self.nest(dims[:-1], row))

    def nest(self, dims: Sequence[Dim], body: Callable[..., Launch]) -> Launch:
        """Return a nest of loops over `dims` around the launch that `body` makes of their
        indices."""
        names = [self.symbol() for _ in dims]
        inner = body(*map(Size.named, names))
        for name, d in reversed(list(zip(names, dims))):
            inner = Loop(name, f"{name}.p", f"{name}.q", d, (inner,))
        return inner

    def symbol(self) -> str:
        self.symbols += 1
        return f"#k{self.symbols}"

    def dots(self, x: Dots) -> None:
        _require_sums_in(x.y)
        self.emit(x)

    # ------------------------------------------------------------ convolutions
    def conv(self, c: Conv) -> None:
        _require_sums_in(c.out)
        filters, dtype = c.w.shape[1], c.x.dtype
        width = columns(self.target, dtype, filters, product(c.out.shape[3:]))
        channels, lines = parts(dtype, c.w)
        rows = product((channels, lines, c.w.shape[4]))
        left, panel = self.scratch(dtype, filters, rows), self.scratch(dtype, rows, width)
        nothing = product(c.w.shape[2:])
        if not isinstance(nothing, int):
            self.emit(When(nothing, "eq", (_zeros(c.out),)))
        sums = (c.stride, c.before, c.dilation, left, panel, width, channels, lines)
        self.emit(PanelConv(c.out, c.x, c.w, *sums))

    # ------------------------------------------------------------ transforms
    def fourier(self, x: Fourier) -> None:
        width = min(self.target.lanes(x.x.dtype), MOST_SIDE_BY_SIDE // x.x.dtype.size)
        room = self.scratch(x.x.dtype, size_of_scratch(x.n, width))
        self.emit(LaneFourier(width=width, scratch=room, **vars(x)))


#: how the kinds of launch that have another form on the CPU get it
FORMS: dict[type[Launch], Callable[[_Legalizer, Any], None]] = {
    Gemm: _Legalizer.gemm,
    Contract: _Legalizer.contract,
    Conv: _Legalizer.conv,
    Fourier: _Legalizer.fourier,
    Dots: _Legalizer.dots,
    Loop: _Legalizer.loop,
    When: _Legalizer.choice,
    Branch: _Legalizer.choice,
}


def parts(dtype: DType, w: View) -> tuple[int, int]:
    """Return the numbers of channels and of lines of taps that are summed at a time."""
    filters, channels, lines, taps = w.shape[1:]
    longest = depth(dtype, filters)
    if not isinstance(taps, int):
        return 1, 1
    if not isinstance(lines, int) or lines * taps > longest:
        return 1, max(1, longest // max(taps, 1))
    some = max(1, longest // max(lines * taps, 1))
    if not isinstance(channels, int):
        return some, lines
    return -(-channels // max(-(-channels // some), 1)), lines


def _cut(
    dtype: DType, dims: list[Dim], a: list[Dim], b: list[Dim]
) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """A long row in parts of equal length, if it has such."""
    n, longest = dims[-1], depth(dtype, 1)
    if not isinstance(n, int) or n <= longest:
        return dims, a, b
    length = next(d for d in range(longest, 0, -1) if n % d == 0)
    if length < longest // 4:
        return dims, a, b
    apart = (length * a[-1], length * b[-1])
    dims = [*dims[:-1], n // length, length]
    return dims, [*a[:-1], apart[0], a[-1]], [*b[:-1], apart[1], b[-1]]


def _require_sums_in(out: View) -> None:
    """Parts of a sum are added up in the result, which would round them."""
    if out.dtype.compute != out.dtype:
        raise NotImplementedError(f"cpu: sums in parts of {out.dtype}")


def _outer(g: Gemm) -> Map:
    """A product of columns with rows, of one summand each."""
    d, shape = g.c.dtype, g.c.shape
    product_ = k.input_(0, d) * k.input_(1, d)
    return Map(shape, (g.x.expand(shape), g.y.expand(shape)), (product_,), (g.c,))


def _zeros(out: View) -> Map:
    return Map(out.shape, (), (k.const(0, out.dtype),), (out,))
