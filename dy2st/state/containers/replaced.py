"""Containers that the body of a loop changes in place before it makes another one in their place.

    for t in range(n):
        ys.append(h)        the list of the iteration before, which nobody else knows
        ys = ys[-3:]

The body has a copy of the container. The change is made to the copy, so the one from before the
loop, which the first iteration would change, may not be read under another name. A list tells of
its reads; those of a dict or object are hidden from the body, and from the code behind the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dy2st.state.containers.records import DICTS
from dy2st.state.traced_list import TraceList
from dy2st.trace.facts import Doubt
from dy2st.trace.signals import NeedsConcrete, Refused, Unroll
from dy2st.trace.trace import Loop, Trace
from dy2st.trace.undo import Attr, Item


class Replaced:
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
        loop: Loop,
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
        return x if type(x) in DICTS else vars(x)

    def hide(self, error: BaseException) -> Callable[[], None]:
        """Elements of `first` raise an error; returns a function that shows them again."""
        held = self.fields(self.first)
        old = dict(held)
        held.update(dict.fromkeys(held, self.hidden(error)))

        def show() -> None:
            held.update(old)

        self.trace.undo_log.note(show)
        return show

    # ------------------------------------------------------------ errors, and behind the loop
    def stop(self) -> NeedsConcrete:
        return NeedsConcrete(self.reason, (), True)

    def lost(self) -> BaseException:
        """The error of a use of `first` behind the loop, which has changed its copy."""
        try:
            self.trace.unroll(self.loop, self.reason)
        except Unroll as e:
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
            self.trace.doubt(Doubt(self.first, (), self.lost))

    def fill(self, new: dict[Any, Any]) -> None:
        """Store elements of a dict or object."""
        place = Item if type(self.first) in DICTS else Attr
        for name, value in new.items():
            self.trace.store(place(self.first, name), value)


__all__ = ["Replaced"]
