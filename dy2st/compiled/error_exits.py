"""Error exits of calls: the changes that eager has made before an error of the user.

A program that fails has written nothing. Where eager has changed something before, another program
is made for the first call that fails there: it ends in the error, which is its result. Where no
program leads to the error, eager runs the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from paddle.base import core

from dy2st.branches.branch import raised
from dy2st.branches.error_exits import RerunEagerly, UnrolledError, has_changed
from dy2st.capture.foreign.iterators import retried
from dy2st.state.dynamic_numbers import DynamicNumbers
from dy2st.state.strings import PLAIN, FormattedValue, LazyText, is_lazy
from dy2st.trace.trace import Trace

#: the `site` of an error that a trace has raised
EARLY = -1
#: numbers of conditions, and whether they hold
ErrorPath: TypeAlias = tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class RetraceInputs:
    """The inputs of a translation that a retrace needs, and the errors that data may raise after a
    change. `items`: whether a call that gets an unexpected item of an iterator may be made again;
    None if it takes none."""

    spec: Sequence[object] | None = None
    dynamic: DynamicNumbers | None = None
    unrolled: Mapping[object, str] | None = None
    paths: Sequence[ErrorPath | UnrolledError | RerunEagerly | None] = ()
    items: bool | None = None

    def reruns(self, error: Exception) -> bool:
        """Whether eager runs the call that has ended in this error."""
        site = vars(error).get("site", 0)
        return site > 0 and isinstance(self.paths[site - 1], RerunEagerly)


def rewinding(
    call: Callable[..., object], again: RetraceInputs | None, miss: object
) -> Callable[..., object]:
    """A call that leaves the generators as they were where eager runs it once more, and keeps the
    items of iterators where it gives `miss`."""
    if again is not None and again.items is not None:
        call = retried(call, again.items, miss)
    reruns = [q for q in (() if again is None else again.paths) if isinstance(q, RerunEagerly)]
    random = any(q.random for q in reruns)
    generators = {id(g): g for q in reruns for g in q.generators}
    if again is None or not random and not generators:
        return call

    def run(leaves: Sequence[object], _only_check: bool = False) -> object:
        back = [rewound(g) for g in generators.values()]
        generator = core.default_cpu_generator()
        state = generator.get_state()
        try:
            return call(leaves, _only_check)
        except Exception as error:
            if again.reruns(error):
                generator.set_state(state)
                for put_back in back:
                    put_back()
            raise

    return run


def rewound(generator: Any) -> Callable[[], None]:
    """Puts a generator of `random` or NumPy back as it is now."""
    if isinstance(generator, np.random.Generator):
        bits, state = generator.bit_generator, generator.bit_generator.state
        return lambda: setattr(bits, "state", state)
    if isinstance(generator, np.random.RandomState):
        return functools.partial(generator.set_state, generator.get_state())
    return functools.partial(generator.setstate, generator.getstate())


def noted(trace: Trace, call: Callable[[], object]) -> object:
    """A call; what it raises says whether it has changed something before."""
    try:
        return call()
    except Exception as error:
        if raised(error) and (has_changed(trace) or any(map(is_lazy, error.args))):
            vars(error)["site"] = EARLY
        raise


def ending(trace: Trace, call: Callable[[], object]) -> object:
    """The error that a call raises, as a result: its class, arguments and attributes."""
    try:
        call()
    except Exception as error:
        if trace.endings.ahead or not raised(error):
            raise
        return (
            type(error),
            [*map(spelled, error.args)],
            {k: spelled(v) for k, v in vars(error).items()},
        )
    raise RuntimeError("the error is not raised")


def spelled(x: object) -> object:
    """A text as its parts: strings, and values with how they are shown."""
    if not isinstance(x, LazyText):
        return False, x
    parts = [(q.value, q.how, q.spec) if isinstance(q, FormattedValue) else q for q in x.parts]
    return True, parts


def read(found: tuple[bool, Any]) -> object:
    """Rebuild an object from its form made by `spelled`, with the values of a call."""
    is_text, x = found
    if not is_text:
        return x
    return "".join(q if isinstance(q, str) else PLAIN[q[1]](q[0], q[2]) for q in x)


def as_raised(result: tuple[Any, Any, Any], error: Exception) -> Exception:
    """The error that a program has ended in, in place of the one of the program that has failed."""
    kind, args, fields = result
    made: Exception = kind.__new__(kind)
    made.args = tuple(map(read, args))
    made.__dict__.update({k: read(v) for k, v in fields.items()})
    made.__cause__ = error.__cause__
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)  # type: ignore[attr-defined]
    return made.with_traceback(error.__traceback__)


__all__ = [
    "EARLY", "RetraceInputs", "ErrorPath", "RerunEagerly", "UnrolledError", "as_raised", "ending",
    "noted", "rewinding",
]  # fmt: skip
