"""Guards of containers: an expression for their elements, whatever methods a subclass has."""

from __future__ import annotations

import collections
import queue
import types
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from dy2st.state.containers.constants import is_constant, is_exact, is_open
from dy2st.state.containers.guard_expressions import GuardExpressions
from dy2st.trace.signals import RetraceForAlias
from dy2st.trace.undo import (
    MISSING,
    ArgumentLocation,
    AttributeLocation,
    ContainerKind,
    ItemLocation,
    Location,
    LookedUpLocation,
    kind_of,
)

#: classes of the standard library, written in Python, around a container
WRAPPERS = {
    collections.UserList: "data",
    collections.UserDict: "data",
    collections.UserString: "data",
    collections.ChainMap: "maps",
    queue.Queue: "queue",
}
FIXED = (tuple, frozenset, types.MappingProxyType)
#: types of containers for which a call may find another one of the same type
LOCATED = frozenset((
    list, dict, set, collections.deque, collections.OrderedDict, collections.Counter,
    collections.defaultdict,
))  # fmt: skip
#: where the classes of stand-ins are
HOMES = tuple(f"dy2st.{q}." for q in ("trace", "state", "capture", "branches", "loops"))
#: types of constants that become inputs, or have some, if they vary from call to call
MAY_MOVE = (int, float, tuple)
#: constants in a container of which each may turn out to vary
MOST_NUMBERS = 64


def is_located(x: object) -> bool:
    """Whether a call may find another container of this type in the place of `x`."""
    return type(x) in LOCATED or isinstance(x, tuple)


def apart(containers: Collection[object], others: Collection[int]) -> bool:
    """Whether no argument's container is one that the trace met elsewhere, by `id`."""
    return not any(id(q) in others for q in containers)


# ---------------------------------------------------------------- stand-ins that were left
def put_attr(obj: object, name: str, value: object) -> None:
    """Another thread may have taken the attribute away."""
    obj.__dict__.pop(name, None)
    if value is not MISSING:
        obj.__dict__[name] = value


def changed(now: tuple[object, ...], old: tuple[object, ...], whole: bool) -> bool:
    """Whether other elements are in a container; without `whole`, whether they are stand-ins. Not
    where the old ones have some: the trace had stored them, and its stores are undone."""
    if any(map(is_stand_in, flat(old))):
        return False
    known = {id(q) for q in flat(old)}
    if whole and [id(q) for q in flat(now)] != [id(q) for q in flat(old)]:
        return True
    return any(id(q) not in known and is_stand_in(q) for q in flat(now))


def flat(contents: tuple[object, ...]) -> list[Any]:
    """Elements, and the keys and values of items."""
    return [q for x in contents for q in (x if type(x) is tuple else (x,))]


def is_stand_in(x: object, depth: int = 3) -> bool:
    """Whether an object of a trace stands for, or is in, a value of the user."""
    if type(x) in (tuple, list, dict) and depth:
        parts: Any = x.values() if isinstance(x, dict) else x
        return any(is_stand_in(q, depth - 1) for q in parts)
    return str(type(x).__module__).startswith(HOMES)  # a type of Cython has a descriptor there


class ContainerGuards:
    """The part of `Guards` that knows containers. `tails`: lists that are appended to without being
    read; `on_read` is told when one is, `before_read` may stop it. `on_object` is told of every
    object that the trace meets.
    `met`: attributes and elements of objects when the trace met them. `given`: expressions for
    lists and dicts of the arguments, by `id`; the trace has copies of all but the `kept` ones.
    `read`: containers that are appended to and then read in a loop or branch, by `id`.
    `records`: objects and containers that a call finds in its arguments, or in such objects.
    `containers`: lists and dicts from elsewhere. `homes`: where calls look for a container, by
    `id`. `hold` makes inputs of the numbers in a container that vary, for the time of the trace,
    and `hold_tuples` of those in its tuples; `restores` puts them back. `moving`: the keys of
    places whose number varies, or whose tuple: its elements are checked one by one."""

    terms: GuardExpressions
    ids: dict[int, str]
    names: dict[str, object]
    held: list[object]
    found: dict[int, str]
    numbers: dict[tuple[object, ...], tuple[Location, object]]
    ref: Callable[[object], str]
    ref_constant: Callable[[object], str]
    name: Callable[[object], str]
    note: Callable[..., None]
    expect: Callable[..., None]
    attr: Callable[..., None]

    def __init__(self) -> None:
        self.tails: dict[int, tuple[object, object, object]] = {}
        self.before_read: Callable[[object], None] = lambda obj: None
        self.on_read: Callable[[object], None] = lambda obj: None
        self.on_object: Callable[[object], None] = lambda obj: None
        self.met: dict[int, tuple[Any, Any, Any]] = {}
        self.given: dict[int, str] = {}
        self.kept: Collection[int] = ()
        self.read: Collection[int] = ()
        self.records: dict[int, object] = {}
        self.containers: dict[int, object] = {}
        self.homes: dict[int, Location] = {}
        self.hold: Callable[[object], None] = lambda obj: None
        self.hold_tuples: Callable[[object], None] = lambda obj: None
        self.moving: Collection[tuple[object, ...]] = ()
        self.restores: list[Callable[[], None]] = []

    # ------------------------------------------------------------ which container
    def declare(self, leaves: Any, kept: Collection[int]) -> None:
        """The lists and dicts of the arguments, and the objects among them."""
        found = enumerate(leaves.containers())
        self.given = {id(q): f"_L.containers()[{k}]" for k, q in found}
        self.kept = kept
        for k, q in enumerate(leaves):
            if is_open(q) and id(q) not in self.ids:
                self.open(q, f"_L[{k}]", ArgumentLocation(k))
            if kind_of(q) is not None:
                self.contents(q)

    def open(self, obj: object, name: str, home: Location) -> None:
        """A call looks this object up, by an expression and at a place."""
        self.ids[id(obj)], self.homes[id(obj)], self.records[id(obj)] = name, home, obj
        self.held.append(obj)
        fields = getattr(obj, "__dict__", None)
        if type(fields) is dict:
            self.ids[id(fields)] = f"{name}.__dict__"
            self.held.append(fields)
        self.on_object(obj)

    def is_inner(self, value: object, place: Any) -> bool:
        """Whether it is an object in one that a call looks up."""
        inner = place is not None and id(place.obj) in self.records
        return inner and is_open(value) and id(value) not in self.given

    def pin(self, x: object) -> None:
        """The object is looked up by its identity: the program is for this one."""
        for q in x if isinstance(x, tuple) else (x,):
            if id(q) in self.records:
                self.terms["pinned", id(q)] = f"{self.ids[id(q)]} is {self.ref_constant(q)}"
                self.note(("pinned", id(q)), self.name(q), self.ids[id(q)], q)

    def single_out(self) -> None:
        """Guard that objects that a call looks up are distinct from each other and from all objects
        that the trace met."""
        kinds: dict[type, list[str]] = {}
        for q in self.records.values():
            kinds.setdefault(type(q), []).append(self.ids[id(q)])
        for kind, names in kinds.items():
            known = (q for n, q in self.names.items() if self.ids.get(id(q)) == n)
            others = frozenset(
                id(q) for q in known if type(q) is kind and id(q) not in self.records
            )
            ids = f"{{{', '.join(f'id({n})' for n in names)}}}"
            tests = [f"len({ids}) == {len(names)}"] if len(names) > 1 else []
            tests += [f"{self.ref_constant(others)}.isdisjoint({ids})"] if others else []
            if tests:
                self.terms["single", kind] = " and ".join(tests)
                self.note(("single", kind), f"two {kind.__name__}s are one object")

    def container_test(self, expression: str, value: object, place: Location | None) -> str:
        """The container that is at a place now: that of the arguments which it is, or none of
        them."""
        given = self.given.get(id(value))
        if given is None and place is not None and id(value) not in self.ids:
            return self.locate(expression, value, place)
        if given is None:
            if type(value) in (list, dict) and id(value) not in self.homes:
                self.containers[id(value)] = value
            return f"{expression} is {self.ref(value)}"
        if id(value) not in self.kept:
            raise RetraceForAlias(value)
        return f"{expression} is {given}"

    # ------------------------------------------------------------ where containers are
    def locate(self, expression: str, value: Any, place: Location) -> str:
        """The check of a place that holds a container: one of this type. Its elements are checked
        and looked up in the container that a call finds there."""
        name, home = f"p{len(self.ids)}", self.located(place)
        if id(place.obj) in self.records:
            self.open(value, name, home)
        self.ids[id(value)], self.homes[id(value)] = name, home
        self.held.append(value)
        test = f"type({name} := {expression}) is {self.ref(type(value))}"
        bounded = isinstance(value, collections.deque)
        return f"{test} and {name}.maxlen == {value.maxlen!r}" if bounded else test

    def located(self, place: Any) -> Any:
        """A location as a call finds it."""
        home = self.homes.get(id(place.obj))
        if home is None:
            return place
        expression = self.ref(place.obj)
        if isinstance(place, ItemLocation):
            expression = self.element(place.obj, place.index)
        elif isinstance(place, AttributeLocation):
            expression = f"{expression}.{place.name}"
        return LookedUpLocation(home, replace(place, obj=None), expression, str(place))

    def stand_for(self, new: tuple[object, ...], old: tuple[object, ...]) -> None:
        """A tuple is read in place of another one, whose guards are its own."""
        self.held.append(new)
        if id(old) in self.homes:
            self.ids[id(new)], self.homes[id(new)] = self.ids[id(old)], self.homes[id(old)]
        self.terms["contents", id(new)] = "True"

    def distinct(self, changed: Collection[int]) -> None:
        """Containers of one type of which the function changes one, by `id`, are different objects,
        and none of them is an argument."""
        every = [obj for obj, _, contents in self.met.values() if contents is not None]
        located = {type(q) for q in every if id(q) in self.homes}
        for kind in located & {type(q) for q in every if id(q) in changed}:
            names = [self.ref(obj) for obj in every if type(obj) is kind]
            if len(names) > 1:
                test = f"len({{{', '.join(f'id({n})' for n in names)}}}) == {len(names)}"
                self.terms["distinct", kind] = test
                self.note(("distinct", kind), f"two {kind.__name__}s are one object")
        found = [self.ids[id(q)] for q in every if type(q) in (list, dict) and id(q) in self.homes]
        if self.given and found:
            ids = "".join(f"id({name}), " for name in found)
            self.terms["apart", "located"] = f"apart(_L.containers(), ({ids}))"

    def separate(self, a: object, b: object) -> None:
        """Two objects are not one, of which calls look one up."""
        known = id(a) in self.ids and id(b) in self.ids
        if known and not self.homes.keys().isdisjoint((id(a), id(b))):
            key = ("separate", id(a), id(b))
            self.terms[key] = f"{self.ids[id(a)]} is not {self.ids[id(b)]}"
            self.note(key, f"{self.name(a)} and {self.name(b)} are one object")

    def different(self, a: object, b: object) -> None:
        """Two real tensors are not one; None for a tensor that the program makes."""
        one, two = (self.found.get(id(q)) for q in (a, b))
        if a is not None and b is not None and one is not None and two is not None:
            key = ("different", id(a), id(b))
            self.terms[key] = f"{one} is not {two}"
            self.note(key, f"{self.name(a)} and {self.name(b)} are one tensor")

    # ------------------------------------------------------------ elements
    def item(self, obj: object, index: object, value: object, whole: bool = True) -> None:
        place = ItemLocation(obj, index)
        self.expect(self.located(place).key, self.element(obj, index), value, place, whole)

    def element(self, obj: object, index: object) -> str:
        """An expression for an element, or for the value of a key, MISSING without one."""
        o, base = self.ref(obj), self.base(obj)
        i = repr(index) if type(index) in (int, str) else self.ref_constant(index)
        if isinstance(obj, types.MappingProxyType):
            return f"{o}.get({i}, MISSING)"
        if isinstance(obj, dict) and (base is not None or index not in obj):
            return f"DICT.get({o}, {i}, MISSING)"
        return f"{o}[{i}]" if base is None else f"{base}.__getitem__({o}, {i})"

    def base(self, obj: object) -> str | None:
        """The name of the container's C type, if the class of the object is another one: its
        methods may be the user's."""
        kind = kind_of(obj)
        return None if kind is None or kind.base is type(obj) else self.ref(kind.base)

    def contents(self, obj: object) -> None:
        """A container from outside: any of its elements may be read, by code that is not seen."""
        inner = next((n for k, n in WRAPPERS.items() if isinstance(obj, k)), None)
        if inner is not None:
            return self.attr(obj, inner, getattr(obj, inner))
        if kind_of(obj) is None and not isinstance(obj, FIXED):
            return None
        if ("contents", id(obj)) in self.terms or id(obj) in self.given:
            return None
        if id(obj) in self.tails:
            self.before_read(obj)
        self.terms["contents", id(obj)] = "True"
        self.meet(obj)
        with self.terms.whole(("contents", id(obj))):
            self.hold(obj)
            self.elements(obj)
            self.hold_tuples(obj)
        if id(obj) in self.tails:
            self.on_read(obj)
        return None

    def elements(self, obj: Any) -> None:
        kind = kind_of(obj)
        mapping = isinstance(obj, (dict, types.MappingProxyType))
        values = kind.values(obj) if kind is not None else tuple(obj.values() if mapping else obj)
        whole = isinstance(obj, (set, frozenset)) or all(map(is_constant, values))
        whole = whole and not self.has_moving_tuple(obj, kind)
        is_apart = id(obj) in self.homes
        for q in obj if isinstance(obj, (set, frozenset)) or mapping else ():
            self.on_object(q)
        if not values:
            self.expect(("len", id(obj)), self.now(obj, "{}.__len__({})", "len({})"), 0)
        elif whole and not isinstance(obj, (tuple, frozenset)):
            self.note_numbers(obj, kind)
            self.terms["contents", id(obj)] = self.constants(obj, values)
            title = f"the elements of {self.name(obj)}"
            self.note(("contents", id(obj)), title, self.ref(obj), obj)
        elif mapping:
            keys = tuple(obj) if kind is None else tuple(kind.base.__iter__(obj))
            now = self.now(obj, "{}.__iter__({})", "{}")
            self.terms["keys", id(obj)] = self.same_parts(obj, [(now, keys)])
            title = f"the keys of {self.name(obj)}"
            self.note(("keys", id(obj)), title, f"tuple({now})", keys)
            for k, v in zip(keys, values):
                self.item(obj, k, v)
        elif not whole or isinstance(obj, tuple) and (type(obj) is not tuple or is_apart):
            size = self.now(obj, "{}.__len__({})", "len({})")
            self.expect(("len", id(obj)), size, len(values))
            for i, v in enumerate(values):
                self.item(obj, i, v)

    def note_numbers(self, obj: object, kind: ContainerKind | None) -> None:
        """The numbers among constants, which may be inputs when they turn out to vary."""
        if kind is None or not kind.indexed or len(self.met[id(obj)][2]) > MOST_NUMBERS:
            return
        contents = kind.contents(obj)
        for index, value in contents if kind.mapping else enumerate(contents):
            if type(value) in MAY_MOVE:
                place = self.located(ItemLocation(obj, index))
                self.numbers[place.key] = place, value

    def has_moving_tuple(self, obj: object, kind: ContainerKind | None) -> bool:
        if kind is None or not kind.indexed or not self.moving:
            return False
        contents = kind.contents(obj)
        items = contents if kind.mapping else enumerate(contents)
        return any(self.is_taken_apart(v, ItemLocation(obj, k)) for k, v in items)

    def is_taken_apart(self, value: object, place: Location | None) -> bool:
        """Whether it is a tuple of constants, in a place where they vary."""
        if type(value) is not tuple or place is None or not self.moving:
            return False
        elsewhere = id(value) in self.ids and self.homes.get(id(value)) != self.located(place)
        return self.located(place).key in self.moving and not elsewhere

    def now(self, obj: object, text: str, plain: str = "tuple({})") -> str:
        """An expression: `plain` of the container, or `text` of its C type and the container."""
        base = self.base(obj)
        return plain.format(self.ref(obj)) if base is None else text.format(base, self.ref(obj))

    def constants(self, obj: object, values: tuple[object, ...]) -> str:
        """Equal elements of equal types, in the same order."""
        if isinstance(obj, set):
            size = self.now(obj, "{}.__len__({})", "len({})")
            now, known = self.now(obj, "{}.__iter__({})", "{}"), self.ref_constant(values)
            same = f"{size} == {len(values)} and all(map(IS, {now}, {known}))"
            equal = f"same_elements(tuple({now}), {self.ref_constant({q: q for q in values})})"
            return f"({same} or {equal})"
        if not isinstance(obj, (dict, types.MappingProxyType)):
            return self.same_parts(obj, [(self.now(obj, "{}.__iter__({})", "{}"), values)])
        kind = kind_of(obj)
        keys = tuple(obj) if kind is None else tuple(kind.base.__iter__(obj))
        keys_now = self.now(obj, "{}.__iter__({})", "{}")
        values_now = self.now(obj, "{}.values({})", "{}.values()")
        return self.same_parts(obj, [(keys_now, keys), (values_now, values)])

    def same_parts(self, obj: object, parts: list[tuple[str, tuple[object, ...]]]) -> str:
        """Pairs of an expression for what a container has and the values that it had. Most often
        they are the very same objects, which is quicker to see than that they are equal."""
        known = [(now, before, self.ref_constant(before)) for now, before in parts]
        size = self.now(obj, "{}.__len__({})", "len({})")
        same = [f"{size} == {len(parts[0][1])}", *(f"all(map(IS, {q}, {c}))" for q, _, c in known)]
        equal = [self.equal(*part) for part in known]
        return f"({' and '.join(same)} or {' and '.join(equal)})"

    def equal(self, now: str, before: tuple[object, ...], known: str) -> str:
        """Equal values of equal types, in the same order; keys that are no constants are compared
        by their own methods."""
        if is_constant(before) and not all(map(is_exact, before)):
            return f"same(tuple({now}), {known})"
        kinds = self.ref_constant(tuple(map(type, before)))
        return f"tuple(map(type, {now})) == {kinds} and tuple({now}) == {known}"

    # ------------------------------------------------------------ what is left in objects
    def meet(self, obj: object) -> None:
        """An object may be changed from here on: its attributes and elements are those of now."""
        if id(obj) not in self.met:
            fields, kind = getattr(obj, "__dict__", None), kind_of(obj)
            old = fields.copy() if type(fields) is dict and fields is not obj else {}
            self.met[id(obj)] = obj, old, None if kind is None else kind.contents(obj)

    def put_back(self, whole: bool) -> list[str]:
        """Take stand-ins out of the objects that the trace met, after its stores have been undone:
        code that is not converted has stored them. With `whole`, containers get all their
        elements back. Describes what was changed."""
        while self.restores:
            self.restores.pop()()
        found = []
        for obj, fields, contents in self.met.values():
            for name, value in list(obj.__dict__.items()) if fields else ():
                if value is not fields.get(name, MISSING) and is_stand_in(value):
                    put_attr(obj, name, fields.get(name, MISSING))
                    found.append(str(AttributeLocation(obj, name)))
            kind = kind_of(obj)
            if kind is not None and changed(kind.contents(obj), contents, whole):
                kind.fill(obj, contents)
                found.append(f"an element of a {type(obj).__name__}")
        return found
