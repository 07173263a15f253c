"""States of layers, `hs[l]`, that an inner loop over the layers reads and stores."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

import dy2st
from ir.passes import run
from tests import check

pytestmark = pytest.mark.sampled(every=12)

N = 10


def kinds(static, *args):
    return [q.kind for q in dy2st.report(static, *args).loops]


def inputs():
    return [check.data(5, 3, 6)]


class Deep(nn.Layer):
    """A deep RNN whose layers are stepped by hand."""

    cell = nn.GRUCell

    def __init__(self):
        super().__init__()
        self.cells = nn.LayerList([type(self).cell(6, 6) for _ in range(N)])

    def forward(self, x):
        hs = [paddle.zeros([3, 6], x.dtype) for _ in range(N)]
        ys = []
        for t in range(x.shape[0]):
            y = x[t]
            for k in range(N):
                y, hs[k] = self.cells[k](y, hs[k])
            ys.append(y)
        return paddle.stack(ys)


class Final(Deep):
    """The states are read after the loops."""

    def forward(self, x):
        hs = [x[0] * k for k in range(N)]
        for t in range(x.shape[0]):
            y = x[t]
            for k, cell in enumerate(self.cells):
                hs[k], _ = cell(y, hs[k])
                y = y + hs[k]
        return hs[0] + hs[-1], paddle.stack(hs)


class Long(Deep):
    """Two lists of states."""

    cell = nn.LSTMCell

    def forward(self, x):
        hs = [paddle.zeros([3, 6], x.dtype) for _ in range(N)]
        cs = [paddle.ones([3, 6], x.dtype) for _ in range(N)]
        for t in range(x.shape[0]):
            y = x[t]
            for k in range(N):
                y, (hs[k], cs[k]) = self.cells[k](y, (hs[k], cs[k]))
        return y, paddle.stack(cs)


class Skips(Deep):
    """A layer reads the new state of the layer below it."""

    def forward(self, x):
        hs = [paddle.zeros([3, 6], x.dtype) for _ in range(N)]
        for t in range(x.shape[0]):
            hs[0] = paddle.tanh(x[t] + hs[0])
            for k in range(1, N):
                hs[k], _ = self.cells[k](hs[k - 1], hs[k])
        return hs[N - 1]


class Numbers(nn.Layer):
    """No Layers: leaks of neurons in a list of numbers."""

    def __init__(self):
        super().__init__()
        self.leaks = [0.5 + 0.04 * k for k in range(N)]

    def forward(self, x):
        vs = [paddle.zeros([3, 6], x.dtype)] * N
        for t in range(x.shape[0]):
            y = x[t]
            for k in range(N):
                vs[k] = vs[k] * self.leaks[k] + y
                y = paddle.tanh(vs[k])
        return y, vs[3]


class Stops(Deep):
    """The end of the loop over time depends on data."""

    def forward(self, x):
        hs = [paddle.zeros([3, 6], x.dtype) for _ in range(N)]
        y = x[0]
        for _ in range(40):
            for k in range(N):
                y, hs[k] = self.cells[k](y, hs[k])
            if y.abs().max() < 0.05:
                break
        return y, hs[0]


class Upper(Deep):
    """A slice of the layers is a new Layer in each step."""

    def forward(self, x):
        hs = [paddle.zeros([3, 6], x.dtype) for _ in range(N)]
        for t in range(x.shape[0]):
            hs[0], _ = self.cells[0](x[t], hs[0])
            for k, cell in enumerate(self.cells[1:], start=1):
                hs[k], _ = cell(hs[k - 1], hs[k])
        return paddle.stack(hs)


class Tuples(Deep):
    """The states are a tuple that an inner loop makes longer."""

    def forward(self, x):
        states = tuple(paddle.zeros([3, 6], x.dtype) for _ in self.cells)
        for t in range(x.shape[0]):
            y, new = x[t], ()
            for cell, h in zip(self.cells, states):
                y, _ = cell(y, h)
                new = new + (y,)
            states = new
        return states[-1], paddle.stack(states)


ONE_LOOP = (Deep, Final, Long, Skips, Numbers, Upper, Tuples)


@pytest.mark.slow
@pytest.mark.sampled(every=10)
@pytest.mark.parametrize("kind", ONE_LOOP)
def test_states_that_an_inner_loop_stores(kind):
    static = check.trains(kind, inputs)
    assert set(kinds(static, *inputs())) == {"scan"}


@pytest.mark.slow
def test_states_of_a_loop_that_data_ends():
    with check.default_dtype("float64"):
        paddle.seed(3)
        static = check.parity(Stops(), inputs, rtol=1e-9, atol=1e-9)
    assert "unrolled" not in kinds(static, *inputs())


# ---------------------------------------------------------------- others
def first_half(x):
    """Only some of the states are stored."""
    hs = [x[0] * k for k in range(20)]
    for t in range(5):
        for k in range(12):
            hs[k] = paddle.tanh(hs[k] + x[t])
    return paddle.stack(hs), hs[15]


def from_the_last(x):
    hs = [x[0] * k for k in range(12)]
    for t in range(5):
        y = x[t]
        for k in range(11, -1, -1):
            hs[k] = paddle.tanh(hs[k] + y)
            y = y * 0.5 + hs[k]
    return paddle.stack(hs)


def read_before_and_behind(x):
    hs = [x[0] * k for k in range(12)]
    out = x[0]
    for _ in range(5):
        out = out + hs[3]
        for k in range(12):
            hs[k] = hs[k] * 0.9 + out
        out = out * hs[11].mean()
        hs[2] = out
    return out, hs


def exchanged(x):
    hs = [x[0] * k for k in range(12)]
    for t in range(5):
        for k in range(12):
            hs[k] = paddle.tanh(hs[11 - k] + x[t])
    return paddle.stack(hs)


def of_other_types(x):
    hs = [x[0][: 1 + k % 2] for k in range(12)]
    for t in range(5):
        for k in range(12):
            hs[k] = hs[k] + x[t, 0]
    return hs


def stored_twice(x):
    hs = [x[0] * k for k in range(12)]
    for t in range(5):
        for k in range(12):
            hs[k] = hs[k] + x[t]
            hs[0] = hs[0] * 0.5
    return paddle.stack(hs)


def one_tensor_in_two_places(x):
    hs = [x[0] * 1 for k in range(12)]
    y = x[0]
    for t in range(5):
        for k in range(12):
            y = paddle.tanh(hs[k] + y)
            hs[k] = y
        y.add_(x[t])
    return y, hs[11], hs[0]


def appended_between(x):
    hs = [x[0] * k for k in range(12)]
    for t in range(3):
        for k in range(12):
            hs[k] = hs[k] + x[t]
        hs.append(x[t])
    return paddle.stack(hs)


FUNCTIONS = (
    first_half, from_the_last, read_before_and_behind, exchanged, of_other_types, stored_twice,
    one_tensor_in_two_places, appended_between,
)  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS)
def test_lists_of_states_are_those_of_eager(f):
    if f is of_other_types:
        check.same(dy2st.to_static(f)(*inputs()), f(*inputs()), rtol=1e-9, atol=1e-9)
        return
    static = dy2st.to_static(f)
    for k in range(2):
        one, two = [check.data(5, 3, 6, trained=False)], [check.data(5, 3, 6, trained=False)]
        want = check.observe(f, one, seed=k)
        have = check.observe(static, two, seed=k)
        if not check.both_raise(have, want, f.__name__):
            check.equal(have, want, f.__name__, objects=True, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("f", [first_half, from_the_last, read_before_and_behind])
def test_gradients_of_states(f):
    check.agree(f, check.data(5, 3, 6))


def test_layers_that_an_iteration_makes():
    def f(x):
        y, total = x[0], 0.0
        for t in range(x.shape[0]):
            y = nn.Sequential(nn.Tanh(), nn.Softmax(axis=-1))(y + x[t])
            total = total + nn.MSELoss()(y, x[t])
        return y, total

    check.agree(f, check.data(5, 3, 6))
    assert kinds(dy2st.to_static(f), *inputs()) == ["scan"]


class Spiking(nn.Layer):
    """Neurons whose potential stays at the Layer."""

    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.v = None

    def forward(self, x):
        v = 0.9 * self.v + self.linear(x)
        self.v = paddle.tanh(v)
        return v.abs() + x


class Spikes(nn.Layer):
    def __init__(self, width=128, layers=N):
        super().__init__()
        self.layers = nn.LayerList([Spiking(width) for _ in range(layers)])
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        for layer in self.layers:
            layer.v = paddle.zeros([2, 128], x.dtype)
        ys = []
        for t in range(x.shape[0]):
            y = paddle.tanh(x[t])
            for layer in self.layers:
                y = layer(y) * 0.5
            ys.append(self.out(y))
        return paddle.stack(ys), self.layers[3].v


@pytest.mark.slow
def test_stateful_layers_whose_loop_is_around_the_steps():
    static = check.trains(Spikes, lambda: [check.data(6, 2, 128)], steps=2)
    with paddle.no_grad():
        p = run(dy2st.program(static, check.data(6, 2, 128)), start_at="expand")
    assert N in [n.trip for n in p.ops if n.name == "scan"]
