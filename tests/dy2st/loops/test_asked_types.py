"""Tensors that have another type before a loop than in it, of which the body asks for the type.

Nothing is computed with the first tensor, but what the body does follows from its type.
"""

from __future__ import annotations

import copy

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def ndim(x):
    b, out = paddle.zeros([1], x.dtype), x[0] * 0
    for t in range(x.shape[0]):
        if b.ndim == 1:
            b = paddle.ones([2, 4], x.dtype)
        b = b * 0.5 + x[t]
        out = out + b.sum(0)
    return out


def length_of_the_shape(x):
    b, out = paddle.zeros([1], x.dtype), x[0] * 0
    for t in range(x.shape[0]):
        if len(paddle.shape(b)) == 1:
            b = paddle.zeros([2, 4], x.dtype)
        b = paddle.concat([b[1:], x[t : t + 1]])
        out = out + b.sum(0)
    return out


def length(x):
    b, out = paddle.zeros([0, 4], x.dtype), x[0] * 0
    for t in range(x.shape[0]):
        out = out * 0.5 + len(b)
        b = paddle.stack([x[t], x[t]])
    return out + b.sum(0)


def size(x):
    b, out = paddle.zeros([3], x.dtype), x[0] * 0
    for t in range(x.shape[0]):
        out = out * 0.5 + b.size
        b = x[t] * 2
    return out + b


def dtype(x):
    b, out = paddle.zeros([4], "float32"), x[0] * 0
    for t in range(x.shape[0]):
        out = out * 0.5 + (x[t] if b.dtype == paddle.float32 else x[t] * 3)
        b = x[t] * 2
    return out + b


def like(x):
    b, out = paddle.zeros([2, 4], x.dtype), x[0] * 0
    for t in range(x.shape[0]):
        out = out + paddle.ones_like(b).sum() * x[t]
        b = x[t : t + 1] * 2
    return out + b


def in_a_while(x):
    b, out, t = paddle.zeros([1], x.dtype), x[0] * 0, 0
    while out.sum() < 9 and t < 6:
        if b.shape[0] == 1:
            b = paddle.zeros([4], x.dtype)
        b = b + paddle.abs(x[0])
        out = out + b
        t += 1
    return out


FUNCTIONS = (ndim, length_of_the_shape, length, size, dtype, like, in_a_while)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [5, 2, 1])
def test_values_of_eager(f, n):
    static = check.agree(f, check.data(n, 4))
    assert "unrolled" not in str(dy2st.report(static, check.data(9, 4)))


class Buffered(nn.Layer):
    """The buffer of a causal convolution, made by the first row that comes."""

    def forward(self, x):
        self.rows = paddle.zeros([1], x.dtype)
        out = []
        for t in range(x.shape[0]):
            if len(paddle.shape(self.rows)) == 1:
                self.rows = paddle.zeros([3, 4], x.dtype)
            self.rows = paddle.concat([self.rows[1:], x[t : t + 1]])
            out.append(self.rows.sum(0))
        return paddle.stack(out)


def test_an_attribute():
    model = Buffered()
    static = dy2st.to_static(copy.deepcopy(model))
    for n in (6, 2, 1):
        x = check.data(n, 4, seed=n, trained=False)
        check.same(static(x), model(x))
        check.same(static.rows, model.rows)


def overwritten(x):
    """The type may change where nothing follows from it."""
    b = paddle.zeros([1], x.dtype)
    for t in range(x.shape[0]):
        if t >= 0:
            b = x[t] * 2
    return b


def test_a_tensor_that_is_only_overwritten_needs_no_iteration_of_its_own():
    x = check.data(5, 4)
    static = check.agree(overwritten, x)
    assert "peeled" not in str(dy2st.report(static, x))
