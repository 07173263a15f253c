"""Writes of a trace to containers from outside (`dy2st.trace.undo.KINDS`).

The contents before a change are guarded, and a cached call puts the contents at the end in place. A
list that is appended to and never read needs no guard: the new elements wait in a list of the
trace, so that loops can collect them, and a call appends them to the list as it finds it.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dy2st.state.ownership import holds_fake, made_here
from dy2st.state.traced_list import TraceList
from dy2st.trace.signals import Refused, RetraceForRead
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import ItemLocation, Location, container_snapshot, kind_of
from dy2st.trace.user_stack import perform
from ir import Loc

#: containers that may be appended to without being read
GROWING = (list, collections.deque)


@dataclass(frozen=True, eq=False)
class Contents(Location):
    """The contents of a container: its elements as a tuple; of a dict, its items."""

    obj: Any

    def __str__(self) -> str:
        return f"the {type(self.obj).__name__}"

    @property
    def key(self) -> tuple[object, ...]:
        return ("contents", id(self.obj), type(self.obj).__name__)

    def get(self) -> Any:
        kind = kind_of(self.obj)
        assert kind is not None
        return kind.contents(self.obj)

    def put(self, value: Any) -> None:
        kind = kind_of(self.obj)
        assert kind is not None
        kind.fill(self.obj, value)

    def snapshot(self) -> Callable[[], None]:
        return container_snapshot(self.obj)


@dataclass(frozen=True, eq=False)
class ArgumentContents(Contents):
    """The contents of the container that is number `index` of those in a call's arguments."""

    index: int = 0


@dataclass(frozen=True, eq=False)
class AppendedElements(Location):
    """Elements appended to a list or deque that is not read."""

    obj: Any

    def __str__(self) -> str:
        return f"the {type(self.obj).__name__}"

    @property
    def key(self) -> tuple[object, ...]:
        return ("growth", id(self.obj), "list")

    def put(self, value: object) -> None:
        self.obj.extend(value)


# ---------------------------------------------------------------- while tracing
def change(trace: Trace, obj: object) -> None:
    """The contents of a container change next. One that no guard has met was made in this trace, by
    code that is not converted."""
    if not made_here(trace, obj) and trace.guards is not None:
        if id(obj) in trace.guards.ids:
            trace.guards.contents(obj)
        else:
            trace.objects.made[id(obj)] = obj
    if id(obj) in trace.inputs.containers:
        trace.note_store(ArgumentContents(obj, list(trace.inputs.containers).index(id(obj))))
    else:
        trace.note_store(Contents(obj))


def method(trace: Trace, f: Any, owner: object) -> Callable[..., object]:
    """A method that changes a container; its arguments, evaluated before, may read it."""

    def changing(*args: object, **kwargs: object) -> object:
        if f.__name__ in ("append", "extend") and grows_unread(trace, owner):
            return getattr(tail_of(trace, owner), f.__name__)(*args, **kwargs)
        change(trace, owner)
        return perform(f, *args, **kwargs)

    return changing


#: methods that look for their argument among the elements or keys
PLACES = frozenset("add remove discard setdefault pop index count get isdisjoint".split())


def pinning(trace: Trace, f: Any) -> Callable[..., object]:
    """A method of a container; the program belongs to the object that it looks for."""
    if f.__name__ not in PLACES:
        return f

    @functools.wraps(f)
    def find(*args: object, **kwargs: object) -> object:
        for x in args:
            trace.guards.pin(x)
        return f(*args, **kwargs)

    return find


def grows_unread(trace: Trace, obj: object) -> bool:
    """Whether a list or deque from outside has not been read, so that its elements do not
    matter."""
    if type(obj) not in GROWING or made_here(trace, obj) or trace.guards is None:
        return False
    if id(obj) in trace.guards.read:
        return False
    return id(obj) in trace.guards.ids and ("contents", id(obj)) not in trace.guards.terms


def tail_of(trace: Trace, obj: object) -> TraceList:
    """The list of the trace that collects what is appended to `obj`."""
    tails = trace.guards.tails
    trace.guards.terms.store(AppendedElements(obj))
    if id(obj) not in tails:
        tail = TraceList()
        tail.born = trace.frames[0]
        tails[id(obj)] = (obj, tail, trace.where())
        trace.guards.before_read = functools.partial(check_readable, trace)
        trace.guards.on_read = functools.partial(flush, trace)
    return tails[id(obj)][1]


def check_readable(trace: Trace, obj: object) -> None:
    """Check that a list can be read: elements appended before a loop or branch cannot move into it
    while that is traced tentatively."""
    if trace.tentative and trace.guards.tails[id(obj)][1].parts():
        raise RetraceForRead(obj)


def flush(trace: Trace, obj: Any) -> None:
    """The list is read after all: what was appended moves into it."""
    _, tail, where = trace.guards.tails[id(obj)]
    if not tail.parts():
        return
    trace.note_store(Contents(obj))
    obj.extend(elements(tail, where))
    tail.clear()


def elements(tail: TraceList, where: Loc) -> tuple[object, ...]:
    """One by one: the list that they go to holds them so."""
    size = tail.size()
    if not isinstance(size, int):
        trace = current()
        data = trace is not None and not size.names.isdisjoint(trace.sizes.counts)
        known = f"{size} elements, a size of the program"
        number = "a number of elements that depends on data" if data else known
        raise Refused(
            f"a list from outside grows by {number}.",
            where,
            reason="A call has to put each of them into the list as a tensor of its own.",
            remedy="Collect them in a list of the function, and append the stacked tensor.",
        )
    return tuple(tail[i] for i in range(size))


def from_outside(trace: Trace, x: object) -> bool:
    """Whether a container was there before the trace. One that library code made here is not known
    to the guards, or holds stand-ins that the trace did not store."""
    if kind_of(x) is None or made_here(trace, x) or id(x) not in trace.guards.ids:
        return False
    stored = any(q.obj is x for q in trace.frames[0].stores.values())
    return stored or not holds_fake(x)


def final_stores(trace: Trace) -> Iterator[tuple[Location, object]]:
    """Yield the stores that a call makes after the program ran, with the values of this trace."""
    stores = trace.frames[0].stores
    trace.guards.distinct({id(q.obj) for q in stores.values()} | trace.guards.tails.keys())
    whole = {id(q.obj) for q in stores.values() if isinstance(q, Contents)}
    for place in stores.values():
        made = id(place.obj) in trace.objects.made or isinstance(place.obj, TraceList)
        if made or isinstance(place, ItemLocation) and id(place.obj) in whole:
            continue
        yield trace.guards.located(place), place.get()
    for obj, tail, where in trace.guards.tails.values():
        if tail.parts():
            yield trace.guards.located(AppendedElements(obj)), elements(tail, where)


def lines_of_stores(trace: Trace) -> dict[tuple[object, ...], Loc | None]:
    """The lines of what `final_stores` gives, by the keys of the locations."""
    grown = {AppendedElements(obj).key: where for obj, _, where in trace.guards.tails.values()}
    return {**grown, **{k: trace.objects.stored.get(k) for k in trace.frames[0].stores}}


def stand_in_for(trace: Trace, old: object, new: object) -> object:
    """A container of the arguments with stand-ins in it: a new one, unless the function finds the
    container itself at another place."""
    if id(old) not in trace.guards.kept:
        return new
    trace.undo_log.note(container_snapshot(old))
    Contents(old).put(Contents(new).get())
    return old
