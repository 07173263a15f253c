"""`while` loops over a counter that is a tensor: loops of known length, as eager computes them."""

from __future__ import annotations

import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests.check import agree, data, parity

pytestmark = pytest.mark.sampled(every=12)


class Calls(paddle.nn.Layer):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def float_counter(x):
    i, h = paddle.zeros([1]), x[0]
    while i < 5:
        h = paddle.tanh(h + x[0])
        i = i + 1
    return h, i


def counter_as_index(x):
    i, n, h = paddle.zeros([1], "int64"), paddle.shape(x)[0], x[0] * 0
    while i < n:
        h = paddle.tanh(h + x[i[0]])
        i += 1
    return h


def downwards(x):
    i, h, ys = paddle.full([], 4, "int64"), x[0] * 0, []
    while i >= 0:
        h = paddle.tanh(h + x[i])
        ys.append(h)
        i = i - 1
    return paddle.stack(ys), i


def two_at_a_time(x):
    i, h = paddle.full([], 1, "int32"), x[0] * 0
    while i != 7:
        h = paddle.tanh(h + x[0]) * i.astype(x.dtype)
        i = i + 2
    return h, i


def function(x):
    def test(i, h):
        return i < paddle.full([1], 5, "int64")

    def step(i, h):
        return [i + 1, paddle.tanh(h + x[0])]

    return paddle.static.nn.while_loop(test, step, [paddle.zeros([1], "int64"), x[0] * 0])[1]


def inside_of_another(x):
    i, ys = paddle.zeros([], "int64"), []
    while i < 3:
        j, h = paddle.zeros([], "int64"), x[i]
        while j < 4:
            h = paddle.tanh(h + x[j])
            j = j + 1
        ys.append(h)
        i = i + 1
    return paddle.stack(ys, 1)


SCANS = [float_counter, counter_as_index, downwards, two_at_a_time, function, inside_of_another]


@pytest.mark.parametrize("f", SCANS, ids=lambda f: f.__name__)
def test_is_a_scan(f):
    parity(Calls(f), lambda: [data(5, 3, trained=False)])
    static = agree(f, data(5, 3))
    text = str(dy2st.program(static, data(5, 3)))
    assert "while" not in text and "scan" in text
    assert "while" not in str(dy2st.report(static, data(5, 3)))


def asks_data_too(x):
    i, h, ys = paddle.zeros([], "int64"), x[0] * 0, []
    while paddle.logical_and(i < 5, h.sum() < 1.5):
        h = paddle.tanh(h + x[i].abs())
        ys.append(h)
        i = i + 1
    return h, i


def test_another_condition_leaves_a_bound():
    static = agree(asks_data_too, data(5, 3))
    assert "while %t < 5 as" in str(dy2st.program(static, data(5, 3)))


def test_a_size_of_the_call():
    static = parity(
        Calls(counter_as_index),
        lambda: [paddle.randn([4, 3])],
        input_spec=[InputSpec([None, 3], "float32")],
    )
    text = str(dy2st.program(static, paddle.randn([4, 3])))
    assert "scan %t < " in text and "dynamic_index" not in text


def half_steps(x):
    i, h = paddle.zeros([]), x[0] * 0
    while i < 2:
        h = paddle.tanh(h + x[0])
        i = i + 0.1
    return h, i


def bound_from_data(x, n):
    i, h = paddle.zeros([], "int64"), x[0] * 0
    while i < n:
        h = paddle.tanh(h + x[0])
        i = i + 1
    return h, i


def counter_that_data_moves(x):
    i, h = paddle.zeros([], "int64"), x[0] * 0
    while i < 6:
        h = paddle.tanh(h + x[0])
        i = i + 1 + (h.sum() > 1).astype("int64")
    return h, i


def test_what_stays_a_while():
    for f, *more in [
        (half_steps,),
        (bound_from_data, paddle.to_tensor(3)),
        (counter_that_data_moves,),
    ]:
        static = parity(Calls(f), lambda more=more: [paddle.randn([2, 3]), *more])
        assert "while" in str(dy2st.program(static, paddle.randn([2, 3]), *more))


def a_ring(x):
    """Where the next element goes moves by one until the ring is full."""
    ring, at, full, total = paddle.zeros([4, 3], x.dtype), 0, False, x.sum(0)
    for row in x:
        ring[at] = row
        at = (at + 1) % 4
        full = full or at == 0
        total = total * 0.5 + (ring.mean(0) if full else row)
    return ring, at, full, total


@pytest.mark.slow
def test_a_counter_that_wraps_is_a_value_of_the_program():
    static = dy2st.to_static(a_ring)
    for n in (9, 0, 1, 4, 5):
        agree(static, data(n, 3, seed=n))
    assert "unrolled" not in str(dy2st.report(static, data(9, 3)))


# ---------------------------------------------------------------- polynomials of the index
def of_both_ends(x):
    n, y = len(x), x.sum(0)
    for t in range(n):
        y = y * 0.5 + x[t] * (t * (n - t)) + (t + 1) ** 3 / (t**2 + 1)
    return y


def triangular(x):
    y = x.sum(0)
    for t in range(len(x)):
        y = y * 0.5 + x[t * (t + 1) // 2 % len(x)]
    return y


def in_a_condition(x):
    y, squares = x.sum(0), 0
    for t in range(len(x)):
        if t * t > 20:
            y = y + x[t]
        squares = squares + t * t
    return y * squares


@pytest.mark.parametrize("f", [of_both_ends, triangular, in_a_condition])
def test_polynomials_of_the_index_are_values(f):
    for spec in (None, [InputSpec([None, 3], "float64")]):
        static = dy2st.to_static(f, input_spec=spec)
        for n in (9, 0, 1, 2) if spec else (9,):
            agree(static, data(n, 3, seed=n), calls=1)
        assert "unrolled" not in str(dy2st.report(static, data(9, 3)))


def test_an_index_that_grows_faster_leaves_the_axis_where_eager_does():
    def f(x, n):
        y = x[0]
        for t in range(n):
            y = y + x[t * t]
        return y

    static = agree(f, data(17, 3), 5)
    for g in (f, static):
        with pytest.raises(IndexError, match="25"):
            g(data(17, 3), 6)
