"""Errors for results that no program can return."""

from __future__ import annotations

import collections

import numpy as np

from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace
from ir import SourceError

BUILTIN = (list, tuple, dict, set, frozenset, collections.deque)


def moved_memory() -> SourceError:
    return SourceError(
        "a result is a view of an argument that got other memory in this call (`contiguous()` of "
        "a tensor that is not contiguous).",
        remedy="Return a copy: `.clone()`.",
    )


def holds_stand_in(trace: Trace, x: object) -> bool:
    """Whether an object of the trace, which no result can be, has a tensor in it."""
    if id(x) not in trace.objects.made:
        return False
    fields = [*getattr(x, "__dict__", {}).values()]
    fields += [getattr(x, n, None) for n in getattr(type(x), "__slots__", ())]
    fields += list(x.values() if isinstance(x, dict) else x) if isinstance(x, BUILTIN) else []
    return any(isinstance(q, FakeTensor) for q in fields)


def no_result(what: str, x: object) -> Refused:
    if isinstance(x, np.ndarray):
        return Refused(
            f"{what} contains a view of an array, or an array of the caller.",
            reason="A program returns the arrays that it makes.",
            remedy="Return a copy: `a.copy()`.",
        )
    return Refused(
        f"{what} contains a {type(x).__name__}.",
        reason="A program returns tensors and constants, in tuples, lists, dicts and objects that "
        "it makes of classes in Python.",
        remedy="Return its tensors, and build the object outside.",
    )


def no_view(what: str) -> Refused:
    return Refused(
        f"{what} is a view of an array of the caller.",
        reason="It would be a copy, which shows no later writes.",
        remedy="Return a copy: `.copy()`.",
    )


def no_text(what: str) -> Refused:
    return Refused(
        f"{what} contains a string with a tensor's value in it.",
        reason="The value is known only when the program runs.",
        remedy="Return the tensor, and format it outside.",
    )
