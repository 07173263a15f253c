"""Attributes that a descriptor computes once, attributes in slots, and `vars` of an object."""

from __future__ import annotations

import functools

import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)

X = paddle.to_tensor([1.0, -2.0])


class Cached:
    def __init__(self):
        self.a = 2.0

    @functools.cached_property
    def big(self):
        return self.a * 100

    def run(self, x):
        self.a += 1
        return x * self.big + self.a


class CachedLayer(paddle.nn.Layer):
    """Its tensor is in `__dict__`, where Paddle would make a buffer of it."""

    def __init__(self):
        super().__init__()
        self.a = 2.0

    @functools.cached_property
    def big(self):
        return paddle.full([1], self.a * 100)

    def run(self, x):
        self.a += 1
        return x * self.big + self.a, len(self.buffers())


class Lazy:
    """A descriptor of the user that keeps its value under its own name."""

    def __init__(self, function):
        self.function, self.name = function, function.__name__

    def __get__(self, obj, kind=None):
        if obj is None:
            return self
        setattr(obj, self.name, self.function(obj))
        return getattr(obj, self.name)


class LazyInFields(Lazy):
    def __get__(self, obj, kind=None):
        if self.name not in obj.__dict__:
            obj.__dict__[self.name] = self.function(obj)
        return obj.__dict__[self.name]


class OwnDescriptor(Cached):
    @Lazy
    def big(self):
        return self.a * 100


class OwnFields(Cached):
    @LazyInFields
    def big(self):
        return self.a * 100


class Slots:
    __slots__ = ("__dict__", "a")


class SlotsAndFields(Slots):
    def __init__(self):
        self.a = 2.0

    def run(self, x):
        self.a += 1
        self.b = self.a * 2
        return x * self.a * self.b


class Partial:
    def __init__(self):
        self.a = 2.0

    def add(self, x, k, scale=1.0):
        self.a += k
        return x * self.a * scale

    twice = functools.partialmethod(add, k=2, scale=2.0)

    def run(self, x):
        return self.twice(x) + self.add(x, 1)


class Fields:
    def __init__(self):
        self.a, self.t, self.names = 2.0, paddle.ones([2]), ["x"]

    def run(self, x):
        self.a += 1
        self.t = self.t * 2
        if "big" in self.__dict__:
            x = x * 3
        for value in vars(self).values():
            if isinstance(value, (float, paddle.Tensor)):
                x = x + value
        return x, len(vars(self)), sorted(self.__dict__)


KINDS = (Cached, CachedLayer, OwnDescriptor, OwnFields, SlotsAndFields, Partial, Fields)


def change(obj, k):
    """What the caller does between two calls."""
    fields = vars(obj)
    if k in (2, 4, 5, 6):
        fields.pop("big", None)
    if k == 3 and isinstance(obj, Fields):
        obj.big = 7.0
    if k == 6:
        obj.a = 0.5


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_attributes_are_those_of_eager(kind):
    eager, other = kind(), kind()
    static = dy2st.to_static(other.run)
    for k in range(9):
        change(eager, k)
        change(other, k)
        check.same(static(X), eager.run(X), what=f"call {k}")
        assert other.a == eager.a
        assert [*vars(other)] == [*vars(eager)]


def test_a_partial_method_that_is_replaced_is_followed(monkeypatch):
    eager, other = Partial(), Partial()
    static = dy2st.to_static(other.run)
    check.same(static(X), eager.run(X))
    monkeypatch.setattr(Partial, "twice", functools.partialmethod(Partial.add, k=5))
    check.same(static(X), eager.run(X))


class Refused(SlotsAndFields, Fields):
    def __init__(self):
        self.a, self.t = 2.0, paddle.ones([2])

    def run(self, x):
        self.a += 1
        self.t = self.t * 2
        self.b = [k for k in vars(self)]
        return paddle.unique(paddle.stack([x, x]), axis=1)


def test_a_refused_call_changes_neither_slots_nor_fields():
    obj = Refused()
    before = obj.t
    for _ in range(2):
        with pytest.raises(dy2st.SourceError, match="depends on values"):
            dy2st.to_static(obj.run)(X)
        assert obj.a == 2.0
        assert vars(obj) == {"t": before}
