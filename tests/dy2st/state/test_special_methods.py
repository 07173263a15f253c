"""Special methods of the user's classes: Python calls them from C, and a program follows them.

A function runs four times, eagerly and translated; between the calls either a global that the
methods read changes, or the attributes of the objects.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import heapq
import itertools
import json
import operator
import re
import threading

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

X = paddle.to_tensor([1.0, 2.0])
FACTOR = 2


class Vector:
    def __init__(self, a):
        self.a = a

    def __add__(self, other):
        return Vector(self.a * FACTOR + other.a)

    def __radd__(self, other):
        return Vector(self.a * FACTOR + other)

    def __iadd__(self, other):
        self.a = self.a + FACTOR * other
        return self

    def __neg__(self):
        return Vector(-self.a * FACTOR)

    def __abs__(self):
        return abs(self.a) * FACTOR

    def __round__(self, digits=None):
        return FACTOR

    def __divmod__(self, other):
        return FACTOR, other

    def __lt__(self, other):
        return self.a * FACTOR < other.a * FACTOR

    def __eq__(self, other):
        return self.a * FACTOR == other.a

    def __hash__(self):
        return hash(self.a * FACTOR)

    def __bool__(self):
        return self.a * FACTOR > 2

    def __float__(self):
        return float(self.a * FACTOR)

    def __contains__(self, other):
        return other == FACTOR

    def __iter__(self):
        return iter([self.a * FACTOR, FACTOR])

    def __reversed__(self):
        return iter([FACTOR])

    def __format__(self, spec):
        return f"V{FACTOR}{spec}"

    def __str__(self):
        return f"<{self.a}>"

    def __getattr__(self, name):
        if name == "extra":
            return FACTOR
        raise AttributeError(name)


class Below(Vector):
    def __radd__(self, other):
        return Vector(100 * FACTOR)


class Steps:
    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += abs(FACTOR) + 1
        if self.n > 9:
            raise StopIteration
        return self.n


@dataclasses.dataclass(order=True)
class Point:
    a: int
    b: float = 1.0


@functools.total_ordering
class Rank:
    def __init__(self, a):
        self.a = a

    def __lt__(self, other):
        return self.a * FACTOR < other.a * FACTOR

    def __eq__(self, other):
        return self.a == other.a


class State:
    def __init__(self):
        self.v, self.vs = Vector(1.0), [Vector(1), Vector(5)]
        self.point, self.points = Point(1), [Point(3), Point(1)]
        self.rank, self.ranks, self.items = Rank(1), [Rank(1), Rank(3)], [3, 1, 2]


def key(x):
    return x * FACTOR


def in_place(s):
    v = Vector(2)
    v += 3
    return v.a


def outside_in_place(s):
    s.v += 3
    return s.v.a


def sorted_in_place(s):
    items = list(s.items)
    items.sort(key=key)
    return items


def as_a_key(s):
    return {s.v: 1}.get(Vector(1.0), 0), len({s.v, Vector(1)})


USES = {
    "add": lambda s: (s.v + s.v).a,
    "radd": lambda s: (1 + s.v).a,
    "radd_of_a_subclass": lambda s: (s.v + Below(1)).a,
    "iadd": in_place,
    "iadd_outside": outside_in_place,
    "neg": lambda s: (-s.v).a,
    "abs": lambda s: abs(s.v),
    "round": lambda s: round(s.v),
    "divmod": lambda s: divmod(s.v, 2),
    "eq": lambda s: s.v == Vector(2.0),
    "ne": lambda s: s.v != Vector(2.0),
    "lt": lambda s: s.v < Vector(3.0),
    "gt": lambda s: s.v > Vector(3.0),
    "bool": lambda s: bool(s.v),
    "if": lambda s: 1 if s.v else 2,
    "not": lambda s: not s.v,
    "float": lambda s: float(s.v),
    "in": lambda s: (2 in s.v, Vector(1) in s.vs, -1 in s.v),
    "list": lambda s: list(s.v),
    "tuple": lambda s: tuple(s.v),
    "comprehension": lambda s: [q for q in s.v],
    "sum": lambda s: sum(s.v),
    "sorted": lambda s: sorted(s.v),
    "max": lambda s: max(s.v),
    "zip": lambda s: dict(zip(s.v, s.v)),
    "reversed": lambda s: list(reversed(s.v)),
    "format": lambda s: (f"{s.v}", f"{s.v:3}", format(s.v, "4"), str(s.v), f"{s.v:5}"),
    "getattr": lambda s: s.v.extra,
    "hash": lambda s: hash(s.v),
    "key": as_a_key,
    "count": lambda s: s.vs.count(Vector(5)),
    "largest": lambda s: max(s.vs).a,
    "least": lambda s: min(s.vs).a,
    "sorted_objects": lambda s: sorted(s.vs)[0].a,
    "sorted_by": lambda s: sorted(s.vs, key=lambda q: q.a * FACTOR)[0].a,
    "sort": sorted_in_place,
    "largest_by": lambda s: max(s.items, key=key),
    "nsmallest": lambda s: heapq.nsmallest(2, s.items, key=key),
    "cmp_to_key": lambda s: sorted(
        s.items, key=functools.cmp_to_key(lambda a, b: (a - b) * FACTOR)
    ),
    "map": lambda s: list(map(key, s.items)),
    "filter": lambda s: list(filter(lambda q: key(q) > 2, s.items)),
    "accumulate": lambda s: list(itertools.accumulate(s.items, lambda a, b: a + b * FACTOR)),
    "starmap": lambda s: list(itertools.starmap(lambda a: a * FACTOR, [(1,)])),
    "sub": lambda s: re.sub("a", lambda m: "b" * abs(FACTOR), "aa"),
    "defaultdict": lambda s: collections.defaultdict(lambda: FACTOR)["a"],
    "dumps": lambda s: json.dumps({"a": s.v}, default=lambda o: FACTOR),
    "loads": lambda s: json.loads('{"a": 1}', object_hook=lambda d: FACTOR),
    "apply_along_axis": lambda s: np.apply_along_axis(lambda q: q * FACTOR, 0, np.ones(2)).tolist(),
    "point_eq": lambda s: s.point == Point(2),
    "point_lt": lambda s: s.point < Point(3),
    "sorted_points": lambda s: sorted(s.points)[0].a,
    "point_repr": lambda s: (repr(s.point), str(s.point)),
    "point_asdict": lambda s: dataclasses.asdict(s.point),
    "point_replace": lambda s: dataclasses.replace(s.point, b=2.0).a,
    "point_copy": lambda s: (copy.copy(s.point).a, copy.deepcopy(s.point).a),
    "rank": lambda s: (s.rank > Rank(2), s.rank >= Rank(2), max(s.ranks).a),
    "steps": lambda s: list(Steps()),
    "enumerate_steps": lambda s: [a for a, b in enumerate(Steps())],
    "next_step": lambda s: next(Steps()),
}


def change_factor(s):
    global FACTOR
    FACTOR -= 3


def change_objects(s):
    s.v.a += 1
    s.vs[0].a += 7
    s.point.a += 1
    s.points[0].a -= 3
    s.rank.a += 1
    s.ranks[0].a += 3
    s.items.append(7)


@pytest.fixture
def factor():
    global FACTOR
    FACTOR = 2
    yield
    FACTOR = 2


@pytest.mark.sampled
@pytest.mark.quick(
    "add-change_objects",
    "abs-change_factor",
    "gt-change_objects",
    "float-change_factor",
    "sub-change_objects",
    "sum-change_objects",
    "point_asdict-change_factor",
    "getattr-change_factor",
)
@pytest.mark.parametrize("change", [change_factor, change_objects])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_special_methods_and_callbacks_are_followed(use, change, factor):
    global FACTOR
    results = []
    for translated in (False, True):
        FACTOR, state = 2, State()
        function = lambda x: (x + 1, use(state))  # noqa: B023, E731
        function = dy2st.to_static(function) if translated else function
        results.append([])
        for _ in range(4):
            results[-1].append(function(X))
            change(state)
    for k, (want, have) in enumerate(zip(*results)):
        check.same(have, want, what=f"call {k}")


def test_operators_on_data():
    """A converted operator may branch on data and loop; its tensors are those of eager."""

    class Cell:
        def __init__(self, h):
            self.h = h

        def __rshift__(self, x):
            h = self.h
            for row in x:
                h = h * 0.5 + row
            return Cell(h if h.sum() > 0 else -h)

    static = dy2st.to_static(lambda x: ((Cell(x[0]) >> x) >> x).h)
    for sign in (1, -1):
        x = paddle.to_tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 0.25]]) * sign
        check.same(static(x), ((Cell(x[0]) >> x) >> x).h)
    assert [q.kind for q in static.report(x).loops] == ["scan", "scan"]


def test_a_replaced_operator_is_followed():
    state = State()
    static = dy2st.to_static(lambda x: x * (state.v + state.v).a)
    before = Vector.__add__
    assert static(X).tolist() == [3.0, 6.0]
    try:
        Vector.__add__ = lambda self, other: Vector(10)
        assert static(X).tolist() == [10.0, 20.0]
    finally:
        Vector.__add__ = before
    assert static(X).tolist() == [3.0, 6.0] and Vector.__add__ is before


def test_other_threads_keep_their_operators():
    """A class is changed while it is traced; another thread computes eagerly meanwhile."""
    seen = []

    class Slow:
        def __add__(self, other):
            if threading.current_thread() is not threading.main_thread():
                return other
            return 1

    slow = Slow()

    @dy2st.pure
    def run(job):
        thread = threading.Thread(target=job)
        thread.start()
        thread.join()
        return slow.__class__ is Slow

    function = Slow.__dict__["__add__"]
    dy2st.to_static(lambda x: x * run(lambda: seen.append(slow + 5)))(X)
    assert seen == [5] and Slow.__dict__["__add__"] is function


def test_data_that_ends_an_iterator_is_refused():
    class Until:
        def __init__(self, x):
            self.x = x

        def __iter__(self):
            return self

        def __next__(self):
            self.x = self.x - 1
            if self.x.sum() < 0:
                raise StopIteration
            return self.x

    with pytest.raises(dy2st.SourceError, match="data decides when an iterator ends"):
        dy2st.to_static(lambda x: sum(list(Until(x))))(X)


def entered(x, c):
    with c as q:
        return x * q


def stored(x, c):
    c.z = 2.0
    c["k"] = 3.0
    return x * vars(c)["z"] * vars(c)["k"]


#: what a class has under a name, what replaces it, and a use of an object of the class
REPLACED = {
    "__len__": (lambda s: 2, lambda s: 5, lambda x, c: x * len(c)),
    "__getitem__": (lambda s, i: 2, lambda s, i: 5, lambda x, c: x * c[1]),
    "__setitem__": (
        lambda s, i, v: vars(s).update({i: v}), lambda s, i, v: vars(s).update({i: -v}), stored
    ),
    "__setattr__": (
        object.__setattr__, lambda s, n, v: object.__setattr__(s, n, -v), stored
    ),
    "__getattr__": (lambda s, n: 2, lambda s, n: 5, lambda x, c: x * c.other),
    "__call__": (lambda s, x: x * 2, lambda s, x: x + 1, lambda x, c: c(x)),
    "__iter__": (lambda s: iter([2]), lambda s: iter([5]), lambda x, c: sum(x * q for q in c)),
    "__next__": (lambda s: 2, lambda s: 5, lambda x, c: x * next(c)),
    "__contains__": (lambda s, i: True, lambda s, i: False, lambda x, c: x if 1 in c else -x),
    "__bool__": (lambda s: True, lambda s: False, lambda x, c: x if c else -x),
    "__float__": (lambda s: 2.0, lambda s: 5.0, lambda x, c: x * float(c)),
    "__str__": (lambda s: "a", lambda s: "bb", lambda x, c: x * len(str(c))),
    "__enter__": (lambda s: 2, lambda s: 5, entered),
    "__iadd__": (lambda s, x: x * 2, lambda s, x: x + 1, lambda x, c: operator.iadd(c, x)),
    "__init__": (
        lambda s: vars(s).update(q=2), lambda s: vars(s).update(q=5), lambda x, c: x * type(c)().q
    ),
    "__copy__": (lambda s: 2, lambda s: 5, lambda x, c: x * copy.copy(c)),
    "__deepcopy__": (lambda s, m: 2, lambda s, m: 5, lambda x, c: x * copy.deepcopy(c)),
    "__class_getitem__": (
        classmethod(lambda k, i: 2), classmethod(lambda k, i: 5), lambda x, c: x * type(c)[int]
    ),
    "computed": (property(lambda s: 2), property(lambda s: 5), lambda x, c: x * c.computed),
    "of_class": (
        classmethod(lambda k: 2), classmethod(lambda k: 5), lambda x, c: x * c.of_class()
    ),
    "of_type": (
        classmethod(lambda k: 2), classmethod(lambda k: 5), lambda x, c: x * type(c).of_type()
    ),
}  # fmt: skip


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("name", REPLACED)
def test_a_method_replaced_in_a_class_is_followed(name):
    before, after, use = REPLACED[name]
    kind = type("Kind", (), {"__exit__": lambda s, *error: False, name: before})
    if name == "__setattr__":
        kind.__setitem__ = REPLACED["__setitem__"][0]
    c = kind()
    static = dy2st.to_static(use)
    for found in (before, after, before):
        setattr(kind, name, found)
        check.same(static(X, c), use(X, c))


def test_attributes_and_items_that_are_deleted_again():
    class Box:
        pass

    def f(x, box, d):
        box.t = d["t"] = x * 2
        y = box.t + d["t"]
        del box.t, d["t"]
        for k in range(3):
            box.u = y * k
            y = y + box.u
            del box.u
        return y

    static, box, d = dy2st.to_static(f), Box(), {"a": 1}
    for _ in range(3):
        check.same(static(X, box, d), f(X, box, d))
        assert not vars(box) and d == {"a": 1}


def test_a_wrapper_with_missing_keys():
    class Table(collections.UserDict):
        def __missing__(self, key):
            return 5.0

    def f(x, table, key):
        y = x * table[key]
        table[key] = table[key] + 1
        return y

    static, one, two = dy2st.to_static(f), Table(), Table()
    for key in "aaba":
        check.same(static(X, one, key), f(X, two, key))
        assert one.data == two.data


class First:
    scale = 2.0

    @property
    def doubled(self):
        return self.scale * 2

    def __len__(self):
        return 3

    def go(self, x):
        return x * self.scale


class Second(First):
    scale = 5.0

    @property
    def doubled(self):
        return self.scale * 3

    def __len__(self):
        return 7

    def go(self, x):
        return super().go(x) + 1


ASKED = {
    "method": lambda box, x: box.go(x),
    "attribute": lambda box, x: x * box.scale,
    "property": lambda box, x: x * box.doubled,
    "special method": lambda box, x: x * len(box),
    "isinstance": lambda box, x: x * (2 if isinstance(box, Second) else 3),
    "type": lambda box, x: x * (2 if type(box) is Second else 3),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_class_that_is_assigned(what):
    box = First()
    static = dy2st.to_static(lambda x: ASKED[what](box, x))
    for kind in (First, Second, First):
        box.__class__ = kind
        check.same(static(X), ASKED[what](box, X))


def test_a_method_that_super_finds_is_replaced(monkeypatch):
    static, box = dy2st.to_static(lambda x, box: box.go(x)), Second()
    check.same(static(X, box), box.go(X))
    for by in (1.0, 2.0, 3.0):  # functions of another name
        monkeypatch.setattr(First, "go", lambda self, x, by=by: x * by - self.scale)
        check.same(static(X, box), box.go(X))


def test_keyword_defaults_that_change():
    def scaled(x, *, by=1.0):
        return x * by

    static = dy2st.to_static(lambda x: scaled(x))
    for by in (1.0, 2.0, 3.0):
        scaled.__kwdefaults__["by"] = by
        check.same(static(X), scaled(X))


class Base:
    rate, gain = 2.0, 1.0

    @property
    def scale(self):
        return self.gain * Base.rate

    @property
    def chosen(self):
        return self.gain * 2 if self.scale > 5 else self.gain

    @classmethod
    def made(cls, x):
        return x * 2


class Heir(Base):
    rate = 100.0

    @property
    def scale(self):
        return super().scale + super().rate

    @property
    def chosen(self):
        return super().chosen * 3

    @classmethod
    def made(cls, x):
        return super().made(x) + 1

    def go(self, x):
        return self.made(x) * self.scale + self.chosen * vars(Base)["rate"]


def test_what_super_gives_is_followed(monkeypatch):
    """Properties, class attributes and class methods."""
    box = Heir()
    static = dy2st.to_static(lambda x: box.go(x))
    for change in (
        lambda: None,
        lambda: setattr(box, "gain", 5.0),
        lambda: monkeypatch.setattr(Base, "rate", 3.0),
        lambda: monkeypatch.setattr(Base, "made", classmethod(lambda cls, x: x * 7)),
        lambda: monkeypatch.setattr(Base, "made", classmethod(lambda cls, x: x * 8)),
        lambda: monkeypatch.setattr(Base, "scale", property(lambda self: 11.0)),
        lambda: setattr(box, "gain", X),
    ):
        change()
        check.same(static(X), box.go(X))
