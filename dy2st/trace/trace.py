"""The trace: the record of one run, with frames of ops, inputs by identity, ports on first use.

Values denote storages: an in-place call emits `copy_` into the same value, and later reads of that
value see the new contents (`ir.passes.functionalization` makes this explicit). A value from an
outer frame becomes a const port of every loop in between when the body first reads it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

from paddle import Tensor

from dy2st.trace.conditions import Conditions
from dy2st.trace.frames import Frame as Frame
from dy2st.trace.frames import TracedInput as TracedInput
from dy2st.trace.frames import TracedLoop as TracedLoop
from dy2st.trace.scalar import DTYPES, RuntimeScalar
from dy2st.trace.signals import NeedsConcrete, Refused, RetraceUnrolled, refusing_complex
from dy2st.trace.size_facts import SizeFacts
from dy2st.trace.trace_state import (
    Aliasing,
    AmbiguousContainer,
    ConvertedCalls,
    ErrorExits,
    Hooks,
    Inputs,
    LoopFacts,
    TracedObjects,
    Undefined,
    ValueFacts,
)
from dy2st.trace.undo import Location, UndoLog
from ir import ENDLESS, Builder, Const, Loc, Op, Size, Type, Value
from ir.analysis.alias_gradients import GradientFacts
from ir.types import Dim

_ACTIVE: dict[int, Trace] = {}
#: so many loops are unrolled because their tensors are written later
MOST_UNROLLED = 8


def current() -> Trace | None:
    """The trace that this thread is making, if any."""
    trace = _ACTIVE.get(threading.get_ident())
    return None if trace is None or trace.paused else trace


class Trace(Conditions):
    """One capture: the state of a function that runs once on fake tensors.

    where: gives the user's line that is running.
    hooks: the ways back into the layers above, which the trace may not import.
    frames: the program, and the loop bodies and branches that are being traced, innermost last.
    guards: what the trace has read of Python objects.
    loop_facts: what earlier traces of each loop have learned, and how many there were.
    autograd: what the program does not say of eager autograd.
    dynamic: keys of the Python numbers that are inputs.
    endings: errors that data may raise, and how calls end in them.
    trying: how many `try` statements of the user are running.
    checkpoints: what single loops keep for the backward, by their line.
    """

    def __init__(self, names: dict[int, tuple[str, str]], where: Any, hooks: Hooks) -> None:
        self.where, self.hooks = where, hooks
        self.frames = [Frame()]
        self.undo_log = UndoLog()
        self.paused = 0
        self.inputs = Inputs(names)
        self.values = ValueFacts()
        self.sizes = SizeFacts()
        self.objects = TracedObjects()
        self.undefined = Undefined()
        self.aliasing = Aliasing()
        self.calls = ConvertedCalls()
        self.guards: Any = None
        self.autograd = GradientFacts()
        self.loop_facts = LoopFacts()
        self.dynamic: set[tuple[Any, ...]] = set()
        self.endings = ErrorExits()
        self.trying = 0
        self.checkpoints: dict[Loc, str | int] = {}

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

    @property
    def in_loop(self) -> bool:
        """Whether the body of a loop is being traced."""
        return any(f.loop is not None for f in self.frames)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Paddle runs eagerly inside."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Ops are emitted in the frame around this one."""
        inner = self.frames.pop()
        try:
            yield
        finally:
            self.frames.append(inner)

    def new_value(self, type: Type, hint: str = "", frame: Frame | None = None) -> Value:
        value = Value(type, hint)
        self.values.frame_of[value] = frame or self.frame
        return value

    def fake(self, value: Value, stop_gradient: bool = True) -> Tensor:
        self.values.frame_of.setdefault(value, self.frame)
        if not stop_gradient:
            self.autograd.trained.add(value)
        return self.hooks.make_fake(value, stop_gradient)

    def read_value(self, value: Value, k: int | None = None) -> Value:
        """`value` as frame k sees it; from outside it comes in through const ports."""
        if self.values.lost and (error := self.values.lost.get(self.root(value))) is not None:
            raise error()
        k = len(self.frames) - 1 if k is None else k
        frame, home = self.frames[k], self.values.frame_of[value]
        if home is frame:
            return value
        if home not in self.frames[:k]:
            raise NeedsConcrete("a tensor of an earlier iteration is used")
        outer = self.read_value(value, k - 1)
        if outer not in frame.consts:
            inner = self.new_value(outer.type, outer.name, frame)
            self.values.parent[inner] = outer
            frame.consts[outer] = Const(inner, outer)
        return frame.consts[outer].inner

    def root(self, value: Value) -> Value:
        """The storage behind views and const ports."""
        while value in self.values.parent:
            value = self.values.parent[value]
        return value

    def chain(self, value: Value) -> Iterator[Value]:
        """`value`, and what it views, to the storage."""
        yield value
        while value in self.values.parent:
            value = self.values.parent[value]
            yield value

    # ------------------------------------------------------------ known elements
    def know(self, value: Value, elements: Iterable[object], sources: Iterable[Value] = ()) -> None:
        """The elements of a small tensor as Python numbers, sizes among them; `sources`: the values
        with known elements that they follow from."""
        root, since = self.root(value), dict[Value, int]()
        for v in sources:
            since.update(self.values.elements[v][1])
        since[root] = self.values.writes.get(root, 0)
        self.values.elements[value] = tuple(elements), since

    def elements(self, value: Value) -> tuple[Any, ...] | None:
        """The elements of a tensor, if the trace knows them."""
        found, since = self.values.elements.get(value, (None, {}))
        fresh = (
            n == self.values.writes.get(root, 0) and self.values.frame_of[root] in self.frames
            for root, n in since.items()
        )
        return found if all(fresh) else None

    def known(self, value: Value) -> tuple[Any, ...] | None:
        """Like `elements`, for use as numbers: a block that then writes one of the storages is not
        traced this way."""
        found = self.elements(value)
        if found is not None:
            for root in self.values.elements[value][1]:
                for frame in self.inside(root):
                    frame.relied.add(root)
        return found

    def become(self, old: Value, new: Value) -> None:
        """The object that was `old` is `new` from here on."""
        self.values.became[old] = new
        self.undo_log.note(functools.partial(self.values.became.pop, old, None))

    # ------------------------------------------------------------ inputs
    def add_input(self, tensor: Tensor, kind: str, name: str, type: Type) -> Tensor:
        value = Value(type, name.rsplit(".", 1)[-1])
        self.values.frame_of[value] = self.frames[0]
        fake = self.fake(value, bool(tensor.stop_gradient))
        place = self.place_of(tensor)
        self.inputs.by_id[id(tensor)] = TracedInput(tensor, fake, value, kind, name, place)
        return fake

    def number_input(self, key: object, value: object, name: str, place: Location | None) -> object:
        """A Python number as an input: int64 or float64, 0-d."""
        if key not in self.inputs.numbers:
            kind = type(value)
            if kind is int and not -(1 << 63) <= value < 1 << 63:  # type: ignore[operator]
                raise OverflowError(f"{name} has more than 64 bits")
            with self.pause():
                tensor = self.hooks.make_tensor(value, kind)
            fake = self.add_input(tensor, "buffer", name, Type(DTYPES[kind]))
            traced = self.inputs.by_id[id(tensor)]
            traced.place, traced.number = place, (key, kind)
            self.inputs.numbers[key] = RuntimeScalar(fake._value, self)
        return self.inputs.numbers[key]

    # ------------------------------------------------------------ emitting
    def emit(self, name: str, operands: Sequence[Value], attrs: dict[str, Any]) -> Any:
        """Append an op at the user's line; raises ShapeError when the operands do not fit."""
        builder = self.builder
        builder.loc = self.where()
        if self.undefined.values:
            self.check_defined(operands)
        with refusing_complex(builder.loc):
            results = builder.emit(name, [self.read_value(v) for v in operands], attrs)
        op = builder.ops[-1]
        for r in results:
            self.values.frame_of[r] = self.frame
            if op.row.views:  # type: ignore[union-attr]
                self.values.parent[r] = op.operands[0]
                self.values.makers[r] = op  # type: ignore[assignment]
        self.note_requires(builder)
        return results[0] if len(results) == 1 else results

    def check_defined(self, operands: Iterable[Value]) -> None:
        """A variable that only some runs define fails where it is read, as in eager."""
        for v in operands:
            ok, message = self.undefined.values.get(v, (None, ""))
            if ok is not None and (v, self.frame) not in self.undefined.checked:
                self.undefined.checked.add((v, self.frame))
                attrs = {"error": "UnboundLocalError", "message": message}
                self.emit("check", [ok], attrs)

    # ------------------------------------------------------------ writes
    def write(self, fake: Tensor, new: Value, own: bool = False, moves: int = 1) -> Op:
        """Overwrite the storage of `fake`; all its aliases see it. Returns the op that does it.

        own: Paddle's call computes `new` in this storage: it is not a tensor of its own.
        moves: by how much the call moves the version of the storage.
        """
        value = self.read_value(fake._value)
        root = self.root(value)
        self.check_writable(root)
        if root in self.values.results:
            self.require_ran(self.values.results[root])
        elements = self.elements(new)
        self.values.writes[root] = self.values.writes.get(root, 0) + 1
        self.emit("copy_", [value, new], {"own": own, "moves": moves})
        op = self.builder.ops[-1]
        assert isinstance(op, Op)
        self.mark_written(root, self.where())
        if value is root and self.values.frame_of[root] is self.frame and elements is not None:
            self.know(root, elements, [new])
        return op

    def require_ran(self, length: Dim) -> None:
        """A result of a loop is written: it is what was there before if the loop does not run.
        Where data decides if it runs, `ir.analysis.alias` follows both."""
        if not (isinstance(length, Size) and any(n in self.sizes.counts for n in length.names)):
            self.require(length, 1, "a result of a loop that is written in place")

    def inside(self, root: Value) -> list[Frame]:
        """The frames between the storage's own and this one, this one included."""
        return self.frames[self.frames.index(self.values.frame_of[root]) + 1 :]

    def mark_written(self, root: Value, loc: Loc) -> None:
        """Every frame between the storage's own and this one writes it."""
        self.values.written.add(root)
        for frame in self.inside(root):
            if root in frame.relied:
                raise NeedsConcrete("a constant that the loop writes is needed as a number")
            if root not in frame.written:
                frame.written[root] = loc
                self.undo_log.note(functools.partial(frame.written.pop, root, None))

    def adopt(self, inner: Frame, written: dict[Value, Loc]) -> None:
        """Take over the notes, conditions and writes of a loop's body or a branch into this
        frame."""
        self.frame.notes += inner.notes
        self.frame.requires.update(inner.requires)
        self.frame.predicates.update(inner.predicates)
        for root, loc in written.items():
            if self.values.frame_of[root] in self.frames:
                self.mark_written(root, loc)

    def check_writable(self, root: Value) -> None:
        if root in self.values.placeholders:
            if self.values.frame_of[root].learn_write(root):
                return
            raise NeedsConcrete("a variable of the loop is written in place and also rebound")
        if root in self.values.frozen:
            reason, loop = self.values.frozen[root]
            if self.is_counted(loop) and loop.frame in self.frames:
                if loop.frame.learn_update(root):
                    return
                why = "a tensor is written of which the loop takes a copy"
                raise NeedsConcrete(why, [loop], own=True)
            why = "a tensor that it takes from outside is written in place"
            self.unroll(loop, why, [q for text, q in self.values.frozen.values() if text == reason])
            raise Refused(
                "this tensor is written in place, and it may share memory with another one.",
                self.where(),
                reason=reason,
                remedy="Write to a copy: `y = x.clone()`, then `y.add_(...)`.",
            )

    def unroll(
        self, loop: TracedLoop | None, reason: str, also: Iterable[TracedLoop | None] = ()
    ) -> None:
        """Start again without rolling these loops, if the length of the first one is known."""
        if self.is_counted(loop) and len(self.loop_facts.unrolled) < MOST_UNROLLED:
            loops = [q for q in (loop, *also) if self.is_counted(q)]
            raise RetraceUnrolled(
                [q.calls for q in loops], reason, [q.calls for q in loops if q.layers]
            )

    @staticmethod
    def is_counted(loop: TracedLoop | None) -> TypeGuard[TracedLoop]:
        """Whether it is a loop of known length."""
        return loop is not None and isinstance(loop.trip, int) and loop.trip != ENDLESS

    def freeze(self, root: Value, reason: str, loop: TracedLoop | None) -> None:
        self.values.frozen.setdefault(root, (reason, loop))

    # ------------------------------------------------------------ stores
    def store(self, place: Location, value: object, told: bool = False) -> None:
        """`told`: what watches the container has seen the change in a branch or body."""
        self.note_store(place, told)
        with self.pause():
            place.put(value)

    def make(self, x: object, frame: Frame | None = None) -> None:
        """The program has made this object: nobody outside knows it."""
        self.objects.made[id(x)] = x
        self.objects.homes[id(x)] = frame or self.frame

    def home(self, x: object) -> Frame | None:
        """The frame in which the program has made an object; None for all others."""
        return getattr(x, "born", None) if isinstance(x, list) else self.objects.homes.get(id(x))

    def loops_around(self, x: object) -> list[Frame]:
        """The loop bodies that are being traced and that an object comes into from outside."""
        home = self.home(x)
        at = self.frames.index(home) + 1 if home in self.frames else 0
        return [f for f in self.frames[at:] if not f.branch]

    def private(self, home: Frame | None) -> bool:
        """Whether an object made in `home` is known in the running branch or body only. Its
        changes are kept when that is undone, because it may have left in a variable."""
        return home is self.frame and home is not self.frames[0]

    def outside_of_trace(self, x: object) -> bool:
        """Whether an object is the user's, and no container that the program makes or that stands
        for an argument's."""
        own = id(x) in self.objects.made or id(x) in self.inputs.containers
        return not own and self.home(x) is None

    def note_store(self, place: Location, told: bool = False) -> None:
        """The place is going to change: it can be put back, and calls repeat the change."""
        self.check_certain(place.obj, changes=True, told=told)
        if self.private(self.home(place.obj)):
            return
        if self.guards is not None and self.outside_of_trace(place.obj):
            self.guards.meet(place.obj)
            self.guards.terms.store(place)
        self.undo_log.note(place.snapshot())
        if place.key not in self.objects.stored:
            self.objects.stored[place.key] = self.where() if self.sizes.streamed else None
            self.undo_log.note(lambda: self.objects.stored.pop(place.key, None))
        if place.key not in self.frame.stores:
            frame = self.frame
            frame.stores[place.key] = place
            self.undo_log.note(lambda: frame.stores.pop(place.key, None))

    def doubt(self, doubt: AmbiguousContainer) -> None:
        """Note a container that may be another one when the program runs."""
        doubts, key = self.objects.doubts, id(doubt.obj)
        old = doubts.get(key)
        doubts[key] = doubt
        self.undo_log.note(
            lambda: doubts.pop(key, None) if old is None else doubts.update({key: old})
        )

    def note_use(self, obj: object, changes: bool = False) -> None:
        """A dict or object is read or changed."""
        watch = self.objects.watches.get(id(obj)) if self.objects.watches else None
        if watch is not None:
            watch.touched(obj, changes)

    def check_certain(self, obj: object, changes: bool = False, told: bool = False) -> None:
        """Check that the identity of a container is known: it is changed, or the caller sees it.
        `told`: what watches it knows of the change."""
        if changes and not told:
            self.note_use(obj, changes=True)
        doubt = self.objects.doubts.get(id(obj))
        if doubt is not None and doubt.settle is not None:
            doubt.settle()
        elif doubt is not None and not (changes and doubt.allows_change()):
            self.require(doubt.known_length(), 1, "a container that a loop makes")

    def place_of(self, tensor: Tensor) -> Location | None:
        """Return the place where the trace found a real tensor; None if it has none."""
        return None if self.guards is None else self.guards.places.get(id(tensor))


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
