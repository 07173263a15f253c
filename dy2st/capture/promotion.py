"""Result types of binary operators, asked of Paddle once per pair of element types.

The real operator runs on one-element tensors, so the answer (also for pairs that Paddle
refuses) is eager's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle

from dy2st.trace.emitter import NoRow
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, dtype_from
from dy2st.trace.trace import Trace
from ir.types import DType, Type

#: what is not called as an entry of two operands; all else is asked of the entry of that name
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "pow": lambda x, y: x**y,
    "matmul": lambda x, y: paddle.matmul(x, y),
    "compare": lambda x, y: x < y,
    "where": lambda x, y: paddle.where(paddle.ones([1], "bool"), x, y),
}


@functools.cache
def _ask(function: str, x: Type, y: Type, default: object) -> DType | str:
    one = [paddle.ones(t.shape, DTYPE_TO_PADDLE[t.dtype]) for t in (x, y)]
    call = _FUNCTIONS.get(function) or getattr(paddle._C_ops, function)
    try:
        with paddle.no_grad():
            dtype = call(*one).dtype
    except (TypeError, ValueError, RuntimeError) as e:
        return str(e)
    return dtype_from(dtype)


def result_dtype(trace: Trace, function: str, x: Type, y: Type) -> DType:
    """The element type of `function` of two tensors, which also depends on whether one of them has
    no axes; raises NoRow where Paddle refuses them."""
    if x.dtype == y.dtype and function not in ("divide",):
        return x.dtype
    one = (Type(t.dtype, (1,) if t.ndim or function == "matmul" else ()) for t in (x, y))
    with trace.pause():
        answer = _ask(function, *one, paddle.get_default_dtype())
    if isinstance(answer, str):
        raise NoRow(answer)
    return answer
