"""Introspection while tracing: `isinstance`, `type` and the like, with the answers of eager."""

from __future__ import annotations

import abc
import decimal
import functools
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import paddle

from dy2st.branches.unresolved import Unresolved, here
from dy2st.state.arrays import is_array
from dy2st.state.containers.dynamic_lookup import SelectedObject
from dy2st.state.containers.layers import class_of
from dy2st.state.containers.tagged_union import TaggedUnion, refused
from dy2st.state.guards import Guards
from dy2st.state.ownership import (
    LIBRARIES,
    is_users_object,
    made_here,
    note_class,
    package_of,
)  # fmt: skip
from dy2st.state.protocols import users_method
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform


def settled(x: object) -> Any:
    """`x` as it is here; an error where a condition on data decides which object it is."""
    found = here(x)
    if type(found) is Unresolved:
        raise found.__dict__["error"]
    if type(found) is SelectedObject:
        raise found.refused("the type is asked of")
    if type(found) is TaggedUnion and type(found := found.here()) is TaggedUnion:
        raise refused(found, "its type")
    if (trace := current()) is not None and is_users_object(found) and not made_here(trace, found):
        trace.guards.class_of(found)
    return found


def type_(x: object, *rest: object) -> object:
    """`type(x)`, which shows none of the objects that stand for values of the program."""
    if rest:
        return type(x, *rest)
    x = settled(x)
    if isinstance(x, FakeTensor):
        return paddle.Tensor
    if is_symint(x) or is_runtime_scalar(x) or is_array(x):
        return x.__class__
    return x.kind if isinstance(x, TraceList) else class_of(x)


def isinstance_(x: object, kinds: object) -> object:
    if type(x) is TaggedUnion:
        return x.each(lambda q: isinstance_(q, kinds))
    x = settled(x)
    return any(is_instance(x, kind) for kind in classes(kinds))


def issubclass_(kind: type, bases: object) -> bool:
    return any(is_subclass(kind, base) for base in classes(bases))


def classes(kinds: object) -> Iterator[type]:
    """The classes of a tuple or union."""
    union = isinstance(kinds, types.UnionType) or typing.get_origin(kinds) is typing.Union
    parts = typing.get_args(kinds) if union else kinds
    if not isinstance(parts, tuple):
        yield kinds  # type: ignore[misc]
        return
    for part in parts:
        yield from classes(part)


def is_instance(x: object, kind: type) -> bool:
    """`isinstance` of one class, which may have its own way of telling, or may be told later."""
    if isinstance(x, TraceList):
        return is_subclass(x.kind, kind)
    trace, check = current(), users_method(kind, "__instancecheck__")
    if trace is None:
        return perform(isinstance, x, kind)
    if check is not None:
        return type(x) is kind or bool(trace.hooks.call(check)(kind, x))
    note_bases(trace.guards, type(x))
    note_test(trace.guards, kind, "__instancecheck__")
    if isinstance(kind, abc.ABCMeta):
        own = paddle.Tensor if isinstance(x, FakeTensor) else x.__class__
        note_registered(trace.guards, own, kind)
        if isinstance(x, FakeTensor):
            return issubclass(own, kind)
    fields = hasattr(x, "__dict__") and not isinstance(x, FakeTensor)
    if fields and getattr(kind, "_is_runtime_protocol", False):
        note_protocol(trace, x, kind)
    return perform(isinstance, x, kind)


def is_subclass(kind: type, base: type) -> bool:
    """`issubclass` of one class."""
    trace, check = current(), users_method(base, "__subclasscheck__")
    if trace is not None and check is not None:
        return bool(trace.hooks.call(check)(base, kind))
    if trace is not None:
        note_bases(trace.guards, kind)
        note_test(trace.guards, base, "__subclasscheck__")
    if trace is not None and isinstance(base, abc.ABCMeta) and isinstance(kind, type):
        note_registered(trace.guards, kind, base)
    return perform(issubclass, kind, base)


def note_bases(guards: Guards, kind: type) -> None:
    """The bases of a user's class, which may be assigned."""
    if isinstance(kind, type) and package_of(kind) not in LIBRARIES:
        key = ("mro", id(kind))
        guards.terms[key] = f"{guards.ref(kind)}.__mro__ is {guards.ref_constant(kind.__mro__)}"
        guards.note(key, f"the bases of {kind.__name__} are other ones")


def note_test(guards: Guards, kind: type, name: str) -> None:
    """The class of a class has no test of its own, which the user may define later."""
    if package_of(made := type(kind)) not in LIBRARIES:
        test = f"{guards.ref(made)}.{name} is {guards.ref_constant(getattr(made, name))}"
        guards.terms["test", id(made), name] = test
        guards.note(("test", id(made), name), f"{made.__name__}.{name}")


def note_registered(guards: Guards, kind: type, base: type) -> None:
    """Whether a class is below an abstract one, with which it may be registered later; Python's
    token changes with every registration."""
    known: dict[tuple[type, type], bool] = guards.names.setdefault("abstract", {})
    try:
        known[kind, base] = issubclass(kind, base)
    except TypeError:  # a protocol with attributes: `note_protocol`
        return
    if ("abstract",) not in guards.terms:
        guards.names.update(token=abc.get_cache_token, same_bases=same_bases)
        now = abc.get_cache_token()
        guards.terms["abstract",] = f"(token() == {now} or same_bases(abstract))"
        guards.note(("abstract",), "a class has been registered with an abstract one")
    hooks = (k for k in base.__mro__ if "__subclasshook__" in vars(k))
    if any(package_of(k) not in LIBRARIES for k in hooks):  # which may read anything
        guards.terms["hook",] = "same_bases(abstract)"
        guards.note(("hook",), f"__subclasshook__ of {base.__name__} gives something else")


def same_bases(known: dict[tuple[type, type], bool]) -> bool:
    """Whether `issubclass` gives for each pair of classes what it gave before."""
    return all(issubclass(kind, base) is found for (kind, base), found in known.items())


def note_partial(guards: Guards, f: functools.partial[object]) -> None:
    """What a partial function calls, and with what, which `__setstate__` replaces."""
    key, parts = ("partial", id(f)), (f.func, f.args, f.keywords)
    now, known = guards.ref(f), map(guards.ref_constant, parts)
    names = ("func", "args", "keywords")
    guards.terms[key] = " and ".join(f"{now}.{n} is {q}" for n, q in zip(names, known))
    guards.note(key, "the state of a functools.partial")


def note_decimals(guards: Guards, leaves: Iterable[object]) -> None:
    """The settings of `decimal`, if the function reads the module, its numbers or their class."""
    if any(map(is_decimal, (*guards.names.values(), *leaves))):
        read, known = map(guards.ref_constant, (decimal_settings, decimal_settings()))
        guards.terms["decimal",] = f"{read}() == {known}"
        guards.note(("decimal",), "the settings of decimal")


def is_decimal(x: object) -> bool:
    if isinstance(x, (tuple, list)):
        return any(type(q) is decimal.Decimal for q in x)
    return x is decimal or x is decimal.Decimal or type(x) is decimal.Decimal


def decimal_settings() -> tuple[object, ...]:
    """What the arithmetic of `decimal` reads."""
    c = decimal.getcontext()
    return c.prec, c.rounding, c.Emin, c.Emax, c.clamp, *c.traps.values()


def note_protocol(trace: Trace, x: object, kind: type) -> None:
    """Whether an object belongs to a protocol follows from the names of its attributes."""
    for name in typing._get_protocol_attrs(kind):  # type: ignore[attr-defined]
        if made_here(trace, x):
            note_class(trace, x, name, whole=False)
        elif ("attr", id(x), name) not in trace.objects.stored:
            note_presence(trace.guards, x, name)


def note_presence(guards: Guards, obj: object, name: str) -> None:
    """Whether an object has an attribute, whatever it is."""
    found = hasattr(obj, name)
    guards.terms["has", id(obj), name] = f"hasattr({guards.ref(obj)}, {name!r}) is {found}"
    guards.note(("has", id(obj), name), f"{guards.name(obj)}.{name} is new or gone")


def callable_(x: object) -> bool:
    if type(x) is SelectedObject:
        return True
    x, trace = settled(x), current()
    if isinstance(x, FakeTensor) or is_symint(x):
        return False
    if trace is not None and is_users_object(x) and not made_here(trace, x):
        key, found = ("callable", id(x)), callable(x)
        trace.guards.terms[key] = f"callable({trace.guards.ref(x)}) is {found}"
        trace.guards.note(key, f"callable({trace.guards.name(x)})")
    return callable(x)


KINDS: dict[int, Callable[..., object]] = {
    id(type): type_,
    id(isinstance): isinstance_,
    id(issubclass): issubclass_,
    id(callable): callable_,
}
