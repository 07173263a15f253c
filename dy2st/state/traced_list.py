"""Lists while tracing: a loop that appends leaves one stacked value, not T elements.

`TraceList` is an ordinary list until a loop that appends to it has been rolled; then one of its
elements is a `StackedRun`, which stands for as many elements as the loop has iterations. The
stacked value is made on first use, along the axis of that use, so `paddle.stack(ys, 1)` costs
nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from dy2st.state.containers import dynamic_lookup, list_buffers, list_fills, list_pops, table_rows
from dy2st.state.containers import list_recurrences as recurrences
from dy2st.state.containers.dynamic_lookup import MOST_UNROLLED, MOST_WRITTEN_OUT, is_later
from dy2st.state.stacked_run import (
    ScanReference,
    StackedLeaf,
    StackedRun,
    Unstacked,
    element_at,
    hold,
    joined,
    length_of,
    mapped,
    sliced,
    stacked_pieces,
)
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import RuntimeScalar, stop
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Frame, Trace, current
from dy2st.trace.undo import ItemLocation
from dy2st.trace.user_stack import perform
from ir import Size
from ir.types import Dim

#: elements of a filled list that a loop carries one by one, and those of one that it shifts
MOST_ELEMENTS = 64
MOST_QUEUED = 4096


class TraceList(list):
    """A list made by converted code. Its C storage holds elements and segments. `kind`: what it is
    in eager."""

    kind: type = list

    def __init__(self, items: Any = ()) -> None:
        """buffer: the tensors of a loop that hold it. watch: told of each use. most: its largest
        length, as the end of another list. of: the lists that it extends. columns: of its rows."""
        super().__init__(items)
        trace = current()
        self.born = trace.frame if trace is not None else None
        self.buffer: Any = None
        self.watch: Any = None
        self.most: int | None = None
        self.of: tuple[object, ...] = ()
        self.columns: dict[int, object] = {}
        hold(list.__getitem__(self, slice(None)), self)

    @property
    def segmented(self) -> bool:
        return any(isinstance(q, StackedRun) for q in self.parts())

    @property
    def is_table(self) -> bool:
        """Whether a loop holds the list in a tensor, and stores elements at any place."""
        return self.buffer is not None and self.buffer.wanted.stores

    def parts(self) -> list[Any]:
        """Elements and segments; one segment while a loop holds the list in a tensor."""
        if self.buffer is not None and (trace := current()) is not None:
            return [self.buffer.run(trace, 0, self.size())]
        return self.raw()

    def raw(self) -> list[Any]:
        """Return the elements and segments that the list holds."""
        return list.__getitem__(self, slice(None))

    def made(self, found: TraceList) -> Any:
        """A new list that one of its methods gives."""
        return found

    def size(self) -> Dim:
        """Return the current number of elements; in a loop that is known to grow the list, it
        follows from the loop's index."""
        total: Dim = 0
        for frame in self.loops_around():
            if id(self) in frame.growth and frame.loop is not None:
                total = total + Size.named(frame.loop.name) * frame.growth[id(self)]
            else:
                frame.asked.add(id(self))
            if list_pops.known(self, [frame]):
                total = total - sum(list_pops.taken(self, frame), 0)
        return total + length_of(TraceList.raw(self))

    def grows_in_loop(self) -> bool:
        """Whether it came from outside into the body of a loop."""
        return bool(self.loops_around())

    def split(self, trace: Trace, most: int = MOST_ELEMENTS) -> None:
        """Its elements one by one, if their number is known and small; in the frame it lives in."""
        if self.born not in trace.frames:
            return
        at = trace.frames.index(self.born) + 1
        old = self._old(trace.frames[at:])
        inner, trace.frames[at:] = trace.frames[at:], []
        try:
            whole = TraceList(old)
            size = whole.size()
            if type(size) is int and size <= most:
                list.__setitem__(self, slice(0, len(old)), [whole[i] for i in range(size)])
        finally:
            trace.frames[at:] = inner

    def learn_queue(self, trace: Trace, name: str, loops: list[Frame]) -> None:
        """A loop that shifts a list of constant length carries its elements, in its next trace."""
        if self.segmented:
            self.split(trace, MOST_QUEUED)
        frame, key = loops[0], id(self)
        queues = frame.learned.queues
        if len(loops) == 1 and key in frame.learned.growth:
            frame.learned.shifted[key] = self
        if len(loops) > 1 or self.segmented or not self.parts() or key in queues:
            raise NeedsConcrete(f"list.{name} in a loop, on a list from outside")
        queues[key], frame.stale = self, True
        if trace.frame is not frame:
            raise Retrace
        frame.queues.add(key)
        frame.appends.pop(key, None)

    def _use(self, changes: bool = False, takes: bool = False) -> None:
        """The list is read or changed; `takes`: an element is taken out of it."""
        if changes and not takes and (trace := current()) is not None:
            list_pops.changed(trace, self, self.loops_around())
        if self.watch is not None:
            self.watch.touched(self, changes)
        if changes and (trace := current()) is not None:
            trace.check_certain(self, changes=True)

    def _note_change(self, trace: Trace) -> None:
        """Undone with the trace; the branches around see that the list is another one."""
        self._use(changes=True)
        if trace.private(self.born):
            return
        old = self.raw()
        trace.undo_log.note(lambda: list.__setitem__(self, slice(None), old))
        if self.born in trace.frames:
            for frame in trace.frames[trace.frames.index(self.born) + 1 :]:
                if id(self) not in frame.changed:
                    frame.changed[id(self)] = self
                    trace.undo_log.note(functools.partial(frame.changed.pop, id(self), None))

    def replace_parts(self, items: list[object]) -> None:
        trace = current()
        assert trace is not None
        self._note_change(trace)
        list.__setitem__(self, slice(None), items)
        hold(items, self)

    def _note(self, trace: Trace) -> None:
        n = len(self)
        rows = all(isinstance(getattr(q, "tree", None), Unstacked) for q in self.parts())
        if n > MOST_UNROLLED and not rows:
            kind = "written out" if n <= MOST_WRITTEN_OUT else "unrolled"
            trace.frame.notes.append((kind, trace.where(), f"{n} elements are taken apart"))

    def loops_around(self) -> list[Frame]:
        """The loop bodies that are being traced and that the list comes into from outside."""
        trace = current()
        if trace is None or self.born not in trace.frames:
            return []
        inner = trace.frames[trace.frames.index(self.born) + 1 :]
        return [f for f in inner if not f.branch]

    def pick(self, i: object) -> bool:
        """Note a read at index `i`; whether loops around are known to store elements."""
        loops = self.loops_around()
        for f in loops if is_symint(i) else ():
            f.picked.setdefault(id(self), self)
        return self.is_table or any(id(self) in f.learned.fills for f in loops)

    # ------------------------------------------------------------ growing
    def append(self, value: object) -> None:
        trace = current()
        if trace is None:
            return super().append(value)
        self._use(changes=True)
        self.most = None if self.most is None else self.most + 1
        if any(id(self) in f.queues for f in trace.frames):
            self._note_change(trace)
            return super().append(value)
        if any(id(self) in f.fills for f in trace.frames):
            raise NeedsConcrete("a list is read or changed while the loop fills it")
        if self.buffer is not None:
            self.buffer.store(trace, self.size(), value)
        return self.note_append(value)

    def note_append(self, value: object) -> None:
        """A new element: it is stored already where a loop holds the list in a tensor."""
        trace = current()
        assert trace is not None
        frame = trace.frame
        if frame is not self.born:
            entry = frame.appends.setdefault(id(self), (self, []))
            entry[1].append(value)
            trace.undo_log.note(entry[1].pop)
        hold([value], self)
        super().append(value)
        if not trace.private(self.born):
            trace.undo_log.note(lambda: list.pop(self))

    def extend(self, values: Any) -> None:
        if isinstance(values, TraceList) and values.segmented:
            for q in values.parts():
                self.append(q)
            return
        for q in perform(list, values):
            self.append(q)

    def __add__(self, other: object) -> Any:
        trace = current()
        if trace is None or not isinstance(other, list):
            return perform(super().__add__, other)
        self._use()
        new = contents(other)
        found = TraceList([*contents(self), *new])
        found.of = (self, other) if len(trace.frames) > 1 else ()
        found.most = self.most and self.most + len(new)
        return found

    def __radd__(self, other: object) -> Any:
        """A list of the caller's in front."""
        return TraceList(other) + self if isinstance(other, list) else NotImplemented

    def __setitem__(self, i: Any, value: object) -> None:
        """A slot of a list from outside of a loop is a place that the loop may carry."""
        trace = current()
        loops = self.loops_around()
        if trace is not None and list_fills.store(trace, self, i, value, loops):
            return None
        if trace is not None and self.segmented:
            self.split(trace)
        if trace is None or self.segmented or type(i) is not int:
            return _replace_items(self, i, value)
        if not -len(self.parts()) <= i < len(self.parts()):
            raise IndexError("list assignment index out of range")
        if not loops and i % len(self.parts()) >= len(self._old(trace.frames)):
            return _replace_items(self, i, value)  # a branch has appended this element
        self._use(changes=True)
        for f in loops if i < 0 else ():
            f.ends.add(id(self))
        if trace.private(self.born):
            return perform(list.__setitem__, self, i, value)
        trace.store(ItemLocation(self, i % len(self.parts())), value)
        return None

    # ------------------------------------------------------------ reading
    def __len__(self) -> int:
        self._use()
        n = self.size()
        if not isinstance(n, int):
            self._observe("the length")
            counted = any(q in current().sizes.counts for q in n.names)  # type: ignore[union-attr]
            how = "follows from how often a loop runs that data ends" if counted else f"is {n}"
            raise NeedsConcrete(f"the length of a list {how}")
        return n

    def __bool__(self) -> bool:
        """A list that is not empty stays so: loops only append to it."""
        self._use()
        if list_pops.known(self, self.loops_around()):
            return bool(self.length() > 0)
        if not self.parts():
            self._observe("the truth")
            return False
        return not self.segmented or bool(self.length() > 0)

    def length(self) -> Any:
        self._use()
        trace = current()
        return self.size() if trace is None else trace.sym(self.size())

    def __getitem__(self, i: Any) -> Any:
        trace = current()
        if trace is None:
            return perform(super().__getitem__, i)
        self._use()
        if self.is_table and not isinstance(i, slice):
            return self.buffer.item(trace, i, self.length())
        loops = self.loops_around()
        if (row := table_rows.row(trace, self, i, loops)) is not None:
            return row
        fill = list_fills.known(trace, self, loops)
        if fill is not None and not is_symint(i):
            list_fills.hold(trace, self)
            fill = None
        empties = list_pops.known(self, loops)
        if empties is not None:
            return list_pops.item(trace, self, i, empties, loops)
        if isinstance(i, slice):
            ahead = recurrences.forward(trace, self, i, loops)
            return self._slice(trace, i, loops) if ahead is None else self[ahead][::-1]
        if fill is not None:
            found = list_fills.read(trace, self, i, loops[-1], fill)
            if found or not self.segmented:
                if found:
                    return found[0]
                return dynamic_lookup.element(trace, self, self.parts(), i, "list")
        if list_fills.is_front(i, loops) and (found := list_fills.first(trace, self, loops[0])):
            return found[0]
        back = recurrences.distance(trace, self, i, loops)
        if back is not None:
            return recurrences.from_end(trace, self, loops, back)
        if self.buffer is not None and not self._is_first(i, loops):
            return self.buffer.item(trace, i, self.length())
        grown = self.buffer is None and recurrences.is_grown(self, loops)
        if grown and not self._is_old(trace, i, loops):
            list_buffers.want(trace, self, loops)
            return recurrences.guess(trace, self, loops, i)
        if is_later(i) and not self.segmented:
            return recurrences.item_at(trace, self, i, loops)
        for f in () if is_symint(i) or list_fills.is_front(i, loops) else loops:
            f.taken.add(id(self))
        if not self.segmented or self.buffer is not None:
            if not self._is_first(i, loops):
                self._observe("an item")
            return perform(super().__getitem__, i)
        self.pick(i)
        if recurrences.may_be_short(trace, self, i, loops):
            return recurrences.guess(trace, self, loops, i)
        gather = functools.partial(self._number_item, trace)
        found = element_at(trace, self.parts(), self.length(), i, gather)
        return table_rows.changeable(trace, self, i, found)

    def _old(self, frames: list[Frame]) -> list[object]:
        """Return the elements from before the bodies and branches."""
        some = [f for f in frames if id(self) in f.appends and id(self) not in f.fills]
        raw = self.raw()
        return raw[: len(raw) - sum(len(f.appends[id(self)][1]) for f in some)]

    def _is_first(self, i: object, loops: list[Frame]) -> bool:
        """Whether a number of Python is the index of an element from before the loops."""
        if type(i) is not int or i < 0:
            return False
        first = self._old(loops)[: i + 1]
        return len(first) > i and not any(isinstance(q, StackedRun) for q in first)

    def _is_old(self, trace: Trace, i: object, loops: list[Frame]) -> bool:
        """Whether an index is surely one of an element from before the loops."""
        return dynamic_lookup.is_inside(trace, i, trace.sym(length_of(self._old(loops))))

    def _slice(self, trace: Trace, at: slice, loops: list[Frame]) -> Any:
        found = self._sliced(trace, at, loops)
        if type(at.start) is int and at.start < 0 and at.stop is None:
            found.most = -at.start
        return self.made(found)

    def _sliced(self, trace: Trace, at: slice, loops: list[Frame]) -> TraceList:
        window = None if self.is_table else recurrences.window(trace, self, at, loops)
        if window is not None:
            return TraceList(window)
        later = is_symint(at.start) or is_symint(at.stop)
        if later and not self.segmented and recurrences.unknown(self, loops):
            return TraceList(recurrences.guess_slice(trace, self, at, loops))
        self._observe("a window" if recurrences.is_window(at) else "a slice")
        if not self.segmented and not later:
            data = any(is_later(q) or isinstance(q, Tensor) for q in (at.start, at.stop))
            empty = data and not self.parts()
            return TraceList(() if empty else perform(list.__getitem__, self, at))
        n = self.size()
        counted = isinstance(n, Size) and any(q in trace.sizes.counts for q in n.names)
        parts = sliced(trace, self.parts(), at) if counted and at.step in (None, 1) else None
        if parts is not None:
            return TraceList(parts)
        if counted and (at.start, at.stop) != (None, None) and at.step in (None, 1):
            made: TraceList = trace.hooks.call(recurrences.between)(self, at.start or 0, at.stop)
            for q in made.parts() if len(made.parts()) == 1 else ():
                if isinstance(q, StackedRun):
                    q.origin = tuple(self.parts())
            return made
        self.read_whole()
        parts = sliced(trace, self.parts(), at)
        return TraceList(list(self)[at] if parts is None else parts)

    def as_segment(self, trace: Trace) -> StackedRun | None:
        """The whole list as one segment; None for one of different or of Python values."""
        self.read_whole()
        return joined(trace, self.parts())

    def _number_item(self, trace: Trace, i: RuntimeScalar, inside: bool = False) -> object:
        """An index from data into a list that loops have filled; `inside`: it has been checked."""
        whole = self.as_segment(trace)
        if whole is None:
            raise stop(i, "a list index")
        row = functools.partial(dynamic_lookup.row, trace, i, self.length(), "list")
        return whole.item(trace, trace.fake(i.value) if inside else row())

    def read_whole(self) -> None:
        """Note that all elements are read, also those appended by an enclosing loop."""
        self._observe("iteration")

    def __iter__(self) -> Iterator[object]:
        self._use()
        self.read_whole()
        if (trace := current()) is None or not self.segmented:
            return super().__iter__()
        self._note(trace)
        return (self[i] for i in range(len(self)))

    def _observe(self, what: str) -> None:
        """Reading the list's length or its elements from inside of a loop that may grow it."""
        if self.buffer is not None:
            return
        loops = self.loops_around()
        trace = current()
        if trace is not None:
            list_pops.changed(trace, self, loops)
        if what not in _CHANGES and trace is not None and recurrences.is_grown(self, loops):
            list_buffers.want(trace, self, loops)
        if what in ("iteration", "a slice"):
            recurrences.note_read(self, loops)
        for frame in loops:
            frame.observed.setdefault(id(self), recurrences.WholeListRead(self, what))

    # ------------------------------------------------------------ stacking
    def stacked(self, trace: Trace, axis: int, stack: Callable[..., object], concat: Any) -> Any:
        """`paddle.stack(self, axis)`, a new tensor each time; eager raises for an empty list, so
        T = 0 is excluded."""
        pieces = stacked_pieces(trace, contents(self), axis, stack)
        if self.size() == 0:
            return stack([], axis)
        trace.require(self.size(), 1, "the number of tensors that stack joins")
        return pieces[0] if len(pieces) == 1 else concat(pieces, axis)


TraceList.__name__ = TraceList.__qualname__ = "list"


# ---------------------------------------------------------------- other methods of list
def _changing(name: str) -> Callable[..., Any]:
    """A method of list that may change the list."""
    plain = getattr(list, name)

    def method(self: TraceList, *args: object, **kwargs: object) -> object:
        trace = current()
        if trace is None:
            return plain(self, *args, **kwargs)
        if name == "pop" and list_pops.takes(trace, self, args, self.loops_around()):
            self._use(changes=True, takes=True)
            return list_pops.pop(trace, self, args, trace.frame)
        self._use(name not in _READS)
        if name == "sort" and kwargs.get("key") is not None:
            key = trace.hooks.call(kwargs["key"])
            kwargs["key"] = lambda x: key(x)
        loops = self.loops_around()
        if (
            name == "insert"
            and len(args) == 2
            and list_fills.insert(trace, self, *args, loops=loops)
        ):
            return None
        self._observe(name)
        if self.segmented and name == "sort":
            return list_fills.method(trace, self, name, args)
        if self.segmented and name not in list_fills.KEEPING:
            self.split(trace, MOST_QUEUED if loops else MOST_ELEMENTS)
        if loops and name not in _READS and not all(id(self) in f.queues for f in loops):
            self.learn_queue(trace, name, loops)
        if name not in _READS:
            self._note_change(trace)
        if self.segmented:
            return list_fills.method(trace, self, name, args)
        out = perform(plain, self, *args, **kwargs)
        return self.made(TraceList(out)) if type(out) is list else out

    return method


_replace_items = _changing("__setitem__")
TraceList.copy = lambda self: self + TraceList()  # type: ignore[assignment, method-assign]
_READS = ("index", "count", "__contains__", "__mul__", "__rmul__")
_CHANGES = "insert pop remove clear sort reverse __setitem__ __delitem__ __iadd__ __imul__".split()
for _name in (*_READS, *(q for q in _CHANGES if q != "__setitem__")):
    setattr(TraceList, _name, _changing(_name))


def contents(x: Any) -> list[Any]:
    """The parts of a list, which is read as a whole, or the elements of anything else."""
    if not isinstance(x, TraceList):
        return list(x)
    x.read_whole()
    return x.parts()


__all__ = ["StackedLeaf", "ScanReference", "StackedRun", "TraceList", "contents", "mapped"]
