"""Inspection of a translated function: its programs, reports and converted Python.

These are functions, not attributes, because a Layer that is translated keeps all names of the user.
"""

from __future__ import annotations

import types

import paddle

from dy2st.api import StaticFunction
from dy2st.compiled.recompilation import Explanation
from dy2st.compiled.report import Report
from ir import Program


def program(function: object, /, *args: object, **kwargs: object) -> Program:
    """The program that a call with these arguments runs; `print` shows its text.

    The call is not made; where it would translate, the translation is made and kept.

    Args:
        function: a translated function, method or Layer.
        args, kwargs: the arguments of a call; none of them if `to_static` has an `input_spec`.

    Raises:
        TypeError: `function` is not translated, or there are neither arguments nor an `input_spec`.
        SourceError: the function cannot be translated for these arguments.
    """
    return StaticFunction.program(translated(function, "program"), *args, **kwargs)


def report(function: object, /, *args: object, **kwargs: object) -> Report:
    """The fate of each loop, branch and write in place, and the ops that Paddle's own kernels run.

    Arguments and errors are those of `program`.
    """
    return StaticFunction.report(translated(function, "report"), *args, **kwargs)


def code(function: object, /) -> str:
    """The converted Python of a translated function, method or Layer (of its `forward`).

    Raises:
        TypeError: `function` is not translated.
        SourceError: its source is not available, or has syntax that is not supported.
    """
    return StaticFunction.code.__get__(translated(function, "code"))


def explain(function: object, /) -> Explanation:
    """Explain why each program of a function was made: `print` shows the first call, and for each
    later program which argument, attribute, global or mode had changed; and which `input_spec`
    would make one program of several.

    Raises:
        TypeError: `function` is not translated.
    """
    return translated(function, "explain").__dy2st_cache__.explanation()


def translated(function: object, caller: str) -> StaticFunction:
    """The translated function behind a function, method or Layer."""
    found: object = function.forward if isinstance(function, paddle.nn.Layer) else function
    if isinstance(found, types.MethodType) and isinstance(found.__func__, StaticFunction):
        found = found.__func__.__get__(found.__self__)
    if isinstance(found, StaticFunction):
        return found
    name = getattr(function, "__name__", "") or type(function).__name__.lower()
    name = name if name.isidentifier() else "f"
    raise TypeError(
        f"dy2st.{caller} takes a translated function or Layer, and {name} is not translated: "
        f"write `{name} = dy2st.to_static({name})` first"
    )
