"""Detection of places of a loop that grow by `concat`: from the ops of a trace, or guessed after a
failed one.

The first trace has tensors of the size of the first iteration, and may fail because of that. So a
failed trace guesses that what it has joined with something grows; where the next trace shows that
it does not, or fails as well, the loop is traced without the guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dy2st.branches.unresolved import Unresolved, alternatives, generated
from dy2st.loops.late_types import filled_by, types_change
from dy2st.loops.learned_facts import LearnedFacts
from dy2st.loops.record import LoopTrace
from dy2st.state.guards import same_constant
from dy2st.state.tree import (
    TypeMismatch,
    alike,
    describe,
    elements,
    is_container,
    is_value,
    parts,
)
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import is_runtime_scalar, kind_of
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Frame
from ir import Cond, Loc, Op, Type, Value
from ir.program import Node
from ir.types import Dim, substitute_dim

#: one trace finds all that a body shows; few bodies show more when that is known
MOST_RETRACES = 2
#: how often one attempt traces a body, those included that try whether a list gets longer
MOST_TRACES = 8


class Growth:
    """The growth of one place: by `step` elements along `axis` in each iteration, at the end or in
    `front`."""

    def __init__(self, axis: int, step: Dim, front: bool) -> None:
        self.axis, self.step, self.front = axis, step, front

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Growth) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.axis, self.front))


def without(t: Type, axis: int) -> tuple[object, ...]:
    return t.dtype, t.shape[:axis], t.shape[axis + 1 :]


def learn(trace: LoopTrace, inner: Value, path: tuple[object, ...], stand_in: Value) -> bool:
    """Learn that a place grows, by a concat with itself or otherwise; False where it does not."""
    known = trace.known
    if path in known.grown or path in known.refuted:
        return False
    found = longer(trace, [stand_in])
    joined = [found[inner]] if inner in found else list(found.values())
    growth = joined[-1][1] if joined else larger(trace, stand_in.type, inner.type)
    if growth is None:
        return False
    if inner not in found:
        known.guessed.add(path)
    known.grown[path] = growth
    return True


def learn_early(trace: LoopTrace, before: object, after: Any, path: tuple[object, ...]) -> None:
    """Like `learn`, for a place that the trace has found: its tensor or number before the loop, or
    those in its container, and what an iteration leaves there."""
    if type(before) is Unresolved:
        return
    if type(after) is Unresolved:
        return learn_counted(trace, before, after, path)
    place = trace.known.places.get(path)
    fills = filled_by(place, before, after) or empty_slots(trace, place, before)
    listed = isinstance(getattr(place, "obj", None), list) and not fills
    if fills or types_change(before, after) and place is not None and not listed:
        text = describe(before), describe(after)
        error = TypeMismatch(str(place), *text, fills=fills)
        error.sure = True
        trace.sure = trace.sure or error
    elif isinstance(before, FakeTensor) and isinstance(after, FakeTensor):
        port = trace.frame.consts.get(before._value)
        if port is not None and before._value.type != after._value.type:
            learn(trace, after._value, path, port.inner)
    elif is_runtime_scalar(after) and (kind := kind_of(before)) is after.kind and kind is not None:
        trace.known.numbers.setdefault(path, (kind, after.data))
    elif type(before) is type(after) is int and after != before:
        trace.known.steps.setdefault(path, after - before)
    elif type(before) is type(after) is float and not same_constant(after, before):
        trace.known.numbers.setdefault(path, (float, False))
    elif (is_value(after) or is_container(after)) and alike(after, before):
        for (k, x), y in zip((elements(after) or {}).items(), parts(before)):
            learn_early(trace, y, x, (*path, k))


def type_change(
    body_trace: LoopTrace, name: str, values: tuple[Value, Value], loc: Loc | None
) -> TypeMismatch:
    """The error of a tensor whose type an iteration changes; if it does not get longer, no other
    trace settles that."""
    before, after = (v.type for v in values)
    text_of = body_trace.trace.sizes.text_of
    error = TypeMismatch(name, text_of(before), text_of(after), loc)
    error.sure = larger(body_trace, before, after) is None
    return error


def empty_slots(trace: LoopTrace, place: object, before: object) -> int:
    """The number of slots of a list that are None before the loop, where the body has stored to
    them one by one; or 0."""
    target, known = getattr(place, "obj", None), trace.known
    if before is not None or not isinstance(target, list):
        return 0
    held = (known.fills, known.buffers, known.growth, known.queues, trace.frame.picked)
    if any(id(target) in q for q in held):
        return 0
    return sum(q.obj is target and q.get() is None for q in known.places.values())


def learn_unresolved(
    trace: LoopTrace, error: Refused, state: Mapping[Any, object], outer: Sequence[Frame]
) -> None:
    """Learn the places that branches have left with several types, after a trace that failed
    because one was read: as placeholders they may turn out to grow."""
    known, home = trace.known.places, trace.trace.home
    new = {k: q for k, q in trace.frame.unresolved.items() if k not in known}
    new = {k: q for k, q in new.items() if home(q.obj) is None or home(q.obj) in outer}
    known.update(new)
    trace.refused_early = bool(new)
    values = {**state, **{k: q.get() for k, q in new.items()}}
    some = {k: q for k, q in values.items() if type(q) is Unresolved}
    read = [tests_of(q) for q in some.values() if q.__dict__["error"] is error]
    trace.found.update({k: q for k, q in some.items() if tests_of(q) in read})


def tests_of(x: Unresolved) -> set[object]:
    """The conditions that decide which value it is."""
    return {value for a in alternatives(x) for _, value in a.facts or ()}


def learn_counted(
    trace: LoopTrace, before: Any, after: Unresolved, path: tuple[object, ...]
) -> None:
    """Learn that only some iterations make a tensor longer, as the branches have left it."""
    known, values = trace.known, [a.value for a in alternatives(after)]
    plain = all(type(q) is FakeTensor for q in (before, *values))
    if not plain or path in known.refuted or generated(str(path[0])):
        return
    types = [q._value.type for q in values if q._value.type != before._value.type]
    found = [q for t in types if (q := larger(trace, before._value.type, t)) is not None]
    if found and len(found) == len(types) and path not in known.grown:
        known.grown[path] = max(found, key=lambda q: q.step)  # type: ignore[arg-type,return-value]
        known.guessed.add(path)
        known.counted.add(path)
        trace.refused_early = True


def in_the_first(body_trace: LoopTrace, dim: Dim) -> Dim:
    """A size in the first iteration: it moves where what it follows from has not been learned."""
    return substitute_dim(dim, {body_trace.loop.name: 0})


def larger(body_trace: LoopTrace, before: Type, after: Type) -> Growth | None:
    """Return the growth of a tensor that is longer along one axis and otherwise of the same
    type."""
    if before.dtype != after.dtype or before.ndim != after.ndim:
        return None
    axes = [k for k, (n, m) in enumerate(zip(before.shape, after.shape)) if n != m]
    step = after.shape[axes[0]] - before.shape[axes[0]] if len(axes) == 1 else 0
    step = in_the_first(body_trace, step)
    return Growth(axes[0], step, False) if isinstance(step, int) and step > 0 else None


def numbered(known: LearnedFacts) -> Iterator[int]:
    """The traces of a loop: those that try whether a list gets longer are not counted."""
    traces = 0
    for whole in range(MOST_TRACES):
        known.free = False
        if traces > MOST_RETRACES:
            return
        yield whole
        traces += not (known.free or any(known.handed_on.values()))


def guess(body_trace: LoopTrace) -> bool:
    """After a trace that failed, perhaps because a tensor had the size of the first iteration:
    take places to grow that the body has joined with something. Whether there are new ones."""
    known, new = body_trace.known, dict[Any, Growth]()
    for start, growth in longer(body_trace, body_trace.paths).values():
        new[body_trace.paths[start]] = growth
    new = {k: g for k, g in new.items() if k not in known.grown and k not in known.refuted}
    known.grown.update(new)
    known.guessed.update(new)
    return bool(new)


def count(body_trace: LoopTrace) -> bool:
    """After a trace that failed, perhaps because branches made tensors longer by different pieces:
    carry their lengths. Whether there are new ones."""
    known, growth = body_trace.known, body_trace.known.grown
    new = {k for k in body_trace.uneven - known.counted if k in growth and not growth[k].front}
    known.counted |= {k for k in new if isinstance(growth[k].step, int)}
    return bool(new & known.counted)


def refute(body_trace: LoopTrace) -> bool:
    """After a trace that failed with guesses: go without them. Whether there were some."""
    known = body_trace.known
    wrong = known.guessed & known.grown.keys()
    for path in wrong:
        known.wrong[path] = known.grown.pop(path)
        body_trace.sure = body_trace.sure or known.changes.get(path)
    known.refuted |= wrong
    return bool(wrong)


def unsteady(known: LearnedFacts) -> bool:
    """After a trace in which an index left its axis: integers that seemed to move by a constant
    (`pos = (pos + 1) % n` does at first) are values of the program. Whether there are some."""
    wrong = known.steps.keys() - known.numbers.keys()
    for path in wrong:
        del known.steps[path]
        known.numbers[path] = (int, False)
    known.free |= bool(wrong)
    return bool(wrong)


def longer(body_trace: LoopTrace, starts: Iterable[Value]) -> dict[Value, tuple[Value, Growth]]:
    """Results of concats of one of `starts`, of concats with those, and so on, all along one axis
    and on one side: the start, and how it has grown."""
    sides: dict[Value, tuple[Value, int, bool]] = {}
    found: dict[Value, tuple[Value, Growth]] = {}
    first = set(starts)
    for op, operands in concats(body_trace.frame.builder.ops, {}):
        t = op.result.type
        axis = op.attrs["axis"] % t.ndim
        for v, front in ((operands[0], False), (operands[-1], True)):
            start = v if v in first else sides[v][0] if sides.get(v, ())[1:] == (axis, front) else v
            step = t.shape[axis] - start.type.shape[axis] if start in first else 0
            step = in_the_first(body_trace, step)
            if start in first and without(start.type, axis) == without(t, axis):
                sides[op.result] = start, axis, front
                found[op.result] = start, Growth(axis, step, front)
                break
    return found


def concats(
    ops: Iterable[Node], outside: Mapping[Value, Value]
) -> Iterator[tuple[Op, list[Value]]]:
    """Concats of a body and of the branches in it, with their operands as the body has them."""
    for n in ops:
        if isinstance(n, Cond):
            inner = {**outside, **{p.inner: outside.get(p.outer, p.outer) for p in n.ins}}
            for block, _ in n.branches:
                yield from concats(block, inner)
        elif isinstance(n, Op) and n.name == "concat" and len(n.operands) > 1:
            yield n, [outside.get(v, v) for v in n.operands]


__all__ = [
    "Growth", "count", "guess", "learn", "learn_early", "learn_unresolved", "numbered", "refute",
    "type_change", "without",
]  # fmt: skip
