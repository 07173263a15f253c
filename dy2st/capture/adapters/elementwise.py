"""Adapters of elementwise entries, arithmetic with Paddle's promotion, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dy2st.capture.adapters.table import adapter, dtype_of
from dy2st.capture.promotion import result_dtype
from dy2st.trace.emitter import Emitter, NoRow, detached
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime
from ir import OPS
from ir.types import BOOL, F32, F64, I32, DType


def _plain(name: str, row: str) -> None:
    adapter(name)(lambda e, x: getattr(e, row)(x))


for _row in list(OPS.values()):
    if _row.paddle and not _row.attrs and len(_row.operands) == 1 and not _row.variadic:
        _plain(_row.paddle, _row.name)
_plain("swish", "silu")


def arithmetic(e: Emitter, row: str, x: object, y: object) -> FakeTensor:
    dtype = result_dtype(e.trace, row, e.type(x), e.type(y))
    if dtype.widened:
        raise NoRow(str(dtype))
    return getattr(e, row)(e.cast_to(x, dtype), e.cast_to(y, dtype))


def comparison(e: Emitter, row: str, x: object, y: object) -> FakeTensor:
    a, b = e.type(x), e.type(y)
    if a.dtype != b.dtype:
        result_dtype(e.trace, "compare", a, b)
        wide = result_dtype(e.trace, "add", a, b)
        x, y = e.cast_to(x, wide), e.cast_to(y, wide)
    elif a.dtype == BOOL and row not in ("equal", "not_equal"):
        x, y = e.cast(x, dtype=I32), e.cast(y, dtype=I32)
    return getattr(e, row)(x, y)


ARITHMETIC = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "floor_divide": "floor_divide",
    "remainder": "remainder",
    "elementwise_pow": "pow",
    "maximum": "maximum",
    "minimum": "minimum",
    "copysign": "copysign",
}
COMPARISONS = "equal not_equal less_than less_equal greater_than greater_equal".split()
for _name, _to in ARITHMETIC.items():
    adapter(_name)(lambda e, x, y, axis=-1, _to=_to: arithmetic(e, _to, x, y))
for _name in COMPARISONS:
    adapter(_name)(lambda e, x, y, axis=-1, _to=_name: comparison(e, _to, x, y))
for _name in ("logical_and", "logical_or", "logical_xor"):
    adapter(_name)(lambda e, x, y, _to=_name: getattr(e, _to)(x, y))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    adapter(_name)(lambda e, x, y, _to=_name: getattr(e, _to)(x, y))


@adapter("scale")
def scale(
    e: Emitter, x: object, scale: object = 1.0, bias: object = 0.0, after: bool = True
) -> FakeTensor:
    if not (isinstance(scale, (int, float)) and isinstance(bias, (int, float))):
        raise NoRow("a scale that is a tensor")
    if is_runtime(scale) or is_runtime(bias):
        return _symbolic_scale(e, x, scale, bias, after)
    return e.scale(x, scale=float(scale), bias=float(bias), bias_after_scale=bool(after))


def _symbolic_scale(e: Emitter, x: object, scale: object, bias: object, after: bool) -> FakeTensor:
    dtype = e.type(x).dtype
    s, b = e.scalar(scale, dtype), e.scalar(bias, dtype)
    return e.add(e.multiply(x, s), b) if after else e.multiply(e.add(x, b), s)


@adapter("pow")
def pow_(e: Emitter, x: object, y: float | Tensor = 1.0) -> FakeTensor:
    if isinstance(y, Tensor):
        return arithmetic(e, "pow", x, y)
    if is_runtime(y) or e.type(x).dtype.kind != "f":
        raise NoRow("an integer power")
    if float(y) == 2.0:
        return e.square(x)
    return e.pow(x, exponent(e, y, e.type(x).dtype))


def exponent(e: Emitter, n: Any, dtype: DType) -> object:
    """A Python number as Paddle's kernel of powers gets it: with 32 bits."""
    if dtype == F64 and is_runtime(n):
        return e.cast(e.scalar(n, F32), dtype=F64)
    return e.scalar(n if is_runtime(n) else float(np.float32(n)), dtype)


@adapter("atan2")
def atan2(e: Emitter, x: object, y: object) -> FakeTensor:
    """The angle of (y, x), from the quotient of the smaller side and the larger one. The gradient
    is not that of these steps."""
    t, of_y = e.type(x), e.type(y)
    if t.dtype not in (F32, F64) or of_y.dtype != t.dtype or e.trains(x, y):
        raise NoRow("atan2 of these types, or its gradient")

    def number(value: float) -> FakeTensor:
        return e.full(value, t.dtype)

    a, b = e.abs(x), e.abs(y)
    low, high = e.minimum(a, b), e.maximum(a, b)
    even = e.where(e.equal(high, number(0.0)), number(0.0), number(1.0))
    angle = e.atan(e.where(e.equal(low, high), even, e.divide(low, high)))
    angle = e.where(e.greater_than(a, b), e.subtract(number(np.pi / 2), angle), angle)
    behind = e.less_than(e.copysign(number(1.0), y), number(0.0))
    angle = e.where(behind, e.subtract(number(np.pi), angle), angle)
    return e.copysign(angle, x)


@adapter("clip")
def clip(e: Emitter, x: Tensor, min: object, max: object) -> FakeTensor:
    if type(min) in (int, float) and type(max) in (int, float):
        return e.clip(x, min=min, max=max)
    for bound, outside in ((min, e.less_than), (max, e.greater_than)):
        limit = _bound(e, bound, e.type(x).dtype)
        x = e.where(outside(x, limit), limit, x)
    return x


def _bound(e: Emitter, bound: object, dtype: DType) -> object:
    """A bound as a 0-d tensor; Paddle gives those that are tensors no gradient."""
    if not isinstance(bound, Tensor):
        return e.scalar(bound, dtype)
    value = detached(e.trace, e.value(bound))
    one = e.reshape(e.trace.fake(value, True), shape=())
    return e.cast_to(one, dtype)


@adapter("relu6")
def relu6(e: Emitter, x: object) -> FakeTensor:
    return e.hardtanh(x, min=0.0, max=6.0)


@adapter("leaky_relu")
def leaky_relu(e: Emitter, x: object, negative_slope: float = 0.02) -> FakeTensor:
    return e.leaky_relu(x, negative_slope=float(negative_slope))


@adapter("elu")
def elu(e: Emitter, x: object, alpha: float = 1.0) -> FakeTensor:
    return e.elu(x, alpha=float(np.float32(alpha)))


@adapter("softplus")
def softplus(e: Emitter, x: object, beta: float = 1.0, threshold: float = 20.0) -> FakeTensor:
    return e.softplus(x, beta=float(beta), threshold=float(threshold))


@adapter("gelu")
def gelu(e: Emitter, x: object, approximate: bool = False) -> FakeTensor:
    return e.gelu(x, approximate=bool(approximate))


@adapter("add_n")
def add_n(e: Emitter, xs: Sequence[object]) -> FakeTensor:
    """The sum of tensors of one type, from the first to the last."""
    first, *rest = xs
    if any(e.type(q) != e.type(first) for q in rest) or e.type(first).dtype not in (F32, F64):
        raise NoRow("add_n of these types")
    out = e.assign(first)
    for q in rest:
        out = e.add(out, q)
    return out


@adapter("where")
def where(e: Emitter, condition: object, x: object, y: object) -> FakeTensor:
    dtype = result_dtype(e.trace, "where", e.type(x), e.type(y))
    return e.where(condition, e.cast_to(x, dtype), e.cast_to(y, dtype))


@adapter("cast")
def cast(e: Emitter, x: object, dtype: object) -> FakeTensor:
    want = dtype_of(dtype)
    return e.assign(x) if e.type(x).dtype == want else e.cast(x, dtype=want)
