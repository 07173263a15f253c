"""Arguments and attributes whose kind changes from call to call."""

from __future__ import annotations

import itertools

import paddle
import pytest

import dy2st
from tests import check

X = paddle.ones([2, 3])
VALUES = {
    "half": 1.5,
    "other float": 2.5,
    "int": 3,
    "same int as float": 3.0,
    "more": 4,
    "true": True,
    "false": False,
    "text": "a",
    "other text": "b",
    "none": None,
    "tensor": paddle.full([3], 2.0),
    "tuple": (1, 2),
}


def shown(x, n):
    """Uses `n` as each of its kinds is used."""
    if n is None:
        return x - 1
    if isinstance(n, bool):
        return x if n else -x
    if isinstance(n, str):
        return x * len(n) + (1 if n == "a" else 2)
    if isinstance(n, tuple):
        return x * n[0] + n[1]
    return x * n


class Holder(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.box = [None]

    def forward(self, x):
        return shown(x, self.box[0])


SEQUENCES = {
    "floats, then an int": ["half", "other float", "int", "more", "half"],
    "ints, then a float": ["int", "more", "half", "int", "other float"],
    "numbers, then texts": ["int", "more", "text", "int", "other text", "text"],
    "numbers, then bools": ["int", "more", "true", "false", "int", "false"],
    "none and a tensor": ["none", "tensor", "none", "tensor", "half", "none", "other float"],
    "everything twice": [*VALUES, *reversed(VALUES)],
}


@pytest.mark.sampled
@pytest.mark.quick(
    "argument-ints, then a float",
    "named-floats, then an int",
    "named-numbers, then texts",
    "named-none and a tensor",
    "in a dict-ints, then a float",
    "in a dict-numbers, then bools",
    "attribute-floats, then an int",
)
@pytest.mark.parametrize("names", SEQUENCES.values(), ids=SEQUENCES)
@pytest.mark.parametrize("how", ["argument", "named", "in a dict", "attribute"])
def test_a_value_that_changes_its_kind(names, how):
    layer = dy2st.to_static(Holder())
    plain, in_dict = dy2st.to_static(shown), dy2st.to_static(lambda x, d: shown(x, d["n"]))
    for name in names:
        n = VALUES[name]
        layer.box = [n]
        have = {
            "argument": lambda n=n: plain(X, n),
            "named": lambda n=n: plain(X, n=n),
            "in a dict": lambda n=n: in_dict(X, {"n": n}),
            "attribute": lambda: layer(X),
        }[how]()
        check.same(have, shown(X, n), what=name)


@pytest.mark.slow
def test_two_arguments_that_change_their_kinds():
    static = dy2st.to_static(lambda x, a, b: shown(shown(x, a), b))
    for a, b in itertools.product(["half", "int", "more", "true", "text", "none"], repeat=2):
        want = shown(shown(X, VALUES[a]), VALUES[b])
        check.same(static(X, VALUES[a], VALUES[b]), want, what=f"{a}, {b}")
