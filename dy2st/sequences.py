"""What a loop can run over: ranges, tensors, filled lists, and `enumerate`, `zip`, `reversed`."""

from __future__ import annotations

from typing import Any

from dy2st.capture.fake import FakeTensor, Tensor
from dy2st.capture.indexing import getitem
from dy2st.capture.trace import Trace, current
from dy2st.containers import Segment, TraceList
from dy2st.loops import Sequence_
from dy2st.stops import NeedsConcrete
from dy2st.symbols import SymRange


def sequence_of(trace: Trace, iterable: Any) -> Sequence_ | None:
    """What a loop over `iterable` runs over, if it can be one loop."""
    if isinstance(iterable, Tensor):
        shape = _shape(trace, iterable)
        if not shape:
            raise TypeError("iteration over a 0-D tensor")
        return Sequence_(shape[0], lambda i: getitem(trace, iterable, i))
    if type(iterable) is range:
        return Sequence_(len(iterable), lambda i: iterable.start + i * iterable.step)
    if isinstance(iterable, SymRange):
        trace.require(iterable.trip, 0, "range")
        return Sequence_(iterable.trip, lambda i: iterable.start + i * iterable.step)
    if isinstance(iterable, Joined):
        return iterable.over
    if isinstance(iterable, TraceList) and iterable.segmented and len(iterable.parts()) == 1:
        part: Segment = iterable.parts()[0]
        return Sequence_(part.trip, lambda i: part.item(trace, i))
    return None


def _shape(trace: Trace, x: Any) -> Any:
    return x._value.type.shape if isinstance(x, FakeTensor) else tuple(int(d) for d in x.shape)


class Joined:
    """`enumerate`, `zip` or `reversed` over something that can be one loop."""

    def __init__(self, over: Sequence_) -> None:
        self.over = over


def enumerate_(iterable: Any, start: int = 0) -> Any:
    trace = current()
    over = sequence_of(trace, iterable) if trace is not None else None
    if over is None:
        return enumerate(iterable, start)
    return Joined(Sequence_(over.trip, lambda i: (i + start, over.item(i))))


def reversed_(iterable: Any) -> Any:
    trace = current()
    over = sequence_of(trace, iterable) if trace is not None else None
    if over is None or trace is None:
        return reversed(iterable)
    last = trace.sym(over.trip - 1)
    return Joined(Sequence_(over.trip, lambda i: over.item(last - i)))


def zip_(*iterables: Any, strict: bool = False) -> Any:
    trace = current()
    if trace is None:
        return zip(*iterables, strict=strict)
    found = [sequence_of(trace, q) for q in iterables]
    rolled = [q for q in found if q is not None]
    if len(rolled) != len(found) or not rolled:
        return zip(*iterables, strict=strict)
    trips = [q.trip for q in rolled]
    shortest = trips[0]
    if any(t != shortest for t in trips):
        if not all(isinstance(t, int) for t in trips) or strict:
            raise NeedsConcrete("zip of sequences whose lengths are not known to be equal")
        shortest = min(trips)  # type: ignore[type-var]
    return Joined(Sequence_(shortest, lambda i: tuple(q.item(i) for q in rolled)))
