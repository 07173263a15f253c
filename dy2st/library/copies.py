"""`copy.copy`, `copy.deepcopy` and `dataclasses.replace` in converted code."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle.base.framework import EagerParamBase

from dy2st.state.arrays import is_array
from dy2st.state.containers.rebound_containers import ExtendedTuple, tuple_of
from dy2st.state.containers.records import DICTS
from dy2st.state.guards import is_constant
from dy2st.state.ownership import is_users_object, note_contents, note_object, refuse
from dy2st.state.protocols import users_method
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import detached, lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import is_runtime
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform

#: objects whose copies would have the state of the first call
STATEFUL = (random.Random, np.random.RandomState, np.random.Generator)


def copied(f: Callable[..., object]) -> Callable[..., object]:
    """Wrap a copying function so that the trace owns its result."""

    @functools.wraps(f)
    def copy_(x: object, /, *args: object, **kwargs: object) -> object:
        trace = current()
        if trace is None:
            return f(x, *args, **kwargs)
        if f is copy.deepcopy:
            return deep(trace, x, {})
        if is_runtime(x) or isinstance(x, Tensor):
            return x if is_runtime(x) else f(x)
        if isinstance(x, TraceList):
            return x if isinstance(x, ExtendedTuple) else TraceList(x.parts())
        if not isinstance(x, paddle.nn.Layer):
            read(trace, x)
        users_method(x, "__copy__")
        made = perform(f, x, *args, **kwargs)
        trace.make(made)
        return made

    return copy_


def read(trace: Trace, x: object) -> None:
    """The copy follows from what `x` holds now."""
    if isinstance(x, (*STATEFUL, paddle.nn.Layer)):
        raise refuse(
            f"a copy of a {type(x).__name__} is made in a translated function.",
            "The copy would have the state of the first call.",
            "Copy it outside of the translated function.",
        )
    note_contents(trace, x)
    if is_users_object(x):
        note_object(trace, x)


def deep(trace: Trace, x: object, known: dict[int, tuple[object, object]]) -> Any:
    """`copy.deepcopy(x)`. known: the copies so far, by the `id` of what they are copies of."""
    if is_runtime(x) or is_constant(x):
        return x
    if id(x) not in known:
        known[id(x)] = (x, None)
        known[id(x)] = (x, copy_of(trace, x, known))
    found = known[id(x)][1]
    if found is None:
        raise refuse(
            f"a deep copy of a {type(x).__name__} that holds itself.",
            "A program copies containers from the outside in.",
            "Copy it outside of the translated function.",
        )
    return found


def copy_of(trace: Trace, x: Any, known: dict[int, tuple[object, object]]) -> object:
    if isinstance(x, Tensor):
        return tensor(trace, x)
    if isinstance(x, TraceList):
        copies = TraceList([deep(trace, q, known) for q in x])
        return tuple_of(copies) if isinstance(x, ExtendedTuple) else copies
    if isinstance(x, np.ndarray):
        trace.guards.array(x)
    if is_array(x):
        return x.copy()
    read(trace, x)
    users = users_method(x, "__deepcopy__")
    if users is not None:
        return trace.hooks.call(users)(x, {})
    if isinstance(x, tuple):
        parts = [deep(trace, q, known) for q in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if type(x) is list:
        return TraceList([deep(trace, q, known) for q in x])
    made = container(trace, x, known)
    if made is not x:
        trace.make(made)
    return made


def container(trace: Trace, x: Any, known: dict[int, tuple[object, object]]) -> object:
    """A dict, deque or plain object of the same class, with copies of what it holds."""
    if type(x) in DICTS:
        made = copy.copy(x)
        made.clear()
        made.update((deep(trace, k, known), deep(trace, q, known)) for k, q in x.items())
        return made
    if type(x) is collections.deque:
        return collections.deque((deep(trace, q, known) for q in x), x.maxlen)
    kind: Any = type(x)
    plain = kind.__new__ in (object.__new__, types.SimpleNamespace.__new__)
    if is_users_object(x) and plain and not hasattr(kind, "__slots__"):
        made = kind.__new__(kind)
        vars(made).update((k, deep(trace, q, known)) for k, q in vars(x).items())
        return made
    return perform(copy.deepcopy, x)


def tensor(trace: Trace, x: Tensor) -> Tensor:
    """New memory with the same elements."""
    if isinstance(x, EagerParamBase) or not x.stop_gradient:
        what = "a parameter" if isinstance(x, EagerParamBase) else "a tensor with a gradient"
        raise refuse(
            f"a deep copy of {what} is made in a translated function.",
            "It would be a leaf that requires a gradient of its own.",
            "Take `x.detach().clone()`, or make the copy outside of the translated function.",
        )
    value = trace.emit("assign", [lift(trace, x)._value], {})
    return trace.fake(detached(trace, value), True)


COPIES = {id(f): copied(f) for f in (copy.copy, copy.deepcopy, dataclasses.replace)}

__all__ = ["COPIES"]
