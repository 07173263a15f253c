"""Asking what an object is: the answers of eager, or an error where data decides which it is."""

from __future__ import annotations

from collections import abc

import paddle
import pytest

import dy2st
from tests import check


class Box:
    pass


def kinds(x):
    n, ys, box = x.shape[0], [x], Box()
    return [
        type(x) is paddle.Tensor,
        type(x).__name__,
        type(n) is int,
        type(ys) is list,
        type(box) is Box,
        type("Made", (Box,), {}).__name__,
        [callable(q) for q in (x, kinds, Box, box)],
        [isinstance(q, (list, paddle.Tensor)) for q in (x, ys, n)],
    ]


def test_types_are_those_of_eager():
    x = paddle.ones([2])
    assert dy2st.to_static(kinds)(x) == kinds(x)


NAMES = "data value kind item __iter__ __index__ __array__ __dict__ __slots__ __len__ size".split()


def names_of(x, k):
    """The names that eager knows, and no others."""
    ys = [q * 2 for q in x]
    values = [x * 2, k, k + 0.5, float(x.sum()), x.shape[0], ys, str(k)]
    found = [[hasattr(q, name) for name in NAMES if name != "item"] for q in values]
    given = [getattr(q, "data", None) is None for q in values]
    return found, given, [isinstance(q, abc.Iterable) for q in values]


def test_attributes_are_those_of_eager():
    x, static = paddle.ones([2]), dy2st.to_static(names_of)
    for k in (1, 2, 3):
        assert static(x, k) == names_of(x, k)
    with pytest.raises(AttributeError, match="'int' object has no attribute 'data'"):
        dy2st.to_static(lambda x: x * int(x.sum()).data)(x)


def is_none(x, m):
    return x if m is None else -x


def is_not_none(x, m):
    return x if m is not None else -x


def compares(x, m):
    return x if m == "up" else -x


def asks_for_the_type(x, m):
    return x if type(m) is str else -x


def asks_for_an_instance(x, m):
    return x if isinstance(m, str) else -x


def asks_for_an_attribute(x, m):
    return x if hasattr(m, "upper") else -x


def calls(x, m):
    return m(x)


def asks_whether_it_can_be_called(x, m):
    return x if callable(m) else -x


def uses_as_a_key(x, m):
    return {m: x}


def iterates(x, m):
    return [x for _ in m]


def returns(x, m):
    return m


USES = [
    compares, asks_for_the_type, asks_for_an_instance, calls, iterates,
    asks_for_an_attribute, asks_whether_it_can_be_called, uses_as_a_key, returns,
]  # fmt: skip


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("pair", [("up", "down"), (None, "down"), (paddle.tanh, paddle.exp)])
def test_an_object_that_data_chooses_cannot_be_asked(use, pair):
    """Whichever branch runs, the answer would be that of the other one in half of the calls."""
    one, other = pair

    def chosen(x):
        m = one if x.sum() > 0 else other
        return use(x, m)

    with pytest.raises(dy2st.SourceError, match="depends on a condition on data"):
        dy2st.to_static(chosen)(paddle.ones([2]))


@pytest.mark.parametrize("use", [is_none, is_not_none], ids=lambda f: f.__name__)
@pytest.mark.parametrize("pair", [("up", None), (None, "down"), ("up", "down")])
def test_whether_data_chose_none_is_known_when_the_program_runs(use, pair):
    one, other = pair

    def chosen(x):
        m = one if x.sum() > 0 else other
        return use(x, m)

    static = dy2st.to_static(chosen)
    for sign in (1.0, -1.0, 0.0, 2.0):
        x = paddle.full([2], sign)
        check.same(static(x), chosen(x))


def test_an_object_that_data_chooses_may_stay_unused():
    def chosen(x):
        m = "up" if x.sum() > 0 else "down"  # noqa: F841
        return x + 1

    static = dy2st.to_static(chosen)
    for sign in (1.0, -1.0, 0.0):
        x = paddle.full([2], sign)
        check.same(static(x), chosen(x))
