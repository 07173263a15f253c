"""Building the results of one call: the trees of an `OutputPlan`, with real tensors as leaves.

New tensors wrap the program's outputs, inputs come back as the caller's objects, and views are
replayed by Paddle's own view calls.
"""

from __future__ import annotations

import array
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from dy2st.results.leaves import CallValues, InputOutput, OutputPlan, TensorOutput, fill
from dy2st.state.container_writes import ArgumentContents, Contents
from dy2st.state.ownership import is_users_object
from dy2st.trace.undo import kind_of


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


# ---------------------------------------------------------------- objects that are made anew
ARRAYS = (np.ndarray, array.array)
#: objects that do not change, or of which a program knows too little
KEPT = (
    tuple, str, bytes, int, float, frozenset, BaseException, type, types.FunctionType,
    paddle.nn.Layer,
)  # fmt: skip


def is_fresh(x: object, stored: bool) -> bool:
    """Whether an object that the function has made has to be made anew by every call: one that is
    `stored`, or a list or dict of another class."""
    if isinstance(x, KEPT) or not (stored or isinstance(x, (list, dict))):
        return False
    return kind_of(x) is not None or isinstance(x, ARRAYS) or is_users_object(x)
