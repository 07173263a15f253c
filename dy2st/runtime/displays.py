"""Containers that converted code has just made: displays, comprehensions and `|`."""

from __future__ import annotations

import operator
from typing import Any

from dy2st.branches.unresolved import here
from dy2st.runtime.access import check_key
from dy2st.state.traced_list import TraceList
from dy2st.trace.trace import current
from dy2st.trace.undo import kind_of
from dy2st.trace.user_stack import perform


def list_(items: list[object]) -> list[object]:
    return TraceList(map(here, items)) if current() is not None else items


def dict_(items: dict[object, object]) -> dict[object, object]:
    if current() is not None:
        for key in items:
            check_key(items, key)
    return _made(items)


def set_(items: set[object]) -> set[object]:
    if current() is not None:
        for key in items:
            check_key(items, key)
    return _made(items)


def union(a: object, b: object) -> object:
    """`a | b`: the function makes a dict or set of it."""
    out = perform(operator.or_, a, b)
    return out if kind_of(out) is None or out is a or out is b else _made(out)


def _made(x: object) -> Any:
    if (trace := current()) is not None:
        trace.make(x)
    return x
