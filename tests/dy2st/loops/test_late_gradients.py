"""The last element of a list that requires a gradient only once a loop has appended to it."""

from __future__ import annotations

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

import dy2st  # noqa: E402


def written_to_a_buffer(x):
    ys, out = [paddle.zeros([2, 4], "float64")], paddle.zeros([2, 5, 4], "float64")
    for t in range(5):
        out[:, t] = ys[-1] * 0.5
        ys.append(paddle.tanh(x[:, t]))
    return out


def until_data_ends_it(x):
    ys, w = [paddle.zeros([2, 4], "float64")], x[:, 0] * 1.0
    for t in range(5):
        w = w + ys[-1] * 0.5
        ys.append(x[:, t] * x[:, t])
        if x[:, t].max() > 9:
            break
    return w


def appended_to_another_list(x):
    ys, zs = [paddle.zeros([2, 4], "float64")], []
    for t in range(5):
        zs.append(ys[-1] * 0.5)
        ys.append(x[:, t] * ys[-1] + x[:, t])
    return paddle.stack(zs, 1)


def added_in_place(x):
    ys, w = [paddle.zeros([2, 4], "float64")], paddle.zeros([2, 4], "float64")
    for t in range(5):
        w.add_(ys[-1] * 0.5)
        ys.append(x[:, t] * 3)
    return w


def never(x):
    ys, w = [paddle.zeros([2, 4], "float64")], x[:, 0] * 1
    for t in range(5):
        w = w * ys[-1] + x[:, t]
        ys.append(x[:, t].detach())
    return w


CASES = [
    written_to_a_buffer,
    until_data_ends_it,
    appended_to_another_list,
    added_in_place,
    never,
]


def gradient(f, x):
    x = paddle.to_tensor(x, stop_gradient=False)
    y = f(x * 1.0)
    assert not y.stop_gradient
    (y * y + y).sum().backward()
    return y.numpy(), x.grad.numpy()


@pytest.mark.sampled
@pytest.mark.quick("written_to_a_buffer", "appended_to_another_list")
@pytest.mark.parametrize("f", CASES, ids=lambda f: f.__name__)
def test_what_is_read_from_the_end_of_a_list_passes_its_gradient(f):
    static = dy2st.to_static(f)
    rng = np.random.default_rng(0)
    for scale in (1.0, 4.0, 10.0):
        x = rng.normal(size=(2, 5, 4)) * scale
        for have, want in zip(gradient(static, x), gradient(f, x)):
            np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9)
    kinds = [
        q.kind for q in dy2st.report(static, paddle.to_tensor(x, stop_gradient=False) * 1.0).loops
    ]
    assert kinds == ["while" if f is until_data_ends_it else "scan"]


FUNCTIONS = [paddle.tanh, paddle.sin]


def while_of_one_iteration(x, limit):
    g = h = paddle.zeros([4], "float64")
    t = 0
    while t < 1 and h.max() < limit:
        g, h, t = g + h, h * 0.5 + x, t + 1
    return g, h


def while_of_other_iterations(x, limit):
    h, k = x, len(FUNCTIONS)
    while h.max() < limit and k > 0:
        k -= 1
        h = FUNCTIONS[k](h)
    return h, h * k


@pytest.mark.parametrize("f", [while_of_one_iteration, while_of_other_iterations])
def test_a_while_of_few_iterations_is_unrolled(f):
    static = dy2st.to_static(f)
    for limit in (-1.0, 0.95, 9.0):
        xs = [paddle.to_tensor([0.5, 2.0, 1.0, 1.5], "float64", stop_gradient=False) for _ in "ab"]
        runs = [run(x, paddle.to_tensor(limit)) for run, x in zip((static, f), xs)]
        for have, want in zip(*runs):
            np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-9)
        for a, b in runs:
            (a * a + b).sum().backward() if not b.stop_gradient else None
        have, want = (0 if x.grad is None else x.grad.numpy() for x in xs)
        np.testing.assert_allclose(have, np.broadcast_to(want, np.shape(have)), rtol=1e-9)
    report = dy2st.report(static, xs[0], paddle.to_tensor(9.0))
    assert [q.kind for q in report.loops] in (["unrolled"], ["written out"])
