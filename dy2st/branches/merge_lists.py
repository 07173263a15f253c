"""Conditional elements: elements that only one branch of a condition on data appends to a list.

    for t in range(n):
        h = cell(h)
        if stop(h):
            break                  every iteration that is followed by another one appends, so the
        ys.append(h)               list has one element per iteration, except perhaps for the last

In any other case the length of the list depends on data in a way that no loop can follow, and the
append is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from dy2st.trace.scalar import PathCondition, RuntimeScalar


@dataclass(frozen=True)
class ConditionalElement:
    """`item` was appended where `ran` is true, which follows from `facts`; `error` says why that
    is wrong where nothing follows from it."""

    item: object
    ran: RuntimeScalar
    facts: frozenset[PathCondition]
    error: BaseException


__all__ = ["ConditionalElement"]
