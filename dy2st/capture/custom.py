"""`Custom` nodes: results whose gradient is a function that is traced.

The node takes tensors that are computed already and hands them on, so its forward block is empty;
its backward block is the trace of that function with stand-ins for the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import paddle

from dy2st.state.ownership import refuse
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.trace import Frame, Trace
from ir import Const, Custom, Op, Value

Backward = Callable[..., object]


class ScratchObject:
    """An object of one call, on which the traced function may set attributes."""


def custom(
    trace: Trace,
    given: Sequence[FakeTensor],
    results: Sequence[FakeTensor],
    backward: Backward,
    what: str,
    saves: bool = True,
) -> list[FakeTensor]:
    """New tensors with the values of `results`. Their gradients go through `backward` to `given`.

    `saves`: the results are other tensors than those given.
    """
    frame = Frame(branch=True)
    with block(trace, frame, what):
        stand_ins = [trace.new_value(q._value.type, "g") for q in results]
        with paddle.no_grad():
            found = backward(*(trace.fake(v) for v in stand_ins))
        grads = [gradient(trace, q, g, what) for q, g in matched(given, found, what)]
    ins = [inner_const(trace, q._value) for q in given]
    ends = [inner_const(trace, q._value) for q in results] if saves else list(ins)
    kept = [inner_const(trace, p.outer, read=False) for p in frame.consts.values()]
    saved = tuple(Const(p.inner, q.inner) for p, q in zip(frame.consts.values(), kept))
    outs = tuple((trace.new_value(q._value.type, q._value.name), p.inner)
                 for q, p in zip(results, ends))  # fmt: skip
    every = (*ins, *ends, *kept) if saves else (*ins, *kept)
    padded = (*grads, *[None] * (len(every) - len(grads)))
    node = Custom(
        every, (), outs, tuple(stand_ins), saved, tuple(frame.builder.ops), padded, trace.where()
    )
    trace.builder.append(node)
    trace.adopt(frame, {})
    return [trace.fake(outer, False) for outer, _ in outs]


def inner_const(trace: Trace, value: Value, read: bool = True) -> Const:
    outer = trace.read_value(value) if read else value
    return Const(Value(outer.type, outer.name), outer)


@contextmanager
def block(trace: Trace, frame: Frame, what: str) -> Iterator[None]:
    """Ops are emitted in `frame`; what the code inside stores is undone, or refused."""
    mark = trace.undo_log.mark()
    trace.frames.append(frame)
    try:
        yield
        stored = [q for q in frame.stores.values() if not isinstance(owner(q), ScratchObject)]
        if stored or frame.appends or frame.changed or frame.written:
            raise refuse(
                f"{what} changes something outside of it{': ' + str(stored[0]) if stored else ''}.",
                "It runs in the backward pass, not in the order of the Python code.",
                "Compute the gradient only, and return it.",
            )
    finally:
        del trace.frames[trace.frames.index(frame) :]
        trace.undo_log.undo_to(mark)


def owner(place: object) -> object:
    return getattr(place, "obj", None)


def floating(fake: FakeTensor) -> bool:
    return fake._value.type.dtype.differentiable


def matched(
    given: Sequence[FakeTensor], found: object, what: str
) -> list[tuple[FakeTensor, object]]:
    """Each input with the gradient that `backward` returned for it."""
    out = list(found) if isinstance(found, (list, tuple)) else [found]
    missing = [q for q in given[len(out) :] if not q.stop_gradient]
    if len(out) > len(given) or missing:
        raise refuse(
            f"{what} returns {len(out)} gradients for {len(given)} tensors.",
            remedy="Return one gradient, or None, for each tensor that forward takes.",
        )
    return list(zip(given, [*out, *[None] * (len(given) - len(out))]))


def gradient(trace: Trace, fake: FakeTensor, g: object, what: str) -> Value | None:
    """The gradient of one input in its own type."""
    if g is None or fake.stop_gradient:
        return None
    have, want = lift(trace, g)._value, fake._value.type
    if have.type.dtype != want.dtype:
        have = trace.emit("cast", [have], {"dtype": want.dtype})
    if have.type != want:
        raise refuse(
            f"{what} returns {have.type} as the gradient of {want}.",
            remedy="Return a gradient of the shape of the tensor.",
        )
    out = trace.read_value(have)
    return out if out in made_in(trace.frame) else trace.emit("assign", [out], {})


def made_in(frame: Frame) -> set[Value]:
    return {r for op in frame.builder.ops if isinstance(op, Op) for r in op.results}


__all__ = ["ScratchObject", "custom", "floating", "owner"]
