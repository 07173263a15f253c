"""`next` of an iterator from outside: a host call, made again on every call.

What it gives is learned from a copy, which takes nothing out of the iterator itself. A copy is made
of iterators of Python's own types only, whose elements are numbers of one kind.
"""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
from typing import Any

from dy2st.capture.foreign.host import recorded
from dy2st.capture.foreign.host_ops import Callee
from dy2st.capture.foreign.host_results import HostResult, result_of
from dy2st.state.ownership import refuse
from dy2st.trace.trace import Trace

#: iterators whose copies are independent of them
COPIED: tuple[type, ...] = (
    itertools.count, itertools.cycle, itertools.repeat, itertools.chain, itertools.islice,
    type(iter([])), type(iter(())), type(iter(range(0))), type(reversed([])),
    type(iter(range(1 << 70))), type(iter({})), type(iter(set())), type(iter({}.values())),
)  # fmt: skip
ENDLESS = (itertools.count, itertools.cycle)
#: so many elements are looked at
MOST = 1000
REMEDY = (
    "Make the call one of the host, `draw = dy2st.host(lambda: next(it), result=float)`; or call "
    "`next` outside of the translated function, and pass the value as an argument."
)


def advanced(trace: Trace, iterator: object, default: tuple[object, ...]) -> object:
    """`next(iterator)`, made again on every call. Raises StopIteration where eager does now."""
    try:
        if type(iterator) not in COPIED:
            raise TypeError(f"no copy of a {type(iterator).__name__}")
        with trace.pause():
            elements = list(itertools.islice(copied(iterator), MOST))
    except TypeError:
        raise refuse(
            f"next() of a {type(iterator).__name__} that was there before the call.",
            "Its next element is known only when a call of the program advances it.",
            REMEDY,
        ) from None
    result = given(*elements, *default)
    if trace.trying and not default and type(iterator) not in ENDLESS:
        raise refuse(
            "next() of an iterator that may end, inside of a `try` statement.",
            "The program advances it later, when the handlers of the function are left.",
            "Give a default, `next(it, 0.0)`; or call `next` outside of the translated function.",
        )
    take = functools.partial(next, iterator, *default)
    return recorded(trace, Callee.of("next", take, iterator, False, result), (), {})


def given(*elements: object) -> HostResult:
    """Return the result type of a call that returns one of these elements."""
    if not elements:
        raise StopIteration
    kinds = {type(q) for q in elements}
    if len(kinds) > 1:
        names = " and ".join(sorted(q.__name__ for q in kinds))
        raise refuse(
            f"next() of an iterator whose elements are of different types ({names}).",
            "The program takes numbers of one kind from it.",
            REMEDY,
        )
    return result_of("next", elements[0])


def copied(iterator: object) -> Any:
    """A copy that can be advanced alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return copy.deepcopy(iterator)


__all__ = ["advanced"]
