"""The leaves of an output plan: an output, an input, a view of either, a size, a constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dy2st.capture.adapters.in_place_shape import Call
from dy2st.results.replay import Recipe
from dy2st.trace.undo import Location
from ir import Value
from ir.types import Dim


@dataclass(frozen=True)
class Reshaped:
    """`calls` are made on lifted input `index`; then it is filled with output `output`, if any."""

    index: int
    calls: tuple[Call, ...]
    output: int | None


@dataclass(frozen=True)
class OutputPlan:
    """`result` and `stores` are trees whose leaves say where a value comes from.

    leaf: a result is a tensor that the function made to require a gradient of its own.
    reshaped: arguments that look in another way when the program has run.
    replayed: lifted inputs of which a result may be a copy, if they are not contiguous.
    trained: results that require a gradient.
    """

    values: tuple[Value, ...]
    flags: tuple[bool, ...]
    result: Any
    stores: tuple[tuple[Location, Any], ...]
    leaf: bool = False
    reshaped: tuple[Reshaped, ...] = ()
    replayed: frozenset[int] = frozenset()
    trained: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Out:
    """Output `index` of the program, looked at through `recipe`; `key` is the user's object."""

    index: int
    recipe: Recipe
    stop_gradient: bool
    key: int


@dataclass(frozen=True)
class Same:
    """Lifted input `index`: the object `itself`, or another one that looks through `recipe`."""

    index: int
    recipe: Recipe
    stop_gradient: bool
    key: int
    itself: bool = False


@dataclass(frozen=True)
class Number:
    """A size of the program as a Python int."""

    dim: Any


@dataclass(frozen=True)
class Scalar:
    """Output `index` of the program as a Python bool, int or float."""

    index: int


@dataclass(frozen=True)
class Outside:
    """A list, dict or set that was there before the call."""

    obj: Any


@dataclass(frozen=True)
class Given:
    """The list or dict that is number `index` of those in the call's arguments."""

    index: int


@dataclass(frozen=True)
class Elements:
    """A list with an element for every iteration; the leaves of `tree` are Rows, Views, Choices."""

    tree: Any


@dataclass(frozen=True)
class Rows:
    """Output `index`, taken apart into tensors or into Python numbers."""

    index: int
    number: bool
    stop_gradient: bool


@dataclass(frozen=True)
class Views:
    """A view of tensor `of` for every iteration `loop`, of which there are `trip`."""

    of: Same | Out
    recipe: Recipe
    loop: str
    trip: Dim


@dataclass(frozen=True)
class Final:
    """The view of tensor `of` that the last of `trip` iterations of `loop` has made; `other` where
    there is none."""

    of: Same | Out
    recipe: Recipe
    loop: str
    trip: Dim
    key: int
    other: Out


@dataclass(frozen=True)
class Element:
    """What stands at `path` in the last element of list `of`, which the last of `trip` iterations
    has appended; `other` where there is none."""

    of: Any
    path: tuple[int, ...]
    trip: Dim
    other: Out


@dataclass(frozen=True)
class Option:
    """`of`, looked at through `recipe`, whose indices are those of the code."""

    of: Any
    recipe: Recipe
    stop_gradient: bool


@dataclass(frozen=True)
class Choice:
    """The option whose number is the first element of output `code`, or `other`; then looked at
    through `recipe`. With a number in `passing` it is one tensor with all that have that code."""

    code: int
    options: tuple[tuple[int, Option], ...]
    passing: frozenset[int]
    other: Out
    recipe: Recipe
    stop_gradient: bool
    key: int


@dataclass(frozen=True)
class Choices:
    """As Choice for every row of output `codes`, with `rows` as the others."""

    codes: int
    options: tuple[tuple[int, Option], ...]
    rows: Rows


@dataclass(frozen=True)
class Joined:
    """A list of the elements of `parts`: Elements, and lists of trees."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class ShapeOf:
    """The shape of a tensor, as Paddle gives it."""

    dims: tuple[Any, ...]
