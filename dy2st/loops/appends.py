"""Appends by a loop to lists from outside of it.

The elements that one iteration appends to a list, or that an inner loop has appended, are one
group; the loop stacks the groups, and the list gets a `StackedRun` that stands for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import paddle

from dy2st.branches.padded_tensors import pad
from dy2st.loops.containers import ContainerPorts
from dy2st.loops.index_values import counted, gathered, iterations
from dy2st.loops.record import LoopRecord, at
from dy2st.state.containers import list_buffers, list_fills, list_pops, list_recurrences
from dy2st.state.containers.list_recurrences import ConditionalElement, ListTapPort, appended
from dy2st.state.containers.records import containers_in, recorded, regrouped, same_form
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.guards import is_constant
from dy2st.state.stacked_run import (
    KnownValue,
    StackedLeaf,
    StackedRun,
    Unstacked,
    length_of,
    mapped,
)
from dy2st.state.stacked_run import leaves_of as stacked_leaves
from dy2st.state.traced_list import MOST_ELEMENTS, TraceList
from dy2st.state.tree import describe, elements
from dy2st.trace import scalar
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import size_of as size_from
from dy2st.trace.scalar import PathCondition, RuntimeScalar, is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from ir import ENDLESS, Type, Value
from ir.types import BOOL, I64, Dim, names_in
from ir.uses import size_names


def filled(trace: Trace, target: TraceList, made: StackedRun, fill: list_fills.ListFill) -> None:
    """Store the elements of a loop that has just ended; one by one, if a loop around it carries
    them."""
    trip = made.trip
    made = made if fill.step > 0 else made.slice(trace, slice(None, None, -1))
    if fill is list_fills.FRONT:
        return target.replace_parts([made, *target.parts()])
    assert isinstance(trip, int)
    places = fill.places(trip)
    if target.grows_in_loop():
        for k in range(trip):
            target[places[k]] = made.item(trace, k)
        return None
    before, behind = target[: places[0]], target[places[-1] + 1 :]
    return target.replace_parts([*before.parts(), made, *behind.parts()])


def last_of(plan: LoopRecord, item: object) -> object:
    """The last element of what was appended, as the next iteration has it."""
    trace = plan.trace
    if isinstance(item, ConditionalElement):
        if not item.facts <= plan.body_trace.goes_on:
            raise item.error
        return item.item
    if not isinstance(item, StackedRun):
        return item
    return item.item(trace, trace.sym(item.trip - 1))


def element_after(plan: LoopRecord, port: ListTapPort) -> object:
    """The element in the place of a tap at the end of the iteration."""
    target, back = port.target, port.back
    fill = plan.frame.learned.fills.get(id(target))
    if fill is not None and back > 1:
        return list_fills.port(plan.trace, target, plan.frame, fill, back - 1).inner
    new = appended(plan.frame, target)
    if (
        back <= 1
        and list_recurrences.is_conditional(new)
        and not new[0].facts <= plan.body_trace.goes_on
    ):
        return list_recurrences.last_if_any(plan.trace, new[0], port.inner)
    if new and back <= 1:
        return last_of(plan, new[-1])
    if any(isinstance(q, StackedRun) for q in new):
        raise NeedsConcrete("an inner loop appends to a list that is read from its end")
    if back <= len(new):
        return last_of(plan, new[-back])
    return list_recurrences.port(plan.trace, target, plan.frame, back - len(new)).inner


def learn_growth(plan: LoopRecord) -> bool:
    """Learn how many elements an iteration appends to a list that the body reads: its length
    follows from the index then. Returns True if there was something new."""
    known, frame = plan.body_trace.known.growth, plan.frame
    lists = {k: q for k, (_, q) in frame.appends.items() if k not in frame.fills}
    grows = {k: length_of(items) for k, items in lists.items() if items}
    read = {*frame.asked, *frame.picked, *frame.observed}
    new = {k: n for k, n in grows.items() if (known[k] != n if k in known else k in read)}
    new.update((k, 0) for k in frame.guessed if k not in grows and k not in known)
    gone = [k for k in known if known[k] != 0 and k not in lists]
    known.update(new)
    for key in gone:
        del known[key]
    for key in new.keys() & lists.keys():
        target, items = frame.appends[key]
        if any(isinstance(q, ConditionalElement) and not q.ran.data for q in items):
            why = "a list that it reads gets longer in later iterations only"
            plan.body_trace.sure = plan.body_trace.sure or NeedsConcrete(why)
        list_buffers.learn(plan.trace, frame, target, leaves_of(items), known[key])
    return any((list_fills.learn(frame), list_pops.learn(frame), new, gone))


# ---------------------------------------------------------------- what one iteration appends
def records(plan: ContainerPorts) -> dict[int, object]:
    """Put records for the containers among appended elements, each of which the iteration has made;
    returns these, by `id`."""
    found: dict[int, object] = {}
    for _, items in plan.frame.appends.values():
        items[:] = [record(plan, q, found) for q in items]
    length = plan.body_trace.loop.trip
    if found and isinstance(length, int) and length <= MOST_ELEMENTS and not varies(plan):
        why = "equal containers are put into a short list, which may be changed"
        raise NeedsConcrete(why, few=True)
    return found


def varies(plan: LoopRecord) -> bool:
    """Whether the body reads its index, or what goes from one iteration to the next."""
    loop, carried = plan.body_trace.loop, plan.trace.values.placeholders
    read = [n for n in plan.frame.builder.ops if loop.name in size_names(n)]
    return bool(read) or any(
        v is loop.index or v in carried for n in plan.frame.builder.ops for v in n.operands
    )


def record(plan: ContainerPorts, x: object, found: dict[int, object]) -> Any:
    if isinstance(x, ConditionalElement):
        return replace(x, item=record(plan, x.item, found))
    if isinstance(x, StackedRun):
        return x
    split_lists(plan.trace, x)
    for q in containers_in(x):
        if id(q) in found or not plan.is_new(q):
            raise NeedsConcrete(f"a {type(q).__name__} of another place is appended to a list")
        found[id(q)] = q
    return recorded(x, plan.body_trace.loop)


def split_lists(trace: Trace, x: object) -> None:
    """The elements one by one of short lists that inner loops have filled."""
    if isinstance(x, TraceList) and x.segmented:
        x.split(trace)
    for q in (elements(x) or {}).values():
        split_lists(trace, q)


def collect(plan: LoopRecord) -> list[tuple[TraceList, object, Dim]]:
    """Per list: a tree of tensors, and how many elements they hold (0: they are one element)."""
    out: list[tuple[TraceList, object, Dim]] = []
    if plan.frame.changed.keys() - plan.frame.queues:
        raise NeedsConcrete("a list from outside of the loop is changed as a whole")
    list_fills.check_unread(plan.trace, plan.frame)
    list_pops.check(plan.frame, plan.body_trace.tests is not None)
    plan.fills = dict(plan.frame.fills)
    for target, items in plan.frame.appends.values():
        if not items:
            continue
        if id(target) in plan.frame.ends:
            raise NeedsConcrete("the last elements of a list that the loop fills are set")
        for q in flat(items):
            check_item(plan, q)
            plan.leave(q)
        check_members(plan, items)
        items = certain(plan, target, items)
        check_length(plan, items)
        if target.buffer is not None:
            if target.buffer.wanted.learn(flat(items)):
                target.buffer.frame.stale = True
            if not target.buffer.wanted.stores:
                out.append((target, target.buffer, length_of(items)))
            continue
        single = len(items) == 1 and not isinstance(items[0], StackedRun)
        if single:
            out.append((target, items[0], 0))
        else:
            out.append((target, grouped(plan, items), length_of(items)))
    return out


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


def leaves_of(items: Sequence[object]) -> list[Any]:
    """The tensors and numbers among appended elements, and the leaves of those of inner loops."""
    runs = [q.tree for q in items if isinstance(q, StackedRun)]
    return [*flat(items), *flat(runs)]


def check_length(plan: LoopRecord, items: Sequence[object]) -> None:
    """Check that every iteration appends the same number of elements."""
    trips = [q.trip for q in items if isinstance(q, StackedRun)]
    if any(plan.body_trace.loop.name in names_in(n) for n in trips):
        raise NeedsConcrete("an inner loop, whose length moves with the index, fills a list")


def check_members(plan: LoopRecord, items: Sequence[object]) -> None:
    """Check that inner loops append no tensor that this loop writes: eager appends the tensor, not
    its value in an iteration."""
    for q in items:
        q = q.item if isinstance(q, ConditionalElement) else q
        if isinstance(q, tuple):
            check_members(plan, q)
        elif isinstance(q, StackedRun):
            check_members(plan, list(stacked_leaves(q)))
        elif isinstance(q, (StackedLeaf, Unstacked)):
            check_written(plan, q.members)


def check_written(plan: LoopRecord, values: Iterable[Value]) -> None:
    if not plan.frame.written.keys().isdisjoint(map(plan.trace.root, values)):
        raise NeedsConcrete("a tensor that the loop writes is appended to a list")


def check_item(plan: LoopRecord, q: Any) -> None:
    if is_runtime_scalar(q):
        plan.trace.read_value(q.value)
        return
    if is_symint(q) or is_constant(q):
        return
    if not isinstance(q, Tensor):
        raise NeedsConcrete(f"{named(q)} is appended to a list")
    trace = plan.trace
    value = trace.read_value(lift(trace, q)._value)
    root = trace.root(value)
    if any(trace.is_local(n, plan.frame) for n in value.type.shape):
        raise NeedsConcrete("a tensor as long as an inner loop, which depends on data, is appended")
    plan.require_steady(value, "a tensor is appended to a list")
    check_written(plan, [root, *trace.values.copies.get(value, ())])
    if trace.values.frame_of[root] is not plan.frame:
        reason = "A loop stacked a copy of it, where eager keeps the tensor."
        trace.freeze(root, reason, plan.body_trace.loop)


def named(x: object) -> str:
    return describe(x) if type(x) is TaggedUnion else f"a {type(x).__name__}"


def grouped(plan: LoopRecord, items: Sequence[Any]) -> object:
    """Stack all elements of one iteration along a new first axis, part by part for tuples."""
    trees = [q.tree if isinstance(q, StackedRun) else q for q in items]
    if any(isinstance(q, tuple) for q in trees):
        if not all(isinstance(q, tuple) and same_form(q, trees[0]) for q in trees):
            raise NeedsConcrete("elements of different structure are appended to a list")
        kinds = [q.trip if isinstance(q, StackedRun) else 0 for q in items]
        parts = []
        for k in range(len(trees[0])):
            column = [
                StackedRun(trip, t[k]) if isinstance(q, StackedRun) else t[k]
                for q, t, trip in zip(items, trees, kinds)
            ]
            parts.append(grouped(plan, column))
        return regrouped(trees[0], parts)
    return joined(plan, items)


def joined(plan: LoopRecord, items: Sequence[Any]) -> Any:
    trace = plan.trace
    pieces, stops, numbers, members = [], [], [], list[Value]()
    for q in items:
        if isinstance(q, StackedRun):
            fake = q.stacked(trace, 0)
            pieces.append(trace.read_value(fake._value))
            stops.append(fake.stop_gradient)
            numbers.append(q.tree.number)
            members += q.tree.members
        elif not is_runtime_scalar(q) and not isinstance(q, Tensor):
            raise NeedsConcrete(f"{named(q)} is appended to a list among others")
        else:
            value = q.value if is_runtime_scalar(q) else lift(trace, q)._value
            shape = (1, *value.type.shape)
            pieces.append(trace.emit("reshape", [value], {"shape": shape}))
            stops.append(getattr(q, "stop_gradient", True))
            numbers.append(is_runtime_scalar(q))
            members.append(trace.read_value(value))
    first = pieces[0].type
    if any(p.type.shape[1:] != first.shape[1:] or p.type.dtype != first.dtype for p in pieces):
        raise NeedsConcrete("elements of different types are appended to a list")
    if len(set(numbers)) > 1:
        raise NeedsConcrete("numbers and tensors are appended to one list")
    whole = pieces[0] if len(pieces) == 1 else trace.emit("concat", pieces, {"axis": 0})
    return ElementGroup(trace.fake(whole, all(stops)), numbers[0], members)


class ElementGroup:
    """Several elements along the first axis of one tensor."""

    def __init__(self, fake: FakeTensor, number: bool, members: Sequence[Value]) -> None:
        self.fake, self.number, self.members = fake, number, members


# ---------------------------------------------------------------- after the loop
def segment(plan: LoopRecord, x: Any, group: Dim) -> Any:
    """The tree of leaves for what one iteration appends; the scan is in the outer frame by now."""
    if isinstance(x, tuple):
        return regrouped(x, [segment(plan, q, group) for q in x])
    if isinstance(x, ElementGroup):
        fake = x.fake
        return StackedLeaf(plan.cell, fake._value, fake.stop_gradient, group, x.number, x.members)
    if is_runtime_scalar(x):
        of = None if x.data else x.loops
        return StackedLeaf(plan.cell, inner_value(plan, x.value), True, 0, True, of=of)
    if not isinstance(x, Tensor):
        return KnownValue(x, plan.body_trace.loop.name)
    return StackedLeaf(plan.cell, inner_value(plan, lift(plan.trace, x)._value), x.stop_gradient)


def inner_value(plan: LoopRecord, value: Value) -> Value:
    """Return the value as the body sees it, which has ended by now."""
    if plan.trace.values.frame_of[value] is plan.frame:
        return value
    return plan.frame.consts[plan.trace.read_value(value)].inner


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


__all__ = [
    "ElementGroup", "collect", "element_after", "filled", "last_of", "learn_growth", "segment",
    "those_appended",
]  # fmt: skip
