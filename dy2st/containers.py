"""Lists while tracing: a loop that appends leaves one stacked value, not T elements.

`TraceList` is an ordinary list until a loop was rolled that appends to it; then one of its elements
is a `Segment`, which stands for as many elements as the loop has iterations. The stacked value is
made on first use, along the axis that the first use wants, so `paddle.stack(ys, 1)` costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from dy2st.capture.trace import Frame, Trace, current
from dy2st.journal import Item
from dy2st.stops import NeedsConcrete, Refused
from dy2st.symbols import is_sym
from ir import Scan, SourceError, Stack, Value
from ir.types import Dim


class ScanCell:
    """The loop that a segment comes from; its node is replaced when a port is added."""

    def __init__(self, frame: Frame, scan: Scan) -> None:
        self.frame, self.scan = frame, scan

    def add_stack(self, inner: Value, axis: int, trace: Trace) -> Value:
        shape = list(inner.type.shape)
        shape.insert(axis, self.scan.trip)
        outer = trace.new_value(inner.type.with_shape(shape), inner.name, self.frame)
        root = trace.root(inner)
        if root in trace.frozen:
            trace.freeze(outer, trace.frozen[root])
        ports = (*self.scan.ports, Stack(outer, inner, axis))
        new = dataclasses.replace(self.scan, ports=ports)
        ops = self.frame.builder.ops
        ops[next(i for i, op in enumerate(ops) if op is self.scan)] = new
        self.scan = new
        return outer


class Leaf:
    """One tensor per iteration of a loop."""

    def __init__(self, cell: ScanCell, inner: Value, stop_gradient: bool) -> None:
        self.cell, self.inner, self.stop_gradient = cell, inner, stop_gradient
        self.whole: tuple[Any, int] | None = None

    def stacked(self, trace: Trace, axis: int) -> Any:
        """All iterations as one tensor with the loop's axis at `axis`."""
        ndim = self.inner.type.ndim + 1
        axis %= ndim
        if self.whole is None:
            outer = self.cell.add_stack(self.inner, axis, trace)
            self.whole = (trace.fake(outer, self.stop_gradient), axis)
        fake, have = self.whole
        if have == axis:
            return fake
        perm = [a for a in range(ndim) if a != have]
        perm.insert(axis, have)
        value = trace.emit("transpose", [fake._value], {"perm": tuple(perm)})
        return trace.fake(value, self.stop_gradient)

    def item(self, trace: Trace, i: Any) -> Any:
        fake = self.stacked(trace, 0) if self.whole is None else self.whole[0]
        axis = 0 if self.whole is None else self.whole[1]
        return fake[(slice(None),) * axis + (i,)]


class Segment:
    """`trip` elements; `tree` is a Leaf, or a tuple of trees for appended tuples."""

    def __init__(self, trip: Dim, tree: Any) -> None:
        self.trip, self.tree = trip, tree

    def item(self, trace: Trace, i: Any) -> Any:
        return _map(lambda leaf: leaf.item(trace, i), self.tree)

    def stacked(self, trace: Trace, axis: int) -> Any:
        if not isinstance(self.tree, Leaf):
            raise TypeError("stack of a list of tuples")
        return self.tree.stacked(trace, axis)


def _map(f: Callable[[Leaf], Any], tree: Any) -> Any:
    if isinstance(tree, Leaf):
        return f(tree)
    parts = [_map(f, q) for q in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


class TraceList(list):
    """A list made by converted code. Its C storage holds elements and segments."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__(items)
        trace = current()
        self.born = trace.frame if trace is not None else None

    @property
    def segmented(self) -> bool:
        return any(isinstance(q, Segment) for q in self.parts())

    def parts(self) -> list[Any]:
        return list.__getitem__(self, slice(None))

    def size(self) -> Dim:
        self._observe("len")
        total: Dim = 0
        for q in self.parts():
            total = total + (q.trip if isinstance(q, Segment) else 1)
        return total

    # ------------------------------------------------------------ growing
    def append(self, value: Any) -> None:
        trace = current()
        if trace is None:
            return super().append(value)
        frame = trace.frame
        if frame is not self.born:
            entry = frame.appends.setdefault(id(self), (self, []))
            entry[1].append(value)
            trace.journal.note(entry[1].pop)
        super().append(value)
        trace.journal.note(lambda: list.pop(self))
        return None

    def extend(self, values: Any) -> None:
        if isinstance(values, TraceList) and values.segmented:
            for q in values.parts():
                self.append(q)
            return
        for q in list(values):
            self.append(q)

    def __setitem__(self, i: Any, value: Any) -> None:
        """A slot of a list from outside of a loop is a place that the loop may carry."""
        trace = current()
        if trace is None or self.segmented or type(i) is not int:
            return _replace_items(self, i, value)
        if not -len(self.parts()) <= i < len(self.parts()):
            raise IndexError("list assignment index out of range")
        trace.store(Item(self, i % len(self.parts())), value)
        return None

    # ------------------------------------------------------------ reading
    def __len__(self) -> int:
        n = self.size()
        if not isinstance(n, int):
            raise NeedsConcrete(f"the length of a list is {n}")
        return n

    def __bool__(self) -> bool:
        """A list that is not empty stays so: loops only append to it."""
        if not self.parts():
            self._observe("the truth")
            return False
        return not self.segmented or bool(self.length() > 0)

    def length(self) -> Any:
        trace = current()
        return self.size() if trace is None else trace.sym(self.size())

    def __getitem__(self, i: Any) -> Any:
        trace = current()
        if trace is None:
            return super().__getitem__(i)
        if is_sym(i) and not self.segmented:
            raise NeedsConcrete(f"list[{i!r}]", i.loops)
        if trace.frame is not self.born and not isinstance(i, slice) and not is_sym(i) and i == -1:
            return self._tail(trace)
        if isinstance(i, slice):
            self._observe("a slice")
            out = list.__getitem__(self, i) if not self.segmented else list(self)[i]
            return TraceList(out)
        if not self.segmented:
            self._observe("an item")
            return super().__getitem__(i)
        return self._segment_item(trace, i)

    def _segment_item(self, trace: Trace, i: Any) -> Any:
        n = self.length()
        at = i + n if i < 0 else i
        if at < 0 or at >= n:
            raise IndexError("list index out of range")
        for q in self.parts():
            size = trace.sym(q.trip) if isinstance(q, Segment) else 1
            if at < size:
                return q.item(trace, at) if isinstance(q, Segment) else q
            at = at - size
        raise IndexError("list index out of range")

    def __iter__(self) -> Iterator[Any]:
        if current() is None or not self.segmented:
            self._observe("iteration")
            return super().__iter__()
        return (self[i] for i in range(len(self)))

    def _tail(self, trace: Trace) -> Any:
        """`ys[-1]` in a loop that may grow ys: this iteration's element, else a carry."""
        frame = trace.frame
        grown = frame.appends.get(id(self))
        if grown and grown[1]:
            return grown[1][-1]
        if not self.parts():
            raise IndexError("list index out of range")
        if trace.frames[-2] is not self.born:
            raise NeedsConcrete("the last element of a list that an outer loop may grow")
        if id(self) not in frame.tails:
            trace.frames.pop()
            try:
                first = self[-1]
            finally:
                trace.frames.append(frame)
            frame.tails[id(self)] = TailPort(self, first, trace)
        return frame.tails[id(self)].fake

    def _observe(self, what: str) -> None:
        """Reading the list's length or its elements from inside of a loop that may grow it."""
        trace = current()
        if trace is None or self.born not in trace.frames:
            return
        for frame in trace.frames[trace.frames.index(self.born) + 1 :]:
            if id(self) not in frame.tails:
                frame.tails[id(self)] = Observed(self, what)

    # ------------------------------------------------------------ stacking
    def stacked(self, trace: Trace, axis: int, stack: Callable[..., Any], concat: Any) -> Any:
        """`paddle.stack(self, axis)`, a new tensor each time; eager raises for an empty list, so
        T = 0 is excluded."""
        pieces: list[Any] = []
        run: list[Any] = []
        for q in self.parts():
            if not isinstance(q, Segment):
                run.append(q)
                continue
            if run:
                pieces.append(stack(run, axis))
                run = []
            pieces.append(_fresh(trace, q.stacked(trace, axis)))
        if run:
            pieces.append(stack(run, axis))
        trace.require(self.size(), 1, "stack of a list")
        return pieces[0] if len(pieces) == 1 else concat(pieces, axis)


def _fresh(trace: Trace, fake: Any) -> Any:
    """A copy in meaning: it costs nothing unless one of the two is written."""
    return trace.fake(trace.emit("assign", [fake._value], {}), fake.stop_gradient)


class Observed:
    """A list was read as a whole inside of a loop."""

    def __init__(self, target: TraceList, what: str) -> None:
        self.target, self.what = target, what


class TailPort:
    """The last element of a list at the start of an iteration."""

    def __init__(self, target: TraceList, first: Any, trace: Trace) -> None:
        if not hasattr(first, "_value"):
            raise NeedsConcrete("the last element of a list is no tensor")
        self.target, self.first = target, first
        self.inner = trace.new_value(first._value.type, "tail")
        trace.placeholders.add(self.inner)
        self.fake = trace.fake(self.inner, first.stop_gradient)


def _unsupported(name: str) -> Callable[..., Any]:
    plain = getattr(list, name)

    def method(self: TraceList, *args: Any, **kwargs: Any) -> Any:
        trace = current()
        if trace is None:
            return plain(self, *args, **kwargs)
        self._observe(name)
        if self.segmented:
            raise Refused(
                SourceError(
                    f"list.{name} on a list that a loop has filled.",
                    trace.where(),
                    reason="The loop leaves one stacked tensor, not separate elements.",
                    remedy="Stack the list first and work on the tensor.",
                )
            )
        if trace.frame is not self.born and name not in _READS:
            raise NeedsConcrete(f"list.{name} in a loop, on a list from outside")
        old = self.parts()
        trace.journal.note(lambda: list.__setitem__(self, slice(None), old))
        return plain(self, *args, **kwargs)

    return method


_replace_items = _unsupported("__setitem__")
_READS = ("index", "count", "copy", "__contains__", "__add__", "__mul__", "__rmul__")
for _name in (
    *_READS,
    "insert",
    "pop",
    "remove",
    "clear",
    "sort",
    "reverse",
    "__delitem__",
    "__iadd__",
    "__imul__",
):
    setattr(TraceList, _name, _unsupported(_name))


def plain_parts(x: Any) -> bool:
    """A list of fixed structure: it is carried like a tuple."""
    return isinstance(x, TraceList) and not x.segmented


__all__ = [
    "Leaf",
    "Observed",
    "ScanCell",
    "Segment",
    "TailPort",
    "TraceList",
    "plain_parts",
]
