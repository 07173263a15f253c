"""Facts about a loop that one trace of its body finds and the next one begins with."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

from dy2st.state.containers.list_buffers import ListAccess
from dy2st.state.containers.list_pops import ListPops
from dy2st.state.traced_list import MOST_QUEUED, TraceList
from dy2st.state.tree import TypeMismatch
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.undo import Location
from ir import Type
from ir.types import Dim

#: a variable, attribute or item, and the way to a leaf of it
Path = tuple[object, ...]
#: facts that do not follow from what there is before the loop
LASTING = ("places", "trained", "rewritten", "written", "queues", "columns", "updated")
#: facts that may hold of other iterations, too
HANDED_ON = ("growth", "buffers")
#: those which may do so if a trace has begun with them
TRIED = ("steps", "fresh", "grown")
#: those of them that say how large things are
SHAPING = {"growth", "buffers", "grown"}
#: facts that may hold of some of the iterations that have shown them
OF_PART = (
    *LASTING, *HANDED_ON, *TRIED, "numbers", "maybe", "eithers", "resized", "copied", "shrinks",
    "fills", "guessed", "counted", "rebuilt",
)  # fmt: skip


@dataclasses.dataclass
class LearnedFacts:
    """Facts about one loop that its earlier traces found.

    places: attributes and items that the body rebinds; steps: integers that move by a constant,
    with that step; resized: tensors of which data decides the size; numbers: Python numbers that
    become values of the program; maybe: variables that only some iterations define, with their
    type; trained: places whose tensors require gradients only after some iterations; eithers:
    places that hold a number or a tensor, depending on data, with the types of both; growth:
    elements that an iteration appends to a list; grown: tensors that an iteration makes longer;
    fresh: containers that each iteration makes anew; rewritten: those that it changes before;
    copied: lists that it may replace and then changes, by `id`; written: places whose tensors it
    writes in place and rebinds; shrinks: lists out of which it takes elements; queues: lists from
    outside that the body shifts; fills: those that it stores at its index, tables: lists of lists
    among those, of which it changes the rows; buffers: those that it
    fills and reads, or stores at any place; columns: attributes of Layers that it stores; updated:
    buffers of Layers, one for each iteration, that it writes in place; trip: the largest number of
    iterations, whether it is exact, whether the test in front of the body has given it, and whether
    it is assumed: a trace under it has to find it again. guessed: places of `grown` that a trace
    which failed seemed to make longer; refuted: those that do not grow; counted: those that only
    some iterations make longer, depending on data. rebuilt: places whose lists or tuples it
    replaces by longer ones, with what the iterations begin with there; free: one of those has been
    guessed or refuted, by a trace that does not count. stop: why it is one after more iterations
    only, or written out, and whether its index picks Layers. begun: facts with which the last trace
    has begun. handed_on: by the name of the fact, what has been found of other iterations of the
    loop; a trace that fails goes without them. changes: how the types of tensors change in the
    first iteration that have been taken to grow; wrong: how those seemed to grow that do not.
    later: lists that only later iterations make longer; shifted: those that they shift.
    """

    places: dict[Path, Location] = dataclasses.field(default_factory=dict)
    steps: dict[Path, int] = dataclasses.field(default_factory=dict)
    numbers: dict[Path, tuple[type, bool]] = dataclasses.field(default_factory=dict)
    maybe: dict[Path, tuple[Type, bool, str]] = dataclasses.field(default_factory=dict)
    trained: set[Path] = dataclasses.field(default_factory=set)
    eithers: dict[Path, object] = dataclasses.field(default_factory=dict)
    growth: dict[int, Dim] = dataclasses.field(default_factory=dict)
    resized: dict[Path, Any] = dataclasses.field(default_factory=dict)
    grown: dict[Path, Any] = dataclasses.field(default_factory=dict)
    fresh: set[Path] = dataclasses.field(default_factory=set)
    rewritten: set[Path] = dataclasses.field(default_factory=set)
    copied: dict[int, TraceList] = dataclasses.field(default_factory=dict)
    written: set[Path] = dataclasses.field(default_factory=set)
    shrinks: dict[int, ListPops] = dataclasses.field(default_factory=dict)
    queues: dict[int, TraceList] = dataclasses.field(default_factory=dict)
    fills: dict[int, Any] = dataclasses.field(default_factory=dict)
    tables: dict[int, TraceList] = dataclasses.field(default_factory=dict)
    columns: dict[Any, Any] = dataclasses.field(default_factory=dict)
    buffers: dict[int, ListAccess] = dataclasses.field(default_factory=dict)
    updated: set[tuple[int, ...]] = dataclasses.field(default_factory=set)
    trip: Dim | None = None
    exact: bool = False
    tested: bool = False
    assumed: bool = False
    guessed: set[Path] = dataclasses.field(default_factory=set)
    refuted: set[Path] = dataclasses.field(default_factory=set)
    counted: set[Path] = dataclasses.field(default_factory=set)
    rebuilt: dict[Path, Any] = dataclasses.field(default_factory=dict)
    free: bool = False
    stop: tuple[BaseException, str, bool] | None = None
    peeled: int = 0
    begun: dict[str, set[object]] = dataclasses.field(default_factory=dict)
    handed_on: dict[str, set[object]] = dataclasses.field(default_factory=dict)
    changes: dict[Path, TypeMismatch] = dataclasses.field(default_factory=dict)
    wrong: dict[Path, object] = dataclasses.field(default_factory=dict)
    later: set[int] = dataclasses.field(default_factory=set)
    shifted: dict[int, TraceList] = dataclasses.field(default_factory=dict)

    def behind_an_iteration(self, peeled: int) -> LearnedFacts:
        """The facts about the body that hold whatever the first iteration has left, and those
        which may hold."""
        out = self.kept((*LASTING, *HANDED_ON, *TRIED), peeled)
        for f in TRIED:
            tried = self.begun.get(f, set()) - self.guessed
            drop(getattr(out, f), out.handed_on.get(f, set()) - tried)
            out.handed_on[f] = set(getattr(out, f))
        return out

    def begin(self) -> None:
        """Note the facts with which a trace begins."""
        self.begun = {f: set(getattr(self, f)) for f in TRIED}

    def of_rest(self, trace: Trace) -> LearnedFacts:
        """The facts about the body in the iterations behind the first part."""
        out = self.behind_an_iteration(0)
        out.refuted |= self.refuted
        if self.refuted:
            out.handed_on["refuted"] = set(self.refuted)
        for key, shifted in self.shifted.items():
            out.growth.pop(key, None)
            out.buffers.pop(key, None)
            shifted.split(trace, MOST_QUEUED)
            if not shifted.segmented and shifted.parts():
                out.queues[key] = shifted
                out.handed_on.setdefault("queues", set()).add(key)
        return out

    def of_first_part(self) -> LearnedFacts:
        """The facts about the body in the first iterations, which are a loop of their own: what
        does not grow in all iterations may do so there."""
        out = self.kept(OF_PART, 0)
        for path, growth in self.wrong.items():
            out.grown[path] = growth
            out.guessed.add(path)
        for key in self.later:
            out.growth.pop(key, None)
        return out

    def kept(self, facts: Iterable[str], peeled: int) -> LearnedFacts:
        kept = {f: copy.copy(getattr(self, f)) for f in facts}
        handed_on = {f: set(q) for f, q in kept.items() if q and f not in LASTING}
        return LearnedFacts(peeled=peeled, handed_on=handed_on, **kept)

    def shaped(self) -> bool:
        """Whether how large things are is known from other iterations."""
        return any(self.handed_on.get(f) for f in SHAPING)

    def forget_handed_on(self) -> bool:
        """Forget what was handed on and may not hold; returns whether there was something."""
        found, self.handed_on = self.handed_on, {}
        for f, keys in found.items():
            drop(getattr(self, f), keys)
        self.free |= any(found.values())
        return any(found.values())

    def other_step(self, path: Path, step: object) -> bool:
        """Learn another step of an integer than iterations before had; False if there is none."""
        before = self.handed_on.get("steps", set())
        if path not in before or not isinstance(step, int):
            return False
        before.discard(path)
        self.steps[path] = step
        return True

    def step(self, path: Path, x: object) -> int | None:
        """The step of an integer that moves by a constant; None for what is not one, or has turned
        out to move otherwise."""
        moves = path not in self.numbers and (type(x) is int or is_symint(x))
        return self.steps.get(path) if moves else None

    def facts(self) -> list[str]:
        """Describe the facts about the body for the report."""
        found = {
            "stores attributes or items": self.places,
            "moves integers by a constant": self.steps,
            "computes Python numbers": self.numbers,
            "defines variables in some iterations only": self.maybe,
            "makes tensors require a gradient": self.trained,
            "gives a variable a number or a tensor": self.eithers,
            "reads a list that it fills": self.growth,
            "makes a tensor longer": self.grown,
            "changes the size of a tensor": self.resized,
            "makes a container anew": self.fresh,
            "replaces a list by a longer one": self.rebuilt,
            "writes a tensor and rebinds it": self.written,
            "takes elements out of a list": any(q.total for q in self.shrinks.values()),
            "shifts a list": self.queues,
            "stores the elements of a list": self.fills,
            "stores attributes of Layers": self.columns,
            "writes buffers of Layers": self.updated,
            "reads any element of a list that it fills": self.buffers,
            "has a bound": self.trip is not None,
        }
        return [text for text, known in found.items() if known]

    def __str__(self) -> str:
        return ", ".join(self.facts())


def drop(facts: Any, keys: Iterable[Any]) -> None:
    """Remove facts of a kind."""
    for k in keys:
        facts.discard(k) if isinstance(facts, set) else facts.pop(k, None)


def refute(known: LearnedFacts, path: tuple[Any, ...]) -> None:
    """Record that an iteration does not leave an extension of the old container in a place."""
    del known.rebuilt[path]
    known.refuted.add(path)
    known.free = True


__all__ = ["LearnedFacts", "Path", "refute"]
