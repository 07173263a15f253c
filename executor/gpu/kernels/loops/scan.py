"""The family scan_elem: a loop of elementwise launches with independent lanes.

Each thread runs all iterations for one element after the other. What the loop carries stays in
registers from the first iteration to the last; tensors that it reads step by step are loaded
several iterations before the one that needs them, while the ones before it are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from executor.gpu.kernel_builder import Kernel, add, injective, mul
from executor.gpu.scalars import memory_type
from executor.launches import Loop, Map
from executor.memory import Buffer, Element, View
from ir.scalar.language import nodes
from ir.types import Dim, names_in, slope, substitute_dim

#: values that are loaded ahead of their iterations, of all tensors together, and iterations
AHEAD, MOST_STEPS = 16, 8
#: primitives of a body that is not written several times
LONG = 400


@dataclass(frozen=True, eq=False)
class ElementwiseLoop:
    """A loop that the family covers."""

    loop: Loop
    maps: tuple[Map, ...]

    @cached_property
    def views(self) -> tuple[View, ...]:
        return tuple(dict.fromkeys(v for m in self.maps for v in (*m.ins, *m.outs)))

    @cached_property
    def written(self) -> frozenset[Buffer]:
        return frozenset(v.buffer for m in self.maps for v in m.outs)

    def is_even(self, v: View) -> bool:
        """Whether a view moves evenly from iteration to iteration."""
        x = self.loop
        if isinstance(v.buffer, Element):
            return False
        fixed = [*v.shape, *v.strides]
        if any({x.index, x.parity} & names_in(d) for d in fixed) or self.alternates(v):
            return False
        return slope(v.offset, x.index) is not None

    def alternates(self, v: View) -> bool:
        """Whether it is one of two places, in turn."""
        return self.loop.parity in names_in(v.offset)

    def moves(self, v: View) -> bool:
        return self.loop.index in names_in(v.offset)

    def first(self, v: View) -> View:
        """Return a view as it is in the first iteration."""
        start = {self.loop.index: 0, self.loop.parity: 0}
        return replace(v, offset=substitute_dim(v.offset, start))

    def step(self, v: View) -> Dim:
        """Return the distance by which a view moves from iteration to iteration."""
        found = slope(v.offset, self.loop.index)
        assert found is not None, "its offset is no line"
        return found

    def apart(self, v: View) -> bool:
        """Whether the loop touches the memory of a view through this view only."""
        others = (q for q in self.views if q != v)
        return all(v.buffer is not q.buffer for q in others)

    @cached_property
    def states(self) -> tuple[View, ...]:
        """The views whose values stay in registers: each iteration writes them."""
        own = (v for m in self.maps for v in m.outs if not self.moves(v) and self.apart(v))
        return tuple(dict.fromkeys(own))

    @cached_property
    def streams(self) -> tuple[View, ...]:
        """The views that the loop reads step by step and does not write."""
        read = (v for m in self.maps for v in m.ins if self.moves(v))
        return tuple(v for v in dict.fromkeys(read) if v.buffer not in self.written)

    @property
    def steps(self) -> int:
        """The number of iterations by which elements are prefetched."""
        roots = [r for m in self.maps for r in m.roots]
        if len(nodes(roots)) > LONG or not self.streams:
            return 1
        return max(1, min(MOST_STEPS, AHEAD // len(self.streams)))


def lanes_of(x: Loop) -> ElementwiseLoop | None:
    """The loop, if the family covers it; a schedule has found that it needs no barrier."""
    lanes = alike(x)
    return lanes if lanes is not None and all(map(lanes.is_even, lanes.views)) else None


def alike(x: Loop) -> ElementwiseLoop | None:
    """The loop, if all that it does is elementwise, on the same elements."""
    maps = tuple(q for q in x.body if isinstance(q, Map) and not q.error)
    if x.go is not None or x.count or len(maps) < len(x.body):
        return None
    lanes = ElementwiseLoop(x, maps)
    plain = len({m.shape for m in maps}) == 1 and all(map(injective, _results(maps)))
    return lanes if plain else None


def _results(maps: Sequence[Map]) -> Iterator[View]:
    return (v for m in maps for v in m.outs)


def scan_kernel(lanes: ElementwiseLoop) -> Kernel:
    return _Scan(lanes).kernel


class _Scan:
    """`registers` are the names of values that are in registers, by their view."""

    def __init__(self, lanes: ElementwiseLoop) -> None:
        x, kernel = lanes.loop, Kernel()
        self.lanes, self.kernel = lanes, kernel
        views = lanes.views
        self.pointers = {v: kernel.pointer(lanes.first(v)) for v in views}
        self.moves = {v: kernel.number(lanes.step(v)) for v in views if lanes.moves(v)}
        trip = kernel.number(x.trip)
        shape = lanes.maps[0].shape
        with kernel.each(shape, [v.expand(shape).strides for v in views]) as at:
            self.places = dict(zip(views, at))
            self.registers = {v: self.loaded(v) for v in lanes.states}
            self.iterations(trip)
            for v, name in self.registers.items():
                kernel.store(self.pointers[v], self.places[v], name)
        kernel.own += filter(injective, views)

    def loaded(self, v: View) -> str:
        name = self.kernel.fresh()
        value = f"{self.pointers[v]}[{self.places[v]}]"
        self.kernel.emit(f"{memory_type(v.dtype)} {name} = {value};")
        return name

    def iterations(self, trip: int | str) -> None:
        kernel, steps = self.kernel, self.lanes.steps
        if steps == 1:
            with kernel.loop(trip) as t:
                self.body(t, {})
            return
        ahead = {v: kernel.fresh() for v in self.lanes.streams}
        for v, name in ahead.items():
            kernel.emit(f"{memory_type(v.dtype)} {name}[{steps}];")
        with kernel.unrolled(steps, "0", trip) as (u, first):
            self.load_ahead(ahead, u, first)
        with kernel.loop(trip, step=str(steps)) as t:
            with kernel.unrolled(steps, t, trip) as (u, now):
                given = {v: str(kernel.let(f"{name}[{u}]", memory_type(v.dtype)))
                         for v, name in ahead.items()}  # fmt: skip
                later = kernel.let(f"{now} + {steps}")
                with kernel.block(f"if ({later} < {trip})"):
                    self.load_ahead(ahead, u, str(later))
                self.body(now, given)

    def load_ahead(self, ahead: dict[View, str], u: str, t: str) -> None:
        for v, name in ahead.items():
            self.kernel.emit(f"{name}[{u}] = {self.element(v, t)};")

    def element(self, v: View, t: str) -> str:
        place = self.places[v]
        moved = add(place, mul(self.moves[v], t)) if v in self.moves else place
        return f"{self.pointers[v]}[{moved}]"

    def body(self, t: str, ahead: dict[View, str]) -> None:
        """An iteration."""
        kernel = self.kernel
        for m in self.lanes.maps:
            ins = [self.value(v, t, ahead) for v in m.ins]
            for v, value in zip(m.outs, kernel.evaluate(m.roots, ins)):
                if v in self.registers:
                    kernel.emit(f"{self.registers[v]} = {value};")
                    continue
                kernel.emit(f"{self.element(v, t)} = {value};")

    def value(self, v: View, t: str, ahead: dict[View, str]) -> str:
        found = ahead.get(v) or self.registers.get(v) or self.element(v, t)
        return self.kernel.loaded(found, v.dtype)
