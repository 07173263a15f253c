"""Arithmetic of complex tensors and numbers, comparisons, and element types.

A factor or divisor that is real, and a real addend, act on the parts; so does eager, apart from
infinite numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from dy2st.capture.adapters.complex.table import (
    COMPLEX,
    OF_FLOATS,
    as_complex_tensor,
    complex_adapter,
    complex_dtype,
    dtype_of,
    is_complex,
    joined,
    of_pairs,
    pairs,
    planes,
    result_type,
)
from dy2st.capture.adapters.table import adapter
from dy2st.capture.adapters.table import dtype_of as named_dtype
from dy2st.trace.emitter import Emitter, NoRow, detached
from dy2st.trace.fake_tensor import DTYPE_FROM_PADDLE, FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime
from ir.types import DType


def add(e: Emitter, x: object, y: object) -> FakeTensor:
    return _sum(e, "add", x, y)


def subtract(e: Emitter, x: object, y: object) -> FakeTensor:
    return _sum(e, "subtract", x, y)


def _sum(e: Emitter, row: str, x: object, y: object) -> FakeTensor:
    dtype, emit = result_type(e, x, y), getattr(e, row)
    if is_complex(e, x) and is_complex(e, y):
        return e.as_complex(emit(pairs(e, x, dtype), pairs(e, y, dtype)))  # type: ignore[no-any-return]
    (a, b), (c, d) = planes(e, x, dtype), planes(e, y, dtype)
    if d is None:
        return joined(e, emit(a, c), b)
    return joined(
        e,
        emit(a, c),
        d if row == "add" and b is None else emit(b, d) if b is not None else e.neg(d),
    )


def multiply(e: Emitter, x: object, y: object) -> FakeTensor:
    dtype = result_type(e, x, y)
    if is_complex(e, y) and not is_complex(e, x) or not isinstance(x, Tensor):
        x, y = y, x
    if is_complex(e, x) and not (is_complex(e, y) or isinstance(y, complex)):
        return _by_part(e, "multiply", x, y, dtype)
    (a, b), (c, d) = planes(e, x, dtype), planes(e, y, dtype)
    if b is None:
        return joined(e, e.multiply(a, c), e.multiply(a, d))
    re = e.subtract(e.multiply(a, c), e.multiply(b, d))
    return joined(e, re, e.add(e.multiply(a, d), e.multiply(b, c)))


def divide(e: Emitter, x: object, y: object) -> FakeTensor:
    """By the parts of the divisor over the larger of them, as their squares may be out of range;
    the quotient does not depend on what they are divided by, so no gradient goes there."""
    dtype = result_type(e, x, y)
    if not (is_complex(e, y) or isinstance(y, complex)):
        return _by_part(e, "divide", as_complex_tensor(e, x, dtype), y, dtype)
    (a, b), (c, d) = planes(e, x, dtype), planes(e, y, dtype)
    scale = e.maximum(e.abs(c), e.abs(d))
    scale = e.trace.fake(detached(e.trace, e.value(scale)))
    c, d = e.divide(c, scale), e.divide(d, scale)
    size = e.multiply(e.add(e.square(c), e.square(d)), scale)
    re, im = e.multiply(a, c), e.neg(e.multiply(a, d))
    if b is not None:
        re, im = e.add(re, e.multiply(b, d)), e.add(im, e.multiply(b, c))
    return joined(e, e.divide(re, size), e.divide(im, size))


def _by_part(e: Emitter, row: str, x: object, y: Tensor, dtype: DType) -> FakeTensor:
    """Both parts of `x` and a real `y`."""
    both = pairs(e, x, dtype)
    if not isinstance(y, Tensor):
        if row == "multiply" and not is_runtime(y):
            return e.as_complex(e.scale(both, scale=float(y)))  # type: ignore[no-any-return]
        return e.as_complex(getattr(e, row)(both, e.scalar(y, dtype.compute)))  # type: ignore[no-any-return]
    y = e.cast_to(y, dtype.compute)
    y = e.reshape(y, shape=(*e.type(y).shape, 1))
    return e.as_complex(getattr(e, row)(both, y))  # type: ignore[no-any-return]


def negative(e: Emitter, x: object) -> FakeTensor:
    return e.as_complex(e.neg(e.as_real(x)))  # type: ignore[no-any-return]


def equal(e: Emitter, x: object, y: object) -> FakeTensor:
    dtype = result_type(e, x, y)
    a, b = (pairs(e, as_complex_tensor(e, q, dtype), dtype) for q in (x, y))
    return e.all(e.equal(a, b), axes=(-1,))  # type: ignore[no-any-return]


def not_equal(e: Emitter, x: object, y: object) -> FakeTensor:
    return e.logical_not(equal(e, x, y))  # type: ignore[no-any-return]


def power(e: Emitter, x: object, n: object) -> FakeTensor:
    """Small whole powers, as products."""
    if is_runtime(n) or not isinstance(n, (int, float)) or int(n) != n or not 1 <= abs(n) <= 8:
        raise NoRow("a power of a complex tensor that is no small whole number")
    k = abs(int(n))
    out = None
    while k:
        if k & 1:
            out = x if out is None else multiply(e, out, x)
        k >>= 1
        x = multiply(e, x, x) if k else x
    return divide(e, 1.0, out) if n < 0 else e.assign(out)  # type: ignore[no-any-return]


Binary = Callable[[Emitter, Tensor, Tensor], FakeTensor]
OPERATORS: dict[str, Binary] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "div": divide,
}
ENTRIES: dict[str, Binary] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "equal": equal,
    "not_equal": not_equal,
}
for _name, _f in OPERATORS.items():
    complex_adapter(f"Tensor.__{_name}__")(lambda e, x, y, _f=_f: _f(e, x, y))
    complex_adapter(f"Tensor.__r{_name}__")(lambda e, x, y, _f=_f: _f(e, y, x))
for _name, _f in ENTRIES.items():
    complex_adapter(_name)(lambda e, x, y, axis=-1, _f=_f: _f(e, x, y))
complex_adapter("Tensor.__eq__")(lambda e, x, y: equal(e, x, y))
complex_adapter("Tensor.__ne__")(lambda e, x, y: not_equal(e, x, y))
complex_adapter("Tensor.__pow__")(lambda e, x, y: power(e, x, y))
complex_adapter("pow")(lambda e, x, y: power(e, x, y))
complex_adapter("square")(lambda e, x: multiply(e, x, x))
complex_adapter("reciprocal")(lambda e, x: divide(e, 1.0, x))


@complex_adapter("scale")
def scale(
    e: Emitter, x: object, scale: object = 1.0, bias: object = 0.0, after: bool = True
) -> FakeTensor:
    if not all(isinstance(q, (int, float, complex)) for q in (scale, bias)):
        raise NoRow("a scale that is a tensor")
    if not after and bias:
        x = add(e, x, bias)
    out = multiply(e, x, scale)
    return add(e, out, bias) if after and bias else out


@complex_adapter("add_n")
def add_n(e: Emitter, xs: Sequence[Tensor]) -> FakeTensor:
    return functools.reduce(lambda a, b: add(e, a, b), xs)


@complex_adapter("where")
def where(e: Emitter, condition: object, x: object, y: object) -> FakeTensor:
    dtype = result_type(e, x, y)
    a, b = (pairs(e, as_complex_tensor(e, q, dtype), dtype) for q in (x, y))
    return e.where(condition, e.as_complex(a), e.as_complex(b))


@complex_adapter("cast")
def cast(e: Emitter, x: object, dtype: object) -> FakeTensor:
    """To floats: the real part."""
    found = DTYPE_FROM_PADDLE.get(dtype)
    if found is not None and found.kind == "c":
        same = dtype_of(e, x) == found
        return e.assign(x) if same else as_complex_tensor(e, x, found)  # type: ignore[no-any-return]
    want = named_dtype(dtype)
    if want.kind != "f":
        raise NoRow("complex numbers as integers")
    re = e.index(e.as_real(x), axis=-1, index=0)
    return e.assign(re) if e.type(re).dtype == want else e.cast(re, dtype=want)  # type: ignore[no-any-return]


@adapter("complex")
def complex_(e: Emitter, re: object, im: object) -> FakeTensor:
    kind = dtype_of(e, re)
    if kind not in OF_FLOATS or dtype_of(e, im) != kind:
        raise NoRow("parts of these types")
    return joined(e, re, im)


@adapter("as_complex")
def as_complex(e: Emitter, x: object) -> FakeTensor:
    if dtype_of(e, x) not in OF_FLOATS:
        raise NoRow("pairs of this type")
    return of_pairs(e, x)


__all__ = ["COMPLEX", "add", "complex_dtype", "divide", "multiply", "negative", "subtract"]
