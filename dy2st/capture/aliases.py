"""Gradients through tensors that share memory.

A program follows the storage: what is written through one name is differentiated through every
other name. Eager Paddle follows the object that was written. Where the two differ the program has
the true gradient, and a warning names the line, once.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from dy2st.capture.trace import Trace
from dy2st.stops import Refused
from ir import Op, SourceError, Value
from ir.ops.strided import overlaps


class AliasWarning(UserWarning):
    """Eager Paddle would compute another gradient here."""


class CopyWarning(UserWarning):
    """A result is a tensor of its own that in eager Paddle shares memory in some runs."""


def twins(one: Any, two: Any) -> None:
    """To eager Paddle `x`, `x[:]` and `x.detach()` are one tensor: what gives one of them another
    shape in place gives it to the others."""
    for a, b in ((one, two), (two, one)):
        a.__dict__.setdefault("_twins", []).append(weakref.ref(b))


def has_twin(fake: Any) -> bool:
    return any(q() is not None for q in fake.__dict__.get("_twins", ()))


def chain(trace: Trace, value: Value) -> Iterator[Value]:
    """`value`, and what it views, to the storage."""
    yield value
    while value in trace.parent:
        value = trace.parent[value]
        yield value


def attach(trace: Trace, fake: Any) -> None:
    """`fake`, which requires no gradient, is about to be written with a value that does.

    Where it is `h.detach()`, the storage lets go of the gradient of `h` first.
    """
    cut = [v for v in chain(trace, fake._value) if v in trace.detached]
    if not cut:
        return
    value = fake._value
    if cut != [value] or trace.born[value] is not trace.frame:
        raise Refused(
            SourceError(
                "a detached tensor is written in place with a value that requires a gradient.",
                trace.where(),
                reason="It shares its memory with the tensor that it was detached from, which has "
                "another gradient.",
                remedy="Write to a copy: `x.detach().clone()`.",
            )
        )
    source = trace.detached[value]
    trace.write(trace.fake(source), trace.emit("assign", [value], {}))
    trace.journal.note(lambda: fake.__dict__.__setitem__("_value", value))
    fake.__dict__["_value"] = source


def check_overlap(trace: Trace, fake: Any) -> None:
    """A view of which two elements are one is not written: which of them counts is not defined."""
    for v in chain(trace, fake._value):
        op = trace.makers.get(v)
        if op is None or op.name != "strided":
            continue
        if overlaps(op.attrs["shape"], op.attrs["strides"]):
            raise Refused(
                SourceError(
                    "a view is written in place, and some of its elements are the same memory.",
                    trace.where(),
                    reason="Which of two values stays there would depend on the order of writing.",
                    remedy="Write to the tensor itself, or to a copy: `view.clone()`.",
                )
            )


def note(trace: Trace, fake: Any) -> None:
    """A write that autograd sees went through the object `fake`."""
    root = trace.root(fake._value)
    trace.epoch += 1
    fake.__dict__["_epoch"] = trace.epoch
    trace.attached.setdefault(root, trace.where())
    trace.overwritten[root] = (trace.epoch, fake._value, trace.where())


def age(fake: Any) -> int:
    return int(fake.__dict__.get("_epoch", 0))


def check(trace: Trace, fake: Any) -> None:
    """Warn where `fake` is older than a write to its storage through another object."""
    root = trace.root(fake._value)
    epoch, written, loc = trace.overwritten.get(root, (0, fake._value, None))
    if age(fake) >= epoch or loc is None or loc in trace.warned:
        return
    if apart(trace, written, fake._value, root):
        return
    trace.warned.add(loc)
    warnings.warn(
        f"dy2st: {loc}: this in-place write is differentiated through every tensor that shares "
        "the memory; eager Paddle ignores it in the gradient of the others "
        f"(one of them is read at {trace.where()}).",
        AliasWarning,
        stacklevel=2,
    )


def warn_of_copy(trace: Trace, value: Value) -> None:
    """A result that only some runs share with another tensor is a tensor of its own in all."""
    made = (q.loc for q in trace.frames[0].builder.ops if value in q.results)
    loc = next(made, trace.where())
    if loc in trace.warned:
        return
    trace.warned.add(loc)
    warnings.warn(
        f"dy2st: {loc}: data decides here whether a result shares memory with another tensor. It "
        "is a tensor of its own now; in eager Paddle a write to one would reach the other now and "
        "then. Return a copy (`.clone()`) to have the same in both.",
        CopyWarning,
        stacklevel=2,
    )


def apart(trace: Trace, a: Value, b: Value, root: Value) -> bool:
    """Whether two views of one storage have no element in common, or data says if they do."""
    one, two = (first_step(trace, v, root) for v in (a, b))
    if one is None or two is None:
        return False
    if "select" in (one.name, two.name):
        return one.name == two.name
    taken = elements(one), elements(two)
    if None in taken or one.attrs["axis"] != two.attrs["axis"]:
        return False
    return set(taken[0]).isdisjoint(taken[1])  # type: ignore[arg-type]


def elements(op: Op) -> range | None:
    """The places on its axis that a view takes, if they are known."""
    if op.name == "pick" and isinstance(op.attrs["index"], int):
        return range(op.attrs["index"], op.attrs["index"] + 1)
    if op.name != "slice":
        return None
    start, length, step = (op.attrs[n] for n in ("start", "length", "step"))
    if not all(isinstance(q, int) for q in (start, length, step)):
        return None
    return range(start, start + step * length, step)


def first_step(trace: Trace, value: Value, root: Value) -> Op | None:
    """The view op that is applied to the storage itself."""
    steps = [v for v in chain(trace, value) if trace.parent.get(v) is root]
    for frame in trace.frames:
        for op in frame.builder.ops:
            if isinstance(op, Op) and steps and op.results == (steps[0],):
                return op
    return None
