"""Rules of running sums, products and linear recurrences: the last result is the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ir.program import Op, Value
from ir.streaming.chunks import Chunk, ChunkBuilder
from ir.streaming.facts import Stream
from ir.streaming.rules import emit, rule

#: what leaves the running value as it is
IDENTITY = {"cumsum": 0, "cumprod": 1, "recurrence": 0}


@rule(*IDENTITY)
def running(c: ChunkBuilder, op: Op, xs: Sequence[Chunk]) -> Sequence[Chunk]:
    """y[k] from y[k - 1] and x[k]: the chunk begins with the last result of the one before."""
    ndim = op.result.type.ndim
    xs, s = c.aligned(xs, [x.stream.axis if isinstance(x.fact, Stream) else 0 for x in xs])
    axis = op.attrs["axis"] % ndim
    if axis != s.axis:
        return [Chunk(emit(c, op, [x.value for x in xs]), s)]
    start = IDENTITY[op.name]
    x = c.plain(xs[-1], "a running value")
    if s.uniform or s.delay > 0:
        x = c.masked(x, start)
        xs = [c.masked(q, 0) if isinstance(q.fact, Stream) else q for q in xs]
    t = x.value.type
    shape = (*t.shape[:axis], 1, *t.shape[axis + 1 :])
    state = c.state(f"{op.name} at {op.loc}", np.full(c.numbers(shape), start, t.dtype.numpy))
    values: list[Value] = [c.b.concat(state, x.value, axis=axis)]
    if op.name == "recurrence":
        one = c.b.full(value=1, shape=shape, dtype=t.dtype)
        values.insert(0, c.b.concat(one, xs[0].value, axis=axis))
    y, n = emit(c, op, values), c.frames_of(s)
    c.keep(state, c.b.slice(y, axis=axis, start=n, length=1))
    new = c.b.slice(y, axis=axis, start=1, length=n)
    return [Chunk(new, replace(s, uniform=False, outside=None))]
