"""The elements that a mask selects: their number depends on data.

The positions of the true elements, in order, are an index tensor whose length is a size of the
program; what is selected is gathered by it.
"""

from __future__ import annotations

import numpy as np
import paddle

from dy2st.capture.data_sizes import once
from dy2st.trace.emitter import Emitter, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import size_of
from ir.types import I64, Dim, product


def positions(e: Emitter, flags: Tensor) -> FakeTensor:
    """Return the positions where a bool tensor is true: i64[n] in the order of its elements."""
    value = lift(e.trace, flags)._value
    return once(e.trace, "positions", value, lambda: _positions(e, flags))


def _positions(e: Emitter, flags: Tensor) -> FakeTensor:
    known = e.elements(flags)
    if known is not None and all(type(q) is bool for q in known):
        at = [k for k, q in enumerate(known) if q]
        return e.wrap(lift(e.trace, paddle.to_tensor(np.array(at, np.int64)))._value)
    total = product(e.type(flags).shape)
    flat = e.reshape(flags, shape=(total,))
    order, count = e.positions(flat)
    length = size_of(e.trace, count._value, total)
    return e.slice(order, axis=0, start=0, length=length, step=1)


def repeated_positions(e: Emitter, counts: Tensor) -> FakeTensor:
    """Number i as often as `counts[i]`, an i64[m], says: i64[n]."""
    value = lift(e.trace, counts)._value
    return once(e.trace, "repetitions", value, lambda: _repeated_positions(e, counts))


def _repeated_positions(e: Emitter, counts: Tensor) -> FakeTensor:
    one, ends = e.full(1, I64), e.cumsum(counts, axis=0)
    length = size_of(e.trace, e.sum(counts, axes=())._value, e.trace.sizes.new_capacity())
    first = e.subtract(ends, counts)
    ones = e.expand(one, shape=e.type(counts).shape)
    begun = e.scatter_nd(e.full(0, I64, (length + 1,)), ones, first, axis=0, combine="add")
    inside = e.slice(begun, axis=0, start=0, length=length, step=1)
    return e.subtract(e.cumsum(inside, axis=0), one)


def counting(e: Emitter, n: Dim) -> FakeTensor:
    """i64[n]: 0, 1, 2, ..."""
    return e.wrap(e.trace.emit("iota", [], {"n": n, "start": 0, "step": 1, "dtype": I64}))


__all__ = ["counting", "positions", "repeated_positions"]
