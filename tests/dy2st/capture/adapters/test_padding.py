"""`F.pad` as slices and joins, against eager: no foreign op."""

import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check

CASES = {
    "constant": lambda x: F.pad(x, [2, 1], value=0.5, data_format="NCL"),
    "every axis": lambda x: F.pad(x, [0, 1, 2, 0, 1, 1], value=-1.0),
    "reflect": lambda x: F.pad(x, [3, 2], mode="reflect", data_format="NCL"),
    "replicate": lambda x: F.pad(x, [0, 2], mode="replicate", data_format="NCL"),
    "channels last": lambda x: F.pad(x, [1, 2], mode="reflect", data_format="NLC"),
    "nothing": lambda x: F.pad(x, [0, 0], data_format="NCL"),
    "planes": lambda x: F.pad(x.unsqueeze(0), [1, 2, 3, 1], mode="replicate"),
}


class Padding(paddle.nn.Layer):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return CASES[self.name](x * 2)


@pytest.mark.parametrize("name", CASES)
def test_padding_is_that_of_eager(name):
    static = check.parity(Padding(name), lambda: [check.data(2, 4, 5, dtype="float32")])
    x = check.data(2, 4, 5, dtype="float32")
    assert dy2st.report(static, x).foreign_counts == {}
    (have,), (want,) = (paddle.grad(f(x).square().sum(), [x]) for f in (static, Padding(name)))
    assert have.numpy() == pytest.approx(want.numpy(), abs=1e-5)


def test_padding_of_an_open_axis():
    g = dy2st.to_static(CASES["reflect"], input_spec=[InputSpec([2, 4, None], "float32", "x")])
    for n in (4, 9):
        x = paddle.randn([2, 4, n])
        assert g(x).equal_all(CASES["reflect"](x))
