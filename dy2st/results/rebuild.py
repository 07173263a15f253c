"""Building the results of one call: the trees of an `OutputPlan`, with real tensors as leaves.

New tensors wrap the program's outputs, inputs come back as the caller's objects, and views are
replayed by Paddle's own view calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dy2st.results.leaves import CallValues, InputOutput, OutputPlan, TensorOutput, fill
from dy2st.state.container_writes import ArgumentContents, Contents


def give_back(plan: OutputPlan, call: CallValues) -> object:
    """Repeat the attribute and item stores of the trace; returns the call's result."""
    given = call.containers() if plan.stores else []
    out = fill(plan.result, call)
    stores = [(place.now(), fill(tree, call)) for place, tree in plan.stores]
    for place, value in stores:
        if isinstance(place, ArgumentContents):
            place = Contents(given[place.index])
        place.put(value)
    for k in plan.moved:
        call.inputs(k).contiguous()
    return out


def display(plan: OutputPlan, constant: Callable[[object], str]) -> str | None:
    """The Python of a result whose leaves are outputs `_o0`, `_o1`, ..., inputs and constants; None
    where only `give_back` makes it."""
    return None if plan.stores or plan.moved else _display(plan.result, constant, set())


def _display(x: Any, constant: Callable[[object], str], seen: set[int]) -> str | None:
    """`seen` are lists and dicts, of which one that stands in two places is one."""
    if type(x) is TensorOutput:
        return f"_o{x.index}"
    if type(x) is InputOutput:
        return f"_ENTRY.input({x.index}, _L)"
    if type(x) in (str, int, float, bool, type(None)):
        return constant(x)
    if type(x) not in (tuple, list, dict) or type(x) is not tuple and id(x) in seen:
        return None
    seen.add(id(x))
    parts = [_display(q, constant, seen) for q in (x.values() if type(x) is dict else x)]
    if None in parts:
        return None
    if type(x) is dict:
        return "{" + "".join(f"{constant(k)}: {q}, " for k, q in zip(x, parts)) + "}"
    text = "".join(f"{q}, " for q in parts)
    return f"({text})" if type(x) is tuple else f"[{text}]"
