"""Windows that slide over the pixels of a plane, as launches on strided views.

The results of a plane are cut into regions in which the same taps of a window meet a pixel. Each
region is one map of the views that its taps see; where there are many, a few at a time, and where
there are more, in a loop over the taps. A plane that is copied into a frame, with as many pixels
around it as its windows reach beyond the edges, is one region; so is every plane of named sizes.
All planes are loops around it, so that one plane stays in the cache. There are as many launches for
large planes as for small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import NamedTuple

from executor.launches import Launch, Loop, Map
from executor.lowering.lowerer import Lowerer
from executor.memory import View
from ir.scalar import language as k
from ir.types import Dim, DType, Size, Type

#: taps that one map joins at most
TAPS = 16
#: taps of a window with launches of their own at most; more are a loop
UNROLLED = 64


class PixelSpan(NamedTuple):
    """Windows, or pixels, side by side."""

    start: int
    length: Dim


@dataclass(frozen=True)
class Axis:
    """`windows` windows of `taps` taps over `pixels` pixels. The padding of an axis of named size
    is not negative."""

    pixels: Dim
    windows: Dim
    taps: int
    stride: int
    padding: tuple[int, int]
    dilation: int = 1

    @property
    def named(self) -> bool:
        return isinstance(self.pixels, Size) or isinstance(self.windows, Size)

    @property
    def fixed(self) -> tuple[int, int]:
        """The pixels and the windows, where they are numbers."""
        assert isinstance(self.pixels, int) and isinstance(self.windows, int)
        return self.pixels, self.windows

    def met(self, window: int) -> range:
        """The taps of a window that meet a pixel."""
        first = window * self.stride - self.padding[0]
        low = min(max(0, -(first // self.dilation)), self.taps)
        high = min(-((first - self.fixed[0]) // self.dilation), self.taps)
        return range(low, max(low, high))

    @property
    def extent(self) -> Dim:
        """Pixels from the first to the last that a tap of some window meets, beyond the edges as
        well. Of an axis of named size, all pixels, with the padding."""
        if self.named:
            return self.pixels + sum(self.padding)
        return (self.windows - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def within(self) -> PixelSpan:
        """The pixels of the extent."""
        if self.named:
            return PixelSpan(0, self.pixels)
        low, extent = max(0, -self.padding[0]), self.extent
        assert isinstance(extent, int)
        return PixelSpan(low, max(0, min(self.fixed[0], extent - self.padding[0]) - low))

    def place(self, window: int, tap: Dim) -> Dim:
        return window * self.stride + tap * self.dilation - self.padding[0]

    def meeting(self, tap: int) -> PixelSpan:
        """The windows in which a tap meets a pixel."""
        if self.named:
            return self.every
        found = [q for q in range(self.fixed[1]) if tap in self.met(q)]
        return PixelSpan(found[0], found[-1] + 1 - found[0]) if found else PixelSpan(0, 0)

    @property
    def every(self) -> PixelSpan:
        """All windows; those of a named number have a pixel for each tap: the plane is padded."""
        assert not (self.named and any(self.padding)), "a plane of named size without room"
        return PixelSpan(0, self.windows)

    def regions(self) -> Iterator[tuple[PixelSpan, range]]:
        """Windows side by side, and the taps that all of them meet a pixel with."""
        if self.named:
            yield self.every, range(self.taps)
            return
        for taps, group in groupby(range(self.fixed[1]), self.met):
            found = list(group)
            yield PixelSpan(found[0], found[-1] + 1 - found[0]), taps

    def seen(self, plane: View, axis: int, tap: Dim, windows: PixelSpan) -> View:
        """The pixels that a tap of some windows meets."""
        return plane.slice(axis, self.place(windows.start, tap), windows.length, self.stride)

    @property
    def reaches_beyond(self) -> bool:
        """Whether some tap of some window meets no pixel."""
        if self.named:
            return self.padding != (0, 0)
        beyond = self.extent - self.padding[0] - self.pixels
        assert isinstance(beyond, int)
        return self.padding[0] > 0 or beyond > 0


def part(plane: View, ys: PixelSpan, xs: PixelSpan) -> View:
    return plane.slice(0, *ys).slice(1, *xs)


def reach_beyond(axes: Sequence[Axis]) -> bool:
    return any(a.reaches_beyond for a in axes)


@dataclass(frozen=True)
class PaddedPlane:
    """Room for a plane and for what its windows meet beyond its edges, if they do: there every tap
    of every window meets something. `axes` are those of the plane."""

    axes: Sequence[Axis]
    room: View | None

    @property
    def own(self) -> Sequence[Axis]:
        """The windows over the room."""
        if self.room is None:
            return self.axes
        return [replace(a, pixels=a.extent, padding=(0, 0)) for a in self.axes]

    def inside(self, room: View) -> View:
        """The pixels of the plane that windows meet, in the room."""
        ys, xs = (PixelSpan(a.within.start + a.padding[0], a.within.length) for a in self.axes)
        return part(room, ys, xs)

    def _met(self, plane: View) -> View:
        """The same pixels in the plane."""
        down, across = self.axes
        return part(plane, down.within, across.within)

    def entered(self, plane: View) -> tuple[View, list[Launch]]:
        """The plane as the windows see it, and launches that copy it into the room."""
        if self.room is None:
            return plane, []
        return self.room, [copy(self._met(plane), self.inside(self.room))]

    def cleared(self, plane: View) -> tuple[View, list[Launch]]:
        """Return the plane to which windows add, and launches that fill it with zeros; also the
        pixels that no window meets."""
        if self.room is None:
            return plane, [fill(plane, 0.0)]
        return self.room, [fill(plane, 0.0), fill(self.room, 0.0)]

    def left(self, plane: View) -> list[Launch]:
        """Launches that copy the room into a plane."""
        if self.room is None:
            return []
        return [copy(self.inside(self.room), self._met(plane))]


def copy(source: View, to: View) -> Map:
    return Map(to.shape, (source,), (k.input_(0, source.dtype),), (to,))


def fill(out: View, value: float | bool) -> Map:
    return Map(out.shape, (), (k.const(value, out.dtype),), (out,))


def frame(low: Lowerer, axes: Sequence[Axis], dtype: DType, value: float) -> PaddedPlane:
    """A frame with `value` all around the plane."""
    if not reach_beyond(axes):
        return PaddedPlane(axes, None)
    room = low.temporary(Type(dtype, tuple(a.extent for a in axes)))
    low.emit(fill(room, value))
    return PaddedPlane(axes, room)


Term = Callable[..., k.Scalar]


@dataclass(frozen=True)
class _Region:
    """Windows `ys` x `xs`, whose results lie in `out`, and how their taps are joined."""

    planes: Sequence[View]
    out: View
    axes: Sequence[Axis]
    ys: PixelSpan
    xs: PixelSpan
    start: float
    term: Term
    weights: View | None

    def joined(self, taps: Sequence[tuple[Dim, Dim]], new: bool) -> Map:
        """A map that joins some taps to the results, or to `start` for `new` ones."""
        down, across = self.axes
        views = [] if new else [self.out]
        dtype = self.out.dtype
        total = k.const(self.start, dtype) if new else k.input_(0, dtype)
        for i, j in taps:
            more = [across.seen(down.seen(v, 0, i, self.ys), 1, j, self.xs) for v in self.planes]
            if self.weights is not None:
                more.append(self.weights.index(0, i).index(0, j).expand(self.out.shape))
            parts = range(len(views), len(views) + len(more))
            total = self.term(total, *(k.input_(p, dtype) for p in parts))
            views += more
        return Map(self.out.shape, tuple(views), (total,), (self.out,))

    def unrolled(self, above: range, beside: range) -> Iterator[Launch]:
        taps = list(product(above, beside))
        for at in range(0, max(len(taps), 1), TAPS):
            yield self.joined(taps[at : at + TAPS], at == 0)

    def looped(self, low: Lowerer, above: range, beside: range) -> Iterator[Launch]:
        """Lines of taps in a loop, and in it as many taps as one map joins."""
        i, j = low.symbol("i"), low.symbol("i")
        line = Size.named(i) + above.start
        whole = len(beside) // TAPS
        rest = [(line, q) for q in beside[whole * TAPS :]]
        some = [(line, Size.named(j) * TAPS + q) for q in beside[:TAPS]]
        body: list[Launch] = [loop(low, j, whole, [self.joined(some, False)])] if whole else []
        body += [self.joined(rest, False)] if rest else []
        yield self.joined([], True)
        yield loop(low, i, len(above), body)


def folded(
    low: Lowerer,
    planes: Sequence[View],
    out: View,
    axes: Sequence[Axis],
    start: float,
    term: Term,
    weights: View | None = None,
) -> tuple[Launch, ...]:
    """Launches that make every element of `out` `term(... term(start, pixel), pixel)` over the taps
    of its window in order. The term gets the pixels of all planes, which have the same windows, and
    the weight of the tap, if there are weights."""
    down, across = axes
    launches: list[Launch] = []
    for (ys, above), (xs, beside) in product(down.regions(), across.regions()):
        region = _Region(planes, part(out, ys, xs), axes, ys, xs, start, term, weights)
        if len(above) * len(beside) > UNROLLED:
            launches += region.looped(low, above, beside)
        else:
            launches += region.unrolled(above, beside)
    return tuple(launches)


def loop(low: Lowerer, index: str, trip: Dim, body: Sequence[Launch]) -> Loop:
    return Loop(index, low.symbol("p"), low.symbol("q"), trip, tuple(body))


def each_plane(low: Lowerer, dims: Sequence[Dim], body: Callable[..., tuple[Launch, ...]]) -> None:
    """Emit what `body` gives for an index along each of `dims`."""
    names = [low.symbol("i") for _ in dims]
    launches = body(*map(Size.named, names))
    for name, d in reversed(list(zip(names, dims))):
        launches = (loop(low, name, d, launches),)
    for launch in launches:
        low.emit(launch)
