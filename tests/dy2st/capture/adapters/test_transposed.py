"""Transposed convolutions against eager: no foreign op, and the same gradients."""

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)

#: channels, filters, taps, stride, padding, output_padding, groups
CASES = {
    "stride 2": (3, 2, (2, 2), 2, 0, 0, 1),
    "groups": (4, 4, (3, 4), (2, 3), (1, 2), (1, 0), 2),
    "more behind": (4, 2, (5, 1), (1, 4), (2, 0), (0, 3), 1),
    "depthwise": (4, 1, (3, 3), 2, 1, 1, 4),
    "one tap": (2, 3, (1, 1), 2, 0, 1, 1),
    "stride 1": (2, 3, (3, 3), 1, 1, 0, 1),
}


class Transposed(nn.Layer):
    def __init__(self, name):
        super().__init__()
        channels, filters, taps, *self.options = CASES[name]
        self.weight = self.create_parameter([channels, filters, *taps])

    def forward(self, x):
        stride, padding, more, groups = self.options
        return F.conv2d_transpose(x, self.weight, None, stride, padding, more, groups=groups)


@pytest.mark.parametrize("name", CASES)
def test_transposed_convolutions_are_those_of_eager(name):
    paddle.seed(3)
    layer, x = Transposed(name), check.data(2, CASES[name][0], 4, 5, dtype="float32")
    eager = layer(x)
    want = paddle.grad(eager.square().sum(), [x, layer.weight])
    static = dy2st.to_static(layer)
    have = static(x)
    assert have.numpy() == pytest.approx(eager.numpy(), abs=1e-5)
    for a, b in zip(paddle.grad(have.square().sum(), [x, layer.weight]), want):
        assert a.numpy() == pytest.approx(b.numpy(), abs=1e-4)
    assert dy2st.report(static, x).foreign_counts == {}
