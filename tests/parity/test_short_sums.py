"""Sums of few elements are those of eager to the last bit: both add one element after the other."""

from __future__ import annotations

import numpy as np
import paddle

import dy2st


def sums(x):
    return x.sum(), x.sum(-1), x.mean(-1), (x * 1.5 + 0.25).sum(-1), x[0].sum()


def test_rows_of_up_to_seven_elements():
    static = dy2st.to_static(sums)
    for n in range(1, 8):
        for seed in range(4):
            x = paddle.to_tensor(np.random.default_rng([n, seed]).normal(size=[1, n]), "float32")
            for have, want in zip(static(x), sums(x), strict=True):
                np.testing.assert_array_equal(have.numpy(), want.numpy())
