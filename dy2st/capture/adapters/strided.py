"""Adapters of strided views: diagonals, windows, strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dy2st.capture.adapters.table import adapter, int_of
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, NoRow, detached, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor, dtype_from
from dy2st.trace.memory import Layout, exact, fix, offset_of, unknown
from ir.ops.strided import diagonal_length
from ir.types import Dim, Size, product


def strided(
    e: Emitter, x: object, lies: Layout, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim
) -> FakeTensor:
    """The view of `lies.source` with these strides, `offset` elements behind where `x` begins."""
    trace, fake = e.trace, lift(e.trace, x)
    if not lies.settled:
        raise unknown(trace, "a view by strides")
    fix(trace, trace.root(lies.source))
    source = fake
    if lies.source is not fake._value:
        value = detached(trace, lies.source) if fake.stop_gradient else lies.source
        source = trace.fake(value, fake.stop_gradient)
    flat = source
    if e.type(source).ndim != 1:
        flat = e.reshape(source, shape=(product(e.type(source).shape),))
    attrs = {"shape": tuple(shape), "strides": tuple(strides), "offset": lies.offset + offset}
    out: FakeTensor = e.strided(flat, **attrs)
    trace.autograd.viewed[out._value] = fake._value
    return out


@adapter("diagonal")
def diagonal(e: Emitter, x: object, offset: int = 0, axis1: int = 0, axis2: int = 1) -> FakeTensor:
    shape, offset = e.type(x).shape, int_of(offset)
    if not -len(shape) <= min(axis1, axis2) <= max(axis1, axis2) < len(shape):
        raise NoRow("an axis that is not there")
    a, b = axis1 % len(shape), axis2 % len(shape)
    if a == b or diagonal_length(shape, offset, a, b) is None:
        raise NoRow("a diagonal of named sizes")
    return e.diagonal(x, offset=offset, axis1=a, axis2=b)  # type: ignore[no-any-return]


@adapter("tensor_unfold")
def tensor_unfold(e: Emitter, x: object, axis: int, size: int, step: int) -> FakeTensor:
    shape = e.type(x).shape
    at, size, step = int_of(axis) % len(shape), int_of(size), int_of(step)
    n = shape[at]
    if step < 1 or size < 1 or isinstance(n, int) and size > n:
        raise NoRow("unfold with these sizes")
    return e.unfold(x, axis=at, size=size, step=step)


@adapter("as_strided")
def as_strided(
    e: Emitter, x: object, dims: Sequence[int] = (), stride: Sequence[int] = (), offset: int = 0
) -> FakeTensor:
    """Paddle counts `offset` in bytes from the beginning of the memory that `x` is a part of."""
    fake = lift(e.trace, x)
    lies, size = exact(e.trace, fake, "as_strided"), e.type(x).dtype.size
    start = int(offset) - offset_of(e.trace, lies.source)
    if start % size or not lies.settled:
        raise unknown(e.trace, "as_strided")
    return strided(e, x, replace(lies, offset=0), dims, stride, start // size)


@adapter("view_dtype")
def view_dtype(e: Emitter, x: Tensor, dtype: object) -> FakeTensor:
    if dtype_from(dtype) != e.type(x).dtype:
        raise refuse(
            f"a view of {e.type(x).dtype} as another dtype.",
            "A program has no tensors that share memory with other element types.",
            "Use `x.cast(dtype)` for the values; look at the bits outside.",
        )
    return e.alias(x)


@adapter("set_")
def set_(e: Emitter, x: Tensor, *args: object) -> FakeTensor:
    raise refuse(
        "a tensor is given the memory of another one, or another size.",
        "set_ and resize_ change the tensor under all of its names.",
        "Bind a new tensor, `x = y`, or write the values: `x.set_value(y)`.",
    )


@adapter("strided_slice")
def strided_slice(
    e: Emitter,
    x: Tensor,
    axes: Sequence[int],
    starts: Sequence[object],
    ends: Sequence[object],
    strides: Sequence[object],
) -> FakeTensor:
    out = x
    for a, start, end, step in zip(axes, starts, ends, strides):
        bounds = [e.literal(q) for q in (start, end, step)]
        n = e.type(out).shape[a]
        if isinstance(n, Size) or any(type(q) is not int for q in bounds):
            raise NoRow("a slice with bounds of the program")
        r = range(n)[slice(*bounds)]
        first = r.start if len(r) else 0
        out = e.slice(out, axis=int(a) % e.type(x).ndim, start=first, length=len(r), step=r.step)
    return e.alias(x) if out is x else out


__all__ = ["diagonal", "strided"]
