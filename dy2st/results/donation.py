"""Donated arguments: a call may use their memory for other values.

`to_static(..., donate=("x",))` promises that nobody reads `x`, nor a tensor that shares its memory,
after the call; their content is undefined then (NaN with `DY2ST_POISON=1`). An argument is used
only if no gradients are recorded, the call neither returns nor keeps the argument or a view of it,
it shares no memory with another input, and the program never starts again (`executor.capacity`) nor
runs in segments. Otherwise it keeps its content.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any

from dy2st.results.leaves import OutputPlan, inputs
from dy2st.trace.memory import extent, meet
from dy2st.trace.trace import TracedInput
from ir import Program


def check_names(function: Callable[..., object], names: Any) -> tuple[str, ...]:
    """Raises TypeError for something that is not a collection of names, ValueError for a name that
    is no parameter of `function`."""
    if isinstance(names, str) or not all(isinstance(n, str) for n in names):
        raise TypeError(f"donate takes a tuple of parameter names, not {names!r}")
    known = inspect.signature(function).parameters
    for n in names:
        if n not in known:
            text = ", ".join(known)
            raise ValueError(f"donate names {n!r}, but the function has only ({text})")
    return tuple(names)


def given_up(
    names: Collection[str],
    plan: OutputPlan,
    traced: Sequence[TracedInput],
    program: Program,
    bound: Sequence[TracedInput],
) -> list[int]:
    """The numbers of the inputs of `program` whose memory may be used."""
    if not names:
        return []
    kept = inputs((plan.result, plan.stores)) | set(plan.moved)
    free = [q for k, q in enumerate(traced) if k not in kept and q.number is None]
    extents = [extent(q.tensor) if q.number is None else None for q in bound]
    out = []
    for k, (i, q) in enumerate(zip(program.inputs, bound)):
        named = i.kind == "arg" and i.name.split(".")[0] in names
        if not named or q.memory is not None or not any(q is f for f in free):
            continue
        if not any(meet(extents[k], e) for n, e in enumerate(extents) if n != k):
            out.append(k)
    return out
