"""Attributes, items and displays in converted code: reads and stores that a trace may record."""

from __future__ import annotations

import collections
import operator
import os
import types
from typing import Any

import paddle

from dy2st.capture.indexing.items import old_items
from dy2st.runtime.library_calls import guarded_call
from dy2st.state.arrays import is_array
from dy2st.state.container_writes import CONTAINERS, change
from dy2st.state.dynamic_numbers import number_of
from dy2st.state.ownership import made_here, note_attr, refuse, tensor_attr
from dy2st.state.protocols import (  # fmt: skip
    computed_attr,
    special,
    store_computed,
)
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor, Shape, Tensor
from dy2st.trace.scalar import is_runtime_scalar, settled
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import current
from dy2st.trace.undo import MISSING, Attr, Item


# ---------------------------------------------------------------- containers
def list_(items: list[Any]) -> list[object]:
    return TraceList(items) if current() is not None else items


def dict_(items: dict[Any, Any]) -> dict[Any, Any]:
    if current() is not None:
        for key in items:
            check_key(items, key)
    return _made(items)


def set_(items: set[Any]) -> set[Any]:
    if current() is not None:
        for key in items:
            check_key(items, key)
    return _made(items)


def _made(x: object) -> Any:
    trace = current()
    if trace is not None:
        trace.make(x)
    return x


# ---------------------------------------------------------------- attributes and items
def load_attr(obj: object, name: str) -> object:
    trace, obj = current(), settled(obj)
    if trace is not None and isinstance(obj, Tensor):
        return tensor_attr(trace, obj, name)
    if trace is None or isinstance(obj, TraceList) or trace.guards is None:
        return getattr(obj, name)
    computed = computed_attr(trace, obj, name)
    if computed:
        return computed[0]
    value = getattr(obj, name, MISSING)
    if value is MISSING:
        note_attr(trace, obj, name, value)
        return getattr(obj, name)
    moved = number_of(trace, Attr(obj, name), value) if trace.dynamic else value
    if moved is value:
        note_attr(trace, obj, name, value)
    return moved


def receiver(obj: object, name: str) -> object:
    """An attribute that is only appended to: the elements of a list do not matter."""
    trace = current()
    value = getattr(obj, name, MISSING)
    if trace is None or type(value) is not list or made_here(trace, value):
        return load_attr(obj, name)
    note_attr(trace, obj, name, value, whole=False)
    return value


def store_attr(value: object, obj: object, name: str) -> None:
    trace = current()
    if trace is None:
        setattr(obj, name, value)
        return
    if isinstance(obj, FakeTensor) and not hasattr(obj, name):
        raise refuse(
            f"the attribute {name} of a tensor is set.",
            "A tensor of a program has no attributes of its own.",
            "Keep it in a variable or in an attribute of the Layer.",
        )
    if isinstance(obj, FakeTensor):
        old = getattr(obj, name)
        trace.undo_log.note(lambda: setattr(obj, name, old))
        setattr(obj, name, value)
        return
    if isinstance(obj, (Tensor, types.ModuleType, type)):
        raise refuse(
            f"the attribute {name} of a {type(obj).__name__} is set.",
            "Only attributes of Layers and of plain objects are carried by a program.",
            "Set it outside of the translated function.",
        )
    if not store_computed(trace, obj, name, value):
        trace.store(Attr(obj, name), value)


def del_attr(obj: object, name: str) -> None:
    trace = current()
    if trace is None:
        delattr(obj, name)
        return
    getattr(obj, name)
    trace.store(Attr(obj, name), MISSING)


def load_item(obj: Any, index: Any) -> Any:
    trace = current()
    if trace is None or isinstance(obj, (Tensor, TraceList)):
        return obj[index]
    check_key(obj, index)
    users = special(trace, obj, "__getitem__", index)
    if users:
        return users[0]
    if isinstance(obj, type(os.environ)):
        return guarded_call(trace, operator.getitem, obj, index)
    if isinstance(obj, collections.defaultdict) and index not in obj:
        if trace.tentative:
            raise NeedsConcrete("a defaultdict makes an item in the loop")
        change(trace, obj)
        return _made(obj[index])
    value = obj[index]
    shape = isinstance(obj, (Shape, paddle.Size))
    known = isinstance(obj, (list, dict, tuple)) and not shape and not made_here(trace, obj)
    if known and trace.guards is not None and ("contents", id(obj)) in trace.guards.terms:
        return value
    if (
        known
        and trace.guards is not None
        and isinstance(index, (int, str))
        and not is_symint(index)
    ):
        if ("item", id(obj), index) not in trace.objects.stored and not _holds_fake(obj):
            trace.guards.item(obj, index, value)
    return value


def load_old(obj: object, index: object) -> object:
    """What `obj[index] op= value` starts from."""
    trace = current()
    if trace is None or not isinstance(obj, Tensor):
        return load_item(obj, index)
    return old_items(trace, obj, index)


def _holds_fake(x: Any) -> bool:
    values = x.values() if isinstance(x, dict) else x
    return isinstance(x, tuple) or any(isinstance(q, FakeTensor) for q in values)


def store_item(value: Any, obj: Any, index: Any) -> None:
    trace = current()
    if trace is None or isinstance(obj, (Tensor, TraceList)) or is_array(obj):
        obj[index] = value
        return
    check_key(obj, index)
    if special(trace, obj, "__setitem__", index, value):
        return
    if is_symint(index):
        raise NeedsConcrete(f"{type(obj).__name__}[{index!r}] = ...", index.loops)
    if not isinstance(obj, (list, dict)):
        raise refuse(
            f"an item of a {type(obj).__name__} is set.",
            "Only items of lists and dicts are carried by a program.",
        )
    if isinstance(index, slice) or id(obj) in trace.inputs.containers:
        change(trace, obj)
        obj[index] = value
    else:
        trace.store(Item(obj, index), value)


def check_key(obj: object, index: object) -> None:
    """Refuse a tensor as the key of a dict: eager looks it up by identity."""
    if isinstance(obj, (dict, set)) and (isinstance(index, Tensor) or is_runtime_scalar(index)):
        raise refuse(
            "a tensor is used as a dict key.",
            "Eager finds a tensor by its identity, and values are known only when the program "
            "runs.",
            "Use a Python value as the key, or index a stacked tensor: "
            "`paddle.stack(list(table.values()))[i]`.",
        )


def del_item(obj: Any, index: Any) -> None:
    trace = current()
    if trace is not None and special(trace, obj, "__delitem__", index):
        return
    if trace is not None and isinstance(obj, paddle.nn.Layer) and not made_here(trace, obj):
        raise refuse(
            f"an item of a {type(obj).__name__} is deleted.",
            "Only items of lists and dicts are carried by a program.",
            "Delete it outside of the translated function.",
        )
    if trace is not None and isinstance(obj, CONTAINERS) and not isinstance(obj, TraceList):
        change(trace, obj)
    del obj[index]
