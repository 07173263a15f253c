"""Places whose type other iterations change: they require a gradient, or are tagged unions.

The first iteration in which a value of a loop's body requires a gradient.

A tensor that is carried may get one from a parameter in the first iteration, another one from that
tensor in the second. This follows from the ops of one trace, so that the next one knows all places.

    total = 0.0
    for row in x:
        if row.sum() > 0:
            total = total + row

A variable that is a number or a tensor (or an int or a float) is carried as the number, the tensor,
and a flag that says which of them it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dy2st.branches.unresolved import Unresolved
from dy2st.loops.record import LoopRecord
from dy2st.state.container_writes import Contents
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.guards import is_constant
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import UNDEF, TypeMismatch, alike, describe, elements, is_container
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import kind_of
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.trace import Frame, Trace
from dy2st.trace.undo import MISSING
from ir import Op, Value
from ir.autodiff.activity import spread
from ir.uses import walk


def learn_gradients(plan: LoopRecord) -> None:
    """Learn the places that require a gradient after some iterations: those that this trace shows,
    and those that follow."""
    found, body_trace = turns(plan), plan.body_trace
    trained = body_trace.known.trained
    trained.update(path for path, turn in found.items() if turn)
    trained.update(plan.flips)
    if not arrive(plan, max(found.values(), default=0)):
        body_trace.sure = body_trace.sure or never_arrive()


def arrive(plan: LoopRecord, least: int) -> bool:
    """Whether the loop has so many iterations."""
    trip = plan.body_trace.loop.trip
    return not isinstance(trip, int) or trip >= least


def never_arrive() -> NeedsConcrete:
    return NeedsConcrete("gradients arrive after more iterations than there are", few=True)


def settle_gradients(plan: LoopRecord) -> None:
    """Retrace with the gradients that the body gives to places. The result is right for loops that
    run until all of those places have one, which the program requires."""
    trained = plan.body_trace.known.trained
    if plan.flips:
        learn_gradients(plan)
        raise Retrace
    if not trained:
        return
    found = turns(plan)
    if wrong := {path for path in trained if found.get(path) == 0}:
        trained -= wrong
        raise Retrace
    latest = max(found.values(), default=0)
    late = [plan.rounds.get(v, latest) + 1 for v in plan.leaving]
    least = max([latest, *late])
    if not arrive(plan, least):
        raise never_arrive()
    plan.trace.require(plan.body_trace.loop.trip, least, "gradients that arrive late")


def turns(plan: LoopRecord) -> dict[tuple[object, ...], int]:
    """The places that are carried, with the number of iterations after which they require a
    gradient that they do not require before the loop; 0 if they never do."""
    body_trace, trace = plan.body_trace, plan.trace
    places = body_trace.paths | {tap.inner: tap.key for tap, _ in plan.taps}
    carried = {c.inner: c.next for c in plan.carries.values()}
    for tap, after in plan.taps:
        if tap.kind is None and isinstance(after, Tensor):
            carried[tap.inner] = trace.read_value(lift(trace, after)._value)
    late = [v for v in carried if places.get(v) in body_trace.known.trained]
    plan.rounds = first_iterations(trace, plan.frame, carried, late)
    return {places[v]: plan.rounds.get(v, 0) for v in carried if v in places}


def first_iterations(
    trace: Trace, frame: Frame, carried: Mapping[Value, Value], late: Collection[Value]
) -> dict[Value, int]:
    """The values of the body that require a gradient, with the iteration from which they do.

    carried: placeholders with their values after an iteration. late: those of them that have a
    gradient in this trace, but not in the first iteration.
    """
    from_late = set(late)
    reach(trace, frame, from_late)
    varies = with_gradient(trace, frame) - from_late
    out: dict[Value, int] = {}
    while True:
        reach(trace, frame, varies)
        iteration = 1 + max(out.values(), default=-1)
        out.update((v, iteration) for v in varies if v not in out)
        new = {inner for inner, after in carried.items() if after in varies} - varies
        if not new:
            return out
        varies |= new


def with_gradient(trace: Trace, frame: Frame) -> set[Value]:
    """The values that require a gradient in this trace, as the body has them."""
    trained = trace.autograd.trained

    def home(value: Value) -> Value:
        while value in trace.values.parent and value not in trace.values.makers:
            value = trace.values.parent[value]
        return value

    return trained | {c.inner for outer, c in frame.consts.items() if home(outer) in trained}


def reach(trace: Trace, frame: Frame, varies: set[Value]) -> None:
    """Add the values of the body that vary with one of `varies`, also by a write in place."""
    nodes = [n for n in walk(frame.builder.ops) if isinstance(n, Op)]
    writes = [n for n in nodes if n.row.writes]
    before = -1
    while len(varies) != before:
        before = len(varies)
        spread(varies, frame.builder.ops)
        written = {trace.root(n.operands[0]) for n in writes if n.operands[-1] in varies}
        if written:
            varies.update(v for n in nodes for v in n.operands if trace.root(v) in written)


# ---------------------------------------------------------------- other types
def types_change(before: object, after: object) -> bool:
    """Whether an iteration leaves another type, whatever the next trace knows of it."""
    if before is None or before is MISSING:
        made = isinstance(after, FakeTensor) or is_container(after) or kind_of(after) is not None
        return made or is_constant(after) and after is not before
    containers = is_container(before) and is_container(after) and not alike(after, before)
    return containers and not (isinstance(before, list) or isinstance(after, list))


def filled_by(place: object, b: Any, a: Any) -> int:
    """The number of iterations until a deque of limited length, or a list that is cut at its end,
    is as long as it gets; or 0."""
    most, size = 0, [0, 0]
    if isinstance(place, Contents):
        most, size = getattr(place.obj, "maxlen", None) or 0, [len(b), len(a)]
    elif isinstance(a, TraceList):
        most, size = a.most or 0, [len(elements(q) or ()) for q in (b, a)]
    more = size[1] - size[0] if most else 0
    return max(1, -(-(most - size[0]) // more)) if more > 0 else 0


# ---------------------------------------------------------------- tagged unions
def either_placeholder(body: Any, x: object, path: tuple[object, ...]) -> TaggedUnion:
    """The placeholder of a number or tensor that iterations may make the other of the two."""
    trace, (t, stop, kind) = body.trace, body.known.eithers[path]
    if isinstance(x, Tensor):
        before = TaggedUnion(False, kind(0), lift(trace, x))
    elif t is None:
        before = TaggedUnion(True, x, 0.0) if kind_of(x) is int else TaggedUnion(False, 0, x)
    else:
        with trace.outside():
            zeros = trace.emit("full", [], {"value": 0, "shape": t.shape, "dtype": t.dtype})
            before = TaggedUnion(True, x, trace.fake(zeros, stop))
    body.eithers[path] = before
    test = body.number_placeholder(before.test, (bool, True), (*path, "test"))
    if t is None:
        parts = ((before.number, int, "number"), (before.tensor, float, "tensor"))
        return TaggedUnion(
            test, *(body.number_placeholder(q, (k, True), (*path, name)) for q, k, name in parts)
        )
    number = body.placeholder(before.number, (*path, "number"))
    return TaggedUnion(test, number, body.placeholder(before.tensor, (*path, "tensor")))


def either_ends(
    plan: LoopRecord, name: str, b: Any, p: object, a: Any, path: tuple[object, ...]
) -> tuple[Any, Any]:
    """The values of a place before the loop and after the body, both as numbers or tensors if the
    placeholder is one. Raises Retrace where the next trace needs such a placeholder."""
    if type(p) is TaggedUnion:
        return plan.body_trace.eithers.get(path, b), either(name, a, p)
    if type(a) is not TaggedUnion or b is UNDEF or b is MISSING:
        return b, a
    if a.numeric:
        if type(b) is Unresolved or kind_of(b) not in (int, float):
            raise TypeMismatch(name, describe(b), describe(a))
        plan.body_trace.known.eithers[path] = (None, True, int)
        raise Retrace
    type_, kind = a.tensor._value.type, kind_of(a.number)
    same = lift(plan.trace, b)._value.type == type_ if isinstance(b, Tensor) else kind_of(b) is kind
    if type(b) is Unresolved or not same:
        raise TypeMismatch(name, describe(b), describe(a))
    plan.body_trace.known.eithers[path] = (type_, a.tensor.stop_gradient, kind)
    raise Retrace


def either(name: str, a: object, p: TaggedUnion) -> TaggedUnion:
    """A number or a tensor as the value that may be both; the other one does not matter."""
    if type(a) is TaggedUnion and a.numeric is p.numeric:
        return a
    if p.numeric and kind_of(a) is float:
        return TaggedUnion(False, p.number, a)
    if not p.numeric and isinstance(a, Tensor) and type(a) is not Unresolved:
        return TaggedUnion(False, p.number, a)
    if kind_of(a) is None or p.numeric and kind_of(a) is not int:
        raise TypeMismatch(name, describe(p), describe(a))
    return TaggedUnion(True, a, p.tensor)


__all__ = [
    "either_ends", "either_placeholder", "filled_by", "learn_gradients", "settle_gradients",
    "types_change",
]  # fmt: skip
