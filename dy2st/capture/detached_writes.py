"""In-place writes and autograd.

A program follows the storage: what is written through one name is differentiated through every
other name. Eager Paddle follows the object that was written. Where the two differ the program has
the true gradient, and a warning names the line, once (`ir.analysis.alias_gradients`).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, NoRow, grad_enabled, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.trace import Trace
from ir import Op, Program, Value
from ir.analysis.alias_gradients import AutogradWrite, GradientFacts, ignored_writes
from ir.opdef import view_rule


class AliasWarning(UserWarning):
    """Eager Paddle would compute another gradient here."""

    __module__ = "dy2st"  # its public name, which tracebacks show


def twins(one: object, two: object) -> None:
    """Note tensors that are one to eager Paddle, as `x`, `x[:]` and `x.detach()` are: a new shape
    that a call gives to one in place is the shape of all."""
    for a, b in ((one, two), (two, one)):
        a.__dict__.setdefault("_twins", []).append(weakref.ref(b))


def has_twin(fake: object) -> bool:
    return any(q() is not None for q in fake.__dict__.get("_twins", ()))


def attach(trace: Trace, fake: FakeTensor) -> None:
    """`fake`, which requires no gradient, is about to be written with a value that does.

    Where it is `h.detach()`, the storage lets go of the gradient of `h` first.
    """
    cut = [v for v in trace.chain(fake._value) if v in trace.aliasing.detached]
    if not cut:
        return
    value = fake._value
    if cut != [value] or trace.values.frame_of[value] is not trace.frame:
        raise refuse(
            "a detached tensor is written in place with a value that requires a gradient.",
            "It shares its memory with the tensor that it was detached from, which has "
            "another gradient.",
            "Write to a copy: `x.detach().clone()`.",
        )
    source = trace.aliasing.detached[value]
    trace.write(trace.fake(source), trace.emit("assign", [value], {}))
    trace.undo_log.note(lambda: fake.__dict__.__setitem__("_value", value))
    fake.__dict__["_value"] = source


def check_overlap(trace: Trace, fake: FakeTensor) -> None:
    """A view of which two elements are one is not written: which of them counts is not defined."""
    for v in trace.chain(fake._value):
        op = trace.values.makers.get(v)
        if op is not None and view_rule(op.name).overlaps(v.type, **op.attrs):
            raise refuse(
                "a view is written in place, and some of its elements are the same memory.",
                "The value that stays there would depend on the order of the writes.",
                "Write to the tensor itself, or to a copy: `view.clone()`.",
            )


def write(
    e: Emitter,
    target: Tensor,
    value: FakeTensor,
    own: bool = False,
    moves: int = 1,
    whole: FakeTensor | None = None,
) -> Any:
    """In-place: the storage of `target` becomes `value`; returns the target object.

    `whole`: the object that is written, if `target` is a part of it.
    `own` and `moves` are those of `Trace.write`.
    Without gradient mode autograd does not see it: the object keeps the gradient that it has.
    """
    trace, fake = e.trace, lift(e.trace, target)
    e.check_leaf(fake)
    check_overlap(trace, fake)
    if fake._value.type.names != value._value.type.names:
        value = e.expand(value, shape=fake._value.type.shape)
    if fake._value.type != value._value.type:
        raise NoRow("an in-place call that changes the type")
    new, seen = value._value, grad_enabled()
    if seen and not value.stop_gradient and fake.stop_gradient:
        attach(trace, fake)
    elif not seen and not fake.stop_gradient:
        new = trace.emit("keep_gradient", [fake._value, new], {})
    attached = seen and not (value.stop_gradient and fake.stop_gradient)
    if attached:
        e.check_leaf(fake, root=True)
    op = trace.write(fake, new, own, moves)
    if attached:
        object_ = fake if whole is None else whole
        trace.aliasing.attached.setdefault(trace.root(fake._value), trace.where())
        ignored = not passes(e, fake, value)
        trace.autograd.writes[op] = AutogradWrite(object_._value, ignored)
        fake.__dict__["_stop_gradient"] = False
        trace.autograd.trained.add(fake._value)
    return target if isinstance(target, FakeTensor) else fake


def passes(e: Emitter, fake: FakeTensor, value: FakeTensor) -> bool:
    """True if the write adds a constant, so that every alias keeps its gradient."""
    made = (q for q in e.trace.builder.ops[-4:] if value._value in q.results)
    op = next(made, None)
    old = e.trace.read_value(fake._value)
    if not isinstance(op, Op) or op.operands[:1] != (old,):
        return False
    adds = op.name in ("add", "subtract") or op.name == "scale" and op.attrs["scale"] == 1
    return adds and not any(e.trace.read_value(v) in op.operands[1:] for v in e.trained)


def warn_of_ignored(program: Program, facts: GradientFacts, returned: Sequence[Value]) -> None:
    """Warn of writes whose gradient is another one in eager Paddle."""
    for write, read in ignored_writes(program, facts, returned).items():
        where = f"one of them is read at {read}" if read.line > 0 else "one of them is a result"
        warnings.warn(
            f"dy2st: {write}: this in-place write is differentiated through every tensor that "
            f"shares the memory; eager Paddle ignores it in the gradient of the others ({where}).",
            AliasWarning,
            stacklevel=2,
        )
