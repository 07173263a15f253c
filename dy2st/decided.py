"""Codes of what leaves a branch or a loop: which tensor it is (`dy2st.capture.origins`).

A tensor that the branch or the loop has made itself is a candidate, too, where it leaves under
several names: it is handed out under a name that nobody else has, and they look at that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dy2st.capture.fake import FakeTensor
from dy2st.capture.origins import Origin
from dy2st.sides import Side, inside
from ir import Value

if TYPE_CHECKING:
    from dy2st.joins import Joiner
    from dy2st.plan import Plan


# ---------------------------------------------------------------- a branch
def after_branch(joiner: Joiner, outer: Value, a: FakeTensor | None, b: FakeTensor | None) -> None:
    """Note which tensor the result of a cond is; None stands for a side that has none."""
    trace, sides = joiner.trace, (joiner.yes, joiner.no)
    sources = [None if q is None else of_side(joiner, s, q) for s, q in zip(sides, (a, b))]
    if sources == [None, None]:
        return
    values = []
    for side, q in zip(sides, sources):
        with inside(trace, side.frame):
            values.append(trace.read_value(trace.origins.value(q)))
    code = joiner.out(trace.origins.type, "origin", *values)
    trace.origins.note(outer, code, *sources)


def of_side(joiner: Joiner, side: Side, x: FakeTensor) -> Origin:
    """What a tensor at the end of a side is."""
    trace, origins = joiner.trace, joiner.trace.origins
    found, root = origins.of(x), trace.root(x._value)
    if found is not None or not origins.exact:
        return found
    if trace.born[root] is not side.frame or trace.frame is not trace.frames[0]:
        return origins.unknown(x)
    if root not in joiner.shown:
        missing = joiner.no if side is joiner.yes else joiner.yes
        joiner.shown[root] = joiner.padded("", trace.fake(root, x.stop_gradient), missing)
        origins.shown[root] = joiner.shown[root]._value
    return origins.through(x, root, joiner.shown[root])


# ---------------------------------------------------------------- a loop
def after_loop(plan: Plan, inner: Value, a: FakeTensor, out: Value) -> None:
    """Which tensor a carried place, `inner` in the body and `a` at its end, is after the loop."""
    origins, attempt = plan.trace.origins, plan.attempt
    before = origins.codes.get(inner)
    if before is None:
        return
    origin, (_, init) = origins.of(a), attempt.held[id(before)]
    own = None if origin is not None else of_last(plan, a)
    if origin is None and origins.exact:
        origin = origins.unknown(a)
    first = tuple(origins.reach.get(before, ()))
    origins.follow(before, origin)
    after = plan.trace.read_value(origins.value(origin))
    last = plan.add_carry(before, init, after, "origin")
    if own is not None:
        fresh = plan.trace.new_value(origins.type, "origin", plan.frame)
        after = plan.trace.read_value(origins.value(own))
        origins.note(out, plan.add_carry(fresh, init, after, "origin"), own, *first)
    elif origin is not None or not attempt.certain:
        origins.note(out, last, before)


def after_last(plan: Plan, a: FakeTensor, out: Value, name: str) -> None:
    """Which tensor a variable that every iteration sets is after the loop."""
    origins = plan.trace.origins
    origin = origins.of(a) or of_last(plan, a)
    if origin is None and origins.exact:
        origin = origins.unknown(a)
    if origin is not None:
        code = plan.trace.read_value(origins.value(origin))
        origins.note(out, plan.add_last(code, name), origin)


def of_last(plan: Plan, a: FakeTensor) -> Origin:
    """A tensor that the last iteration of a loop in the outermost frame has made."""
    trace, origins = plan.trace, plan.trace.origins
    root = trace.root(a._value)
    outermost = plan.outer is trace.frames[0]
    if not origins.exact or trace.born[root] is not plan.frame or not outermost:
        return None
    if root in trace.sources:
        return None
    if root not in plan.shown:
        with trace.outside():
            attrs = {"value": 0, "shape": root.type.shape, "dtype": root.type.dtype}
            zeros = trace.emit("full", [], attrs)
        fresh = trace.new_value(root.type, "", plan.frame)
        value = plan.add_carry(fresh, zeros, root, "")
        plan.shown[root] = trace.fake(value, a.stop_gradient)
        origins.shown[root] = value
    return origins.through(a, root, plan.shown[root])


__all__ = ["after_branch", "after_last", "after_loop"]
