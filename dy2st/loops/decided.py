"""Codes of what leaves a branch or a loop: which tensor it is (`dy2st.capture.origins`).

A tensor that the branch or the loop has made itself is a candidate, too, where it leaves under
several names: it is handed out under a name that nobody else has, and they look at that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dy2st.branches.branch import Branch, inside
from dy2st.capture.origins import Origin
from dy2st.trace.fake_tensor import FakeTensor
from ir import Value

if TYPE_CHECKING:
    from dy2st.branches.merge import Merge
    from dy2st.loops.ports import LoopPorts


# ---------------------------------------------------------------- a branch
def after_branch(joiner: Merge, outer: Value, a: FakeTensor | None, b: FakeTensor | None) -> None:
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


def of_side(joiner: Merge, side: Branch, x: FakeTensor) -> Origin:
    """What a tensor at the end of a side is."""
    trace, origins = joiner.trace, joiner.trace.origins

    def shown(root: Value, stop_gradient: bool) -> FakeTensor:
        if root not in joiner.shown:
            missing = joiner.no if side is joiner.yes else joiner.yes
            joiner.shown[root] = joiner.padded("", trace.fake(root, stop_gradient), missing)
            origins.shown[root] = joiner.shown[root]._value
        return joiner.shown[root]

    found, root = origins.of(x), trace.root(x._value)
    if found is None and origins.exact and trace.values.frame_of[root] is side.frame:
        return origins.through(x, root, shown(root, x.stop_gradient))
    if isinstance(found, Value):
        for k in origins.made_in(side.frame, found):
            origins.show(k, shown)
    return found


# ---------------------------------------------------------------- a loop
def after_loop(plan: LoopPorts, stand_in: FakeTensor, a: FakeTensor, out: FakeTensor) -> None:
    """Which tensor `out` is after the loop: a place with `stand_in` and at the end `a`."""
    origins, attempt, trace = plan.trace.origins, plan.attempt, plan.trace
    before = origins.code(stand_in)
    if before is None:
        return
    _, init = attempt.held[id(before)]
    first = tuple(origins.reach.get(before, ()))
    left, carried = at_end(plan, a)
    if left is None:
        origins.doubt(out._value, a)
    origins.follow(before, carried)
    last = plan.add_carry(before, init, trace.read_value(origins.value(carried)), "origin")
    if left is not carried:
        fresh = trace.new_value(origins.type, "origin", plan.frame)
        last = plan.add_carry(fresh, init, trace.read_value(origins.value(left)), "origin")
        origins.note(out, last, left, *first)
    elif left is not None or not attempt.certain:
        origins.note(out, last, before)


def after_last(plan: LoopPorts, a: FakeTensor, out: FakeTensor, name: str) -> None:
    """Which tensor a variable that every iteration sets is after the loop."""
    origins = plan.trace.origins
    origin, _ = at_end(plan, a)
    if origin is not None:
        code = plan.trace.read_value(origins.value(origin))
        origins.note(out, plan.add_last(code, name), origin)


def at_end(plan: LoopPorts, a: FakeTensor) -> tuple[Origin, Origin]:
    """What a tensor at the end of an iteration is: after the last one, and in the next one, to
    which what this one has made is not known."""
    trace, origins = plan.trace, plan.trace.origins
    found, root = origins.of(a), trace.root(a._value)
    new = trace.values.frame_of[root] is plan.frame and root not in trace.values.sources
    if origins.exact and new:
        made = origins.through(a, root, of_last(plan, root, a.stop_gradient))
        gone = origins.unknown(a)
        origins.is_last(made.number, plan.frame, gone)
        return made, gone
    if not isinstance(found, Value):
        return found, found
    carried = found
    for k in origins.made_in(plan.frame, found):
        old = origins.before(k, plan.frame)
        if old is None:
            old = origins.unknown(origins.candidates[k].fake, k)
            origins.show(k, lambda root, stop: of_last(plan, root, stop))
            origins.is_last(k, plan.frame, old)
        carried = origins.instead(carried, k, old)
    return found, carried


def of_last(plan: LoopPorts, root: Value, stop_gradient: bool) -> FakeTensor:
    """What the last iteration of a loop has made, outside of the loop."""
    trace = plan.trace
    if root not in plan.shown:
        with trace.outside():
            attrs = {"value": 0, "shape": root.type.shape, "dtype": root.type.dtype}
            zeros = trace.emit("full", [], attrs)
        value = plan.add_carry(trace.new_value(root.type, "", plan.frame), zeros, root, "")
        plan.shown[root] = trace.fake(value, stop_gradient)
        trace.origins.shown[root] = value
    return plan.shown[root]


__all__ = ["after_branch", "after_last", "after_loop"]
