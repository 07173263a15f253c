"""Hazards: the memory accesses of launches, and whether two accesses need a barrier between them.

Places are compared as ranges of bytes that are polynomials over sizes and symbols. Where two
launches touch the same elements, each by the thread that they belong to, the order of that thread
is enough (`Access.own`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product as every
from typing import TypeAlias

from executor.launches import Addresses, Launch, results, views
from executor.memory import Buffer, View, collapse, memory_of
from executor.plan.arena import ArenaLayout
from ir.types import Dim, Size, divide, is_natural, substitute_dim

#: memory that overlaps no other: the arena, a slot of it, an input or an output
Space: TypeAlias = tuple[str, int]
#: the most symbols that are 0 or 1 of which all values are tried
MOST_BITS = 4


@dataclass(frozen=True)
class Geometry:
    """The places of a view in its space: bytes, and neighbouring axes as one."""

    size: int
    start: Dim
    dims: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    @cached_property
    def range(self) -> tuple[Dim, Dim] | None:
        """The first byte and the one behind the last; None where the sign of a stride is open."""
        low: Dim = self.start
        high: Dim = self.start + self.size
        for d, s in zip(self.dims, self.strides):
            reach = (d - 1) * s * self.size
            if is_natural(s):
                high = high + reach
            elif is_natural(-s):
                low = low + reach
            else:
                return None
        return low, high

    @property
    def span(self) -> Dim | None:
        """The number of bytes from the first one to the last."""
        if 0 in self.dims or not all(map(is_natural, self.strides)):
            return None
        return sum(((d - 1) * s * self.size for d, s in zip(self.dims, self.strides)), self.size)

    @property
    def names(self) -> frozenset[str]:
        dims = (self.start, *self.dims, *self.strides)
        return frozenset().union(*(d.names for d in dims if isinstance(d, Size)))

    def substitute(self, values: Mapping[str, Dim]) -> Geometry:
        dims, strides = (
            tuple(substitute_dim(d, values) for d in q) for q in (self.dims, self.strides)
        )
        return Geometry(self.size, substitute_dim(self.start, values), dims, strides)


@dataclass(frozen=True)
class BackEdge:
    """From an iteration of a loop to the next. `lost` are symbols that are bound anew in each."""

    index: str
    parity: str
    lost: frozenset[str]

    @property
    def last(self) -> dict[str, Dim]:
        """The values of the symbols in the last iteration."""
        return {self.index: Size.named(self.index) - 1, self.parity: 1 - Size.named(self.parity)}

    @cached_property
    def known(self) -> dict[Access, Access]:
        """Touches of an iteration, seen from the next one."""
        return {}

    @cached_property
    def any(self) -> PriorAccesses:
        """The values of the symbols in some earlier iteration."""
        since, parity = f"{self.index} since", self.parity + OPEN
        ago = Size.named(self.index) - 1 - Size.named(since)
        values: dict[str, Dim] = {self.index: ago, self.parity: Size.named(parity)}
        return PriorAccesses(values, frozenset((since, parity)))


@dataclass(frozen=True)
class PriorAccesses:
    values: Mapping[str, Dim]
    names: frozenset[str]


#: behind the name of a parity of an iteration before, and of a symbol that may be any number
OPEN, ANY = " before", " any"


@dataclass(frozen=True)
class Access:
    """A touch of memory. Without `places` it may be any place of `room`, a range of bytes, or of
    all of the space.

    own: each element is touched by the thread that it belongs to. age: 1 if it is one of an
    iteration before.
    """

    space: Space
    room: tuple[int, int] | None
    places: Geometry | None
    write: bool
    own: bool = False
    age: int = 0

    @cached_property
    def range(self) -> tuple[Dim, Dim] | None:
        return (self.places.range if self.places is not None else None) or self.room

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset() if self.places is None else self.places.names

    def where(self, values: Mapping[str, Dim]) -> Access:
        if self.places is None or self.names.isdisjoint(values):
            return self
        return replace(self, places=self.places.substitute(values))

    def outside(self, names: Collection[str]) -> Access:
        """The same touch where symbols of these names are not known: they are any numbers."""
        return self.where({n: Size.named(n + ANY) for n in self.names & set(names)})

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.space, self.places, self.write, self.own, self.age))

    def earlier(self, step: BackEdge) -> Access:
        """The same touch, seen from the next iteration: at first exactly, then as one of any
        iteration before."""
        if self not in step.known:
            step.known[self] = self._earlier(step)
        return step.known[self]

    def _earlier(self, step: BackEdge) -> Access:
        now = self.outside(step.lost)
        if now.names & step.any.names or not now.names & {step.index, step.parity}:
            return now
        return replace(now.where(step.any.values if self.age else step.last), age=1)

    def __str__(self) -> str:
        kind, number = self.space
        where = f"{kind}{number if kind != 'arena' else ''}"
        span = "" if self.range is None else f"[{self.range[0]}:{self.range[1]}]"
        return f"{where}{span}{' own' if self.own else ''}"


@dataclass(frozen=True)
class Hazards:
    """`bits` are the symbols that are 0 or 1."""

    bits: frozenset[str]

    def between(self, a: Access, b: Access) -> bool:
        """Whether the order of two touches of different threads can be seen."""
        if a.space != b.space or not (a.write or b.write) or apart(a.room, b.room):
            return False
        names = sorted((a.names | b.names) & self.bits)[:MOST_BITS]
        values = (dict(zip(names, q)) for q in every((0, 1), repeat=len(names)))
        return not all(_ordered(a.where(v), b.where(v)) for v in values)


def _ordered(a: Access, b: Access) -> bool:
    """Whether threads of their own have all that both touch, or they touch nothing both."""
    return _own(a, b) or apart(a.range, b.range) or apart(a.room, b.room)


def _own(a: Access, b: Access) -> bool:
    """Whether each thread touches the same elements, or they touch nothing both: places that are
    moved by a multiple of their span."""
    p, q = a.places, b.places
    if not (a.own and b.own and p and q) or replace(p, start=q.start) != q:
        return False
    return p == q or p.span is not None and divide(p.start - q.start, p.span) is not None


def apart(a: tuple[Dim, Dim] | None, b: tuple[Dim, Dim] | None) -> bool:
    """Whether ranges of bytes have no byte in common, whatever the sizes are."""
    if a is None or b is None:
        return False
    return is_natural(b[0] - a[1]) or is_natural(a[0] - b[1])


@dataclass(frozen=True)
class LaunchAccesses:
    """The accesses of launches, by where the plan puts buffers."""

    layout: ArenaLayout

    @cached_property
    def slots(self) -> dict[Buffer, int]:
        return {b: k for k, s in enumerate(self.layout.slots) for b in s.buffers}

    def of(self, launch: Launch, own: Sequence[View] = ()) -> Iterator[Access]:
        written = results(launch)
        if not isinstance(launch, Addresses):
            read = (v for v in views(launch) if not any(v is w for w in written))
            for v in read:
                yield from self.touched(v, False, v in own)
        for v in written:
            yield from self.touched(v, True, v in own)

    def touched(self, v: View, write: bool, own: bool = False) -> Iterator[Access]:
        for b in memory_of(v.buffer):
            space, at, room = self.place(b)
            if b is not v.buffer:
                yield Access(space, room, None, write)
                continue
            dims, (strides,) = collapse(v.shape, [v.strides])
            size = v.dtype.size
            places = Geometry(size, at + v.offset * size, tuple(dims), tuple(strides))
            yield Access(space, room, places, write, own)

    def place(self, b: Buffer) -> tuple[Space, int, tuple[int, int] | None]:
        """The space of a buffer, where it begins there, and its bytes if they are known."""
        at = self.layout.offsets.get(b)
        if at is not None:
            assert isinstance(b.size, int)
            return ("arena", 0), at, (at, at + b.size)
        if b in self.slots:
            return ("slot", self.slots[b]), 0, None
        return (b.kind, b.number), 0, None
