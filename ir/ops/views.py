"""Indexing: slices, single elements and gathers, and the writes through them.

A slice is (start, length, step): element i is `x[start + step * i]`, so a negative step needs no
special case. Indices that come from data are checked against their bounds when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from ir.layout import Strided
from ir.opdef import (
    OPS,
    Example,
    OpDef,
    Part,
    ShapeError,
    ViewRule,
    assume,
    axis_in,
    example,
    op,
    same_axis,
    same_dim,
    stored_by,
    view_rule,
)
from ir.ops.elementwise import require_kind
from ir.ops.gradients import ScatterGradient, ViewGradient, flat_index, overwritten
from ir.program import Builder, Op, Value
from ir.types import I64, Dim, Type


def _at(axis: int, index: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, index, ...)


def item(x: Any, axis: int, index: Any) -> Any:
    """`x[:, ..., index]`, as Python writes it."""
    at = (*(slice(None),) * (axis % x.ndim), index)
    return x[at]


def _cut(start: Any, length: Any, step: int = 1) -> slice:
    """The slice of `length` elements from `start` on."""
    if isinstance(length, int) and length == 0:
        return slice(0, 0)
    stop: Any = start + step * length
    if isinstance(stop, int) and stop < 0:
        stop = None
    return slice(start, stop, None if step == 1 else step)


def sliced(x: np.ndarray, axis: int, start: int, length: int, step: int) -> np.ndarray:
    """The NumPy view of `start + step * i` for i < length."""
    stop: int | None = start + step * length
    stop = None if step < 0 and stop is not None and stop < 0 else stop
    cut = slice(start, stop, step) if length else slice(0, 0)
    out: np.ndarray = x[_at(axis, cut)]
    return out


def _slice_types(x: Type, axis: int, start: Dim, length: Dim, step: int) -> Type:
    at = axis_in(axis, x.ndim)
    if step == 0:
        raise ShapeError("a slice with step 0")
    for bound in (length, start):
        if isinstance(bound, int) and bound < 0:
            raise ShapeError(f"a slice of {x} from {start}, {length} long")
    last = start + (length - 1) * step
    known = isinstance(last, int) and isinstance(start, int) and isinstance(x.shape[at], int)
    if known and length != 0:
        low, high = (start, last) if step > 0 else (last, start)
        if low < 0 or high >= x.shape[at]:  # type: ignore[operator]
            raise ShapeError(f"a slice of {x} from {start}, {length} long, leaves axis {at}")
    return x.with_shape((*x.shape[:at], length, *x.shape[at + 1 :]))


op(
    "slice(x, *, axis, start, length, step=1)",
    pairs=same_axis,
    types=_slice_types,
    ref=lambda x, axis, start, length, step: sliced(x, axis % x.ndim, start, length, step),
    grad=lambda b, g, y, x, **attrs: [ViewGradient("slice", g, (), attrs)],
    view=ViewRule(
        layout=Strided.slice,
        python=lambda x, axis, start, length, step: item(x, axis, _cut(start, length, step)),
        unview=stored_by("set_slice"),
    ),
    examples=(
        example("f32[3,8]", axis=1, start=2, length=4),
        example("i64[7,2]", axis=0, start=6, length=7, step=-1),
        example("f32[8]", axis=0, start=1, length=3, step=3),
        example("f32[3,8]", axis=1, start=0, length=0),
    ),
)


ViewAttrs: TypeAlias = dict[str, Any]
#: view -> the op that stores through it
STORES: dict[str, str] = {}


def write_row(
    signature: str,
    view: OpDef,
    examples: Sequence[Example],
    of_part: Callable[[ViewAttrs, Sequence[Dim]], ViewAttrs] = lambda attrs, shape: attrs,
) -> None:
    """The row that writes y to the view `view` of x. `of_part`: the attributes of the view, from
    those of the row and the shape of y."""

    def types(x: Type, y: Type, *at: Type, **attrs: Any) -> Type:
        want = view.types(x, *at, **of_part(attrs, y.shape))
        assert isinstance(want, Type)
        try:
            if y.dtype != want.dtype or y.ndim != want.ndim:
                raise ShapeError(f"{y} is no {want}")
            for have, room in zip(y.shape, want.shape):
                same_dim(have, room)
        except ShapeError:
            raise ShapeError(f"{y} cannot be written into {want} of {x}") from None
        return x

    def ref(x: np.ndarray, y: np.ndarray, *at: np.ndarray, **attrs: Any) -> np.ndarray:
        assert view.ref is not None
        out: np.ndarray = x.copy()
        view.ref(out, *at, **of_part(attrs, y.shape))[...] = y
        return out

    def grad(
        b: Builder, g: Value, out: Value, x: Value, y: Value, *at: Value, **attrs: Any
    ) -> Sequence[Value | None]:
        return overwritten(b, g, view.name, *at, **of_part(attrs, y.type.shape))

    row = op(
        signature, types=types, ref=ref, grad=grad, updates="x", through=Part(view.name, of_part),
        checks=view.checks, examples=examples,
    )  # fmt: skip
    STORES[view.name] = row.name


@dataclass(frozen=True)
class Place:
    """The view `name(x, *at, **attrs)`, of type `type`."""

    name: str
    at: tuple[Value, ...]
    attrs: ViewAttrs
    type: Type


def view_name(op: Op) -> str:
    """The view that an op is, or stores through."""
    return op.row.through.view if op.row.through else op.name


def at_numbers(op: Op, *index: Dim) -> Op:
    """The op at these indices instead of those from data."""
    place = place_of(op)
    static = view_rule(place.name).static
    assert static is not None
    name, attrs = static(*index, **place.attrs)
    name = name if op.row.views else STORES[name]
    own = {k: v for k, v in attrs.items() if k in OPS[name].attrs}
    given = len(op.operands) - len(index)
    return replace(op, name=name, operands=op.operands[:given], attrs=own)


def place_of(op: Op) -> Place:
    """The part of its operand that a view shows, or that an op stores into; two are equal if the
    parts are the same ones, of one tensor."""
    part = op.row.through
    if part is None:
        name, at, attrs, t = op.name, op.operands[1:], op.attrs, op.result.type
    else:
        y = op.operands[1]
        name, at, t = part.view, op.operands[2:], y.type
        attrs = part.attrs(op.attrs, y.type.shape)
    if "axis" in attrs:
        attrs = {**attrs, "axis": attrs["axis"] % op.operands[0].type.ndim}
    return Place(name, tuple(at), attrs, t)


@dataclass(frozen=True)
class Span:
    """`length` elements along an axis; element i is `start + step * i`."""

    axis: int
    start: Dim
    length: Dim
    step: int


def span_of(op: object) -> Span | None:
    """The elements of its operand that a `slice` or `index` shows; None for another op."""
    if not isinstance(op, Op) or op.name not in ("slice", "index"):
        return None
    a, axis = op.attrs, op.attrs["axis"] % op.operands[0].type.ndim
    if op.name == "index":
        return Span(axis, a["index"], 1, 1)
    return Span(axis, a["start"], a["length"], a["step"])


def starting_at(op: Op, start: Dim) -> ViewAttrs:
    """The attributes of a `slice` or `index` that starts elsewhere."""
    return {**op.attrs, "index" if op.name == "index" else "start": start}


def along(attrs: ViewAttrs, shape: Sequence[Dim]) -> ViewAttrs:
    """With the length of the part along the axis."""
    return {**attrs, "length": shape[axis_in(attrs["axis"], len(shape))]}


write_row(
    "set_slice(x, y, *, axis, start, step=1)",
    OPS["slice"],
    (
        example("f32[3,8]", "f32[3,4]", axis=1, start=2),
        example("i64[7,2]", "i64[7,2]", axis=0, start=6, step=-1),
        example("f32[3,8]", "f32[3,0]", axis=1, start=0),
    ),
    along,
)


def _without(x: Type, axis: int) -> Type:
    at = axis_in(axis, x.ndim)
    return x.with_shape((*x.shape[:at], *x.shape[at + 1 :]))


def _pick_types(x: Type, axis: int, index: Dim) -> Type:
    out = _without(x, axis)
    n = x.shape[axis_in(axis, x.ndim)]
    if isinstance(index, int) and (index < 0 or isinstance(n, int) and index >= n):
        raise ShapeError(f"index {index} is out of range for axis {axis} of {x}")
    assume(n, ">=", index + 1)
    assume(index, ">=", 0)
    return out


op(
    "index(x, *, axis, index)",
    pairs=same_axis,
    types=_pick_types,
    ref=lambda x, axis, index: x[_at(axis % x.ndim, index)],
    grad=lambda b, g, y, x, **attrs: [ViewGradient("index", g, (), attrs)],
    view=ViewRule(
        layout=Strided.index,
        python=item,
        unview=stored_by("set_index"),
    ),
    examples=(
        example("f32[3,8]", axis=1, index=2),
        example("i64[7,2,3]", axis=0, index=6),
        example("f32[4]", axis=-1, index=0),
    ),
)
write_row(
    "set_index(x, y, *, axis, index)",
    OPS["index"],
    (
        example("f32[3,8]", "f32[3]", axis=1, index=2),
        example("i64[7]", "i64[]", axis=0, index=6),
    ),
)


def _index_type(index: Type) -> None:
    if index.dtype != I64 or index.ndim:
        raise ShapeError(f"an index is i64[], not {index}")


def _select_types(x: Type, index: Type, axis: int) -> Type:
    _index_type(index)
    return _without(x, axis)


def wrapped(index: np.ndarray, n: int) -> int:
    """A checked non-negative index, negative ones counted from the end."""
    i = int(index)
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of range for {n} elements")
    return i % n


op(
    "dynamic_index(x, index, *, axis)",
    pairs=same_axis,
    types=_select_types,
    ref=lambda x, index, axis: x[_at(axis % x.ndim, wrapped(index, x.shape[axis]))],
    grad=lambda b, g, y, x, index, axis: [
        ViewGradient("dynamic_index", g, (index,), {"axis": axis}),
        None,
    ],
    view=ViewRule(
        layout=lambda x, index, axis: x.index(axis, index),
        python=lambda x, index, axis: item(x, axis, index),
        unview=stored_by("set_dynamic_index"),
        static=lambda index, axis: ("index", {"axis": axis, "index": index}),
    ),
    checks=True,
    examples=(
        example("f32[3,8]", "i64[]", axis=1),
        example("i64[7,2,3]", "i64[]", axis=0),
        example("f32[4]", "i64[]", axis=0),
    ),
)
write_row(
    "set_dynamic_index(x, y, index, *, axis)",
    OPS["dynamic_index"],
    (
        example("f32[3,8]", "f32[3]", "i64[]", axis=1),
        example("i64[7]", "i64[]", "i64[]", axis=0),
    ),
)


def _window_types(x: Type, index: Type, axis: int, length: Dim) -> Type:
    _index_type(index)
    at = axis_in(axis, x.ndim)
    n = x.shape[at]
    if isinstance(n, int) and isinstance(length, int) and not 0 <= length <= n:
        raise ShapeError(f"a window of {length} of axis {axis} of {x}")
    return x.with_shape((*x.shape[:at], length, *x.shape[at + 1 :]))


def windowed(x: np.ndarray, index: np.ndarray, axis: int, length: int) -> np.ndarray:
    """The NumPy view of `length` elements from `index` on."""
    i = int(index)
    if not 0 <= i <= x.shape[axis] - length:
        raise IndexError(f"{length} elements from {i} on leave an axis of {x.shape[axis]}")
    out: np.ndarray = x[_at(axis % x.ndim, slice(i, i + length))]
    return out


op(
    "dynamic_slice(x, index, *, axis, length)",
    pairs=same_axis,
    types=_window_types,
    ref=windowed,
    grad=lambda b, g, y, x, index, **attrs: [
        ViewGradient("dynamic_slice", g, (index,), attrs),
        None,
    ],
    view=ViewRule(
        layout=lambda x, index, axis, length: x.slice(axis, index, length),
        python=lambda x, index, axis, length: item(x, axis, _cut(index, length)),
        unview=stored_by("set_dynamic_slice"),
        static=lambda index, axis, length: (
            "slice",
            {"axis": axis, "start": index, "length": length, "step": 1},
        ),
    ),
    checks=True,
    examples=(
        example("f32[3,8]", "i64[]", axis=1, length=3, low=0, high=4),
        example("i64[7,2]", "i64[]", axis=0, length=1, low=0, high=6),
        example("f32[4]", "i64[]", axis=0, length=4, low=0, high=0),
    ),
)
write_row(
    "set_dynamic_slice(x, y, index, *, axis)",
    OPS["dynamic_slice"],
    (
        example("f32[3,8]", "f32[3,3]", "i64[]", axis=1, low=0, high=4),
        example("i64[7]", "i64[2]", "i64[]", axis=0, low=0, high=5),
    ),
    along,
)


def _gather_types(x: Type, index: Type, axis: int) -> Type:
    require_kind("gather", index, "i")
    at = axis_in(axis, x.ndim)
    return x.with_shape((*x.shape[:at], *index.shape, *x.shape[at + 1 :]))


def _gather_ref(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    n = x.shape[axis]
    if index.size and (index.min() < -n or index.max() >= n):
        raise IndexError(f"gather: an index is outside of [-{n}, {n})")
    return np.take(x, index, axis)


def _gather_grad(
    b: Builder, g: Value, y: Value, x: Value, index: Value, axis: int
) -> list[ScatterGradient | None]:
    at = axis % x.type.ndim
    flat = flat_index(b, index)
    shape = (*x.type.shape[:at], flat.type.shape[0], *x.type.shape[at + 1 :])
    return [ScatterGradient(b.reshape(g, shape=shape), flat, at), None]


op(
    "gather(x, index, *, axis=0)",
    pairs=same_axis,
    types=_gather_types,
    ref=_gather_ref,
    grad=_gather_grad,
    selects=("x",),
    checks=True,
    examples=(
        example("f32[5,4]", "i64[7]", low=0, high=3),
        example("i64[5,4]", "i64[2,3]", axis=1, low=0, high=3),
        example("f32[5,4]", "i64[0]"),
    ),
)
