"""The record of one run: frames of ops, inputs by identity, ports on first use.

Values denote storages: an in-place call emits `copy_` into the same value, and later reads of that
value see the new contents (`ir.passes.functionalize` makes this explicit). A value from an outer
frame becomes a const port of every loop in between when the body first reads it.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dy2st.journal import Journal, Place
from dy2st.stops import NeedsConcrete, Refused
from dy2st.symbols import TYPICAL, Sym, make
from ir import Builder, Const, Loc, Require, Size, SourceError, Type, Value
from ir.types import I64, Dim, substitute_dim

_ACTIVE: dict[int, Trace] = {}


def current() -> Trace | None:
    """The trace that this thread is making, if any."""
    trace = _ACTIVE.get(threading.get_ident())
    return None if trace is None or trace.paused else trace


@dataclass(eq=False)
class Loop:
    """One loop that is being traced. `name` stands for its iteration number in polynomials."""

    name: str
    trip: Dim
    index: Value
    frame: Frame | None = None


@dataclass(eq=False)
class Frame:
    """The ops of the program, or of one loop body."""

    builder: Builder = field(default_factory=Builder)
    loop: Loop | None = None
    consts: dict[Value, Const] = field(default_factory=dict)
    stores: dict[tuple[Any, ...], Place] = field(default_factory=dict)
    appends: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    tails: dict[int, Any] = field(default_factory=dict)
    written: dict[Value, Loc] = field(default_factory=dict)
    indices: dict[Dim, Value] = field(default_factory=dict)
    notes: list[tuple[str, Loc, str]] = field(default_factory=list)
    requires: dict[str, Require] = field(default_factory=dict)

    def adopt(self, inner: Frame) -> None:
        """What a rolled body noted and required holds for the frame around it."""
        self.notes += inner.notes
        self.requires.update(inner.requires)


@dataclass(eq=False)
class Lifted:
    """A real tensor that became an input. `place` says where it was found, for the next call."""

    tensor: Any
    fake: Any
    value: Value
    kind: str
    name: str
    place: Place | None = None


class Trace:
    """One capture. `names` gives the user's names of parameters and buffers by `id`."""

    def __init__(
        self,
        names: dict[int, tuple[str, str]],
        where: Any,
        make_fake: Any,
        call: Any = None,
        call_layer: Any = None,
    ) -> None:
        self.names, self.where, self.make_fake = names, where, make_fake
        self.call, self.call_layer = call, call_layer
        self.frames = [Frame()]
        self.journal = Journal()
        self.paused = 0
        self.lifted: dict[int, Lifted] = {}
        self.born: dict[Value, Frame] = {}
        self.parent: dict[Value, Value] = {}
        self.placeholders: set[Value] = set()
        self.frozen: dict[Value, str] = {}
        self.loops: dict[str, Loop] = {}
        self.hints: dict[str, int] = {}
        self.learned: dict[Any, Any] = {}
        self.guards: Any = None
        self.made: dict[int, Any] = {}
        self.arguments: dict[int, Any] = {}
        self.literals: dict[Value, Any] = {}
        self.functions: set[Any] = set()
        self.codes: set[Any] = set()
        self.results: dict[Value, Dim] = {}
        self.stored: set[tuple[Any, ...]] = set()
        self.counter = itertools.count()

    # ------------------------------------------------------------ frames and values
    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def builder(self) -> Builder:
        return self.frames[-1].builder

    @property
    def tentative(self) -> bool:
        return len(self.frames) > 1

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Paddle runs eagerly inside."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    def new_value(self, type: Type, hint: str = "", frame: Frame | None = None) -> Value:
        value = Value(type, hint)
        self.born[value] = frame or self.frame
        return value

    def fake(self, value: Value, stop_gradient: bool = True) -> Any:
        self.born.setdefault(value, self.frame)
        return self.make_fake(value, stop_gradient)

    def read_value(self, value: Value, k: int | None = None) -> Value:
        """`value` as frame k sees it; from outside it comes in through const ports."""
        k = len(self.frames) - 1 if k is None else k
        frame, home = self.frames[k], self.born[value]
        if home is frame:
            return value
        if home not in self.frames[:k]:
            raise NeedsConcrete("a tensor of an earlier iteration is used")
        outer = self.read_value(value, k - 1)
        if outer not in frame.consts:
            inner = self.new_value(outer.type, outer.name, frame)
            self.parent[inner] = outer
            frame.consts[outer] = Const(inner, outer)
        return frame.consts[outer].inner

    def root(self, value: Value) -> Value:
        """The storage behind views and const ports."""
        while value in self.parent:
            value = self.parent[value]
        return value

    # ------------------------------------------------------------ inputs
    def add_input(self, tensor: Any, kind: str, name: str, type: Type) -> Any:
        value = Value(type, name.rsplit(".", 1)[-1])
        self.born[value] = self.frames[0]
        fake = self.make_fake(value, bool(tensor.stop_gradient))
        place = self.place_of(tensor)
        self.lifted[id(tensor)] = Lifted(tensor, fake, value, kind, name, place)
        return fake

    # ------------------------------------------------------------ emitting
    def emit(self, name: str, operands: Sequence[Value], attrs: dict[str, Any]) -> Any:
        """Append an op at the user's line; raises ShapeError when the operands do not fit."""
        builder = self.builder
        builder.loc = self.where()
        results = builder.emit(name, [self.read_value(v) for v in operands], attrs)
        op = builder.ops[-1]
        for r in results:
            self.born[r] = self.frame
            if op.row.views:  # type: ignore[union-attr]
                self.parent[r] = op.operands[0]
        self.note_requires(builder)
        return results[0] if len(results) == 1 else results

    def note_requires(self, builder: Builder) -> None:
        for r in builder.requires:
            self.add_require(r)
        builder.requires.clear()

    def add_require(self, r: Require) -> None:
        if any(n in self.loops for d in (r.left, r.right) if isinstance(d, Size) for n in d.names):
            raise NeedsConcrete(f"{r} depends on the iteration")
        self.frame.requires.setdefault(str(r), r)

    def index_value(self, n: Any) -> Value:
        """An i64[] value for an int or a Sym, once per frame."""
        dim = n.dim if type(n) is Sym else int(n)
        return self.dim_value(dim)

    def dim_value(self, dim: Dim) -> Value:
        frame = self.frame
        if dim in frame.indices:
            return frame.indices[dim]
        if not isinstance(dim, Size):
            value = self.emit("full", [], {"value": dim, "dtype": I64})
        elif not any(n in self.loops for n in dim.names):
            value = self.emit("size", [], {"n": dim})
        else:
            value = self._affine_value(dim)
        frame.indices[dim] = value
        return value

    def _affine_value(self, dim: Size) -> Value:
        name = next(n for n in sorted(dim.names) if n in self.loops)
        rest = substitute_dim(dim, {name: 0})
        step = substitute_dim(dim, {name: 1}) - rest
        if any(m.count(name) > 1 for m, _ in dim.terms):
            raise NeedsConcrete(f"{dim} is not linear in the index", [self.loops[name]])
        value = self.loops[name].index
        if step != 1:
            value = self.emit("multiply", [value, self.dim_value(step)], {})
        if rest != 0:
            value = self.emit("add", [value, self.dim_value(rest)], {})
        return self.read_value(value)

    # ------------------------------------------------------------ writes
    def write(self, fake: Any, new: Value) -> None:
        """Overwrite the storage of `fake`; all its aliases see it."""
        value = self.read_value(fake._value)
        root = self.root(value)
        self.check_writable(root)
        if root in self.results:
            self.require(self.results[root], 1, "a result of a loop that is written in place")
        self.literals.clear()
        self.emit("copy_", [value, new], {})
        for frame in self.frames[self.frames.index(self.born[root]) + 1 :]:
            if root not in frame.written:
                frame.written[root] = self.where()
                self.journal.note(functools.partial(frame.written.pop, root, None))

    def check_writable(self, root: Value) -> None:
        if root in self.placeholders:
            raise NeedsConcrete("a variable of the loop is written in place and also rebound")
        if root in self.frozen:
            raise Refused(
                SourceError(
                    "this tensor is written in place, and it may share memory with another one.",
                    self.where(),
                    reason=self.frozen[root],
                    remedy="Write to a copy: `y = x.clone()`, then `y.add_(...)`.",
                )
            )

    def freeze(self, root: Value, reason: str) -> None:
        self.frozen.setdefault(root, reason)

    # ------------------------------------------------------------ stores
    def store(self, place: Place, value: Any) -> None:
        self.journal.note(place.snapshot())
        if place.key not in self.stored:
            self.stored.add(place.key)
            self.journal.note(lambda: self.stored.discard(place.key))
        if place.key not in self.frame.stores:
            frame = self.frame
            frame.stores[place.key] = place
            self.journal.note(lambda: frame.stores.pop(place.key, None))
        with self.pause():
            place.put(value)

    # ------------------------------------------------------------ sizes
    def settle(self, dim: Dim) -> int:
        """The value of a size with typical numbers for names that are open."""
        if not isinstance(dim, Size):
            return dim
        return dim.evaluate({n: self.hints.get(n, TYPICAL) for n in dim.names})

    def require_branch(self, op: str, low: Dim, high: Dim, known: bool) -> None:
        """Python took a branch on named sizes: the program holds only where it goes that way."""
        holds = (
            op
            if known
            else {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[op]
        )
        for dim in {low, high}:
            if isinstance(dim, Size):
                self.require_sign(dim, holds)

    def require_sign(self, dim: Dim, holds: str) -> None:
        """The condition `dim <holds> 0` in the relations that programs know."""
        left, relation, right = {
            "eq": (dim, "==", 0),
            "ne": (dim, "!=", 0),
            "ge": (dim, ">=", 0),
            "gt": (dim, ">=", 1),
            "le": (0 - dim, ">=", 0),
            "lt": (0 - dim, ">=", 1),
        }[holds]
        self.add_require(Require(left, relation, right, "a branch of Python", self.where()))

    def require(self, dim: Dim, least: int, reason: str) -> None:
        if isinstance(dim, Size) and not _surely(dim, least):
            self.add_require(Require(dim, ">=", least, reason, self.where()))

    def sym(self, dim: Dim) -> Any:
        return make(dim, self)

    def new_loop(self, trip: Dim) -> Loop:
        name = f"t@{next(self.counter)}"
        loop = Loop(name, trip, Value(Type(I64), "t"))
        self.loops[name] = loop
        return loop

    def place_of(self, tensor: Any) -> Place | None:
        """Where the trace found a real tensor; None for one that was just there."""
        return None if self.guards is None else self.guards.places.get(id(tensor))


def _surely(dim: Size, least: int) -> bool:
    """A sum of sizes, none of which is negative."""
    constant = sum(k for names, k in dim.terms if not names)
    return constant >= least and all(k >= 0 for names, k in dim.terms if names)


@contextmanager
def active(trace: Trace) -> Iterator[None]:
    """Make `trace` the one of this thread; an outer one comes back afterwards."""
    me = threading.get_ident()
    outer = _ACTIVE.get(me)
    _ACTIVE[me] = trace
    try:
        yield
    finally:
        if outer is None:
            _ACTIVE.pop(me, None)
        else:
            _ACTIVE[me] = outer
