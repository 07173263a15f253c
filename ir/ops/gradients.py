"""Partial gradients: a gradient that is zero except for a part of its tensor.

Such a gradient is not built as a whole: `ViewGradient`, `ScatterGradient` and `GatherGradient` say
where the part belongs and are added to the gradient so far, in place when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ir.opdef import no_gradient, view_rule
from ir.program import Builder, Carry, Op, Scan, Seq, Value
from ir.types import I64, Type, is_natural, product

#: ops among which the parts of a gradient are looked for
RECENT = 64


@dataclass(frozen=True)
class ViewGradient:
    """`g` where the view `name(x, *operands, **attrs)` of the tensor is, zero elsewhere."""

    name: str
    g: Value
    operands: tuple[Value, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)

    def add_to(self, b: Builder, acc: Value | None, t: Type) -> Value:
        """`acc` (zero if None), a gradient of type `t`, with this one added."""
        unview = view_rule(self.name).unview
        if acc is None:
            new: Value = unview(b, zeros(b, t), self.g, *self.operands, **self.attrs)
            return new
        if self.name == "slice" and self._is_beside(b, acc):
            new = unview(b, acc, self.g, **self.attrs)
            return new
        (old,) = b.emit(self.name, (acc, *self.operands), self.attrs)
        new = unview(b, acc, b.add(old, self.g), *self.operands, **self.attrs)
        return new

    def _is_beside(self, b: Builder, acc: Value) -> bool:
        """Whether `acc` is zero here: all that has been added to it are slices beside this one."""
        recent = {r: op for op in b.ops[-RECENT:] if isinstance(op, Op) for r in op.results}
        first, n = self.attrs["start"], self.attrs["length"]
        while (op := recent.get(acc)) is not None and op.name == "set_slice":
            start, part = op.attrs["start"], op.operands[1]
            axis = op.attrs["axis"] % acc.type.ndim
            end = start + part.type.shape[axis]
            aligned = axis == self.attrs["axis"] % acc.type.ndim
            steps = op.attrs["step"], self.attrs["step"]
            beside = is_natural(start - first - n) or is_natural(first - end)
            if steps != (1, 1) or not aligned or not beside:
                return False
            acc = op.operands[0]
        return op is not None and op.name == "full" and op.attrs["value"] == 0


@dataclass(frozen=True)
class ScatterGradient:
    """Slice k of `g` along `axis` belongs to slice `index[k]` of the tensor; slices that meet add.

    `index` is i64[n]; a loop over it, whose order of addition is that of the slices.
    """

    g: Value
    index: Value
    axis: int

    def add_to(self, b: Builder, acc: Value | None, t: Type) -> Value:
        start = zeros(b, t) if acc is None else acc
        n, axis = self.index.type.shape[0], self.axis
        shape = (*t.shape[:axis], *t.shape[axis + 1 :])
        row, at = Value(t.with_shape(shape), "row"), Value(Type(I64), "at")
        inner, last = Value(t, start.name), Value(t, start.name)
        body = Builder(b.loc)
        new = body.add(body.dynamic_index(inner, at, axis=axis), row)
        after = body.set_dynamic_index(inner, new, at, axis=axis)
        ports = (Seq(at, self.index, 0), Seq(row, self.g, axis), Carry(inner, start, after, last))
        b.append(Scan(Value(Type(I64), "k"), n, ports, tuple(body.ops), b.loc))
        return last


@dataclass(frozen=True)
class GatherGradient:
    """`g` belongs to the elements that `take` reads with these indices; those that meet add."""

    g: Value
    index: tuple[Value, ...]
    axis: int

    def add_to(self, b: Builder, acc: Value | None, t: Type) -> Value:
        start = zeros(b, t) if acc is None else acc
        new: Value = b.scatter_nd(start, self.g, *self.index, axis=self.axis, combine="add")
        return new


@dataclass(frozen=True)
class ZeroGradient:
    """No gradient in value; the tensor has one all the same."""

    def add_to(self, b: Builder, acc: Value | None, t: Type) -> Value:
        return zeros(b, t) if acc is None else acc


def overwritten(
    b: Builder, g: Value, name: str, *operands: Value, **attrs: Any
) -> list[Value | None]:
    """Gradients of x, y and `operands` of a write of y to the view `name` of x.

    That of y is read first: then the other one can be made in place.
    """
    (dy,) = b.emit(name, (g, *operands), attrs)
    dx = view_rule(name).unview(b, g, zeros(b, dy.type), *operands, **attrs)
    return [dx, dy, *(None for _ in operands)]


Contribution: TypeAlias = (
    Value | ViewGradient | ScatterGradient | GatherGradient | ZeroGradient | None
)


Parts: TypeAlias = ViewGradient | ScatterGradient | GatherGradient | ZeroGradient


def added(b: Builder, acc: Value | None, g: Value | Parts, t: Type) -> Value:
    """The gradient `acc` with `g` added."""
    if isinstance(g, (ViewGradient, ScatterGradient, GatherGradient, ZeroGradient)):
        return g.add_to(b, acc, t)
    if acc is None:
        return g
    total: Value = b.add(acc, g)
    return total


def zeros(b: Builder, t: Type, hint: str = "") -> Value:
    value = {"f": 0.0, "b": False}.get(t.dtype.kind, 0)
    new: Value = b.full(value=value, shape=t.shape, dtype=t.dtype, hint=hint)
    return new


def zero_gradient(b: Builder, g: Any, y: Any, *operands: Value, **attrs: Any) -> list[ZeroGradient]:
    """The `grad` of a row whose results are constant almost everywhere, as those of `floor`."""
    return [ZeroGradient()] * len(operands)


def is_zero(b: Builder, g: Value) -> bool:
    """Whether `g` stands for a gradient that there is none of: of results one is not asked."""
    made = [op for op in b.ops if op.name == "full" and op.results[0] is g]
    return bool(made) and isinstance(made[0], Op) and made[0].attrs["value"] == 0.0


def number(b: Builder, value: float, like: Value) -> Value:
    """A 0-d constant that broadcasts against `like`."""
    new: Value = b.full(value=value, dtype=like.type.dtype)
    return new


def masked(b: Builder, test: Value, g: Value) -> Value:
    """`g` where `test` holds, else zero."""
    new: Value = b.where(test, g, number(b, 0.0, g))
    return new


def fitted(b: Builder, g: Value, t: Type) -> Value:
    """The gradient of what was broadcast from `t`: summed over the axes that it did not have."""
    extra = g.type.ndim - t.ndim
    have = g.type.shape[extra:]
    axes = [i for i in range(extra) if g.type.shape[i] != 1]
    axes += [i + extra for i, d in enumerate(t.shape) if d == 1 and have[i] != 1]
    if axes:
        g = b.sum(g, axes=tuple(axes))
    new: Value = g if g.type.shape == t.shape else b.reshape(g, shape=t.shape)
    return new


def broadcasting(grad: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """`grad` of operands that were broadcast, from a `grad` for operands of the result's shape."""
    if grad is no_gradient:
        return grad

    def wrapped(b: Builder, g: Value, y: Value, *operands: Value, **attrs: Any) -> list[Any]:
        found = grad(b, g, y, *operands, **attrs)
        return [q if q is None else fitted(b, q, x.type) for q, x in zip(found, operands)]

    return wrapped


def flat_index(b: Builder, index: Value) -> Value:
    """Indices of any shape and width as i64[n]."""
    flat = b.reshape(index, shape=(product(index.type.shape),))
    new: Value = flat if flat.type.dtype == I64 else b.cast(flat, dtype=I64)
    return new


__all__ = [
    "Contribution",
    "GatherGradient",
    "ViewGradient",
    "ScatterGradient",
    "added",
    "broadcasting",
    "fitted",
    "flat_index",
    "is_zero",
    "masked",
    "number",
    "overwritten",
    "ZeroGradient",
    "zero_gradient",
    "zeros",
]
