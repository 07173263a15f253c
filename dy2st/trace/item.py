"""Tensors with one element as Python numbers of the program."""

from __future__ import annotations

from typing import Any

from dy2st.trace.emitter import detached, lift
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import DTYPES, RuntimeScalar
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current
from ir import SourceError, Value


def scalar(trace: Trace, fake: FakeTensor, what: str) -> Value:
    """The one element of a tensor as bool[], i64[] or f64[]."""
    t, value = fake._value.type, fake._value
    if not fake.stop_gradient:
        value = detached(trace, value)
    if any(d != 1 for d in t.shape):
        raise Refused(
            SourceError(
                f"{what} is a tensor with more than one element.",
                trace.where(),
                reason=f"It is {t}; eager Paddle raises a ValueError here.",
                remedy="Reduce it first: `.all()`, `.any()`, `.sum()`, or index one element.",
            )
        )
    if t.shape:
        value = trace.emit("reshape", [value], {"shape": ()})
    kind = {"b": bool, "f": float}.get(t.dtype.kind, int)
    dtype = DTYPES[kind]
    return value if t.dtype == dtype else trace.emit("cast", [value], {"dtype": dtype})


def item(self: Any, *index: Any) -> Any:
    """`t.item()`: the Python number of a tensor with one element, or of element `index`."""
    trace = current()
    assert trace is not None
    if index:
        self = self.flatten()[index[0]] if len(index) == 1 else self[index]
    return RuntimeScalar(scalar(trace, lift(trace, self), "the tensor of item()"), trace)
