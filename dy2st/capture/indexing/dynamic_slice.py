"""Dynamic slices: `x[i : i + k]` with bounds that the program computes, a view of k elements.

The length is known when the program is made where both bounds are one value plus constants. Eager
Paddle cuts such a slice when it leaves the axis; the program fails when it runs. Slices with other
bounds are as long as the program finds out (`dy2st.capture.indexing.slices`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dy2st.trace.emitter import Emitter, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.trace import Frame, Trace
from ir import Op, Value
from ir.types import I64, product


def window(e: Emitter, x: object, axis: int, item: slice) -> FakeTensor | None:
    """The view, or None for a slice of another kind."""
    first, end = _computed(e, item.start), _computed(e, item.stop)
    if first is None or end is None or item.step not in (None, 1):
        return None
    (low, a), (high, b) = _place(e.trace, first), _place(e.trace, end)
    n = e.type(x).shape[axis]
    if low is None or low is not high or not 0 < b - a or isinstance(n, int) and b - a > n:
        return None
    start = e.trace.fake(first)
    if start._value.type.shape:
        start = e.reshape(start, shape=())
    return e.dynamic_slice(x, e.cast_to(start, I64), axis=axis, length=b - a)


def _computed(e: Emitter, q: object) -> Value | None:
    """The value of a bound that the program computes."""
    if is_runtime_scalar(q):
        return q.value  # type: ignore[no-any-return]
    if not isinstance(q, Tensor) or e.literal(q) is not None:
        return None
    value: Value = lift(e.trace, q)._value
    return value if value.type.dtype.kind == "i" and value.type.shape in ((), (1,)) else None


def _place(trace: Trace, value: Value) -> tuple[Value | None, int]:
    """(base, k) where `value` is base + k; no base where it may have changed in between."""
    offset = 0
    for frame in reversed(trace.frames):
        made = {r: (at, op) for at, op in enumerate(frame.builder.ops) for r in op.results}
        first = len(frame.builder.ops)
        while value in made:
            first, op = made[value]
            step = _step(trace, op) if isinstance(op, Op) else None
            if step is None:
                break
            value, offset = step[0], offset + step[1]
        if _written(trace, frame, first, value):
            return None, 0
        if value in made or value not in trace.values.parent:
            break
        value = trace.values.parent[value]
    return value, offset


def _step(trace: Trace, op: Op) -> tuple[Value, int] | None:
    """Match an op that adds a constant to an operand: the operand and the constant."""
    if _hands_on(op):
        return op.operands[0], 0
    if op.name == "scale" and op.attrs["scale"] == 1 and op.attrs["bias"] % 1 == 0:
        return op.operands[0], int(op.attrs["bias"])
    if op.name not in ("add", "subtract"):
        return None
    (x, y), sign = op.operands, -1 if op.name == "subtract" else 1
    known = _constant(trace, y)
    if known is not None:
        return x, sign * known
    known = _constant(trace, x) if op.name == "add" else None
    return None if known is None else (y, known)


def _hands_on(op: Op) -> bool:
    """Whether the result is the integer that is the operand."""
    if len(op.operands) != 1 or not (op.row.moves_only or op.name == "cast"):
        return False
    t = op.operands[0].type
    return t.dtype.kind == "i" and product(t.shape) == 1


def _constant(trace: Trace, value: Value) -> int | None:
    elements = trace.known(value)
    found = elements[0] if elements is not None and len(elements) == 1 else None
    for op in _ops(trace):
        if op.name == "full" and op.result is value:
            found = op.attrs["value"]
    return found if type(found) is int else None


def _ops(trace: Trace) -> Iterator[Op]:
    return (op for f in trace.frames for op in f.builder.ops if isinstance(op, Op))


def _written(trace: Trace, frame: Frame, first: int, value: Value) -> bool:
    """Whether the storage of `value` may have been written since op number `first`."""
    root = trace.root(value)
    if root not in trace.values.written:
        return False
    later = frame.builder.ops[first:]
    return any(
        not isinstance(op, Op) or op.row.writes and trace.root(op.operands[0]) is root
        for op in later
    )


__all__ = ["window"]
