"""Dynamic numbers: Python numbers that change between calls, like a counter or a step size.

The first translation takes a number for a constant. When a call comes with another value in the
same place, or for the same argument, the next translation has it as an input. A function that needs
the number itself (as a shape, a list index) is translated for each value.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from dy2st.state.ownership import note_attr, note_contents
from dy2st.state.signature import Signature
from dy2st.trace.scalar import DTYPES, RuntimeScalar, is_runtime_scalar
from dy2st.trace.trace import Trace
from dy2st.trace.undo import CALL, AttributeLocation, ItemLocation, Location, kind_of
from ir import Loc, Type

KINDS = (int, float)


class DynamicNumbers:
    """The dynamic numbers that calls of a function have shown: `places` of attributes and items by
    key, and `leaves`, numbers of arguments by position. Those in `pinned` are constants for
    good. `guarded` are places of the user at which programs are made for what follows from them,
    None for all places; `needed` those at which a trace could have done with that."""

    def __init__(self) -> None:
        self.places: set[Any] = set()
        self.leaves: set[int] = set()
        self.pinned: set[object] = set()
        self.guarded: set[Loc | None] = set()
        self.needed: set[Loc | None] = set()

    def copy(self) -> DynamicNumbers:
        """As they are now."""
        new = DynamicNumbers()
        for name, value in vars(self).items():
            setattr(new, name, set(value))
        return new

    def __bool__(self) -> bool:
        return bool(self.places or self.leaves)

    def key(
        self, signature: Signature, general: tuple[object, ...] | None = None
    ) -> tuple[object, ...]:
        """The key of the cache, or the `general` one, with the types of moving arguments instead of
        their values."""
        first, *keys = general or signature.key
        for k in tuple(self.leaves):  # another thread may be learning
            if k < len(keys) and type(signature.leaves[k]) in KINDS:
                keys[k] = type(signature.leaves[k])
        return (first, *keys)

    def learn(self, entries: Iterable[Any], keys: Iterable[Any], signature: Signature) -> None:
        """Compare this call with what the translations so far were made for."""
        with CALL.of(signature.leaves):
            for place, value in (q for entry in entries for q in entry.numbers.values()):
                self.places.update(moved(place.key, value, place.get()))
        for key in keys:
            self.leaves.update(self.moved(key, signature))
        self.places -= self.pinned
        self.leaves -= self.pinned

    @staticmethod
    def moved(key: tuple[object, ...], signature: Signature) -> list[int]:
        """The numbers that alone tell `key` from that of this call."""
        leaves = signature.leaves
        for mine in (signature.key, signature.general):
            if len(key) != len(mine) or key[0] != mine[0]:
                return []
            pairs = enumerate(zip(key[1:], mine[1:], leaves))
            other = [k for k, (a, b, q) in pairs if a != b and a is not type(q)]
            if all(is_number(key[k + 1], type(leaves[k])) for k in other):
                return other
        return []

    def pin(self) -> None:
        """The last translation could not do with inputs: all are constants from now on."""
        self.pinned |= self.places | self.leaves
        for found in (self.places, self.leaves, self.guarded, self.needed):
            found.clear()  # type: ignore[attr-defined]

    def guard_more(self, everywhere: bool) -> bool:
        """After a trace that failed: guard what it could have done with, or all that follows from
        numbers. Whether there is anything more."""
        more = self.needed - self.guarded or ({None} - self.guarded if everywhere else set())
        self.guarded |= more
        return bool(more)


def moved(key: tuple[object, ...], before: object, now: object) -> Iterator[tuple[object, ...]]:
    """The keys of the numbers that differ, and of the tuples that they are in."""
    if type(now) is not type(before) or repr(now) == repr(before):
        return
    yield key
    if isinstance(before, tuple) and isinstance(now, tuple):
        for k, (a, b) in enumerate(zip(before, now)):
            yield from moved(("within", key, "item", k), a, b)


def is_number(part: object, kind: type) -> bool:
    """Whether a part of a key is that of a number of this kind."""
    return kind in KINDS and isinstance(part, tuple) and part[0] is kind


def number_of(trace: Trace, place: Location, value: object) -> object:
    """The number at a place: itself, or the input that it is when it moves."""
    if type(value) not in KINDS or not trace.dynamic or place.key in trace.objects.stored:
        return value
    found = place if trace.guards is None else trace.guards.located(place)
    if found.key not in trace.dynamic:
        return value
    if trace.guards is not None:
        trace.guards.terms.read(found.key)
    return trace.number_input(found.key, value, str(place), found)


def hold_elements(trace: Trace, obj: object) -> None:
    """The numbers in a container that move are runtime scalars while the trace runs, because code
    reads them without asking."""
    kind = kind_of(obj)
    moving = any(key[0] in ("item", "within") for key in trace.dynamic)
    if kind is None or not kind.indexed or not moving:
        return
    contents: Any = kind.contents(obj)
    for index, value in contents if kind.mapping else enumerate(contents):
        place = ItemLocation(obj, index)
        number = number_of(trace, place, value)
        if number is not value:
            trace.guards.restores.append(functools.partial(place.put, value))
            place.put(number)


def hold_tuples(trace: Trace, obj: object) -> None:
    """The same for the tuples in a container, whose elements have been noted."""
    kind = kind_of(obj)
    if kind is None or not kind.indexed or not trace.dynamic:
        return
    contents: Any = kind.contents(obj)
    for index, value in contents if kind.mapping else enumerate(contents):
        made = held(trace, value)
        if made is not value:
            place = ItemLocation(obj, index)
            trace.guards.restores.append(functools.partial(place.put, value))
            place.put(made)


def held(trace: Trace, value: Any, kept: Collection[object] = ()) -> Any:
    """A tuple with runtime scalars in place of the numbers that move. Their guards go, because
    an input needs none: but for the `kept` ones, of what other code reads."""
    if not trace.dynamic or not is_tuple(value):
        return value
    pairs = [(q, held(trace, q, kept)) for q in value]
    places = [ItemLocation(value, i) for i in range(len(value))]
    parts = [number_of(trace, place, new) for place, (_, new) in zip(places, pairs)]
    if all(new is old for new, old in zip(parts, value)):
        return value
    for place, new, old in zip(places, parts, value):
        key = trace.guards.located(place).key
        if is_runtime_scalar(new) and new is not old and key not in kept:
            trace.guards.terms.pop(key, None)
    trace.guards.terms.pop(("contents", id(value)), None)  # other code that reads it notes it again
    made = type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    trace.guards.stand_for(made, value)
    return made


def is_tuple(x: object) -> bool:
    return type(x) is tuple or isinstance(x, tuple) and hasattr(x, "_fields")


def guarded(trace: Trace, value: Any) -> set[object]:
    """The guards of the elements of a tuple that other code has read."""
    if not trace.dynamic or not is_tuple(value):
        return set()
    keys = {trace.guards.located(ItemLocation(value, i)).key for i in range(len(value))}
    found = {q for q in keys if dict.__contains__(trace.guards.terms, q)}
    return found.union(*(guarded(trace, q) for q in value))


def keep_dynamic(trace: Trace, place: Location) -> object:
    """Return the value of a place into which a branch or a loop may not store: the program depends
    on it as if it were read."""
    value = place.get()
    moved = number_of(trace, place, value)
    if trace.guards is None or moved is not value or place.key in trace.objects.stored:
        return moved
    if isinstance(place, AttributeLocation):
        kept = guarded(trace, value)
        note_attr(trace, place.obj, place.name, value)
        return held(trace, value, kept)
    if isinstance(place, ItemLocation):
        note_contents(trace, place.obj)
    return value


def hold_dynamic(trace: Trace, place: Location) -> bool:
    """Whether a global or a variable of an enclosing function moves: it is a runtime scalar while
    the trace runs, because code reads it without asking."""
    if place.key not in trace.dynamic or place.key in trace.objects.stored:
        return False
    n = number_of(trace, place, place.get())
    if type(n) is not RuntimeScalar:
        return False
    trace.guards.meet(place.obj)
    trace.guards.terms.late.add(place.key)
    trace.guards.restores.append(place.snapshot())  # not in the log: a branch that is undone stays
    place.put(n)
    return True


def leaves_of(
    trace: Trace, leaves: Sequence[object], names: Sequence[str], dynamic: set[int]
) -> None:
    """Arguments that move become runtime scalars, in place of their values."""
    for k, value in enumerate(leaves):
        if k in dynamic and type(value) in KINDS:
            leaves[k] = trace.number_input(("leaf", k), value, names[k], None)  # type: ignore[index]


def number_type(kind: type) -> Type:
    return Type(DTYPES[kind])


__all__ = [
    "DynamicNumbers",
    "guarded",
    "held",
    "hold_elements",
    "hold_tuples",
    "RuntimeScalar",
    "keep_dynamic",
    "leaves_of",
    "number_of",
    "number_type",
]
