"""Tracing of one branch of a condition on data, in its own frame; its changes are undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dy2st.convert.syntax import RT
from dy2st.state.ownership import refuse
from dy2st.state.traced_list import TraceList
from dy2st.trace.scalar import PathCondition
from dy2st.trace.signals import Refused, raise_defect
from dy2st.trace.trace import Frame, Trace
from dy2st.trace.trace_state import AmbiguousContainer
from dy2st.trace.undo import Location
from dy2st.trace.user_stack import innermost, is_raise, is_user_file
from ir import Loc, SourceError, Value

#: a bound for recursion on data
MOST_BRANCHES = 100
GetState = Callable[[], tuple[object, ...]]
SetState = Callable[[tuple[object, ...]], None]


@dataclass
class BranchTrace:
    """The result of tracing one branch: its frame, and the changes that were undone after it.
    doubts: the containers that were in doubt at its end, by `id`."""

    frame: Frame
    state: tuple[object, ...]
    stores: dict[tuple[object, ...], tuple[Location, object]]
    appends: dict[int, tuple[TraceList, list[object]]]
    changed: dict[int, tuple[TraceList, list[object]]]
    written: dict[Value, Loc]
    doubts: dict[int, AmbiguousContainer]
    failed: Exception | None = None


def error_of_eager(e: Refused) -> Exception | None:
    """Return the error that eager raises, too; None for what only a translation refuses."""
    eager = type(e.error) is not SourceError and e.error.__cause__ is not None
    return e.error if eager else None


def trace_branch(
    trace: Trace,
    block: Callable[[], object],
    get_state: GetState,
    set_state: SetState,
    facts: frozenset[PathCondition],
    decision: tuple[int, bool] | None = None,
) -> BranchTrace:
    """Run a branch in a frame of its own and undo it.

    It may fail as in eager: by a `raise`, or by an operator or a call. While a loop is tried, only
    by a `raise`: for other errors the loop may be unrolled.
    """
    if sum(f.branch for f in trace.frames) > MOST_BRANCHES:
        raise refuse(
            f"conditions on data are nested more than {MOST_BRANCHES} deep.",
            "Both branches are traced, so a function that calls itself in a branch of "
            "a condition on data never ends.",
            "Write the recursion as a `while` loop.",
        )
    mark, before = trace.undo_log.mark(), get_state()
    frame = Frame(branch=True, facts=facts, decision=decision)
    trace.frames.append(frame)
    failed: Exception | None = None
    try:
        try:
            block()
        except Refused as e:
            failed = error_of_eager(e)
            if failed is None or trace.in_loop:
                raise
        except Exception as e:
            raise_defect(e)
            if trace.in_loop and not raised(e):
                raise
            failed = e
        except BaseException as e:
            if raised(e) and not type(e).__module__.startswith("dy2st."):
                raise refuse(
                    f"data decides whether a {type(e).__name__} is raised, which is no Exception.",
                    "A program raises errors that `except Exception` catches.",
                    "Raise an Exception, or return a flag and decide outside.",
                ) from None
            raise
        return BranchTrace(
            frame,
            get_state(),
            {k: (place, place.get()) for k, place in frame.stores.items()},
            {k: (target, list(items)) for k, (target, items) in frame.appends.items()},
            {k: (target, target.parts()) for k, target in frame.changed.items()},
            dict(frame.written),
            dict(trace.objects.doubts),
            failed,
        )
    finally:
        del trace.frames[trace.frames.index(frame) :]
        trace.undo_log.undo_to(mark)
        set_state(before)


@contextmanager
def inside(trace: Trace, frame: Frame) -> Iterator[None]:
    """Ops are emitted in `frame`."""
    trace.frames.append(frame)
    try:
        yield
    finally:
        trace.frames.pop()


def raised(e: BaseException) -> bool:
    """Whether a `raise` or `assert` statement of converted code raised it."""
    at = innermost(e)
    if at is None:
        return False
    code = at.tb_frame.f_code
    if code.co_name == "assert_" and isinstance(e, AssertionError):
        return True
    return (is_user_file(code.co_filename) or RT in code.co_freevars) and is_raise(at)


__all__ = ["GetState", "SetState", "BranchTrace", "inside", "trace_branch"]
