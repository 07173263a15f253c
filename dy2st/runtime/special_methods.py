"""Operators and other special methods of the user's classes, converted while a function is traced.

Python calls them from C: in `a + b`, `sorted(xs)`, `x in xs`, `hash(x)`. So the classes themselves
are changed for the time of a trace: once the trace meets an object, each special method of its
class asks whether its thread is tracing, and calls its converted form if so.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dy2st.runtime.library_calls import is_lazy
from dy2st.state.ownership import LIBRARIES, is_users_object, note_object, package_of, refuse
from dy2st.state.strings import FormattedValue, LazyText, held
from dy2st.state.strings import stop as stop_text
from dy2st.trace.scalar import is_runtime_scalar, stop
from dy2st.trace.trace import Trace, current

ARITHMETIC = "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor divmod".split()
#: methods whose result Python itself looks at
READ = frozenset("__bool__ __len__ __hash__ __index__ __int__ __float__ __str__ __repr__".split())
NAMES = READ | {
    *(f"__{way}{name}__" for way in ("", "r", "i") for name in ARITHMETIC),
    *"__neg__ __pos__ __invert__ __abs__ __round__ __trunc__ __floor__ __ceil__".split(),
    *"__lt__ __le__ __gt__ __ge__ __eq__ __ne__ __iter__ __next__ __reversed__".split(),
    *"__contains__ __getitem__ __missing__ __format__ __bytes__ __complex__".split(),
    "__post_init__",
}
#: the file name of the methods that `dataclasses` writes
GENERATED = "<string>"


@contextmanager
def converted_methods(trace: Trace) -> Iterator[None]:
    """The classes of the objects that the trace meets are changed inside."""
    changed: list[tuple[type, str, types.FunctionType]] = []
    trace.guards.on_object = functools.partial(meet, trace, changed, set())
    try:
        yield
    finally:
        trace.guards.on_object = lambda x: None
        for kind, name, function in changed:
            setattr(kind, name, function)


def meet(
    trace: Trace, changed: list[tuple[type, str, types.FunctionType]], known: set[type], x: object
) -> None:
    """An object from outside, or a class; its class and those that it inherits from change."""
    kind: type = x if isinstance(x, type) else type(x)
    if kind in known:
        return
    known.add(kind)
    for base in kind.__mro__:
        if package_of(base) in LIBRARIES and base is not argparse.Namespace:
            continue
        for name in NAMES & vars(base).keys():
            function = vars(base)[name]
            if isinstance(function, types.FunctionType) and original(function) is function:
                changed.append((base, name, function))
                setattr(base, name, method(base, name, function))


def is_generated(function: types.FunctionType) -> bool:
    """Whether `dataclasses` may have written a special method: it has no source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and code.co_filename == GENERATED and function.__name__[:2] == "__"


def generated_call(
    trace: Trace, function: types.FunctionType, self: object, *args: object, **kwargs: object
) -> object:
    """A method that `dataclasses` or `namedtuple` has written: it reads attributes, and calls what
    it is given."""
    if function.__name__ == "__new__" and isinstance(self, type) and issubclass(self, tuple):
        trace.guards.function(function)
        return function(self, *args, **kwargs)
    if not dataclasses.is_dataclass(self):
        raise refuse(
            f"the source of '{function.__qualname__}' is not available.",
            "A function is translated from its source text.",
            "Define it in a file or a notebook cell.",
        )
    for x in filter(is_users_object, (self, *args)):
        note_object(trace, x)
    if function.__name__ == "__repr__":
        for q in held([getattr(self, field.name, None) for field in dataclasses.fields(self)]):
            stop_text(LazyText([FormattedValue(q, "repr")]), f"made of a {type(self).__name__}")
    return function(self, *args, **kwargs)


def original(function: object) -> Any:
    return getattr(function, "__dy2st_original__", function)


def method(kind: type, name: str, function: types.FunctionType) -> Callable[..., object]:
    """A special method that is converted where its thread traces."""

    @functools.wraps(function)
    def call(self: object, *args: object) -> object:
        trace = current()
        if trace is None:
            return function(self, *args)
        trace.guards.special_method(kind, name, function)
        out = trace.hooks.call(function)(self, *args)
        if name in READ and is_lazy(out):
            raise unknown(out, name)
        return out

    call.__dy2st_original__ = function  # type: ignore[attr-defined]
    return call


def unknown(out: object, name: str) -> BaseException:
    if is_runtime_scalar(out):
        return stop(out, name)
    return refuse(
        f"{name} gives a value that the program computes.",
        "Python needs the value itself while the function is traced.",
        "Call a method of another name, or convert the tensor outside.",
    )
