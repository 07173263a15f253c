"""What kind of object something is, while tracing: the answers that eager gives."""

from __future__ import annotations

from typing import Any

import paddle

from dy2st.capture.fake import FakeTensor
from dy2st.conflict import Conflict, here
from dy2st.containers import TraceList
from dy2st.number import is_number
from dy2st.symbols import is_sym


def settled(x: Any) -> Any:
    """`x` as it is here; an error where a condition on data decides which object it is."""
    found = here(x)
    if type(found) is Conflict:
        raise found.__dict__["error"]
    return found


def type_(x: Any, *rest: Any) -> Any:
    """`type(x)`, which shows none of the objects that stand for values of the program."""
    if rest:
        return type(x, *rest)
    x = settled(x)
    if isinstance(x, FakeTensor):
        return paddle.Tensor
    if is_sym(x) or is_number(x):
        return x.__class__
    return list if type(x) is TraceList else type(x)


def isinstance_(x: Any, kinds: Any) -> bool:
    return isinstance(settled(x), kinds)


def callable_(x: Any) -> bool:
    x = settled(x)
    return not isinstance(x, FakeTensor) and callable(x)


KINDS: dict[int, Any] = {id(type): type_, id(isinstance): isinstance_, id(callable): callable_}
