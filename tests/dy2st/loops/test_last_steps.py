"""Results of a loop of which only the last steps are read have memory for these steps."""

from __future__ import annotations

import paddle
import pytest
from paddle.static import InputSpec

from tests.check import agree, data, parity

pytestmark = pytest.mark.sampled(every=12)


class Steps(paddle.nn.Layer):
    """A state for each row of `x`; `read` says what of the list of states is returned."""

    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, x):
        h, ys = paddle.zeros([4], x.dtype), []
        for row in x:
            h = paddle.tanh(h + row)
            ys.append(h)
        return self.read(ys)


READS = {
    "window": lambda ys: paddle.stack(ys[-3:]),
    "window_of_a_stack": lambda ys: paddle.stack(ys, 1)[:, -3:],
    "two": lambda ys: ys[-1] + 2 * ys[-2],
    "part_of_a_window": lambda ys: paddle.stack(ys)[-4:-1].sum(0),
    "backwards": lambda ys: paddle.flip(paddle.stack(ys), [0])[:3],
    "tests": lambda ys: paddle.stack(ys[-2:]) > 0,
}


def arena(layer, x):
    return layer.forward.entry(x).executable.layout.bytes({"x_0": x.shape[0]})


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", READS)
def test_memory_is_that_of_the_steps(name):
    static = parity(Steps(READS[name]), lambda: [data(40, 4, trained=False)])
    short, long = (paddle.randn([n, 4]) for n in (50, 500))
    with paddle.no_grad():
        static(short), static(long)
    assert arena(static, long) == arena(static, short) < 1024
    agree(Steps(READS[name]).forward, data(7, 4))


def test_any_length():
    spec = [InputSpec([None, 4], "float32")]
    for n in (3, 4, 30):
        parity(Steps(READS["window"]), lambda n=n: [paddle.randn([n, 4])], input_spec=spec)
