"""Windows that slide over the pixels of a plane, as launches on strided views.

The results of a plane are cut into regions in which the same taps of a window meet a pixel. Each
region is one map of the views that its taps see; where there are many, a few at a time. All planes
are loops around it, so that one plane stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from executor.launches import Launch, Loop, Map
from executor.lower.lowerer import Lowerer
from executor.memory import View
from ir.scalar import language as k
from ir.types import Dim, Size

#: taps that one map joins at most
TAPS = 16


@dataclass(frozen=True)
class Axis:
    """`windows` windows of `taps` taps over `pixels` pixels."""

    pixels: int
    windows: int
    taps: int
    stride: int
    padding: tuple[int, int]
    dilation: int = 1

    def met(self, window: int) -> range:
        """The taps of a window that meet a pixel."""
        first = self.place(window, 0)
        low = min(max(0, -(first // self.dilation)), self.taps)
        high = min(-((first - self.pixels) // self.dilation), self.taps)
        return range(low, max(low, high))

    def place(self, window: int, tap: int) -> int:
        return window * self.stride + tap * self.dilation - self.padding[0]

    def meeting(self, tap: int) -> range:
        """The windows in which a tap meets a pixel."""
        found = [q for q in range(self.windows) if tap in self.met(q)]
        return range(found[0], found[-1] + 1) if found else range(0)

    def regions(self) -> Iterator[tuple[range, range]]:
        """Windows side by side, and the taps that all of them meet a pixel with."""
        for taps, group in groupby(range(self.windows), self.met):
            found = list(group)
            yield range(found[0], found[-1] + 1), taps

    def seen(self, plane: View, axis: int, tap: int, windows: range) -> View:
        """The pixels that a tap of some windows meets."""
        return plane.slice(axis, self.place(windows[0], tap), len(windows), self.stride)


def part(plane: View, ys: range, xs: range) -> View:
    return plane.slice(0, ys[0], len(ys)).slice(1, xs[0], len(xs))


Term = Callable[..., k.Scalar]


def folded(
    x: View, out: View, axes: Sequence[Axis], start: float, term: Term, weights: View | None = None
) -> tuple[Launch, ...]:
    """Launches that make every element of `out` `term(... term(start, pixel), pixel)` over the taps
    of its window in order; the term also gets the weight of the tap, if there are weights."""
    down, across = axes
    launches: list[Launch] = []
    for (ys, above), (xs, beside) in product(down.regions(), across.regions()):
        place = part(out, ys, xs)
        taps = list(product(above, beside))
        for at in range(0, max(len(taps), 1), TAPS):
            views = [place] if at else []
            total = k.input_(0, x.dtype) if at else k.const(start, x.dtype)
            for i, j in taps[at : at + TAPS]:
                seen = across.seen(down.seen(x, 0, i, ys), 1, j, xs)
                more = [] if weights is None else [weights.pick(0, i).pick(0, j)]
                views += [seen, *(v.expand(place.shape) for v in more)]
                parts = range(len(views) - 1 - len(more), len(views))
                total = term(total, *(k.input_(p, x.dtype) for p in parts))
            launches.append(Map(place.shape, tuple(views), (total,), (place,)))
    return tuple(launches)


def each_plane(low: Lowerer, dims: Sequence[Dim], body: Callable[..., tuple[Launch, ...]]) -> None:
    """Emit what `body` gives for an index along each of `dims`."""
    names = [low.symbol("i") for _ in dims]
    launches = body(*map(Size.named, names))
    for name, d in reversed(list(zip(names, dims))):
        launches = (Loop(name, low.symbol("p"), low.symbol("q"), d, launches),)
    for launch in launches:
        low.emit(launch)
