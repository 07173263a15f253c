"""Buffers of Layers that a loop over the Layers writes in place: running statistics, counters."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=48)

N = 20


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.BatchNorm1D(6)
        self.register_buffer("calls", paddle.zeros([], "int64"))
        self.register_buffer("seen", paddle.ones([6]))

    def forward(self, x):
        return x + paddle.tanh(self.norm(self.inner(x)))


class Net(nn.Layer):
    def __init__(self, body):
        super().__init__()
        self.blocks, self.body = nn.LayerList([Block() for _ in range(N)]), body

    def forward(self, x):
        return self.body(self, x)


def running(net, x):
    for block in net.blocks:
        x = block(x)
    return x


def backwards(net, x):
    for i in reversed(range(N)):
        x = net.blocks[i](x)
    return x


def both_ways(net, x):
    for a, b in zip(net.blocks, reversed(net.blocks)):
        x = a(x) + b(x)
    return x


def twice(net, x):
    for block in net.blocks:
        x = block(x)
    for block in net.blocks:
        x = block(x) * block.norm._mean
    return x


def counted(net, x):
    for block in net.blocks:
        block.calls.add_(paddle.ones([], "int64"))
        x = x * (block.calls.astype(x.dtype) + 1) / 2
    return x, net.blocks[3].calls + 0


def written_and_rebound(net, x):
    for block in net.blocks:
        block.calls.add_(paddle.ones([], "int64"))
        block.seen = block.seen * 0.9 + x.mean(0).detach()
        x = x * block.seen + block.calls.astype(x.dtype)
    return x


def through_a_view(net, x):
    for block in net.blocks:
        part = block.seen[1:3]
        part.add_(paddle.ones([2]))
        x = x * block.seen
    return x


def two_at_once(net, x):
    for i in range(N):
        net.blocks[i].seen.add_(net.blocks[N - 1 - i].seen)
        x = x * 0.9 + net.blocks[i].seen
    return x


def before_and_after(net, x):
    ys = []
    for block in net.blocks:
        ys.append(block.norm._mean * 1)
        x = block(x)
        ys.append(block.norm._mean * 1)
    net.blocks[2].norm._mean.add_(paddle.ones([6]))
    return x + net.blocks[2].norm._mean, paddle.stack(ys)


def until_data_ends_it(net, x):
    for block in net.blocks:
        x = block(x)
        if x.abs().max() > 2.5:
            break
    return x


def one_layer_many_times(net, x):
    for block in [net.blocks[0]] * N:
        x = block(x)
    return x


def some_of_them(net, x):
    for i in range(1, N - 1):
        x = net.blocks[i](x)
    return x


def each_second(net, x):
    for i in range(N - 1, 0, -2):
        x = net.blocks[i](x) * net.blocks[i - 1].seen
    return x


ROLLED = (
    running, backwards, both_ways, twice, counted, written_and_rebound, through_a_view, two_at_once,
    before_and_after, until_data_ends_it, one_layer_many_times, some_of_them, each_second,
)  # fmt: skip


def one_by_its_number(net, x):
    for block in net.blocks:
        x = block(x) + net.blocks[0].norm._mean
    return x


def the_one_before(net, x):
    for i in range(1, N):
        net.blocks[i].seen.add_(net.blocks[i - 1].seen)
        x = x * 0.9 + net.blocks[i].seen
    return x


def by_another_list(net, x):
    seen = [block.seen for block in net.blocks]
    for i in range(N):
        net.blocks[i].seen.add_(x.mean(0).detach())
        x = x * seen[i] * 0.5 + seen[N - 1 - i]
    return x


def collected(net, x):
    ys = []
    for block in net.blocks:
        x = block(x)
        ys.append(block.norm._mean)
    return x, ys


WRITTEN_OUT = (one_by_its_number, the_one_before, by_another_list, collected)


def inputs():
    return [check.data(5, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("body", (*ROLLED, *WRITTEN_OUT), ids=lambda f: f.__name__)
def test_as_eager(body):
    """Results and all buffers, in several calls; training and, after these, not."""
    with check.default_dtype("float64"):
        paddle.seed(3)
        static = check.parity(Net(body), inputs, rtol=1e-9, atol=1e-9)
        kinds = {q.kind for q in dy2st.report(static, *inputs()).loops}
        assert ("written out" in kinds) == (body in WRITTEN_OUT), kinds
        static.eval()
        eager = Net(body)
        eager.set_state_dict(static.state_dict())
        eager.eval()
        check.same(static(*inputs()), eager(*inputs()), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", (running, written_and_rebound, some_of_them, each_second), ids=lambda f: f.__name__
)
def test_training(body):
    """Layers that the loop leaves out get no gradient."""
    check.trains(lambda: Net(body), lambda: [check.data(5, 6, trained=True)])


def test_the_loop_is_as_long_for_more_layers():
    """Of each buffer only the copies in front of the loop and behind it are written out."""
    with check.default_dtype("float64"):
        static = dy2st.to_static(Net(running))
    assert str(dy2st.program(static, *inputs())).count("tanh(") == 1
