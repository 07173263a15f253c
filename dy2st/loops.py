"""How a Python loop becomes one `scan`.

The body is traced once, with a symbolic index and a placeholder in every place that the loop
rebinds. Then the places are compared with what they held before: same types give carries, a
difference that vanishes after one iteration is peeled off, and anything else undoes the trace and
unrolls the loop, with the line and the reason in the report.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from dy2st.capture.emitter import lift
from dy2st.capture.fake import Tensor
from dy2st.capture.trace import Frame, Trace
from dy2st.containers import Segment
from dy2st.journal import MISSING
from dy2st.plan import UNDEF, Mismatch, Plan, tree
from dy2st.stops import Learned, NeedsConcrete, Refused
from ir import Size, SourceError, Value
from ir.types import Dim

Item = Callable[[Any], Any]
MOST_TRACES = 8


@dataclasses.dataclass
class Sequence_:
    """What a `for` runs over: `trip` items, `item(i)` for an int or a symbolic i."""

    trip: Dim
    item: Item

    def rest(self) -> Sequence_:
        """Without the first item."""
        return Sequence_(self.trip - 1, lambda i: self.item(i + 1))


@dataclasses.dataclass
class Known:
    """What earlier traces of one loop learned: places that move, integers with their step, and
    places whose tensors require gradients only after that many iterations."""

    places: dict[tuple[Any, ...], Any] = dataclasses.field(default_factory=dict)
    steps: dict[tuple[Any, ...], int] = dataclasses.field(default_factory=dict)
    trained: dict[tuple[Any, ...], int] = dataclasses.field(default_factory=dict)
    flags: dict[Any, bool] = dataclasses.field(default_factory=dict)


def run(
    trace: Trace,
    over: Sequence_,
    body: Callable[[Any], None],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[tuple[Any, ...]], None],
    names: Sequence[str],
    test: Callable[[], Any] | None,
) -> None:
    """Roll the loop, after peeling at most two iterations, or unroll it."""
    site = trace.where()
    if isinstance(over.trip, Size) and any(n in trace.loops for n in over.trip.names):
        used = [trace.loops[n] for n in over.trip.names if n in trace.loops]
        raise NeedsConcrete("an inner loop is as long as the index of this one says", used)
    known = trace.learned.setdefault((site, len(trace.frames)), Known())
    why, peeled, traces, first = "", 0, 0, None
    whole = over.trip
    while traces < MOST_TRACES and over.trip != 0:
        traces += 1
        try:
            reason = f"peeled {peeled}: {why}" if peeled else ""
            Attempt(trace, over, body, get_state, set_state, names, test, known).roll(site, reason)
            return
        except Learned:
            continue
        except (NeedsConcrete, Mismatch) as e:
            foreign_loop(trace, e)
            why = e.reason if isinstance(e, NeedsConcrete) else str(e)
            first = first or e
            if peeled == 2 or not getattr(e, "peel", True):
                break
            trace.require(over.trip, 1, "the first iteration of a loop runs apart")
            if not step(trace, over.item(0), body, test):
                return
            over, peeled = over.rest(), peeled + 1
        except Refused:
            raise
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
            break
    else:
        why = why or "the body creates new places in every trace"
    if isinstance(over.trip, Size):
        raise cannot_unroll(whole, site, why, first)
    unroll(trace, site, over, body, test, why)


def foreign_loop(trace: Trace, e: BaseException) -> None:
    """Let a need for another loop's index pass to that loop."""
    loops: frozenset[Any] = getattr(e, "loops", frozenset())
    outer = {f.loop for f in trace.frames}
    if loops and loops <= outer:
        raise e


def step(trace: Trace, item: Any, body: Callable[[Any], None], test: Any) -> bool:
    """One iteration in place; False when a `break` ended the loop before it."""
    if test is not None and not truth(trace, test()):
        return False
    body(item)
    return True


def truth(trace: Trace, value: Any) -> bool:
    """The truth of a Python value; a tensor is refused by name."""
    if isinstance(value, Tensor):
        raise Refused(
            SourceError(
                "a condition on a tensor.",
                trace.where(),
                reason="Branches and loops that depend on data are not translated yet.",
                remedy="Select with `paddle.where`, or decide on a Python value.",
            )
        )
    return bool(value)


def cannot_unroll(trip: Dim, site: Any, why: str, first: Any) -> Refused:
    """A loop over a named size must be one loop; `first` is what stood against it."""
    if isinstance(first, Mismatch) and first.loc is not None:
        return Refused(
            SourceError(
                f"'{first.name}' changes type in this loop.",
                first.loc,
                here=f"{first.after} here, {first.before} before the loop (line {site.line})",
                reason=f"A loop over the named size {trip} keeps the type of every variable it "
                f"carries (here: {first.name}).",
                remedy=f"Give {first.name} its final shape before the loop, or collect the pieces "
                "in a list and concat once after it.",
            )
        )
    return Refused(
        SourceError(
            f"this loop over the named size {trip} cannot become one loop.",
            site,
            reason=f"In its body, {why}.",
            remedy="Make every iteration alike, or give the size as a number in input_spec.",
        )
    )


def unroll(
    trace: Trace, site: Any, over: Sequence_, body: Callable[[Any], None], test: Any, why: str
) -> None:
    if over.trip:
        trace.frame.notes.append(("unrolled", site, why))
    for i in range(int(over.trip)):  # type: ignore[arg-type]
        if not step(trace, over.item(i), body, test):
            return


class Attempt:
    """One tentative trace of the body."""

    def __init__(
        self,
        trace: Trace,
        over: Sequence_,
        body: Callable[[Any], None],
        get_state: Callable[[], tuple[Any, ...]],
        set_state: Callable[[tuple[Any, ...]], None],
        names: Sequence[str],
        test: Any,
        known: Known,
    ) -> None:
        self.trace, self.over, self.body, self.test, self.known = trace, over, body, test, known
        self.get_state, self.set_state, self.names = get_state, set_state, names
        self.loop = trace.new_loop(over.trip)
        self.frame = Frame(loop=self.loop)
        self.loop.frame = self.frame
        trace.born[self.loop.index] = self.frame
        self.held: dict[int, tuple[Any, Value]] = {}

    def roll(self, site: Any, reason: str) -> None:
        """Trace, undo, and append the loop to the program with the places set to its results."""
        trace, mark = self.trace, self.trace.journal.mark()
        before = self.get_state()
        old = {k: place.get() for k, place in self.known.places.items()}
        try:
            trace.frames.append(self.frame)
            plan = self.trace_once(before, old)
        finally:
            if self.frame in trace.frames:
                trace.frames.remove(self.frame)
            trace.journal.undo_to(mark)
            self.set_state(before)
        trace.frame.notes.append(("scan", site, reason))
        trace.frame.adopt(self.frame)
        self.commit(plan, before, old)

    def trace_once(self, before: tuple[Any, ...], old: dict[Any, Any]) -> Plan:
        trace = self.trace
        state = tuple(
            b if n.endswith("=") else tree(self.placeholder, b, (n,))
            for n, b in zip(self.names, before)
        )
        held = {k: tree(self.placeholder, v, k) for k, v in old.items()}
        for k, place in self.known.places.items():
            if held[k] is not MISSING:
                trace.store(place, held[k])
        self.set_state(state)
        self.body(self.over.item(trace.sym(Size.named(self.loop.name))))
        if self.test is not None and not truth(trace, self.test()):
            raise NeedsConcrete("the loop always ends after this iteration")
        after = self.get_state()
        self.learn_places()
        rows = [
            (n.rstrip("="), UNDEF if n.endswith("=") else b, p, a, (n,))
            for n, b, p, a in zip(self.names, before, state, after)
        ]
        places = self.known.places
        rows += [(str(q), old[k], held[k], q.get(), k) for k, q in places.items()]
        return Plan(self, rows)

    def placeholder(self, x: Any, path: tuple[Any, ...]) -> Any:
        """What stands for `x` in the body: one per place, never per object."""
        if isinstance(x, Tensor):
            fake = lift(self.trace, x)
            name = path[0] if isinstance(path[0], str) and path[0].isidentifier() else "state"
            if path[0] in ("attr", "item"):
                name = str(path[2]) if isinstance(path[2], str) else "state"
            inner = self.trace.new_value(fake._value.type, name, self.frame)
            self.trace.placeholders.add(inner)
            stop = fake.stop_gradient and path not in self.known.trained
            stand_in = self.trace.fake(inner, stop)
            self.held[id(stand_in)] = (stand_in, fake._value)
            return stand_in
        if path in self.known.steps:
            return x + self.trace.sym(Size.named(self.loop.name) * self.known.steps[path])
        return x

    def learn_places(self) -> None:
        """Attributes and items that the body stored become carried places of the next trace."""
        new = {k: q for k, q in self.frame.stores.items() if k not in self.known.places}
        if new:
            self.known.places.update(new)
            raise Learned

    def commit(self, plan: Plan, before: tuple[Any, ...], old: dict[Any, Any]) -> None:
        trace = self.trace
        trace.frame.builder.append(plan.cell.scan)
        for target, items in plan.appends:
            list.append(target, Segment(self.over.trip, plan.segment(items)))
            trace.journal.note(functools.partial(list.pop, target))
        for k, place in self.known.places.items():
            if plan.finals[k] is not old[k]:
                trace.store(place, plan.finals[k])
        self.set_state(tuple(plan.finals[(n,)] for n in self.names))
        for r in plan.needs_iteration:
            trace.require(self.over.trip, 1, r)
