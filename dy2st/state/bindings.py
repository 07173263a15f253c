"""Bindings of globals and of variables of enclosing functions.

Converted code announces each binding of such a variable. The trace notes the place, so that the
binding is undone with the trace, carried by a loop, and repeated on every cached call.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING, Location


@dataclass(frozen=True, eq=False)
class ModuleGlobal(Location):
    """A variable of a module; `obj` is the module's dict."""

    obj: dict[str, Any]
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def key(self) -> tuple[object, ...]:
        return ("item", id(self.obj), self.name)

    def get(self) -> Any:
        return self.obj.get(self.name, MISSING)

    def put(self, value: object) -> None:
        if value is MISSING:
            self.obj.pop(self.name, None)
        else:
            self.obj[self.name] = value

    def snapshot(self) -> Callable[[], None]:
        old = self.get()
        return lambda: self.put(old)


@dataclass(frozen=True, eq=False)
class ClosureCell(Location):
    """A variable of a function around the translated one; `obj` is its cell."""

    obj: types.CellType
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def key(self) -> tuple[object, ...]:
        return ("attr", id(self.obj), "cell_contents")

    def get(self) -> Any:
        try:
            return self.obj.cell_contents
        except ValueError:
            return MISSING

    def put(self, value: object) -> None:
        if value is not MISSING:
            self.obj.cell_contents = value
        elif self.get() is not MISSING:
            del self.obj.cell_contents

    def snapshot(self) -> Callable[[], None]:
        old = self.get()
        return lambda: self.put(old)


def places(thunk: types.FunctionType) -> Iterator[ModuleGlobal | ClosureCell]:
    """The variable that `lambda: name` reads."""
    code = thunk.__code__
    for name, cell in zip(code.co_freevars, thunk.__closure__ or ()):
        yield ClosureCell(cell, name)
    for name in code.co_names:
        yield ModuleGlobal(thunk.__globals__, name)


def rebinding(value: object, thunk: types.FunctionType, inner: bool = False) -> object:
    rebinds(thunk, inner)
    return value


def rebinds(thunk: types.FunctionType, inner: bool = False) -> None:
    """`inner`: the variable was made by this call, so nothing of it stays."""
    trace = current()
    if trace is None:
        return
    for place in places(thunk):
        if inner:
            trace.objects.made[id(place.obj)] = place.obj
        elif trace.tentative:
            guard(trace, place)
        trace.note_store(place)


def guard(trace: Trace, place: ModuleGlobal | ClosureCell) -> None:
    """A loop or a branch may leave the variable as it was, so the program depends on it."""
    if trace.guards is None or place.key in trace.objects.stored:
        return
    value = place.get()
    if isinstance(place, ModuleGlobal):
        trace.guards.global_(place.obj, place.name)
    elif value is not MISSING:
        trace.guards.cell(place.obj, place.name, value)
