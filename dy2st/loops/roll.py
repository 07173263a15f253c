"""Rolling of a Python loop into one `scan` or one `while`.

The body is traced once, with a symbolic index and a placeholder in every place that the loop
rebinds. Then each place is compared with its value before: equal types give carries, a difference
that vanishes after one iteration is peeled off, and any other difference undoes the trace and
unrolls the loop, with the line and the reason in the report. A test that depends on data becomes
the `go` port; one on the index alone bounds the number of iterations.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

from dy2st.branches.cond import decide
from dy2st.branches.unresolved import Unresolved, forget
from dy2st.loops import peeled_iterations as peeling
from dy2st.loops.body import BodyTrace
from dy2st.loops.growth.detection import count, guess, numbered, refute, unsteady
from dy2st.loops.iterables import check_lengths, in_turn
from dy2st.loops.learned_facts import LearnedFacts
from dy2st.loops.loop_code import UNKNOWN, LoopCode, LoopIterable
from dy2st.loops.record import AlwaysEnds, EndsOnData, Goes
from dy2st.loops.refusals import has_no_iteration, of_unrolled, without_an_iteration
from dy2st.state.containers.dynamic_lookup import MOST_UNROLLED
from dy2st.state.tree import TypeMismatch, cannot_unroll
from dy2st.trace.conditions import cut_for
from dy2st.trace.item import steps_over
from dy2st.trace.scalar import RuntimeScalar, is_runtime_scalar
from dy2st.trace.signals import (
    IndexOutOfRange,
    NeedsConcrete,
    Refused,
    Retrace,
    pass_on,
    raise_defect,
)
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import call_stack
from ir import ENDLESS, Loc, Require, Size
from ir.uses import has_effect


# ---------------------------------------------------------------- running a loop
def run(trace: Trace, over: LoopIterable, code: LoopCode) -> None:
    """Roll the loop, after peeling a few iterations, or unroll it."""
    site, partial = trace.where(), list[dict[object, object]]()
    trace.objects.partial.append(partial)
    try:
        LoopRoller(trace, site, over, code).run()
    finally:
        trace.objects.partial.pop()
    forget(trace, code.body, partial)
    check_lengths(over, code)
    if not trace.objects.partial:
        trace.frame.notes += trace.loop_facts.notes()


class LoopRoller(peeling.LoopAttempts):
    """The attempts to roll one loop."""

    def run(self, go: Goes | None = None) -> None:
        """`go`: whether the first iteration runs, if that has been asked already."""
        if self.over.trip == 0 or self.empty():
            return
        go = self.first_test() if go is None else go
        facts = self.trace.loop_facts
        if call_stack() in facts.unrolled:
            self.why = facts.unrolled[call_stack()]
            self.layers = call_stack() in facts.over_layers
            return self.unroll(go)
        while go is not False and self.over.trip != 0:
            if self.rolled(go) or self.peeled and self.empty():
                return
            if isinstance(self.first_stop, EndsOnData) and not (self.peeled or self.begun):
                raise self.first_stop
            cut, turn = getattr(self.first_stop, "cut", 0), go is True and self.turn()
            if turn and (not cut or self.open()) and self.split(turn):
                return
            if cut:
                return self.apart(cut, go)
            peel = int(getattr(self.first_stop, "peel", 1)) or int(self.begins_as_none())
            few = peeling.most_peeled(
                self.first_stop, self.over.trip, self.peeled, peel, self.turns
            )
            self.most = max(self.most, few)
            if self.peeled >= self.most or not peel:
                return self.unroll(go)
            self.traced.why["its first iterations run apart"] = None
            go = peeling.there_is_one(self.trace, self.over.trip, go)
            if is_runtime_scalar(go):
                self.peeled += 1
                return self.peel_in_branch(go)
            unfilled = [q for q in self.known().places.values() if q.get() is None]
            for _ in range(min(peel, self.most - self.peeled)):
                if go is not True or self.over.trip == 0:
                    break
                go = self.peel()
                if unfilled and all(q.get() is not None for q in unfilled):
                    break
        if all(getattr(e, "sure", False) for e, _ in self.stops.values()):
            self.keep_stops()

    def split(self, k: int) -> bool:
        """Index set splitting: one loop over the first `k` iterations, one over the rest. False if
        data may end the first one; then nothing has been done."""
        try:
            self.parted(k)
        except EndsOnData:
            if self.leads:
                raise
            return False
        return True

    def parted(self, k: int) -> None:
        over, code = self.over, self.code
        self.traced.why["its first iterations are a loop of their own"] = None
        for part, first in ((dataclasses.replace(over, trip=k), 0), (over.rest(k), k)):
            one = dataclasses.replace(code, key=(code.key, first, k))
            known = self.known()  # what has been learned of the body may hold for the rest, too
            facts = known.of_first_part() if first == 0 else known.of_rest(self.trace)
            self.trace.loop_facts.learned.setdefault(((call_stack(), one.key), 0), facts)
            runner = LoopRoller(self.trace, self.site, part, one, parts=self.parts + 1)
            runner.leads = self.leads or first == 0 and over.trip == ENDLESS
            runner.begun = self.begun or first > 0
            runner.fixed = first == 0 and not runner.leads
            runner.fills = first == 0 and k <= peeling.MOST_PEELED
            runner.run()
            self.beliefs = runner.beliefs if first == 0 or runner.beliefs == self.beliefs else None

    def apart(self, k: int, go: Goes) -> None:
        """Peel the last `k` iterations off: they run after the loop."""
        over, known = self.over, self.known()
        trip, believed, assumed = known.trip or over.trip, peeling.beliefs(known), known.assumed
        self.traced.why["its last iterations run apart"] = None
        if over.limit is not None:
            trip = steps_over(self.trace, over.limit[1] + 1, over.limit[0])
        elif over.trip != ENDLESS and isinstance(trip, int):
            trip = min(trip, int(over.trip))  # type: ignore[arg-type]
        self.trace.require(trip, k, "the last iterations of a loop run apart")
        self.fixed, self.tail, self.beliefs = not self.open(), self.why, None
        self.over = LoopIterable(trip - k, over.item, uncut=isinstance(trip, Size))
        self.run(go)
        if over.trip == ENDLESS and (assumed or self.beliefs != believed):
            # what seemed to bound it may not
            self.over = over
            return self.endless(self.code.more(self.trace, over, 0))
        items = (over.item(self.trace.sym(trip - k) + i) for i in range(k))
        more = functools.partial(self.code.more, self.trace, UNKNOWN)
        last = peeling.first_of(self.code, self.reached)
        peeling.unrolled(self.trace, enumerate(items), last, more)

    def peel(self) -> Goes:
        """Run the first iteration apart; returns whether there is another one."""
        self.peeled += 1
        self.turns = {k - 1 for k in self.turns if k > 1}
        if isinstance(self.over.trip, Size):
            self.trace.require(self.over.trip, 1, "the first iteration of a loop runs apart")
        self.code.body(self.over.item(0))
        self.over = self.over.rest()
        return self.over.trip != 0 and self.code.more(self.trace, self.over, 0)

    def empty(self) -> bool:
        """Whether this call's size makes it no loop at all: the program is for that size only."""
        trip = self.over.trip
        sizes = self.trace.sizes
        if not isinstance(trip, Size) or trip.names & sizes.births.keys() - sizes.quotients.keys():
            return False
        if sizes.settle(trip) != 0:
            return False
        self.trace.add_require(Require(trip, "==", 0, "a loop that does not run", self.site))
        return True

    def first_test(self) -> Goes:
        """The test before the loop; what it assigns is carried."""
        before, ops = self.code.get_state(), self.trace.builder.ops
        asked, mark = len(ops), self.trace.undo_log.mark()
        go = self.code.more(self.trace, self.over, 0)
        pairs = zip(self.code.names, before, self.code.get_state())
        changed = {n for n, a, b in pairs if a is not b}
        acts = bool(changed) or self.trace.undo_log.mark() != mark
        self.again = not acts and not any(map(has_effect, ops[asked:]))
        names = tuple(n.rstrip("=") if n in changed else n for n in self.code.names)
        self.code = dataclasses.replace(self.code, names=names)
        return go

    def rolled(self, go: Goes) -> bool:
        """Try until nothing new is learned; False leaves the reason in `why`."""
        try:
            return self.tried(go)
        finally:
            self.traced.facts.update(dict.fromkeys(self.known().facts()))

    def tried(self, go: Goes) -> bool:
        known, self.asked = self.known(), False
        # as where the code around was traced before; what has been cut is traced again
        if known.stop is not None and go is True and not getattr(known.stop[0], "cut", 0):
            self.layers = known.stop[2]
            self.stopped(*known.stop[:2])
            return False
        # of another loop at this line
        known.trip, known.exact, known.tested, known.assumed = None, False, False, False
        reason = f"peeled {self.peeled}: {self.why}" if self.peeled else self.tail
        unguessed: BaseException | None = None
        refused: Refused | None = None
        stop: BaseException | None = None
        for _ in numbered(known):
            self.ask_for_bound(known, go)
            reached = peeling.moved(self.trace, self.over, self.code, known)
            try:
                body = self.next_trace(known, go)
                with self.trace.loop_facts.counted(self.traced):
                    body.roll(self.site, reason)
                self.reached, self.beliefs = reached, peeling.beliefs(known)
                self.keep_stops()
                return True
            except Retrace:
                self.turns |= body.loop.turns
                stop = None
                if self.is_settled(body.sure, go):
                    return False
                continue
            except (NeedsConcrete, TypeMismatch) as e:
                self.turns |= body.loop.turns
                if body.frame.stale:
                    continue
                pass_on(e, {f.loop for f in self.trace.frames})
                if self.is_final(e):
                    return self.failed(e, body)
                stop = e
            except Exception as e:
                raise_defect(e)
                if body.frame.stale:
                    continue
                self.turns |= body.loop.turns
                stop = e
            except Refused as e:
                if body.frame.stale:
                    continue
                refused = refused or e
                if body.refused_early or count(body) or guess(body):
                    continue
                if known.forget_handed_on():
                    unguessed, self.asked = None, False
                    continue
                if not refute(body):
                    raise refused from None
                if unguessed is not None:
                    return self.failed(unguessed, body)
                if self.is_settled(body.sure, go):
                    return False
                continue
            if count(body) or isinstance(stop, IndexOutOfRange) and unsteady(known):
                continue
            if guess(body):
                unguessed = stop
            elif self.assume_bound(known, go, body.at_end):
                continue
            elif known.forget_handed_on():
                unguessed, self.asked = None, False
            elif not refute(body):
                return self.failed(stop, body)
            elif unguessed is not None:
                return self.failed(unguessed, body)
            elif self.is_settled(body.sure, go):
                return False
        if refused is not None:
            raise refused from None
        last = unguessed or (stop if isinstance(stop, TypeMismatch) else None)
        return self.failed(last, body) if last is not None else self.gives_up(known)

    def gives_up(self, known: LearnedFacts) -> bool:
        why = f"each trace of its body shows more than the one before: it {known}"
        self.stopped(NeedsConcrete(""), why)
        return False

    def failed(self, e: BaseException, body: BodyTrace) -> bool:
        """Note why the loop is not rolled. After wrong guesses about what grows, that is what has
        stopped the trace before them."""
        self.layers = body.loop.layers
        if isinstance(e, (NeedsConcrete, TypeMismatch)):
            if isinstance(body.loop.trip, Size) and not getattr(e, "peel", True):
                e.cut = e.cut or cut_for(body.loop, self.trace)  # type: ignore[union-attr]
                e.peel = 0 if e.cut else body.loop.settles  # type: ignore[union-attr]
            self.stopped(e, e.told(self.site) if isinstance(e, NeedsConcrete) else str(e))
            return False
        self.stopped(e, f"an iteration raises {type(e).__name__}: {e}")
        peel = max(isinstance(self.over.trip, Size), body.loop.settles)
        self.first_stop = NeedsConcrete(self.why, (), peel)
        return False

    def next_trace(self, known: LearnedFacts, go: Goes) -> BodyTrace:
        body = BodyTrace(self.trace, self.over, self.code, known, go)
        body.loop.calls, body.loop.inner = call_stack(), len(self.trace.objects.partial) > 1
        cuttable = peeling.most_apart(self.over, body.loop, self.open())
        body.loop.cuttable = cuttable if self.again else 0
        body.loop.leads = self.leads
        known.begin()
        return body

    def is_final(self, e: BaseException) -> bool:
        """Whether what has stopped a trace stops each other trace, too."""
        apart = isinstance(e, TypeMismatch) and e.sure and self.peeled < self.most
        return isinstance(e, (AlwaysEnds, EndsOnData)) or apart and not self.known().shaped()

    def is_settled(self, sure: TypeMismatch | NeedsConcrete | None, go: Goes) -> bool:
        """Whether no further trace makes it one loop: its first iterations have to run apart, or to
        be a loop of their own."""
        if sure is None:
            return False
        apart = isinstance(sure, TypeMismatch) and self.peeled < self.most
        settled = apart or getattr(sure, "few", False) or go is True and self.turn() > 0
        known = self.known()
        if not settled or known.shaped() and known.forget_handed_on():
            return False
        self.stopped(sure, str(sure))
        return True

    def ask_for_bound(self, known: LearnedFacts, go: Goes) -> None:
        """The test of an iteration may give a bound of the index once something is known of the
        places. Where it fails, so it does after the body, whose trace tells why."""
        if known.tested:
            known.trip, known.exact, known.tested = None, False, False
        if self.over.trip == ENDLESS and known.trip is None and str(known):
            self.ask(BodyTrace(self.trace, self.over, self.code, known, go))
            known.tested = known.trip is not None

    def assume_bound(self, known: LearnedFacts, go: Goes, at_end: bool) -> bool:
        """After a trace that failed, perhaps for want of a bound (not `at_end` of the body): a
        trace in which slices up to the index fit may come to a test that gives one. Whether it
        does; the next trace has to find it again."""
        if self.over.trip != ENDLESS or known.trip is not None or self.asked or at_end:
            return False
        self.asked = True
        body = BodyTrace(self.trace, self.over, self.code, known, go)
        body.loop.fits = True
        self.ask(body)
        known.assumed = known.trip is not None
        return known.assumed

    def ask(self, body: BodyTrace) -> None:
        if body.loop.fits:
            self.traced.why["a bound of its index is looked for"] = None
        try:
            with self.trace.loop_facts.counted(self.traced, int(body.loop.fits)):
                body.roll(self.site, "", asks=True)
        except (Retrace, Refused, NeedsConcrete):
            return
        except Exception as e:
            raise_defect(e)

    def peel_in_branch(self, go: RuntimeScalar) -> None:
        """The first iteration and the rest of the loop run only if there is one."""
        traced: list[bool] = []

        def run() -> None:
            self.code.body(self.over.item(0))
            rest = LoopRoller(self.trace, self.site, self.over.rest(), self.code, self.peeled)
            rest.why = self.why
            rest.run()
            traced.append(True)

        code = self.code
        state = (code.get_state, code.set_state, code.names, None, True)
        try:
            decide(self.trace, go, run, lambda: None, *state)
        except Refused as e:
            found = without_an_iteration(e, self.first, self.site) if traced else e
            if found is e or getattr(self.first, "before", "") != "None":
                raise found from None
            none = functools.partial(has_no_iteration, self.first, self.site)
            decide(self.trace, go, run, none, *state)

    # ------------------------------------------------------------ not rolled
    def note(self, ops: int) -> tuple[str, Loc, str]:
        """The line of the report about unrolled iterations, which have so many `ops`."""
        few, own = (getattr(self.first_stop, q, False) for q in ("few", "own"))
        if len(self.trace.objects.partial) < 2:  # as `[zeros([n]) for _ in layers]`
            trip = self.over.trip
            own = own and not self.code.names and isinstance(trip, int) and ops <= 2 * trip
        return in_turn(self.site, self.over.trip, self.why, few or own or self.layers)

    def unroll(self, go: Goes) -> None:
        if self.whole == ENDLESS:
            self.over = dataclasses.replace(self.over, trip=ENDLESS)
        endless = is_runtime_scalar(go) and self.over.trip == ENDLESS
        if is_runtime_scalar(go) and endless and go.loops and not go.data:
            raise NeedsConcrete("an inner loop has to be unrolled: " + self.why, go.loops)
        outer = self.trace.sym(self.over.trip).loops if isinstance(self.over.trip, Size) else ()
        if outer:
            what = "an inner loop, whose length moves with the index, has to be unrolled"
            peel = getattr(self.first_stop, "peel", True)
            raise NeedsConcrete(f"{what}: {self.why}", outer, peel)
        bound = self.known().trip if endless and not self.known().assumed else None
        few = bound if isinstance(bound, int) and 0 < bound <= MOST_UNROLLED else 0
        if (isinstance(self.over.trip, Size) or endless) and not few:
            raise cannot_unroll(self.whole, self.site, self.why, self.first)
        if getattr(self.first_stop, "few", False):
            self.keep_stops()
        notes, ops = self.trace.frame.notes, self.trace.builder.ops
        at, made = len(notes), len(ops)
        self.write_out(go, few)
        if self.over.trip and not self.fills:
            notes.insert(at, self.note(len(ops) - made))

    def write_out(self, go: Goes, few: int) -> None:
        """Iteration by iteration; `few`: at most so many of a `while` on data."""
        if self.over.trip == ENDLESS and not few:
            return self.endless(go)
        items: Iterator[object]
        if few:
            items = self.at_most(few)
        else:
            assert isinstance(self.over.trip, int)
            items = map(self.over.item, range(self.over.trip))
        more = functools.partial(self.code.more, self.trace, self.over)
        peeling.unrolled(self.trace, enumerate(items), self.code, more, go)
        for x in self.code.get_state():
            if type(x) is Unresolved and isinstance(e := x.__dict__["error"], Refused):
                x.__dict__["error"] = of_unrolled(e, self.first, self.site, self.why)

    def at_most(self, bound: int) -> Iterator[object]:
        """The items of a `while` on data whose test is false after `bound` iterations."""
        yield from map(self.over.item, range(bound + 1))
        raise cannot_unroll(self.whole, self.site, self.why, self.first)

    def endless(self, go: Goes) -> None:
        """A `while` on Python values, as Python runs it, until its test depends on data."""
        for i in itertools.count():
            if go is False:
                return None
            if is_runtime_scalar(go):
                rest = self.over.rest(i)
                return LoopRoller(self.trace, self.site, rest, self.code, peeled=2).run(go)
            self.code.body(self.over.item(i))
            go = self.code.more(self.trace, self.over, i + 1)
        return None


__all__ = ["UNKNOWN", "LoopCode", "run"]
