"""Loops in which a branch decides whether a variable holds another list
(`dy2st.branches.chosen_containers`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dy2st.branches.chosen_containers import ChosenContainer
from dy2st.branches.unresolved import Unresolved
from dy2st.state.tree import elements, is_container, is_value
from dy2st.trace.signals import NeedsConcrete


def copied(
    known: Any, x: object, path: tuple[object, ...]
) -> list[tuple[tuple[object, ...], object]]:
    """The places of lists that the body may replace and then changes, of which it gets copies."""
    places = containers({path: x}) if known.copied else ()
    return [(p, q) for p, q in places if id(q) in known.copied and p not in known.fresh]


def are_held(ports: Any, kept: tuple[object, ...]) -> bool:
    """Whether a place holds one of these lists at the end of an iteration."""
    ends = [q for _, q in containers(ports.ends)] if kept else ()
    return any(q is x for q in ends for x in kept)


def containers(
    ends: dict[tuple[object, ...], object],
) -> Iterator[tuple[tuple[object, ...], object]]:
    """The containers in these places, and those in them."""
    for path, x in ends.items():
        if type(x) is not Unresolved and (is_value(x) or is_container(x)):
            yield path, x
            yield from containers({(*path, k): q for k, q in (elements(x) or {}).items()})


def check_chosen(ports: Any) -> None:
    """A container that is one of several at the end of an iteration is changed by no other name,
    nor is the one that the iteration begins with there."""
    body = ports.body_trace
    changed = {id(q.copy) for q in body.replaced if q.changed}
    begun = {q.path for q in body.replaced if q.changed}
    for path, value in containers(ports.ends):
        doubt = ports.trace.objects.doubts.get(id(value))
        if not isinstance(doubt, ChosenContainer):
            continue
        alone = len(doubt.kept) == 1
        others = [q for q in doubt.kept if not alone or body.copies.get(id(q), (0,) * 3)[2] != path]
        known = doubt.lost or others and path in begun
        if known or any(id(q) in changed or ports.changes(q) for q in others):
            raise NeedsConcrete("a container that may have another name is changed in place")
