"""Gradients of functions that are constant almost everywhere, and through integers: as eager's.

They are zeros, not None: an optimiser with weight decay moves a parameter whose gradient is zero.
Through a cast to integers and back the gradient itself is cut to integers.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

STEPS = {
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "round": lambda x: x.round(),
    "round to a decimal": lambda x: x.round(1),
    "trunc": lambda x: x.trunc(),
    "sign": lambda x: x.sign(),
    "floor in place": lambda x: (x * 1).floor_(),
    "cast and back": lambda x: x.astype("int64").astype("float32"),
    "cast to bool and back": lambda x: x.astype("bool").astype("float32"),
    "cast times itself": lambda x: x.astype("int64").astype("float32") * x,
    "sums of integers": lambda x: (x.astype("int64") + 1).reshape([6, 2]).sum(0).astype("float32"),
    "integers as results": lambda x: (x.astype("int32"), x * 2),
    "floor_divide": lambda x: (x // 0.5, x * 2),
    "indices of topk": lambda x: paddle.topk(x, 2),
    "indices of argsort": lambda x: (x.argsort(-1), x.sort(-1)),
    "indices of cummax": lambda x: paddle.cummax(x, 1),
    "several integers": lambda x: (*x.topk(2), *x.topk(2, axis=0), x.argsort(0)),
    "an index": lambda x: paddle.arange(8.0)[x.astype("int64").abs()],
    "a condition": lambda x: paddle.where(x.astype("bool"), 1.0, 2.0),
}


def given():
    values = np.random.default_rng(3).uniform(-3, 3, [3, 4]).astype("float32")
    return paddle.to_tensor(values, stop_gradient=False)


@pytest.mark.sampled
@pytest.mark.quick(
    "ceil", "round", "round to a decimal", "trunc", "sign", "cast and back", "indices of topk"
)
@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_those_of_eager(name):
    f = STEPS[name]
    static = dy2st.to_static(f)
    for _ in range(2):
        one, two = given(), given()
        want, (wanted,) = check.step(f, [one], [one])
        have, (had,) = check.step(static, [two], [two])
        check.same(have, want)
        assert (had is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_allclose(had, wanted, rtol=1e-6)


class Quantised(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.scale = self.create_parameter([4])
        self.bias = self.create_parameter([4])

    def forward(self, x):
        return x * self.bias + paddle.round(self.scale * 3)


def test_weight_decay_moves_what_is_rounded():
    moved = []
    for translate in (lambda layer: layer, dy2st.to_static):
        paddle.seed(1)
        layer = translate(Quantised())
        with paddle.no_grad():
            layer.scale.set_value(paddle.to_tensor([0.3, -0.4, 0.9, 1.2]))
        adam = paddle.optimizer.AdamW(0.1, parameters=layer.parameters(), weight_decay=0.5)
        for _ in range(3):
            layer(paddle.ones([2, 4])).sum().backward()
            adam.step()
            adam.clear_grad()
        moved.append(layer.scale.numpy())
    np.testing.assert_allclose(moved[1], moved[0], rtol=1e-6)
    assert moved[0][3] < 1.2
