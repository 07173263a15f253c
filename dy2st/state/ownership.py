"""Ownership: the Python objects that a trace may change, and the record of reads of all other
objects."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import queue
import types
import weakref
from typing import Any

import paddle

from dy2st.state.containers.constants import LIBRARIES
from dy2st.state.guards import is_constant
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING, in_class, kind_of
from dy2st.trace.user_stack import perform
from ir.loc import source_error

_FUNCTIONS = (
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType,
    functools.partial,
)  # fmt: skip
_METHODS = (types.FunctionType, classmethod, staticmethod)
NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
#: the attribute in which an object keeps the programs of its class's translated methods
TRANSLATIONS = "__dy2st__"


WEAK = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)
QUEUES = (queue.Queue, queue.SimpleQueue)


def refuse(
    message: str, reason: str = "", remedy: str = "", like: type[Exception] = Exception
) -> Refused:
    """An error at the user's line, which `except like` catches, too."""
    trace = current()
    where = trace.where() if trace is not None else None
    return Refused(source_error(like)(message, where, reason=reason, remedy=remedy))


def made_here(trace: Trace, x: object) -> bool:
    """Made by converted code in this trace, so nobody outside knows it."""
    return (
        isinstance(x, TraceList) or id(x) in trace.objects.made or id(x) in trace.inputs.containers
    )


def note_contents(trace: Trace, x: object) -> None:
    """A container from outside was read as a whole: the program depends on its elements."""
    if isinstance(x, tuple):
        for q in x:
            note_contents(trace, q)
        return
    if isinstance(x, dict) and TRANSLATIONS in x:
        raise refuse(
            "all attributes of an object with translated methods are read.",
            f"Its programs are among them, under the name {TRANSLATIONS}.",
            "Read the attributes by their names; or translate a method of the object, "
            "`dy2st.to_static(obj.method)`, instead of one of its class.",
        )
    check_strong(x)
    check_keys(x)
    trace.note_use(x)
    if trace.guards is None or isinstance(x, TraceList) or made_here(trace, x):
        return
    if id(x) in trace.objects.fields:
        return note_fields(trace, trace.objects.fields[id(x)], x)
    if not holds_fake(x) or any(k[0] == "item" and k[1] == id(x) for k in trace.objects.stored):
        trace.guards.contents(x)


def check_keys(x: object) -> None:
    """Refuse a read of a dict of which data has decided the keys."""
    if isinstance(x, dict) and (error := uncertain_keys(x)) is not None:
        raise error


def uncertain_keys(x: dict[Any, Any]) -> BaseException | None:
    """The error of a read of all keys of a dict, if data decides whether one is set."""
    asked = (q.set_error() for q in dict.values(x) if hasattr(type(q), "set_error"))
    return next((error for error in asked if error is not None), None)


def check_strong(x: object) -> None:
    if isinstance(x, WEAK):
        raise refuse(
            f"a {type(x).__name__} is read.",
            "What it holds may go away between two calls.",
            "Hold the objects in a list or a dict.",
        )
    if isinstance(x, memoryview) and (trace := current()) is not None and not made_here(trace, x):
        raise refuse(
            "a memoryview from outside is read.",
            "Its bytes may change between calls, and are not checked.",
            "Read the object that it shows, or pass `bytes(...)` of it.",
        )


def check_opaque(x: object) -> None:
    """Refuse an object whose state cannot be looked at, or may go away."""
    if isinstance(x, QUEUES):
        raise refuse(
            f"a {type(x).__name__} is used.",
            "A look at its elements takes them out.",
            "Use a list or a deque.",
        )
    if isinstance(x, weakref.ReferenceType):
        raise refuse(
            "a weak reference to an object that is not a Layer is used.",
            "The object may go away between two calls, and the program would keep it.",
            "Hold the object itself, or a `weakref.proxy` of it.",
        )


def referent(trace: Trace, reference: weakref.ReferenceType[object]) -> object:
    """Return the referent of a weak reference: a Layer, which lives as long as programs that read
    it."""
    found = reference()
    if not isinstance(found, (paddle.nn.Layer, Tensor)):
        check_opaque(reference)
    if not made_here(trace, reference):
        trace.guards.weak(reference, found)
    return found


def note_fields(trace: Trace, owner: object, fields: Any) -> None:
    """`vars(owner)` was read as a whole: the program depends on the names and values of all
    attributes that the trace has not stored."""
    if made_here(trace, owner):
        return
    stored = {k[2] for k in trace.objects.stored if k[:2] == ("attr", id(owner))}
    trace.guards.field_names(fields, frozenset({TRANSLATIONS, *stored}))
    for name, value in fields.items():
        note_attr(trace, owner, name, value)


def holds_fake(x: object) -> bool:
    """Whether a stand-in is in a container: it was made, or changed, in this trace."""
    kind = kind_of(x)
    values = x if isinstance(x, tuple) else () if kind is None else kind.values(x)
    return any(isinstance(q, FakeTensor) for q in values)


#: methods of Layers that list what is below, and the dicts that they read there
LISTINGS = {
    **dict.fromkeys(("children", "named_children"), ("_sub_layers",)),
    **dict.fromkeys(("sublayers", "named_sublayers", "modules", "named_modules"), ("_sub_layers",)),
    **dict.fromkeys(("parameters", "named_parameters"), ("_sub_layers", "_parameters")),
    **dict.fromkeys(("buffers", "named_buffers"), ("_sub_layers", "_buffers")),
    **dict.fromkeys(
        "state_dict to_static_state_dict get_parameter get_buffer get_sublayer apply".split(),
        ("_sub_layers", "_parameters", "_buffers"),
    ),
}
SHALLOW = ("children", "named_children")


def note_method(trace: Trace, layer: Any, method: types.MethodType) -> None:
    """A method that Paddle defines reads a Layer: the program depends on what it finds there."""
    if trace.guards is None or made_here(trace, layer):
        return
    name = method.__name__
    if name not in LISTINGS:
        if getattr(paddle.nn.Layer, name, None) is not method.__func__:
            trace.guards.settings(layer, trace.objects.stored)
        return
    below = [layer] if name in SHALLOW else layer.sublayers(include_self=True)
    for q in below:
        for dict_name in LISTINGS[name]:
            note_members(trace, q, dict_name)


def note_members(trace: Trace, layer: object, name: str) -> None:
    """Note that the members in a dict of a Layer are read."""
    for held in (c for f in trace.frames for c in f.columns.values()):
        if name == "_buffers" and any(q is layer for q in held.layers):
            raise NeedsConcrete(f"stores {held.name} of Layers that are listed")
    for key in layer.__dict__[name]:
        if ("attr", id(layer), key) in trace.objects.stored:
            raise refuse(
                f"{type(layer).__name__}.{key} is listed after it was stored in this function.",
                "A listing is the same in every call of a program.",
                "List parameters, buffers and sublayers before one of them is stored.",
            )
    if name == "_buffers":
        trace.guards.buffers(layer)
    else:
        trace.guards.members(layer, name)


def tensor_attr(trace: Trace, tensor: object, name: str) -> object:
    """Return an attribute of a real tensor; its flags and shape may differ in the next call."""
    if isinstance(tensor, FakeTensor) and name in vars(FakeTensor):
        perform(getattr, Tensor, name)  # an error for what is no tensor's
    value = getattr(tensor, name, MISSING)
    if isinstance(tensor, FakeTensor):
        real = next((q.tensor for q in trace.inputs.by_id.values() if q.fake is tensor), None)
        if value is MISSING and real is not None:
            return tensor_attr(trace, real, name)
        return perform(getattr, tensor, name)
    known = is_constant(value) or value is MISSING or name in ("shape", "dtype", "strides")
    if trace.guards is not None and known:
        trace.guards.flag(tensor, name, value)
    return perform(getattr, tensor, name) if value is MISSING else value


def note_attr(trace: Trace, obj: object, name: str, value: object, whole: bool = True) -> None:
    """The program depends on this attribute, unless the trace made it."""
    if isinstance(obj, types.ModuleType):
        if obj.__name__.split(".")[0] not in LIBRARIES and not isinstance(value, FakeTensor):
            if ("item", id(vars(obj)), name) not in trace.objects.stored:
                trace.guards.global_(vars(obj), name, whole)
        return
    if ("attr", id(obj), name) in trace.objects.stored:
        return
    if made_here(trace, obj):
        return note_class(trace, obj, name, whole)
    if is_stored_in_class(trace, obj, name):
        trace.guards.absent(obj, name)
    elif not isinstance(value, FakeTensor):
        trace.guards.attr(obj, name, value, whole)


def note_class(trace: Trace, obj: object, name: str, whole: bool = True) -> None:
    """Note the attribute that an object made by the function has, or may get, from a user's
    class."""
    kind: type = type(obj)
    library = isinstance(obj, type) or package_of(kind) in LIBRARIES
    if library or name in getattr(obj, "__dict__", ()):
        return
    found = in_class(kind, name)
    if isinstance(found, _METHODS) or not hasattr(type(found), "__get__"):
        note_attr(trace, kind, name, getattr(kind, name, MISSING), whole)


def is_stored_in_class(trace: Trace, obj: object, name: str) -> bool:
    """Whether the trace has stored this attribute of the class that the object has it from."""
    if name in getattr(obj, "__dict__", ()):
        return False
    classes = obj.__mro__ if isinstance(obj, type) else type(obj).__mro__
    return any(("attr", id(base), name) in trace.objects.stored for base in classes)


def is_users_object(x: object) -> bool:
    """An instance of a class that is no library's, or a namespace."""
    kind: Any = type(x)
    if kind in NAMESPACES:
        return True
    if isinstance(x, (types.ModuleType, type, BaseException, enum.Enum, *_FUNCTIONS)):
        return False
    return package_of(kind) not in LIBRARIES


def is_plain_paddle(trace: Trace, owner: object) -> bool:
    """An object from outside, of a class of Paddle's that is not a Layer, such as a scheduler or a
    distribution: what its methods read may change between calls."""
    if isinstance(owner, (paddle.nn.Layer, Tensor, type, types.ModuleType)) or made_here(
        trace, owner
    ):
        return False
    return package_of(type(owner)) == "paddle" and type(getattr(owner, "__dict__", None)) is dict


def package_of(kind: type) -> str:
    """Return the package of a class; some classes of Cython do not have one."""
    name = getattr(kind, "__module__", None)
    return name.split(".")[0] if isinstance(name, str) else "builtins"


def of_library(obj: object) -> bool:
    """A class or a module that is not the user's."""
    named = "__name__" if isinstance(obj, types.ModuleType) else "__module__"
    shared = isinstance(obj, (types.ModuleType, type))
    return shared and getattr(obj, named).split(".")[0] in LIBRARIES


def note_namespaces(trace: Trace, x: object, seen: set[int] | None = None) -> None:
    """Code of Python's own shows or compares a value: the program depends on the attributes of all
    namespaces in it."""
    seen = set() if seen is None else seen
    kind: type = type(x)
    if id(x) in seen or not issubclass(kind, (*NAMESPACES, list, tuple, dict, collections.deque)):
        return
    seen.add(id(x))
    parts: Any = x
    if isinstance(x, NAMESPACES):
        note_object(trace, x)
        parts = vars(x)
    elif isinstance(x, TraceList):
        parts = x.parts()
    for q in parts.values() if isinstance(parts, dict) else parts:
        note_namespaces(trace, q, seen)


def note_object(trace: Trace, x: object) -> None:
    """Code that is not converted reads an object of the user: the program depends on all of its
    attributes."""
    key = ("object", id(x))
    trace.note_use(x)
    if trace.guards is None or key in trace.guards.terms:
        return
    trace.guards.terms[key] = "True"
    fields = dict(getattr(x, "__dict__", {}))
    if fields:
        note_fields(trace, x, x.__dict__)
    for kind in type(x).__mro__:
        for name in vars(kind).get("__slots__", ()):
            if isinstance(getattr(kind, name, None), types.MemberDescriptorType):
                fields[name] = getattr(x, name, None)
    for name, value in fields.items():
        note_attr(trace, x, name, value)
        if is_users_object(value):
            note_object(trace, value)
