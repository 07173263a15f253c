"""`item()`: tensors with one element as Python numbers and as sizes of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dy2st.trace.emitter import detached, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor, needs_value
from dy2st.trace.scalar import DTYPES, RuntimeScalar, value_in
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform
from ir import Builder, Const, LoopCondition, Scan, Type, Value
from ir.loc import source_error
from ir.types import BOOL, I64, Dim, Size


def scalar(
    trace: Trace, fake: FakeTensor, what: str, error: type[Exception] = AssertionError
) -> Value:
    """The one element of a tensor as bool[], i64[] or f64[]; for more than one, eager raises
    `error`."""
    t, value = fake._value.type, fake._value
    if t.dtype.kind == "c":
        raise refuse_complex(trace, what)
    if not fake.stop_gradient:
        value = detached(trace, value)
    if any(d != 1 for d in t.shape):
        raise Refused(
            source_error(error)(
                f"{what} is a tensor with more than one element.",
                trace.where(),
                reason=f"It is {t}; eager Paddle raises {error.__name__} here.",
                remedy="Reduce it first: `.all()`, `.any()`, `.sum()`, or index one element.",
            )
        )
    if t.shape:
        value = trace.emit("reshape", [value], {"shape": ()})
    kind = {"b": bool, "f": float}.get(t.dtype.kind, int)
    dtype = DTYPES[kind]
    return value if t.dtype == dtype else trace.emit("cast", [value], {"dtype": dtype})


def refuse_complex(trace: Trace, what: str) -> Refused:
    return Refused(
        f"{what} is complex, and is needed as a Python number or array.",
        trace.where(),
        reason="Programs compute real numbers and complex tensors, but no complex numbers of "
        "Python.",
        remedy="Use its parts: `x.real()`, `x.imag()`; or compute with the tensor.",
    )


def item(self: Tensor, *index: object) -> Any:
    """`t.item()`: the Python number of a tensor with one element, or of element `index`."""
    trace = current()
    assert trace is not None
    if index:
        self = self.flatten()[index[0]] if len(index) == 1 else self[index]
    return number(trace, lift(trace, self), "the tensor of item()", ValueError)


def tolist(self: object) -> object:
    """`t.tolist()` where the elements are known."""
    trace = current()
    assert trace is not None
    fake = lift(trace, self)
    found = trace.known(fake._value)
    if found is None:
        needs_value("tolist")
    shape = fake._value.type.concrete({})
    if len(shape) > 1:
        return np.reshape(plain_array(self, "tolist"), shape).tolist()
    return list(found) if shape else found[0]


def numpy(self: object, blocking: bool = True) -> Any:
    """`t.numpy()` where the elements are known numbers."""
    return plain_array(self, "numpy")


def plain_array(x: object, name: str) -> np.ndarray:
    trace = current()
    assert trace is not None
    fake = lift(trace, x)
    found = trace.known(fake._value)
    if found is None or any(type(q) not in (bool, int, float) for q in found):
        needs_value(name)
    t = fake._value.type
    return np.array(found, t.dtype.numpy).reshape(t.concrete({}))


def converted(kind: type, name: str) -> Callable[[Any], Any]:
    """`__int__` and the like, which must give a number of Python itself."""
    return lambda self: perform(kind, plain_array(self, name))


def number(
    trace: Trace, fake: FakeTensor, what: str, error: type[Exception] = AssertionError
) -> Any:
    """The one element of a tensor as a Python number; `error`: as in `scalar`."""
    found = trace.known(fake._value)
    if found is not None and len(found) == 1:
        return found[0]
    return RuntimeScalar(scalar(trace, fake, what, error), trace)


def size_of(trace: Trace, value: Value, most: Dim, least: int = 0) -> Size:
    """A size that is the i64[] `value`, which is at most `most`: a loop that counts to it."""
    value = trace.read_value(value)
    first = trace.emit("greater_than", [value, value_in(trace, 0, I64)], {})
    index, limit = Value(Type(I64), "i"), Value(Type(I64), "limit")
    b = Builder(trace.where())
    after = b.add(index, b.full(value=1, dtype=I64))
    go = b.less_than(after, limit)
    assert go.type == Type(BOOL)
    name = trace.sizes.new_count(least, most, trace.frame)
    ports = (LoopCondition(first, go), Const(limit, value))
    trace.builder.append(Scan(index, most, ports, tuple(b.ops), trace.where(), name))
    return Size.named(name)


def steps_over(trace: Trace, gap: Dim, step: int) -> Size:
    """How many steps it takes to come over `gap`, which is 1 or more: the quotient, rounded up."""
    key = ("steps", gap, step)
    if key not in trace.frame.derived:
        most = gap + (step - 1)
        whole = trace.emit("add", [trace.dim_value(gap), value_in(trace, step - 1, I64)], {})
        value = trace.emit("floor_divide", [whole, value_in(trace, step, I64)], {})
        trace.frame.derived[key] = size = size_of(trace, value, gap, 1)
        trace.sizes.quotients[str(size)] = (step, gap, most)
    return trace.frame.derived[key]  # type: ignore[no-any-return]
