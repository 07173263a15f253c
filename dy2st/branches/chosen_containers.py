"""A list, dict or object that a branch may have replaced, and that is changed behind the branches.

    if t % k == 0:
        hs = [h.detach() for h in hs]
    hs[0] = y

Behind the branches the variable is a container of its own. The one from before them, which eager
changes if they have kept it, cannot be used any more by another name; and where that one is
changed by another name, this one cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dy2st.state.containers.records import fields_of
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import is_value, rebuilt
from dy2st.trace.trace import Frame, Trace
from dy2st.trace.trace_state import AmbiguousContainer


@dataclass(eq=False)
class ChosenContainer(AmbiguousContainer):
    """kept: the containers from before the branches that it may be; able: they can be given up.
    seen: an iteration has read one of them; changed: they cannot be used any more; shown, lost:
    likewise of `obj`. fresh: loops that have to give their bodies copies of those containers, which
    `learned` gets."""

    trace: Trace = field(kw_only=True)
    kept: tuple[object, ...] = field(kw_only=True)
    able: bool = field(kw_only=True)
    fresh: tuple[tuple[Frame, object], ...] = field(kw_only=True)
    changed: bool = field(kw_only=True)
    seen: bool = False
    shown: bool = False
    lost: bool = False

    def __post_init__(self) -> None:
        if self.kept:
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
            watch_of(self.trace, x).give_up()

    def lose(self) -> None:
        """One of the containers from before is changed by another name."""
        if self.shown:
            raise self.stop()
        self.lost = True


class Replacement:
    """Is told of each use of the container that a `ChosenContainer` is about."""

    def __init__(self, chosen: ChosenContainer, x: object) -> None:
        self.chosen, self.x, self.before = chosen, x, watch_of(chosen.trace, x)
        watch(chosen.trace, x, self)

    def touched(self, x: object, changes: bool) -> None:
        chosen = self.chosen
        if chosen.lost:
            raise chosen.stop()
        chosen.shown = chosen.shown or bool(chosen.trace.loops_around(self.x))
        if self.before is not None:
            self.before.touched(x, changes)

    def give_up(self) -> None:
        if self.before is not None:
            self.before.give_up()


class GivenUp:
    """Is told of each use of a container that a `ChosenContainer` may be, after those that were."""

    def __init__(self, chosen: ChosenContainer, x: object) -> None:
        self.chosen, self.x, self.before = chosen, x, watch_of(chosen.trace, x)
        if isinstance(self.before, GivenUp):  # another one may be this list, too
            chosen.seen = self.before.chosen.seen = True
        watch(chosen.trace, x, self)

    def touched(self, x: object, changes: bool) -> None:
        chosen = self.chosen
        if chosen.changed:
            raise chosen.stop()
        if changes:
            chosen.lose()
        chosen.seen = chosen.seen or bool(chosen.trace.loops_around(self.x))
        if self.before is not None:
            self.before.touched(x, changes)

    def give_up(self) -> None:
        """The container may be changed under the other name."""
        trace = self.chosen.trace
        if self.before is not None:
            self.before.touched(self.x, True)
        trace.check_certain(self.x, changes=True, told=True)


def watch_of(trace: Trace, x: object) -> Any:
    """What is told of each use of a container."""
    return x.watch if isinstance(x, TraceList) else trace.objects.watches.get(id(x))


def watch(trace: Trace, x: object, by: Replacement | GivenUp) -> None:
    before = by.before
    if isinstance(x, TraceList):
        trace.undo_log.note(lambda: setattr(x, "watch", before))
        x.watch = by
    else:
        trace.undo_log.note(lambda: trace.objects.watches.update({id(x): before}))
        trace.objects.watches[id(x)] = by


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
    kept, fresh = list[object](), list[tuple[Frame, object]]()
    doubts = (*before, *(trace.objects.doubts.get(id(x)) for x in before))
    known = [x for x in doubts if isinstance(x, ChosenContainer)]
    for x in (*before, *known):
        for q in x.kept if isinstance(x, ChosenContainer) else (x,):
            own = isinstance(q, TraceList) or fields_of(q) is not None
            able = able and own and trace.home(q) in trace.frames
            if not any(q is p for p in kept):
                kept.append(q)
                loops = trace.loops_around(q)
                fresh += [(loops[-1], q)] if loops else []
    made = ChosenContainer(
        out, among, stop, trace=trace, kept=tuple(kept), fresh=tuple(fresh),
        able=able and all(x.able for x in known), changed=any(x.changed for x in known),
    )  # fmt: skip
    made.lost = any(x.lost for x in known)
    return made


def cannot_change(merge: Any, x: object) -> None:
    """A container that the branches give two names may not be changed."""
    known = merge.trace.objects.doubts.get(id(x))
    if isinstance(known, ChosenContainer):
        known.able = False
    else:
        merge.trace.doubt(AmbiguousContainer(x, (), merge.undecided()))


def has_name(merge: Any, x: object) -> bool:
    """Whether a container has another name behind the branches, by which it may not be changed."""
    others = [q for pair, (_, _, q) in merge.merged.items() if id(x) in pair]
    for q in others:
        cannot_change(merge, q)
    return bool(others)


def named_apart(merge: Any, x: object, missing: object, parts: list[object]) -> object:
    """What a container that one branch has made is behind the branches."""
    out: object = rebuilt(merge.trace, x, parts)
    if not is_value(x):
        if has_name(merge, x):
            cannot_change(merge, out)
        merge.merged[id(x), id(missing)] = (x, missing, out)
    return out


__all__ = ["ChosenContainer", "chosen", "has_name", "named_apart", "watch_of"]
