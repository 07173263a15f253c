"""Introspection while tracing: `isinstance`, `type` and the like, with the answers of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from dy2st.branches.unresolved import Unresolved, here
from dy2st.state.arrays import is_array
from dy2st.state.containers.either import Either, refused
from dy2st.state.containers.layers import class_of
from dy2st.state.containers.lookup import OneOf
from dy2st.state.ownership import is_users_object, made_here
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import current


def settled(x: object) -> Any:
    """`x` as it is here; an error where a condition on data decides which object it is."""
    found = here(x)
    if type(found) is Unresolved:
        raise found.__dict__["error"]
    if type(found) is OneOf:
        raise found.refused("the type is asked of")
    if type(found) is Either and type(found := found.here()) is Either:
        raise refused(found, "its type")
    if (trace := current()) is not None and is_users_object(found) and not made_here(trace, found):
        trace.guards.class_of(found)
    return found


def type_(x: object, *rest: object) -> object:
    """`type(x)`, which shows none of the objects that stand for values of the program."""
    if rest:
        return type(x, *rest)
    x = settled(x)
    if isinstance(x, FakeTensor):
        return paddle.Tensor
    if is_symint(x) or is_runtime_scalar(x) or is_array(x):
        return x.__class__
    return x.kind if isinstance(x, TraceList) else class_of(x)


def isinstance_(x: object, kinds: Any) -> object:
    if type(x) is Either:
        return x.each(lambda q: isinstance_(q, kinds))
    x = settled(x)
    return issubclass(x.kind, kinds) if isinstance(x, TraceList) else isinstance(x, kinds)


def callable_(x: object) -> bool:
    if type(x) is OneOf:
        return True
    x = settled(x)
    return not isinstance(x, FakeTensor) and not is_symint(x) and callable(x)


KINDS: dict[int, Callable[..., object]] = {
    id(type): type_,
    id(isinstance): isinstance_,
    id(callable): callable_,
}
