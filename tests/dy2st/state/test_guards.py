"""Guards tell constants apart as Python does, at every place, and take equal ones for the same."""

from __future__ import annotations

import enum
import os

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Box:
    value: object


box = Box()
held: object = None
LARGE = 200


def attribute(value):
    box.value = value
    return lambda: box.value


def variable(value):
    global held
    held = value
    return lambda: held


def _list(n):
    def place(value):
        box.value = [*range(n), value]
        return lambda: box.value[-1]

    return place


def _dict(n, key="key"):
    def place(value):
        box.value = {**dict.fromkeys(range(n)), key: value}
        return lambda: box.value[key]

    return place


def _key(n):
    def place(value):
        box.value = {**{f"k{k}": k for k in range(n)}, value: 1}
        return lambda: [*box.value][-1]

    return place


def key_of_tensors(value):
    box.value = {"k": paddle.ones([1]), value: paddle.ones([1])}
    return lambda: [*box.value][-1]


def _set(n):
    def place(value):
        box.value = {*(f"k{k}" for k in range(n)), value}
        return lambda: [q for q in box.value if str(q)[0] != "k"][0]

    return place


PLACES = {
    "attribute": attribute,
    "global": variable,
    "list": _list(2),
    "large list": _list(LARGE),
    "dict": _dict(2),
    "large dict": _dict(LARGE),
    "dict by members": _dict(2, Color.RED),
    "key": _key(2),
    "key of a large dict": _key(LARGE),
    "key of tensors": key_of_tensors,
    "set": _set(0),
    "large set": _set(LARGE),
}
UNEQUAL = [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (True,)), ((0.0,), (-0.0,)), ("a", b"a")]
EQUAL = [
    (lambda: 10**9, "int"),
    (lambda: float("2.5"), "float"),
    (lambda: float("0"), "zero"),
    (lambda: float("nan"), "NaN"),
    (lambda: "".join(["some", " text"]), "str"),
    (lambda: tuple([10**9, float("nan")]), "tuple"),
    (lambda: complex("1+2j"), "complex"),
]


def reader(place, value):
    read = place(value)

    def f(x):
        return x + 1.0, repr(read())

    return dy2st.to_static(f)


@pytest.mark.quick("(1, True)-attribute", "(0.0, -0.0)-large list", "(1, 1.0)-key")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pair", UNEQUAL, ids=repr)
def test_constants_of_another_type_or_sign_are_other_ones(place, pair):
    f, x = reader(PLACES[place], pair[0]), paddle.zeros([1])
    assert f(x)[1] == repr(pair[0])
    for value in (*reversed(pair), pair[1]):
        PLACES[place](value)
        assert f(x)[1] == repr(value)


@pytest.mark.quick("zero-large dict", "NaN-attribute")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", [q for q, _ in EQUAL], ids=[q for _, q in EQUAL])
def test_equal_constants_of_one_type_need_one_program(place, make):
    """A key that holds a NaN is another key, to which an item belongs that is looked up by it;
    an element of a set likewise."""
    if place in ("key of tensors", "set", "large set") and "nan" in repr(make()):
        return
    f, x = reader(PLACES[place], make()), paddle.zeros([1])
    f(x)
    PLACES[place](make())
    assert f(x)[1] == repr(make())
    assert dy2st.explain(f).made == 1


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("make", [lambda q: {q}, lambda q: {q: 1}, lambda q: {"k": {q: 1}}["k"]])
@pytest.mark.parametrize("pair", UNEQUAL, ids=repr)
def test_constants_in_an_argument_are_told_apart(make, pair):
    f, x = dy2st.to_static(lambda x, held: (x + 1.0, repr([*held]))), paddle.zeros([1])
    for value in (*pair, *reversed(pair)):
        assert f(x, make(value))[1] == repr([value])


@pytest.mark.quick
def test_an_equal_member_of_an_enumeration_as_key_of_tensors():
    f, x = reader(key_of_tensors, Color.RED), paddle.zeros([1])
    assert f(x)[1] == f(x)[1] == repr(Color.RED)
    assert dy2st.explain(f).made == 1
    key_of_tensors(Color.BLUE)
    assert f(x)[1] == repr(Color.BLUE)


@pytest.mark.quick
def test_the_changed_value_is_named():
    box.value = [k + 0.5 for k in range(3)]
    f = dy2st.to_static(lambda x: x * box.value[1])
    x = paddle.ones([1])
    f(x)
    box.value = [0.5, True, 2.5]
    f(x)
    assert "box.value changed from (0.5, 1.5, 2.5) to (0.5, True, 2.5)" in str(dy2st.explain(f))


class Shade:
    depth = 1
    weights = np.ones(3)


def test_changes_are_named_as_the_user_knows_them(monkeypatch):
    monkeypatch.setenv("DY2ST_TEST_SCALE", "1")
    box.value, shade = Color.RED, Shade()

    def f(x):
        scale = float(os.environ.get("DY2ST_TEST_SCALE", "0"))
        return x * scale * shade.depth * float(shade.weights.sum()) * len(box.value.name)

    static, x = dy2st.to_static(f), paddle.ones([1])
    for change in (
        lambda: None,
        lambda: setattr(box, "value", Color.BLUE),
        lambda: monkeypatch.setattr(Shade, "depth", 2),
        lambda: Shade.weights.__setitem__(0, 5.0),
        lambda: monkeypatch.setenv("DY2ST_TEST_SCALE", "3"),
    ):
        change()
        check.same(static(x), f(x))
    Shade.weights[0] = 1.0
    text = str(dy2st.explain(static))
    assert "box.value changed from Color.RED to Color.BLUE" in text
    assert "depth changed from 1 to 2" in text
    assert "weights has other elements (an array float64[3])" in text
    assert "os.environ.get('DY2ST_TEST_SCALE', '0') gives another result" in text
