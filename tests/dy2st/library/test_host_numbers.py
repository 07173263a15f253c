"""Python's functions of numbers that data decides: the results and errors of eager."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest

import dy2st
from tests import check


def matrix(seed=0):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=[3, 4]).astype("float32"))


def rounded(x):
    v = float(x[0, 0] * 10)
    return x * round(v, 1), round(v), round(v, 0), round(int(v)), round(int(v * 100), -1)


def functions(x):
    v = float(x[0, 0].abs()) + 1.5
    found = [math.pow(v, 2.0), math.log2(v), math.hypot(v, 1.0), math.atan2(v, 1), math.log(v, 3)]
    found += [math.fmod(v, 2.0), math.degrees(v), math.copysign(1.0, -v), math.gamma(v)]
    return found, math.isnan(v), math.isclose(v, 1.0, rel_tol=10.0), math.gcd(int(v * 10), 4)


def membership(x):
    n = int(x[0].argmax())
    y = x * 2 if n in (0, 2) else x + 1
    if n not in {1, 3}:
        y = y - 1
    return y, n in [5, "a", None], n in range(1, 4, 2), n in {0: "a", 1: "b"}, 2 in [n, 0]


def in_a_loop(x):
    total = 0.0
    for row in x:
        total += round(float(row.sum()), 2)
        if int(row.argmax()) in (1, 2):
            total -= math.hypot(float(row[0]), 1.0)
    return total


def by_the_index(x):
    total = paddle.zeros([4])
    for t in range(3):
        total = total + x[t] * math.pow(0.9, t) + round(t / 2)
        if t in (0, 2):
            total = total * 2
    return total


@pytest.mark.parametrize("f", [rounded, functions, membership, in_a_loop, by_the_index])
def test_values_of_eager(f):
    static = dy2st.to_static(f)
    for seed in range(4):
        check.same(static(matrix(seed)), f(matrix(seed)), what=f"seed {seed}")


def out_of_domain(x):
    return math.acos(float(x[0, 0]) + 5)


def infinite(x):
    return round(float(x[0, 0]) * math.inf)


@pytest.mark.parametrize("f, error", [(out_of_domain, ValueError), (infinite, OverflowError)])
def test_errors_of_eager(f, error):
    static = dy2st.to_static(f)
    for _ in range(2):
        with pytest.raises(error):
            static(matrix())


class Bag:
    def __init__(self, limit):
        self.limit = limit

    def __contains__(self, x):
        return x.sum() > self.limit


def users_membership(x):
    return x * 2 if x in Bag(0.0) else x


def test_contains_of_the_user_may_ask_data():
    static = dy2st.to_static(users_membership)
    for seed in range(3):
        check.same(static(matrix(seed)), users_membership(matrix(seed)))
