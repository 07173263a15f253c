"""Appends by a loop to lists from outside of it.

The elements that one iteration appends to a list, or that an inner loop has appended, are one
group; the loop stacks the groups, and the list gets a `StackedRun` that stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dy2st.loops.containers import ContainerPorts
from dy2st.loops.growth.conditional_appends import certain, flat
from dy2st.loops.record import LoopRecord
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
)
from dy2st.state.stacked_run import leaves_of as stacked_leaves
from dy2st.state.traced_list import MOST_ELEMENTS, TraceList
from dy2st.state.tree import describe, elements
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from ir import Value
from ir.types import Dim, names_in
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
    before, behind = between(trace, target, 0, places[0]), between(trace, target, places[-1] + 1)
    return target.replace_parts([*before, made, *behind])


def between(trace: Trace, target: TraceList, start: int, stop: int | None = None) -> list[object]:
    """The parts of `target[start:stop]`, which it keeps."""
    out, first, size = list[object](), 0, target.size()
    assert isinstance(size, int)
    for q in target.parts():
        n: Any = length_of([q])
        chosen = [k - first for k in range(size)[start:stop] if first <= k < first + n]
        if chosen and isinstance(q, StackedRun):
            q = q if len(chosen) == n else q.part(trace, slice(chosen[0], chosen[-1] + 1))
        out += [q] if chosen else []
        first += n
    return out


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
    plan.body_trace.known.free |= bool(gone)
    for key in new.keys() & lists.keys():
        target, items = frame.appends[key]
        if any(isinstance(q, ConditionalElement) and not q.ran.data for q in items):
            why = "a list that it reads gets longer in later iterations only"
            plan.body_trace.sure = plan.body_trace.sure or NeedsConcrete(why)
            plan.body_trace.known.later.add(key)
        list_buffers.learn(plan.trace, frame, target, leaves_of(items), known[key])
    return any((list_fills.learn(frame), list_pops.learn(frame), new, gone))


# ---------------------------------------------------------------- what one iteration appends
def records(plan: ContainerPorts) -> dict[int, object]:
    """Put records for the containers among appended elements, each of which the iteration has made;
    returns these, by `id`."""
    found: dict[int, object] = {}
    new = 0  # none of them a row that it has changed
    for target, items in plan.frame.appends.values():
        before = len(found)
        items[:] = [record(plan, q, found) for q in items]
        if id(target) not in plan.body_trace.known.tables:
            new += len(found) - before
    length = plan.body_trace.loop.trip
    if new and isinstance(length, int) and length <= MOST_ELEMENTS and not varies(plan):
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
    if isinstance(x, TraceList) and x.segmented:
        return f"a list of {'as many elements as data decides' if counted(x) else 'many elements'}"
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


def counted(x: TraceList) -> bool:
    """Whether data decides how long a list is."""
    trace, n = current(), x.size()
    return (
        trace is not None
        and not isinstance(n, int)
        and any(q in trace.sizes.counts for q in n.names)
    )


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


__all__ = [
    "ElementGroup", "collect", "element_after", "filled", "last_of", "learn_growth", "segment",
]  # fmt: skip
