"""Products of complex matrices as one product of real ones.

(m, k) as it lies: (m, 2k)      (k, n) as (2k, 2n):   [ re  im]   for every element
                                                      [-im  re]
"""

from __future__ import annotations

from collections.abc import Sequence

from dy2st.capture.adapters import einsum as real_einsum
from dy2st.capture.adapters.complex.arithmetic import add, multiply
from dy2st.capture.adapters.complex.functions import sum_
from dy2st.capture.adapters.complex.table import (
    as_complex_tensor,
    complex_adapter,
    is_complex,
    of_pairs,
    pairs,
    result_type,
)
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from ir.types import DType


@complex_adapter("matmul")
def matmul(
    e: Emitter, x: object, y: object, transpose_x: bool = False, transpose_y: bool = False
) -> FakeTensor:
    x = _swapped(e, x) if transpose_x else x
    y = _swapped(e, y) if transpose_y else y
    row, column = e.type(x).ndim == 1, e.type(y).ndim == 1
    if row:
        x = e.reshape(x, shape=(1, *e.type(x).shape))
    if column:
        y = e.reshape(y, shape=(*e.type(y).shape, 1))
    out = _product(e, x, y, result_type(e, x, y))
    shape = list(e.type(out).shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return e.reshape(out, shape=tuple(shape)) if row or column else out


def _swapped(e: Emitter, x: object) -> object:
    n = e.type(x).ndim
    return x if n < 2 else e.transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def _product(e: Emitter, x: object, y: object, dtype: DType) -> FakeTensor:
    """Multiply tensors with two axes or more."""
    *_, m, k = e.type(x).shape
    *outer, rows, n = e.type(y).shape
    if not is_complex(e, y):
        right = e.cast_to(y, dtype.compute)
        if e.type(y).ndim > 2:
            return _product(e, x, as_complex_tensor(e, y, dtype), dtype)
        left = pairs(e, x, dtype)
        a = e.type(left).ndim
        left = e.transpose(left, perm=(*range(a - 2), a - 1, a - 2))
        out = e.matmul(left, right)
        return of_pairs(e, e.transpose(out, perm=(*range(a - 2), a - 1, a - 2)))
    right = pairs(e, y, dtype)
    if is_complex(e, x):
        left = pairs(e, x, dtype)
        left = e.reshape(left, shape=(*e.type(x).shape[:-1], k * 2))
        turned = e.stack(e.neg(_part(e, right, 1)), _part(e, right, 0), axis=-1)
        right = e.stack(right, turned, axis=-3)
        right = e.reshape(right, shape=(*outer, rows * 2, n * 2))
    else:
        left = e.cast_to(x, dtype.compute)
        right = e.reshape(right, shape=(*outer, rows, n * 2))
    out = e.matmul(left, right)
    return e.as_complex(e.reshape(out, shape=(*e.type(out).shape[:-1], n, 2)))  # type: ignore[no-any-return]


def _part(e: Emitter, x: object, k: int) -> object:
    return e.index(x, axis=-1, index=k)


class ComplexEmitter(Emitter):
    """Emits products and sums of complex tensors where rows have those of real ones."""

    def matmul(self, x: object, y: object) -> object:
        return matmul(Emitter(self.trace), x, y)

    def multiply(self, x: object, y: object) -> object:
        return multiply(Emitter(self.trace), x, y)

    def sum(self, x: object, axes: Sequence[int]) -> object:
        return sum_(Emitter(self.trace), x, axes)


@complex_adapter("einsum")
def einsum(e: Emitter, operands: Sequence[object], equation: str) -> tuple[FakeTensor, None, None]:
    dtype = result_type(e, *operands)
    if len(operands) == 1 and e.trains(*operands):
        raise NoRow("the gradient of an einsum of one complex operand, which eager conjugates")
    whole = [as_complex_tensor(e, x, dtype) for x in operands]
    return real_einsum.contracted(ComplexEmitter(e.trace), whole, equation), None, None


complex_adapter("Tensor.__matmul__")(lambda e, x, y: matmul(e, x, y))
complex_adapter("Tensor.__rmatmul__")(lambda e, x, y: matmul(e, y, x))


@complex_adapter("dot")
def dot(e: Emitter, x: object, y: object) -> FakeTensor:
    if e.type(x) != e.type(y) or not 1 <= e.type(x).ndim <= 2:
        raise NoRow("dot of different vectors")
    return sum_(e, multiply(e, x, y), (-1,))


@complex_adapter("linear_v2", "linear")
def linear(
    e: Emitter, x: object, weight: object, bias: object = None, transpose: bool = False
) -> object:
    out = matmul(e, x, weight, False, transpose)
    return out if bias is None else add(e, out, bias)


__all__ = ["einsum", "matmul"]
