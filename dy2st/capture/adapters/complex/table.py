"""The table of adapters of calls with complex numbers, and their helpers.

A complex tensor is recorded with a complex element type, which rows that move elements take. All
else is made of real operations on its parts: `planes` and `pairs` are views, `joined` makes a
complex tensor of two real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle
from paddle.base import core

from dy2st.capture.adapters.table import ADAPTERS, A, adapter
from dy2st.trace.emitter import Emitter, NoRow, lift
from dy2st.trace.fake_tensor import DTYPE_FROM_PADDLE, FakeTensor, Tensor
from dy2st.trace.memory import layout
from dy2st.trace.scalar import is_runtime
from ir.types import C64, C128, F64, FLOATS, DType
from ir.types import COMPLEX as OF_FLOATS

COMPLEX: dict[str, Callable[..., Tensor]] = {}
DTYPES = (paddle.complex64, paddle.complex128)


def takes_complex(*arguments: object) -> bool:
    """Whether a call has a complex tensor, number or element type among its arguments."""
    return any(map(_is_complex, arguments))


def _is_complex(a: object) -> bool:
    if isinstance(a, FakeTensor):
        return bool(a._value.type.dtype.kind == "c")
    if isinstance(a, Tensor):
        return a.dtype in DTYPES
    if isinstance(a, (list, tuple)):
        return any(map(_is_complex, a))
    if isinstance(a, dict):
        return any(map(_is_complex, a.values()))
    if isinstance(a, (core.DataType, core.VarDesc.VarType)):
        return a in DTYPES
    if isinstance(a, str):
        return a in ("complex64", "complex128")
    return isinstance(a, (complex, np.complexfloating))


def complex_adapter(*names: str) -> Callable[[A], A]:
    """Declare the adapter of entries for complex operands; others never see one."""

    def declare(f: A) -> A:
        held = {n: ADAPTERS.get(n) for n in names}
        adapter(*names)(f)
        for n, old in held.items():
            COMPLEX[n] = ADAPTERS.pop(n)
            if old is not None:
                ADAPTERS[n] = old
        return f

    return declare


# ---------------------------------------------------------------- types
def dtype_of(e: Emitter, x: object) -> DType:
    found: DType = e.type(x).dtype
    return found


def is_complex(e: Emitter, x: object) -> bool:
    return isinstance(x, Tensor) and dtype_of(e, x).kind == "c"


def complex_dtype(dtype: object) -> DType:
    """A complex element type that the user has named."""
    found = DTYPE_FROM_PADDLE.get(getattr(paddle, dtype) if isinstance(dtype, str) else dtype)
    if found not in (C64, C128):
        raise NoRow(f"dtype {dtype}")
    return found


def result_type(e: Emitter, *operands: object) -> DType:
    """The complex type of a result: the wider one of the tensors; numbers follow them."""
    wide = (F64, C128)
    found = [dtype_of(e, x) for x in operands if isinstance(x, Tensor)]
    if any(d.widened and d.kind == "f" for d in found):
        raise NoRow("complex numbers and floats of 16 bits")
    return C128 if any(d in wide for d in found) else C64


# ---------------------------------------------------------------- parts
def pairs(e: Emitter, x: object, dtype: DType) -> FakeTensor:
    """The parts of a complex tensor along a last axis, as those of `dtype`."""
    return e.cast_to(e.as_real(x), dtype.compute)  # type: ignore[no-any-return]


def planes(e: Emitter, x: object, dtype: DType) -> tuple[object, object]:
    """The real and the imaginary part of a tensor or number, as those of `dtype`; None in place of
    an imaginary part that is zero."""
    part = dtype.compute
    if not isinstance(x, Tensor):
        if is_runtime(x) or not isinstance(x, complex):
            return e.scalar(x, part), None
        return e.full(x.real, part), e.full(x.imag, part)
    if not is_complex(e, x):
        return e.cast_to(x, part), None
    both = pairs(e, x, dtype)
    return e.index(both, axis=-1, index=0), e.index(both, axis=-1, index=1)


def joined(e: Emitter, re: object, im: object) -> FakeTensor:
    """The complex tensor of two parts, which are broadcast; `im` may be None."""
    if im is None:
        im = e.full(0.0, e.type(re).dtype, e.type(re).shape)
    if e.type(re).shape != e.type(im).shape:
        zero = e.full(0.0, e.type(re).dtype)
        shape = e.type(e.add(re, im)).shape
        re, im = (
            q if e.type(q).shape == shape else e.add(q, e.expand(zero, shape=shape))
            for q in (re, im)
        )
    return e.as_complex(e.stack(re, im, axis=-1))  # type: ignore[no-any-return]


def of_pairs(e: Emitter, x: object) -> FakeTensor:
    """The complex tensor that views pairs of floats, or a copy of pairs that lie apart."""
    fake = lift(e.trace, x)
    found = layout(e.trace, fake._value)
    strides = None if found is None else found.strides
    if strides is None or strides[-1:] != (1,) or any(_odd(s) for s in strides[:-1]):
        x = e.assign(x)
    return e.as_complex(x)  # type: ignore[no-any-return]


def _odd(stride: object) -> bool:
    return not isinstance(stride, int) or bool(stride % 2)


def as_complex_tensor(e: Emitter, x: object, dtype: DType) -> FakeTensor:
    """A tensor or number as a complex tensor of `dtype`."""
    if is_complex(e, x):
        if dtype_of(e, x) == dtype:
            return lift(e.trace, x)
        return e.as_complex(pairs(e, x, dtype))  # type: ignore[no-any-return]
    return joined(e, *planes(e, x, dtype))


def axes_within(e: Emitter, x: object, axes: Sequence[int]) -> tuple[int, ...]:
    """Axes of a complex tensor as those of its pairs; none stand for all."""
    n = e.type(x).ndim
    for a in axes:
        if not -n <= a < max(n, 1):
            raise NoRow(f"axis {a} of {n}")
    return tuple(a % n for a in axes) if axes else tuple(range(n))


__all__ = [
    "COMPLEX", "FLOATS", "OF_FLOATS", "as_complex_tensor", "axes_within", "complex_adapter",
    "complex_dtype", "dtype_of", "is_complex", "joined", "of_pairs", "pairs", "planes",
    "result_type", "takes_complex",
]  # fmt: skip
