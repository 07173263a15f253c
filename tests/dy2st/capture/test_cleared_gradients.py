"""`clear_gradient` inside of a translated function acts on every call."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check


class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(3)
        self.parts = paddle.nn.LayerList([paddle.nn.Linear(3, 3) for _ in range(9)])
        self.parts[2].weight.stop_gradient = True
        self.adam = paddle.optimizer.SGD(0.1, parameters=self.parts.parameters())

    def forward(self, x, how):
        h = x
        for part in self.parts:
            h = paddle.tanh(part(h))
        how(self, x, h)
        return h.sum()


def of_a_parameter(model, x, h):
    model.parts[0].weight.clear_gradient()


def of_an_argument(model, x, h):
    x.clear_grad()
    h.clear_gradient()


def to_none(model, x, h):
    model.parts[0].weight.clear_gradient(False)
    model.parts[0].weight.clear_gradient()
    model.parts[0].bias.clear_gradient(set_to_zero=False)  # Paddle sets it to zero


def of_a_layer(model, x, h):
    model.clear_gradients()


def of_an_optimiser(model, x, h):
    model.adam.clear_grad(set_to_zero=False)


def behind_an_error(model, x, h):
    if x.sum() > 30:
        raise ValueError("too large")
    model.parts[0].weight.clear_gradient()


def in_front_of_an_error(model, x, h):
    model.parts[0].weight.clear_gradient()
    if x.sum() > 30:
        raise ValueError("too large")


ALL = [
    of_a_parameter, of_an_argument, to_none, of_a_layer, of_an_optimiser, behind_an_error,
    in_front_of_an_error,
]  # fmt: skip


@pytest.mark.parametrize("how", ALL)
def test_as_eager(how):
    def run(translated):
        model, seen = Model(), []
        call = dy2st.to_static(model.forward) if translated else model.forward
        x = paddle.ones([2, 3])
        x.stop_gradient = False
        for k in range(3):
            if k == 2:
                with paddle.no_grad():
                    x += 9
            try:
                loss = call(x, how)
                seen.append([q.grad for q in (x, *model.parameters())])
                loss.backward()
            except ValueError as e:
                seen.append(str(e))
            seen += [None if (g := q.grad) is None else g.clone() for q in (x, *model.parameters())]
        return seen

    check.same(run(True), run(False), rtol=1e-5, atol=1e-6)


def test_refused_where_data_decides():
    p = paddle.create_parameter([3], "float32")

    @dy2st.to_static
    def f(x):
        if x.sum() > 0:
            p.clear_gradient()
        return p * x

    with pytest.raises(dy2st.SourceError, match="gradient of p is cleared in a branch on data"):
        f(paddle.ones([3]))


def test_a_host_function_that_reads_the_gradient():
    p = paddle.create_parameter([3], "float32")

    @dy2st.host
    def total() -> float:
        return float(p.grad.sum())

    def before(x):
        n = total()
        p.clear_gradient()
        return (p * x).sum() * n

    def behind(x):
        p.clear_gradient()
        return (p * x).sum() * total()

    (p * 2).sum().backward()
    static = dy2st.to_static(before)
    static(paddle.ones([3])).backward()
    assert p.grad.tolist() == [6, 6, 6]
    with pytest.raises(dy2st.SourceError, match="may read the tensor p, which the function chang"):
        dy2st.to_static(behind)(paddle.ones([3]))
