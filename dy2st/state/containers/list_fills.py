"""Lists of fixed length whose elements a loop stores in order, at its index.

    ys = [None] * n                     hs = [h0] + [None] * n
    for t in range(n):                  for t in range(n):
        ys[t] = f(x[t])                     hs[t + 1] = f(hs[t], x[t])

The same holds for one that grows in front: `ys.insert(0, y)`, of which `ys[0]` is read.

An iteration stores one element, next to that of the iteration before: the loop stacks them as if it
appended them. Reads of stored elements are taps, reads of elements that are yet to be stored give
the old ones. One trace of the body learns that a list is filled, the next one uses it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dy2st.state.containers import list_buffers
from dy2st.state.containers.dynamic_lookup import at_frame, is_later
from dy2st.state.containers.list_recurrences import ListTapPort
from dy2st.state.stacked_run import StackedRun
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Frame, Trace
from ir.types import Size, line


@dataclass(frozen=True)
class ListFill:
    """Iteration i stores element `start + step * i`; `step` is 1 or -1."""

    start: int
    step: int

    def places(self, trip: int) -> range:
        """The elements that are stored, from the first one of the list on."""
        last = self.start + self.step * (trip - 1)
        return range(min(self.start, last), max(self.start, last) + 1)


def fill_of(trace: Trace, target: Any, i: Any, loops: Sequence[Frame]) -> ListFill | None:
    """The fill that `target[i] = ...` belongs to, if every iteration surely stores its element."""
    frame = loops[-1] if loops and is_symint(i) else None
    loop = None if frame is None else frame.loop
    if loop is None or frame is not trace.frame or loop.open or not isinstance(loop.trip, int):
        return None
    start, step = line(i.dim, loop.name) or (None, None)
    if not isinstance(start, int) or step not in (1, -1):
        return None
    fill = ListFill(start, step)
    places, n = fill.places(loop.trip), target.size()
    if not isinstance(n, int) or places[0] < 0 or places[-1] >= n:
        return None
    if target.segmented and len(loops) > 1:
        target.split(trace)
    return fill if len(loops) == 1 or not target.segmented else None


def store(trace: Trace, target: Any, i: Any, value: object, loops: Sequence[Frame]) -> bool:
    """Record `target[i] = value`; False if the element is a place of its own."""
    if target.buffer is not None:
        if isinstance(i, slice):
            raise NeedsConcrete("a slice of a list is stored, of which the loop fills elements")
        target.buffer.replace(trace, i, value, target.length())
        return True
    fill = fill_of(trace, target, i, loops)
    frame, key = trace.frame, id(target)
    if fill is not None and frame.fills.get(key) == fill:
        stored = frame.appends[key][1]
        trace.undo_log.note(functools.partial(stored.__setitem__, 0, stored[0]))
        stored[0] = value
        return True
    held = any(key in f.learned.buffers and f.learned.buffers[key].stores for f in loops)
    if held or fill is None or any(key in q for q in (frame.fills, frame.appends, frame.queues)):
        if is_later(i) and loops:
            if not list_buffers.want_stores(trace, target, loops, i, parts_of(value)):
                reason = "stores elements of a list"
                raise NeedsConcrete(reason, [loops[0].loop], subject="an index")
            return True
        if is_runtime_scalar(i) and i.data:
            list_buffers.choose(trace, target, i, value)
            return True
        return False
    record(trace, target, value, fill)
    return True


def parts_of(x: object) -> list[object]:
    return [p for q in x for p in parts_of(q)] if isinstance(x, tuple) else [x]


def hold(trace: Trace, target: Any) -> None:
    """Keep the list in a tensor in the next trace: the loop reads elements that it fills, or stores
    further ones."""
    loops = target.loops_around()
    stored = tuple(f.appends[id(target)][1] for f in loops if id(target) in f.appends)
    items = [q for some in stored for q in parts_of(tuple(some))]
    if not list_buffers.want_stores(trace, target, loops, 0, items):
        raise NeedsConcrete("a list is read or changed while the loop fills it")


#: every iteration inserts its element in front of the list
FRONT = ListFill(-1, -1)


def insert(trace: Trace, target: Any, at: object, value: object, *, loops: Sequence[Frame]) -> bool:
    """Record `target.insert(0, value)`; False if not every iteration of a loop does it."""
    frame, key = trace.frame, id(target)
    one = len(loops) == 1 and loops[0] is frame and type(at) is int and at == 0
    loop = frame.loop if one else None
    others = target.buffer is not None or key in frame.appends or key in frame.queues
    if loop is None or loop.open or others:
        return False
    record(trace, target, value, FRONT)
    return True


def is_front(i: object, loops: Sequence[Frame]) -> bool:
    """Whether an index in one loop is that of the first element."""
    return type(i) is int and i == 0 and len(loops) == 1


def first(trace: Trace, target: Any, frame: Frame) -> Any:
    """`(element,)` for `target[0]` where the loop is known to insert in front of it; else ()."""
    key = id(target)
    if frame.learned.fills.get(key) is not FRONT:
        frame.fronts.add(key)
        return ()
    if key in frame.fills:
        return (frame.appends[key][1][0],)
    if (key, 0) not in frame.tails:
        with at_frame(trace, trace.frames.index(frame) - 1):
            before = target[0]
        with at_frame(trace, trace.frames.index(frame)):
            frame.tails[key, 0] = ListTapPort(target, 0, before, trace)
    return (frame.tails[key, 0].fake,)


def record(trace: Trace, target: object, value: object, fill: ListFill) -> None:
    frame, key = trace.frame, id(target)
    trace.check_certain(target, changes=True)
    frame.fills[key] = fill
    frame.appends[key] = (target, [value])
    trace.undo_log.note(lambda: frame.fills.pop(key, None))
    trace.undo_log.note(lambda: frame.appends.pop(key, None))


def known(trace: Trace, target: object, loops: Sequence[Frame]) -> ListFill | None:
    """Return the way in which the innermost of these loops fills the list, if it is known."""
    held = [f for f in loops if id(target) in f.learned.fills or id(target) in f.fills]
    if held and held != [loops[-1]]:
        hold(trace, target)
        return None
    fill = None
    if held:
        fill = held[0].learned.fills.get(id(target)) or held[0].fills[id(target)]
    return None if fill is FRONT else fill


def read(trace: Trace, target: object, i: Any, frame: Frame, fill: ListFill) -> Any:
    """`(element,)` at an index while the loop fills the list; () for one that it has not stored."""
    assert frame.loop is not None
    frame.picked[id(target)] = target
    head = Size.named(frame.loop.name) * fill.step + fill.start
    back = (head - i.dim) * fill.step
    if not isinstance(back, int):
        hold(trace, target)
        return ()
    if back == 0 and id(target) in frame.fills:
        return (frame.appends[id(target)][1][0],)
    return (port(trace, target, frame, fill, back).fake,) if back > 0 else ()


def port(trace: Trace, target: Any, frame: Frame, fill: ListFill, back: int) -> ListTapPort:
    """The element that was stored `back` iterations ago, or the old one in its place."""
    at = fill.start - fill.step * back
    if not 0 <= at < target.size():
        raise NeedsConcrete("may be out of range", subject="an index", peel=back)
    if (id(target), back) not in frame.tails:
        with at_frame(trace, trace.frames.index(frame) - 1):
            first = target[at]
        with at_frame(trace, trace.frames.index(frame)):
            frame.tails[id(target), back] = ListTapPort(target, back, first, trace)
    return frame.tails[id(target), back]  # type: ignore[no-any-return]


def check_unread(trace: Trace, frame: Frame) -> None:
    """A list that the loop fills is read at its index only, one that grows in front at 0."""
    read_at = {*frame.picked, *frame.guessed, *frame.asked}
    for key, fill in list(frame.fills.items()):
        tapped = any(k == key for k, _ in frame.tails) and frame.learned.fills.get(key) != fill
        stored = any(k[:2] == ("item", key) for k in frame.stores)
        read = key in frame.observed or key in frame.taken or fill is FRONT and key in read_at
        if key in frame.fronts and fill is FRONT:
            frame.learned.fills[key], frame.stale = FRONT, True
        read |= key in frame.fronts and fill is not FRONT
        if tapped or stored or read or len(frame.appends[key][1]) > 1:
            if fill is FRONT:
                raise NeedsConcrete("a list is read or changed while the loop fills it")
            hold(trace, frame.appends[key][0])


def learn(frame: Frame) -> bool:
    """Learn which of the lists that the body reads at an index it fills."""
    read_at = {*frame.picked, *frame.guessed}
    known = frame.learned.fills
    fills = {k: q for k, q in frame.fills.items() if q is not FRONT or known.get(k) is FRONT}
    new = {k: q for k, q in fills.items() if k in read_at or k in known}
    changed = frame.learned.fills != new
    frame.learned.fills.clear()
    frame.learned.fills.update(new)
    return changed


# ---------------------------------------------------------------- methods of a list
#: methods that keep the elements of a list that a loop has filled in one piece
KEEPING = ("clear", "insert", "pop", "reverse")


def method(trace: Trace, self: Any, name: str, args: tuple[Any, ...]) -> object:
    """The methods that keep a list of a loop's elements one piece."""
    if name == "clear":
        return list.clear(self)
    if name == "insert" and args[0] == 0:
        return list.insert(self, 0, args[1])
    if name == "pop" and (not args or args[0] in (-1, 0)):
        at = args[0] if args else -1
        item, rest = self[at], self[1:] if at == 0 else self[:-1]
        list.__setitem__(self, slice(None), rest.parts())
        return item
    if name == "reverse":
        return list.__setitem__(self, slice(None), self[::-1].parts())
    for q in self.parts():
        if isinstance(q, StackedRun):
            trace.unroll(q.source(), f"list.{name} is called on the list that it fills")
    raise Refused(
        f"list.{name} on a list that a loop has filled.",
        trace.where(),
        reason="The loop leaves one stacked tensor, not separate elements.",
        remedy="Stack the list first and work on the tensor.",
    )


__all__ = [
    "FRONT", "ListFill", "check_unread", "first", "hold", "insert", "is_front", "known", "learn",
    "port", "read", "store",
]  # fmt: skip
