"""Methods of Paddle's Tensor that are implemented in C and must be recorded: operators, indexing,
views of the whole, writes. They act on real tensors too: a parameter plus a parameter is an op.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle.base.framework import EagerParamBase

from dy2st.capture import adapters, detached_writes, foreign
from dy2st.capture.adapters import in_place_shape
from dy2st.capture.dispatch import record
from dy2st.capture.indexing.items import getitem, setitem
from dy2st.capture.to_python import numpy, tolist
from dy2st.state.ownership import refuse
from dy2st.trace import memory as layout
from dy2st.trace.emitter import Emitter, NoRow, detached, grad_enabled, lift
from dy2st.trace.fake_tensor import (
    VALUE_METHODS,
    FakeTensor,
    Tensor,
    gradient_of,
    needs_value,
    refuse_training,
)
from dy2st.trace.item import converted, item
from dy2st.trace.scalar import is_runtime, is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import paddle_assertion, perform
from ir.types import BOOL, F32, I64, DType, Size

Method = Callable[..., object]


def recording() -> Trace:
    trace = current()
    assert trace is not None
    return trace


# ---------------------------------------------------------------- operators
def scalar_dtype(have: DType, n: object, division: bool) -> DType:
    """The element type in which Paddle computes `tensor op number`."""
    if have.kind == "f":
        return have
    if division or isinstance(n, float):
        return F32
    return I64 if have == BOOL and not isinstance(n, bool) else have


def with_number(e: Emitter, row: str, x: Tensor, n: Any, reverse: bool) -> FakeTensor:
    """`x op n` (or `n op x`) as Paddle's C++ operators compute it; `x // n` has an axis."""
    have = e.type(x).dtype
    if have.widened or isinstance(n, bool):
        raise NoRow(f"{row} of {have} and {n!r}")
    dtype = scalar_dtype(have, n, row == "divide")
    x = e.cast_to(x, dtype)
    if not is_runtime(n) and row in ("add", "subtract", "multiply"):
        factor, bias = {
            ("add", False): (1.0, n),
            ("add", True): (1.0, n),
            ("subtract", False): (1.0, -n),
            ("subtract", True): (-1.0, n),
            ("multiply", False): (n, 0.0),
            ("multiply", True): (n, 0.0),
        }[row, reverse]
        return e.scale(x, scale=float(factor), bias=float(bias))
    if row == "pow" and not reverse and not is_runtime(n) and n == 2:
        return e.square(x)
    power = row == "pow" and not reverse
    other = adapters.exponent(e, n, dtype) if power else e.scalar(n, dtype)
    out = getattr(e, row)(*((other, x) if reverse else (x, other)))
    single = row == "floor_divide" and not e.type(x).ndim
    return e.reshape(out, shape=(1,)) if single else out


#: what Paddle reads of a text that is compared with a tensor
NUMBER = re.compile(r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|nan)", re.IGNORECASE)


def operator(name: str, row: str, reverse: bool = False) -> Method:
    compares = row in adapters.COMPARISONS

    def emit(e: Emitter, self: Tensor, other: object) -> object:
        if isinstance(other, Tensor):
            x, y = (other, self) if reverse else (self, other)
            if row == "matmul":
                return adapters.ADAPTERS["matmul"](e, x, y)
            return (adapters.comparison if compares else adapters.arithmetic)(e, row, x, y)
        if compares and not isinstance(other, bool):
            have = e.type(self).dtype
            dtype = scalar_dtype(have, other, False)
            if have.widened:
                raise NoRow(str(have))
            return getattr(e, row)(e.cast_to(self, dtype), e.scalar(other, dtype))
        return with_number(e, row, self, other, reverse)

    adapters.ADAPTERS[f"Tensor.{name}"] = emit

    def method(self: Tensor, other: object) -> object:
        if isinstance(other, (np.ndarray, np.generic)):
            other = other.item() if other.ndim == 0 else paddle.to_tensor(other)
        if row in ("equal", "not_equal"):
            if isinstance(other, paddle.dtype):
                other = float("nan")  # no element is equal to it
            if isinstance(other, str):
                other = float(found[0]) if (found := NUMBER.match(other)) else 0.0
        if isinstance(other, str):
            raise refuse(
                f"a tensor and the text {other!r} are operands of one operator.",
                "Eager Paddle takes the text for the number that it begins with, or for 0.",
                "Write the number, `float(text)`; or remove the text.",
                like=TypeError,
            )
        if not isinstance(other, (Tensor, bool, int, float, complex)):
            return NotImplemented
        return record(f"Tensor.{name}", (self, other), {})

    return method


ROWS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "div": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
}
COMPARE = {
    "__eq__": "equal",
    "__ne__": "not_equal",
    "__lt__": "less_than",
    "__le__": "less_equal",
    "__gt__": "greater_than",
    "__ge__": "greater_equal",
}


def operators() -> dict[str, Method]:
    out: dict[str, Method] = {}
    for short, row in ROWS.items():
        for prefix in ("", "r"):
            name = f"__{prefix}{short}__"
            if hasattr(Tensor, name):
                out[name] = operator(name, row, bool(prefix))
    for name, row in COMPARE.items():
        out[name] = operator(name, row)
    return out


# ---------------------------------------------------------------- the whole tensor
def clone(self: Tensor) -> object:
    return record("assign", (self,), {})


def detach(self: Tensor) -> Tensor:
    """Another object on the same storage, outside of autograd."""
    trace = recording()
    fake = lift(trace, self)
    value = fake._value if fake.stop_gradient else detached(trace, fake._value)
    if value is fake._value:
        value = trace.emit("alias", [value], {})
    out = trace.fake(value, True)
    detached_writes.twins(fake, out)
    return out


def detach_(self: Tensor) -> object:
    """The tensor itself, which no gradient passes from here on."""
    if not lift(recording(), self).stop_gradient:
        self.stop_gradient = True
    return self


def identity(self: Tensor, *args: object) -> object:
    return self


def contiguous(self: Tensor) -> object:
    trace = recording()
    straight = layout.is_contiguous(trace, lift(trace, self))
    return self if straight else in_place_shape.contiguous(Emitter(trace), self)


def strides(self: Tensor) -> list[object]:
    trace = recording()
    return list(layout.exact(trace, lift(trace, self), "the stride").strides)


def stride(self: Tensor, dim: int | None = None) -> object:
    return strides(self) if dim is None else strides(self)[dim]


#: attributes of real tensors that are asked while tracing
PROPERTIES: dict[str, Method] = {
    "strides": strides,
    "offset": lambda self: layout.offset(recording(), lift(recording(), self)),
    "inplace_version": lambda self: needs_value("inplace_version"),
    "data": detach,
    "grad": gradient_of,
}


def length(self: Tensor) -> object:
    shape = lift(recording(), self)._value.type.shape
    if not shape:
        paddle_assertion("len() of a 0-D tensor is wrong")
    return int(shape[0])  # type: ignore[arg-type]


def set_value(self: Tensor, value: object) -> None:
    overwrite(self, value, "set_value")


def copy_(self: Tensor, other: object, blocking: bool = True) -> Tensor:
    """Returns another object on the same storage, as eager Paddle does."""
    overwrite(self, other, "copy_")
    return Emitter(recording()).alias(self)


def apply(self: Tensor, func: Callable[[Tensor], Tensor]) -> object:
    raise refuse(
        "apply and apply_ call a function from inside of Paddle's own code.",
        "apply_ also gives the tensor the memory of the function's result.",
        "Call it here, `y = f(x)`; write the values with `x.set_value(f(x))`.",
    )


def overwrite(self: Tensor, value: object, name: str) -> None:
    e = Emitter(recording())
    if not isinstance(value, Tensor):
        value = paddle.to_tensor(value)
    t, given = e.type(self), e.type(value)
    open_ = [a == b or isinstance(b, Size) for a, b in zip(t.shape, given.shape)]
    if t.dtype == given.dtype and t.ndim == given.ndim and all(open_):
        value = e.expand(value, shape=t.shape)
    if e.type(self) != e.type(value):
        error = AssertionError(f"{e.type(value)} cannot be written into {e.type(self)}")
        raise foreign.refusal(e.trace, name, error, eager=True)
    with paddle.no_grad():
        detached_writes.write(e, self, e.assign(value), moves=0)


def fill_(self: Tensor, value: float | Tensor) -> Tensor:
    e = Emitter(recording())
    t = e.type(self)
    if is_runtime_scalar(value):
        return filled(e, self, e.expand(e.scalar(value, t.dtype), shape=t.shape))
    kind = bool if t.dtype == BOOL else float if t.dtype.kind == "f" else int
    number = perform(kind, value)
    shape = [e.trace.sym(d) for d in t.shape]
    return filled(e, self, e.full(number, t.dtype, shape))


def filled(e: Emitter, x: Tensor, new: FakeTensor) -> Tensor:
    """Overwrite `x` with a constant. What it was has a gradient of zeros, as in eager."""
    if grad_enabled() and not x.stop_gradient:
        new = e.keep_gradient(e.floor(x), new)
    return detached_writes.write(e, x, new)


def zero_(self: Tensor) -> Tensor:
    return fill_(self, 0)


def whole() -> dict[str, Method]:
    return {
        "clone": clone,
        "detach": detach,
        "detach_": detach_,
        "contiguous": contiguous,
        "is_contiguous": lambda self: layout.is_contiguous(recording(), lift(recording(), self)),
        "get_strides": strides,
        "stride": stride,
        "cpu": identity,
        "__len__": length,
        "set_value": set_value,
        "copy_": copy_,
        "apply": apply,
        "apply_": apply,
        "fill_": fill_,
        "zero_": zero_,
        "item": item,
        "tolist": tolist,
        "numpy": numpy,
        "__bool__": converted(bool, "__bool__"),
        "__int__": converted(int, "__int__"),
        "__index__": converted(int, "__index__"),
        "__float__": converted(float, "__float__"),
        "__getitem__": lambda self, index: getitem(recording(), self, index),
        "__setitem__": lambda self, index, value: setitem(recording(), self, index, value),
    }


def refusals() -> dict[str, Method]:
    def make(name: str) -> Method:
        return lambda self, *args, **kwargs: needs_value(name)

    return {n: make(n) for n in VALUE_METHODS if hasattr(Tensor, n)}


#: methods of Tensor in C that replace its memory, or belong to its gradient
INTERNAL = (
    "_apply _apply_ _bump_inplace_version _clear_dataptr _clear_to_zero_allocation "
    "_copy_gradient_from _get_tensor_from_selected_rows _inplace_assign _inplace_version "
    "_new_shared_tensor _reset_grad_inplace_version _set_grad_type _set_impl _share_memory "
    "_share_underline_tensor_to _is_shared_underline_tensor_with _to_dist_ "
    "_unsafe_share_buffer_to _unset_fake_empty reconstruct_from_ set_tensor set_string_list "
    "set_vocab"
).split()
SPARSE = ("to_sparse_coo", "to_sparse_csr")
TRAINING = "backward _zero_grads _grad_value _grad_ivar gradient retain_grads".split()


def refuse_internal(name: str) -> Method:
    def call(self: Tensor, *args: object, **kwargs: object) -> object:
        raise refuse(
            f"{name}() of a tensor in a translated function.",
            "It replaces the memory of a tensor behind the back of its other names.",
            "Bind a new tensor, or write the values with `x.set_value(y)`.",
        )

    return call


def refuse_sparse(name: str) -> Method:
    def call(self: Tensor, *args: object, **kwargs: object) -> object:
        raise refuse(
            f"{name}() of a tensor in a translated function.",
            "Programs have dense tensors only.",
            "Make this call, and what computes with its result, outside of the translated "
            "function.",
        )

    return call


def training(name: str) -> Method:
    def call(self: Tensor, *args: object, **kwargs: object) -> object:
        if isinstance(self, EagerParamBase) and name == "retain_grads":
            raise refuse(
                "a parameter is made in a translated function.",
                "Each call would create a new one; the parameters of a program are there before.",
                "Make it, or the Layer that it belongs to, in `__init__` or before the call.",
            )
        raise refuse_training(f"{name.strip('_')}()")

    return call


def clear_gradient(self: Tensor, set_to_zero: bool = True, /, **ignored: object) -> None:
    """A tensor from outside has no gradient behind the call, or zeros; others have none anyway.
    Paddle reads no keyword."""
    trace = recording()
    given = trace.inputs.by_fake(lift(trace, self))
    if given is None:
        return
    if trace.in_loop:
        raise NeedsConcrete("a gradient is cleared in the loop")
    if len(trace.frames) > 1:
        raise refuse(
            f"the gradient of {given.name} is cleared in a branch on data.",
            "A program clears the gradients of its inputs when it ends.",
            "Clear it in any case, or outside of the translated function.",
        )
    given.cleared += (bool(set_to_zero),)


def is_same_shape(self: Tensor, other: Tensor) -> bool:
    return list(self.shape) == list(other.shape)


METHODS: dict[str, Method] = {
    **refusals(),
    **operators(),
    **whole(),
    **{n: refuse_internal(n) for n in INTERNAL if hasattr(Tensor, n)},
    **{n: refuse_sparse(n) for n in SPARSE},
    **{n: training(n) for n in TRAINING if hasattr(Tensor, n)},
    "is_same_shape": is_same_shape,
    "clear_gradient": clear_gradient,
    "clear_grad": lambda self: clear_gradient(self),
}
