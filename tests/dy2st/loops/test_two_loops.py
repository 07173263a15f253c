"""Loops one after the other: one loop of the program where nobody can tell, two where one can."""

from __future__ import annotations

import random

import paddle
import pytest

import dy2st
from ir import Scan
from tests.check import agree, data

pytestmark = pytest.mark.sampled(every=12)


def apart(x):
    a, b, g, h = [], [], x[0] * 0, x[0] * 0
    for t in range(x.shape[0]):
        h = paddle.tanh(h + x[t])
        a.append(h)
    for t in range(x.shape[0]):
        g = paddle.tanh(g - x[t])
        b.append(g)
    return paddle.stack(a), paddle.stack(b)


def one_reads_the_other(x):
    a, g, h = [], x[0] * 0, x[0] * 0
    for t in range(x.shape[0]):
        h = paddle.tanh(h + x[t])
        a.append(h)
    for t in range(x.shape[0]):
        g = 0.5 * g + a[t] * x[t]
    return g


def layer(x):
    v, ys = paddle.zeros([3], x.dtype), []
    for row in x:
        v = 0.9 * v + row
        ys.append(paddle.tanh(v))
    return paddle.stack(ys)


def layers(x):
    return layer(layer(layer(x)))


def backwards(x):
    a, g, h = [], x[0] * 0, x[0] * 0
    for t in range(x.shape[0]):
        h = paddle.tanh(h + x[t])
        a.append(h)
    for row in reversed(a):
        g = 0.5 * g + row
    return g


def loops(static, *args):
    """How many loops run."""
    with paddle.no_grad():
        static(*args)
    return sum(isinstance(n, Scan) for n in static.entry(*args).executable.program.ops)


@pytest.mark.parametrize("f", [apart, one_reads_the_other, layers])
def test_one_loop(f):
    static = agree(f, data(6, 3))
    assert loops(static, data(6, 3, trained=False)) == 1


def test_another_order_of_steps_is_another_loop():
    static = agree(backwards, data(6, 3))
    assert loops(static, data(6, 3, trained=False)) == 2


def draws_twice(x):
    h = x[0] * 0
    for t in range(4):
        h = h + x[t] * random.random()
    for t in range(4):
        h = h - x[t] * random.random() * (h.sum() > 0).astype(x.dtype)
    return h


def draws_in_both(x):
    g = h = x[0] * 0
    for t in range(4):
        if x[t].sum() > -9:
            h = h + x[t] * random.random()
    for t in range(4):
        if x[t].sum() > -8:
            g = g - x[t] * random.random()
    return h, g


@pytest.mark.parametrize("f", [draws_twice, draws_in_both])
def test_draws_keep_their_order(f):
    static, x = dy2st.to_static(f), data(4, 3, trained=False)
    for seed in range(3):
        random.seed(seed)
        want = f(x)
        random.seed(seed)
        have = static(x)
        for a, b in zip(
            paddle.flatten(paddle.stack(have) if f is draws_in_both else have),
            paddle.flatten(paddle.stack(want) if f is draws_in_both else want),
        ):
            assert abs(float(a) - float(b)) < 1e-9


def raises_in_both(x, y):
    g = h = x[0] * 0
    for t in range(x.shape[0]):
        h = h + x[t]
        if h.sum() > 2:
            raise ValueError("first")
    for t in range(x.shape[0]):
        g = g + y[t]
        if g.sum() > 0.5:
            raise KeyError("second")
    return h, g


def test_the_first_loop_raises_first():
    static, ones = dy2st.to_static(raises_in_both), paddle.ones([4, 1])
    for x, y in [(ones, ones), (ones * 0, ones), (ones, ones * 0)]:
        with pytest.raises((ValueError, KeyError)) as want:
            raises_in_both(x, y)
        with pytest.raises(want.type):
            static(x, y)
    static(ones * 0, ones * 0)
