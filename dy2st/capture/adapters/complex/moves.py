"""Adapters of entries that create complex tensors or move elements of any type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dy2st.capture.adapters.complex.table import (
    COMPLEX,
    as_complex_tensor,
    complex_adapter,
    complex_dtype,
    dtype_of,
    joined,
    result_type,
)
from dy2st.capture.adapters.table import ADAPTERS, dims_of, given, int_of
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor, Tensor
from ir.types import C64, C128

#: entries that read, move or write whole elements: their adapters emit rows that take any type
MOVING = (
    "assign share_data_ share_data view_shape_noop view_shape reshape flatten squeeze unsqueeze "
    "transpose expand expand_as concat split split_with_num unbind unstack flip slice "
    "strided_slice roll tile gather gather_nd index_select meshgrid shape shape64 numel"
).split()
for _name in MOVING:
    if _name in ADAPTERS:
        COMPLEX[_name] = ADAPTERS[_name]


@complex_adapter("full")
def full(
    e: Emitter, shape: object, value: object, dtype: object = None, place: object = None
) -> FakeTensor:
    kind = complex_dtype(dtype) if given(dtype) else C128 if isinstance(value, complex) else C64
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) not in (bool, int, float, complex):
        raise NoRow("a fill value that is computed")
    return e.full(value, kind, dims_of(shape))


@complex_adapter("full_like")
def full_like(
    e: Emitter, x: object, value: object, dtype: object = None, place: object = None
) -> FakeTensor:
    kind = complex_dtype(dtype) if given(dtype) else dtype_of(e, x)
    if type(value) not in (bool, int, float, complex) or kind.kind != "c":
        raise NoRow("a fill value that is computed, or of another type")
    out = e.full(value, kind, e.type(x).shape)
    e.stop_gradient = True
    return out


def _filled(name: str, value: float) -> None:
    complex_adapter(name)(
        lambda e, shape, dtype=None, place=None: full(e, shape, value, dtype, place)
    )
    complex_adapter(f"{name}_like")(
        lambda e, x, dtype=None, place=None: full_like(e, x, value, dtype, place)
    )


_filled("zeros", 0.0)
_filled("ones", 1.0)


@complex_adapter("stack")
def stack(e: Emitter, x: Sequence[object], axis: int = 0) -> FakeTensor:
    dtype = result_type(e, *x)
    return e.stack(*(as_complex_tensor(e, q, dtype) for q in x), axis=int_of(axis))  # type: ignore[no-any-return]


@complex_adapter("eye")
def eye(
    e: Emitter, rows: object, columns: object, dtype: object = None, place: object = None
) -> FakeTensor:
    kind = complex_dtype(dtype)
    return joined(e, ADAPTERS["eye"](e, rows, columns, DTYPE_TO_PADDLE[kind.compute]), None)


@complex_adapter("pad3d")
def pad3d(
    e: Emitter,
    x: object,
    paddings: Sequence[int],
    mode: str,
    value: float = 0.0,
    data_format: str = "NCDHW",
) -> FakeTensor:
    """Its numbers begin with the last axis of the image."""
    if mode != "constant" or data_format != "NCDHW":
        raise NoRow("another padding")
    ends = [int(p) for p in paddings]
    pairs = [ends[k : k + 2] for k in range(0, len(ends), 2)][::-1]
    return pad(e, x, [0, 0, 0, 0, *(q for p in pairs for q in p)], value)


@complex_adapter("pad")
def pad(e: Emitter, x: Tensor, paddings: Sequence[int], value: float = 0.0) -> FakeTensor:
    """Constants around each axis."""
    sizes = [int(p) for p in paddings]
    if len(sizes) != 2 * e.type(x).ndim or min(sizes, default=0) < 0 or isinstance(value, Tensor):
        raise NoRow("another padding")
    out = x
    for axis in range(e.type(x).ndim):
        shape = e.type(out).shape
        around = [
            e.full(value, dtype_of(e, x), (*shape[:axis], n, *shape[axis + 1 :])) if n else None
            for n in sizes[2 * axis : 2 * axis + 2]
        ]
        parts = [q for q in (around[0], out, around[1]) if q is not None]
        out = e.concat(*parts, axis=axis) if len(parts) > 1 else out
    return e.assign(x) if out is x else out  # type: ignore[no-any-return]


__all__ = ["full"]
