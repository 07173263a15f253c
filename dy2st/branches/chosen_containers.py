"""A list that one branch may have replaced, and that is changed behind the branches.

    if t % k == 0:
        hs = [h.detach() for h in hs]
    hs[0] = y

Behind the branches the variable is a list of its own. The list from before them, which eager
changes if they have kept it, cannot be used any more by another name; and where that one is
changed by another name, this one cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dy2st.state.traced_list import TraceList
from dy2st.trace.trace import Frame, Trace
from dy2st.trace.trace_state import AmbiguousContainer


@dataclass(eq=False)
class ChosenContainer(AmbiguousContainer):
    """kept: the lists from before the branches that it may be; able: they can be given up. seen: an
    iteration has read one of them; changed: they cannot be used any more; shown, lost: likewise of
    `obj`. fresh: loops that have to give their bodies copies of those lists, which `learned` gets.
    """

    trace: Trace = field(kw_only=True)
    kept: tuple[TraceList, ...] = field(kw_only=True)
    able: bool = field(kw_only=True)
    fresh: tuple[tuple[Frame, TraceList], ...] = field(kw_only=True)
    changed: bool = field(kw_only=True)
    seen: bool = False
    shown: bool = False
    lost: bool = False

    def __post_init__(self) -> None:
        if self.kept and isinstance(self.obj, TraceList):
            Replacement(self, self.obj)
        for x in self.kept:
            GivenUp(self, x)
        if self.changed:
            self.change()

    def allows_change(self) -> bool:
        able = self.able
        for f, x in self.fresh if able else ():
            f.stale = f.stale or id(x) not in f.learned.copied
            f.learned.copied[id(x)] = x
            able = able and f.stale
        if able:
            self.change()
        return able

    def change(self) -> None:
        if self.seen:
            raise self.stop()
        self.changed = True
        for x in self.kept:
            x.watch.give_up()

    def lose(self) -> None:
        """One of the lists from before is changed by another name."""
        if self.shown:
            raise self.stop()
        self.lost = True


class Replacement:
    """Is told of each use of the list that a `ChosenContainer` is about."""

    def __init__(self, chosen: ChosenContainer, x: TraceList) -> None:
        self.chosen, self.x, self.before = chosen, x, x.watch
        chosen.trace.undo_log.note(lambda: setattr(x, "watch", self.before))
        x.watch = self

    def touched(self, x: object, changes: bool) -> None:
        chosen = self.chosen
        if chosen.lost:
            raise chosen.stop()
        chosen.shown = chosen.shown or self.x.grows_in_loop()
        if self.before is not None:
            self.before.touched(x, changes)

    def give_up(self) -> None:
        if self.before is not None:
            self.before.give_up()


class GivenUp:
    """Is told of each use of a list that a `ChosenContainer` may be, after those that were."""

    def __init__(self, chosen: ChosenContainer, x: TraceList) -> None:
        self.chosen, self.x, self.before = chosen, x, x.watch
        if isinstance(self.before, GivenUp):  # another one may be this list, too
            chosen.seen = self.before.chosen.seen = True
        chosen.trace.undo_log.note(lambda: setattr(x, "watch", self.before))
        x.watch = self

    def touched(self, x: object, changes: bool) -> None:
        chosen = self.chosen
        if chosen.changed:
            raise chosen.stop()
        if changes:
            chosen.lose()
        chosen.seen = chosen.seen or self.x.grows_in_loop()
        if self.before is not None:
            self.before.touched(x, changes)

    def give_up(self) -> None:
        """The list may be changed under the other name."""
        trace = self.chosen.trace
        if self.before is not None:
            self.before.touched(self.x, True)
        trace.check_certain(self.x, changes=True)


def chosen(
    trace: Trace,
    out: object,
    among: tuple[object, ...],
    before: Sequence[Any],
    stop: Callable[[], BaseException],
    able: bool = True,
) -> ChosenContainer:
    """`out` is one of `among`; `before`: those of them that were there before, and what is known of
    the others."""
    kept, fresh = list[TraceList](), list[tuple[Frame, TraceList]]()
    known = [x for x in before if isinstance(x, ChosenContainer)]
    for x in before:
        for q in x.kept if isinstance(x, ChosenContainer) else (x,):
            if not isinstance(q, TraceList) or q.born not in trace.frames:
                able = False
            elif not any(q is p for p in kept):
                kept.append(q)
                loops = q.loops_around()
                fresh += [(loops[-1], q)] if loops else []
    made = ChosenContainer(
        out, among, stop, trace=trace, kept=tuple(kept), fresh=tuple(fresh),
        able=able and all(x.able for x in known), changed=any(x.changed for x in known),
    )  # fmt: skip
    made.lost = any(x.lost for x in known)
    return made


def cannot_change(trace: Trace, x: object, stop: Callable[[], BaseException]) -> bool:
    """A container that the branches give two names may not be changed. Returns False."""
    known = trace.objects.doubts.get(id(x))
    if isinstance(known, ChosenContainer):
        known.able = False
    else:
        trace.doubt(AmbiguousContainer(x, (), stop))
    return False


__all__ = ["ChosenContainer", "cannot_change", "chosen"]
