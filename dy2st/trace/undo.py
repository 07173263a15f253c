"""The undo log: the attributes and items that a trace stored, and their old values.

A `Location` is such an attribute or item. It can be read, stored and put back; a program repeats
the stores of its trace on every cached call.
"""

from __future__ import annotations

import array
import collections
import functools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dy2st.trace.user_stack import perform

MISSING: object = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

#: what a batch norm sets for itself when it is called: it stays
_SET_BY_PADDLE = "_data_format"
_LAYER_DICTS = ("_buffers", "_parameters", "_sub_layers")


# ---------------------------------------------------------------- kinds of containers
@dataclass(frozen=True)
class ContainerKind:
    """Access to the containers of one C type, and of classes derived from it, for reading and
    restoring, whatever methods a class of the user has.

    base: the type. mapping: whether it has keys. indexed: whether `obj[i] = v` changes an element
    or the value of a key. fill: replaces all elements, or all items of a mapping.
    """

    base: Any
    mapping: bool
    indexed: bool
    fill: Callable[[Any, tuple[Any, ...]], None]

    def contents(self, obj: object) -> tuple[Any, ...]:
        """Return all elements, of a mapping its items."""
        return tuple(self.base.items(obj) if self.mapping else self.base.__iter__(obj))

    def values(self, obj: object) -> tuple[object, ...]:
        return tuple(self.base.values(obj) if self.mapping else self.base.__iter__(obj))


def _fill_mapping(
    base: type[dict[object, object]],
) -> Callable[[dict[object, object], tuple[tuple[object, object], ...]], None]:
    def fill(obj: dict[object, object], items: tuple[tuple[object, object], ...]) -> None:
        base.clear(obj)
        for key, value in items:
            base.__setitem__(obj, key, value)

    return fill


def _fill_set(obj: set[object], elements: tuple[object, ...]) -> None:
    set.clear(obj)
    set.update(obj, elements)


def _fill_deque(obj: collections.deque[object], elements: tuple[object, ...]) -> None:
    collections.deque.clear(obj)
    collections.deque.extend(obj, elements)


def _fill_list(obj: list[object], elements: tuple[object, ...]) -> None:
    list.__setitem__(obj, slice(None), elements)


def _fill_array(obj: array.array[int], elements: tuple[int, ...]) -> None:
    array.array.__setitem__(obj, slice(None), array.array(obj.typecode, elements))


def _fill_bytes(obj: bytearray, elements: tuple[int, ...]) -> None:
    bytearray.__setitem__(obj, slice(None), bytes(elements))


KINDS = {
    kind.base: kind
    for kind in (
        ContainerKind(list, False, True, _fill_list),
        ContainerKind(dict, True, True, _fill_mapping(dict)),
        ContainerKind(collections.OrderedDict, True, True, _fill_mapping(collections.OrderedDict)),
        ContainerKind(set, False, False, _fill_set),
        ContainerKind(collections.deque, False, True, _fill_deque),
        ContainerKind(array.array, False, False, _fill_array),
        ContainerKind(bytearray, False, False, _fill_bytes),
    )
}


@functools.lru_cache(maxsize=4096)
def _kind_of_class(cls: type) -> ContainerKind | None:
    return next((KINDS[base] for base in cls.__mro__ if base in KINDS), None)


def kind_of(obj: object) -> ContainerKind | None:
    """The kind of a container that can be changed; None for anything else."""
    cls: type = type(obj)
    return _kind_of_class(cls)


# ---------------------------------------------------------------- attributes
@functools.lru_cache(maxsize=4096)
def plain_method(cls: type, name: str) -> Any:
    """`__setattr__` and the like as the class has it without those that the user has written; None
    if there is no other."""
    for base in cls.__mro__:
        found = vars(base).get(name)
        written = isinstance(found, types.FunctionType) and not str(base.__module__).startswith(
            "paddle"
        )
        if found is not None and not written and found.__name__ in (name, "call"):
            return found
    return None


@functools.lru_cache(maxsize=4096)
def computes(cls: type, name: str) -> bool:
    """Whether the class has a descriptor of this name whose `__get__` is a function in Python."""
    return isinstance(getattr(type(in_class(cls, name)), "__get__", None), types.FunctionType)


def in_class(cls: type, name: str) -> object:
    """The entry of a class or its bases under a name, without the descriptor protocol; or None."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def plain_get(obj: object, name: str) -> object:
    """`obj.name`, for which no method of the user's class is asked; MISSING without one, and where
    a descriptor in Python would compute it (`cached_property`)."""
    cls: type = type(obj)
    if computes(cls, name):
        return getattr(obj, "__dict__", {}).get(name, MISSING)
    for method in ("__getattribute__", "__getattr__"):
        get = plain_method(cls, method)
        try:
            if get is not None:
                return get(obj, name)
        except AttributeError:
            continue
    return MISSING


def lookup(obj: object, name: str, ref: Callable[[object], str], absent: bool = False) -> str:
    """Return an expression for `obj.name`: a KeyError where an attribute of the object itself is
    gone. If it is `absent`, no method of the user's class is asked for it."""
    cls: type = type(obj)
    fields = getattr(obj, "__dict__", None)
    if type(fields) is dict:
        if name in fields:
            return f"{ref(fields)}[{name!r}]"
        for d in _LAYER_DICTS:
            if isinstance(fields.get(d), dict) and name in fields[d]:
                return f"{ref(fields)}[{d!r}][{name!r}]"
        asks = isinstance(in_class(cls, "__getattr__"), types.FunctionType)
        if absent and (computes(cls, name) or asks and in_class(cls, name) is None):
            return f"{ref(fields)}.get({name!r}, MISSING)"
    return f"getattr({ref(obj)}, {name!r}, MISSING)"


class Location:
    """A place of the Python state that is read and stored; equal `key`s are the same place."""

    obj: Any

    @property
    def key(self) -> tuple[object, ...]:
        raise NotImplementedError

    def get(self) -> object:
        raise NotImplementedError

    def put(self, value: object) -> None:
        """Store a value; MISSING deletes what is there."""
        raise NotImplementedError

    def snapshot(self) -> Callable[[], None]:
        """A function that puts the place back as it is now."""
        raise NotImplementedError

    def now(self) -> Location:
        """The location in the object that a call finds."""
        return self


@dataclass(frozen=True, eq=False)
class LookedUpLocation(Location):
    """A location in a container that every call looks up at `home`, because the function or the
    user may put another one there.

    place: the location, of no object. expression: reads it in the check of a call. shown: for
    messages.
    """

    home: Location
    place: Any
    expression: str
    shown: str

    def __str__(self) -> str:
        return self.shown

    @property
    def key(self) -> tuple[object, ...]:
        kind, _, *rest = self.place.key
        return ("within", self.home.key, kind, *rest)

    def now(self) -> Location:
        return replace(self.place, obj=self.home.get())

    def get(self) -> object:
        try:
            return self.now().get()
        except (AttributeError, IndexError, KeyError, TypeError):
            return MISSING

    def put(self, value: object) -> None:
        self.now().put(value)


class CurrentCall(threading.local):
    """`leaves`: of the arguments of the call that looks objects up."""

    leaves: Sequence[object] = ()

    @contextmanager
    def of(self, leaves: Sequence[object]) -> Iterator[None]:
        before, self.leaves = self.leaves, leaves
        try:
            yield
        finally:
            self.leaves = before


CALL = CurrentCall()


@dataclass(frozen=True, eq=False)
class ArgumentLocation(Location):
    """The object that is leaf number `index` of a call's arguments."""

    index: int

    @property
    def key(self) -> tuple[object, ...]:
        return ("passed", self.index)

    def get(self) -> object:
        return CALL.leaves[self.index]


@dataclass(frozen=True, eq=False)
class AttributeLocation(Location):
    """`obj.name`; `shown`: the user's name for it, if that is another one."""

    obj: Any
    name: str
    shown: str = ""

    def __str__(self) -> str:
        return self.shown or f"{type(self.obj).__name__.lower()}.{self.name}"

    @property
    def key(self) -> tuple[object, ...]:
        return ("attr", id(self.obj), self.name)

    def get(self) -> object:
        return plain_get(self.obj, self.name)

    def put(self, value: object) -> None:
        cls: type = type(self.obj)
        if value is MISSING:
            if self.get() is not MISSING:
                perform(plain_method(cls, "__delattr__"), self.obj, self.name)
        else:
            perform(plain_method(cls, "__setattr__"), self.obj, self.name, value)

    def snapshot(self) -> Callable[[], None]:
        """A Layer moves names between its dicts, so all of them are put back."""
        fields = getattr(self.obj, "__dict__", None)
        slot = isinstance(in_class(type(self.obj), self.name), types.MemberDescriptorType)
        if type(fields) is not dict or slot:
            own = slot or fields is None or self.name in fields
            old = self.get() if own else MISSING
            return lambda: None if old is self.get() else self.put(old)
        before = dict(fields)
        inner = {k: dict(fields[k]) for k in _LAYER_DICTS if isinstance(fields.get(k), dict)}
        names = fields.get("_non_persistable_buffer_names_set")
        old_names = set(names) if isinstance(names, set) else None

        paddles = (
            str(type(self.obj).__module__).startswith("paddle.") and self.name != _SET_BY_PADDLE
        )

        def back() -> None:
            if paddles and _SET_BY_PADDLE in fields:
                before[_SET_BY_PADDLE] = fields[_SET_BY_PADDLE]
            fields.clear()
            fields.update(before)
            for k, v in inner.items():
                fields[k].clear()
                fields[k].update(v)
            if isinstance(names, set) and old_names is not None:
                names.clear()
                names.update(old_names)

        return back


@dataclass(frozen=True, eq=False)
class ItemLocation(Location):
    """`obj[index]` of a list, deque or dict."""

    obj: Any
    index: Any

    def __str__(self) -> str:
        return f"{type(self.obj).__name__}[{self.index!r}]"

    @property
    def key(self) -> tuple[object, ...]:
        return ("item", id(self.obj), self.index)

    @property
    def base(self) -> Any:
        """Whose methods read and change it: lists of the trace have their own."""
        traced = isinstance(self.obj, list) and hasattr(self.obj, "born")
        kind = None if traced else kind_of(self.obj)
        return type(self.obj) if kind is None else kind.base

    def get(self) -> Any:
        if isinstance(self.obj, dict):
            return dict.get(self.obj, self.index, MISSING)
        try:
            return self.base.__getitem__(self.obj, self.index)
        except (KeyError, IndexError):
            return MISSING

    def put(self, value: object) -> None:
        if value is MISSING:
            if self.get() is not MISSING:
                self.base.__delitem__(self.obj, self.index)
        else:
            self.base.__setitem__(self.obj, self.index, value)

    def snapshot(self) -> Callable[[], None]:
        return container_snapshot(self.obj)


def container_snapshot(obj: Any) -> Callable[[], None]:
    """Puts the elements of a container back."""
    kind = kind_of(obj)
    assert kind is not None
    items: Any = set(obj) if kind.base is set else kind.contents(obj)
    return lambda: kind.fill(obj, items)


class UndoLog:
    """Undo functions, newest last."""

    def __init__(self) -> None:
        self.entries: list[Callable[[], object]] = []

    def mark(self) -> int:
        return len(self.entries)

    def note(self, undo: Callable[[], object]) -> None:
        self.entries.append(undo)

    def undo_to(self, mark: int) -> None:
        while len(self.entries) > mark:
            self.entries.pop()()
