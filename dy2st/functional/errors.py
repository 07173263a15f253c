"""Errors of the functional loops: eager and translated code raise the same classes."""

from __future__ import annotations

from dy2st.trace.signals import Refused
from dy2st.trace.trace import current
from ir.loc import source_error


def fault(kind: type[Exception], message: str) -> BaseException:
    """An error of class `kind`. In translated code it also names the user's line, and no loop is
    unrolled because of it; inside of a `try` it is the one that eager code raises."""
    trace = current()
    if trace is None or trace.trying:
        return kind(message)
    error = source_error(kind)(message, trace.where())
    return Refused(error)
