"""Error exits: traces that end in a data-dependent error, after the function has changed something.

A call that fails writes nothing. What eager has written before such an error is known from a trace
that ends in it: it runs only the branches that lead there, each under a check that it is taken.
Conditions on data are numbered in the order in which a frame comes to them. An error in the body
of a loop is met once more in a program without the loop. Behind random numbers, or in a loop of
many iterations, eager itself runs the call that has failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dy2st.branches.branch import BranchTrace
from dy2st.capture.foreign.host import acts
from dy2st.capture.foreign.host_results import CLOCKS, GENERATORS
from dy2st.capture.foreign.probe import RANDOM
from dy2st.state.strings import is_lazy
from dy2st.trace import scalar as number
from dy2st.trace.frames import Frame, TracedLoop
from dy2st.trace.scalar import RuntimeScalar, known, negate, negated
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import raised_at
from ir import Op, Program
from ir.program import Node
from ir.uses import walk

#: iterations of loops that are unrolled to find what an error in them leaves behind
MOST_ITERATIONS = 32


@dataclass(frozen=True)
class UnrolledError:
    """An error in the body of loops, which are known by the calls that led to them. `needed`: even
    if nothing has been changed."""

    loops: tuple[object, ...]
    needed: bool


@dataclass(frozen=True)
class RerunEagerly:
    """An error that eager meets when it runs the call that has failed. `needed`: as in
    `UnrolledError`; `random`: Paddle's generator begins again, too, and so do the `generators` of
    Python and NumPy. `quiet`: what it prints and logs has been printed and logged."""

    needed: bool
    random: bool = False
    generators: tuple[object, ...] = ()
    quiet: bool = False


def decision(frame: Frame) -> int:
    """The number of another condition on data."""
    frame.decisions += 1
    return frame.decisions


def site(trace: Trace, branch: BranchTrace, needed: bool) -> int:
    """The number of the error in which a branch ends, or 0: nothing has been changed, or a trace
    cannot end in it. `needed`: also where nothing has been changed."""
    changes = branch.stores or branch.appends or branch.changed or branch.written
    assert branch.frame.decision is not None
    return numbered(trace, branch.frame.decision, needed or bool(changes), branch.frame)


def numbered(trace: Trace, last: tuple[int, bool], needed: bool = False, *more: Frame) -> int:
    """Like `site`, for the error that the last of some conditions leads to."""
    if trace.endings.ahead is not None:
        return 0
    found: object
    if trace.in_loop:
        found = in_loops(trace, [f.loop for f in trace.frames if f.loop is not None], needed)
    elif needed or has_changed(trace):
        path = [f.decision for f in trace.frames[1:]]
        again = None in path or any(draws(f.builder.ops) for f in [*trace.frames, *more])
        found = RerunEagerly(True) if again else (*path, last)
    else:
        return 0
    trace.endings.paths.append(found)
    return len(trace.endings.paths)


def in_loops(
    trace: Trace, loops: Sequence[TracedLoop], needed: bool
) -> UnrolledError | RerunEagerly:
    """Like `numbered`, for an error in the body of loops: a trace without these loops says how many
    iterations lead to it."""
    trips = [q.trip for q in loops if trace.is_counted(q) and isinstance(q.trip, int)]
    if len(trips) < len(loops) or math.prod(trips) > MOST_ITERATIONS:
        return RerunEagerly(needed)
    return UnrolledError(tuple(q.calls for q in loops), needed)


def final_paths(trace: Trace, program: Program, changes: bool) -> list[Any]:
    """Return the paths to the errors for a second trace; None for errors that need none. `changes`:
    a call stores something. What acts while it runs runs a second time only where nobody sees
    it."""
    shows, random = draws(program.ops, {"host", "print"}), draws(program.ops, RANDOM)
    generators = repeated(program.ops)
    if generators is None and any(
        not isinstance(q, tuple) and q is not None and q.needed for q in trace.endings.paths
    ):
        for error in trace.endings.errors.values():
            check_attributes(error)

    def final(path: Any) -> Any:
        if isinstance(path, tuple):
            return path
        if path is None or generators is None or not (path.needed or changes):
            return None
        again = random or shows or isinstance(path, RerunEagerly)
        return RerunEagerly(True, random, generators, shows) if again else path

    return [final(q) for q in trace.endings.paths]


def check_attributes(error: Exception) -> None:
    """A call raises the object that the trace has made: with another text, but the attributes that
    it had then."""
    for name, value in vars(error).items():
        if is_lazy(value):
            raise Refused(
                f"the attribute {name} of a {type(error).__name__} is computed by the program.",
                raised_at(error),
                reason="Data decides whether it is raised, and only its text has values of that "
                "call.",
                remedy="Put the value into the text of the error.",
            )


def has_changed(trace: Trace) -> bool:
    """Whether the function has changed something that its caller may know."""
    inputs = {q.value for q in trace.inputs.by_id.values()}
    if any(q.cleared for q in trace.inputs.by_id.values()):
        return True
    stored = any(f.stores or f.appends or f.changed for f in trace.frames)
    stored = stored or any(tail.parts() for _, tail, _ in trace.guards.tails.values())
    return stored or not inputs.isdisjoint(trace.values.written)


def repeated(nodes: Iterable[Node]) -> tuple[object, ...] | None:
    """The generators from which host calls draw, if eager may make all host calls once more; None
    if one of them does anything but to draw, read a clock, write to a log or warn."""
    found = [q for q in walk(nodes) if isinstance(q, Op) and q.name == "foreign"]
    calls = [q.attrs["args"][0] for q in found if q.attrs["call"] == "host"]
    owners = {id(q.owner): q.owner for q in calls if isinstance(q.owner, tuple(GENERATORS))}
    others = [q for q in calls if id(q.owner) not in owners and q.owner is not acts]
    if not all(q.owner in CLOCKS and CLOCKS[q.owner] is not None for q in others):
        return None
    return tuple(owners.values())


def draws(nodes: Iterable[Node], calls: Collection[str] = RANDOM | {"host"}) -> bool:
    """Whether one of these foreign ops is there, which another program would do again."""
    found = [q for q in walk(nodes) if isinstance(q, Op) and q.name == "foreign"]
    return any(q.attrs["call"] in calls for q in found)


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


def follow(frame: Frame, block: Callable[[], object]) -> None:
    """Run a branch in the frame itself, where its conditions have the numbers of a branch."""
    held, frame.decisions = frame.decisions, 0
    block()
    frame.decisions = held
