"""The undo log: the attributes and items that a trace stored, and their old values.

A `Location` is such an attribute or item. It can be read, stored and put back; a program repeats
the stores of its trace on every cached call.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MISSING: object = type("Missing", (), {"__repr__": lambda self: "<missing>"})()

_LAYER_DICTS = ("_buffers", "_parameters", "_sub_layers")


class Location:
    """What attributes and items have in common. Places of one `key` are the same place."""

    obj: Any

    @property
    def key(self) -> tuple[object, ...]:
        raise NotImplementedError

    def get(self) -> object:
        raise NotImplementedError

    def put(self, value: object) -> None:
        raise NotImplementedError

    def snapshot(self) -> Callable[[], None]:
        """A function that puts the place back as it is now."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Attr(Location):
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
        return getattr(self.obj, self.name, MISSING)

    def put(self, value: object) -> None:
        if value is MISSING:
            delattr(self.obj, self.name)
        else:
            setattr(self.obj, self.name, value)

    def snapshot(self) -> Callable[[], None]:
        """A Layer moves names between its dicts, so all of them are put back."""
        fields = getattr(self.obj, "__dict__", None)
        if fields is None:
            old = self.get()
            return lambda: self.put(old)
        before = dict(fields)
        inner = {k: dict(fields[k]) for k in _LAYER_DICTS if isinstance(fields.get(k), dict)}
        names = fields.get("_non_persistable_buffer_names_set")
        old_names = set(names) if isinstance(names, set) else None

        def back() -> None:
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
class Item(Location):
    """`obj[index]` of a list or dict."""

    obj: Any
    index: Any

    def __str__(self) -> str:
        return f"{type(self.obj).__name__}[{self.index!r}]"

    @property
    def key(self) -> tuple[object, ...]:
        return ("item", id(self.obj), self.index)

    def get(self) -> Any:
        try:
            return self.obj[self.index]
        except (KeyError, IndexError):
            return MISSING

    def put(self, value: object) -> None:
        if value is MISSING:
            del self.obj[self.index]
        else:
            self.obj[self.index] = value

    def snapshot(self) -> Callable[[], None]:
        return container_snapshot(self.obj)


def container_snapshot(obj: Any) -> Callable[[], None]:
    """Puts the elements of a list, dict, set or deque back."""
    if isinstance(obj, list):
        items = list.copy(obj)
        return lambda: list.__setitem__(obj, slice(None), items)
    old = obj.copy()

    def back() -> None:
        obj.clear()
        (obj.extend if isinstance(obj, collections.deque) else obj.update)(old)

    return back


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
