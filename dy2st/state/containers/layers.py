"""Layers of one structure that an index picks: one stand-in for all of them.

    for l in range(n):
        x = self.layers[l](x)

The stand-in is a Layer of their class. Its attributes are those of all Layers: what is equal is
itself, of tensors and numbers the index picks one, of Layers there is another stand-in. Every read
is one of each Layer, for the guards. Attributes that are stored in it are those of all Layers
(`dy2st.state.containers.layer_attributes`). Buffers that the loop writes in place, one in each
iteration, are stacked in front of the loop, which writes rows, and get the rows behind it
(`dy2st.state.containers.dynamic_lookup.LookupTable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import paddle

from dy2st.state.containers.constants import is_constant, is_plain, same_constant
from dy2st.state.guards import is_foreign, is_setting
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import RuntimeScalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import SymInt, bounds, is_symint
from dy2st.trace.trace import Frame, Trace, current
from dy2st.trace.trace_state import AmbiguousContainer
from ir import Op
from ir.types import slope
from ir.uses import walk

Layer = paddle.nn.Layer
#: the dicts of a Layer in which others look for tensors and Layers
PARTS = ("_parameters", "_buffers", "_sub_layers")
#: what Paddle keeps in a Layer for itself
INTERNAL = frozenset(
    "_full_name _helper _built _dtype _loaddict_holder _init_in_dynamic_mode _op_recorder "
    "_customized_attrs _non_persistable_buffer_names_set _cast_to_low_precision _original_funcs "
    "_state_dict_hooks".split()
)
#: what of that is another one in each Layer
NAMES = ("_full_name", "_helper", "_op_recorder")
#: how the value of an attribute follows from those of all Layers
AttributeMerge: TypeAlias = Callable[[Trace, "SelectedLayer", str, list[Any]], object]


# ---------------------------------------------------------------- one structure
def difference(layers: Sequence[object]) -> str:
    """Return the reason why one Layer cannot stand for all of these; empty if it can."""
    first = layers[0]
    if any(type(q) is not type(first) for q in layers):
        return "picks Layers of different classes"
    if type(type(first)) is not type or is_told_of_subclasses(type(first)):
        return "picks Layers of a class that is told of its subclasses"
    if any(fields_of(q)[n] for q in layers for n in fields_of(first) if n.startswith("_forward_")):
        return "picks Layers with hooks"
    for name in PARTS:
        held = [q.__dict__[name] for q in layers]
        if any(list(q) != list(held[0]) for q in held):
            return "picks Layers with different parts"
        for key, part in held[0].items():
            parts = [q[key] for q in held]
            if isinstance(part, Layer) and all(isinstance(q, Layer) for q in parts):
                if why := difference(parts):
                    return why
            elif len(set(map(kind_of_part, parts))) > 1:
                return f"picks Layers of which {key} has different types"
    if is_foreign(type(first)):
        return next((differs(n) for n in fields_of(first) if not is_same(layers, n)), "")
    return ""


def is_told_of_subclasses(kind: type) -> bool:
    return any("__init_subclass__" in vars(k) for k in kind.__mro__[:-1])


def differs(name: str) -> str:
    return f"picks Layers whose {name} differs"


def fields_of(layer: object) -> dict[str, Any]:
    return layer.__dict__


def kind_of_part(x: object) -> object:
    """Return a key that is equal for parts of one structure: the type of a tensor."""
    if not isinstance(x, Tensor):
        return type(x)
    shape = x._value.type.shape if isinstance(x, FakeTensor) else tuple(x.shape)
    return str(x.dtype), shape, x.stop_gradient


def is_same(layers: Sequence[object], name: str) -> bool:
    """Whether a setting of Paddle's Layers is the same in all."""
    values: list[Any] = [fields_of(q).get(name) for q in layers]
    if name in PARTS or name in INTERNAL or not any(map(is_setting, values)):
        return True
    lists = all(type(q) is list and is_plain(q) for q in values)
    return equal(values) or lists and equal([tuple(q) for q in values])


def equal(values: Sequence[object]) -> bool:
    """Whether the values are one object, or equal constants."""
    first = values[0]
    return all(q is first for q in values) or all(
        is_constant(q) and same_constant(q, first) for q in values
    )


# ---------------------------------------------------------------- the stand-in
@dataclass(frozen=True, eq=False)
class SelectedLayer:
    """The Layers that a stand-in stands for, and the index `at` that picks one. `owners` has an
    object for each attribute, under which its elements are known, `known` what was read."""

    trace: Trace
    layers: Sequence[object]
    at: RuntimeScalar | SymInt
    owners: dict[str, object]
    merge: AttributeMerge
    known: dict[str, object] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether the Layers themselves have the attribute, and not only their class."""
        return any(name in d for q in self.layers for d in homes(q))

    def value(self, name: str, values: list[Any]) -> object:
        if name not in self.known:
            self.known[name] = self.merge(self.trace, self, name, values)
        return self.known[name]

    def member(self, name: str) -> object:
        """Like `value`, for code of Paddle that looks into the dicts of a Layer."""
        return self.value(name, [getattr(q, name) for q in self.layers])

    def stop(self, what: str) -> NeedsConcrete:
        return NeedsConcrete(what, self.at.loops)


def homes(layer: object) -> Iterator[dict[str, Any]]:
    fields = fields_of(layer)
    yield fields
    yield from (fields[name] for name in PARTS)


class MemberDict(dict[str, Any]):
    """A dict of a stand-in: what is in it is looked up when it is read."""

    def __init__(self, names: Sequence[str], picked: SelectedLayer) -> None:
        super().__init__(dict.fromkeys(names))
        self.picked = picked

    def __getitem__(self, name: str) -> object:
        if name not in self:
            raise KeyError(name)
        return self.picked.member(name)

    def get(self, name: str, default: object = None) -> object:
        return self[name] if name in self else default

    def values(self) -> Any:
        return {name: self[name] for name in self}.values()

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()


class LayerTable:
    """Layers of one structure, of which an index picks one."""

    def __init__(self, layers: Sequence[object], merge: AttributeMerge) -> None:
        self.layers, self.merge = layers, merge
        self.owners: dict[str, object] = {}
        self.kind = derived(type(layers[0]))

    def item(
        self, trace: Trace, at: object, i: RuntimeScalar | SymInt, inner: Sequence[Frame]
    ) -> object:
        picked = SelectedLayer(trace, self.layers, i, self.owners, self.merge)
        first = fields_of(self.layers[0])
        one: object = object.__new__(self.kind)
        fields = {n: first[n] for n in first if self.is_shared(n)}
        fields.update((n, MemberDict(list(first[n]), picked)) for n in PARTS)
        one.__dict__.update(fields)
        trace.objects.picked[id(one)] = (one, picked)
        trace.make(one)
        why = "is stored in, or is compared with others, where an index picks it"
        trace.doubt(
            AmbiguousContainer(one, tuple(self.layers), lambda: picked.stop(f"a Layer {why}"))
        )
        return one

    def is_shared(self, name: str) -> bool:
        """Whether the stand-in has an attribute of the Layers from the beginning, for code of
        Paddle."""
        if name in NAMES:
            return False
        if name in INTERNAL or name.startswith("_forward_"):
            return True
        values = [fields_of(q).get(name) for q in self.layers]
        return equal(values) or is_foreign(type(self.layers[0])) and is_setting(values[0])


def derived(kind: type) -> type:
    """The class of stand-ins for Layers of a class: the identity of one is not known."""
    methods = {"__eq__": compared, "__hash__": hashed, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), methods)


def compared(self: object, other: object) -> NoReturn:
    raise identity(self)


def hashed(self: object) -> NoReturn:
    raise identity(self)


def identity(layer: object) -> NeedsConcrete:
    trace = current()
    found = None if trace is None else picked_of(trace, layer)
    what = "which of several Layers it is, is asked"
    return NeedsConcrete(what) if found is None else found.stop(what)


def picked_of(trace: Trace, x: object) -> SelectedLayer | None:
    """The Layers that `x` stands for; None for any other object."""
    found = trace.objects.picked.get(id(x))
    return None if found is None else found[1]


def class_of(x: object) -> type:
    """The class of a Layer; for a stand-in, that of those it stands for."""
    trace, kind = current(), type(x)
    return kind if trace is None or picked_of(trace, x) is None else kind.__mro__[1]


def originals(trace: Trace, x: object) -> Iterator[object]:
    """The objects from outside that `x` is, or stands for."""
    picked = picked_of(trace, x)
    if picked is None:
        yield x
        return
    for q in picked.layers:
        yield from originals(trace, q)


# ---------------------------------------------------------------- buffers that a loop writes
def is_each_once(trace: Trace, i: object, n: int, inner: Sequence[Frame]) -> bool:
    """Whether the body that begins the frames `inner`, or a branch of it, picks each of `n`
    elements in one iteration."""
    loop = inner[0].loop
    if not is_symint(i) or loop is None or i.loops != {loop} or any(f.loop for f in inner[1:]):
        return False
    step = slope(i.dim, loop.name)
    return loop.trip == n and step in (1, -1) and bounds(i.dim, trace) == (0, n - 1)


def is_updated(loops: frozenset[Any], key: tuple[int, ...]) -> bool:
    """Whether a loop writes these tensors in place, as an earlier trace of it has found."""
    return any(q.frame is not None and key in q.frame.learned.updated for q in loops)


def check_updates(trace: Trace, body: Frame) -> None:
    """Tensors that a loop writes are known to it by one table only."""
    for whole, table in body.updates.items():
        tables = (members for root, (members, _) in body.tables.items() if root is not whole)
        others = (v for members in tables for v in members)
        known = map(trace.root, (*body.consts, *body.written, *others))
        if not set(map(trace.root, table.members)).isdisjoint(known):
            raise NeedsConcrete("writes a tensor of a Layer that it also knows by another name")


def write_back(trace: Trace, body: Frame) -> None:
    """Behind a loop: the tensors get what it has left in the rows that stood for them."""
    for whole, table in body.updates.items():
        stores = (n for n in walk(body.builder.ops) if isinstance(n, Op) and n.name == "copy_")
        moves = sum(n.attrs["moves"] for n in stores if trace.root(n.operands[0]) is whole)
        for k, fake in enumerate(table.written):
            trace.write(fake, table.fake[k]._value, moves=moves)


__all__ = [
    "PARTS",
    "LayerTable",
    "SelectedLayer",
    "check_updates",
    "class_of",
    "difference",
    "differs",
    "equal",
    "identity",
    "is_each_once",
    "is_updated",
    "kind_of_part",
    "originals",
    "picked_of",
    "write_back",
]
