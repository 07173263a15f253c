"""Moving windows: deques and lists of the last elements that a loop has seen."""

from __future__ import annotations

from collections import deque

import numpy as np
import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls


def deque_that_fills(x):
    q, h = deque(maxlen=3), paddle.zeros([3], x.dtype)
    for row in x:
        q.append(row + 0.1 * h)
        h = h * 0.5 + sum(q)
    return h, list(q)


def deque_of_zeros(x):
    q, h = deque([paddle.zeros([3], x.dtype)] * 4, maxlen=4), paddle.zeros([3], x.dtype)
    for row in x:
        q.appendleft(row + 0.1 * h)
        h = h * 0.5 + paddle.stack(list(q)).mean(0) + q[2] + q[-1]
    return h


def deque_that_is_full(x):
    q, h, out = deque(maxlen=5), paddle.zeros([3], x.dtype), []
    for row in x:
        q.append(row)
        if len(q) == 5:
            h = h + q[0] * q[-1]
        out.append(h)
    return paddle.stack(out)


def two_elements_at_once(x):
    q, h = deque(maxlen=5), paddle.zeros([3], x.dtype)
    for row in x:
        q.append(row)
        q.append(row * h)
        h = h * 0.5 + sum(q)
    return h


def list_cut_when_it_is_long(x):
    w, h = [], paddle.zeros([3], x.dtype)
    for row in x:
        w.append(row + 0.1 * h)
        if len(w) > 3:
            w.pop(0)
        h = h * 0.5 + sum(w)
    return h


def list_with_del(x):
    w, h = [], paddle.zeros([3], x.dtype)
    for row in x:
        w.append(row + 0.1 * h)
        if len(w) > 2:
            del w[0]
        h = h * 0.5 + sum(w)
    return h, w


def linear_multistep(x):
    """The sampler PLMS: each of the first steps has a formula of its own."""
    w, h = [], paddle.zeros([3], x.dtype)
    for row in x:
        e = paddle.tanh(row + h)
        if len(w) == 0:
            d = (e + paddle.tanh(row + h - 0.1 * e)) / 2
        elif len(w) == 1:
            d = (3 * e - w[-1]) / 2
        elif len(w) == 2:
            d = (23 * e - 16 * w[-1] + 5 * w[-2]) / 12
        else:
            d = (55 * e - 59 * w[-1] + 37 * w[-2] - 9 * w[-3]) / 24
        h = h - 0.1 * d
        w.append(e)
        if len(w) >= 4:
            w.pop(0)
    return h


def queue_read_from_both_ends(x):
    w, h = [x[0], x[1]], paddle.zeros([3], x.dtype)
    for row in x:
        w.pop(0)
        w.append(row + 0.1 * h)
        h = w[-1] * 0.5 + w[0]
    return h, w[-1]


def shifted_anew(x):
    w, h = [paddle.zeros([3], x.dtype) for _ in range(4)], paddle.zeros([3], x.dtype)
    for row in x:
        w = [row + 0.1 * h] + w[:-1]
        h = h * 0.5 + sum(w) + w[3]
    return h


def shifted_in_place(x):
    w, h = [paddle.zeros([3], x.dtype) for _ in range(4)], paddle.zeros([3], x.dtype)
    for row in x:
        w.insert(0, row + 0.1 * h)
        w.pop()
        h = h * 0.5 + sum(w) + w[3]
    return h


def window_in_a_variable(x):
    ys, h = [x[0], x[1], x[2]], x[0]
    for t in range(x.shape[0]):
        ys.append(x[t] + 0.1 * h)
        w = ys[-3:]
        h = w[0] + w[1] * 2 + w[2] * 3
    return h, paddle.stack(ys)


def slices_of_a_tensor(x):
    h = paddle.zeros([3], x.dtype)
    for t in range(4, x.shape[0]):
        h = h * 0.5 + x[t - 4 : t].sum(0) * x[t - 2 : t + 1].mean(0)
    return h


def windows_of_layers(x):
    """The list of a layer grows in place and is cut, which binds its place to another one."""
    caches, ys = [[], []], []
    for row in x:
        h = row
        for k in range(2):
            caches[k].append(h)
            caches[k] = caches[k][-3:]
            h = paddle.tanh(h * 0.5 + sum(caches[k]) / len(caches[k]))
        ys.append(h)
    return ys, caches


def states_of_all_steps(x):
    """`states[t][k]` is the state of layer k in front of step t."""
    states = [[x[0] * 0, x[0] * 0]]
    for t in range(x.shape[0]):
        h, new = x[t], []
        for k in range(2):
            h = paddle.tanh(h + (k + 1) * states[t][k])
            new.append(h)
        states.append(new)
    return [q[-1] for q in states], states[-1][0]


WINDOWS = [
    (deque_that_fills, 0), (deque_of_zeros, 0), (deque_that_is_full, 1), (two_elements_at_once, 0),
    (list_cut_when_it_is_long, 0), (list_with_del, 0), (linear_multistep, 0),
    (queue_read_from_both_ends, 2), (shifted_anew, 0), (shifted_in_place, 0),
    (window_in_a_variable, 3), (slices_of_a_tensor, 0), (windows_of_layers, 0),
    (states_of_all_steps, 1),
]  # fmt: skip


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(("f", "least"), WINDOWS)
def test_windows_are_carried(f, least):
    rolls(f, least=least)


class Multistep(paddle.nn.Layer):
    """Adams-Bashforth: the derivatives of the last steps in a deque of the Layer."""

    def __init__(self):
        super().__init__()
        self.net = paddle.nn.Linear(3, 3)
        self.past = deque(maxlen=3)

    def forward(self, x, steps):
        for _ in range(steps):
            self.past.append(paddle.tanh(self.net(x)))
            weights = [[1.0], [1.5, -0.5], [23 / 12, -16 / 12, 5 / 12]][len(self.past) - 1]
            x = x + 0.1 * sum(w * d for w, d in zip(weights, reversed(self.past)))
        return x


@pytest.mark.slow
def test_a_deque_of_a_layer_is_written_as_in_eager():
    rng, steps = np.random.default_rng(0), iter((0, 1, 2, 7, 3))
    made = lambda: (paddle.to_tensor(rng.normal(size=[2, 3]).astype("float32")), next(steps))  # noqa: E731
    check.parity(Multistep(), made, calls=5)


def test_an_array_that_a_loop_adds_to_is_another_one_in_each_iteration():
    def f(x):
        a, out = np.zeros(3), paddle.zeros([3])
        for t in range(x.shape[0]):
            a += 1
            out = out + x[t] * a[0]
        return out

    x = paddle.ones([4, 3])
    check.same(dy2st.to_static(f)(x), f(x))


@pytest.mark.slow
def test_a_multistep_solver_fills_its_outputs_and_shifts_them():
    def sample(x):
        outputs, order, y = [None] * 3, 0, x[0]
        for row in x:
            for k in range(2):
                outputs[k] = outputs[k + 1]
            outputs[-1] = paddle.tanh(y + row)
            order = min(order + 1, 3)
            if order == 1:
                d = outputs[-1]
            elif order == 2:
                d = 1.5 * outputs[-1] - 0.5 * outputs[-2]
            else:
                d = (23 * outputs[-1] - 16 * outputs[-2] + 5 * outputs[-3]) / 12
            y = y - 0.1 * d
        return y

    lines = []
    for n in (1, 2, 3, 4, 29, 30):
        static = check.agree(sample, check.data(n, 3))
        lines.append(len(str(dy2st.program(static, check.data(n, 3))).splitlines()))
    assert lines[-1] == lines[-2]


# ---------------------------------------------------------------- short caches
def cached(x, w, size, start):
    """The cache of a causal convolution, or of attention to the last steps."""
    cache, ys = start, []
    for t in range(x.shape[0]):
        new = x[t : t + 1] @ w
        cache = new if cache is None else paddle.concat([cache, new], 0)
        cache = cache[-size:]
        ys.append(paddle.tanh(cache @ x[t]).sum())
    return cache, ys


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_short_window_is_filled_in_front_of_one_loop(size, none):
    """Windows of three and four elements were filled by neither peeling nor a loop of their own."""

    def f(x, w):
        return cached(x, w, size, None if none else paddle.zeros([0, 3], x.dtype))

    w = check.data(3, 3, seed=7)
    static = check.agree(f, check.data(9, 3), w, calls=1)
    for steps in (1, 2, size, size + 1):
        x = check.data(steps, 3, seed=steps)
        check.same(static(x, w), f(x, w))
    report = str(dy2st.report(static, check.data(30, 3), w))
    assert "unrolled" not in report, report
