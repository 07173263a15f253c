"""Paddle's kernels on tensors whose size follows the index of a loop: the loop stays one loop."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

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


def triangles(x):
    total = x[0].sum() * 0
    for t in range(x.shape[0]):
        mask = paddle.triu(paddle.full([2, t + 2], -1e9, "float64"), t + 1)
        weights = F.softmax(mask + paddle.tril(x[:2, :1] * x[0, :1], -t), -1)
        few = paddle.tril(paddle.ones([3, 4], "bool"), int((x[t] > 0).sum()) - 2)
        total = total + weights[0].max() + x[: t + 1].triu(1 - t).sum() + few.sum()
    return total


FUNCTIONS = (triangles, dropped_attention, weights_drawn, largest, one_chosen, sampled)


@pytest.mark.sampled(every=10)
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


# ---------------------------------------------------------------- gradients
def kernels_of_two_axes(x):
    h = x[0]
    for t in range(x.shape[0]):
        rows = x[: t + 1] * h
        weights = F.dropout(rows @ rows.T, 0.3)
        h = h * 0.5 + (weights @ rows).mean(0) * paddle.logsumexp(rows, 0)
    return h


def kernels_under_a_condition(x):
    """Where the condition does not hold, the slice has a negative length."""
    h = x[0]
    for t in range(x.shape[0]):
        if t > 2:
            rows = paddle.exp(x[: t - 2] * h)
            rows = F.dropout(rows, 0.3) * paddle.sort(x[: t - 2], 0)
            h = h * 0.9 + (rows * rows).sum(0) * 0.01
        h = h * x[t]
    return h


def kernels_in_two_loops(x):
    h = x[0]
    for t in range(x.shape[0]):
        for j in range(t):
            rows = F.dropout(x[j : t + 1] * h, 0.3)
            h = h * 0.9 + (rows * rows).sum(0) * 0.01
    return h


def kernels_on_a_cache(x):
    keys, h = x[:1], x[0]
    while keys.abs().sum() < 20:
        weights = F.dropout(F.softmax(keys @ h), 0.2)
        h = paddle.tanh(weights @ paddle.sort(keys, 0) + h)
        keys = paddle.concat([keys, (h * x[-1] + 1).unsqueeze(0)])
    return h, keys


def kernels_on_rows_that_end_before_the_last(x):
    h = x[0]
    for t in range(1, x.shape[0]):
        h = paddle.tanh(h + paddle.logsumexp(x[: x.shape[0] - t] * h, 0))
        if t > 5:
            h = h + paddle.sort(x[: t - 5] * h, 0)[0]
    return h


KERNELS = (
    kernels_on_rows_that_end_before_the_last,
    kernels_of_two_axes,
    kernels_under_a_condition,
    kernels_in_two_loops,
    kernels_on_a_cache,
)


@pytest.mark.slow
@pytest.mark.sampled(every=10)
@pytest.mark.parametrize(
    "f", [*KERNELS, triangles, dropped_attention, weights_drawn, largest, one_chosen], **names
)
def test_gradients_are_those_of_eager(f):
    open_ = dy2st.to_static(f, input_spec=[InputSpec([None, 4], "float64")])
    fixed = dy2st.to_static(f)
    for static, n in ((fixed, 7), (open_, 7), (open_, 1), (open_, 2), (open_, 4)):
        x, y = check.data(n, 4, seed=n), check.data(n, 4, seed=n)
        found = []
        for g, q in ((f, x), (static, y)):
            paddle.seed(n)
            found.append((*check.step(g, [q], [q]), paddle.rand([2])))
        (want, dx, tail), (have, dy, end) = found
        check.same([have, end], [want, tail], rtol=1e-9, atol=1e-9)
        check.close(dy[0], dx[0], 1e-9, "gradient")
    assert not any(q.kind == "unrolled" for q in dy2st.report(fixed, check.data(7, 4)).loops)
