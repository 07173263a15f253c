"""Adapters of calls whose results have a data-dependent number of elements."""

from __future__ import annotations

from dy2st.capture.adapters.table import adapter, dtype_of, given, int_of, number_of
from dy2st.capture.data_sizes import as_size
from dy2st.capture.indexing.masks import Mask, selected
from dy2st.capture.indexing.selection import counting, positions
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import number
from dy2st.trace.scalar import check
from dy2st.trace.symint import dim_of
from ir.opdef import broadcast, collecting
from ir.types import BOOL, F64, I64, Dim, DType, product


@adapter("nonzero")
def nonzero(e: Emitter, x: Tensor) -> FakeTensor:
    """The indices of the elements that are not zero, one row for each."""
    t = e.type(x)
    flags = x if t.dtype == BOOL else e.not_equal(x, e.full(0, t.dtype))
    at, columns = positions(e, flags), list[FakeTensor]()
    for axis, n in enumerate(t.shape):
        inner = product(t.shape[axis + 1 :])
        column = at if inner == 1 else e.floor_divide(at, size(e, inner))
        columns.append(column if axis == 0 else e.remainder(column, size(e, n)))
    if not columns:
        return e.full(0, I64, (e.type(at).shape[0], 0))
    return e.stack(*columns, axis=1)


def size(e: Emitter, n: Dim) -> FakeTensor:
    return e.scalar(e.trace.sym(n), I64)


@adapter("masked_select")
def masked_select(e: Emitter, x: Tensor, mask: Tensor) -> FakeTensor:
    with collecting():  # the conditions are those of the two calls of expand
        shape = broadcast(e.type(x).shape, e.type(mask).shape)
    x, mask = (q if e.type(q).shape == shape else e.expand(q, shape=shape) for q in (x, mask))
    return selected(e, x, Mask(mask, 0))


# ---------------------------------------------------------------- equal elements
@adapter("unique")
def unique(
    e: Emitter,
    x: Tensor,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: object = (),
    dtype: object = None,
) -> tuple[FakeTensor, ...]:
    """The elements in order, each once; the first place of each, and further results."""
    x = flat(e, x, axis)
    order = e.order(x, axis=0, stable=True)
    first, inverse, counts = runs(e, e.gather(x, order, axis=0))
    places = e.scatter_nd(inverse, inverse, order, axis=0)
    found = e.gather(order, first, axis=0)
    integers = (e.cast_to(q, kind(dtype)) for q in (found, places, counts))
    return (e.detach(e.gather(x, found, axis=0)), *integers)


@adapter("unique_consecutive")
def unique_consecutive(
    e: Emitter,
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: object = (),
    dtype: object = None,
) -> tuple[FakeTensor, ...]:
    """Each run of equal elements as one, and further results."""
    x = flat(e, x, axis)
    first, inverse, counts = runs(e, x)
    integers = (e.cast_to(q, kind(dtype)) for q in (inverse, counts))
    return (e.detach(e.gather(x, first, axis=0)), *integers)


def flat(e: Emitter, x: Tensor, axis: object) -> Tensor:
    if axis and (e.type(x).ndim != 1 or [int_of(a) for a in axis] not in ([0], [-1])):  # type: ignore[attr-defined]
        raise NoRow("unique along an axis")
    return e.reshape(x, shape=(product(e.type(x).shape),))


def kind(dtype: object) -> DType:
    return dtype_of(dtype) if given(dtype) else I64


def runs(e: Emitter, x: Tensor) -> tuple[FakeTensor, FakeTensor, FakeTensor]:
    """Return the runs of equal elements: the start of each, the run of each element, and how
    long each is."""
    (n,) = e.type(x).shape
    numbers, zero, one = counting(e, n), e.full(0, I64), e.full(1, I64)
    before = e.gather(x, e.maximum(e.subtract(numbers, one), zero), axis=0)
    begins = e.logical_or(e.equal(numbers, zero), e.not_equal(x, before))
    first = positions(e, begins)
    inverse = e.subtract(e.cumsum(e.cast(begins, dtype=I64), axis=0), one)
    (length,) = e.type(first).shape
    ends = e.concat(first, e.reshape(size(e, n), shape=(1,)), axis=0)
    after = e.slice(ends, axis=0, start=1, length=length, step=1)
    return first, inverse, e.subtract(after, first)


@adapter("bincount")
def bincount(e: Emitter, x: Tensor, weights: object = None, minlength: object = 0) -> FakeTensor:
    """Count each number up to the largest one, or sum its weights."""
    x, least = e.cast_to(x, I64), number_of(minlength)
    if e.type(x).ndim != 1 or type(least) is not int:
        raise NoRow("bincount of a matrix")
    ok = e.all(e.greater_equal(x, e.full(0, I64)), axes=())
    check(e.trace, ok._value, "ValueError", "bincount: an element is negative")
    numbers = e.concat(e.add(x, e.full(1, I64)), e.full(least, I64, (1,)), axis=0)
    most = number(e.trace, e.max(numbers, axes=()), "bincount")
    if isinstance(weights, Tensor):
        dtype = e.type(weights).dtype
        weights = weights if dtype.kind == "f" else e.cast(weights, dtype=F64)
    else:
        weights = e.full(1, I64, e.type(x).shape)
    room = e.full(0, e.type(weights).dtype, (dim_of(as_size(e.trace, most)),))
    return e.detach(e.scatter_nd(room, weights, x, axis=0, combine="add"))
