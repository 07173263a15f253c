"""Containers that a loop's body rebinds: lists and tuples to longer ones, and containers that it
has changed in place before.

    out = ()
    for row in x:
        h = cell(row, h)
        out = out + (h,)        a new tuple, which holds the elements of the one before

The body has a list that no other name knows in place of `out`. What is put behind or in front of it
makes a `ExtendedList`, which reads the elements of its base when they are asked for. One that an
iteration leaves in the place of its base is what the base would be after an append, and the loop
collects the new elements so.

    for t in range(n):
        ys.append(h)        the list of the iteration before, which nobody else knows
        ys = ys[-3:]

The body has a copy of the container. The change is made to the copy, so the one from before the
loop, which the first iteration would change, may not be read under another name. A list tells of
its reads; those of a dict or object are hidden from the body, and from the code behind the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dy2st.state.containers.dynamic_lookup import at_frame, is_inside
from dy2st.state.containers.records import DICTS, attributes
from dy2st.state.stacked_run import StackedRun, length_of
from dy2st.state.traced_list import TraceList, contents
from dy2st.trace.signals import NeedsConcrete, Refused, RetraceUnrolled
from dy2st.trace.trace import Frame, Trace, TracedLoop, current
from dy2st.trace.trace_state import AmbiguousContainer
from dy2st.trace.undo import AttributeLocation, ItemLocation
from ir.types import Dim


class ExtendedList(TraceList):
    """The elements `front`, those of `base`, and its own, which the C storage holds while it is
    `folded`; then all of them, `shown` of which are not its own. `body`: that of the loop whose
    iterations begin with it. `error`: data or the index decides how long it is."""

    def __init__(self, items: Any = (), base: Any = None, front: Any = ()) -> None:
        super().__init__(items)
        self.base, self.front, self.folded = base, list(front), base is not None
        self.shown = 0
        self.body: Frame | None = None
        self.error: BaseException | None = None

    # ------------------------------------------------------------ what it extends
    def stands_in(self, trace: Trace) -> bool:
        """Whether an iteration that is being traced begins with it."""
        return self.body is not None and self.body in trace.frames

    def extended(self, trace: Trace, front: list[object], new: list[object]) -> ExtendedList | None:
        """This with other elements around; None where nobody asks for the difference."""
        self.check_length()
        if self.stands_in(trace):
            return type(self)(new, self, front)
        if self.base is None or not self.base.stands_in(trace) or self.loops_around():
            return None
        return type(self)([*self.own()[self.shown :], *new], self.base, [*front, *self.front])

    def around(self, front: object, back: object) -> Any:
        """`front + self + back`."""
        trace, before, behind = current(), contents(front), contents(back)
        found: Any = None if trace is None else self.extended(trace, before, behind)
        if found is None:
            found = self.made(TraceList([*before, *contents(self), *behind]))
        if isinstance(found, TraceList):
            found.of = (self,)
        return found

    def __add__(self, other: object) -> Any:
        return self.around((), other) if self.joins(other) else self.refused(self, other)

    def __radd__(self, other: object) -> Any:
        return self.around(other, ()) if self.joins(other) else self.refused(other, self)

    def refused(self, a: object, b: object) -> NoReturn:
        a, b = (getattr(q, "kind", type(q)).__name__ for q in (a, b))
        raise TypeError(f'can only concatenate {a} (not "{b}") to {a}')

    def joins(self, other: object) -> bool:
        return isinstance(other, list) and getattr(other, "kind", list) is list

    def copy(self) -> Any:
        return self.around((), ())

    # ------------------------------------------------------------ its elements
    def check_length(self) -> None:
        if self.error is not None:
            raise self.error

    def size(self) -> Dim:
        self.check_length()
        around = length_of(self.front) + self.base.size() if self.folded else 0
        return super().size() + around

    @property
    def segmented(self) -> bool:
        return self.folded or super().segmented

    def raw(self) -> list[Any]:
        self.unfold()
        return self.own()

    def own(self) -> list[Any]:
        """Return the contents of the C storage."""
        return super().raw()

    def unfold(self) -> None:
        """Read the elements of the base, where the list has been made."""
        trace = current()
        self.check_length()
        if not self.folded or trace is None:
            return
        home = trace.frames.index(self.born) if self.born in trace.frames else len(trace.frames) - 1
        with at_frame(trace, home):
            self.base.read_whole()
            before = [*self.front, *self.base.parts()]
        own, self.folded, self.shown = self.own(), False, len(before)
        trace.undo_log.note(functools.partial(self.fold, own))
        list.__setitem__(self, slice(None), [*before, *own])

    def fold(self, own: list[object]) -> None:
        self.folded, self.shown = True, 0
        list.__setitem__(self, slice(None), own)

    def read_whole(self) -> None:
        self.unfold()
        super().read_whole()

    def _use(self, changes: bool = False, takes: bool = False) -> None:
        trace = current()
        if changes and trace is not None and self.stands_in(trace):
            raise NeedsConcrete("a list is changed in place and also replaced by a longer one")
        self.unfold()
        if changes:
            self.base = None
        super()._use(changes, takes)

    def append(self, value: object) -> None:
        trace, base = current(), self.base
        if trace is not None and self.folded and not self.stands_in(trace) and self.buffer is None:
            return self.note_append(value)
        super().append(value)
        self.base = base
        return None

    def length(self) -> Any:
        trace = current()
        return trace.sym(self.size()) if trace is not None and self.folded else super().length()

    def __bool__(self) -> bool:
        sure = any(not isinstance(q, StackedRun) for q in (*self.front, *self.own()))
        return sure or super().__bool__()

    def __getitem__(self, i: object) -> Any:
        trace = current()
        near = trace is not None and self.folded and not self.loops_around()
        found = self.near(trace, i) if near else ()  # type: ignore[arg-type]
        return found[0] if found else super().__getitem__(i)

    def near(self, trace: Trace, i: Any) -> tuple[Any, ...]:
        """`(self[i],)` if it is one of its own elements, or a known one of its base."""
        self.check_length()
        own, back = self.own(), -i if type(i) is int and i < 0 else 0
        plain = not any(isinstance(q, StackedRun) for q in own)
        if back and plain and back <= len(own):
            return (own[i],)
        if self.front:
            return ()
        if back and plain:
            return (self.base[i + len(own)],)
        if isinstance(i, slice):
            return self.end(i, own) if plain and i.step in (None, 1) and i.stop is None else ()
        return (self.base[i],) if is_inside(trace, i, trace.sym(self.base.size())) else ()

    def end(self, at: slice, own: list[object]) -> tuple[Any, ...]:
        """`(self[-k:],)`."""
        if type(at.start) is not int or at.start >= 0:
            return ()
        k = -at.start
        before = contents(self.base[len(own) - k :]) if k > len(own) else []
        found = TraceList([*before, *own[-k:]])
        found.most = k
        return (self.made(found),)

    def __eq__(self, other: object) -> bool:
        if not self.joins(other):
            return False
        return bool(self.length() == 0) if not other else [*self] == [*other]  # type: ignore[misc]

    def __ne__(self, other: object) -> bool:
        return not self == other


ExtendedList.__name__ = ExtendedList.__qualname__ = "list"


class ExtendedTuple(ExtendedList):
    """A tuple of so many elements as loops have made."""

    kind = tuple

    def made(self, found: TraceList) -> Any:
        return tuple_of(found)

    def joins(self, other: object) -> bool:
        return isinstance(other, (tuple, ExtendedTuple))

    def __hash__(self) -> int:  # type: ignore[override]
        """The key of a dict, which Python looks up by the elements."""
        what, trace = "a tuple that a loop makes longer is used as a key", current()
        if trace is None:
            return id(self)
        if self.loops_around():
            raise NeedsConcrete(what)
        for run in (q for q in self.parts() if isinstance(q, StackedRun)):
            trace.unroll(run.source(), what)
        raise Refused(
            f"{what}.",
            trace.where(),
            reason="Data decides how many elements it has, and Python needs to know them.",
            remedy="Use a key that Python knows.",
        )

    def __setitem__(self, i: object, value: object) -> None:
        raise TypeError("'tuple' object does not support item assignment")

    def __delitem__(self, i: object) -> None:
        raise TypeError("'tuple' object doesn't support item deletion")


ExtendedTuple.__name__ = ExtendedTuple.__qualname__ = "tuple"


def tuple_of(items: object) -> Any:
    """`tuple(items)`, where loops may have filled a list."""
    if isinstance(items, ExtendedTuple):
        return items
    parts = contents(items)
    runs = any(isinstance(q, StackedRun) for q in parts)
    return ExtendedTuple(parts) if runs else tuple(parts)


# ---------------------------------------------------------------- changed and replaced
class ReboundContainer:
    """`copy` stands for a container that is `first` in the first iteration, and has `parts` when an
    iteration begins. `own`: it is a dict or object that the function has made. `seen`: the body may
    read `first` by another name; `changed`: it has changed the copy. `after`: a container like
    `first` behind a loop that has only exchanged it. `hidden` makes an element of a dict or object
    whose use raises an error."""

    def __init__(
        self,
        trace: Trace,
        places: tuple[Any, Any, tuple[object, ...]],
        parts: list[Any],
        reason: str,
        loop: TracedLoop,
        hidden: Callable[[BaseException], object],
    ) -> None:
        self.trace, self.reason, self.loop, self.hidden = trace, reason, loop, hidden
        self.first: Any
        self.copy: Any
        self.first, self.copy, self.path = places
        self.is_list = isinstance(self.first, TraceList)
        self.parts = parts
        self.own = self.seen = self.changed = self.left = False
        self.after: Any = None
        if self.is_list:
            self.seen = self.first.watch is not None
            self.watch(self.first)
            self.watch(self.copy)

    # ------------------------------------------------------------ lists
    def watch(self, x: Any) -> None:
        old = x.watch
        self.trace.undo_log.note(lambda: setattr(x, "watch", old))
        x.watch = self

    def touched(self, x: object, changes: bool) -> None:
        """One of two lists is read or changed."""
        if self.left:
            raise self.lost()
        if x is self.first:
            self.seen = True
        elif changes:
            self.changed = True
        if self.changed and self.seen or changes and x is self.first:
            raise self.stop()

    # ------------------------------------------------------------ dicts and objects
    def change(self) -> None:
        """The copy is changed."""
        self.changed = True
        if self.seen:
            raise self.stop()

    @staticmethod
    def fields(x: Any) -> dict[Any, Any]:
        return dict(x) if type(x) in DICTS else attributes(x)

    def hide(self, error: BaseException) -> Callable[[], None]:
        """Elements of `first` raise an error; returns a function that shows them again."""
        old = self.fields(self.first)

        def put(new: dict[str, object]) -> None:
            for name, value in new.items():
                if type(self.first) in DICTS:
                    self.first[name] = value
                else:
                    object.__setattr__(self.first, name, value)

        def show() -> None:
            put(old)

        put(dict.fromkeys(old, self.hidden(error)))
        self.trace.undo_log.note(show)
        return show

    # ------------------------------------------------------------ errors, and behind the loop
    def stop(self) -> NeedsConcrete:
        return NeedsConcrete(self.reason, (), True)

    def lost(self) -> BaseException:
        """The error of a use of `first` behind the loop, which has changed its copy."""
        try:
            self.trace.unroll(self.loop, self.reason)
        except RetraceUnrolled as e:
            return e
        kind = "list" if self.is_list else type(self.first).__name__
        new = "ys = ys[1:] + [y]" if kind == "list" else "s = {**s, 'h': h}"
        return Refused(
            f"a {kind} is used that a loop has changed and replaced by another one.",
            self.trace.where(),
            reason=f"The loop changes the {kind} of the iteration before, and keeps no other.",
            remedy=f"Make a new one in the loop: `{new}`.",
        )

    def leave(self) -> None:
        """The loop is in the program."""
        if self.after is not None and self.is_list:
            self.first.replace_parts(self.after.raw())
        elif self.after is not None:
            self.fill(self.fields(self.after))
        elif self.changed:
            self.left = True
            if self.is_list:
                self.trace.check_certain(self.first, changes=True)
                self.watch(self.first)
            else:
                self.fill(dict.fromkeys(self.fields(self.first), self.hidden(self.lost())))
            self.trace.doubt(AmbiguousContainer(self.first, (), self.lost))

    def fill(self, new: dict[Any, Any]) -> None:
        """Store elements of a dict or object."""
        place = ItemLocation if type(self.first) in DICTS else AttributeLocation
        for name, value in new.items():
            self.trace.store(place(self.first, name), value)


# ---------------------------------------------------------------- in a loop
def stand_in(
    trace: Trace, x: Any, frame: Frame, known: dict[Any, Any], path: tuple[Any, ...]
) -> ExtendedList:
    """Return the stand-in with which iterations begin in place of `x`: the object of the previous
    trace, if there is one, with the facts learned about it."""
    kind = (
        ExtendedTuple if isinstance(x, tuple) or getattr(x, "kind", list) is tuple else ExtendedList
    )
    with trace.outside():
        made = x.extended(trace, [], []) if isinstance(x, ExtendedList) else None
        made = kind(contents(x)) if made is None else made
        parts = made.own()
    if type(known[path]) is kind:
        vars(known[path]).update(vars(made))
        list.__setitem__(known[path], slice(None), parts)
        made = known[path]
    made.body, made.of = frame, (x,)
    known[path] = made
    return made


def leave(known: Any) -> None:
    """The loop is in the program, and its lists are what they have become."""
    for path, made in known.rebuilt.items():
        known.rebuilt[path] = None
        for facts in (known.growth, known.buffers, known.fills):
            facts.pop(id(made), None)


def is_longer(before: Any, began: Any, after: Any) -> bool:
    """Whether what an iteration has left in a place seems to be what was there, with elements
    around it. began: the tuple of placeholders."""
    if isinstance(after, TraceList):
        return extends(after, before)
    if type(before) is not tuple or type(after) is not tuple or len(after) <= len(before):
        return False
    n = len(before)
    ends = (after[:n], after[len(after) - n :])
    return any(all(x is y for x, y in zip(part, began)) for part in ends)


def extends(x: Any, before: object) -> bool:
    """Whether a list is one that came from another, with elements around it."""
    found = [*x.of]
    for q in found:
        found += (p for p in getattr(q, "of", ()) if not any(p is r for r in found))
    return any(q is before for q in found)


def display(kind: type, stars: Sequence[bool], values: Sequence[Any]) -> Any:
    """`[*ys, h]`, or `(*ys, h)`; `stars`: which of the values are starred."""
    lists = [star and getattr(q, "kind", None) is kind for star, q in zip(stars, values)]
    at = lists.index(True) if True in lists else len(lists)
    pieces = [
        contents(q) if star and k != at else [q] for k, (star, q) in enumerate(zip(stars, values))
    ]
    front, back = (
        TraceList(q for piece in part for q in piece) for part in (pieces[:at], pieces[at + 1 :])
    )
    if at == len(lists):
        return front if kind is list else tuple_of(front)
    of = values[at]
    return of.around(front, back) if isinstance(of, ExtendedList) else front + of + back


def grow(target: ExtendedList, found: ExtendedList) -> None:
    """The iteration ends: append the elements that an extension has to what it extends."""
    target.body = None
    if found.front and len(found.own()) > found.shown:
        raise NeedsConcrete("a list grows at both ends")
    for q in reversed(found.front):
        target.insert(0, q)
    for q in found.own()[found.shown :]:
        target.append(q)


__all__ = [
    "ExtendedList", "ExtendedTuple", "ReboundContainer", "display", "grow", "is_longer", "leave",
    "stand_in", "tuple_of",
]  # fmt: skip
