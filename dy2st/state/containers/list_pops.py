"""Lists from before a loop from which every iteration pops elements.

    for x in xs:
        skips.append(x)
    for t in range(n):
        h = f(h, skips.pop())           reads skips[n - 1 - t], and n - n elements are left

How many elements an iteration takes from each end is learned by one trace of the body and known in
the next. A list that the body changes in another way, too, is a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dy2st.state.containers import list_recurrences
from dy2st.state.containers.dynamic_lookup import is_inside
from dy2st.state.stacked_run import length_of
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Frame, Trace
from ir.types import Dim, Size


@dataclass(frozen=True)
class ListPops:
    """An iteration takes so many elements of `target` from the front and from the back; 0 and 0 if
    it is no such list. `whole`: the list as the loop finds it."""

    front: int
    back: int
    target: Any = None
    whole: Any = None

    @property
    def total(self) -> int:
        return self.front + self.back


def takes(trace: Trace, target: Any, args: Sequence[object], loops: Sequence[Frame]) -> bool:
    """Whether `target.pop(*args)` takes an element as every iteration of the loop does."""
    if len(loops) != 1 or loops[0] is not trace.frame or loops[0].learned is None:
        return False
    frame, key = loops[0], id(target)
    others = (frame.appends, frame.fills, frame.queues, frame.learned.queues, frame.changed)
    stored = any(place[:2] == ("item", key) for place in frame.stores)
    if target.buffer is not None or stored or any(key in q for q in others):
        return False
    return tuple(args) in ((), (-1,), (0,)) and frame.learned.shrinks.get(key) != ListPops(0, 0)


def pop(trace: Trace, target: object, args: Sequence[object], frame: Frame) -> Any:
    """The element that this iteration takes."""
    front = tuple(args) == (0,)
    out = item(trace, target, 0 if front else -1, frame)
    old = frame.shrunk.get(id(target), (target, 0, 0))
    frame.shrunk[id(target)] = (target, old[1] + front, old[2] + (not front))
    return out


def known(target: object, loops: Sequence[Frame]) -> Frame | None:
    """The loop that takes elements out of a list, as far as is known."""
    for f in loops:
        learned = None if f.learned is None else f.learned.shrinks.get(id(target))
        if id(target) in f.shrunk or learned is not None and learned.total:
            return f
    return None


def taken(target: object, frame: Frame) -> tuple[Dim, Dim]:
    """Return the numbers of elements taken from the front and from the back."""
    _, front, back = frame.shrunk.get(id(target), (target, 0, 0))
    shrink = frame.learned.shrinks.get(id(target))
    if shrink is None or frame.loop is None:
        return front, back
    index = Size.named(frame.loop.name)
    return index * shrink.front + front, index * shrink.back + back


def item(trace: Trace, target: Any, i: Any, frame: Frame, loops: Sequence[Frame] = ()) -> Any:
    """`target[i]` while the loop takes elements out of it."""
    if isinstance(i, slice) and changed(trace, target, loops):
        return target[i]
    shrink = frame.learned.shrinks.get(id(target))
    if not target.raw():
        raise IndexError("pop from empty list")
    if shrink is None or shrink.whole is None:
        return list_recurrences.guess(trace, target, [frame])
    begin, n = trace.sym(taken(target, frame)[0]), trace.sym(target.size())
    if is_inside(trace, i, n):
        return shrink.whole[i + begin]
    if is_runtime_scalar(i) or not is_inside(trace, i + n, n):
        raise NeedsConcrete("may be out of range", [frame.loop], subject="an index")
    return shrink.whole[i + n + begin]


def changed(trace: Trace, target: Any, loops: Sequence[Frame]) -> bool:
    """A list is changed, or read as a whole: one out of which a loop takes elements is a queue.
    Whether it has become one."""
    frame = known(target, loops)
    if frame is None:
        return False
    _, front, back = frame.shrunk.pop(id(target), (target, 0, 0))
    frame.learned.shrinks[id(target)] = ListPops(0, 0)
    frame.stale = True
    target.learn_queue(trace, "pop", loops)
    parts = target.raw()
    target.replace_parts(parts[front : len(parts) - back])
    return True


def learn(frame: Frame) -> bool:
    """Learn how many elements an iteration takes; whether that is new."""
    shrinks = frame.learned.shrinks
    before = {k: (q.front, q.back) for k, q in shrinks.items()}
    for k in before.keys() - frame.shrunk.keys():
        shrinks[k] = ListPops(0, 0)
    for k, (target, front, back) in frame.shrunk.items():
        if before.get(k) != (front, back):
            shrinks[k] = ListPops(front, back, target, whole_of(target))
    return before != {k: (q.front, q.back) for k, q in shrinks.items()}


def whole_of(target: Any) -> Any:
    whole = type(target)(target.raw())
    whole.born = target.born
    return whole


def enter(frame: Frame) -> None:
    """The lists are those that this loop finds: it may run again, in a loop that is unrolled."""
    shrinks = frame.learned.shrinks
    for k, q in shrinks.items():
        if q.target is not None:
            shrinks[k] = replace(q, whole=whole_of(q.target))


def check(frame: Frame, ended: bool) -> None:
    """Refuse a loop that may take more elements than there are. `ended`: data ends it."""
    for target, front, back in frame.shrunk.values():
        assert frame.loop is not None
        left = length_of(target.raw()) - frame.loop.trip * (front + back)
        if ended or not isinstance(left, int) or left < 0:
            raise NeedsConcrete("a loop takes elements out of a list, perhaps all of them")


def leave(trace: Trace, frame: Frame, length: Dim) -> None:
    """The elements that are left behind the loop."""
    for target, front, back in frame.shrunk.values():
        n = length_of(target.raw())
        start, stop = (trace.sym(q) for q in (length * front, n - length * back))
        target.replace_parts(target[start:stop].parts() if n != length * (front + back) else [])


__all__ = [
    "ListPops",
    "changed",
    "check",
    "enter",
    "item",
    "known",
    "learn",
    "leave",
    "pop",
    "taken",
    "takes",
]
