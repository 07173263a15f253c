"""Containers that a function reads only to append to them, and names that it imports.

`self.log.append(x)` and `self.history["loss"].append(x)` depend neither on the elements of the list
nor on the other items of the dict, which grow from call to call.
"""

from __future__ import annotations

import collections
import importlib.util
import sys
from typing import Any

from dy2st.runtime.access import load_attr, load_item
from dy2st.state.ownership import made_here, note_attr, note_contents
from dy2st.state.protocols import computed_by, note_items
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING, ItemLocation, kind_of, plain_get

#: classes of containers of which the function may read nothing but where they are
RECEIVERS = frozenset(
    (list, dict, collections.deque, collections.defaultdict, collections.OrderedDict)
)


def receiver(obj: object, name: str) -> object:
    """An attribute that is only appended to, or whose items are: the elements of a list, and the
    other items of a dict, do not matter."""
    trace = current()
    value = MISSING if computed_by(obj, name) is not None else plain_get(obj, name)
    if trace is None or type(value) not in RECEIVERS or made_here(trace, value):
        return load_attr(obj, name)
    note_attr(trace, obj, name, value, whole=False)
    return value


def mapping(x: object) -> object:
    """`**x` in a call or a display: the program depends on all items."""
    if (trace := current()) is not None:
        note_items(trace, x)
    return x


def receiver_item(obj: object, index: object, *default: object) -> object:
    """An item that is only appended to, or whose items are; with a default that of `setdefault`."""
    trace = current()
    if trace is None or not is_receiver(trace, obj, index):
        if trace is not None and kind_of(obj) is not None:
            note_contents(trace, obj)  # before an item is stored
        if not default:
            return load_item(obj, index)
        method: Any = load_attr(obj, "setdefault")
        return (method if trace is None else trace.hooks.call(method))(index, *default)
    value = ItemLocation(obj, index).get()
    trace.guards.item(obj, index, value, whole=False)
    return value


def is_receiver(trace: Trace, obj: object, index: object) -> bool:
    """Whether a dict or list from outside has such an item, and the function has not read all."""
    if type(obj) not in RECEIVERS or type(index) not in (int, str) or trace.guards is None:
        return False
    known = ("contents", id(obj)) in trace.guards.terms or id(obj) not in trace.guards.ids
    if known or made_here(trace, obj) or ("item", id(obj), index) in trace.objects.stored:
        return False
    return type(ItemLocation(obj, index).get()) in RECEIVERS


def imported(where: str, package: str | None, name: str, value: object) -> object:
    """`from where import name` in a function of the package: an attribute of the module, unless it
    is a module below it."""
    module = sys.modules.get(importlib.util.resolve_name(where, package))
    return load_attr(module, name) if name in getattr(module, "__dict__", ()) else value


__all__ = ["imported", "receiver", "receiver_item"]
