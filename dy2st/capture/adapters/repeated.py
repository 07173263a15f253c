"""Adapters of calls that repeat elements, and of overlapping windows of a signal."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from dy2st.capture.adapters.table import adapter, dims_of, given, int_of, number_of
from dy2st.capture.indexing import selection
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import check
from ir.opdef import broadcast, collecting
from ir.types import FLOATS, I64, Dim


@adapter("tile")
def tile(e: Emitter, x: object, repeat_times: object = ()) -> FakeTensor:
    """The tensor behind itself, along each axis."""
    times = list(dims_of(repeat_times if isinstance(repeat_times, (list, tuple)) else ()))
    if not times:
        raise NoRow("tile by a tensor")
    shape = list(e.type(x).shape)
    shape[:0] = [1] * (len(times) - len(shape))
    times[:0] = [1] * (len(shape) - len(times))
    pairs = [q for d in shape for q in (1, d)]
    wide = [q for n, d in zip(times, shape) for q in (n, d)]
    return repeated(e, x, pairs, wide, [n * d for n, d in zip(times, shape)])


@adapter("repeat_interleave")
def repeat_interleave(
    e: Emitter, x: object, repeats: object = 1, axis: object = 0, output_size: object = -1
) -> FakeTensor:
    """Each element behind itself, along one axis."""
    n = number_of(repeats)
    if type(n) is not int or n < 0:
        raise NoRow("repeats that are a tensor")
    factors = [1] * e.type(x).ndim
    factors[int_of(axis)] = n
    return each_repeated(e, x, factors)


@adapter("repeat_interleave_with_tensor_index")
def repeat_interleave_with_tensor_index(
    e: Emitter, x: Tensor, repeats: Tensor, axis: object = 0, output_size: object = -1
) -> FakeTensor:
    """Row i of `x` as often as `repeats[i]` says."""
    at, total = int_of(axis), e.type(x).shape[int_of(axis)]
    counts = e.cast_to(repeats, I64)
    if e.type(counts).ndim != 1:
        raise NoRow(f"repeats of shape {list(e.type(counts).shape)}")
    if e.type(counts).shape != (total,):
        one = e.type(counts).shape == (1,)
        counts = e.expand(counts, shape=(total,)) if one else e.reshape(counts, shape=(total,))
    ok = e.all(e.greater_equal(counts, e.full(0, I64)), axes=())
    check(e.trace, ok._value, "ValueError", "repeat_interleave: a number of repeats is negative")
    return e.gather(x, selection.repeated_positions(e, counts), axis=at)


def each_repeated(e: Emitter, x: object, factors: Sequence[int]) -> FakeTensor:
    shape = e.type(x).shape
    pairs = [q for d in shape for q in (d, 1)]
    wide = [q for d, n in zip(shape, factors) for q in (d, n)]
    return repeated(e, x, pairs, wide, [d * n for d, n in zip(shape, factors)])


def repeated(
    e: Emitter, x: object, pairs: Sequence[Dim], wide: Sequence[Dim], shape: Sequence[Dim]
) -> FakeTensor:
    """`x` as `pairs`, expanded to `wide`, in memory of its own as `shape`."""
    found: FakeTensor = e.expand(e.reshape(x, shape=tuple(pairs)), shape=tuple(wide))
    return e.assign(e.reshape(found, shape=tuple(shape)))


@adapter("broadcast_tensors")
def broadcast_tensors(e: Emitter, tensors: Sequence[Tensor]) -> list[FakeTensor]:
    """Each in the shape that all of them have together, in memory of its own."""
    with collecting():  # the conditions are those of the calls of expand
        shape = functools.reduce(broadcast, (e.type(x).shape for x in tensors))
    return [e.assign(e.expand(x, shape=shape)) for x in tensors]


# ---------------------------------------------------------------- windows of a signal
@adapter("frame")
def frame(e: Emitter, x: Tensor, length: object, hop: object, axis: object = -1) -> FakeTensor:
    """`[..., length, windows]`, or `[windows, length, ...]` along the first axis."""
    size, step, last = int_of(length), int_of(hop), e.type(x).ndim - 1
    first = _is_first(axis)
    at = 0 if first else last
    n = e.type(x).shape[at]
    if size < 1 or step < 1 or isinstance(n, int) and size > n:
        raise NoRow("windows of these sizes")
    found = e.unfold(x, axis=at, size=size, step=step)
    around = range(last + 2)
    perm = (0, last + 1, *around[1:-1]) if first else (*around[:-2], last + 1, last)
    return e.assign(e.transpose(found, perm=perm))


@adapter("overlap_add")
def overlap_add(e: Emitter, x: Tensor, hop: object, axis: object = -1) -> FakeTensor:
    """`[..., length, windows]` added up where windows overlap: the signal in pieces of `hop`."""
    t, step, first = e.type(x), int_of(hop), _is_first(axis)
    if t.ndim < 2 or t.dtype not in FLOATS or step < 1:
        raise NoRow(f"overlap_add of {t}")
    around = tuple(range(2, t.ndim) if first else range(t.ndim - 2))
    pair = (0, 1) if first else (t.ndim - 1, t.ndim - 2)
    y = e.transpose(x, perm=(*around, *pair))
    *outer, windows, length = e.type(y).shape
    if not isinstance(length, int) or windows == 0:
        raise NoRow("windows of a named size")
    pieces, axis = -(-length // step), len(outer)
    if pieces * step > length:
        rest = e.full(0.0, t.dtype, (*outer, windows, pieces * step - length))
        y = e.concat(y, rest, axis=axis + 1)
    y, total = e.reshape(y, shape=(*outer, windows, pieces, step)), None
    for k in range(pieces):
        part = e.index(y, axis=axis + 1, index=k)
        before, behind = (e.full(0.0, t.dtype, (*outer, n, step)) for n in (k, pieces - 1 - k))
        part = e.concat(*[before][: k > 0], part, *[behind][: k < pieces - 1], axis=axis)
        total = part if total is None else e.add(total, part)
    flat = e.reshape(total, shape=(*outer, (windows + (pieces - 1)) * step))
    flat = e.slice(flat, axis=axis, start=0, length=(windows - 1) * step + length)
    back = (axis, *range(axis)) if first else tuple(range(axis + 1))
    return e.assign(e.transpose(flat, perm=back))


def _is_first(axis: object) -> bool:
    """Whether windows lie along the first axis or the last one, as Paddle's kernels take them."""
    if not given(axis) or int_of(axis) not in (0, -1):
        raise NoRow(f"windows along axis {axis}")
    return int_of(axis) == 0


__all__ = [
    "broadcast_tensors", "each_repeated", "frame", "overlap_add", "repeat_interleave", "tile"
]  # fmt: skip
