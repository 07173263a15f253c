"""Attributes, items and displays in converted code: reads and stores that a trace may record."""

from __future__ import annotations

import collections
import functools
import operator
import os
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.branches.predicates import known_index
from dy2st.branches.unresolved import Unresolved, here
from dy2st.capture.foreign.draws import drawing
from dy2st.capture.indexing.items import old_items
from dy2st.loops.generators import iterated
from dy2st.runtime.library_calls import PureCall, guarded_call
from dy2st.state.arrays import is_array
from dy2st.state.bindings import ModuleGlobal
from dy2st.state.container_writes import change
from dy2st.state.containers import dynamic_lookup, layer_attributes, list_buffers
from dy2st.state.containers.dynamic_lookup import is_later
from dy2st.state.containers.layers import PARTS, SelectedLayer, class_of, picked_of
from dy2st.state.containers.tagged_union import TaggedUnion, is_int_or_float
from dy2st.state.dynamic_numbers import guarded, held, number_of
from dy2st.state.ownership import (
    check_strong,
    holds_fake,
    made_here,
    note_attr,
    note_contents,
    of_library,
    refuse,
    tensor_attr,
)
from dy2st.state.protocols import (  # fmt: skip
    computed_attr,
    hooked,
    new_object,
    of_class,
    special,
    store_computed,
)
from dy2st.state.strings import loops_in
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor, Shape, Tensor
from dy2st.trace.scalar import RuntimeScalar, is_runtime, is_runtime_scalar, settled, stop
from dy2st.trace.scalar import kind_of as number_kind
from dy2st.trace.signals import NeedsConcrete, raise_defect
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING, AttributeLocation, ItemLocation, in_class, kind_of
from dy2st.trace.user_stack import perform

#: a store at an index from data decides about each element of a list
MOST_CHOSEN = 64


# ---------------------------------------------------------------- attributes
def load_attr(obj: object, name: str) -> object:
    return here(loaded(settled(here(obj)), name))


def loaded(obj: object, name: str) -> object:
    """`obj.name`, which may be unresolved."""
    trace = current()
    if type(obj) is TaggedUnion:
        return obj.each(lambda x: load_attr(x, name))
    if trace is not None and isinstance(obj, Tensor):
        return tensor_attr(trace, obj, name)
    number = is_runtime(obj) and name != "item" and hasattr(type(obj), name)
    if number or isinstance(obj, TraceList):
        like = obj.kind() if isinstance(obj, TraceList) else obj.__class__()
        return perform(getattr, obj if hasattr(like, name) else like, name)
    if trace is None or trace.guards is None:
        return perform(getattr, obj, name)
    trace.note_use(obj)
    picked = picked_of(trace, obj)
    found = () if picked is None else picked_attr(picked, obj, name)
    if name == "__dict__" and hasattr(obj, name):
        return fields_of(trace, obj)
    found = found or computed_attr(trace, obj, name) or item_as_attribute(obj, name)
    if found:
        return found[0]
    if picked is not None:
        for q in picked.layers:
            load_attr(q, name)
        return perform(getattr, obj, name)
    place = place_of(obj, name)
    value = place.get() if isinstance(place, ModuleGlobal) else getattr(obj, name, MISSING)
    layer_attributes.check(value)
    if value is MISSING:
        note_attr(trace, obj, name, value)
        return perform(getattr, obj, name)
    value = drawing(value)
    moved = number_of(trace, place, value) if trace.dynamic else value
    kept = guarded(trace, value)
    if moved is value:
        note_attr(trace, obj, name, value)
    return held(trace, moved, kept)


def picked_attr(picked: SelectedLayer, obj: object, name: str) -> tuple[object, ...]:
    """`(value,)` of what the Layers that a stand-in stands for have themselves; () for what they
    have of their class."""
    if name in ("__dict__", *PARTS):
        raise picked.stop(f"{name} of a Layer that an index picks is read")
    if name == "__class__":
        return (class_of(obj),)
    if stored := layer_attributes.read(picked.trace, picked, name, load_attr):
        return stored
    if not picked.has(name):
        return ()
    return (picked.value(name, [load_attr(q, name) for q in picked.layers]),)


def place_of(obj: object, name: str) -> ModuleGlobal | AttributeLocation:
    """Attributes of a module are its globals."""
    module = isinstance(obj, types.ModuleType)
    return ModuleGlobal(vars(obj), name) if module else AttributeLocation(obj, name)


def fields_of(trace: Trace, obj: Any) -> Any:
    """`obj.__dict__`: items of it are attributes."""
    fields: object = obj.__dict__
    trace.guards.ref(fields)
    if type(fields) is dict and not isinstance(obj, types.ModuleType):
        trace.objects.fields[id(fields)] = obj
    elif isinstance(fields, types.MappingProxyType) and not made_here(trace, obj):
        trace.guards.named.setdefault(id(fields), f"vars({obj.__name__})")
        trace.guards.contents(fields)
    return fields


def owner_of(trace: Trace, fields: object, name: object) -> Any:
    """The object whose attribute is an item of its `__dict__`; None for other items."""
    obj = trace.objects.fields.get(id(fields))
    if obj is None or type(name) is not str:
        return None
    return None if hasattr(in_class(type(obj), name), "__set__") else obj


def update_fields(fields: object, *args: object, **kwargs: object) -> None:
    """`obj.__dict__.update(...)`."""
    for name, value in dict(*args, **kwargs).items():
        put_item(fields, name, value)


def item_as_attribute(obj: Any, name: str) -> tuple[object, ...]:
    """`(value,)` of an attribute of a dict that is its own `__dict__`."""
    own = isinstance(obj, dict) and getattr(obj, "__dict__", None) is obj
    return (load_item(obj, name),) if own and dict.__contains__(obj, name) else ()


def vars_(*args: object) -> object:
    has = len(args) == 1 and hasattr(args[0], "__dict__")
    return load_attr(args[0], "__dict__") if has else vars(*args)


def getattr_(obj: object, name: str, *default: object) -> object:
    if isinstance(obj, paddle.nn.Layer):
        dynamic_lookup.note_layers(loops_in(name))
    try:
        return load_attr(obj, name)
    except AttributeError as error:
        raise_defect(error)
        if default:
            return default[0]
        raise


def hasattr_(obj: object, name: str) -> bool:
    return getattr_(obj, name, MISSING) is not MISSING


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
        held, kept = obj.__dict__, dict(obj.__dict__)
        trace.undo_log.note(lambda: held.update(kept))
        setattr(obj, name, value)
        return
    if not hooked(trace, obj, "__setattr__", name, value):
        store_plain(obj, name, value)


def store_plain(obj: object, name: str, value: object) -> None:
    """`object.__setattr__(obj, name, value)`."""
    trace = current()
    if trace is None:
        object.__setattr__(obj, name, value)
        return
    if store_computed(trace, obj, name, value):
        return
    if name == "stop_gradient" and isinstance(obj, Tensor) and load_attr(obj, name) is value:
        return
    if isinstance(obj, Tensor) or of_library(obj):
        owner = "a tensor" if isinstance(obj, Tensor) else f"a {type(obj).__name__}"
        raise refuse(
            f"the attribute {name} of {owner} is set.",
            "Only attributes of Layers, of plain objects, and of classes and modules of the user "
            "are carried by a program.",
            "Set it outside of the translated function.",
        )
    picked = picked_of(trace, obj)
    if isinstance(obj, dict) and getattr(obj, "__dict__", None) is obj:
        put_item(obj, name, value)
    elif picked is None or not layer_attributes.store(trace, picked, name, value):
        layer_attributes.check_stored(trace, obj, name)
        if picked is None and isinstance(obj, paddle.nn.Layer) and not made_here(trace, obj):
            layer_attributes.check_plain(trace, [obj], name, value)
        trace.store(place_of(obj, name), value)


def del_attr(obj: object, name: str) -> None:
    trace = current()
    if trace is None:
        delattr(obj, name)
        return
    if not hooked(trace, obj, "__delattr__", name):
        del_plain(obj, name)


def del_plain(obj: object, name: str) -> None:
    trace = current()
    if trace is None:
        object.__delattr__(obj, name)
    elif isinstance(obj, dict) and getattr(obj, "__dict__", None) is obj:
        del_item(obj, name)
    else:
        load_attr(obj, name)
        trace.store(place_of(obj, name), MISSING)


def items_of(f: object, obj: object) -> object:
    """`operator.itemgetter(...)(obj)`."""
    found = tuple(load_item(obj, key) for key in f.__reduce__()[1])
    return found[0] if len(found) == 1 else found


#: builtins that read and store attributes and items
BUILTINS: dict[int, Callable[..., object]] = {
    id(operator.getitem): lambda obj, index: load_item(obj, index),
    id(operator.setitem): lambda obj, index, value: store_item(value, obj, index),
    id(operator.delitem): lambda obj, index: del_item(obj, index),
    id(getattr): getattr_,
    id(hasattr): hasattr_,
    id(setattr): lambda obj, name, value: store_attr(value, obj, name),
    id(delattr): del_attr,
    id(vars): vars_,
    id(object.__new__): new_object,
}


# ---------------------------------------------------------------- items
def load_item(obj: object, index: object) -> object:
    return here(item_of(here(obj), known_index(here(index))))


def item_of(obj: object, index: object) -> object:
    """`obj[index]`, which may be unresolved."""
    trace = current()
    if type(index) is TaggedUnion:
        return index.each(lambda i: load_item(obj, i))
    if trace is None or isinstance(obj, (Tensor, TraceList)):
        return perform(operator.getitem, obj, index)
    check_key(obj, index)
    users = special(trace, obj, "__getitem__", index)
    if users:
        return users[0]
    if isinstance(obj, type(os.environ)):
        return guarded_call(trace, operator.getitem, obj, index)
    if isinstance(obj, type) and of_class(obj, "__class_getitem__") is not None:
        return trace.hooks.call(load_attr(obj, "__class_getitem__"))(index)
    return get_item(obj, index)


def get_item(obj: Any, index: Any) -> object:
    """An item as the class has it without a method of the user."""
    trace = current()
    if trace is None or trace.guards is None:
        return perform(operator.getitem, obj, index)
    check_strong(obj)
    trace.note_use(obj)
    if is_later(index) and dynamic_lookup.is_sequence(obj):
        return at_index(trace, obj, index)
    if is_later(index) and dynamic_lookup.is_holder(obj):
        return dynamic_lookup.element(trace, obj, list(obj), index, type(obj).__name__)
    if owner_of(trace, obj, index) is not None and index in obj:
        return load_attr(owner_of(trace, obj, index), index)
    if isinstance(obj, dict) and not dict.__contains__(obj, index):
        return missing(trace, obj, index)
    held = kind_of(obj) is not None or isinstance(obj, tuple)
    read = ItemLocation(obj, index).base.__getitem__ if held else operator.getitem
    value = perform(read, obj, index)
    if type(obj) is list and isinstance(index, slice):
        note_contents(trace, obj)
        return TraceList(value)
    if isinstance(index, slice) and isinstance(value, paddle.nn.Layer):
        trace.make(value)
    shape = isinstance(obj, (Shape, paddle.Size))
    known = held and not shape and not made_here(trace, obj)
    if not known or ("contents", id(obj)) in trace.guards.terms:
        return value
    if isinstance(index, (int, str)) and not is_symint(index):
        if ("item", id(obj), index) not in trace.objects.stored and not _holds_fake(obj):
            trace.guards.item(obj, index, value)
    return value


def at_index(trace: Trace, sequence: Sequence[object], index: Any) -> object:
    """`sequence[index]` at an index that only the program knows."""
    if not isinstance(sequence, np.ndarray):
        note_contents(trace, sequence)
    elif not made_here(trace, sequence):
        trace.guards.array(sequence)
    if is_runtime_scalar(index) and index.data and is_of_two_kinds(sequence):
        return list_buffers.choice(trace, index, sequence, type(sequence).__name__)
    return dynamic_lookup.element(trace, sequence, sequence, index, type(sequence).__name__)


def is_of_two_kinds(sequence: Sequence[object]) -> bool:
    """Whether ints and floats are in a short list or tuple, which are no one tensor."""
    if not isinstance(sequence, (list, tuple)) or not 0 < len(sequence) <= MOST_CHOSEN:
        return False
    open_kinds = any(map(is_int_or_float, sequence))
    kinds = {float if is_int_or_float(q) else number_kind(q) for q in sequence}
    return kinds == {int, float} or open_kinds and kinds == {float}


def missing(trace: Trace, obj: dict[object, object], index: object) -> object:
    """The value of a key that a dict does not have."""
    if not made_here(trace, obj) and ("item", id(obj), index) not in trace.objects.stored:
        trace.guards.item(obj, index, MISSING)
    users = special(trace, obj, "__missing__", index)
    if users:
        return users[0]
    if not isinstance(obj, collections.defaultdict) or obj.default_factory is None:
        return perform(operator.getitem, obj, index)
    if trace.tentative:
        raise NeedsConcrete("a defaultdict makes an item in the loop", (), peel=1)
    value = trace.hooks.call(load_attr(obj, "default_factory"))()
    trace.store(ItemLocation(obj, index), value)
    return value


def load_old(obj: object, index: object) -> object:
    """Return the old items of `obj[index] op= value`."""
    trace = current()
    if trace is None or not isinstance(obj, Tensor):
        return load_item(obj, index)
    return old_items(trace, obj, index)


def _holds_fake(x: object) -> bool:
    return isinstance(x, tuple) or holds_fake(x)


def store_item(value: Any, obj: Any, index: object) -> Any:
    trace = current()
    if isinstance(index, slice) and isinstance(obj, list):
        value = iterated(value)
    if type(value) is TaggedUnion and isinstance(obj, Tensor):
        return value.each(lambda x: store_item(x, obj, index))
    if trace is None or isinstance(obj, (Tensor, TraceList)) or is_array(obj):
        obj[index] = value
        return
    check_key(obj, index)
    if not special(trace, obj, "__setitem__", index, value):
        put_item(obj, index, value)


def put_item(obj: Any, index: Any, value: object) -> None:
    """Store an item as the class does without a method of the user."""
    trace = current()
    if trace is None:
        obj[index] = value
        return
    if is_symint(index):
        raise NeedsConcrete(f"{type(obj).__name__}[{index!r}] = ...", index.loops, own=True)
    kind = kind_of(obj)
    if type(obj) is list and is_runtime_scalar(index) and index.data:
        return put_at(trace, obj, index, value)
    if isinstance(obj, np.ndarray):
        return put_element(trace, obj, index, value)
    if kind is None or kind.base is set:
        raise refuse(
            f"an item of a {type(obj).__name__} is set.",
            "Only items of lists, dicts and deques are carried by a program, and of NumPy arrays "
            "that it has made of known numbers.",
            "Use a list or a dict.",
        )
    if owner_of(trace, obj, index) is not None:
        return store_plain(owner_of(trace, obj, index), index, value)
    if not kind.indexed or isinstance(index, slice) or id(obj) in trace.inputs.containers:
        change(trace, obj)
        kind.base.__setitem__(obj, index, value)
        return None
    if not made_here(trace, obj) and id(obj) not in trace.guards.ids:
        trace.make(obj)
    if isinstance(index, int) and not kind.mapping and index < 0:
        index += kind.base.__len__(obj)
    return trace.store(ItemLocation(obj, index), value)


def put_at(trace: Trace, items: list[object], index: RuntimeScalar, value: object) -> None:
    """`items[index] = value` of a list from outside, at an index from data."""
    note_contents(trace, items)
    if index.kind is float or len(items) > MOST_CHOSEN:
        raise stop(index, "a list index")
    get, put = functools.partial(get_item, items), functools.partial(put_item, items)
    list_buffers.choose_each(trace, index, len(items), value, get, put)


def put_element(trace: Trace, array: object, index: object, value: object) -> None:
    """`array[index] = value` of an array that the function has made, while it is traced."""
    if isinstance(value, Tensor) or is_runtime(value) or is_array(value):
        raise refuse(
            "an element of a NumPy array is set to a value that the program computes.",
            "The array is made while the function is traced, when this value is not known.",
            "Fill a tensor: `y = paddle.zeros([n])`, `y[i] = v`.",
        )
    PureCall(trace, operator.setitem)(array, index, value)


def check_key(obj: object, index: object) -> None:
    """Refuse a tensor as the key of a dict: eager looks it up by identity."""
    if type(index) is Unresolved:
        raise index.__dict__["error"]
    if isinstance(obj, (dict, set)) and is_runtime_scalar(index) and not index.data:
        raise stop(index, "a dict key")
    tensor, trace = isinstance(index, Tensor), current()
    if trace is not None and trace.guards is not None and id(obj) in trace.guards.ids:
        trace.guards.pin(index)
    if isinstance(obj, (dict, set)) and (tensor or is_runtime_scalar(index)):
        what = "a tensor" if tensor else "a number computed from a tensor"
        later = "Its value is known only when the program runs."
        raise refuse(
            f"{what} is used as a key of a {type(obj).__name__}.",
            "Eager looks it up by its identity, not by its value." if tensor else later,
            "Look it up in a tensor, `paddle.stack(list(table.values()))[i]`, or compare it with "
            "each key.",
            like=KeyError,
        )


def del_item(obj: object, index: object) -> None:
    trace = current()
    if trace is not None and special(trace, obj, "__delitem__", index):
        return
    if trace is not None and isinstance(obj, paddle.nn.Layer) and not made_here(trace, obj):
        raise refuse(
            f"an item of a {type(obj).__name__} is deleted.",
            "Only items of lists and dicts are carried by a program.",
            "Delete it outside of the translated function.",
        )
    drop_item(obj, index)


def drop_item(obj: Any, index: Any) -> None:
    """Delete an item as the class does without a method of the user."""
    trace, kind = current(), kind_of(obj)
    if isinstance(obj, type(os.environ)) and trace is not None:
        raise refuse(
            "a variable of the environment is deleted.",
            "It would act when the function is traced, not when the program runs.",
            "Delete it outside of the translated function.",
        )
    if trace is None or kind is None or isinstance(obj, TraceList):
        perform(operator.delitem, obj, index)
    elif owner_of(trace, obj, index) is not None:
        del_plain(owner_of(trace, obj, index), index)
    else:
        change(trace, obj)
        perform(kind.base.__delitem__, obj, index)


#: methods of C types that converted code calls by name: `super().__setitem__(k, v)`
ITEMS: dict[str, Callable[..., object]] = {
    "__getitem__": get_item,
    "__setitem__": put_item,
    "__delitem__": drop_item,
}
STORES: dict[str, Callable[..., object]] = {"__setattr__": store_plain, "__delattr__": del_plain}
