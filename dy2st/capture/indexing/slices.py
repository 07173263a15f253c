"""Basic indexing, axis by axis: integers, symbolic integers, 0-d tensors and slices, as views."""

from __future__ import annotations

from typing import Any

from dy2st.trace.conditions import at_most, check_cut, check_cuts, surely_at_most
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import size_of
from dy2st.trace.scalar import RuntimeScalar, check, is_runtime_scalar, sources, stop, value_in
from dy2st.trace.signals import IndexOutOfRange, NeedsConcrete
from dy2st.trace.symint import bounds, dim_of, is_symint, note_measured
from dy2st.trace.trace import Trace
from ir import ENDLESS
from ir.messages import HOLE
from ir.types import I64, Dim, Size


def picked(e: Emitter, x: Tensor, axis: int, item: Any) -> FakeTensor:
    n = e.type(x).shape[axis]
    known = e.literal(item)
    item = item if known is None else known
    if is_runtime_scalar(item):
        return e.dynamic_index(x, e.trace.fake(item.value), axis=axis)
    if isinstance(item, Tensor):
        return e.dynamic_index(x, e.cast_to(item, I64), axis=axis)
    if not is_symint(item):
        at = int(item)
        index: Dim = at + n if at < 0 else at
        return e.index(x, axis=axis, index=index)
    return symbolic_pick(e, x, axis, item, n)


def symbolic_pick(e: Emitter, x: Tensor, axis: int, item: Any, n: Any) -> FakeTensor:
    if item.loops:
        ends = bounds(item.dim, e.trace)
        return e.dynamic_index(x, in_range(e, item, n, ends), axis=axis)
    return e.index(x, axis=axis, index=dim_of(item + e.trace.sym(n) if item < 0 else item))


def in_range(e: Emitter, item: Any, n: Dim, ends: Any) -> object:
    """The index, counted from the front where that is known; negative ones wrap when they run."""
    if ends is None:
        return item
    gap = ends[1] - n
    if isinstance(gap, int) and gap >= 0 and not any(q.open for q in item.loops):
        raise IndexOutOfRange(f"index {item!r} leaves an axis of {n}", item.loops)
    high = ends[1]
    if isinstance(high, int) and high < 0:
        return e.trace.sym(item.dim + n)
    return item


def sliced(e: Emitter, x: object, axis: int, item: slice) -> object:
    n = e.type(x).shape[axis]
    step: Any = 1 if item.step is None else item.step
    for q in (item.start, item.stop, step):
        if is_runtime_scalar(q) and (step is q or step != 1 or not unknown(q)):
            raise stop(q, "the bound of a slice")
    if is_symint(step):
        raise NeedsConcrete("a slice with a step of the program", step.loops)
    if item.start is None and item.stop is None and step == 1:
        return x
    ends = (item.start, item.stop)
    if not any(is_symint(q) or is_runtime_scalar(q) for q in ends) and not isinstance(n, Size):
        r = range(n)[item]
        return e.slice(x, axis=axis, start=r.start if len(r) else 0, length=len(r), step=step)
    note_measured(e.trace, ends, n)
    return _symbolic_slice(e, x, axis, item, n, step)


def _left_out(item: slice) -> int:
    """Return a lower bound of the number of elements that a non-empty `x[a:b]` leaves out."""
    front, end = (q if type(q) is int else 0 for q in (item.start, item.stop))
    return max(front, 0) + max(-end, 0)


def _most(trace: Trace, item: slice, n: Dim) -> Dim:
    """Return an upper bound of the length of `x[a:b]`: that of `x`, if constants give no lower
    one."""
    low, high = (0 if q is None else q for q in (item.start, item.stop))
    if type(low) is not int or type(high) is not int or (low < 0) == (high > 0):
        return n
    length, longest = max(high - low, 0), trace.sizes.extreme(n, True)
    return n if isinstance(longest, int) and longest <= length else length


def _cut(
    e: Emitter, x: object, axis: int, low: Any, high: object, n: Dim, item: slice
) -> FakeTensor:
    """`x[item]`, where data decides about its bounds `low` and `high`: as long as the program finds
    out."""
    trace = e.trace
    check_cuts(sources(low, high)[0], trace)
    gap = trace.emit("subtract", [value_in(trace, q, I64) for q in (high, low)], {})
    gap = trace.emit("maximum", [gap, value_in(trace, 0, I64)], {})
    if is_runtime_scalar(low):
        length = size_of(trace, gap, _most(trace, item, n))
        trace.sizes.nonempty[str(length)] = n - _left_out(item)
        return e.dynamic_slice(x, trace.fake(low.value), axis=axis, length=length)
    front = type(low) is int and low == 0
    length = size_of(trace, gap, _most(trace, item, n) if front else n - dim_of(low))
    return e.slice(x, axis=axis, start=dim_of(low), length=length, step=1)


def _clamped(trace: Trace, at: object, size: object) -> RuntimeScalar:
    """A bound from data as Python clamps it."""
    zero, last, first = (value_in(trace, q, I64) for q in (0, size, at))
    front = trace.emit("add", [first, last], {})
    value = trace.emit("where", [trace.emit("less_than", [first, zero], {}), front, first], {})
    value = trace.emit("maximum", [trace.emit("minimum", [value, last], {}), zero], {})
    return RuntimeScalar(value, trace, sources(at, size)[0])


def _symbolic_slice(e: Emitter, x: object, axis: int, item: slice, n: Dim, step: int) -> object:
    ends: tuple[object, ...] = (item.start, item.stop)
    moves = any(is_symint(q) and q.loops for q in ends)
    if moves and not any(map(is_runtime_scalar, ends)):
        window = _window(e, x, axis, item, step)
        if window is not None:
            return window
    size = e.trace.sym(n)
    if step < 0:
        if item.start is not None or item.stop is not None or step != -1:
            raise NoRow("a slice of a named size with a negative step")
        return e.slice(x, axis=axis, start=n - 1, length=n, step=-1)
    low = 0 if item.start is None else bound(e.trace, item.start, size)
    high = size if item.stop is None else bound(e.trace, item.stop, size)
    if step == 1 and (is_runtime_scalar(low) or is_runtime_scalar(high)):
        return _cut(e, x, axis, low, high, n, item)
    gap = high - low
    if step == 1 and unknown(gap < 0):
        return _cut(e, x, axis, low, high, n, item)
    if step != 1:
        gap = -(-gap // step)
        if is_runtime_scalar(gap):
            most = dim_of(high - low)
            gap = e.trace.sym(size_of(e.trace, gap.value, most))
    if holds(gap < 0, gap):
        gap = 0
    return e.slice(x, axis=axis, start=dim_of(low), length=dim_of(gap), step=step)


def bound(trace: Trace, at: Any, size: Any) -> Any:
    """A slice bound as Python clamps it, which the program does where data decides."""
    if unknown(at) or unknown(at < 0):
        return _clamped(trace, at, size)
    front = at + size if holds(at < 0, at) else at
    if is_symint(front) and any(loop.fits for loop in front.loops):
        return front
    if surely_at_most(trace, 0, front) and surely_at_most(trace, front, size):
        return front
    if surely_at_most(trace, size, front):
        return size
    if unknown(front < 0):
        return _clamped(trace, at, size)
    if at_most(trace, size, front):
        return size
    if unknown(front > size):
        return _clamped(trace, at, size)
    if holds(front < 0, front):
        return 0
    return size if holds(front > size, front) else front


def unknown(q: object) -> bool:
    """Whether the program decides about a number: data, a loop that is over, or the index of a
    loop that cannot be unrolled."""
    if not is_runtime_scalar(q):
        return False
    return q.data or not q.loops or any(isinstance(p.trip, Size) for p in q.loops)  # type: ignore[attr-defined]


def holds(test: object, at: Any) -> bool:
    """A comparison of the bound `at` of a slice, which must come out alike in all iterations."""
    if is_runtime_scalar(test) and is_symint(at) and at.loops:
        reason = f"the bound {at!r} of a slice is inside of its axis in some iterations only"
        raise NeedsConcrete(reason, at.loops)
    return bool(test)


def _window(e: Emitter, x: object, axis: int, item: slice, step: int) -> FakeTensor | None:
    """`x[t:t+1]` is the element at t with an axis of 1; wider ones are windows that move. None for
    a slice that is none of these."""
    if is_symint(item.start) and item.stop is not None and dim_of(item.stop) - item.start.dim == 1:
        if step == 1 and inside(e, item.start.dim, e.type(x).shape[axis]):
            one = e.dynamic_index(x, item.start, axis=axis)
            shape = list(e.type(one).shape)
            return e.reshape(one, shape=(*shape[:axis], 1, *shape[axis:]))
    return _of_known_length(e, x, axis, item, step)


def _of_known_length(e: Emitter, x: object, axis: int, item: slice, step: int) -> FakeTensor | None:
    """`x[t:t+k]` where it stays on the axis in every iteration: Python does not clamp it then."""
    if step != 1 or item.start is None or item.stop is None or not is_symint(item.start):
        return None
    n, length = e.type(x).shape[axis], dim_of(item.stop) - item.start.dim
    low, rooms = bounds(item.start.dim, e.trace), bounds(n - dim_of(item.stop), e.trace)
    if not isinstance(length, int) or length < 0 or low is None or rooms is None:
        return None
    if not isinstance(low[0], int) or low[0] < 0:
        return None
    fits = isinstance(n, int) and length <= n
    if fits and any(loop.trip == ENDLESS for loop in item.start.loops):
        check_end(e, item.stop, n)
    elif e.trace.sym(rooms[0]) < 0:
        check_cut("le", dim_of(item.stop) - n, e.trace)
        return None
    return e.dynamic_slice(x, item.start, axis=axis, length=length)


def check_end(e: Emitter, stop: object, n: Dim) -> None:
    """Only data bounds the loop: that a slice stays on its axis is found out when it runs."""
    end = value_in(e.trace, stop, I64)
    ok = e.trace.emit("less_equal", [end, value_in(e.trace, e.trace.sym(n), I64)], {})
    where = e.trace.where()
    text = f"a slice ends at {HOLE}, and its axis has {n} elements: eager cuts it short ({where})"
    check(e.trace, ok, "IndexError", text, caught=False, shown=[(end, ("str", ""))])


def inside(e: Emitter, at: Dim, n: Dim) -> bool:
    """Whether an index surely stays on an axis of n."""
    ends = bounds(at, e.trace), bounds(n - 1 - at, e.trace)
    lows = [q[0] for q in ends if q is not None]
    return len(lows) == 2 and all(isinstance(q, int) and q >= 0 for q in lows)


__all__ = ["picked", "sliced"]
