"""Host calls: Python calls that are made again on every call of the program, and in every iteration
of a loop, in the user's order. Their numbers and arrays enter the program.

A host call is a `foreign` op with a `Callee`. `dy2st.compiled.host_inputs` makes inputs of those
that can be made before the program runs.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dy2st.capture.foreign import draws
from dy2st.capture.foreign.host_ops import Callee, HostArguments, emitted
from dy2st.capture.foreign.host_results import (
    CLOCKS,
    REMEDY,
    SEEDS,
    HostResult,
    declared,
    generator_of,
    makes,
    number,
)
from dy2st.capture.foreign.reachability import watched
from dy2st.convert.marks import mark_of
from dy2st.state.effects import name_of as known
from dy2st.state.ownership import refuse
from dy2st.trace.trace import Trace

UNMARKED: object = object()


# ---------------------------------------------------------------- what is a host call
def is_host(f: object) -> bool:
    """Whether a call of `f`, which is not converted, is made again on every call."""
    try:
        known = f in CLOCKS
    except TypeError:
        known = False
    known = known or any(f is q for q in SEEDS) or makes(f) or acts(f)
    return known or generator_of(f) is not None or marked(f) is not UNMARKED


def marked(f: object) -> Any:
    """Return the result that `dy2st.host` declares for `f`, or `UNMARKED`."""
    mark = mark_of(f)
    return mark.result if mark is not None and mark.host else UNMARKED


def host_call(
    trace: Trace, f: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """Record a call of `f`; its result is a stand-in.

    Raises Refused for a function, arguments or a result that a program cannot have.
    """
    name = name_of(f)
    if marked(f) is not UNMARKED:
        result, call = declared(f, marked(f)), watched(trace, f, name, (*args, *kwargs.values()))
        return recorded(trace, Callee.of(name, call, None, True, result), args, kwargs)
    if generator_of(f) is not None:
        return draws.drawn(trace, f, name, args, kwargs)
    if makes(f):
        raise refuse(
            f"{name}() in a translated function.",
            "Every call of the program would have to make the generator again.",
            "Make it outside of the translated function, and draw from it in the function.",
        )
    if acts(f):
        call = watched(trace, action(trace, f), name, (f,))
        callee = Callee.of(name, call, acts, True, HostResult("nothing"))
        return recorded(trace, callee, args, kwargs)
    if f in SEEDS:
        callee = Callee.of(name, f, draws.NUMPY.__self__, False, HostResult("nothing"))
        return recorded(trace, callee, args, kwargs)
    if f in CLOCKS:
        kind = CLOCKS[f]
        result = HostResult("nothing") if kind is None else number(kind)
        return recorded(trace, Callee.of(name, f, f, True, result), args, kwargs)
    raise refuse(
        f"{name}() in a translated function.",
        "It has side effects, or a different result on every call, of a type unknown to dy2st.",
        f"{REMEDY} A function of your own that gives a number is marked: `dy2st.host(f, "
        "result=float)`.",
    )


def computed_number(
    trace: Trace, f: Any, kind: type, args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """A number that `f`, a pure function, gives for numbers of the program."""
    return recorded(trace, Callee.of(f.__name__, f, f, False, number(kind)), args, kwargs)


def name_of(f: object) -> str:
    """The user's name for a function."""
    if generator_of(f) is not None:
        return draws.name_of(f)
    name = str(getattr(f, "__name__", type(f).__name__))
    module = {"_warnings": "warnings"}.get(f.__module__, f.__module__)
    return f"{module}.{name}" if f in CLOCKS or f in SEEDS or makes(f) or acts(f) else known(f)


# ---------------------------------------------------------------- logs and warnings
LEVELS = frozenset("debug info warning warn error critical exception log".split())
#: which warnings have been shown, by file
SHOWN: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}


def acts(f: Any) -> bool:
    """Whether it writes to a log, or warns."""
    if f is warnings.warn:
        return True
    owner = getattr(f, "__self__", None)
    if isinstance(owner, (logging.Logger, logging.LoggerAdapter)):
        return f.__name__ in LEVELS
    return getattr(f, "__module__", None) == "logging" and getattr(f, "__name__", "") in LEVELS


def action(trace: Trace, f: Any) -> Callable[..., None]:
    """Return the function that the program calls for `f`; a warning has the user's line."""
    if f is not warnings.warn:
        return f  # type: ignore[no-any-return]
    loc, filters = trace.where(), [f for _, known in trace.calls.filters for f in known]

    def warn(
        message: Warning | str,
        category: type[Warning] | None = None,
        *rest: object,
        **kwargs: object,
    ) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        shown = SHOWN.setdefault(loc.file, {})
        with warnings.catch_warnings() if filters else contextlib.nullcontext():
            for f in filters:
                f()
            warnings.warn_explicit(message, kind, loc.file, loc.line, registry=shown)

    return warn


# ---------------------------------------------------------------- recording
def recorded(
    trace: Trace, callee: Callee, args: Sequence[object], kwargs: Mapping[str, object]
) -> Any:
    template = HostArguments(trace, callee, tensors=callee.owner is None or callee.owner is acts)
    literal = template.all(args, kwargs)
    return emitted(trace, callee, literal, template.operands)


__all__ = ["acts", "computed_number", "host_call", "is_host", "recorded"]
