"""Rows of a list of lists that a loop changes at its index.

    table = [[None] * m for _ in range(n)]      for t in range(n):
    for t in range(n):                              row = list(table[t])
        table[t][0] = f(table[t - 1][0])            row[0] = f(table[t - 1][0])
                                                    table[t] = row

The iteration has a list of its own for a row at its index. When it changes that, the loop stores it
in the table (`list_fills`); the lists that were rows before may not be used any more.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from dy2st.state.containers import list_fills
from dy2st.state.containers import list_recurrences as recurrences
from dy2st.state.containers.constants import is_constant, same_constant
from dy2st.state.containers.dynamic_lookup import (
    MOST_WRITTEN_OUT,
    at_frame,
    element,
    is_inside,
    reached,
)
from dy2st.state.containers.records import LOST, Record, element_doubt
from dy2st.state.stacked_run import StackedRun, hold, joined, length_of
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import SymInt, is_symint
from dy2st.trace.trace import Frame, Trace, TracedLoop
from dy2st.trace.trace_state import AmbiguousContainer
from ir.types import names_in

#: a list of the trace, whose module imports this one, or what is in it
Table: TypeAlias = Any


def is_row(x: object) -> bool:
    """Whether a part of a list is a list, or stands for several."""
    if isinstance(x, StackedRun):
        return isinstance(x.tree, Record) and x.tree.form.kind is list
    return hasattr(x, "columns")


def row(trace: Trace, table: Table, i: object, loops: Sequence[Frame]) -> Table:
    """The list that an iteration has for `table[i]`; None where `i` is no index of a loop."""
    if not is_symint(i) or not loops or not all(map(is_row, table.raw())):
        return None
    if LOST in trace.loop_facts.unrolled.values():
        return None
    key = id(table)
    grown = recurrences.is_grown(table, loops)
    grown |= any(key in f.appends and key not in f.fills or key in f.queues for f in loops)
    n: Table = table.size()
    homes = [f for f in loops if f.loop and f.loop.name in names_in(i.dim)]
    if grown or homes != loops[:1] or type(n) is not int or not is_inside(trace, i, n):
        return None
    home, loop = loops[0], loops[0].loop
    if loop is None or loop.inner and is_inside(trace, loop.trip, MOST_WRITTEN_OUT + 1):
        return None  # over the layers of a model
    if (key, i.dim) not in home.rows:
        with at_frame(trace, trace.frames.index(home)):
            found = read(trace, table, i, home)
        if found is None:
            return None
        home.rows[key, i.dim] = found
    return home.rows[key, i.dim]


def read(trace: Trace, table: Table, i: SymInt, home: Frame) -> Table:
    """A row: one that iterations have stored, or a copy of the one from before the loop; None if it
    is no list of the same elements in each."""
    loops = table.loops_around()
    fill = list_fills.known(trace, table, loops)
    found = () if fill is None else list_fills.read(trace, table, i, home, fill)
    if found:
        return found[0]
    items = old(trace, table, i, loops)
    if items is None:
        return None
    made = type(table)(items)
    loop = home.loop
    assert loop is not None
    error = NeedsConcrete("picks a list", [loop], subject="an index")
    change = functools.partial(store, trace, table, i, made, home, error)
    trace.objects.doubts[id(made)] = AmbiguousContainer(made, (loop,), lambda: error, None, change)
    return made


def store(
    trace: Trace, table: Table, i: SymInt, made: object, home: Frame, error: NeedsConcrete
) -> None:
    """The iteration changes its copy of a row, which is stored in the table from here on."""
    key = id(table)
    if home not in trace.frames:
        raise error
    with at_frame(trace, trace.frames.index(home)):
        fill = list_fills.fill_of(trace, table, i, table.loops_around())
    if fill is None or any(key in q for q in (home.fills, home.appends, home.queues)):
        raise error
    trace.check_certain(table, changes=True)
    # not undone with a body or branch inside: as long as it is not changed, it is what was there
    home.fills[key], home.appends[key] = fill, (table, [made])
    home.picked[key] = home.learned.tables[key] = table
    del trace.objects.doubts[id(made)]


def old(trace: Trace, table: Table, i: SymInt, loops: Sequence[Frame]) -> list[Table] | None:
    """The elements of `table[i]` from before the loop."""
    n: Table = table.size()
    which, at = reached(trace, i)
    which, at = (which, at) if which else (range(n), i)
    parts = located(table)
    run, first = parts[which[0]]
    if isinstance(run, StackedRun) and all(parts[k][0] is run for k in which):
        return one_by_one(trace, run.item(trace, i - first))
    some = [k for k in which if not isinstance(parts[k][0], StackedRun)]
    runs = len(some) < len(which)
    firsts = {id(q): j for q, j in parts if isinstance(q, StackedRun)}
    found = [one_by_one(trace, table_row(trace, *parts[k], k)) for k in some or which[:1]]
    found += [one_by_one(trace, table_row(trace, *parts[j], j)) for j in firsts.values() if runs]
    if None in found or len(set(map(len, found))) != 1:
        return None
    columns = [list(q) for q in zip(*found)]
    alike = all(map(is_uniform, columns))
    if alike and runs and (whole := joined(trace, table.raw())) is not None:
        return one_by_one(trace, whole.item(trace, i))
    if alike and not runs:
        owners = [table.columns.setdefault(k, object()) for k in range(len(columns))]
        return [column(trace, *pair, at) for pair in zip(owners, columns)]
    if not recurrences.unknown(table, loops):
        return None
    recurrences.note_read(table, loops)
    for f in recurrences.unknown(table, loops):
        f.guessed.add(id(table))
        f.picked.setdefault(id(table), table)
    likes = [next((q for q in items if q is not None), None) for items in columns]
    return [recurrences.stand_in(trace, q, [q]) for q in likes]


def located(table: Table) -> list[tuple[Table, int]]:
    """For each row of a table its part, and the number of the first row in that."""
    out = list[tuple[Table, int]]()
    for q in table.raw():
        n: Table = length_of([q])
        out += [(q, len(out))] * n
    return out


def table_row(trace: Trace, part: Table, first: int, k: int) -> Table:
    return part.item(trace, k - first) if isinstance(part, StackedRun) else part


def one_by_one(trace: Trace, x: Table) -> Table:
    """The elements of a row that inner loops may have filled; None if it stays one piece."""
    if x.segmented:
        x.split(trace)
    return None if x.segmented else list(x.raw())


def is_uniform(items: Sequence[object]) -> bool:
    """Whether the elements of a column are one constant, or may be one tensor; all of them require
    a gradient, or none."""
    stops = {getattr(q, "stop_gradient", None) for q in items}
    return is_same(items) or not any(q is None for q in items) and len(stops) == 1


def is_same(items: Sequence[object]) -> bool:
    return all(is_constant(q) and same_constant(q, items[0]) for q in items)


def column(trace: Trace, owner: object, items: Sequence[Any], at: Table) -> Table:
    return items[0] if is_same(items) else element(trace, owner, items, at, "list")


# ---------------------------------------------------------------- the lists from before the loop
class LostRow:
    """Watches a list that was a row before a loop has changed its table. `within`: the loop is
    being traced."""

    def __init__(self, trace: Trace, loop: TracedLoop, within: bool) -> None:
        self.trace, self.loop, self.within = trace, loop, within

    def touched(self, x: object, changes: bool) -> None:
        raise self.lost()

    def lost(self) -> BaseException:
        if self.within:
            return NeedsConcrete("a row of a list of lists is used by another name", [self.loop])
        return element_doubt(self.trace, None, self.loop).stop()


def enter(trace: Trace, frame: Frame) -> None:
    """While the body of a loop is traced, its tables have copies of the rows that it changes."""
    loop = frame.loop
    for key, table in list(frame.learned.tables.items()):
        fill = frame.learned.fills.get(key)
        if fill is not None and loop is not None and isinstance(loop.trip, int):
            detach(trace, table, fill.places(loop.trip), LostRow(trace, loop, True))


def leave(trace: Trace, table: Table, places: range, loop: TracedLoop) -> None:
    """Behind the loop, no code may use the lists that were rows before it."""
    made = (q.source() for q in table.raw() if isinstance(q, StackedRun))
    trace.loop_facts.tables += [loop, *(q for q in made if q is not None)]
    detach(trace, table, places, LostRow(trace, loop, False))


def detach(trace: Trace, table: Table, places: range, watch: LostRow) -> None:
    """The table gets copies of rows; `watch` is told of each use of the lists themselves."""
    parts, at = table.raw(), located(table)
    times, changed = Counter(map(id, parts)), {id(at[k][0]) for k in places}
    if any(isinstance(q, StackedRun) and q.shared for q in parts if id(q) in changed):
        raise NeedsConcrete("the rows of a list of lists are in another one, too")
    if any(times[k] > 1 for k in changed):
        raise NeedsConcrete("a list of lists has one list in several places")
    new = [copied(q) if id(q) in changed else q for q in parts]
    for q in parts:
        for x in q.lists() if isinstance(q, StackedRun) else [q] * (id(q) in changed):
            hide(trace, x, watch)
    trace.undo_log.note(lambda: list.__setitem__(table, slice(None), parts))
    list.__setitem__(table, slice(None), new)


def copied(part: Table) -> Table:
    """A list with the elements of a row; a run of rows as it is."""
    if isinstance(part, StackedRun):
        return part
    made = type(part)(part.raw())
    made.born = part.born
    return made


def hide(trace: Trace, x: Table, watch: LostRow) -> None:
    before = x.watch
    if before is not None:
        raise NeedsConcrete("a row of a list of lists is also rebound", [watch.loop])
    trace.undo_log.note(lambda: setattr(x, "watch", before))
    x.watch = watch
    trace.doubt(AmbiguousContainer(x, (), watch.lost))


# ---------------------------------------------------------------- rows at a number of Python
def changeable(trace: Trace, table: Table, i: object, found: Table) -> Table:
    """`table[i]`, read from a run: when it is changed or returned, the table has it beside the
    run."""
    doubt = trace.objects.doubts.get(id(found))
    if type(i) is int and hasattr(found, "columns") and doubt is not None and not doubt.settle:
        settle = functools.partial(take_out, trace, table, i, found, doubt)
        trace.objects.doubts[id(found)] = replace(doubt, settle=settle)
    return found


def take_out(trace: Trace, table: Table, i: int, found: object, doubt: AmbiguousContainer) -> None:
    """Put row `i`, which is `found`, beside the rest of its run."""
    size = table.size()
    if type(size) is not int or table.born not in trace.frames or table.buffer is not None:
        raise doubt.stop()
    inner = trace.frames[trace.frames.index(table.born) + 1 :]
    k = i % size
    run, first = located(table)[k]
    grown = any(f.branch or id(table) in f.appends for f in inner)
    if not isinstance(run, StackedRun) or run.shared or grown:
        raise doubt.stop()
    with at_frame(trace, trace.frames.index(table.born)):
        own: Table = run.item(trace, k - first) if inner else found
        rest = [run.part(trace, slice(0, k - first)), run.part(trace, slice(k - first + 1, None))]
    run.given[:] = [x for x in run.given if x is not own]
    own.born = table.born
    trace.objects.doubts.pop(id(own), None)
    new = [q for q in (rest[0], own, rest[1]) if length_of([q]) != 0]
    parts = [p for q in table.raw() for p in (new if q is run else [q])]
    list.__setitem__(table, slice(None), parts)
    hold(new, table)
    for f in inner:
        f.learned.free = True
    if inner:
        raise Retrace


__all__ = ["changeable", "enter", "leave", "row"]
