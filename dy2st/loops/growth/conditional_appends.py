"""Appends that not every iteration makes, or of which an iteration makes more or fewer.

Every iteration appends the same number of elements, with marks of those that the list gets, or in
known places; these are taken out after the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import paddle

from dy2st.branches.padded_tensors import pad
from dy2st.loops.index_values import counted, gathered, iterations
from dy2st.loops.record import LoopRecord, at
from dy2st.state.containers import list_recurrences
from dy2st.state.containers.list_recurrences import ConditionalElement
from dy2st.state.stacked_run import KnownValue, StackedRun, Unstacked, mapped
from dy2st.state.traced_list import TraceList
from dy2st.trace import scalar
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.item import size_of as size_from
from dy2st.trace.scalar import PathCondition, RuntimeScalar, is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Trace
from ir import ENDLESS, Type, Value
from ir.types import BOOL, I64, Dim, names_in


def certain(plan: LoopRecord, target: TraceList, items: list[Any]) -> list[object]:
    """Append the same number of elements in each iteration, where not all of them append, or an
    inner loop appends a data-dependent number: elements that are none of the list are taken out
    after the loop."""
    one = items[0]
    if len(items) == 1 and isinstance(one, StackedRun) and moves(plan, one):
        return triangular(plan, target, one)
    if len(items) > 1 or not isinstance(one, ConditionalElement):
        open_ended = any(isinstance(q, ConditionalElement) or is_open(plan, q) for q in items)
        return marked(plan, target, items) if open_ended else items
    frame, loop = plan.frame, plan.body_trace.loop
    index = [q for q in one.tests if not q[0].data and q[0].loops == {loop}]
    found = iterations(plan.trace, frame, index)
    others = one.facts if found is None else one.facts - {fact_of(*q) for q in index}
    if others and not others <= plan.body_trace.goes_on and not plan.body_trace.once:
        return marked(plan, target, items)
    if others:
        plan.missed[id(target)] = missed(plan, one)
    if found is None:
        return [one.item]
    if plan.body_trace.count and len({b - a for a, b in zip(found, found[1:])}) > 1:
        return marked(plan, target, items)
    check_unread(plan, target, items, one.error)
    plan.chosen[id(target)] = found
    return [one.item]


def check_unread(
    plan: LoopRecord, target: TraceList, items: Sequence[object], error: BaseException
) -> None:
    """The body reads nothing of the list, which holds tensors and numbers, but its last element if
    it appends one."""
    frame = plan.frame
    read = {*frame.asked, *frame.growth, *frame.picked, *frame.observed}
    read.update(
        k for k, back in frame.tails if back > 1 or not list_recurrences.is_conditional(items)
    )
    plain = all(isinstance(q, Tensor) or is_runtime_scalar(q) for q in flat(items))
    if id(target) in read or not plain:
        raise error


def is_open(plan: LoopRecord, item: object) -> bool:
    """Whether an inner loop has appended a data-dependent number of elements."""
    return isinstance(item, StackedRun) and plan.trace.is_local(item.trip, plan.frame)


def moves(plan: LoopRecord, run: StackedRun) -> bool:
    """Whether an inner loop has appended as many elements as the index says."""
    return plan.body_trace.loop.name in names_in(run.trip) and not is_open(plan, run)


def triangular(plan: LoopRecord, target: TraceList, run: StackedRun) -> list[object]:
    """The elements of one iteration, as many in each; which of those of all iterations there are is
    known."""
    loop, most = plan.body_trace.loop, plan.trace.sizes.extreme(run.trip, True)
    error = NeedsConcrete("an inner loop, whose length moves with the index, fills a list")
    if plan.body_trace.count or not isinstance(loop.trip, int) or not isinstance(most, int):
        raise error
    check_unread(plan, target, [run], error)
    trips = [at(run.trip, loop.name, t) for t in range(loop.trip)]
    if not all(isinstance(n, int) for n in trips):
        raise error
    plan.chosen[id(target)] = [t * most + k for t, n in enumerate(trips) for k in range(n)]  # type: ignore[arg-type]
    return [StackedRun(most, mapped(functools.partial(filled_up, plan.trace, most), run.tree))]


def marked(plan: LoopRecord, target: TraceList, items: Sequence[Any]) -> list[object]:
    """Return the elements of one iteration, the same number in each, with marks of those that it
    appends."""
    trace, open_loop = plan.trace, "an inner loop, whose length depends on data, fills a list"
    errors = [q.error for q in items if isinstance(q, ConditionalElement)]
    error = errors[0] if errors else NeedsConcrete(open_loop)
    check_unread(plan, target, items, error)
    made: list[object] = []
    marks: list[Any] = []
    for q in items:
        if isinstance(q, StackedRun):
            most = trace.sizes.extreme(q.trip, True)
            if most is None or isinstance(most, int) and most >= ENDLESS:
                raise error
            ones = trace.emit("full", [], {"value": 1, "shape": (most,), "dtype": I64})
            places: Any = trace.fake(ones, True)
            marks.append(places.cumsum() <= trace.fake(trace.dim_value(q.trip), True))
            q = StackedRun(most, mapped(functools.partial(filled_up, trace, most), q.tree))
        else:
            ran = scalar.value_in(trace, getattr(q, "ran", True), BOOL)
            marks.append(trace.fake(ran, True).reshape([1]))
        made.append(q.item if isinstance(q, ConditionalElement) else q)
    whole = marks[0] if len(marks) == 1 else paddle.concat(marks)
    if len(made) == 1 and not isinstance(made[0], StackedRun):
        whole = whole.reshape([])
    plan.marks[id(target)] = trace.read_value(whole._value)
    return made


def filled_up(trace: Trace, most: Dim, leaf: Any) -> Unstacked:
    """The elements of an inner loop in front of zeros."""
    if isinstance(leaf, KnownValue):
        return counted(trace, most, leaf)
    whole = leaf.stacked(trace, 0)
    value = pad(trace, whole._value, (most, *whole._value.type.shape[1:]))
    return Unstacked(trace.fake(value, whole.stop_gradient), leaf.number, leaf.members)


def fact_of(test: RuntimeScalar, answer: bool) -> PathCondition:
    return "is" if answer else "not", test.value


def flat(items: Sequence[object]) -> list[Any]:
    """The tensors and numbers among appended elements; those of inner loops are fresh."""
    out: list[object] = []
    for q in items:
        if isinstance(q, ConditionalElement):
            q = q.item
        if isinstance(q, tuple):
            out += flat(q)
        elif not isinstance(q, StackedRun):
            out.append(q)
    return out


# ---------------------------------------------------------------- after the loop
def missed(plan: LoopRecord, one: ConditionalElement) -> Value:
    """1 after the loop if its last iteration did not append, which all before do, else 0; i64[]."""
    trace = plan.trace
    with trace.outside():
        none = scalar.value_in(trace, 0, I64)
    inner = trace.read_value(scalar.value_in(trace, scalar.negate(one.ran), I64))
    return plan.add_carry(trace.new_value(Type(I64), "missed"), none, inner, "missed")


def those_appended(plan: LoopRecord, target: TraceList, run: StackedRun) -> StackedRun:
    """The elements of a list, of those of all iterations."""
    key = id(target)
    if key in plan.marks:
        return unmarked(plan, run, plan.marks[key])
    if key in plan.missed:
        run = shortened(plan, run, plan.missed[key])
    return gathered(plan.trace, run, plan.chosen[key]) if key in plan.chosen else run


def unmarked(plan: LoopRecord, run: StackedRun, mark: Value) -> StackedRun:
    """The elements with a mark, in their order."""
    trace = plan.trace
    marks: Any = trace.fake(plan.cell.add_stack(mark, 0, trace), True)
    marks = marks.reshape([-1]).astype("int64")
    behind = (1 - marks).cumsum() + marks.sum()
    order = paddle.argsort(paddle.where(marks > 0, marks.cumsum(), behind))
    trip, group = plan.body_trace.loop.trip, mark.type.shape[0] if mark.type.shape else 1
    most = trip if trip == ENDLESS else trip * group
    length = size_from(trace, lift(trace, marks.sum())._value, most)

    def take(leaf: Any) -> Any:
        whole = leaf.stacked(trace, 0)
        rows = lift(trace, paddle.index_select(whole, order, 0))
        return first_rows(trace, leaf, rows._value, whole.stop_gradient, length)

    return StackedRun(length, mapped(take, run.tree), origin=(run,))


def first_rows(trace: Trace, leaf: Any, rows: Value, stops: bool, length: Dim) -> Unstacked:
    attrs = {"axis": 0, "start": 0, "length": length, "step": 1}
    return Unstacked(
        trace.fake(trace.emit("slice", [rows], attrs), stops), leaf.number, leaf.members
    )


def shortened(plan: LoopRecord, segment: StackedRun, less: Value) -> StackedRun:
    """The segment without its last element where `less` is 1."""
    trace = plan.trace
    total = trace.emit("subtract", [trace.dim_value(segment.trip), less], {})
    length = size_from(trace, total, plan.body_trace.loop.trip)

    def cut(leaf: Any) -> Any:
        whole = leaf.stacked(trace, 0)
        return first_rows(trace, leaf, whole._value, whole.stop_gradient, length)

    return StackedRun(length, mapped(cut, segment.tree), origin=(segment,))
