"""Marks of the user: functions and modules that are not converted."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

#: names of modules whose functions are called as they are, as those of libraries are
IGNORED: set[str] = set()
_MARK = "__dy2st_plain__"
_PADDLE_MARK = "___jit_transform_options___"


def not_to_static(function: Callable[..., Any] | None = None) -> object:
    """Mark a function whose `if`, `for` and `while` stay Python while it is traced.

    Its loops are unrolled, and a condition on data in it is refused. Its calls, stores and reads
    mean what they mean elsewhere, and functions that it calls are translated as usual. Outside of
    translated code nothing changes. `paddle.jit.not_to_static` has the same effect.

    Used as a decorator, with or without parentheses.

    Raises:
        TypeError: not a Python function.
    """
    if function is None:
        return not_to_static
    raw = getattr(function, "__func__", function)
    if not isinstance(raw, types.FunctionType):
        raise TypeError(f"not_to_static takes a Python function, not {function!r}")
    setattr(raw, _MARK, True)
    return function


def is_plain(function: types.FunctionType) -> bool:
    if getattr(function, _MARK, False):
        return True
    options: Any = getattr(function, _PADDLE_MARK, None)
    if options is None:
        return False
    return not options.need_transform(options.ToStaticMode.AST)


def ignore_module(modules: Any) -> None:
    """Do not convert the functions of these modules and of the modules inside of them.

    Their tensor operations are recorded, their control flow is Python's at the time of the trace,
    and their reads of Python objects are not guarded. Call it before the first call of a translated
    function.

    Args:
        modules: a module, its name, or several of them.

    Raises:
        TypeError: neither a module nor a name.
    """
    single = isinstance(modules, (str, types.ModuleType)) or not isinstance(modules, Iterable)
    for module in [modules] if single else modules:
        name = module if isinstance(module, str) else getattr(module, "__name__", None)
        if not isinstance(name, str) or not isinstance(module, (str, types.ModuleType)):
            raise TypeError(f"ignore_module takes modules or their names, not {module!r}")
        if name not in sys.modules:
            raise TypeError(f"ignore_module: no module {name!r} has been imported")
        IGNORED.add(name)


def is_ignored(module: str | None) -> bool:
    """True for the name of an ignored module, or of a module inside of one."""
    if not IGNORED or not module:
        return False
    parts = module.split(".")
    return any(".".join(parts[:n]) in IGNORED for n in range(1, len(parts) + 1))
