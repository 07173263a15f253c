"""Growth by concatenation: `ys = paddle.concat([ys, new], axis=1)` in every iteration of a loop.

The type of the tensor differs in every iteration, so it cannot be carried. In the body a
`ConcatenatedTensor` takes its place, which knows its shape and its last element and records each
appended piece; the loop stacks the pieces, and one concat follows it.

A body that reads the whole tensor gets it as a part of a buffer, which is carried and has room for
all iterations: the pieces are stored into it, and the tensor is a slice as long as the iteration
says. Without a bound of the iterations the loop is unrolled.

    carry %buffer = %initial then %buffer1          # [n + T * step]
    body
      %whole   = slice(%buffer, start=0, length=n + step * t)
      %buffer1 = set_slice(%buffer, %piece, start=n + step * t)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import paddle

from dy2st.loops.growth.detection import Growth, refute, without
from dy2st.loops.record import LoopRecord, LoopTrace
from dy2st.state.containers.dynamic_lookup import at_frame, outside
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor, Shape, Tensor
from dy2st.trace.item import size_of
from dy2st.trace.scalar import PathCondition, is_runtime_scalar, known
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import is_symint, make
from dy2st.trace.trace import Frame, Trace, current
from ir import Carry, Size, Stack, Type, Value
from ir.types import I64, Dim


class CarriedTensor:
    """The tensor at the start of an iteration; `tail` is its last element, once it was asked.
    `initial` is the buffer before the loop, `buffers` are those of the body by the number of pieces
    that it has stored, where the body reads the whole tensor. `final` is the tensor after the loop,
    `ended` what holds in an iteration that ends in front of the concat."""

    def __init__(
        self, body_trace: LoopTrace, growth: Growth, init: FakeTensor, path: tuple[object, ...]
    ) -> None:
        self.body_trace, self.growth, self.init, self.path = body_trace, growth, init, path
        self.tail: tuple[Value, Value] | None = None
        self.buffers: dict[tuple[Value, ...], Value] = {}
        self.initial: Value | None = None
        self.final: object = None
        self.ended: frozenset[PathCondition] = frozenset()

    @property
    def stop_gradient(self) -> bool:
        return bool(self.init.stop_gradient) and self.path not in self.body_trace.known.trained

    def refute(self) -> None:
        """The place does not grow. If that was a guess, the loop is traced again without it."""
        known = self.body_trace.known
        if self.path in known.guessed and refute(self.body_trace):
            raise Retrace

    def unequal(self, name: str) -> NeedsConcrete:
        """The signal that ends a trace in which the place grows otherwise than learned."""
        self.refute()
        return NeedsConcrete(f"{name} does not grow by the same piece in every iteration")

    def start(self, iterations: Dim, more: Dim = 0) -> Dim:
        """Return the start of the tensor in the buffer after some iterations, with `more`
        elements."""
        if not self.growth.front:
            return 0
        self.body_trace.need_bound()
        return (self.body_trace.loop.trip - iterations) * self.growth.step - more

    def first_buffer(self, trace: Trace) -> Value:
        """The buffer at the start of an iteration."""
        if () not in self.buffers:
            self.initial = self.initial_buffer(trace)
            inner = trace.new_value(self.initial.type, "buffer", self.body_trace.frame)
            trace.values.placeholders.add(inner)
            if not self.stop_gradient:
                trace.autograd.trained.add(inner)
            self.buffers[()] = inner
        return self.buffers[()]

    def initial_buffer(self, trace: Trace) -> Value:
        """The buffer before the loop."""
        self.body_trace.need_bound()
        axis, init, trip = self.growth.axis, self.init._value, self.body_trace.loop.trip
        with outside(trace, self.body_trace.frame):
            shape = list(init.type.shape)
            shape[axis] = shape[axis] + trip * self.growth.step
            attrs = {"value": 0, "shape": tuple(shape), "dtype": init.type.dtype}
            zeros = trace.emit("full", [], attrs)
            attrs = {"axis": axis, "start": self.start(0)}
            made: Value = trace.emit("set_slice", [zeros, init], attrs)
            return made

    def buffer(self, trace: Trace, pieces: Sequence[FakeTensor]) -> Value:
        """The buffer with these pieces stored in it."""
        if not pieces:
            return self.first_buffer(trace)
        key = tuple(q._value for q in pieces)
        if key not in self.buffers:
            last, rest = (pieces[0], pieces[1:]) if self.growth.front else (pieces[-1], pieces[:-1])
            before, axis = self.buffer(trace, rest), self.growth.axis
            n = sum_of(q._value.type.shape[axis] for q in rest)
            index = Size.named(self.body_trace.loop.name)
            start = self.length + n
            if self.growth.front:
                start = self.start(index, n + last._value.type.shape[axis])
            attrs = {"axis": axis, "start": start}
            self.buffers[key] = trace.emit("set_slice", [before, last._value], attrs)
        return self.buffers[key]

    def whole(self, trace: Trace, pieces: Sequence[FakeTensor]) -> Value:
        """The tensor with these pieces, as a part of the buffer."""
        axis, index = self.growth.axis, Size.named(self.body_trace.loop.name)
        n = sum_of(q._value.type.shape[axis] for q in pieces)
        attrs = {"axis": axis, "start": self.start(index, n), "length": self.length + n, "step": 1}
        made: Value = trace.emit("slice", [self.buffer(trace, pieces)], attrs)
        return made

    @property
    def length(self) -> Dim:
        index = Size.named(self.body_trace.loop.name)
        return self.init._value.type.shape[self.growth.axis] + index * self.growth.step

    def last(self, trace: Trace) -> FakeTensor:
        """The last slice along the axis, without it."""
        if self.tail is None:
            self.tail = self.make_tail(trace)
        return trace.fake(self.tail[0], self.init.stop_gradient)

    def has_last(self, pieces: Sequence[FakeTensor]) -> bool:
        """Whether the last element is at hand or carried, so that no buffer is needed for it."""
        start = self.init._value.type.shape[self.growth.axis]
        return not self.buffers and bool(pieces or not self.growth.front and start != 0)

    def make_tail(self, trace: Trace) -> tuple[Value, Value]:
        axis, frame = self.growth.axis, self.body_trace.frame
        n = self.init._value.type.shape[axis]
        with outside(trace, frame):
            init = trace.emit("index", [self.init._value], {"axis": axis, "index": n - 1})
            init = trace.emit("assign", [init], {})
        value = trace.new_value(init.type, "last", frame)
        trace.values.placeholders.add(value)
        return value, init


class ConcatenatedTensor(FakeTensor):  # type: ignore[misc]
    """`source` with `pieces` attached in this iteration."""

    @property
    def _value(self) -> Value:
        if "made" not in self.__dict__:
            trace = self.source.body_trace.trace
            with self.in_its_frame(trace):
                made = self.source.whole(trace, self.pieces)
            if not self.stop_gradient:
                trace.autograd.trained.add(made)
            self.__dict__["made"] = made
        return self.__dict__["made"]  # type: ignore[no-any-return]

    def in_its_frame(self, trace: Trace) -> AbstractContextManager[None]:
        """Ops are emitted where the last piece was made."""
        homes = [trace.values.frame_of[q._value] for q in self.pieces]
        return at_frame(
            trace, max(trace.frames.index(f) for f in (self.source.body_trace.frame, *homes))
        )

    @property
    def source(self) -> CarriedTensor:
        return self.__dict__["source"]  # type: ignore[no-any-return]

    @property
    def pieces(self) -> tuple[FakeTensor, ...]:
        return self.__dict__["pieces"]  # type: ignore[no-any-return]

    def ask_type(self) -> Type:
        """The type, without the tensor."""
        axis, t = self.source.growth.axis, self.source.init._value.type
        dims = list(t.shape)
        dims[axis] = self.source.length + sum_of(p._value.type.shape[axis] for p in self.pieces)
        return t.with_shape(dims)

    @property
    def shape(self) -> Any:
        return Shape(make(d, current()) for d in self.ask_type().shape)

    def merged(
        self, other: object, join: Callable[[object, object], FakeTensor]
    ) -> ConcatenatedTensor | None:
        """This tensor and one that a branch has made longer by pieces of the same types."""
        if type(other) is not ConcatenatedTensor or other.source is not self.source:
            return None
        pairs = list(zip(self.pieces, other.pieces))
        same = all(x._value.type == y._value.type for x, y in pairs)
        if not same or len(self.pieces) != len(other.pieces):
            self.source.body_trace.uneven.add(self.source.path)
            return None
        return grown(self.source, [join(x, y) for x, y in pairs])

    def same_pieces(self, other: ConcatenatedTensor) -> bool:
        return list(map(id, self.pieces)) == list(map(id, other.pieces))

    def outlives(self, frame: Frame) -> bool:
        """Whether it was made before the block of this frame."""
        homes = self.source.body_trace.trace.values.frame_of
        return all(homes[q._value] is not frame for q in self.pieces)

    def __describe__(self) -> str:
        dims = ",".join(map(repr, self.shape))
        return f"{self.source.init._value.type.dtype}[{dims}]"

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
        return self.source.stop_gradient and all(q.stop_gradient for q in self.pieces)


def grown(source: CarriedTensor, pieces: Sequence[object]) -> ConcatenatedTensor:
    made = ConcatenatedTensor()
    made.__dict__.update(source=source, pieces=tuple(pieces))
    return made


# ---------------------------------------------------------------- in the body
def attach(trace: Trace, parts: Sequence[Any], axis: object) -> ConcatenatedTensor | None:
    """`paddle.concat(parts, axis)` of a growing tensor and what is attached to it."""
    at = [k for k, q in enumerate(parts) if type(q) is ConcatenatedTensor]
    if len(at) != 1 or not isinstance(axis, int) or is_symint(axis):
        return None
    whole = parts[at[0]]
    growth, t = whole.source.growth, whole.source.init._value.type
    rest = [lift(trace, q) for k, q in enumerate(parts) if k != at[0] and isinstance(q, Tensor)]
    place = len(parts) - 1 if growth.front else 0
    if axis % whole.ndim != growth.axis or at[0] != place or len(rest) != len(parts) - 1:
        return None
    if any(without(q._value.type, growth.axis) != without(t, growth.axis) for q in rest):
        return None
    pieces = [*rest, *whole.pieces] if growth.front else [*whole.pieces, *rest]
    return grown(whole.source, pieces)


def item(trace: Trace, x: ConcatenatedTensor, items: Sequence[object]) -> Any:
    """`x[..., -1, ...]` or `x[..., -1:, ...]`: the last element; anything else needs the whole."""
    axis = x.source.growth.axis
    full = expanded(items, x.ndim)
    at = full[axis] if full is not None else None
    keep = isinstance(at, slice)
    if full is None or not x.source.has_last(x.pieces) or not is_last(trace, x, at):
        return trace.fake(x._value, x.stop_gradient)[tuple(items)]
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


def is_last(trace: Trace, x: ConcatenatedTensor, at: Any) -> bool:
    n = x.shape[x.source.growth.axis]
    if isinstance(at, slice):
        start = at.start
        whole = at.stop is None and at.step in (None, 1) and start is not None
        return whole and (start == -1 if not is_symint(start) else start.dim + 1 == n.dim)
    if is_symint(at):
        return bool(is_symint(n) and at.dim + 1 == n.dim)
    return bool(at == -1)


# ---------------------------------------------------------------- after the body
def placeholder(
    body_trace: LoopTrace, fake: FakeTensor, path: tuple[object, ...]
) -> ConcatenatedTensor:
    return grown(CarriedTensor(body_trace, body_trace.known.grown[path], fake, path), ())


def settle(plan: LoopRecord, name: str, p: ConcatenatedTensor, a: object) -> object:
    """The tensor after the loop; raises NeedsConcrete where it did not grow as it was learned."""
    if p.source.final is None:
        p.source.final = settle_first(plan, name, p.source, a)
    return p.source.final


def settle_first(plan: LoopRecord, name: str, source: CarriedTensor, a: object) -> object:
    """Like `settle`; the ports of the loop are created once."""
    trace = plan.trace
    axis, step = source.growth.axis, source.growth.step
    if type(a) is not ConcatenatedTensor or a.source is not source:
        return settle_made(plan, name, source, a)
    if sum_of(q._value.type.shape[axis] for q in a.pieces) != step:
        raise source.unequal(name)
    missed = broken_off(plan, source)
    if source.buffers and source.tail is None:
        return settle_buffer(plan, name, source, stored(plan, a), a.stop_gradient, missed)
    values = [trace.read_value(q._value) for q in a.pieces]
    piece = values[0] if len(values) == 1 else trace.emit("concat", values, {"axis": axis})
    carry_tail(plan, source, piece)
    if source.buffers:
        return settle_buffer(plan, name, source, stored(plan, a), a.stop_gradient, missed)
    shape = list(piece.type.shape)
    shape.insert(axis, plan.body_trace.length)
    outer = trace.new_value(piece.type.with_shape(shape), name, plan.outer)
    plan.stacks.append(Stack(outer, piece, axis))
    plan.blur(piece, outer)
    with plan.behind():
        return attached(plan, source, outer, a.stop_gradient, missed)


def attached(
    plan: LoopRecord,
    source: CarriedTensor,
    pieces: Value,
    stop_gradient: bool,
    missed: Value | None,
) -> FakeTensor:
    """The tensor with the pieces of all iterations, which are stacked along its axis."""
    trace, axis, init = plan.trace, source.growth.axis, source.init._value
    shape, value = list(pieces.type.shape), pieces
    if source.growth.front:
        n = shape[axis]
        attrs = {"axis": axis, "start": n - 1, "length": n, "step": -1}
        value = trace.emit("slice", [value], attrs)
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    value = trace.emit("reshape", [value], {"shape": tuple(shape)})
    parts = [value, init] if source.growth.front else [init, value]
    value = trace.emit("concat", parts, {"axis": axis})
    if missed is not None:
        n = length_after(trace, source, pieces.type.shape[axis], missed)
        start = value.type.shape[axis] - n if source.growth.front else 0
        attrs = {"axis": axis, "start": start, "length": n, "step": 1}
        value = trace.emit("slice", [value], attrs)
    if is_runtime_scalar(plan.body_trace.go):
        trace.values.copies[value] = (init,)
    return trace.fake(value, stop_gradient)


def returned(plan: LoopRecord, name: str, a: ConcatenatedTensor) -> object:
    """The value after the loop of `return ids` in its body. It is read only if an iteration has set
    it, which ends the loop: then it is what the place of the tensor holds. Raises NeedsConcrete for
    an earlier part of the tensor."""
    source = a.source
    end = plan.ends.get(source.path)
    other = plan.body_trace.breaking.get(source.path)
    ended = source.ended if other is None else other.facts or frozenset()
    if ended:
        flag = plan.ends.get((name.replace("_return_value__", "_returned__"),))
        kept = not a.pieces and ended <= equivalents(flag)
    else:
        kept = type(end) is ConcatenatedTensor and end.source is source and end.same_pieces(a)
    if not kept:
        raise NeedsConcrete(f"{name} leaves the loop as an earlier part of a growing tensor")
    return settle(plan, name, grown(source, ()), end)


def equivalents(flag: object) -> frozenset[PathCondition]:
    """The facts that hold exactly where a flag is true; none of a flag that is known."""
    if not is_runtime_scalar(flag):
        return frozenset()
    return known(flag, "implies") & known(flag, "implied")


def broken_off(plan: LoopRecord, source: CarriedTensor) -> Value | None:
    """1 after the loop if its last iteration ended in front of the concat, else 0; None if each
    iteration comes to it. What the last one has stored lies behind the end of the tensor."""
    trace, path = plan.trace, source.path
    other = plan.body_trace.breaking.get(path)
    if other is None:
        return None
    old, facts = other.value, tuple(other.facts or ())
    unchanged = type(old) is ConcatenatedTensor and old.source is source and not old.pieces
    if not unchanged or len(facts) != 1 or facts[0][0] not in ("is", "not"):
        raise plan.body_trace.unreadable[path]
    ((op, flag),) = facts
    source.ended = frozenset(facts)
    del plan.body_trace.breaking[path], plan.body_trace.unreadable[path]
    with trace.outside():
        none = trace.dim_value(0)
    flag = trace.read_value(flag)
    flag = flag if op == "is" else trace.emit("logical_not", [flag], {})
    inner = trace.emit("cast", [flag], {"dtype": I64})
    return plan.add_carry(trace.new_value(Type(I64), "missed"), none, inner, "missed")


def length_after(trace: Trace, source: CarriedTensor, iterations: Dim, missed: Value | None) -> Dim:
    """Return the length of the tensor after the loop."""
    n, step = source.init._value.type.shape[source.growth.axis], source.growth.step
    if missed is None:
        return n + iterations * step
    ran = trace.emit("subtract", [trace.dim_value(iterations), missed], {})
    return n + size_of(trace, ran, source.body_trace.loop.trip) * step


def settle_made(plan: LoopRecord, name: str, source: CarriedTensor, a: object) -> object:
    """The tensor after the loop, where an iteration makes all of it: `concat` and then `gather`."""
    axis, index = source.growth.axis, Size.named(plan.body_trace.loop.name)
    shape = list(source.init._value.type.shape)
    shape[axis] = source.length + source.growth.step
    if not isinstance(a, Tensor) or a._value.type != source.init._value.type.with_shape(shape):
        raise source.unequal(name)
    value = plan.trace.read_value(a._value)
    buffer = source.first_buffer(plan.trace)
    attrs = {"axis": axis, "start": source.start(index + 1)}
    after = plan.trace.emit("set_slice", [buffer, value], attrs)
    missed = broken_off(plan, source)
    if missed is not None:
        op, flag = next(iter(source.ended))
        pair = [buffer, after] if op == "is" else [after, buffer]
        after = plan.trace.emit("where", [plan.trace.read_value(flag), *pair], {})
    carry_tail(plan, source, value)
    return settle_buffer(plan, name, source, after, bool(a.stop_gradient), missed)


def carry_tail(plan: LoopRecord, source: CarriedTensor, value: Value) -> None:
    """Carry the last element of the tensor, which is that of `value`, if the body reads it."""
    if source.tail is not None:
        inner, init = source.tail
        axis = source.growth.axis
        attrs = {"axis": axis, "index": value.type.shape[axis] - 1}
        plan.carries[inner] = Carry(inner, init, plan.trace.emit("index", [value], attrs), None)


def stored(plan: LoopRecord, a: ConcatenatedTensor) -> Value:
    """The buffer with the pieces of an iteration."""
    return plan.trace.read_value(a.source.buffer(plan.trace, a.pieces))


def settle_buffer(
    plan: LoopRecord,
    name: str,
    source: CarriedTensor,
    after: Value,
    stop_gradient: bool,
    missed: Value | None,
) -> object:
    """The tensor after the loop, as a part of the carried buffer, which is `after` at the end of an
    iteration."""
    trace, axis, length = plan.trace, source.growth.axis, plan.body_trace.length
    if source.stop_gradient and not stop_gradient:
        plan.flips.append(source.path)
    assert source.initial is not None
    plan.body_trace.paths[source.buffers[()]] = source.path
    out = plan.add_carry(source.buffers[()], source.initial, after, name)
    with plan.behind():
        n = length_after(trace, source, length, missed)
        start = source.initial.type.shape[axis] - n if source.growth.front else 0
        attrs = {"axis": axis, "start": start, "length": n, "step": 1}
        value = trace.emit("slice", [out], attrs)
        return trace.fake(value, stop_gradient)


def sum_of(dims: Iterable[Dim]) -> Dim:
    total: Dim = 0
    for d in dims:
        total = total + d
    return total


__all__ = [
    "ConcatenatedTensor",
    "attach",
    "item",
    "placeholder",
    "settle",
]
