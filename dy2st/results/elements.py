"""Leaves of an output plan for lists that loops have filled, and for their elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import paddle

from dy2st.results.leaves import (
    CallValues,
    ResultLeaf,
    SaveContext,
    SizeNumber,
    again,
    fill,
    leaves,
    save,
)
from dy2st.results.replay import replay
from dy2st.state.containers.records import attributes
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.memory import Recipe
from ir.types import Dim, evaluate_dim


@dataclass(frozen=True, eq=False)
class Column(ResultLeaf):
    """One part of the elements of a list, one for every iteration: a leaf of a `FilledList`."""

    about = "views that a loop has collected"

    def fill(self, call: CallValues) -> list[object]:
        raise NotImplementedError


#: the columns of elements that are tuples
Columns = Column | tuple["Columns", ...]


@dataclass(frozen=True, eq=False)
class ElementRows(Column):
    """Output `index`, taken apart into tensors or into Python numbers."""

    index: int
    number: bool
    stop_gradient: bool

    def fill(self, call: CallValues) -> list[object]:
        return call.once(self, lambda: self.rows(call.outputs[self.index]))

    def rows(self, tensor: Tensor) -> list[object]:
        if self.number:
            return list(tensor.tolist())
        rows = paddle.unbind(tensor, 0) if tensor.shape[0] else []
        return [row.detach() for row in rows] if self.stop_gradient else list(rows)

    def save(self, file: SaveContext) -> list[object]:
        return ["rows", self.index, self.number]


@dataclass(frozen=True, eq=False)
class ElementViews(Column):
    """A view of tensor `of` for every iteration `loop`, as many as `trip` gives."""

    of: ResultLeaf
    recipe: Recipe
    loop: str
    trip: object
    stop_gradient: bool

    def inputs(self) -> Iterator[int]:
        return self.of.inputs()

    def fill(self, call: CallValues) -> list[object]:
        of, steps = self.of.fill(call), range(fill(self.trip, call))
        sizes = [{**call.sizes, self.loop: i} for i in steps]
        return call.once(
            self, lambda: [replay(of, self.recipe, s, self.stop_gradient) for s in sizes]
        )


@dataclass(frozen=True, eq=False)
class ListElement(ResultLeaf):
    """The tensor at `path` of element `index` of a list."""

    about = "a list and an element of it"

    of: FilledList
    index: object
    path: tuple[int, ...]

    def inputs(self) -> Iterator[int]:
        return self.of.inputs()

    def fill(self, call: CallValues) -> object:
        return part_at(self.of.fill(call)[fill(self.index, call)], self.path)


@dataclass(frozen=True, eq=False)
class ElementValues(Column):
    """A Python value for every iteration `loop`, as many as `trip` gives: a constant, or a runtime
    scalar that follows from the iteration."""

    about = "Python values that a loop has collected"

    value: object
    loop: str
    trip: object

    def fill(self, call: CallValues) -> list[object]:
        steps = range(fill(self.trip, call))
        if not isinstance(self.value, SizeNumber):
            return [self.value for _ in steps]
        return [evaluate_dim(self.value.dim, {**call.sizes, self.loop: i}) for i in steps]

    def save(self, file: SaveContext) -> list[object]:
        return super().save(file) if isinstance(self.value, ResultLeaf) else save(self.value, file)


@dataclass(frozen=True, eq=False)
class FilledList(ResultLeaf):
    """A list of the elements of `parts`: trees of Columns, one element an iteration, and plain
    lists of trees."""

    parts: tuple[list[object] | Columns, ...]

    def inputs(self) -> Iterator[int]:
        return (k for q in leaves(self.parts) for k in q.inputs())

    def fill(self, call: CallValues) -> list[object]:
        return call.once(self, lambda: [q for part in self.parts for q in self.part(part, call)])

    def part(self, part: list[object] | Columns, call: CallValues) -> list[object]:
        return [fill(q, call) for q in part] if isinstance(part, list) else rows(part, call)

    def save(self, file: SaveContext) -> list[object]:
        found = [save(q, file) for q in self.parts]
        made: list[list[object]] = [
            q if isinstance(part, list) else ["elements", q] for part, q in zip(self.parts, found)
        ]
        return made[0] if len(made) == 1 else ["joined", made]


@dataclass(frozen=True, eq=False)
class FilledTuple(ResultLeaf):
    """A tuple of the elements of a list, which nothing else shows."""

    of: object

    def inputs(self) -> Iterator[int]:
        return (k for q in leaves(self.of) for k in q.inputs())

    def fill(self, call: CallValues) -> tuple[object, ...]:
        return call.once(self, lambda: self.made(fill(self.of, call)))

    def made(self, items: object) -> tuple[object, ...]:
        assert isinstance(items, list)
        return tuple(items)

    def save(self, file: SaveContext) -> list[object]:
        return ["tuple_of", save(self.of, file)]


@dataclass(frozen=True, eq=False)
class LastElement(ResultLeaf):
    """The part at `path` of the last element of list `of`, which the last of `trip` iterations has
    appended; `other` where there is none."""

    of: FilledList
    path: tuple[int, ...]
    trip: Dim
    other: ResultLeaf

    def inputs(self) -> Iterator[int]:
        return self.other.inputs()

    def fill(self, call: CallValues) -> object:
        if call.number(self.trip) < 1:
            return self.other.fill(call)
        return part_at(self.of.fill(call)[-1], self.path)

    def save(self, file: SaveContext) -> list[object]:
        return self.other.save(file)


def rows(tree: Columns, call: CallValues) -> list[object]:
    """The elements of a list: one for every iteration."""
    if not isinstance(tree, tuple):
        return list(tree.fill(call))
    made = lambda: [again(tree, row) for row in zip(*(rows(q, call) for q in tree))]  # noqa: E731
    found: list[object] = call.once(("rows", id(tree)), made)
    return list(found)


def part_at(x: object, path: Sequence[int]) -> object:
    """Return the part at a path in nested tuples and containers. A value of which data decides
    whether it is a number or a tensor has no parts."""
    for k in path:
        if isinstance(x, (Tensor, bool, int, float)):
            return x
        held = x if isinstance(x, (tuple, list, dict)) else attributes(x)
        x = list(held.values() if isinstance(held, dict) else held)[k]
    return x
