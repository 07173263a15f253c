"""Gradients of Paddle's kernels that their results give: as eager's, and without the kernel."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st
from tests import check


def solve(a, b):
    return paddle.linalg.solve(a, b)


def inverse(a, b):
    return paddle.linalg.inv(a) @ b


def filtered(a, b):
    """A Kalman filter's gain, step by step."""
    p = a
    for t in range(3):
        s = paddle.matmul(p, p, transpose_y=True) + a * (t + 1)
        p = paddle.linalg.solve(s, p) + paddle.linalg.inv(s)
    return p @ b


def regular(*shape):
    """Matrices that are well conditioned."""
    a = np.random.default_rng(3).normal(size=shape) + 5 * np.eye(shape[-1])
    return paddle.to_tensor(a, stop_gradient=False)


PLAIN = ([4, 4], [4, 2]), ([3, 4, 4], [3, 4, 2]), ([2, 3, 1, 1], [2, 3, 1, 5])
#: the gradient sums over what is broadcast, or a vector is solved for: Paddle's kernel does it
OTHERS = ([4, 4], [4]), ([4, 4], [3, 4, 2]), ([3, 4, 4], [1, 4, 2])


@pytest.mark.parametrize("f", [solve, inverse, filtered])
@pytest.mark.parametrize("shapes", PLAIN, ids=str)
def test_gradients_without_the_kernel(f, shapes):
    args = regular(*shapes[0]), check.data(*shapes[1])
    check.agree(f, *args)
    text = str(dy2st.program(dy2st.to_static(f), *args))
    assert "foreign(" in text and "backward of" not in text


def test_the_gradient_of_one_operand():
    """In eager, Paddle's kernel ends the process where one of them asks for none."""
    a, b = regular(4, 4), check.data(4, 2)
    solve(a, b).sum().backward()
    found = paddle.grad(dy2st.to_static(solve)(a.detach(), b).sum(), [b])[0]
    check.close(found, b.grad, 1e-12, "the gradient of b")


@pytest.mark.parametrize("shapes", OTHERS, ids=str)
def test_gradients_by_the_kernel(shapes):
    args = regular(*shapes[0]), check.data(*shapes[1])
    try:
        solve(*args)
    except ValueError:
        with pytest.raises(ValueError):
            dy2st.to_static(solve)(*args)
        return
    check.agree(solve, *args)


def test_a_singular_matrix_raises_as_in_eager():
    args = paddle.zeros([3, 3]), paddle.ones([3, 1])
    args[0].stop_gradient = False
    for f in (solve, inverse):
        with pytest.raises(Exception) as eager:  # noqa: PT011
            f(*args)
        with pytest.raises(type(eager.value)):
            dy2st.to_static(f)(*args)
