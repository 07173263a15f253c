"""Padded buffers: carried tensors with a length, for conditional growth and data-dependent sizes.

    for t in range(n):
        if keep(t):
            ids = paddle.concat([ids, token], 1)

The tensor is a part of a buffer that has room for all iterations, and its length is carried beside
the buffer. A branch hands on both.

    carry %buffer = %initial then %buffer1          # [n + T * step]
    carry %length = %n then %length1             # i64[]
    body
      cond %keep
        %buffer1 = set_dynamic_slice(%buffer, %token, %length)
        %length1 = add(%length, step)

Any other tensor whose size data decides (`alive = alive[~done]`) is cut from such a buffer when an
iteration begins, and stored there when it ends. The capacity follows from bounds of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dy2st.branches.padded_tensors import bound, is_larger, larger, other_axis, pad, part, shrinkage
from dy2st.branches.unresolved import Unresolved
from dy2st.loops.growth.concat_growth import expanded
from dy2st.loops.growth.detection import Growth, without
from dy2st.loops.record import LoopRecord, LoopTrace
from dy2st.state.containers.dynamic_lookup import at_frame, outside
from dy2st.state.tree import TypeMismatch, describe
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor, Shape, Tensor
from dy2st.trace.item import size_of
from dy2st.trace.scalar import PathCondition
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import is_symint, make
from dy2st.trace.trace import Frame, Trace, current
from ir import ENDLESS, Size, Type, Value
from ir.types import I64, Dim, names_in


class CarriedBuffer:
    """The tensor at the start of an iteration. `init` is the tensor before the loop, `initial` the
    buffer with it, `most` a bound of its length."""

    def __init__(
        self, body_trace: LoopTrace, growth: Growth, init: FakeTensor, path: tuple[object, ...]
    ) -> None:
        self.body_trace, self.growth, self.init, self.path = body_trace, growth, init, path
        trace, frame = body_trace.trace, body_trace.frame
        body_trace.need_bound()
        shape = list(init._value.type.shape)
        self.first = shape[growth.axis]
        self.most: Dim = self.first + body_trace.loop.trip * growth.step
        shape[growth.axis] = self.most
        with outside(trace, frame):
            self.initial = pad(trace, init._value, shape)
            self.start = trace.dim_value(self.first)
        self.stop_gradient = bool(init.stop_gradient) and path not in body_trace.known.trained
        self.buffer = trace.new_value(self.initial.type, "buffer", frame)
        self.length = trace.new_value(Type(I64), "length", frame)
        trace.values.placeholders |= {self.buffer, self.length}


class PaddedTensor(FakeTensor):  # type: ignore[misc]
    """The first `length` elements of `buffer` along the axis; `added` bounds how many of them this
    iteration has attached."""

    source: CarriedBuffer
    buffer: Value
    length: Value
    added: int

    @property  # type: ignore[misc]
    def stop_gradient(self) -> bool:  # type: ignore[override]
        return bool(self.__dict__["stop"])

    @property
    def _value(self) -> Value:
        if "made" not in self.__dict__:
            trace, axis = self.source.body_trace.trace, self.source.growth.axis
            n = self.ask_type().shape[axis]
            with at_frame(trace, self.home(trace)):
                attrs = {"axis": axis, "start": 0, "length": n, "step": 1}
                made = trace.emit("slice", [self.buffer], attrs)
            if not self.stop_gradient:
                trace.autograd.trained.add(made)
            reason = "It is a part of a buffer that the loop carries."
            trace.freeze(trace.root(made), reason, self.source.body_trace.loop)
            self.__dict__["made"] = made
        return self.__dict__["made"]  # type: ignore[no-any-return]

    def home(self, trace: Trace) -> int:
        """The frame that the buffer and its length are made in, where ops are emitted."""
        homes = trace.values.frame_of
        return max(trace.frames.index(homes[v]) for v in (self.buffer, self.length))

    def ask_type(self) -> Type:
        """The type, without the tensor."""
        source, trace = self.source, self.source.body_trace.trace
        if "size" not in self.__dict__:
            with at_frame(trace, self.home(trace)):
                self.__dict__["size"] = size_of(trace, self.length, source.most)
        dims = list(source.init._value.type.shape)
        dims[source.growth.axis] = self.__dict__["size"]
        return source.init._value.type.with_shape(dims)

    def merged(
        self, other: object, join: Callable[[object, object], FakeTensor]
    ) -> PaddedTensor | None:
        """This tensor and one that a branch may have made longer."""
        if type(other) is not PaddedTensor or other.source is not self.source:
            return None
        trace, stop = self.source.body_trace.trace, self.stop_gradient and other.stop_gradient
        pairs = ((self.buffer, other.buffer), (self.length, other.length))
        parts = [
            a if a is b and self is not other else join(trace.fake(a), trace.fake(b))._value
            for a, b in pairs
        ]
        return counted(self.source, parts[0], parts[1], max(self.added, other.added), stop)

    def outlives(self, frame: Frame) -> bool:
        """Whether it was made before the block of this frame."""
        homes = self.source.body_trace.trace.values.frame_of
        return homes[self.buffer] is not frame and homes[self.length] is not frame

    def part_of(self, trace: Trace, items: Sequence[object]) -> object:
        """`self[items]`; `self[..., -k:]` has k elements where that many surely are there."""
        full, axis = expanded(items, self.ndim), self.source.growth.axis
        at = full[axis] if full is not None else None
        last = isinstance(at, slice) and type(at.start) is int and at == slice(at.start, None)
        k, first = -at.start if last else 0, self.source.first  # type: ignore[union-attr]
        if full is None or not isinstance(first, int) or not 0 < k <= first:
            return trace.fake(self._value, self.stop_gradient)[tuple(items)]
        start = trace.emit("subtract", [self.length, trace.dim_value(k)], {})
        end = trace.emit("dynamic_slice", [self.buffer, start], {"axis": axis, "length": k})
        full[axis] = slice(None)
        return trace.fake(end, self.stop_gradient)[tuple(full)]

    @property
    def shape(self) -> Any:
        return Shape(make(d, current()) for d in self.ask_type().shape)

    @property
    def dtype(self) -> Any:
        return DTYPE_TO_PADDLE[self.source.init._value.type.dtype]

    @property
    def ndim(self) -> int:
        return self.source.init._value.type.ndim

    def __describe__(self) -> str:
        dims = ["_" if k == self.source.growth.axis else repr(d)
                for k, d in enumerate(self.source.init._value.type.shape)]  # fmt: skip
        return f"{self.source.init._value.type.dtype}[{','.join(dims)}]"


def counted(
    source: CarriedBuffer, buffer: Value, length: Value, added: int, stop: bool
) -> PaddedTensor:
    made = PaddedTensor()
    made.__dict__.update(source=source, buffer=buffer, length=length, added=added, stop=stop)
    return made


def placeholder(body_trace: LoopTrace, fake: FakeTensor, path: tuple[object, ...]) -> PaddedTensor:
    source = CarriedBuffer(body_trace, body_trace.known.grown[path], fake, path)
    if not source.stop_gradient:
        body_trace.trace.autograd.trained.add(source.buffer)
    return counted(source, source.buffer, source.length, 0, source.stop_gradient)


def attach(trace: Trace, parts: Sequence[object], axis: object) -> PaddedTensor | None:
    """`paddle.concat(parts, axis)` of such a tensor and what is attached to it."""
    whole = parts[0] if parts else None
    if type(whole) is not PaddedTensor or not isinstance(axis, int) or is_symint(axis):
        return None
    source, rest = whole.source, [lift(trace, q) for q in parts[1:] if isinstance(q, Tensor)]
    at, t = source.growth.axis, source.init._value.type
    plain = all(type(q) is FakeTensor for q in rest) and len(rest) == len(parts) - 1
    if axis % t.ndim != at or not rest or not plain:
        return None
    if any(without(q._value.type, at) != without(t, at) for q in rest):
        return None
    n = sum(d if isinstance(d, int) else 0 for d in (q._value.type.shape[at] for q in rest))
    if any(not isinstance(q._value.type.shape[at], int) for q in rest):
        return None
    values = [q._value for q in rest]
    piece = values[0] if len(values) == 1 else trace.emit("concat", values, {"axis": at})
    buffer = trace.emit("set_dynamic_slice", [whole.buffer, piece, whole.length], {"axis": at})
    length = trace.emit("add", [whole.length, trace.dim_value(n)], {})
    stop = whole.stop_gradient and all(q.stop_gradient for q in rest)
    if not stop:
        trace.autograd.trained.add(buffer)
    return counted(source, buffer, length, whole.added + n, stop)


def settle(plan: LoopRecord, name: str, p: object, a: object) -> object:
    """The tensor after the loop; raises NeedsConcrete where it did not grow as it was learned."""
    if not isinstance(p, PaddedTensor):
        return settle_resized(plan, name, plan.body_trace.resized[id(p)], a)
    source, trace = p.source, plan.trace
    known, axis = plan.body_trace.known, source.growth.axis
    if type(a) is not PaddedTensor or a.source is not source:
        raise NeedsConcrete(f"{name} grows in some iterations only, depending on data")
    if not isinstance(source.growth.step, int) or a.added > source.growth.step:
        known.grown[source.path] = Growth(axis, a.added, False)
        raise Retrace
    if source.stop_gradient and not a.stop_gradient:
        plan.flips.append(source.path)
    buffer, length = trace.read_value(a.buffer), trace.read_value(a.length)
    out = plan.add_carry(source.buffer, source.initial, buffer, name)
    count = plan.add_carry(source.length, source.start, length, "length")
    with plan.behind():
        attrs = {"axis": axis, "start": 0, "length": size_of(trace, count, source.most), "step": 1}
        value = trace.emit("slice", [out], attrs)
        trace.values.copies[value] = (source.init._value,)
        return trace.fake(value, a.stop_gradient)


# ---------------------------------------------------------------- other sizes
@dataclass(frozen=True)
class SizeChange:
    """The evolution of the size of a place: before the loop it is at most that of the tensor there,
    and `most` if that is larger; each iteration makes that larger by at most `step`, and the size
    itself smaller by at least `less`. It is `least` or more whenever an iteration begins. They name
    no sizes made by a trace, since the next trace makes new ones."""

    axis: int
    most: Dim | None
    step: Dim = 0
    less: int = 0
    least: int = 0


class ResizedTensor:
    """The tensor of a place whose size data decides, in a buffer with room for its bound. `most`
    is the bound before the loop, `count` the name of the size when an iteration begins."""

    count: str

    def __init__(
        self, body_trace: LoopTrace, resize: SizeChange, init: FakeTensor, path: tuple[object, ...]
    ) -> None:
        self.body_trace, self.resize, self.init, self.path = body_trace, resize, init, path
        trace, frame, shape = body_trace.trace, body_trace.frame, list(init._value.type.shape)
        n = self.most = shape[resize.axis]
        if resize.most is not None:
            self.most = larger(trace, n, resize.most)
        if resize.step != 0:
            body_trace.need_bound()
        shape[resize.axis] = self.at(body_trace.loop.trip)
        with outside(trace, frame):
            self.initial = pad(trace, init._value, shape)
            self.start = trace.dim_value(n)
        self.stop_gradient = bool(init.stop_gradient) and path not in body_trace.known.trained
        self.buffer = trace.new_value(self.initial.type, "buffer", frame)
        self.length = trace.new_value(Type(I64), "length", frame)
        trace.values.placeholders |= {self.buffer, self.length}
        body_trace.paths[self.buffer] = path

    def at(self, iteration: Dim) -> Dim:
        """A bound of the size after so many iterations."""
        return self.most if self.resize.step == 0 else self.most + iteration * self.resize.step


def learn_resized(
    body_trace: LoopTrace, before: Type, after: Type, path: tuple[object, ...]
) -> None:
    """Learn that data decides the size of a place; raises Retrace if it does."""
    trace, known = body_trace.trace, body_trace.known
    axis = other_axis(trace, before, after)
    if axis is None or path in known.grown or path in known.resized:
        return
    n, m = (t.shape[axis] for t in (before, after))
    within, most = bound(trace, m, body_trace.frame), bound(trace, m)
    if within is None or most is None or body_trace.loop.name in names_in(within):
        return
    known.resized[path] = SizeChange(axis, None if is_larger(trace, n, within) else most)
    known.free = True
    raise Retrace


def part_of_buffer(body_trace: LoopTrace, fake: FakeTensor, path: tuple[object, ...]) -> FakeTensor:
    """The tensor of the place at the start of an iteration."""
    trace, resize = body_trace.trace, body_trace.known.resized[path]
    source = ResizedTensor(body_trace, resize, fake, path)
    if not source.stop_gradient:
        trace.autograd.trained.add(source.buffer)
    most = source.at(Size.named(body_trace.loop.name))
    value = part(trace, source.buffer, source.length, resize.axis, most, resize.least)
    source.count = str(value.type.shape[resize.axis])
    if path in body_trace.known.written:
        value = trace.emit("assign", [value], {})
    made = trace.fake(value, source.stop_gradient)
    body_trace.resized[id(made)] = source
    body_trace.parts.append(made)
    return made


def settle_resized(plan: LoopRecord, name: str, source: ResizedTensor, a: object) -> object:
    """The tensor after the loop."""
    trace, resize, t = plan.trace, source.resize, source.init._value.type
    if not isinstance(a, Tensor) or type(a) is Unresolved:
        raise TypeMismatch(name, describe(source.init), describe(a))
    a = lift(trace, a)
    inner = trace.read_value(a._value)
    if inner.type.ndim != t.ndim or without(inner.type, resize.axis) != without(t, resize.axis):
        raise TypeMismatch(name, str(t), str(inner.type))
    n, shape = inner.type.shape[resize.axis], list(source.initial.type.shape)
    fits(source, name, n)
    if source.path in plan.body_trace.known.written:
        plan.check_private(source.init._value, inner)
    attrs = {"axis": resize.axis, "start": 0}
    buffer = trace.emit("set_slice", [source.buffer, inner], attrs)
    length = trace.dim_value(n)
    if source.stop_gradient and not a.stop_gradient:
        plan.flips.append(source.path)
    out = plan.add_carry(source.buffer, source.initial, buffer, name)
    count = plan.add_carry(source.length, source.start, trace.read_value(length), "length")
    with plan.behind():
        value = part(trace, out, count, resize.axis, shape[resize.axis])
        trace.values.copies[value] = (source.init._value,)
        trace.freeze(value, "It is a part of a buffer that a loop has carried.", None)
        return trace.fake(value, source.stop_gradient and a.stop_gradient)


def fits(source: ResizedTensor, name: str, n: Dim) -> None:
    """Whether a size is within the bound of the next iteration; raises Retrace if another bound
    may serve, NeedsConcrete if none does."""
    body_trace, resize = source.body_trace, source.resize
    trace, index = body_trace.trace, Size.named(body_trace.loop.name)
    found, facts = bound(trace, n, body_trace.frame), at_least(source, n)
    if found is not None and is_larger(trace, source.at(index + 1), found):
        facts.update(less_by(source, n))
    else:
        step = None if found is None else found - source.at(index)
        most = (
            None if step is None or body_trace.loop.name in names_in(step) else bound(trace, step)
        )
        if resize.step != 0 or most is None:
            raise NeedsConcrete(f"nothing bounds the size of {name}; a slice would (`{name}[:n]`)")
        facts["step"] = most
    if facts:
        known = body_trace.known
        known.resized[source.path] = replace(resize, **facts)
        known.free = True
        raise Retrace


def less_by(source: ResizedTensor, n: Dim) -> dict[str, Any]:
    """Learn that each iteration makes the size smaller, which bounds their number."""
    body_trace, resize = source.body_trace, source.resize
    less = shrinkage(body_trace.trace.sizes, source.count, n, body_trace.goes_on)
    if body_trace.loop.trip != ENDLESS or resize.less or not less:
        return {}
    source.resize = replace(resize, less=less)
    if body_trace.next is not None:
        body_trace.bound(body_trace.next)
    return {"less": less}


def at_least(source: ResizedTensor, n: Dim) -> dict[str, Any]:
    """Learn what the test of an iteration says of the size."""
    body_trace, resize = source.body_trace, source.resize
    begin = source.init._value.type.shape[resize.axis]
    least = least_of(body_trace.goes_on, n)
    enough = body_trace.trace.sizes.surely(begin, least)
    if least > resize.least and (enough or least_of(body_trace.enters, begin) >= least):
        return {"least": least}
    return {}


def least_of(facts: Collection[PathCondition], n: Dim) -> int:
    """The least that a size can be where facts hold."""
    found = [0, n] if isinstance(n, int) else [0]
    for op, gap in facts:
        if op in ("lt", "le"):
            op, gap = {"lt": "gt", "le": "ge"}[op], 0 - gap
        rest = gap - n if op in ("gt", "ge", "ne") else n
        if isinstance(rest, int) and (op != "ne" or rest == 0):
            found.append(int(op != "ge") - rest)
    return max(found)


__all__ = [
    "PaddedTensor", "attach", "learn_resized", "part_of_buffer", "placeholder", "settle",
]  # fmt: skip
