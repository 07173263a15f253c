"""Attributes of Layers that a loop over the Layers stores: one list for all Layers.

    for layer in self.layers:              vs = [layer.v for layer in self.layers]
        layer.v = 0.9 * layer.v + x        for l in range(n):
                                  =>           vs[l] = 0.9 * vs[l] + x
                                           for layer, v in zip(self.layers, vs):
                                               layer.v = v

Every iteration stores to its own Layer, so the list is one that the loop fills
(`dy2st.state.containers.list_fills`). One trace of the body learns which attributes are stored. In
the next one the Layers themselves hold marks in their place: a read under another name stops the
loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dy2st.state.containers import list_fills
from dy2st.state.containers.layers import PARTS, SelectedLayer
from dy2st.state.guards import is_constant, is_foreign
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Frame, Trace, TracedLoop
from dy2st.trace.undo import AttributeLocation
from ir.types import Size

#: where the attributes of a Layer that are no Layers and parameters are
HOMES = ("", "_buffers")
SHARED = "a tensor that a Layer keeps has another name, too"


class AttributePlaceholder:
    """Stands in a Layer for an attribute that its loop holds."""

    def __init__(self, name: str, loop: TracedLoop) -> None:
        self.name, self.loop = name, loop

    def stop(self) -> NeedsConcrete:
        return NeedsConcrete(
            f"stores {self.name} of Layers, and reads it by another name", [self.loop]
        )


@dataclass(eq=False)
class AttributeColumn:
    """The attribute `name` of `layers`, in a list that the loop fills as `fill` says. `homes` are
    the dicts that have it, `old` its values before the loop."""

    layers: Sequence[Any]
    name: str
    items: TraceList
    homes: list[dict[str, Any]]
    old: list[Any]
    fill: list_fills.ListFill | None = None

    def put(self, values: Sequence[object]) -> None:
        for home, value in zip(self.homes, values):
            home[self.name] = value

    @contextmanager
    def unmarked(self, trace: Trace) -> Iterator[None]:
        """The Layers have their attributes as they were before the loop."""
        now = [home[self.name] for home in self.homes]
        self.put(self.old)
        try:
            yield
        finally:
            self.put(now)


def key_of(picked: SelectedLayer, name: str) -> tuple[object, ...]:
    return (*map(id, picked.layers), name)


def column_of(
    trace: Trace, picked: SelectedLayer, name: str
) -> tuple[Frame, AttributeColumn] | None:
    """The column of an attribute, and the body that fills it."""
    for f in reversed(trace.frames):
        if f.columns and (found := f.columns.get(key_of(picked, name))) is not None:
            return f, found
    return None


# ---------------------------------------------------------------- one trace of the body
def enter(
    trace: Trace, frame: Frame, known: dict[object, AttributeColumn], places: Collection[object]
) -> None:
    """The body that is going to be traced stores these attributes, and none of the `places`."""
    assert frame.loop is not None
    frame.loop.layers |= bool(known)
    for key, column in known.items():
        if any(AttributeLocation(q, column.name).key in places for q in column.layers):
            raise AttributePlaceholder(column.name, frame.loop).stop()
        begin(trace, frame, column)
        frame.columns[key] = column
        if column.fill is not None:
            frame.learned.fills[id(column.items)] = column.fill
        trace.undo_log.note(functools.partial(column.put, column.old))
        column.put([AttributePlaceholder(column.name, frame.loop)] * len(column.homes))


def begin(trace: Trace, frame: Frame, column: AttributeColumn) -> None:
    column.homes = [home_of(q, column.name) or {} for q in column.layers]
    column.old = [home.get(column.name) for home in column.homes]
    column.items.born = trace.frames[trace.frames.index(frame) - 1]
    list.__setitem__(column.items, slice(None), column.old)
    for q in column.old:
        if type(q) is AttributePlaceholder:
            raise q.stop()


def home_of(layer: object, name: str) -> dict[str, object] | None:
    """The dict that has an attribute which is a value."""
    fields: dict[str, Any] = layer.__dict__
    homes = (fields[n] if n else fields for n in HOMES)
    return next((d for d in homes if name in d), None)


def learn(frame: Frame, known: dict[Any, AttributeColumn]) -> bool:
    """Keep the columns that this trace has found; True if there was one."""
    new = {k: q for k, q in frame.columns.items() if k not in known}
    known.update(new)
    return bool(new)


def store(trace: Trace, picked: SelectedLayer, name: str, value: object) -> bool:
    """`layer.name = value` for a Layer that an index picks; False if no list serves."""
    plain = isinstance(value, Tensor) or is_runtime_scalar(value) or is_constant(value)
    if not (plain or is_symint(value)) or not is_symint(picked.at):
        return False
    check_plain(trace, picked.layers, name, value)
    found = column_of(trace, picked, name)
    frame, column = found or (trace.frame, made(trace, picked, name))
    if column is None or frame is not trace.frame:
        return False
    if not list_fills.store(trace, column.items, picked.at, value, [frame]):
        return False
    if id(column.items) not in frame.fills:
        raise picked.stop(f"{name} of a Layer is stored at an index of another loop")
    column.fill = frame.fills[id(column.items)]
    frame.columns[key_of(picked, name)] = column
    return True


def check_plain(trace: Trace, layers: Sequence[object], name: str, value: object) -> None:
    """Paddle takes a number only in place of an attribute that is no parameter, buffer or
    sublayer."""
    if isinstance(value, Tensor) or value is None:
        return
    for layer in layers:
        fields = layer.__dict__
        if any(name in fields.get(part, ()) for part in PARTS):
            setattr(layer, name, value)  # raises Paddle's error
        elif PARTS[0] in fields and ("attr", id(layer), name) not in trace.objects.stored:
            trace.guards.unregistered(layer, name)


def made(trace: Trace, picked: SelectedLayer, name: str) -> AttributeColumn | None:
    """A column for an attribute that all Layers have as a value."""
    first = picked.layers[0]
    if trace.frame.loop is None or trace.frame.learned is None or is_foreign(type(first)):
        return None
    if any(home_of(q, name) is None for q in picked.layers) or len(trace.frames) < 2:
        return None
    if len(set(map(id, picked.layers))) < len(picked.layers):
        return None
    if any(f.branch or f.loop is not None and f.loop.open for f in trace.frames):
        return None  # what data chooses between is whole tensors, not parts of what a loop stacks
    column = AttributeColumn(picked.layers, name, TraceList(), [], [])
    begin(trace, trace.frame, column)
    return column


def read(
    trace: Trace, picked: SelectedLayer, name: str, load: Callable[[object, str], object]
) -> tuple[object, ...]:
    """`(layer.name,)` of a Layer that an index picks, in a loop that stores the attribute; () for
    any other."""
    found = column_of(trace, picked, name)
    if found is None:
        return ()
    frame, column = found
    back = distance(frame, column, picked)
    if back > 0:
        assert column.fill is not None
        return (list_fills.port(trace, column.items, frame, column.fill, back).fake,)
    if back == 0 and id(column.items) in frame.fills:
        return (frame.appends[id(column.items)][1][0],)
    with column.unmarked(trace):
        values = [load(q, name) for q in picked.layers]
    return (picked.merge(trace, picked, name, values),)


def distance(frame: Frame, column: AttributeColumn, picked: SelectedLayer) -> int:
    """Return the number of iterations since the attribute was stored; 0 for this one."""
    assert frame.loop is not None
    fill = column.fill
    if fill is not None and is_symint(picked.at):
        head = Size.named(frame.loop.name) * fill.step + fill.start
        back = (head - picked.at.dim) * fill.step
        if isinstance(back, int):
            return back
    raise picked.stop(f"{column.name} of a Layer is read at another index than it is stored")


def check(x: object) -> None:
    """An attribute is read or stored by the name of its Layer."""
    if type(x) is AttributePlaceholder:
        raise x.stop()


def check_stored(trace: Trace, obj: object, name: str) -> None:
    if any(f.columns for f in trace.frames) and isinstance(getattr(obj, "__dict__", None), dict):
        home = home_of(obj, name) if all(n in obj.__dict__ for n in PARTS) else None
        check(home[name] if home is not None else None)


# ---------------------------------------------------------------- after the loop
def check_own(trace: Trace, frame: Frame, leaving: Sequence[object]) -> None:
    """Check that the tensors that Layers keep are made by their iteration and leave it under no
    other name: they are copies of the loop's. `leaving`: the storages of all tensors that leave."""
    for column in frame.columns.values():
        for q in frame.appends.get(id(column.items), (None, []))[1]:
            if not isinstance(q, Tensor):
                continue
            root = trace.root(trace.read_value(lift(trace, q)._value))
            outside = trace.values.frame_of[root] is not frame or root in trace.values.placeholders
            if outside or leaving.count(root) > 1:
                raise NeedsConcrete(SHARED)


def leave(trace: Trace, columns: dict[object, AttributeColumn], trip: Any) -> None:
    """The Layers get what the loop has stored."""
    for column in columns.values():
        assert column.fill is not None
        for k in column.fill.places(trip):
            trace.store(AttributeLocation(column.layers[k], column.name), column.items[k])


__all__ = [
    "AttributeColumn",
    "check",
    "check_own",
    "check_stored",
    "enter",
    "learn",
    "leave",
    "read",
    "store",
]
