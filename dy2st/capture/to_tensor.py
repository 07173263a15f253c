"""`paddle.to_tensor` inside translated code: Python data becomes part of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle

from dy2st.capture import foreign
from dy2st.state.arrays import is_array, tensor_of
from dy2st.state.stacked_run import KnownValue, StackedRun
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import Emitter, small
from dy2st.trace.fake_tensor import Tensor, dtype_from, type_of
from dy2st.trace.scalar import is_runtime, kind_of
from dy2st.trace.trace import Trace
from ir.types import BOOL, I64, dtype_of


def to_tensor(
    trace: Trace,
    original: Callable[..., object],
    data: object,
    dtype: object = None,
    place: object = None,
    stop_gradient: bool = True,
) -> object:
    """Numbers become `full`, arrays a const input, tensors a copy outside of autograd."""
    e = Emitter(trace)
    filled = _of_filled(e, data, dtype)
    if filled is not None:
        fake = filled
    elif any(isinstance(tensor_of(q), Tensor) for q in _leaves(data)):
        fake = _of_tensors(e, data, dtype)
    elif is_runtime(data):
        fake = e.scalar(data, _number_dtype(data, dtype))
    elif isinstance(data, (list, tuple)) and any(map(is_runtime, data)):
        fake = _of_numbers(e, data, dtype)
    elif isinstance(data, (list, tuple)) and any(map(is_runtime, _leaves(data))):
        fake = _of_tensors(e, data, dtype)
    else:
        fake = constant(trace, e, original, data, dtype)
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


def _of_numbers(e: Emitter, data: Any, dtype: object) -> object:
    """`to_tensor([a, b, ...])` of Python numbers, of which the program computes some."""
    if any(kind_of(q) is None for q in data):
        error = ValueError("numbers mixed with other values")
        raise foreign.refusal(e.trace, "to_tensor", error, eager=True)
    kinds = [_number_dtype(q, dtype) for q in data]
    floating = [k for k in kinds if k.kind == "f"]
    kind = floating[0] if floating else I64 if I64 in kinds else kinds[0]
    parts = [e.reshape(e.scalar(q, kind), shape=(1,)) for q in data]
    return e.concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _of_tensors(e: Emitter, data: object, dtype: object) -> Any:
    """`to_tensor` of a tensor or array, or of nested lists with some or with numbers that the
    program computes, which NumPy joins in eager. Lists of arrays and numbers only have the element
    types of lists of numbers."""
    kinds = [_numpy_dtype(e, tensor_of(q)) for q in _leaves(data)]
    kind = dtype_of(np.result_type(*kinds)) if dtype is None else dtype_from(_paddle_dtype(dtype))
    typed = any(isinstance(q, Tensor) for q in _leaves(data)) or is_array(data)
    if dtype is None and not typed:
        kind = _number_dtype({"f": 0.0, "b": False}.get(kind.kind, 0), None)

    def joined(q: object) -> Any:
        q = tensor_of(q)
        if isinstance(q, Tensor):
            return e.assign(e.cast_to(q, kind))
        if isinstance(q, (list, tuple)):
            parts = list(map(joined, q))
            if len({e.type(part).shape for part in parts}) > 1:
                error = ValueError("lists of different lengths, or tensors of different shapes")
                raise foreign.refusal(e.trace, "to_tensor", error, eager=True)
            return e.stack(*parts, axis=0)
        return e.scalar(q, kind)

    with paddle.no_grad():
        return joined(data)


def _of_filled(e: Emitter, data: Any, dtype: object) -> Any:
    """`to_tensor` of a list that loops have filled, without taking it apart; None for others."""
    filled = isinstance(data, TraceList) and data.segmented
    if not filled and isinstance(data, (list, tuple)) and len(data) == 1:
        row = _of_filled(e, data[0], dtype)
        return None if row is None else row.unsqueeze(0)
    if not filled:
        return None
    parts: list[Any] = data.parts()
    trees = [q.tree if isinstance(q, StackedRun) else q for q in parts]
    runs = [t for t, q in zip(trees, parts) if isinstance(q, StackedRun)]
    numbers = {getattr(t, "number", kind_of(t) is not None) for t in trees}
    if any(isinstance(t, (tuple, KnownValue)) for t in runs) or len(numbers) > 1:
        return None
    rows = [q.stacked(e.trace, 0) if isinstance(q, StackedRun) else None for q in parts]
    kind = dtype_of(np.result_type(*(
        _numpy_dtype(e, q if row is None else row) for q, row in zip(parts, rows)
    )))  # fmt: skip
    if dtype is not None:
        kind = dtype_from(_paddle_dtype(dtype))
    elif numbers == {True}:
        kind = _number_dtype({"f": 0.0, "b": False}.get(kind.kind, 0), None)
    with paddle.no_grad():
        pieces = [
            e.cast_to(row, kind) if row is not None else _one(e, q, kind)
            for q, row in zip(parts, rows)
        ]
        return e.assign(pieces[0]) if len(pieces) == 1 else e.concat(*pieces, axis=0)


def _one(e: Emitter, x: Any, kind: Any) -> Any:
    """A tensor or number as a row."""
    one = e.cast_to(x, kind) if isinstance(x, Tensor) else e.scalar(x, kind)
    return e.reshape(one, shape=(1, *e.type(one).shape))


def _numpy_dtype(e: Emitter, x: object) -> np.dtype[Any]:
    if isinstance(x, Tensor):
        return np.dtype(e.type(x).dtype.numpy)
    kind = kind_of(x)
    if kind is None:
        error = ValueError("tensors mixed with other values")
        raise foreign.refusal(e.trace, "to_tensor", error, eager=True)
    return np.dtype(kind)


def _leaves(data: object) -> Iterator[object]:
    if not isinstance(data, (list, tuple)):
        yield data
        return
    for q in data:
        yield from _leaves(q)


def _listed(data: object) -> object:
    """Lists that loops have filled as lists of their elements."""
    return list(map(_listed, data)) if isinstance(data, (list, tuple)) else data


def constant(
    trace: Trace, e: Emitter, original: Callable[..., object], data: object, dtype: object
) -> object:
    data = _listed(data)
    with trace.pause():
        real = original(data, dtype=dtype)
    type = type_of(real)
    array: np.ndarray = _array(trace, real)
    if array.size and array.tobytes() == array.flat[0].tobytes() * array.size:
        return e.full(array.flat[0].item(), type.dtype, array.shape)
    name = f"constant_{sum(q.kind == 'const' for q in trace.inputs.by_id.values())}"
    made = e.assign(trace.add_input(real, "const", name, type))
    if small(type):
        trace.know(made._value, array.reshape(-1).tolist())
    return made


def _array(trace: Trace, real: Any) -> np.ndarray:
    with trace.pause():
        return real.numpy()
