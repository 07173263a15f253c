"""Identity of the elements of lists that loops have filled, in results.

A list whose elements the results show once is rows of stacked tensors, new ones for each call. What
other lists and results show of it, they take from the list that a call has made: an
element is a `ListElement`. Elements of a second list are copies, with a `CopyWarning`.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dy2st.results.elements import ElementRows, ElementValues, ElementViews, FilledList, ListElement
from dy2st.results.leaves import SizeNumber, ViewOutput
from dy2st.state.stacked_run import KnownValue, StackedRun, Unstacked, mapped
from dy2st.state.stacked_run import StackedLeaf as Collected
from dy2st.state.traced_list import TraceList
from dy2st.trace.memory import chain_in_loop, is_apart
from dy2st.trace.symint import is_symint
from ir import Carry, Value
from ir.types import Dim


class FilledLists:
    """`results`: those that are planned. `lists`: how many lists of them show a run, as a whole or
    in a slice; `picked`: how many elements they show of it."""

    def __init__(self, results: Any) -> None:
        self.results, self.trace = weakref.proxy(results), results.trace
        self.lists: Counter[StackedRun] = Counter()
        self.picked: Counter[StackedRun] = Counter()
        self.columns: dict[Value, ElementRows] = {}
        self.trees: dict[StackedRun, Any] = {}

    # ------------------------------------------------------------ what is shown
    def note(self, run: StackedRun, count: Counter[StackedRun]) -> None:
        """A result shows elements of a run, and so of those that it is taken from."""
        count[run] += 1
        for q in sources(run):
            self.note(q, count)

    def note_tensor(self, value: Value) -> None:
        objects = dict.fromkeys((value, *self.results.provenance.objects(value)))
        for q in {v for x in objects for v in self.trace.chain(x)}:
            if q in self.trace.values.picks:
                self.note(self.trace.values.picks[q][0], self.picked)

    def again(self, run: StackedRun) -> bool:
        """Whether results show elements of a run in two places."""
        return self.lists[run] + self.picked[run] > 1 or any(map(self.again, sources(run)))

    def is_listed(self, run: StackedRun) -> bool:
        return self.lists[run] > 0 or any(map(self.is_listed, sources(run)))

    def is_element(self, value: Value) -> bool:
        """Whether a tensor is an element of a list that the results show."""
        pick = self.trace.values.picks.get(value)
        outermost = self.trace.values.frame_of.get(value) is self.trace.frames[0]
        return pick is not None and outermost and self.is_listed(pick[0])

    def is_pick(self, value: Value) -> bool:
        """Whether iterations may append an element of a list that the results show."""
        picks, reached = self.trace.values.picks, self.results.provenance.reach(value)
        return any(q in picks and self.is_listed(picks[q][0]) for q in (value, *reached))

    def element(self, value: Value, stop_gradient: bool) -> ListElement | ViewOutput | None:
        """The leaf of an element, or of a view of one; None for other tensors."""
        found = next((q for q in self.trace.chain(value) if self.is_element(q)), None)
        if found is None:
            return None
        if found is not value:
            of = self.results.known_leaf(found, stop_gradient)
            return ViewOutput(of, self.results.recipe(value, found), stop_gradient)
        return self.pick(value)

    def pick(self, value: Value) -> ListElement:
        run, index, path = self.trace.values.picks[value]
        of = FilledList((self.part(run, "the result"),))
        return ListElement(of, self.results.tree(index, "the result"), path)

    def shows(self, value: Value) -> bool:
        """Whether a tensor of any block is, or shows, an element of a list that the results
        show."""
        picks = self.trace.values.picks
        return any(q in picks and self.is_listed(picks[q][0]) for q in self.trace.chain(value))

    def option(self, value: Value) -> ListElement | None:
        """The leaf of an element that a branch or a loop has taken, by an index that does not
        depend on it; None for other tensors."""
        _, index, _ = self.trace.values.picks.get(value, (None, None, ()))
        return self.pick(value) if type(index) is int else None

    # ------------------------------------------------------------ plans
    def elements(self, x: TraceList, what: str) -> object:
        """A list whose length only the call knows: its elements are slices of stacked tensors, and
        those from before the loops themselves."""
        parts = x.parts()
        runs = [q for q in parts if isinstance(q, StackedRun)]
        columns = [q for run in runs for q in parts_of(run.tree)]
        seen = any(self.is_aliased(v) for q in columns for v in values_of(q))
        alone = len(runs) == len(parts) and not any(map(self.again, runs))
        if alone and not seen:
            whole = x.as_segment(self.trace)
            if whole is not None:
                return FilledList((mapped(lambda q: self.column(q, whole.trip), whole.tree),))
        planned = [self.part(q, what) for q in parts]
        if all(isinstance(q, list) for q in planned):
            return [*itertools.chain.from_iterable(planned)]
        return FilledList(tuple(planned))

    def part(self, part: object, what: str) -> Any:
        if not isinstance(part, StackedRun):
            return [self.results.tree(part, what)]
        if part not in self.trees and self.has_aliased_slices(part):
            items = [part.tree.item(self.trace, i) for i in range(part.trip)]  # type: ignore[arg-type]
            self.trees[part] = [self.results.tree(q, what) for q in items]
        if part not in self.trees:
            copied = bool(part.origin) and self.again(part)
            self.trees[part] = mapped(lambda q: self.column(q, part.trip, copied), part.tree)
        return self.trees[part]

    def has_aliased_slices(self, run: StackedRun) -> bool:
        """Whether elements are slices of a tensor that the caller, or another result, knows."""
        q = run.tree
        if not isinstance(q, Unstacked) or q.number or not isinstance(run.trip, int):
            return False
        root = self.trace.root
        views = all(root(v) is root(q.fake._value) for v in q.members)
        return views and any(map(self.is_aliased, q.members))

    def is_aliased(self, value: Value) -> bool:
        """Whether other results, or the caller, know the memory of a list's element."""
        own = {value}
        found = self.results.provenance.storages(value)
        mine = [
            s
            for s in found
            if s in own and self.results.listed.get(s) == own and not self.results.known(s)
        ]
        copied = (s for v in self.trace.chain(value) for s in self.results.copied(v))
        return any(self.results.visible(s) for s in (*found, *copied) if s not in mine)

    def column(
        self, q: Any, trip: Dim, copied: bool = False
    ) -> ElementRows | ElementViews | ElementValues:
        """The values of one leaf of a list's elements, one tensor or number per iteration;
        `copied`: another list shows them, too."""
        if isinstance(q, KnownValue):
            value = SizeNumber(q.value.dim) if is_symint(q.value) else q.value
            return ElementValues(
                value, q.loop, self.results.tree(self.trace.sym(trip), "the result")
            )
        single = isinstance(q, Collected) and q.group == 0 and not q.number
        if single and not copied and (found := self.views(q, trip)) is not None:
            return found
        if any(
            copied or self.is_aliased(v) or self.twice(v) or self.is_pick(v) for v in values_of(q)
        ):
            whole = q.stacked(self.trace, 0)._value
            self.results.warn_of_copy(q.cell.scan.loc if single else self.results.line(whole))
        return self.rows(q)

    def views(self, q: Collected, trip: Dim) -> ElementViews | None:
        """An element shows a tensor from outside of the loop; None where it does not."""
        trace, home, frame = (
            self.trace,
            self.results.home(q.inner),
            self.trace.values.frame_of[q.inner],
        )
        if not self.results.provenance.outermost(home) or frame.loop is None:
            return None
        recipe = chain_in_loop(trace, q.inner, home, frame)
        if recipe is None or not self.results.visible(home) and is_apart(recipe, frame.loop.name):
            return None
        steps = self.results.tree(trace.sym(trip), "the result")
        return ElementViews(
            self.results.leaf(home), recipe, frame.loop.name, steps, q.stop_gradient
        )

    def twice(self, value: Value) -> bool:
        """Whether two iterations may append the same memory."""
        p, loops = self.results.provenance, list(self.results.provenance.loops(value))[:1]
        return any(
            isinstance(p.ports.get(v, (None, None))[1], Carry) and p.ports[v][0] in loops
            for v in p.reach(value)
        ) or any(loops[0] not in p.loops(s) for s in p.objects(value) if loops)

    def rows(self, q: Any) -> ElementRows:
        """The stacked tensor of one leaf; two lists that get the same tensor in every iteration
        share it."""
        single = isinstance(q, Collected) and q.group == 0
        fake: Any = None if single and q.inner in self.columns else q.stacked(self.trace, 0)
        key = q.inner if single else fake._value
        if key not in self.columns:
            output = self.results.output(fake._value, fake.stop_gradient)
            self.columns[key] = ElementRows(output, q.number, fake.stop_gradient)
        return self.columns[key]


def sources(run: StackedRun) -> Iterator[StackedRun]:
    """The runs that a run is taken from."""
    return (q for q in run.origin if isinstance(q, StackedRun))


def parts_of(tree: object) -> Iterator[object]:
    """Yield the leaves of a segment's tree."""
    if isinstance(tree, tuple):
        for q in tree:
            yield from parts_of(q)
    else:
        yield tree


def values_of(q: Any) -> Sequence[Value]:
    """The tensors of which an iteration appends one or several."""
    return () if q.number else q.members
