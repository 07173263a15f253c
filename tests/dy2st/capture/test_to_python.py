"""`x.numpy()` and `x.tolist()` inside of a function: the numbers of eager."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check


def matrix(seed=0, rows=4):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=[rows, 3]).astype("float32"))


def scaled(x):
    return x * float(x.mean().numpy()) + int((x[0] * 10).sum().numpy())


def first_of_the_loss(x):
    loss = (x * x).mean().reshape([1])
    if loss.numpy()[0] > 0.5:
        return x / loss.numpy()[0]
    return x


def changed_copy(x):
    a = x.numpy()
    a[0] = 0
    return paddle.to_tensor(a) + x, x


def numbers(x):
    values = x[0].tolist()
    return max(values), sum(values), sorted(values)[0], x.tolist()[1][2], len(values)


def lengths(x):
    """Sequence lengths, as models of speech take them."""
    out = []
    for n, row in zip((x.abs().sum(1) * 2).cast("int64").tolist(), x):
        out.append(row * n if n > 2 else row)
    return paddle.stack(out)


def reduced(x):
    a = x.numpy()
    if a.max() > 1.5 or (a > 0).all():
        x = x * 2
    return x * float(a.mean()) + a.sum(axis=0), int(a[0].argmax()), int((a > 0).sum())


def flags(x):
    return [q for q in (x[0] > 0).tolist()], (x > 0).sum().item()


@pytest.mark.parametrize(
    "f", [scaled, first_of_the_loss, changed_copy, numbers, lengths, flags, reduced]
)
def test_values_of_eager(f):
    static = dy2st.to_static(f)
    for seed in range(4):
        check.same(static(matrix(seed)), f(matrix(seed)), what=f"seed {seed}")


def long_list(x):
    total = 0.0
    for v in x[:, 0].tolist():
        total = total * 0.5 + v
    return total


@pytest.mark.parametrize("spec", [None, [InputSpec([None, 3], "float32")]])
def test_a_long_list_is_one_loop(spec):
    static = dy2st.to_static(long_list, spec)
    for rows in (40, 50):
        check.same(static(matrix(0, rows)), long_list(matrix(0, rows)), what=f"{rows} rows")
    assert "unrolled" not in str(static.report(matrix(0, 40)))


def test_no_gradient_passes():
    def f(x):
        return x * float(x.sum().numpy()) + paddle.to_tensor(x.numpy())

    check.agree(f, check.data(4, 3))


def as_often_as_a_float(x):
    for t in range(x.sum()):
        x = x + t
    return x


def test_a_float_tensor_is_the_bound_of_a_range():
    """Eager takes it without its fraction."""
    static = dy2st.to_static(as_often_as_a_float)
    for value in (2.9, 0.3, -1.5, 7.0):
        x = paddle.to_tensor([value])
        check.same(static(x), as_often_as_a_float(x))
