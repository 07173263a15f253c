"""Paddle's kernels on tensors whose size follows the index of a loop: the loop stays one loop."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from tests import check

names = {"ids": lambda f: f.__name__}


def dropped_attention(x):
    out = x[:1] * 0
    for t in range(x.shape[0]):
        a = F.softmax(x[t : t + 1] @ x[: t + 1].T, -1)
        out = out + F.dropout(a, 0.3, training=True) @ x[: t + 1]
    return out


def weights_drawn(x):
    total = x[0] * 0
    for t in range(x.shape[0]):
        weights = paddle.rand([t + 1], "float64") + paddle.randn([2, t + 1], "float64").sum(0)
        total = total + weights @ x[: t + 1]
    return total


def largest(x):
    total = x[:1] * 0
    for t in range(x.shape[0]):
        values, places = paddle.topk(x[: t + 1], 1, axis=0)
        total = total + values * places.astype("float64")
    return total


def one_chosen(x):
    total = x[:1] * 0
    for t in range(1, x.shape[0]):
        scores = paddle.lgamma(x[: t + 1].abs() + 0.5)
        total = total + F.gumbel_softmax(scores[:, :2], hard=True).sum() + scores.sum()
    return total


def sampled(x):
    ids = paddle.ones([1, 1], "int64")
    for t in range(x.shape[0]):
        weights = F.softmax(ids.astype("float64") * 0.1, -1)
        ids = paddle.concat([ids, paddle.multinomial(weights, 1) + t], 1)
    return ids


FUNCTIONS = (dropped_attention, weights_drawn, largest, one_chosen, sampled)


@pytest.mark.parametrize("f", FUNCTIONS, **names)
@pytest.mark.parametrize("no_grad", [False, True])
def test_values_and_draws(f, no_grad):
    static = dy2st.to_static(f)
    for n in (1, 2, 7, 30, 7):
        x = check.data(n, 4, seed=n)
        x.stop_gradient = not no_grad
        with paddle.set_grad_enabled(not no_grad):
            want, have = (check.observe(g, [x.clone()], seed=3) for g in (f, static))
            check.equal(have, want, f"n = {n}", rtol=1e-9, atol=1e-9)
            loops = dy2st.report(static, x).loops
            assert n <= 2 or [q.kind for q in loops] == ["scan"], loops


def test_a_loop_of_no_iterations():
    x = paddle.zeros([0, 4], "float64")
    want, have = (check.observe(g, [x], seed=3) for g in (sampled, dy2st.to_static(sampled)))
    check.equal(have, want)


def test_programs_do_not_grow_with_the_length():
    static, lines = dy2st.to_static(dropped_attention), []
    for n in (20, 500):
        x = check.data(n, 4)
        x.stop_gradient = True
        lines.append(len(str(dy2st.program(static, x)).splitlines()))
    assert lines[0] == lines[1]


def test_gradients_are_those_of_eager():
    """With a gradient, the loop is unrolled."""
    static = dy2st.to_static(largest)
    x = check.data(5, 4)
    (want, dx), (have, dy) = (check.step(q, [q_x := check.detached(x)], [q_x])
                              for q in (largest, static))  # fmt: skip
    check.same(have, want, rtol=1e-9, atol=1e-9)
    check.close(dy[0], dx[0], 1e-9, "gradient")
