"""Containers as loop variables: those that every iteration creates.

A container that the body changes in place stays one object, and its places are carried. A variable
that the body binds to a new container of the same structure is carried by the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from dy2st.branches.chosen_containers import ChosenContainer
from dy2st.branches.unresolved import Alternative, Unresolved, alternatives, unreadable
from dy2st.loops.chosen_containers import are_held, check_chosen
from dy2st.loops.late_types import filled_by, types_change
from dy2st.loops.learned_facts import Path, refute
from dy2st.loops.record import LoopRecord, LoopTrace
from dy2st.loops.refusals import set_in_loop
from dy2st.state.containers import list_buffers
from dy2st.state.containers.dynamic_lookup import is_short
from dy2st.state.containers.rebound_containers import (
    ExtendedList,
    ReboundContainer,
    grow,
    is_longer,
)
from dy2st.state.containers.records import element_doubt, fields_of
from dy2st.state.ownership import note_contents
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import (
    UNDEF,
    TypeMismatch,
    alike,
    describe,
    doubtful,
    elements,
    is_container,
    is_value,
    parts,
    rebuilt,
)
from dy2st.trace.frames import TracedLoop
from dy2st.trace.scalar import RuntimeScalar, is_mixed, kind_of, make, under, value_in
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.trace_state import AmbiguousContainer
from dy2st.trace.undo import MISSING
from ir import Value
from ir.types import I64, Dim

#: a place of a loop: its name, its value before the loop, the placeholder, the value after an
#: iteration, the path
Row = tuple[str, Any, Any, Any, tuple[object, ...]]


def note_copies(body_trace: LoopTrace, x: object, copy: object, path: tuple[object, ...]) -> None:
    """A copy stands for `x` in the first iteration only. The body may change neither, but for a
    copy of a container that the function has made, and that it reads by no other name."""
    if copy is x or isinstance(copy, ExtendedList):
        return
    if is_container(x) and type(copy) is not tuple:
        trace, every = body_trace.trace, body_trace.replaced
        note_contents(trace, x)
        reason = f"{displayed(path)} is changed in place and also rebound"
        made = ReboundContainer(
            trace, (x, copy, path), parts(copy), reason, body_trace.loop, hidden
        )
        if not isinstance(x, TraceList):
            made.own = fields_of(x) is not None and trace.home(x) in trace.frames
            changed = partial(note_change, body_trace, made) if made.own else None
            trace.doubt(AmbiguousContainer(x, (x, copy), made.stop))
            trace.doubt(AmbiguousContainer(copy, (x, copy), made.stop, on_change=changed))
        for q in every:
            if q.first is x:
                q.seen = made.seen = True
        every.append(made)
        body_trace.copies[id(copy)] = (copy, x, path)
    for (k, q), part in zip((elements(x) or {}).items(), parts(copy)):
        note_copies(body_trace, q, part, (*path, k))


def note_change(body_trace: LoopTrace, replaced: ReboundContainer) -> None:
    """The copy of a dict or object is changed: the next trace hides the one from before."""
    if replaced.path not in body_trace.known.rewritten:
        body_trace.known.rewritten.add(replaced.path)
        body_trace.frame.stale = True
    replaced.change()


def learn_fresh(body_trace: LoopTrace, b: object, a: object, path: tuple[object, ...]) -> None:
    """Learn a place whose container each iteration makes anew, with those in it; and whether it
    changes the one before."""
    if type(b) is Unresolved or a is b or not alike(a, b):
        return
    if not is_value(a):
        if body_trace.trace.home(a) is not body_trace.frame:
            return
        carry_elements(body_trace, path, b)
    for (k, x), y in zip((elements(a) or {}).items(), parts(b)):
        if is_value(x) or is_container(x):
            learn_fresh(body_trace, y, x, (*path, k))


def carry_elements(body_trace: LoopTrace, path: tuple[object, ...], b: object) -> None:
    """Learn that the body gets a copy of container `b`."""
    known = body_trace.known
    known.fresh.add(path)
    if id(b) in body_trace.stored:
        known.rewritten.add(path)
    list_buffers.forget_slots(known.places, b)


def hidden(error: BaseException) -> object:
    """An element that no code may use, nor the key that it is at."""
    return unreadable(error, Alternative(MISSING, None))


class ContainerPorts(LoopRecord):
    """The containers among the places of a loop.

    begins, ends: the places before the loop and after the body. listed: containers that the body
    has put into lists, by `id`. containers: by `id`, the containers
    that the body makes, with the ones before it and those after the loop; shared: those that two
    places hold. doubtful: those after the loop that may be the ones from before it; alternatives:
    those of them that branches of the body have chosen, with the ones from before it. longer:
    the lists of `Learned.rebuilt`; extensions: what the body has left in their places, by `id`.
    """

    def __init__(
        self,
        body_trace: LoopTrace,
        begins: dict[tuple[object, ...], object],
        ends: dict[tuple[object, ...], object],
    ) -> None:
        super().__init__(body_trace)
        self.begins, self.ends = begins, ends
        self.extensions: dict[int, tuple[ExtendedList, ExtendedList]] = {}
        self.listed: dict[int, object] = {}
        self.containers: dict[int, tuple[Any, Any, Any]] = {}
        self.shared: set[int] = set()
        self.doubtful: list[AmbiguousContainer] = []
        self.alternatives: list[
            tuple[object, tuple[object, ...], list[object], Callable[[], BaseException], bool]
        ] = []
        self.longer = {path: q for path, q in body_trace.known.rebuilt.items() if q is not None}
        self.extend()

    def settle(self, name: str, b: object, p: object, a: object, path: tuple[object, ...]) -> Any:
        """The value of one place after the loop; raises TypeMismatch, NeedsConcrete or Retrace."""
        raise NotImplementedError

    # ------------------------------------------------------------ lists that get longer
    def extend(self) -> None:
        """The lists that iterations begin with are appended to, as the last one has left them."""
        known = self.body_trace.known
        for path, target in self.longer.items():
            after = self.value_at(path)
            extended = after if isinstance(after, ExtendedList) and after.base is target else None
            if self.changes(target.of[0]) or extended is None and after is not target:
                refute(known, path)
                raise Retrace
            if extended is not None:
                self.extensions[id(after)] = (extended, target)
                grow(target, extended)

    def changes(self, x: object) -> bool:
        """Whether the body changes a list in place."""
        frame, known = self.frame, self.body_trace.known
        stores = [k for k, q in known.buffers.items() if q.stores]
        grown = [k for k, (_, items) in frame.appends.items() if items]
        found = (*frame.changed, *frame.fills, *known.fills, *known.queues, *stores, *grown)
        return id(x) in found or any(q.obj is x for q in frame.stores.values())

    def settled_place(self, name: str, b: Any, p: Any, a: Any, path: tuple[Any, ...]) -> Any:
        """Like `settle`; a list that iterations extend is one object in all places that hold it."""
        known, extended = self.body_trace.known, self.extensions.get(id(a))
        if extended is not None and b is not UNDEF and self.longer.get(path) is not extended[1]:
            raise NeedsConcrete(f"{name} becomes a list that another name has made longer")
        if extended is not None:
            return self.lengthened(b, extended[1])
        if path in self.longer and a is self.longer[path]:
            return b
        if any(a is q for q in self.longer.values()):
            raise NeedsConcrete(f"{name} is a list of an earlier iteration")
        if path not in known.rebuilt and path not in known.refuted and path[0] != "contents":
            values = [q.value for q in alternatives(a) if not alike(q.value, b)]
            if any(is_longer(b, p, q) for q in values):
                known.rebuilt[path], known.free = None, True
                raise Retrace
        goes_on = under(a, self.body_trace.goes_on)
        if goes_on is not a and kind_of(b) is int and path not in known.numbers:
            return self.left_at_end(name, b, p, a, goes_on, path)
        return self.settle(name, b, p, a, path)

    def left_at_end(
        self, name: str, b: object, p: object, a: RuntimeScalar, goes_on: object, path: Path
    ) -> RuntimeScalar:
        """An int that is `goes_on` for the next iteration, another one after a `break`."""
        try:
            self.settle(name, b, p, goes_on, path)
        except TypeMismatch:
            self.learn_number(path, int, a.data)
            raise Retrace from None
        with self.trace.outside():
            init = value_in(self.trace, b, I64)
        inner = self.trace.read_value(a.value)
        out = self.add_carry(self.trace.new_value(init.type), init, inner, name)
        return self.outside_number(out, a, b)

    def outside_number(self, value: Value, *sources: object) -> RuntimeScalar:
        """The runtime scalar of a value after the loop, where it no longer follows from the loop's
        index."""
        n = make(self.trace, value, *sources)
        loops = n.loops - {self.body_trace.loop}
        out = RuntimeScalar(value, self.trace, loops, n.data or bool(self.body_trace.count))
        out.mixed = any(map(is_mixed, sources))
        return out

    def lengthened(self, b: object, target: ExtendedList) -> ExtendedList:
        """The list after the loop, which is another one than before it if the loop runs."""
        length: Dim | None = self.body_trace.length if self.body_trace.certain else None
        if target.kind is list and not isinstance(length, int):
            stop = doubtful(self.trace, "Each iteration of a loop makes a longer one.")
            before = () if b is UNDEF else (b,)
            self.doubtful.append(AmbiguousContainer(target, before, stop, length))
        return target

    def settle_each(self, rows: Iterable[Row], learns: bool = False) -> list[object]:
        """The values of several places after the loop. One retrace is for all that they have to
        learn; an error of a place counts only if there is nothing to learn, because the next trace
        may not have it. `learns`: the loop is traced again anyway."""
        out, errors = list[Any](), list[BaseException]()
        for row in rows:
            try:
                out.append(self.settled_place(*row))
            except Retrace:
                learns = True
            except (TypeMismatch, NeedsConcrete) as e:
                errors.append(e)
        if learns:
            sure = [q for q in errors if isinstance(q, TypeMismatch) and q.sure]
            self.body_trace.sure = self.body_trace.sure or next(iter(sure), None)
            raise Retrace
        if errors:
            raise errors[0]
        return out

    def settled_parts(
        self,
        name: str,
        b: object,
        p: object,
        a: object,
        path: tuple[object, ...],
        learns: bool = False,
    ) -> list[object]:
        """The elements of a tuple or container after the loop; without `b`, of the last
        iteration."""
        after = elements(a) or {}
        if b is UNDEF:
            return self.settle_each((name, UNDEF, UNDEF, q, (*path, k)) for k, q in after.items())
        replaced = next((q for q in self.body_trace.replaced if q.copy is p), None)
        begun = parts(p) if replaced is None else replaced.parts
        rows = zip(after.items(), parts(b), begun)
        each = ((name, x, y, q, (*path, k)) for (k, q), x, y in rows)
        return self.settle_each(each, learns)

    def container(self, name: str, b: Any, p: object, a: object, path: tuple[object, ...]) -> Any:
        """A container as a variable, `b` before the body and `a` after it: one that every iteration
        makes anew is carried by its elements."""
        if a is b:
            return b
        if b is MISSING:
            raise TypeMismatch(name, describe(b), describe(a))
        new, home, known = b is UNDEF, self.trace.home(a), self.body_trace.known
        if home is self.frame and path not in known.fresh and self.is_changed(b):
            known.fresh.add(path)
            for learned in (known.queues, known.buffers):
                learned.pop(id(b), None)
            b.split(self.trace)
            raise Retrace
        if isinstance(b, TraceList) and b.segmented:
            b.split(self.trace)
            if not b.segmented:
                raise Retrace
        if isinstance(a, TraceList) and a.segmented:
            a.split(self.trace)
        if isinstance(a, TraceList) and a.segmented:
            few = is_short(self.body_trace.loop)
            raise NeedsConcrete(f"{name} is a list that an inner loop fills", few=few)
        if not new and not (is_container(b) and alike(a, b)):
            error = TypeMismatch(name, describe(b), describe(a), fills=self.filling(None, b, a))
            error.sure |= types_change(b, a)
            raise error
        if not new and home is not self.frame and self.is_handed_on(a, b):
            for q, other in self.begins.items():
                if other is a or q == path:
                    carry_elements(self.body_trace, q, other)
            raise Retrace
        if new and home is not self.frame and (home is None or home in self.trace.frames):
            return self.found(name, a)
        if home is not self.frame:
            raise NeedsConcrete(f"{name} becomes another container", (), peel=True)
        if not new and path not in self.body_trace.known.fresh:
            learn_fresh(self.body_trace, b, a, path)
            if path in known.rewritten:
                raise Retrace
            self.settled_parts(name, b, p, a, path, learns=True)
        parts = self.settled_parts(name, b, p, a, path)
        old = self.exchanged(path)
        if old is None:
            return self.made_anew(a, b, parts)
        old.after = rebuilt(self.trace, a, parts, self.outer)
        return old.first

    def is_handed_on(self, a: object, b: object) -> bool:
        """Whether it is what another variable holds before the loop (`a, b = b, a`). Containers of
        the caller are not copied."""
        held = any(a is q for path, q in self.begins.items() if len(path) == 1)
        known = self.trace.objects.doubts
        own = all(isinstance(q, TraceList) or self.is_own(q) for q in (a, b))
        return held and own and id(a) not in known

    def is_own(self, x: object) -> bool:
        """A dict or object that the function has made."""
        return fields_of(x) is not None and self.trace.home(x) in self.trace.frames

    def exchanged(self, path: tuple[object, ...]) -> ReboundContainer | None:
        """The list that is in a place after a known number of iterations, which exchange it with
        those in other places."""
        body_trace = self.body_trace
        lists, step = {q.path: q for q in body_trace.replaced}, dict[Any, Any]()
        at = path
        while at not in step:
            after = self.ends.get(at)
            step[at] = next((q.path for q in lists.values() if q.copy is after), None)
            if step[at] is None:
                return None
            at = step[at]
        length = body_trace.length
        if at != path or len(step) == 1 or not body_trace.certain or not isinstance(length, int):
            return None
        for _ in range(length % len(step)):
            at = step[at]
        return lists[at]

    def is_changed(self, b: object) -> bool:
        """Whether the body has changed a list from outside in place."""
        appended = self.frame.appends.get(id(b), (b, []))[1]
        return isinstance(b, TraceList) and bool(appended or id(b) in self.frame.queues)

    def check_replaced(self) -> None:
        """A list that the body changes and replaces has one place, which gets another list. Lists
        that change places are changed if one of them is."""
        every = self.body_trace.replaced
        pairs = [(q, p) for q in every for p in every if p is not q]
        handed_on = {
            q for pair in pairs if self.value_at(pair[0].path) is pair[1].copy for q in pair
        }
        if handed_on and any(q.changed for q in every):
            for q in every:
                if q.is_list:
                    q.changed = True
                elif q.own:
                    note_change(self.body_trace, q)
            if any(q.seen or q in handed_on and not (q.is_list or q.own) for q in every):
                raise every[0].stop()
        check_chosen(self)
        known = {id(q.copy) for q in every}
        for q in every:
            value = self.value_at(q.path)
            other = id(value) in self.body_trace.copies and id(value) not in known
            kept = id(value) in self.shared or id(value) in self.listed
            if q.changed and (value is q.copy or other or kept):
                raise q.stop()

    def found(self, name: str, a: object) -> Any:
        """A container from outside of the loop that the body gives a name; it cannot be read after
        a loop that may not run at all."""
        if not self.body_trace.certain:
            error = set_in_loop(name)
            return unreadable(error, Alternative(a, self.body_trace.enters))
        self.needs_iteration.append(f"{name} after the loop")
        return a

    def learn_number(self, path: tuple[object, ...], kind: type, data: bool) -> None:
        """Learn that a place holds a number of the program; so do those of its kind in a container
        that each iteration makes anew, because they may be handed on."""
        known = self.body_trace.known
        known.numbers[path] = (kind, data)
        inner = elements(self.value_at(path[:-1])) if path[:-1] in known.fresh else None
        for k, q in (inner or {}).items():
            if kind_of(q) is kind:
                known.numbers.setdefault((*path[:-1], k), (kind, data))

    def made_anew(self, a: object, b: object, new: list[object]) -> object:
        """The container of the last iteration: one for all places that hold `a`."""
        certain, before = self.body_trace.certain, b is not UNDEF
        if id(a) in self.containers:
            _, other, made = self.containers[id(a)]
            self.shared.add(id(a))
            if other is not b and not certain:
                raise NeedsConcrete("two variables hold one container only if the loop runs")
            if other is not b:
                self.needs_iteration.append("two variables that hold one container")
            return made
        made = rebuilt(self.trace, a, new, self.outer)
        self.containers[id(a)] = (a, b, made)
        if before or id(a) in self.body_trace.copies or id(a) in self.trace.objects.doubts:
            self.note_doubt(made, a, (b,) if before else (), certain)
        if (loop := self.loop_of_lists(a)) is not None:
            noted = [q.among for q in self.doubtful if q.obj is made]
            among = noted[-1] if noted else (b,) if before else ()
            self.doubtful.append(element_doubt(self.trace, made, loop, among))
        return made

    def loop_of_lists(self, a: object) -> TracedLoop | None:
        """The loop that has put a container into a list, if one has."""
        if id(a) in self.listed:
            return self.body_trace.loop
        doubt = self.trace.objects.doubts.get(id(a))
        return next((q for q in doubt.among if isinstance(q, TracedLoop)), None) if doubt else None

    def is_new(self, x: object) -> bool:
        """Whether this iteration has made a container."""
        return self.trace.home(x) is self.frame and id(x) not in self.trace.objects.doubts

    def note_doubt(
        self, made: object, a: object, before: tuple[object, ...], certain: bool
    ) -> None:
        """`made` is the container from before the loop if too few iterations run, or none of them
        has made one; it is in doubt as `a` is."""
        doubt = self.trace.objects.doubts.get(id(a))
        length: Dim | None = self.body_trace.length if certain else None
        if id(a) in self.body_trace.copies:
            _, first, path = self.body_trace.copies[id(a)]
            before = (*before, first)
            length = length - 1 if length is not None and self.is_fresh(path) else None
            if isinstance(length, int) and length < 1:
                raise NeedsConcrete("a container of an earlier iteration is kept")
        reason = "Some iterations of a loop make a new one, depending on data."
        stop = doubtful(self.trace, reason) if before or doubt is None else doubt.stop
        if doubt is not None:
            length = None
            copies = {id(copy): x for copy, x, _ in self.body_trace.copies.values()}
            before = (*before, *(copies.get(id(q), q) for q in doubt.among))
        if isinstance(doubt, ChosenContainer):
            kept = [*before[: -len(doubt.among)], *(copies.get(id(q), q) for q in doubt.kept)]
            able = doubt.able and not are_held(self, doubt.kept)
            self.alternatives.append((made, before, kept, stop, able))
        elif not isinstance(length, int):
            self.doubtful.append(AmbiguousContainer(made, before, stop, length))

    def is_fresh(self, path: tuple[object, ...]) -> bool:
        """Whether each iteration makes the container of a place, and nothing but that."""
        value = self.value_at(path)
        other = id(value) in self.body_trace.copies or id(value) in self.trace.objects.doubts
        return self.trace.home(value) is self.frame and not other

    def value_at(self, path: tuple[object, ...]) -> object:
        """Return the object in a place after the body."""
        k = next(k for k in range(len(path), 0, -1) if path[:k] in self.ends)
        value = self.ends[path[:k]]
        for key in path[k:]:
            value = (elements(value) or {}).get(key)
        return value

    def filling(self, place: object, b: Any, a: Any) -> int:
        """Return the number of iterations until a deque of limited length, or a list that is cut at
        its end, is as long as it gets, or the slots of a list are not empty any more; or 0."""
        owner = getattr(place, "obj", None)
        if b is None and isinstance(owner, list):
            places = self.body_trace.known.places.items()
            return sum(q.obj is owner and self.begins.get(k) is None for k, q in places)
        return filled_by(place, b, a)


def displayed(path: tuple[object, ...]) -> str:
    """The user's name for a container."""
    name = name_of(path)
    return "a container" if name == "state" else f"the container '{name}'"


def name_of(path: tuple[object, ...]) -> str:
    """A name for the values of a place."""
    if path[0] in ("attr", "item"):
        return str(path[2]) if isinstance(path[2], str) else "state"
    return path[0] if isinstance(path[0], str) and path[0].isidentifier() else "state"


__all__ = ["ContainerPorts", "carry_elements", "learn_fresh", "name_of", "note_copies"]
