"""`paddle.to_tensor` inside translated code: Python data becomes part of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from dy2st.capture import foreign
from dy2st.state.arrays import is_array, tensor_of
from dy2st.trace.emitter import Emitter
from dy2st.trace.fake_tensor import Tensor, dtype_from, type_of
from dy2st.trace.scalar import is_runtime, kind_of
from dy2st.trace.trace import Trace
from ir.types import BOOL, I64


def to_tensor(
    trace: Trace,
    original: Callable[..., Any],
    data: object,
    dtype: object = None,
    place: object = None,
    stop_gradient: bool = True,
) -> object:
    """Numbers become `full`, arrays a const input, tensors a copy."""
    e, data = Emitter(trace), tensor_of(data)
    if isinstance(data, Tensor):
        have = e.type(data).dtype
        want = have if dtype is None else dtype_from(_paddle_dtype(dtype))
        fake = e.assign(data) if want == have else e.cast(data, dtype=want)
    elif is_runtime(data):
        fake = e.scalar(data, _number_dtype(data, dtype))
    elif isinstance(data, (list, tuple)) and any(map(is_runtime, data)):
        fake = _of_numbers(e, data, dtype)
    elif _holds_tensor(data):
        error = TypeError("a list of tensors")
        raise foreign.refusal(trace, "to_tensor", error)
    else:
        fake = _constant(trace, e, original, data, dtype)
    fake.stop_gradient = stop_gradient
    return fake


def _paddle_dtype(dtype: object) -> object:
    return getattr(paddle, dtype) if isinstance(dtype, str) else dtype


def _number_dtype(n: object, dtype: object) -> Any:
    """The element type of `to_tensor(n)` of a Python number."""
    if dtype is not None:
        return dtype_from(_paddle_dtype(dtype))
    floating = dtype_from(_paddle_dtype(paddle.get_default_dtype()))
    return {bool: BOOL, float: floating}.get(kind_of(n), I64)  # type: ignore[arg-type]


def _of_numbers(e: Emitter, data: Any, dtype: Any) -> object:
    """`to_tensor([a, b, ...])` of Python numbers, of which the program computes some."""
    if any(kind_of(q) is None for q in data):
        raise foreign.refusal(e.trace, "to_tensor", TypeError("numbers mixed with other values"))
    kinds = [_number_dtype(q, dtype) for q in data]
    floating = [k for k in kinds if k.kind == "f"]
    kind = floating[0] if floating else I64 if I64 in kinds else kinds[0]
    parts = [e.reshape(e.scalar(q, kind), shape=(1,)) for q in data]
    return e.concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _holds_tensor(data: object) -> bool:
    if isinstance(data, (list, tuple)):
        return any(_holds_tensor(q) for q in data)
    return isinstance(data, Tensor) or is_runtime(data) or is_array(data)


def _constant(
    trace: Trace, e: Emitter, original: Callable[..., Any], data: object, dtype: object
) -> object:
    with trace.pause():
        real = original(data, dtype=dtype)
    type = type_of(real)
    array: np.ndarray = _array(trace, real)
    if array.size and array.tobytes() == array.flat[0].tobytes() * array.size:
        return e.full(array.flat[0].item(), type.dtype, array.shape)
    name = f"constant_{sum(q.kind == 'const' for q in trace.inputs.by_id.values())}"
    return e.assign(trace.add_input(real, "const", name, type))


def _array(trace: Trace, real: Any) -> np.ndarray:
    with trace.pause():
        return real.numpy()
