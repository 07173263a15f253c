"""Growth by concatenation: `ys = paddle.concat([ys, new], axis=1)` in every iteration of a loop.

The type of the tensor differs in every iteration, so it cannot be carried. In the body a `Grown`
takes its place, which knows its shape and its last element and records each appended piece; the
loop stacks the pieces, and one concat follows it. A read of the whole tensor in the body unrolls
the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import paddle

from dy2st.loops.record import LoopRecord, LoopTrace
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor, Shape, Tensor
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import is_symint, make
from dy2st.trace.trace import Trace, current
from ir import Carry, Op, Size, Stack, Type, Value
from ir.types import Dim


class Growth:
    """How one place grows: by `step` elements along `axis` in each iteration, at the end or in
    `front`."""

    def __init__(self, axis: int, step: Dim, front: bool) -> None:
        self.axis, self.step, self.front = axis, step, front

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Growth) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.axis, self.front))


class Source:
    """The tensor at the start of an iteration; `tail` is its last element, once it was asked."""

    def __init__(
        self, body_trace: LoopTrace, growth: Growth, init: FakeTensor, path: object
    ) -> None:
        self.body_trace, self.growth, self.init, self.path = body_trace, growth, init, path
        self.tail: tuple[Value, Value] | None = None

    @property
    def length(self) -> Dim:
        index = Size.named(self.body_trace.loop.name)
        return self.init._value.type.shape[self.growth.axis] + index * self.growth.step

    def last(self, trace: Trace) -> FakeTensor:
        """The last slice along the axis, without it."""
        if self.tail is None:
            self.tail = self.make_tail(trace)
        return trace.fake(self.tail[0], self.init.stop_gradient)

    def make_tail(self, trace: Trace) -> tuple[Value, Value]:
        axis, frame = self.growth.axis, self.body_trace.frame
        n = self.init._value.type.shape[axis]
        if self.growth.front or n == 0:
            raise NeedsConcrete("a tensor that this loop makes longer is read as a whole")
        at = trace.frames.index(frame)
        inner, trace.frames[at:] = trace.frames[at:], []
        try:
            init = trace.emit("index", [self.init._value], {"axis": axis, "index": n - 1})
            init = trace.emit("assign", [init], {})
        finally:
            trace.frames[at:] = inner
        value = trace.new_value(init.type, "last", frame)
        trace.values.placeholders.add(value)
        return value, init


class Grown(FakeTensor):  # type: ignore[misc]
    """`source` with `pieces` attached in this iteration."""

    @property
    def _value(self) -> NoReturn:
        raise NeedsConcrete("a tensor that this loop makes longer is read as a whole")

    @property
    def source(self) -> Source:
        return self.__dict__["source"]  # type: ignore[no-any-return]

    @property
    def pieces(self) -> tuple[FakeTensor, ...]:
        return self.__dict__["pieces"]  # type: ignore[no-any-return]

    @property
    def shape(self) -> Any:
        axis = self.source.growth.axis
        dims = list(self.source.init._value.type.shape)
        dims[axis] = self.source.length
        for p in self.pieces:
            dims[axis] = dims[axis] + p._value.type.shape[axis]
        return Shape(make(d, current()) for d in dims)

    def part_of(self, trace: Trace, items: Sequence[object]) -> object:
        """`self[items]`."""
        return item(trace, self, items)

    @property
    def dtype(self) -> Any:
        return DTYPE_TO_PADDLE[self.source.init._value.type.dtype]

    @property
    def ndim(self) -> int:
        return self.source.init._value.type.ndim

    @property  # type: ignore[misc]
    def stop_gradient(self) -> bool:  # type: ignore[override]
        return all(q.stop_gradient for q in (self.source.init, *self.pieces))


def grown(source: Source, pieces: Sequence[object]) -> Grown:
    made = Grown()
    made.__dict__.update(source=source, pieces=tuple(pieces))
    return made


# ---------------------------------------------------------------- in the body
def attach(trace: Trace, parts: Sequence[Any], axis: Any) -> Grown | None:
    """`paddle.concat(parts, axis)` of a growing tensor and what is attached to it."""
    at = [k for k, q in enumerate(parts) if type(q) is Grown]
    if len(at) != 1 or not isinstance(axis, int) or is_symint(axis):
        return None
    whole = parts[at[0]]
    growth, t = whole.source.growth, whole.source.init._value.type
    rest = [lift(trace, q) for k, q in enumerate(parts) if k != at[0] and isinstance(q, Tensor)]
    place = len(parts) - 1 if growth.front else 0
    if axis % whole.ndim != growth.axis or at[0] != place or len(rest) != len(parts) - 1:
        return None
    if any(_without(q._value.type, growth.axis) != _without(t, growth.axis) for q in rest):
        return None
    pieces = [*rest, *whole.pieces] if growth.front else [*whole.pieces, *rest]
    return grown(whole.source, pieces)


def _without(t: Type, axis: int) -> tuple[Any, ...]:
    return t.dtype, t.shape[:axis], t.shape[axis + 1 :]


def item(trace: Trace, x: Grown, items: Sequence[object]) -> Any:
    """`x[..., -1, ...]` or `x[..., -1:, ...]`: the last element; anything else needs the whole."""
    axis = x.source.growth.axis
    full = expanded(items, x.ndim)
    at = full[axis] if full is not None else None
    keep = isinstance(at, slice)
    if full is None or not is_last(trace, x, at):
        raise NeedsConcrete("a tensor that this loop makes longer is read as a whole")
    if x.pieces:
        piece = x.pieces[-1]
        one = piece[(slice(None),) * axis + (-1,)]
    else:
        one = x.source.last(trace)
    if keep:
        one = paddle.unsqueeze(one, axis)
        full[axis] = slice(None)
    else:
        del full[axis]
    plain = all(isinstance(q, slice) and q == slice(None) for q in full)
    return one if plain else one[tuple(full)]


def expanded(items: Sequence[object], ndim: int) -> list[Any] | None:
    """One index per axis; None where there are new axes or tensors."""
    if any(q is None or isinstance(q, Tensor) for q in items):
        return None
    out = [q for q in items if q is not Ellipsis]
    at = next((i for i, q in enumerate(items) if q is Ellipsis), len(items))
    out[at:at] = [slice(None)] * (ndim - len(out))
    return out


def is_last(trace: Trace, x: Grown, at: Any) -> bool:
    n = x.shape[x.source.growth.axis]
    if isinstance(at, slice):
        start = at.start
        whole = at.stop is None and at.step in (None, 1) and start is not None
        return whole and (start == -1 if not is_symint(start) else start.dim + 1 == n.dim)
    if is_symint(at):
        return bool(is_symint(n) and at.dim + 1 == n.dim)
    return bool(at == -1)


# ---------------------------------------------------------------- after the body
def learn(
    plan: LoopRecord,
    init: Value,
    a: FakeTensor,
    inner: Value,
    path: tuple[object, ...],
    stand_in: Value,
) -> None:
    """Learn that a place grows by a concat with itself; returns where it does not."""
    made = [op for op in plan.frame.builder.ops if isinstance(op, Op) and inner in op.results]
    if not made or made[0].name != "concat" or path in plan.body_trace.known.grown:
        return
    axis = made[0].attrs["axis"] % inner.type.ndim
    where = [k for k, v in enumerate(made[0].operands) if v is stand_in]
    front = where == [len(made[0].operands) - 1]
    if where != [0] and not front or _without(init.type, axis) != _without(inner.type, axis):
        return
    step = inner.type.shape[axis] - init.type.shape[axis]
    plan.body_trace.known.grown[path] = Growth(axis, step, front)
    raise Retrace


def placeholder(body_trace: LoopTrace, fake: FakeTensor, path: tuple[object, ...]) -> Grown:
    return grown(Source(body_trace, body_trace.known.grown[path], fake, path), ())


def settle(plan: LoopRecord, name: str, p: Grown, a: object) -> object:
    """The tensor after the loop; raises NeedsConcrete where it did not grow as it was learned."""
    source, trace = p.source, plan.trace
    axis, step = source.growth.axis, source.growth.step
    if type(a) is not Grown or a.source is not source:
        raise NeedsConcrete(f"{name} does not grow by the same piece in every iteration")
    total: Dim = 0
    for q in a.pieces:
        total = total + q._value.type.shape[axis]
    if total != step:
        raise NeedsConcrete(f"{name} does not grow by the same piece in every iteration")
    values = [trace.read_value(q._value) for q in a.pieces]
    piece = values[0] if len(values) == 1 else trace.emit("concat", values, {"axis": axis})
    if source.tail is not None:
        last = trace.emit("index", [piece], {"axis": axis, "index": step - 1})
        plan.carries[source.tail[0]] = Carry(source.tail[0], source.tail[1], last, None)
    shape = list(piece.type.shape)
    shape.insert(axis, plan.body_trace.length)
    outer = trace.new_value(piece.type.with_shape(shape), name, plan.outer)
    plan.stacks.append(Stack(outer, piece, axis))
    plan.blur(piece, outer)
    return Later(source, outer, a.stop_gradient)


class Later:
    """The tensor is put together when the loop is in the program."""

    def __init__(self, source: Source, pieces: Value, stop_gradient: bool) -> None:
        self.source, self.pieces, self.stop_gradient = source, pieces, stop_gradient

    def value(self, trace: Trace) -> FakeTensor:
        axis, init = self.source.growth.axis, self.source.init._value
        shape, value = list(self.pieces.type.shape), self.pieces
        if self.source.growth.front:
            n = shape[axis]
            attrs = {"axis": axis, "start": n - 1, "length": n, "step": -1}
            value = trace.emit("slice", [value], attrs)
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        value = trace.emit("reshape", [value], {"shape": tuple(shape)})
        parts = [value, init] if self.source.growth.front else [init, value]
        value = trace.emit("concat", parts, {"axis": axis})
        return trace.fake(value, self.stop_gradient)


__all__ = ["Grown", "Growth", "Later", "attach", "item", "learn", "placeholder", "settle"]
