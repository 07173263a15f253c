"""Batching rules: an op of a loop's body on tensors that hold all iterations.

A `Batched` value has the loop's iterations along one `axis`. `batch` computes an op on batched and
invariant operands outside of the loop, or says None where the op has no such form.

Layout: the axis stays where it is. For `%xt = %x[:, t]` of f32[B,T,F] a matmul with f32[F,G] runs
on f32[B,T,F] as it lies. What matters is therefore how many axes lie to the right of the loop's
axis: operands that broadcast must agree on it.

       per iteration        batched, 1 axis to the right of T
         [B, F]                 [B, T, F]
            [F]                    [F]          an invariant that lies to the right
         [B, 1]                 [B, 1, 1]       an invariant that reaches over T: an axis 1 is added
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ir.ops.reduce import normal_axes
from ir.program import Op, Value
from ir.rewrite import Block
from ir.types import I64, Dim, product


@dataclass(frozen=True)
class Batched:
    """`value` holds iteration i at `start + step * i` of `axis`; None for an invariant."""

    value: Value
    axis: int | None = None
    start: Dim = 0
    step: int = 1

    @property
    def right(self) -> int:
        """Axes to the right of the loop's axis."""
        assert self.axis is not None
        return self.value.type.ndim - 1 - self.axis


BatchingRule: TypeAlias = Callable[[Block, Op, Sequence[Batched], Dim], "Batched | None"]


def batch(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    """`op` for all `trip` iterations; None, with nothing emitted, if that has no form."""
    orders = {(x.start, x.step) for x in operands if x.axis is not None}
    if len(op.results) != 1 or len(orders) != 1:
        return None
    rule = elementwise if op.row.kernel else reduction if op.row.reduce else RULES.get(op.name)
    out = rule(b, op, operands, trip) if rule is not None else None
    (start, step), *_ = orders
    return replace(out, start=start, step=step) if out is not None else None


def _only_first(operands: Sequence[Batched]) -> bool:
    return operands[0].axis is not None and all(x.axis is None for x in operands[1:])


def _emit(b: Block, op: Op, operands: Sequence[Value], loop: int, **attrs: object) -> Batched:
    value = b.emit(op.name, operands, {**op.attrs, **attrs}, op.result.name)[0]
    return Batched(value, loop)


def elementwise(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    rights = {x.right for x in operands if x.axis is not None}
    if len(rights) != 1:
        return None
    right = rights.pop()
    values = [x.value if x.axis is not None else _over(b, x.value, right) for x in operands]
    return _emit(b, op, values, op.result.type.ndim - right)


def _over(b: Block, v: Value, right: int) -> Value:
    """An invariant with an axis of size 1 where it reaches over the loop's axis."""
    shape = v.type.shape
    if len(shape) <= right:
        return v
    cut = len(shape) - right
    new: Value = b.reshape(v, shape=(*shape[:cut], 1, *shape[cut:]))
    return new


def matmul(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    """Rows times weights: f32[B,T,F] with f32[F,G]. The loop's axis is a row or a batch axis."""
    x, w = operands
    if not _only_first(operands) or w.value.type.ndim != 2 or not x.right or op.attrs["trans_x"]:
        return None
    assert x.axis is not None
    return _emit(b, op, (x.value, w.value), x.axis)


def embedding(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    ids, table = operands
    if not _only_first(operands) or ids.axis is None:
        return None
    return _emit(b, op, (ids.value, table.value), ids.axis)


def reduction(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    (x,), ndim = operands, op.operands[0].type.ndim
    if x.axis is None or ndim == 0:
        return None
    axes = normal_axes(op.attrs["axes"], ndim)
    gone = 0 if op.attrs["keepdim"] else sum(a < x.axis for a in axes)
    return _emit(b, op, (x.value,), x.axis - gone, axes=tuple(_past(a, x.axis) for a in axes))


def _past(axis: int, loop: int) -> int:
    """An axis of the body's tensor, in the batched one."""
    return axis if axis < loop else axis + 1


def reshape(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    """The axes before the loop's axis and those behind it are reshaped apart."""
    (x,) = operands
    old, new = op.operands[0].type.shape, op.result.type.shape
    assert x.axis is not None
    before = product(old[: x.axis])
    for cut in range(len(new), -1, -1):
        if product(new[:cut]) == before and product(new[cut:]) == product(old[x.axis :]):
            return _emit(b, op, (x.value,), cut, shape=(*new[:cut], trip, *new[cut:]))
    return None


def transpose(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    """The loop's axis keeps its position."""
    (x,) = operands
    assert x.axis is not None
    ndim = op.result.type.ndim
    perm = [_past(p % ndim, x.axis) for p in op.attrs["perm"]]
    perm.insert(x.axis, x.axis)
    return _emit(b, op, (x.value,), x.axis, perm=tuple(perm))


def expand(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    (x,) = operands
    shape = op.result.type.shape
    at = len(shape) - x.right
    return _emit(b, op, (x.value,), at, shape=(*shape[:at], trip, *shape[at:]))


def slice_(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    (x,) = operands
    assert x.axis is not None
    axis = op.attrs["axis"] % op.operands[0].type.ndim
    gone = int(op.name == "index" and axis < x.axis)
    return _emit(b, op, (x.value,), x.axis - gone, axis=_past(axis, x.axis))


def scatter_nd(b: Block, op: Op, operands: Sequence[Batched], trip: Dim) -> Batched | None:
    """Each iteration puts elements into a row of its own, the first axis."""
    if op.attrs["axis"] % op.result.type.ndim or any(q.axis not in (None, 0) for q in operands):
        return None
    x, y, *index = (_over_all(b, q, trip) for q in operands)
    shape = index[0].type.shape
    row = b.reshape(b.iota(n=trip, dtype=I64), shape=(trip, *(1 for _ in shape[1:])))
    return _emit(b, op, (x, y, b.expand(row, shape=shape), *index), 0)


def _over_all(b: Block, q: Batched, trip: Dim) -> Value:
    """The value of each iteration, along the first axis."""
    if q.axis is not None:
        return q.value
    out: Value = b.expand(_over(b, q.value, q.value.type.ndim), shape=(trip, *q.value.type.shape))
    return out


RULES: dict[str, BatchingRule] = {
    "matmul": matmul,
    "embedding": embedding,
    "reshape": reshape,
    "transpose": transpose,
    "expand": expand,
    "slice": slice_,
    "index": slice_,
    "scatter_nd": scatter_nd,
}

__all__ = ["Batched", "batch"]
