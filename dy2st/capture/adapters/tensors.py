"""Adapters of entries that make, move, join and cut tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.capture.adapters.table import adapter, axes_of, dims_of, dtype_of, given, int_of
from dy2st.capture.data_sizes import quotient
from dy2st.capture.to_tensor import constant
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, NoRow, lift, small
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.memory import layout
from dy2st.trace.scalar import is_runtime, is_runtime_scalar
from dy2st.trace.signals import Refused
from dy2st.trace.symint import dim_of, floored, is_symint, note_measured
from ir.loc import source_error
from ir.ops.tensor import resolve_shape
from ir.types import BOOL, F32, I32, I64, Dim, Size, divide, product


@adapter("full")
def full(
    e: Emitter, shape: object, value: object, dtype: object = None, place: object = None
) -> FakeTensor:
    kind = dtype_of(dtype) if given(dtype) else F32
    dims = dims_of(shape)
    if is_runtime(value):
        return e.expand(e.scalar(value, kind), shape=dims)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):  # Paddle's entry reads numbers in texts, "-inf" above all
        try:
            value = float(value) if kind.kind == "f" else int(value)
        except ValueError as error:
            raise NoRow(str(error)) from None
    if not isinstance(value, (bool, int, float)):
        raise NoRow("a fill value that is a tensor")
    value = bool(value) if kind == BOOL else float(value) if kind.kind == "f" else int(value)
    return e.full(value, kind, dims)


@adapter("full_like")
def full_like(
    e: Emitter, x: Tensor, value: object, dtype: object = None, place: object = None
) -> FakeTensor:
    kind = dtype if given(dtype) else x.dtype
    shape = [e.trace.sym(d) for d in e.type(x).shape]
    out = full(e, shape, value, kind, place)
    e.stop_gradient = True
    return out


def _filled(name: str, value: int) -> None:
    @adapter(name)
    def filled(e: Emitter, shape: object, dtype: object = None, place: object = None) -> FakeTensor:
        return full(e, shape, value, dtype, place)

    @adapter(f"{name}_like")
    def filled_like(
        e: Emitter, x: object, dtype: object = None, place: object = None
    ) -> FakeTensor:
        return full_like(e, x, value, dtype, place)


_filled("zeros", 0)
_filled("ones", 1)


@adapter("arange")
def arange(
    e: Emitter, start: Any, end: Any, step: Any, dtype: object, place: object = None
) -> object:
    start, end, step = (e.literal(q) for q in (start, end, step))
    if any(q is None or is_runtime_scalar(q) for q in (start, end, step)):
        raise NoRow("arange of tensors")
    kind = dtype_of(dtype)
    if kind.kind != "f":
        start, end, step = (int(q) if isinstance(q, float) else q for q in (start, end, step))
    if not any(is_symint(q) for q in (start, end, step)):
        n: Dim = max(0, math.ceil((end - start) / step))
    elif step == 1 and not any(isinstance(q, float) for q in (start, end)):
        n = dim_of(end) - dim_of(start)
        e.trace.require(n, 0, "arange")
    elif (steps := _steps(e, start, end, step)) is not None:
        n = steps
        e.trace.require(n, 0, "arange")
    else:
        raise refuse(
            "arange with these bounds and steps cannot be translated.",
            "How many numbers that makes does not follow from the named sizes.",
            "Scale and shift `paddle.arange(n)`.",
        )
    if is_symint(start):
        counted = e.wrap(
            e.trace.emit("iota", [], {"n": n, "start": 0, "step": step, "dtype": kind})
        )
        return e.add(counted, e.scalar(start, kind))
    attrs = {"n": n, "start": start, "step": step, "dtype": kind}
    out = e.wrap(e.trace.emit("iota", [], attrs))
    if isinstance(n, int) and small(out._value.type) and kind.kind != "f":
        e.trace.know(out._value, [start + step * k for k in range(n)])
    return out


def _steps(e: Emitter, start: object, end: object, step: Any) -> Dim | None:
    """Return the number of steps to an end that is a size, if that is one."""
    if any(isinstance(q, float) and q != int(q) for q in (start, end, step)) or is_symint(step):
        return None
    gap = dim_of(end) - dim_of(start) if is_symint(end) else None
    if gap is None or int(step) < 1:
        return None
    exact = divide(gap, int(step))
    return floored(e.trace, gap + (int(step) - 1), int(step)) if exact is None else exact


@adapter("assign")
def assign(e: Emitter, x: object) -> FakeTensor:
    return e.assign(x)


@adapter("share_data_", "share_data", "view_shape_noop")
def share_data(e: Emitter, x: object) -> FakeTensor:
    return e.alias(x)


@adapter("view_shape")
def view_shape(e: Emitter, x: Tensor, shape: Sequence[object]) -> FakeTensor:
    if not shares_when_reshaped(e, x, tuple(dims_of(shape))):
        raise Refused(
            source_error(ValueError)(
                "view of a tensor whose strides do not allow it.",
                e.trace.where(),
                reason="Eager Paddle refuses it, too.",
                remedy="Use reshape, which copies where it has to.",
            )
        )
    return reshape(e, x, shape)


@adapter("reshape")
def reshape(e: Emitter, x: object, shape: object) -> FakeTensor:
    dims = list(dims_of(shape))
    have = e.type(x).shape
    for i, d in enumerate(dims):
        if d == 0 and isinstance(d, int) and i < len(have) and 0 not in have:
            for n in have:
                e.trace.require(n, 1, "reshape with a 0 in the shape")
            dims[i] = have[i]
    if dims.count(-1) == 1:
        rest, known = dims.index(-1), product(d for d in dims if d != -1)
        dims[rest] = quotient(e.trace, product(have), known, otherwise=-1)
    if not shares_when_reshaped(e, x, tuple(dims)):
        x = e.assign(x)
    return e.reshape(x, shape=tuple(dims))


def shares_when_reshaped(e: Emitter, x: object, shape: tuple[Dim, ...]) -> bool:
    """False where the strides of `x` forbid a view; True also where they are not known. Paddle
    copies a 0-d tensor, too."""
    have, fake = e.type(x), lift(e.trace, x)
    if not have.shape:
        return not shape
    if have.names or any(isinstance(d, Size) for d in shape) or 0 in have.shape:
        return True
    lies = layout(e.trace, fake._value)
    if lies is None:
        return True
    return lies.reshape(resolve_shape(have, shape)) is not None


@adapter("flatten")
def flatten(e: Emitter, x: object, start_axis: int = 1, stop_axis: int = 1) -> FakeTensor:
    shape = e.type(x).shape
    if not shape:
        return reshape(e, x, (1,))
    a, b = start_axis % len(shape), stop_axis % len(shape)
    total: Dim = 1
    for d in shape[a : b + 1]:
        total = total * d
    return reshape(e, x, tuple(map(e.trace.sym, (*shape[:a], total, *shape[b + 1 :]))))


@adapter("squeeze")
def squeeze(e: Emitter, x: object, axis: object = ()) -> FakeTensor:
    shape = e.type(x).shape
    axes = [a % len(shape) for a in axes_of(axis)] or range(len(shape))
    for a in axes:
        if isinstance(shape[a], Size):
            e.trace.require_sign(shape[a] - 1, "ne")
    gone = [a for a in axes if shape[a] == 1]
    return e.reshape(x, shape=tuple(d for i, d in enumerate(shape) if i not in gone))


@adapter("unsqueeze")
def unsqueeze(e: Emitter, x: object, axis: object) -> FakeTensor:
    shape: list[Dim] = list(e.type(x).shape)
    for a in axes_of(axis):
        n = len(shape) + 1
        if not -n <= a < n:
            raise NoRow(f"unsqueeze at {a}")
        shape.insert(a % n, 1)
    return e.reshape(x, shape=tuple(shape))


@adapter("transpose")
def transpose(e: Emitter, x: Tensor, perm: Sequence[int]) -> FakeTensor:
    n = e.type(x).ndim
    return e.transpose(x, perm=tuple(int(p) % n for p in perm))


@adapter("expand")
def expand(e: Emitter, x: object, shape: object) -> FakeTensor:
    dims, have = list(dims_of(shape)), e.type(x).shape
    for i in range(1, min(len(dims), len(have)) + 1):
        if dims[-i] == -1:
            dims[-i] = have[-i]
    return e.expand(x, shape=tuple(dims))


@adapter("expand_as")
def expand_as(
    e: Emitter, x: object, y: object = None, target_shape: Sequence[object] = ()
) -> FakeTensor:
    shape = e.type(y).shape if y is not None else tuple(target_shape)
    return e.expand(x, shape=shape)


@adapter("concat")
def concat(e: Emitter, x: Sequence[object], axis: object = 0) -> FakeTensor:
    parts = list(x)
    kinds = {e.type(p).dtype for p in parts}
    if len(kinds) > 1:
        raise NoRow("concat of several dtypes")
    if len({e.type(p).ndim for p in parts}) > 1:
        raise NoRow("concat of tensors with different ranks")
    return e.concat(*parts, axis=int_of(axis))


@adapter("stack")
def stack(e: Emitter, x: Sequence[object], axis: int = 0) -> FakeTensor:
    return e.stack(*list(x), axis=int_of(axis))


@adapter("split")
def split(e: Emitter, x: object, sections: object, axis: object = 0) -> list[FakeTensor]:
    at, parts = int_of(axis), list(dims_of(sections))
    size = e.type(x).shape[at]
    if parts.count(-1) == 1:
        rest = size - sum(d for d in parts if d != -1)
        e.trace.require(rest, 0, "split with -1")
        parts = [rest if d == -1 else d for d in parts]
    return _pieces(e, x, at, parts)


@adapter("split_with_num")
def split_with_num(e: Emitter, x: object, num: int, axis: object = 0) -> list[FakeTensor]:
    at = int_of(axis)
    size = e.type(x).shape[at]
    if isinstance(size, Size) or int(num) < 1 or size % int(num):
        raise NoRow("split of a named size")
    return _pieces(e, x, at, [size // int(num)] * int(num))


def _pieces(e: Emitter, x: object, axis: int, sections: Sequence[Dim]) -> list[FakeTensor]:
    out = e.split(x, axis=axis % e.type(x).ndim, sections=tuple(sections))
    return list(out) if isinstance(out, tuple) else [out]


@adapter("unbind")
def unbind(e: Emitter, x: object, axis: int = 0) -> list[FakeTensor]:
    at = int_of(axis) % e.type(x).ndim
    n = e.type(x).shape[at]
    if isinstance(n, Size):
        raise NoRow("unbind of a named size")
    return [e.index(x, axis=at, index=i) for i in range(n)]


@adapter("unstack")
def unstack(e: Emitter, x: object, axis: int = 0, num: int = 0) -> list[FakeTensor]:
    return [e.assign(p) for p in unbind(e, x, axis)]


@adapter("flip")
def flip(e: Emitter, x: object, axis: object) -> FakeTensor:
    out = x
    for a in axes_of(axis):
        n = e.type(out).shape[a]
        out = e.slice(out, axis=a % e.type(x).ndim, start=n - 1, length=n, step=-1)
    return e.assign(out)


def _triangle(e: Emitter, row: str, x: object, diagonal: int) -> FakeTensor:
    if is_runtime(diagonal):
        return _moving_triangle(e, row, x, diagonal)
    if e.type(x).dtype != BOOL:
        return getattr(e, row)(x, diagonal=int(diagonal))  # type: ignore[no-any-return]
    return e.cast(getattr(e, row)(e.cast(x, dtype=I32), diagonal=int(diagonal)), dtype=BOOL)


def _moving_triangle(e: Emitter, row: str, x: object, diagonal: object) -> FakeTensor:
    """The triangle at a diagonal that the program computes."""
    if e.type(x).ndim < 2:
        raise NoRow("a triangle of a vector")
    rows, columns = e.type(x).shape[-2:]
    first = e.add(e.iota(n=rows, dtype=I64), e.scalar(diagonal, I64))
    keep = e.less_equal if row == "tril" else e.greater_equal
    test = keep(e.iota(n=columns, dtype=I64), e.reshape(first, shape=(rows, 1)))
    return e.where(test, x, e.full(0, e.type(x).dtype, ()))


adapter("tril")(lambda e, x, diagonal=0: _triangle(e, "tril", x, diagonal))
adapter("triu")(lambda e, x, diagonal=0: _triangle(e, "triu", x, diagonal))


@adapter("linspace")
def linspace(
    e: Emitter, start: object, stop: object, num: object, dtype: object, place: object = None
) -> object:
    """For numbers that the trace knows: a constant, which Paddle computes."""
    numbers = [e.literal(q) for q in (start, stop, num)]
    if any(type(q) not in (int, float) for q in numbers):
        raise NoRow("linspace of numbers that are not known")
    with e.trace.pause():
        real = paddle.linspace(*numbers, dtype=dtype).numpy()
    return constant(e.trace, e, paddle.to_tensor, real, None)


@adapter("meshgrid")
def meshgrid(e: Emitter, xs: Sequence[object]) -> list[FakeTensor]:
    if any(e.type(x).dtype != e.type(xs[0]).dtype or e.type(x).ndim > 1 for x in xs):
        raise NoRow("tensors of several types")
    sizes = [e.type(x).shape[0] if e.type(x).ndim else 1 for x in xs]
    rows = [[n if a == k else 1 for a in range(len(xs))] for k, n in enumerate(sizes)]
    alone = (e.reshape(x, shape=tuple(row)) for x, row in zip(xs, rows))
    return [e.assign(e.expand(x, shape=tuple(sizes))) for x in alone]


@adapter("pixel_shuffle")
def pixel_shuffle(e: Emitter, x: object, factor: int, data_format: str = "NCHW") -> FakeTensor:
    """The channels of a pixel become a square of pixels."""
    n, c, h, w = e.type(x).shape
    r = int_of(factor)
    if data_format != "NCHW" or not isinstance(c, int) or c % (r * r):
        raise NoRow("pixel_shuffle of these images")
    parts = e.reshape(x, shape=(n, c // (r * r), r, r, h, w))
    spread = e.assign(e.transpose(parts, perm=(0, 1, 4, 2, 5, 3)))
    return e.reshape(spread, shape=(n, c // (r * r), h * r, w * r))


@adapter("slice")
def slice_(
    e: Emitter,
    x: Tensor,
    axes: Sequence[int],
    starts: Sequence[object],
    ends: Sequence[object],
    flags: object = (),
    decrease: Sequence[int] = (),
) -> FakeTensor:
    if any(isinstance(q, Tensor) for s in (starts, ends) for q in s):
        raise NoRow("a slice with tensor bounds")
    out = x
    for a, start, end in zip(axes, starts, ends):
        n = e.type(out).shape[a]
        low, high = _clamp(e, start, n), _clamp(e, end, n)
        gap = high - low
        if isinstance(gap, int):
            gap = max(0, gap)
        out = e.slice(out, axis=int(a), start=low, length=gap, step=1)
    shape = [d for i, d in enumerate(e.type(out).shape) if i not in set(decrease)]
    return e.reshape(out, shape=tuple(shape)) if decrease else out


def _clamp(e: Emitter, at: Any, n: Dim) -> Dim:
    """A slice bound as Python clamps it; for named sizes the typical case is a condition."""
    if isinstance(n, int) and not is_symint(at):
        at = int(at) + n if at < 0 else int(at)
        return min(max(at, 0), n)
    size = e.trace.sym(n)
    note_measured(e.trace, [at], n)
    at = at + size if at < 0 else at
    if at < 0:
        return 0
    return dim_of(size if at > size else at)
