"""The user's marks: functions and modules that are not converted, and the effects of their
calls."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: names of modules whose functions are called as they are, as those of libraries are
IGNORED: set[str] = set()
_MARK = "__dy2st_plain__"
_PADDLE_MARK = "___jit_transform_options___"
#: the kinds of numbers that a host call gives
NUMBERS = {q.__name__: q for q in (bool, int, float)}


@dataclass(frozen=True)
class Mark:
    """The user's mark of a function. `result` of a host call: bool, int or float, the shape and
    the name of the dtype of an array, or None for nothing."""

    host: bool
    result: object = None


UNSAID: object = object()
#: the marks of `pure` and `host`, by function
MARKS: dict[object, Mark] = {}


def not_to_static(function: Callable[..., object] | None = None) -> object:
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


def ignore_module(modules: str | types.ModuleType | Iterable[str | types.ModuleType]) -> None:
    """Do not convert the functions of these modules and of the modules inside of them.

    Their tensor operations are recorded, their control flow is Python's at the time of the trace,
    and their reads of Python objects are not guarded. Call it before the first call of a translated
    function.

    Args:
        modules: a module, its name, or several of them.

    Raises:
        TypeError: neither a module nor a name.
    """
    listed: Iterable[object] = [modules]
    if isinstance(modules, Iterable) and not isinstance(modules, (str, types.ModuleType)):
        listed = modules
    for module in listed:
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


# ---------------------------------------------------------------- what a call does
def pure(function: object = None) -> object:
    """Mark a function whose result follows from its arguments, and which does nothing else.

    Translated code calls it as it is while it is traced, and takes the result for a constant.
    Lists, dicts and NumPy arrays among the arguments are checked on every call. For functions that
    dy2st does not know, such as those of an extension module; a function in Python that is marked
    is not translated.

    Used as a decorator, or called: `dy2st.pure(library.f)`. Returns the function itself.

    Raises:
        TypeError: not a function, a method or a class.
    """
    if function is None:
        return pure
    _mark("pure", function, Mark(host=False))
    return function


def host(function: object = None, result: object = UNSAID) -> object:
    """Mark a function that is called again on every call of the program, and in every iteration of
    its loops, in the order of eager: it draws, reads a clock, or acts.

    Its result enters the program as a number or an array. It must not change what the translated
    function reads later in the same call, nor read what that has changed before: it is given values
    as arguments, and gives them as its result. A call that breaks this rule raises a SourceError.

    Args:
        function: the function; None makes a decorator.
        result: what it gives: `float`, `int` or `bool`; for an array a
            `paddle.static.InputSpec` without open sizes, or a pair of shape and dtype; None for a
            function that only acts. By default what the function is annotated to return.

    Returns the function itself.

    Raises:
        TypeError: not a function, a method or a class, or neither `result` nor an annotation says
            what it gives.
    """
    if function is None:
        return lambda f: host(f, result)
    wanted = _annotated(function) if result is UNSAID else result
    _mark("host", function, Mark(host=True, result=_kind(function, wanted)))
    return function


def mark_of(function: object) -> Mark | None:
    """The mark of a function, or of the function of a method."""
    for f in (function, getattr(function, "__func__", None)) if MARKS else ():
        try:
            if f in MARKS:
                return MARKS[f]
        except TypeError:
            continue
    return None


def _mark(name: str, function: object, mark: Mark) -> None:
    if not callable(function) or getattr(function, "__hash__", None) is None:
        raise TypeError(f"{name} takes a function, not {function!r}")
    MARKS[function] = mark


def _annotated(function: object) -> object:
    found = getattr(getattr(function, "__func__", function), "__annotations__", {}).get(
        "return", UNSAID
    )
    named = {**NUMBERS, "None": None}
    return named.get(found, found) if isinstance(found, str) else found


def _kind(function: object, result: Any) -> object:
    if result is None or any(result is q for q in NUMBERS.values()):
        return result
    pair = (result.shape, result.dtype) if hasattr(result, "shape") else result
    if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], (tuple, list)):
        if all(type(d) is int and d >= 0 for d in pair[0]):
            return tuple(pair[0]), _dtype(pair[1])
    raise TypeError(
        f"host: say what {getattr(function, '__name__', function)!r} gives: result=float, int or "
        "bool, result=(shape, dtype) for an array, or None if it only acts"
        + ("" if result is UNSAID else f"; not {result!r}")
    )


def _dtype(x: object) -> str:
    """The name of a dtype of Paddle or NumPy, or of one that is given by its name."""
    name = getattr(x, "name", None) or getattr(x, "__name__", None) or str(x)
    return name.rpartition(".")[2].lower()
