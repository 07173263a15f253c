"""Tiling: a launch and those that read its results take turns on parts that fit the caches.

    MapReduce x -> s             Loop i < 16
    Map       x, s -> z            MapReduce x[4 i : 4 i + 4] -> s[4 i : 4 i + 4]
    MapReduce z -> t      =>       Map       x[4 i : 4 i + 4], s[4 i : 4 i + 4] -> part
                                   MapReduce part -> t[4 i : 4 i + 4]

A *group* are elementwise launches and reductions, each cut along one axis of the same length.
Memory that one of them writes is touched by the rest in the same part only, so the parts may be
done one after the other. Memory that only the group touches is that of one part. A reduction along
the cut axis itself gives a result for every part; they are combined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from executor.cpu.fusion import buffers, stays, touched
from executor.cpu.launches import MapReduce
from executor.launches import Launch, Loop, Map, blocks, results, views, with_blocks
from executor.memory import Buffer, Element, View, memory_of, whole
from ir.opdef import Reduction as Reduction
from ir.scalar.language import input_
from ir.types import Dim, Size, Type, product

#: bytes of a part
PART = 1 << 18
#: bytes that stay in the cache of a core without tiles
SMALL = 1 << 20
#: bytes of a view that is worth it
WORTH = 1 << 17
#: bytes of a part that has one index, and cannot be parted again
MOST = 3 << 18
#: bytes that lie side by side in a part, at least: shorter pieces are not read ahead of their use
PIECE = 1 << 12
#: launches behind the first one of a group that are looked at
REACH = 48
#: a reduction along the cut axis reads so many bytes of a part for each one of its results
FEWER = 8

#: where the elements of one index of the cut axis lie: offset, type, the step to those of the next
#: index, and the other dims with their strides
Lie: TypeAlias = tuple[Dim, str, int, tuple[tuple[int, int], ...]]


def tiled(launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """The launches of a program, groups as loops."""
    return _Tiler(Counter(touched(launches))).block(launches)


@dataclass(frozen=True)
class _Access:
    """A view of a member; `axis` is the cut one, None if every part writes all of it."""

    view: View
    axis: int | None
    writes: bool
    lie: Lie | None

    @cached_property
    def parted(self) -> bool:
        return self.axis is not None and self.view.strides[self.axis] != 0

    @cached_property
    def bytes(self) -> int:
        """The bytes of one index of the axis."""
        pairs = enumerate(zip(self.view.shape, self.view.strides))
        dims = (d for a, (d, s) in pairs if a != self.axis and s != 0)
        return self.view.dtype.size * _number(product(dims))

    @property
    def piece(self) -> int:
        """Bytes of one index that lie side by side."""
        if self.lie is None:
            return 0
        _, _, step, others = self.lie
        return self.view.dtype.size * min(
            step, max((s * d for s, d in others if s < step), default=1)
        )


@dataclass(frozen=True, eq=False)
class _Member:
    """A launch that is cut along an axis of its elements."""

    launch: Map | MapReduce
    axis: int

    @property
    def length(self) -> int:
        return _number(self.launch.shape[self.axis])

    @cached_property
    def rules(self) -> tuple[Reduction | None, ...]:
        x = self.launch
        return x.rules if isinstance(x, MapReduce) else (None,) * len(x.outs)

    @cached_property
    def combines(self) -> bool:
        """Whether it reduces along the axis."""
        return isinstance(self.launch, MapReduce) and self.axis in self.launch.axes

    def kept(self, rule: Reduction | None) -> int | None:
        """The axis of a result; None if it is reduced."""
        if rule is None or not isinstance(self.launch, MapReduce):
            return self.axis
        return None if self.combines else self.axis - sum(a < self.axis for a in self.launch.axes)

    @cached_property
    def accesses(self) -> tuple[_Access, ...]:
        found = [_Access(v, self.axis, False, _lie(v, self.axis)) for v in self.launch.ins]
        for v, rule in zip(self.launch.outs, self.rules):
            axis = self.kept(rule)
            found.append(_Access(v, axis, True, None if axis is None else _lie(v, axis)))
        return tuple(found)


@dataclass
class _Group:
    length: int
    members: list[_Member] = field(default_factory=list)
    sizes: dict[Buffer, int] = field(default_factory=dict)
    touched: dict[Buffer, list[_Access]] = field(default_factory=dict)

    def takes(self, m: _Member) -> bool:
        """Whether `m` may be done part by part behind the other members."""
        for mine in m.accesses:
            for b in memory_of(mine.view.buffer):
                for other in self.touched.get(b, ()):
                    apart = mine.lie is None or mine.lie != other.lie
                    if apart and (mine.writes or other.writes):
                        return False
        return True

    def add(self, m: _Member) -> None:
        self.members.append(m)
        for access in m.accesses:
            for b in memory_of(access.view.buffer):
                self.touched.setdefault(b, []).append(access)
        self.sizes = self.sizes_with(m)

    def sizes_with(self, m: _Member) -> dict[Buffer, int]:
        """Bytes of one index of the axis, by buffer."""
        sizes = dict(self.sizes)
        for a in m.accesses:
            if a.parted:
                sizes[a.view.buffer] = max(sizes.get(a.view.buffer, 0), a.bytes)
        return sizes

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def width(self) -> int:
        """Indices of a part; rather a few less than parts of two lengths."""
        most = max(1, min(self.length, PART // max(self.bytes, 1)))
        even = next(d for d in range(most, 0, -1) if self.length % d == 0)
        return even if 2 * even > most else most

    def pays(self) -> bool:
        """Whether members share memory in pieces of some length, all of it more than a cache
        holds."""
        if self.bytes * self.length <= SMALL:
            return False
        large = [[a for a in m.accesses if self.is_large(a)] for m in self.members]
        uses = Counter(b for found in large for b in {a.view.buffer for a in found})
        pieces = (a.piece for found in large for a in found)
        return max(uses.values(), default=0) > 1 and min(pieces) * self.width >= PIECE

    def is_large(self, a: _Access) -> bool:
        return a.parted and a.bytes * self.length >= WORTH


def _lie(v: View, axis: int) -> Lie | None:
    """None where elements of two indices may be the same, or nobody knows."""
    pairs = [(s, d) for d, s in zip(v.shape, v.strides)]
    step, length = pairs.pop(axis)
    if isinstance(v.buffer, Element) or not isinstance(step, int) or step <= 0:
        return None
    others: list[tuple[int, int]] = []
    for s, d in pairs:
        if not isinstance(s, int) or s < 0:
            return None
        if s and d != 1:
            others.append((s, _number(d)))
    reach = 0
    for s, d in sorted([*others, (step, _number(length))]):
        if s <= reach:
            return None
        reach += (d - 1) * s
    merged: list[tuple[int, int]] = []
    for s, d in sorted(others):
        if merged and s == merged[-1][0] * merged[-1][1]:
            s, d = merged[-1][0], merged.pop()[1] * d
        merged.append((s, d))
    return v.offset, v.dtype.name, step, tuple(merged)


def _size(v: View) -> int:
    """Bytes."""
    return v.dtype.size * _number(product(d for d, s in zip(v.shape, v.strides) if s != 0))


def _number(d: Dim) -> int:
    assert isinstance(d, int)
    return d


def _cuttable(x: Launch) -> bool:
    if not isinstance(x, (Map, MapReduce)) or stays(x):
        return False
    return all(isinstance(d, int) and d > 0 for v in views(x) for d in v.shape)


@dataclass
class _Tiler:
    """`touches` counts the launches of the program that touch a buffer."""

    touches: Counter[Buffer]
    loops: int = 0
    known: dict[Launch, tuple[_Member, ...]] = field(default_factory=dict)

    def block(self, launches: Sequence[Launch]) -> tuple[Launch, ...]:
        rest = [with_blocks(x, self.block) if blocks(x) else x for x in launches]
        out: list[Launch] = []
        while rest:
            found = self.group(rest)
            if found is None:
                out.append(rest.pop(0))
                continue
            group, loop = found
            done = {m.launch for m in group.members}
            out += loop
            rest = [x for x in rest if x not in done]
        return tuple(out)

    # ------------------------------------------------------------ which launches
    def group(self, rest: Sequence[Launch]) -> tuple[_Group, list[Launch]] | None:
        """The largest group that begins with the first of `rest`, if it pays, and its loop."""
        first, behind = rest[0], rest[1:REACH]
        if not _cuttable(first) or not isinstance(first, (Map, MapReduce)):
            return None
        large = {v.buffer for v in views(first) if _size(v) >= WORTH}
        if not any(v.buffer in large for x in behind for v in views(x)):
            return None
        members = [m for m in self.members(first) if not m.combines]
        for most in (None, MOST):
            found = [self.grown(m, behind, most) for m in members]
            found = [g for g in found if g.pays()]
            for group in sorted(found, key=lambda g: (-len(g.members), -g.bytes)):
                loop = self.parts(group)
                if loop:
                    return group, loop
        return None

    def members(self, x: Launch) -> tuple[_Member, ...]:
        """A launch, cut along each of its axes."""
        if x not in self.known:
            axes = enumerate(x.shape) if isinstance(x, (Map, MapReduce)) and _cuttable(x) else ()
            self.known[x] = tuple(_Member(x, a) for a, d in axes if d != 1)  # type: ignore[arg-type]
        return self.known[x]

    def grown(self, first: _Member, behind: Sequence[Launch], most: int | None) -> _Group:
        """The group of `first` and those of the launches behind it that may be done before all that
        stays between them. `most`: bytes of one index, if there is a bound."""
        group = _Group(first.length)
        group.add(first)
        read: set[Buffer] = set()
        written: set[Buffer] = set()
        for x in behind:
            if stays(x):
                break
            reads, writes = buffers(x), {v.buffer for v in results(x)}
            free = reads.isdisjoint(written) and writes.isdisjoint(read)
            m = self.member(group, x) if free and not reads.isdisjoint(group.touched) else None
            if m is not None and (most is None or sum(group.sizes_with(m).values()) <= most):
                group.add(m)
            else:
                read |= reads
                written |= writes
        return group

    def member(self, group: _Group, x: Launch) -> _Member | None:
        """The launch cut along an axis that the group takes; it is better not to combine."""
        found = [m for m in self.members(x) if m.length == group.length]
        found = [m for m in found if not m.combines or _few_results(m, group.width)]
        found = [m for m in found if group.takes(m)]
        return min(found, key=lambda m: m.combines, default=None)

    # ------------------------------------------------------------ their parts
    def parts(self, group: _Group) -> list[Launch]:
        """The members part by part, of which the last one may be smaller; nothing if the parts are
        too large."""
        width = group.width
        small = self.small(group, width)
        partial = {m: _partial(m) for m in group.members if m.combines}
        self.loops += 1
        name = f"#t{self.loops}"
        trip, rest = divmod(group.length, width)
        body = tuple(self.part(group, small, partial, Size.named(name) * width, width))
        last = tuple(self.part(group, small, partial, trip * width, rest)) if rest else ()
        if group.bytes > PART:
            count = self.loops
            self.touches.update(b for b in touched(body) if b not in group.touched)
            body = self.block(body)
            if self.loops == count and group.bytes > MOST:
                return []
        first = [x for m in partial for x in _nothing(m)]
        return [*first, Loop(name, f"{name}.p", f"{name}.q", trip, body, coarse=True), *last]

    def small(self, group: _Group, width: int) -> dict[Buffer, Buffer]:
        """Memory of one part for buffers that only the group touches, and writes first."""
        out = {}
        for b, found in group.touched.items():
            lies = {a.lie for a in found}
            (lie, *more) = lies
            if b.kind != "arena" or more or lie is None or lie[0] != 0 or not found[0].writes:
                continue
            members = [m for m in group.members if any(a.view.buffer is b for a in m.accesses)]
            reads = any(a.view.buffer is b and not a.writes for a in members[0].accesses)
            block = lie[2] * group.length
            even = all(s < lie[2] or s % block == 0 for s, _ in lie[3])
            if reads or len(members) != self.touches[b] or not even:
                continue
            v, axis = found[0].view, found[0].axis
            assert axis is not None
            span = _number(_part_of(v, axis, b, group.length, width, width).span)
            out[b] = Buffer("arena", 0, span * v.dtype.size)
        return out

    def part(
        self,
        group: _Group,
        small: Mapping[Buffer, Buffer],
        partial: Mapping[_Member, tuple[View, ...]],
        start: Dim,
        count: int,
    ) -> Iterator[Launch]:
        """The members on `count` indices from `start` on."""

        def cut(v: View, axis: int) -> View:
            if v.buffer in small:
                return _part_of(v, axis, small[v.buffer], group.length, group.width, count)
            return v.slice(axis, start, count)

        for m in group.members:
            x = m.launch
            shape = (*x.shape[: m.axis], count, *x.shape[m.axis + 1 :])
            ins = tuple(cut(v, m.axis) for v in x.ins)
            own = iter(partial.get(m, ()))
            kept = [m.kept(rule) for rule in m.rules]
            outs = tuple(next(own) if a is None else cut(v, a) for v, a in zip(x.outs, kept))
            yield replace(x, shape=shape, ins=ins, outs=outs)
            for v, part, rule in zip(x.outs, outs, m.rules):
                if m.combines and rule is not None:
                    d = v.dtype
                    both = rule.combine(input_(0, d), input_(1, d))
                    yield Map(v.shape, (v, part), (both,), (v,))


def _few_results(m: _Member, width: int) -> bool:
    """Whether results of parts are combined with little work, and without rounding."""
    found = list(m.accesses)
    made = [a for a in found if a.axis is None]
    read = sum(a.bytes * width for a in found if a.parted)
    exact = all(a.view.dtype.compute == a.view.dtype for a in made)
    return exact and sum(a.bytes for a in made) * FEWER <= read


def _partial(m: _Member) -> tuple[View, ...]:
    """Memory for the results of one part."""
    outs = [v for v, rule in zip(m.launch.outs, m.rules) if rule is not None]
    types = [Type(v.dtype, v.shape) for v in outs]
    return tuple(whole(Buffer("arena", 0, product(t.shape) * t.dtype.size), t) for t in types)


def _nothing(m: _Member) -> Iterator[Launch]:
    """The results before the first part."""
    for v, rule in zip(m.launch.outs, m.rules):
        if rule is not None:
            yield Map(v.shape, (), (rule.init(v.dtype),), (v,))


def _part_of(v: View, axis: int, b: Buffer, length: int, width: int, count: int) -> View:
    """Return `count` indices of a view, in memory that has room for `width`."""
    step = _number(v.strides[axis])
    strides = tuple(s if _number(s) <= step else _number(s) // length * width for s in v.strides)
    shape = (*v.shape[:axis], count, *v.shape[axis + 1 :])
    return View(b, v.dtype, 0, shape, strides)


__all__ = ["tiled"]
