"""Running sums, products and extremes along an axis, and linear recurrences.

`RUNNING` says how element k of a result comes from element k - 1 and element k of the operands, in
the scalar language. From the end to the start: turn the operand and the result around with slices,
which cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ir.scalar.exponential as fn
import ir.scalar.language as k
from ir.opdef import ShapeError, axis_in, example, op
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import Picked, number
from ir.program import Builder, Value
from ir.types import I64, Type


def log_add(a: k.Scalar, x: k.Scalar) -> k.Scalar:
    """log(exp(a) + exp(x)); of two equal infinities that one, NaN where one is NaN."""
    high, low = k.maximum(a, x), k.minimum(a, x)
    gap = low - high
    near = high + fn.log1p(fn.exp(gap))
    return k.select(k.eq(gap, gap), near, k.select(k.eq(high, low), high, near))


#: row -> element k from the result at k - 1 and the operands at k
RUNNING: dict[str, Callable[..., k.Scalar]] = {
    "cumsum": lambda last, x: last + x,
    "cumprod": lambda last, x: last * x,
    "cummax": k.maximum,
    "cummin": k.minimum,
    "logcumsumexp": log_add,
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


def _log_grad(b: Builder, g: Value, y: Value, x: Value, axis: int) -> list[Value]:
    """dx[k] = sum of g[j] exp(x[k] - y[j]) over j >= k; no exponent is positive."""
    ratio = b.exp(b.subtract(_shifted(b, y, axis, -np.inf), y))
    return [b.multiply(b.exp(b.subtract(x, y)), _backward(b, g, ratio, axis))]


def places_along(b: Builder, index: Value, axis: int) -> tuple[Value, ...]:
    """Index tensors, one per axis, of the elements that `index` names along `axis`."""
    shape, at = index.type.shape, axis % index.type.ndim
    out = []
    for a, n in enumerate(shape):
        row = tuple(n if k == a else 1 for k in range(len(shape)))
        own = b.expand(b.reshape(b.iota(n=n, dtype=I64), shape=row), shape=shape)
        out.append(index if a == at else own)
    return tuple(out)


def last_change(b: Builder, x: Value, y: Value, axis: int) -> Value:
    """Where the running extreme `y` of `x` was taken last, as i64 along `axis`."""
    shape = x.type.shape
    row = tuple(n if k == axis % len(shape) else 1 for k, n in enumerate(shape))
    count = b.reshape(b.iota(n=shape[axis], dtype=I64), shape=row)
    taken = b.equal(x, y)
    if x.type.dtype.kind == "f":
        taken = b.logical_or(taken, b.isnan(x))
    new: Value = b.cummax(b.where(taken, count, b.full(value=0, dtype=I64)), axis=axis)
    return new


def _extreme_grad(b: Builder, g: Value, y: Value, x: Value, axis: int) -> list[Picked]:
    index = last_change(b, x, y, axis)
    return [Picked(g, places_along(b, index, axis), 0)]


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


def _log_ref(x: np.ndarray, axis: int) -> np.ndarray:
    return np.logaddexp.accumulate(x.astype(np.longdouble), axis).astype(x.dtype)


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
_declare("logcumsumexp", "f", _log_ref, _log_grad)
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
for _name, _ref in (("cummax", np.maximum), ("cummin", np.minimum)):
    op(
        f"{_name}(x, *, axis)",
        types=_types(_name, "fi"),
        ref=lambda x, axis, _ref=_ref: _ref.accumulate(x, axis),
        grad=_extreme_grad,
        examples=(
            example("f32[3,4]", axis=1),
            example("i64[5,2,3]", axis=0),
            example("f32[0,4]", axis=0),
        ),
    )


__all__ = ["RUNNING", "last_change", "places_along", "reversed_"]
