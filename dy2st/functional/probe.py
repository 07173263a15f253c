"""Result types of a body without running it: it is traced, and the trace is dropped.

In translated code the body is traced in a frame that no program gets. In eager code a translation
is begun, and stopped when the body has been traced; both take back what the body changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dy2st.compiled.cache import TRANSLATING
from dy2st.compiled.translate import translate
from dy2st.library.builtins import SUBSTITUTES
from dy2st.state.signature import Signature
from dy2st.trace.emitter import lift
from dy2st.trace.frames import Frame
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current
from ir import SourceError

REMEDY = "Or give output_templates: a loop of no steps needs the types of its outputs."


class ProbeFinished(BaseException):
    """Ends a translation that has shown what it was begun for."""

    def __init__(self, result: object) -> None:
        super().__init__("the types of a body")
        self.result = result


def traced(f: Callable[..., object], tensors: Sequence[object]) -> Any:
    """`f(*tensors)` on stand-ins for the tensors: a result without tensors."""
    trace = current()
    try:
        if trace is not None:
            return discarded(trace, f, tensors)
        with TRANSLATING:
            translate(functools.partial(found, f), Signature(tuple(tensors), {}), None)
    except ProbeFinished as stop:
        return stop.result
    except SourceError as error:
        raise hinted(error)  # noqa: B904
    except Refused as stop:
        raise Refused(hinted(stop.error)) from stop.error.__cause__
    raise AssertionError("a translation went on behind its end")


def hinted(error: SourceError) -> SourceError:
    """With a way around a body that cannot be translated."""
    if not isinstance(error, (TypeError, ValueError)):
        error.remedy += "\n" * bool(error.remedy) + REMEDY
    return error


def found(f: Callable[..., object], *tensors: object) -> None:
    raise ProbeFinished(f(*tensors))


def discarded(trace: Trace, f: Callable[..., object], tensors: Sequence[Any]) -> object:
    """`f` on stand-ins of which only the types are known; its ops and changes are dropped."""
    mark, depth = trace.undo_log.mark(), len(trace.frames)
    types = [(lift(trace, x)._value.type, x.stop_gradient) for x in tensors]
    frame = Frame(branch=True)
    trace.frames.append(frame)
    try:
        return f(*(trace.fake(trace.new_value(t), stop) for t, stop in types))
    finally:
        del trace.frames[depth:]
        trace.undo_log.undo_to(mark)
        trace.frame.predicates.update(frame.predicates)  # its types may follow from them


SUBSTITUTES[id(found)] = found
