"""The report of a translation: its loops and branches, the foreign ops, the storages that it
writes, and the residuals of a training call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dy2st.compiled.training import TrainingPrograms
from dy2st.results.leaves import OutputPlan, inputs
from dy2st.trace.trace import TracedInput
from executor.launches import Copy
from ir import Loc, Program, Scan, Value
from ir.analysis.history import Chain, ended
from ir.analysis.recurrences import recurrences
from ir.autodiff import Residual
from ir.loc import UNKNOWN
from ir.uses import walk


@dataclass(frozen=True)
class LoopNote:
    """One loop. `kind` is `scan` (counted), `while` (data ends it), `unrolled`, or `written out`: a
    loop over the layers of a model, or over what is kept for each of them, which takes no more time
    one after the other. `reason` says why, or what was peeled; `states` names those that are
    recurrences."""

    kind: str
    loc: Loc
    reason: str = ""
    states: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.loc}: {self.kind}" + (f" ({self.reason})" if self.reason else "")
        return ", ".join([text, *self.states])


@dataclass(frozen=True)
class Report:
    """`loops` in the order of the program; `conds` are the places of branches on data; `foreign`
    are ops without a row, by name. `chains` are the storages of parameters, buffers and arguments,
    written or only read; `residuals` has a line for each value that the backward pass reads;
    `retraced` says why the function, or the body of a loop, was traced again; `hosted` are the host
    calls, by name; `schedule` has the kernels of a GPU, and where they wait."""

    loops: tuple[LoopNote, ...]
    foreign: tuple[tuple[str, Loc], ...]
    conds: tuple[Loc, ...] = ()
    chains: tuple[Chain, ...] = ()
    residuals: tuple[str, ...] = ()
    retraced: tuple[str, ...] = ()
    hosted: tuple[tuple[str, Loc], ...] = ()
    schedule: str = ""

    @property
    def foreign_counts(self) -> dict[str, int]:
        """The number of ops of each name that Paddle's own kernels run."""
        return dict(Counter(name for name, _ in self.foreign))

    def __str__(self) -> str:
        lines = [f"loops: {len(self.loops)}", *(f"  {q}" for q in self.loops)]
        if self.conds:
            lines += [f"branches on data: {len(self.conds)}", *(f"  {q}" for q in self.conds)]
        lines.append(f"foreign ops: {len(self.foreign)}")
        lines += [f"  {loc}: {name}" for name, loc in self.foreign]
        if self.hosted:
            lines += [f"host calls: {len(self.hosted)}"]
            lines += [f"  {loc}: {name}" for name, loc in self.hosted]
        written = [q for q in self.chains if q.written]
        if written:
            lines.append(f"written in place: {len(written)}")
            lines += [f"  {line}" for line in alike(written)]
        if self.residuals:
            lines += [f"read by the backward: {len(self.residuals)}"]
            counts = Counter(self.residuals)
            lines += [f"  {q}" + (f" ({n} times)" if n > 1 else "") for q, n in counts.items()]
        lines += [f"traced again: {q}" for q in self.retraced]
        if self.schedule:
            lines += ["schedule:", *(f"  {q}" for q in self.schedule.split("\n"))]
        return "\n".join(lines)


def alike(chains: Sequence[Chain]) -> list[str]:
    """The lines of chains; of those that differ in their names alone, the first one's."""
    groups: dict[str, list[str]] = {}
    for q in chains:
        name, rest = str(q).split(": ", 1)
        groups.setdefault(rest, []).append(name)
    found = []
    for rest, (name, *others) in groups.items():
        head, *steps = f"{name}: {rest}".split("\n")
        more = f", as are {len(others)} others" if len(others) > 1 else ""
        found += [head + more, *steps]
        if len(others) == 1:
            found += f"{others[0]}: {rest}".split("\n")
    return found


RECURRENCES = {
    "linear": "a linear recurrence",
    "sum": "a running sum",
    "product": "a running product",
    "largest": "a running maximum",
    "least": "a running minimum",
}


def loop_note(kind: str, loc: Loc, text: str, loops: Sequence[Scan]) -> LoopNote:
    """From a trace's note, and the loops of the program that came of it. Counters have no name."""
    found = [q for s in loops for q in recurrences(s) if q.carry.inner.type.dtype.kind == "f"]
    states = dict.fromkeys(
        f"{q.carry.inner.name or 'a state'} is {RECURRENCES[q.kind]}" for q in found
    )
    kind = loops[0].name if kind == "while" and loops else kind
    return LoopNote(kind, loc, text, tuple(states))


def make_report(
    notes: list[tuple[str, Loc, str]],
    chains: Sequence[Chain] = (),
    residuals: Sequence[str] = (),
    retraced: Sequence[str] = (),
    *,
    program: Program,
    schedule: str = "",
) -> Report:
    """From a trace's notes (kind, place, text), and the program that came of them."""
    made: dict[Loc, list[Scan]] = {}
    for n in walk(program.ops):
        if isinstance(n, Scan):
            made.setdefault(n.loc, []).append(n)
    loops = tuple(
        loop_note(kind, loc, text, made.get(loc, ()))
        for kind, loc, text in notes
        if kind not in ("foreign", "cond", "retraced", "host")
    )
    again = [f"the loop at {loc}, {text}" for kind, loc, text in notes if kind == "retraced"]
    foreign = tuple((text, loc) for kind, loc, text in notes if kind == "foreign")
    conds = dict.fromkeys(loc for kind, loc, _ in notes if kind == "cond")
    hosted = dict.fromkeys((text, loc) for kind, loc, text in notes if kind == "host")
    return Report(
        loops, foreign, tuple(conds), tuple(chains), tuple(residuals), (*retraced, *again),
        tuple(hosted), schedule,
    )  # fmt: skip


def finished_chains(
    captured: Program,
    found: Sequence[Chain],
    traced: Sequence[TracedInput],
    plan: OutputPlan,
    training: object,
    copies: Sequence[Copy],
) -> list[Chain]:
    """The chains of a captured program, with their ends and with the copies that are left."""
    own = [i.value for i in captured.inputs]
    values = [q.value if q.share is None else q.share.base.value for q in traced]
    returned = {values[k] for k in inputs((plan.result, plan.stores))}
    kept: dict[Value, Residual] = {}
    if isinstance(training, TrainingPrograms):
        forward = training.gradient.forward
        for r in training.gradient.residuals:
            at = r.index if r.source == "slot" else r.copy_of
            if at >= 0:
                kept[forward.inputs[at].value] = r
    broken = [(q.input.value, (q.reason, q.loc)) for q in copies if q.input is not None]
    out = []
    for c in found:
        value = own[c.index]
        reasons = [why for of, why in broken if of is value] if c.written else []
        if value in kept and kept[value].source != "slot":
            reasons.append(_why_kept(c))
        chain = ended(c, value in returned, value in kept)
        out.append(replace(chain, broken=tuple(reasons)))
    return out


def _why_kept(c: Chain) -> tuple[str, Loc]:
    quiet = c.quiet
    if quiet is None:
        return "what is kept for the backward is another tensor", UNKNOWN
    return (
        "it is kept for the backward, and this call of Paddle does not move the version by which "
        "the backward could tell that it has been written again",
        quiet.loc,
    )


def copies_of(executable: object) -> Sequence[Copy]:
    """The copies that a compiled program keeps; an interpreted one plans none."""
    return getattr(executable, "copies", ())
