"""Errors that data raises after the function has changed something: how a trace ends in one.

A call that fails writes nothing. What eager has written before such an error is known from a trace
that ends in it: it runs only the branches that lead there, each under a check that it is taken.
Conditions on data are numbered in the order in which a frame comes to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dy2st.branches.branch import Branch
from dy2st.trace import scalar as number
from dy2st.trace.frames import Frame
from dy2st.trace.scalar import RuntimeScalar, known, negate, negated
from dy2st.trace.trace import Trace
from ir import Op
from ir.uses import walk


def decision(frame: Frame) -> int:
    """The number of another condition on data."""
    frame.decisions += 1
    return frame.decisions


def site(trace: Trace, branch: Branch, needed: bool) -> int:
    """The number of the error in which a branch ends, or 0: nothing has been changed, or a trace
    cannot end in it. `needed`: also where nothing has been changed."""
    changes = branch.stores or branch.appends or branch.changed or branch.written
    assert branch.frame.decided is not None
    return numbered(trace, branch.frame.decided, needed or bool(changes), branch.frame)


def numbered(trace: Trace, last: tuple[int, bool], needed: bool = False, *more: Frame) -> int:
    """As `site`, for the error that the last of some conditions leads to."""
    frames = [*trace.frames, *more]
    if trace.in_loop or trace.endings.ahead is not None or not (needed or has_changed(trace)):
        return 0
    path = [f.decided for f in trace.frames[1:]]
    if None in path or any(map(draws, frames)):
        return 0
    trace.endings.paths.append((*path, last))  # type: ignore[arg-type]
    return len(trace.endings.paths)


def has_changed(trace: Trace) -> bool:
    """Whether the function has changed something that its caller may know."""
    inputs = {q.value for q in trace.inputs.by_id.values()}
    stored = any(f.stores or f.appends or f.changed for f in trace.frames)
    return stored or not inputs.isdisjoint(trace.values.written)


def draws(frame: Frame) -> bool:
    """Whether a host call has been made, which another program would make again."""
    found = [q for q in walk(frame.builder.ops) if isinstance(q, Op) and q.name == "foreign"]
    return any(q.attrs["call"] == "host" for q in found)


# ---------------------------------------------------------------- a trace that ends in an error
def assumed(trace: Trace, test: RuntimeScalar, at: int) -> bool | None:
    """Whether condition `at` holds where the trace ends in an error; None off the way there."""
    ahead = trace.endings.ahead
    if not ahead or len(trace.frames) > 1 or ahead[0][0] != at:
        return None
    _, holds = ahead.pop(0)
    ok = test if holds else negate(test)
    number.check(trace, ok.value, "RuntimeError", "a branch that raised is not taken again", False)
    facts = known(test, "implies") if holds else negated(known(test, "implied"))
    trace.frame.facts |= facts
    return holds


def follow(frame: Frame, block: Callable[[], Any]) -> None:
    """Run a branch in the frame itself, where its conditions have the numbers of a branch."""
    held, frame.decisions = frame.decisions, 0
    block()
    frame.decisions = held
