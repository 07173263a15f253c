"""Lists that the body of a loop changes in place before it makes another one in their place.

    for t in range(n):
        ys.append(h)        the list of the iteration before, which nobody else knows
        ys = ys[-3:]

The body has a copy of the list. The change is made to the copy, so the list from before the loop,
which the first iteration would change, may not be read under another name.
"""

from __future__ import annotations

from typing import Any

from dy2st.trace.facts import Doubt
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.trace import Loop, Trace


class Replaced:
    """`copy` stands for a list that is `first` in the first iteration, and has `parts` when an
    iteration begins. `seen`: the body has read `first` by another name; `changed`: it has changed
    the copy. `after`: a list like `first` behind a loop that has only exchanged it."""

    def __init__(
        self, trace: Trace, first: Any, copy: Any, path: tuple[Any, ...], reason: str, loop: Loop
    ) -> None:
        self.trace, self.first, self.copy, self.path = trace, first, copy, path
        self.reason, self.loop = reason, loop
        self.parts = list(copy.parts())
        self.seen = first.watch is not None
        self.changed = self.left = False
        self.after: Any = None
        for q in (first, copy):
            self.watch(q)

    def watch(self, x: Any) -> None:
        old = x.watch
        self.trace.undo_log.note(lambda: setattr(x, "watch", old))
        x.watch = self

    def touched(self, x: object, changes: bool) -> None:
        """One of the two is read or changed."""
        if self.left:
            raise self.lost()
        if x is self.first:
            self.seen = True
        elif changes:
            self.changed = True
        if self.changed and self.seen or changes and x is self.first:
            raise self.stop()

    def stop(self) -> NeedsConcrete:
        return NeedsConcrete(self.reason, (), True)

    def lost(self) -> BaseException:
        """The error of a use of `first` behind the loop, which has changed its copy."""
        self.trace.unroll(self.loop, self.reason)
        return Refused(
            "a list is used that a loop has changed and replaced by another one.",
            self.trace.where(),
            reason="The loop changes the list of the iteration before, and keeps no other.",
            remedy="Make a new list in the loop: `ys = ys[1:] + [y]`.",
        )

    def leave(self) -> None:
        """The loop is in the program."""
        if self.after is not None:
            self.first.replace_parts(self.after.raw())
        elif self.changed:
            self.left = True
            self.watch(self.first)
            self.trace.doubt(Doubt(self.first, (), self.lost))


__all__ = ["Replaced"]
