"""Arguments that the caller gives up: `to_static(..., donate=("x",))`."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st


def fill(x, rows):
    y = x.clone()
    for t in range(rows.shape[0]):
        y[2 * t] = rows[t]
    return y.exp().sum(0)


def smooth(x, rows):
    for _ in range(3):
        x = paddle.tanh(x + rows.mean())
    return x.max()


def make(rows=16):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (rows, 4)), rng.uniform(-1, 1, (5, 4))
    return paddle.to_tensor(x.astype("float32")), paddle.to_tensor(y.astype("float32"))


def arena(static, *args):
    run = static.entry(*args).executable
    return run.layout.bytes({})


@pytest.mark.parametrize("function", [fill, smooth])
def test_a_donated_argument_lends_its_memory(function, monkeypatch):
    """The same results with a smaller arena; in poison mode what was given is NaN afterwards."""
    monkeypatch.setenv("DY2ST_POISON", "1")
    with paddle.no_grad():
        plain, given = dy2st.to_static(function), dy2st.to_static(function, donate=("x",))
        for _ in range(3):
            (x, rows), want = make(), function(*make())
            version = x.inplace_version
            np.testing.assert_allclose(given(x, rows).numpy(), want.numpy(), rtol=1e-6)
            assert np.isnan(x.numpy()).all() and x.inplace_version > version
            np.testing.assert_array_equal(rows.numpy(), make()[1].numpy())
        assert arena(given, *make()) + 128 <= arena(plain, *make())
        assert given.entry(*make()).executable.copies == ()


def test_a_backward_pass_that_reads_a_donated_argument_raises():
    given = dy2st.to_static(smooth, donate=("x",))
    x, rows = make()
    x.stop_gradient = False
    loss = (paddle.tanh(x) * x).sum()
    with paddle.no_grad():
        given(x, rows)
    with pytest.raises(RuntimeError, match="version"):
        loss.backward()


def returned(x, rows):
    x2 = x * 2
    return x, x2 + rows.sum()


def part(x, rows):
    return x[1:], (x * 2).exp() + rows.sum()


def chosen(x, rows):
    y = x if rows.sum() > 100 else x * 2
    return y, (x + 1).exp()


class Keeps(paddle.nn.Layer):
    def forward(self, x, rows):
        self.kept = x
        return (x * 2).exp() + rows.sum()


@pytest.mark.parametrize("function", [returned, part, chosen, Keeps().forward])
def test_what_is_given_back_is_not_taken(function):
    """The argument, or a view of it, is a result or an attribute: it stays as it was."""
    given = dy2st.to_static(function, donate=("x",))
    with paddle.no_grad():
        x, rows = make()
        before = x.numpy().copy()
        given(x, rows)
        assert given.entry(x, rows).executable.donated == frozenset()
    np.testing.assert_array_equal(x.numpy(), before)


def test_memory_that_is_shared_is_not_taken():
    given = dy2st.to_static(fill, donate=("x",))
    with paddle.no_grad():
        for shared in (False, True):
            x, rows = make()
            rows = x[:5] if shared else rows
            before, want = x.numpy().copy(), fill(x, rows).numpy()
            np.testing.assert_allclose(given(x, rows).numpy(), want, rtol=1e-6)
            assert np.array_equal(x.numpy(), before) == shared


def test_with_gradients_nothing_is_taken():
    given = dy2st.to_static(smooth, donate=("x",))
    (x, rows), (y, _) = make(), make()
    x.stop_gradient = y.stop_gradient = False
    given(x, rows).backward()
    smooth(y, rows).backward()
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_names_are_checked():
    with pytest.raises(
        ValueError, match=r"donate names 'z', but the function has only \(x, rows\)"
    ):
        dy2st.to_static(fill, donate=("z",))
    with pytest.raises(TypeError, match="a tuple of parameter names"):
        dy2st.to_static(fill, donate="x")
    layer = dy2st.to_static(Keeps(), donate=("rows",))
    with paddle.no_grad():
        x, rows = make()
        layer(x, rows)
        assert layer.forward.entry(x, rows).executable.donated == {1}
