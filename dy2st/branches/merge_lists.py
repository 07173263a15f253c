"""Conditional elements: elements that only one branch of a condition on data appends to a list.

    for t in range(n):
        h = cell(h)
        if stop(h):
            break                  every iteration that is followed by another one appends, so the
        ys.append(h)               list has one element per iteration, except perhaps for the last
        if t % 10 == 0:
            zs.append(h)           the index alone says which iterations append

In any other case the elements of all iterations are stacked with marks, and those that no iteration
has appended are taken out after the loop. A body that reads the list is refused.
"""

from __future__ import annotations

import functools
from typing import Any

from dy2st.branches.branch import BranchTrace
from dy2st.branches.chosen_containers import named_apart
from dy2st.state import tree
from dy2st.state.container_writes import Contents
from dy2st.state.containers.list_recurrences import ConditionalElement
from dy2st.state.containers.rebound_containers import ExtendedList
from dy2st.state.containers.records import containers_in
from dy2st.state.stacked_run import StackedRun, Unstacked, length_of
from dy2st.state.traced_list import MOST_ELEMENTS, TraceList
from dy2st.state.tree import is_container, parts, rebuilt
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.item import size_of
from dy2st.trace.scalar import is_runtime_scalar, kind_of, value_in
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Trace
from dy2st.trace.trace_state import AmbiguousContainer
from dy2st.trace.undo import MISSING, AttributeLocation, ItemLocation, Location
from ir.types import I64


def half_element(merge: Any, x: object, missing: object) -> object:
    """A list element of one branch, zeros if the other one ran; one container for each that the
    branch has made."""
    if isinstance(x, Tensor):
        return merge.half("", x, missing)
    if kind_of(x) is not None:
        return merge.half_number(x, missing)
    if isinstance(x, tuple):
        return rebuilt(merge.trace, x, [half_element(merge, q, missing) for q in x])
    if not is_container(x) or merge.trace.home(x) is not merge.there(missing):
        return x
    key = (id(x), id(merge))
    if key not in merge.merged:
        named_apart(merge, x, merge, [half_element(merge, q, missing) for q in parts(x)])
    return merge.merged[key][2]


def extension(merge: Any, a: Any, b: object) -> ExtendedList | None:
    """Merge two extensions of one list, or an extension and the list; None for any other pair."""
    if not isinstance(a, ExtendedList) or not isinstance(b, ExtendedList) or a.front or b.front:
        return None
    base, other = (q if q.stands_in(merge.trace) else q.base for q in (a, b))
    if base is not other or base is None or not base.stands_in(merge.trace):
        return None
    one, two = ([] if q is base else q.own()[q.shown :] for q in (a, b))
    n = next((k for k, (x, y) in enumerate(zip(one, two)) if x is not y), min(len(one), len(two)))
    new = appended(merge, one[n:], two[n:])
    made = type(base)([*one[:n], *new], base)
    made.error = next((q.error for q in new if isinstance(q, ConditionalElement)), None)
    return made


def appended(merge: Any, a: list[Any], b: list[Any]) -> list[Any]:
    """The merged elements that the branches append to a list."""
    parted = any(isinstance(q, ConditionalElement) for q in (*a, *b))
    if len(a) != len(b) or parted:
        error = merge.stop(
            "the length of a list depends on data.",
            f"One branch appends {elements(len(a))}, the other {elements(len(b))}.",
            "Append in both branches, or write into a tensor with `paddle.where`.",
        )
        return [*uncertain(merge, a, True, error), *uncertain(merge, b, False, error)]
    if any(isinstance(q, StackedRun) for q in (*a, *b)):
        raise merge.stop(
            "a loop in a branch fills a list from outside of it.",
            "Whether it does depends on data.",
            "Collect in a list of the branch and stack it there.",
        )
    return [merge.certain("an element of the list", x, y) for x, y in zip(a, b)]


def uncertain(merge: Any, items: list[Any], there: bool, error: BaseException) -> list[Any]:
    """Elements that one branch appends, that of the condition if `there`: what holds the list finds
    out if it can collect them."""
    op, missing = ("is", merge.no) if there else ("not", merge.yes)
    out: list[Any] = []
    for q in items:
        if isinstance(q, StackedRun) or not outlives(merge.trace, q):
            raise error
        always = ConditionalElement(q, None, frozenset(), error)  # type: ignore[arg-type]
        old = q if isinstance(q, ConditionalElement) else always
        ran = True if old.ran is None else old.ran
        pair = (ran, False) if there else (False, ran)
        facts = old.facts | {(op, merge.test.value)}
        item = half_element(merge, old.item, missing)
        tests = (*old.tests, (merge.test, there))
        out.append(ConditionalElement(item, merge.number(*pair), facts, error, tests))
    return out


def is_uncertain(x: object) -> bool:
    """Whether data decides if the list has it, or how many elements it has behind it."""
    if issubclass(type(x), ExtendedList):  # which a look at `__class__` would read
        return vars(x)["error"] is not None
    return issubclass(type(x), (ConditionalElement, StackedRun))


def outlives(trace: Trace, x: object) -> bool:
    """Whether the sizes of an element are known behind the branch."""
    x = x.item if isinstance(x, ConditionalElement) else x
    if isinstance(x, tuple):
        return all(outlives(trace, q) for q in x)
    shape = lift(trace, x)._value.type.shape if isinstance(x, Tensor) else ()
    return all(trace.sizes.is_known(n, trace.frames) for n in shape)


def settled(trace: Trace, target: TraceList, items: list[Any]) -> list[Any]:
    """Return the elements to append to a list behind a branch. Outside of loops that could collect
    them, conditional elements become a run of a length that data decides."""
    if target.grows_in_loop():
        return items
    return [run_of(trace, q) if isinstance(q, ConditionalElement) else q for q in items]


def run_of(trace: Trace, one: ConditionalElement) -> StackedRun:
    """None or one element."""
    if not (isinstance(one.item, Tensor) or is_runtime_scalar(one.item)):
        raise one.error
    number = is_runtime_scalar(one.item)
    value = one.item.value if number else lift(trace, one.item)._value  # type: ignore[attr-defined]
    rows = trace.emit("reshape", [value], {"shape": (1, *value.type.shape)})
    length = size_of(trace, value_in(trace, one.ran, I64), 1)
    attrs = {"axis": 0, "start": 0, "length": length, "step": 1}
    part = trace.fake(trace.emit("slice", [rows], attrs), getattr(one.item, "stop_gradient", True))
    return StackedRun(length, Unstacked(part, number, (value,)))


def check_appended(merge: Any, x: object, made: object) -> None:
    """`made` stands for a container behind the branch that has made it: it may not be changed if
    the branch has put it into a list."""
    items = [q for side in (merge.yes, merge.no) for _, new in side.appends.values() for q in new]
    plain = (q.item if isinstance(q, ConditionalElement) else q for q in items)
    if any(q is x for item in plain for q in containers_in(item)):
        reason = "a container that some iterations put into a list has another name, too"
        merge.trace.doubt(AmbiguousContainer(made, (x,), functools.partial(NeedsConcrete, reason)))


def same_keys(place: Contents, a: Any, b: Any) -> bool:
    """Whether two contents of a container have one structure."""
    if isinstance(place.obj, dict):
        return [k for k, _ in a] == [k for k, _ in b]
    return len(a) == len(b)


def with_items(place: Contents, contents: Any, items: dict[object, object]) -> object:
    """The contents of a container after stores of some items."""
    new: Any = dict(contents if isinstance(place.obj, dict) else enumerate(contents))
    for k, value in items.items():
        new.pop(k, None) if value is MISSING else new.update({k: value})
    return tuple(new.items() if isinstance(place.obj, dict) else new.values())


def parts_after(x: object, side: BranchTrace) -> list[object] | None:
    """The elements of a container at the end of a branch, which has been undone; None if the branch
    gives it other keys."""
    if id(x) in side.changed:
        return list(side.changed[id(x)][1])
    found: dict[object, object] = dict(tree.elements(x) or {})
    for place, value in side.stores.values():
        if place.obj is not x:
            continue
        new = contents_after(place, found, value)
        if new is None or list(new) != list(found):
            return None
        found = new
    return list(found.values())


def contents_after(
    place: Location, found: dict[object, object], value: Any
) -> dict[object, object] | None:
    """Elements after one store; None for a place that is no element."""
    if isinstance(place, Contents):
        return dict(value if isinstance(place.obj, dict) else enumerate(value))
    if not isinstance(place, (ItemLocation, AttributeLocation)) or value is MISSING:
        return None
    key = place.index if isinstance(place, ItemLocation) else place.name
    if isinstance(place.obj, list) and type(key) is int and key < 0:
        key += len(found)
    return {**found, key: value}


def changed_keys(place: Contents) -> str:
    kind = type(place.obj).__name__
    what = "keys of a dict depend" if isinstance(place.obj, dict) else f"length of a {kind} depends"
    return f"the {what} on data."


def one_by_one(trace: Trace, items: list[object]) -> list[object]:
    """The elements that a loop has stored, if their number is known and small."""
    total = length_of(items)
    if type(total) is not int or total > MOST_ELEMENTS:
        return items
    out: list[object] = []
    for q in items:
        out += [q.item(trace, k) for k in range(q.size)] if isinstance(q, StackedRun) else [q]
    return out


def keys(place: Contents, contents: Any) -> str:
    """The keys of a dict or the length of a list, in words."""
    if isinstance(place.obj, dict):
        return ", ".join(repr(k) for k, _ in contents) or "no key"
    return elements(len(contents))


def elements(n: int) -> str:
    return "no element" if n == 0 else "1 element" if n == 1 else f"{n} elements"


def left_in(side: BranchTrace, key: tuple[object, ...], place: Location, now: object) -> object:
    """The value of a place at the end of a branch; before it the place holds `now`. The branch may
    have stored items of a container that only the other branch changes as a whole."""
    if key in side.stores or not isinstance(place, Contents):
        return side.stores.get(key, (place, now))[1]
    stored = (q for q in side.stores.values() if q[0].obj is place.obj)
    return with_items(place, now, {q.index: v for q, v in stored if isinstance(q, ItemLocation)})


__all__ = [
    "ConditionalElement",
    "appended",
    "check_appended",
    "extension",
    "is_uncertain",
    "half_element",
    "changed_keys",
    "elements",
    "keys",
    "left_in",
    "one_by_one",
    "parts_after",
    "same_keys",
    "settled",
]
