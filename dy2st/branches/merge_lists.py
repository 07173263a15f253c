"""Conditional elements: elements that only one branch of a condition on data appends to a list.

    for t in range(n):
        h = cell(h)
        if stop(h):
            break                  every iteration that is followed by another one appends, so the
        ys.append(h)               list has one element per iteration, except perhaps for the last

In any other case the length of the list depends on data in a way that no loop can follow, and the
append is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dy2st.state.container_writes import Contents
from dy2st.trace.scalar import PathCondition, RuntimeScalar
from dy2st.trace.undo import MISSING


@dataclass(frozen=True)
class ConditionalElement:
    """`item` was appended where `ran` is true, which follows from `facts`; `error` says why that
    is wrong where nothing follows from it."""

    item: object
    ran: RuntimeScalar
    facts: frozenset[PathCondition]
    error: BaseException


def same_keys(place: Contents, a: Any, b: Any) -> bool:
    """Whether two contents of a container have one structure."""
    if isinstance(place.obj, dict):
        return [k for k, _ in a] == [k for k, _ in b]
    return len(a) == len(b)


def with_items(place: Contents, contents: Any, items: dict[Any, Any]) -> Any:
    """The contents of a container after stores of some items."""
    new: Any = dict(contents if isinstance(place.obj, dict) else enumerate(contents))
    for k, value in items.items():
        new.pop(k, None) if value is MISSING else new.update({k: value})
    return tuple(new.items() if isinstance(place.obj, dict) else new.values())


def changed_keys(place: Contents) -> str:
    kind = type(place.obj).__name__
    what = "keys of a dict depend" if isinstance(place.obj, dict) else f"length of a {kind} depends"
    return f"the {what} on data."


def keys(place: Contents, contents: Any) -> str:
    """The keys of a dict or the length of a list, in words."""
    if isinstance(place.obj, dict):
        return ", ".join(repr(k) for k, _ in contents) or "no key"
    return elements(len(contents))


def elements(n: int) -> str:
    return "no element" if n == 0 else "1 element" if n == 1 else f"{n} elements"


__all__ = ["ConditionalElement", "changed_keys", "elements", "keys", "same_keys", "with_items"]
