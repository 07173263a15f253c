"""A list that one branch may have replaced, and that is changed behind the branches.

    if t % k == 0:
        hs = [h.detach() for h in hs]
    hs[0] = y

Behind the branches the variable is a list of its own. The list from before them, which eager
changes if they have kept it, cannot be used any more by another name.
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
    """kept: the lists from before the branches that it may be; None if one of them cannot be given
    up. seen: an iteration has read one of them; changed: they cannot be used any more. fresh: loops
    that have to give their bodies copies of those lists, which `learned` gets."""

    trace: Trace = field(kw_only=True)
    kept: tuple[TraceList, ...] | None = field(kw_only=True)
    fresh: tuple[tuple[Frame, TraceList], ...] = field(kw_only=True)
    changed: bool = field(kw_only=True)
    seen: bool = False

    def __post_init__(self) -> None:
        for x in self.kept or ():
            GivenUp(self, x)
        if self.changed:
            self.change()

    def allows_change(self) -> bool:
        able = self.kept is not None
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
        for x in self.kept or ():
            x.watch.give_up()


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
) -> ChosenContainer:
    """`out` is one of `among`; `before`: those of them that were there before, and what is known of
    the others."""
    kept: list[TraceList] | None = []
    fresh, changed = list[tuple[Frame, TraceList]](), False
    for x in before:
        if isinstance(x, ChosenContainer) and x.kept is not None:
            found, changed = list(x.kept), changed or x.changed
        else:
            found = [x]
        for q in found:
            if not isinstance(q, TraceList) or q.born not in trace.frames:
                kept = None
            elif kept is not None and not any(q is p for p in kept):
                kept.append(q)
                loops = q.loops_around()
                fresh += [(loops[-1], q)] if loops else []
    lists = None if kept is None else tuple(kept)
    return ChosenContainer(
        out, among, stop, trace=trace, kept=lists, fresh=tuple(fresh), changed=changed
    )


__all__ = ["ChosenContainer", "chosen"]
