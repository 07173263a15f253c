"""Paddle's gather and scatter functions, without their look at index and mask values.

The program checks its indices when it runs; a mask that selects too many elements is an index out
of range there, too.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor
from paddle.tensor import manipulation

from dy2st.trace.user_stack import paddle_assertion


def put_values(arr: Tensor, indices: Tensor, values: Tensor, axis: int, broadcast: bool) -> Tensor:
    """The arguments of the kernel."""
    if len(arr.shape) != len(indices.shape):
        raise ValueError("`indices` and `arr` must have the same number of dimensions!")
    axis = manipulation.non_negative_axis(arr, axis)
    if not isinstance(values, paddle.Tensor):
        values = paddle.to_tensor(values)
        if not broadcast:
            values = values.astype(arr.dtype)
            values = paddle.broadcast_to(values, indices.shape)
    if not broadcast:
        check_sizes(arr, indices, values, axis)
        return indices, values, axis
    wide = manipulation.infer_broadcast_shape(arr, indices, axis)
    if wide:
        indices = paddle.broadcast_to(indices, wide)
    return indices, paddle.broadcast_to(values, indices.shape), axis


def check_sizes(arr: Tensor, indices: Tensor, values: Tensor, axis: int) -> None:
    if len(indices.shape) != len(values.shape):
        raise ValueError("`indices` and `values` must have the same number of dimensions!")
    for i in range(len(arr.shape)):
        small = i != axis and arr.shape[i] < indices.shape[i]
        if small or indices.shape[i] > values.shape[i]:
            raise RuntimeError(
                f"Size does not match at dimension {i}: index {indices.shape}, tensor {arr.shape}, "
                f"values {values.shape}"
            )


def put_along_axis(
    arr: object,
    indices: object,
    values: object,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
    broadcast: bool = True,
) -> Tensor:
    at, new, axis = put_values(arr, indices, values, axis, broadcast)
    return paddle._C_ops.put_along_axis(arr, at, new, axis, reduce, include_self)


def put_along_axis_(
    arr: object,
    indices: object,
    values: object,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
    broadcast: bool = True,
) -> Tensor:
    at, new, axis = put_values(arr, indices, values, axis, broadcast)
    return paddle._C_ops.put_along_axis_(arr, at, new, axis, reduce, include_self)


def scatter_add(input: object, dim: int, index: object, src: object) -> object:
    return put_along_axis(input, index, src, dim, "add", True, False)


def scatter_add_(input: object, dim: int, index: object, src: object) -> object:
    return put_along_axis_(input, index, src, dim, "add", True, False)


def scatter_reduce(
    input: object, dim: int, index: object, src: object, reduce: str, *, include_self: bool = True
) -> object:
    kind = {"sum": "add", "prod": "multiply"}.get(reduce, reduce)
    return put_along_axis(input, index, src, dim, kind, include_self, False)


def selected(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """The whole mask, and at its k-th true element the k-th element of `value`."""
    if x.dtype != value.dtype:
        paddle_assertion(f"x and value must have the same dtype: {x.dtype}, {value.dtype}")
    if mask.dtype != paddle.bool:
        paddle_assertion(f"the mask is bool, not {mask.dtype}")
    mask = paddle.logical_and(mask, paddle.ones_like(x, dtype="bool"))
    count = paddle.cumsum(mask.astype("int64"))
    before = paddle.maximum(count - 1, paddle.zeros_like(count))
    return mask, paddle.gather(value.flatten(), before).reshape(mask.shape)


def masked_scatter(x: Tensor, mask: Tensor, value: Tensor, name: object = None) -> Tensor:
    mask, picked = selected(x, mask, value)
    return paddle.where(mask, picked, x)


def masked_scatter_(x: Tensor, mask: Tensor, value: Tensor, name: object = None) -> Tensor:
    mask, picked = selected(x, mask, value)
    return paddle.where_(paddle.logical_not(mask), x, picked)


_OWN = (
    put_along_axis,
    put_along_axis_,
    scatter_add,
    scatter_add_,
    scatter_reduce,
    masked_scatter,
    masked_scatter_,
)
#: what is converted and called instead of a function, by identity
REWRITTEN: dict[Any, Any] = {
    getattr(home, f.__name__): f
    for home in (paddle, paddle.Tensor, manipulation)
    for f in _OWN
    if hasattr(home, f.__name__)
}
REWRITTEN.update({f: f for f in (*_OWN, put_values, check_sizes, selected)})
