"""Loop variables that are tagged unions: a number or a tensor, or an int or a float.

    total = 0.0
    for row in x:
        if row.sum() > 0:
            total = total + row

The loop carries the number, the tensor, and a flag that says which of them it is.
"""

from __future__ import annotations

from typing import Any

from dy2st.branches.unresolved import Unresolved
from dy2st.loops.record import LoopRecord
from dy2st.state.containers.either import Either
from dy2st.state.tree import UNDEF, Mismatch, describe
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import kind_of
from dy2st.trace.signals import Retrace
from dy2st.trace.undo import MISSING


def placeholder(body: Any, x: object, path: tuple[object, ...]) -> Either:
    """The placeholder of a number or tensor that iterations may make the other of the two."""
    trace, (t, stop, kind) = body.trace, body.known.eithers[path]
    if isinstance(x, Tensor):
        before = Either(False, kind(0), lift(trace, x))
    elif t is None:
        before = Either(True, x, 0.0) if kind_of(x) is int else Either(False, 0, x)
    else:
        with trace.outside():
            zeros = trace.emit("full", [], {"value": 0, "shape": t.shape, "dtype": t.dtype})
            before = Either(True, x, trace.fake(zeros, stop))
    body.eithers[path] = before
    test = body.number_placeholder(before.test, (bool, True), (*path, "test"))
    if t is None:
        parts = ((before.number, int, "number"), (before.tensor, float, "tensor"))
        return Either(
            test, *(body.number_placeholder(q, (k, True), (*path, name)) for q, k, name in parts)
        )
    number = body.placeholder(before.number, (*path, "number"))
    return Either(test, number, body.placeholder(before.tensor, (*path, "tensor")))


def ends(
    plan: LoopRecord, name: str, b: Any, p: object, a: Any, path: tuple[object, ...]
) -> tuple[Any, Any]:
    """The values of a place before the loop and after the body, both as numbers or tensors if the
    placeholder is one. Raises Retrace where the next trace needs such a placeholder."""
    if type(p) is Either:
        return plan.body_trace.eithers.get(path, b), either(name, a, p)
    if type(a) is not Either or b is UNDEF or b is MISSING:
        return b, a
    if a.numeric:
        if type(b) is Unresolved or kind_of(b) not in (int, float):
            raise Mismatch(name, describe(b), describe(a))
        plan.body_trace.known.eithers[path] = (None, True, int)
        raise Retrace
    type_, kind = a.tensor._value.type, kind_of(a.number)
    same = lift(plan.trace, b)._value.type == type_ if isinstance(b, Tensor) else kind_of(b) is kind
    if type(b) is Unresolved or not same:
        raise Mismatch(name, describe(b), describe(a))
    plan.body_trace.known.eithers[path] = (type_, a.tensor.stop_gradient, kind)
    raise Retrace


def either(name: str, a: object, p: Either) -> Either:
    """A number or a tensor as the value that may be both; the other one does not matter."""
    if type(a) is Either and a.numeric is p.numeric:
        return a
    if p.numeric and kind_of(a) is float:
        return Either(False, p.number, a)
    if not p.numeric and isinstance(a, Tensor) and type(a) is not Unresolved:
        return Either(False, p.number, a)
    if kind_of(a) is None or p.numeric and kind_of(a) is not int:
        raise Mismatch(name, describe(p), describe(a))
    return Either(True, a, p.tensor)


__all__ = ["ends", "placeholder"]
