"""Running sums and products along an axis, and linear recurrences.

`RUNNING` says how element k of a result comes from element k - 1 and element k of the operands, in
the scalar language. From the end to the start: turn the operand and the result around with slices,
which cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ir.scalar.language as k
from ir.opdef import ShapeError, axis_in, example, op
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import number
from ir.program import Builder, Value
from ir.types import Type

#: row -> element k from the result at k - 1 and the operands at k
RUNNING: dict[str, Callable[..., k.Scalar]] = {
    "cumsum": lambda last, x: last + x,
    "cumprod": lambda last, x: last * x,
    "recurrence": lambda last, a, x: last * a + x,
}


def reversed_(b: Builder, x: Value, axis: int) -> Value:
    n = x.type.shape[axis]
    if n == 0:
        return x
    new: Value = b.slice(x, axis=axis, start=n - 1, length=n, step=-1)
    return new


def _shifted(b: Builder, x: Value, axis: int, first: float) -> Value:
    """`first`, then all elements but the last."""
    at = axis % x.type.ndim
    n = x.type.shape[at]
    one = x.type.with_shape((*x.type.shape[:at], 1, *x.type.shape[at + 1 :]))
    start = b.expand(number(b, first, x), shape=one.shape)
    longer = b.concat(start, x, axis=at)
    new: Value = b.slice(longer, axis=at, start=0, length=n)
    return new


def _backward(b: Builder, g: Value, a: Value, axis: int) -> Value:
    """s[k] = g[k] + a[k + 1] * s[k + 1]."""
    back = _shifted(b, reversed_(b, a, axis), axis, 0.0)
    new: Value = b.recurrence(back, reversed_(b, g, axis), axis=axis)
    return reversed_(b, new, axis)


def _sum_grad(b: Builder, g: Value, y: Value, x: Value, axis: int) -> list[Value]:
    return [reversed_(b, b.cumsum(reversed_(b, g, axis), axis=axis), axis)]


def _prod_grad(b: Builder, g: Value, y: Value, x: Value, axis: int) -> list[Value]:
    """Right also where x has zeros."""
    return [b.multiply(_shifted(b, y, axis, 1.0), _backward(b, g, x, axis))]


def _recurrence_grad(b: Builder, g: Value, y: Value, a: Value, x: Value, axis: int) -> list[Value]:
    dx = _backward(b, g, a, axis)
    return [b.multiply(dx, _shifted(b, y, axis, 0.0)), dx]


def _types(name: str, kinds: str) -> Callable[..., Type]:
    def types(*xs: Type, axis: int) -> Type:
        require_kind(name, xs[0], kinds)
        same_dtype(name, *xs)
        axis_in(axis, xs[0].ndim)
        if any(x != xs[0] for x in xs):
            raise ShapeError(f"{name} of {' and '.join(map(str, xs))}")
        return xs[0]

    return types


def _recurrence_ref(a: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    out, first = np.array(x), np.moveaxis(a, axis, 0)
    rows = np.moveaxis(out, axis, 0)
    for n in range(1, len(rows)):
        rows[n] += first[n] * rows[n - 1]
    return out


def _declare(name: str, kinds: str, ref: Any, grad: Any = None, low: float = -2.0) -> None:
    op(
        f"{name}(x, *, axis)",
        types=_types(name, kinds),
        ref=ref,
        grad=grad,
        examples=(
            example("f32[3,4]", axis=1, low=low),
            example("f64[5,2,3]", axis=0, low=low),
            example("f32[2,7,35]", axis=1, low=low),
            *((example("i64[3,4]", axis=-1),) if "i" in kinds else ()),
            example("f32[0,4]", axis=0),
            example("f32[3,0]", axis=0),
            example("f32[1]", axis=0, low=low),
        ),
    )


_declare("cumsum", "fi", lambda x, axis: np.cumsum(x, axis, dtype=x.dtype), _sum_grad)
_declare("cumprod", "fi", lambda x, axis: np.cumprod(x, axis, dtype=x.dtype), _prod_grad)
op(
    "recurrence(a, x, *, axis)",
    types=_types("recurrence", "f"),
    ref=_recurrence_ref,
    grad=_recurrence_grad,
    examples=(
        example("f32[3,4]", "f32[3,4]", axis=1, low=-1, high=1),
        example("f64[5,2]", "f64[5,2]", axis=0, low=-1, high=1),
        example("f32[0,4]", "f32[0,4]", axis=0),
    ),
)
__all__ = ["RUNNING", "reversed_"]
