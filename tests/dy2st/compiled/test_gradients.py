"""Training translated models: results, all gradients and SGD steps equal eager's."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.autograd import PyLayer

import dy2st
import executor
from tests.check import data, default_dtype, trains
from tests.parity.models import recurrent

pytestmark = pytest.mark.sampled

LENGTHS = [0, 1, 7]


class HandGRU(nn.Layer):
    """Gates by hand, the state starts as zeros."""

    def __init__(self, features=3, hidden=5):
        super().__init__()
        self.x = nn.Linear(features, 3 * hidden)
        self.h = nn.Linear(hidden, 3 * hidden)
        self.hidden = hidden

    def forward(self, x):
        h = paddle.zeros([x.shape[0], self.hidden])
        ys = []
        for t in range(x.shape[1]):
            r, z, n = paddle.split(self.x(x[:, t]), 3, axis=-1)
            rh, zh, nh = paddle.split(self.h(h), 3, axis=-1)
            z = F.sigmoid(z + zh)
            n = paddle.tanh(n + F.sigmoid(r + rh) * nh)
            h = (1 - z) * n + z * h
            ys.append(h)
        return ys, h


class Surrogate(PyLayer):
    """A step whose gradient is that of a fast sigmoid."""

    @staticmethod
    def forward(ctx, v, slope):
        ctx.save_for_backward(v)
        ctx.slope = slope
        return (v > 0).astype(v.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (v,) = ctx.saved_tensor()
        return gradient / (1 + ctx.slope * paddle.abs(v)) ** 2


class SpikingLIF(nn.Layer):
    def __init__(self, features=3, hidden=5):
        super().__init__()
        self.input = nn.Linear(features, hidden)
        self.leak = self.create_parameter([hidden])

    def forward(self, x):
        v = paddle.zeros([x.shape[0], 5])
        spikes = []
        for t in range(x.shape[1]):
            v = v * F.sigmoid(self.leak) + self.input(x[:, t])
            s = Surrogate.apply(v - 0.3, 2.0)
            v = v - s * 0.3
            spikes.append(s)
        return spikes, v


class SSM(nn.Layer):
    """A diagonal recurrence that fills a tensor in place."""

    def __init__(self, channels=3, state=4):
        super().__init__()
        self.log_a = self.create_parameter([channels, state])
        self.b = self.create_parameter([channels, state])
        self.c = self.create_parameter([channels, state])

    def forward(self, x):
        a = paddle.exp(-paddle.exp(self.log_a))
        s = paddle.zeros([x.shape[0], 3, 4])
        y = paddle.zeros([x.shape[0], x.shape[1], 3])
        for t in range(x.shape[1]):
            s = s * a + self.b * x[:, t].unsqueeze(-1)
            y[:, t] = (s * self.c).sum(-1)
        return y


class ConvLSTM(nn.Layer):
    """Its convolution is a product of shifted copies, written by hand."""

    def __init__(self, channels=2, hidden=2):
        super().__init__()
        self.w = self.create_parameter([3, 3, channels + hidden, 4 * hidden])
        self.b = self.create_parameter([4 * hidden], is_bias=True)
        self.hidden = hidden

    def conv(self, x):
        padded = F.pad(x, [0, 0, 1, 1, 1, 1, 0, 0])
        total = self.b
        for i in range(3):
            for j in range(3):
                total = total + paddle.matmul(
                    padded[:, i : i + x.shape[1], j : j + x.shape[2]], self.w[i, j]
                )
        return total

    def forward(self, x):
        batch, steps, height, width, _ = x.shape
        h = paddle.zeros([batch, height, width, self.hidden])
        c = paddle.zeros([batch, height, width, self.hidden])
        for t in range(steps):
            gates = self.conv(paddle.concat([x[:, t], h], axis=-1))
            i, f, g, o = paddle.split(gates, 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
        return h, c


class CRF(nn.Layer):
    """The negative log-likelihood of a chain: forward algorithm minus the score of the tags."""

    def __init__(self, features=3, tags=4):
        super().__init__()
        self.emit = nn.Linear(features, tags)
        self.move = self.create_parameter([tags, tags])
        self.start = self.create_parameter([tags])

    def forward(self, x, tags):
        e = self.emit(x)
        alpha = self.start + e[:, 0]
        score = (F.one_hot(tags[:, 0], 4).astype(x.dtype) * alpha).sum(-1)
        for t in range(1, x.shape[1]):
            alpha = paddle.logsumexp(alpha.unsqueeze(-1) + self.move, axis=1) + e[:, t]
            here = F.one_hot(tags[:, t], 4).astype(x.dtype)
            before = F.one_hot(tags[:, t - 1], 4).astype(x.dtype)
            score = score + (here * (paddle.matmul(before, self.move) + e[:, t])).sum(-1)
        return paddle.logsumexp(alpha, axis=-1) - score


class AttentionDecoder(nn.Layer):
    """Each step looks at all inputs."""

    def __init__(self, features=3, hidden=4):
        super().__init__()
        self.keys = nn.Linear(features, hidden)
        self.cell = nn.GRUCell(features, hidden)
        self.start = self.create_parameter([hidden])

    def forward(self, x):
        keys = self.keys(x)
        h = self.start.expand([x.shape[0], 4])
        ys = []
        for _ in range(3):
            scores = (keys * h.unsqueeze(1)).sum(-1)
            context = (F.softmax(scores, axis=-1).unsqueeze(-1) * x).sum(1)
            y, h = self.cell(context, h)
            ys.append(y)
        return paddle.stack(ys, 1)


class Breaks(nn.Layer):
    """The loop ends when the data says so."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(3, 3)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 3])
        for t in range(x.shape[1]):
            h = paddle.tanh(self.cell(h) + x[:, t])
            if h.mean() > 0.2:
                break
            h = h + 0.1
        return h


class Halving(nn.Layer):
    """A `while` on data, with a branch on data inside."""

    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([3, 3])

    def forward(self, x):
        h = x.sum(1) * 3.0
        while paddle.abs(h).max() > 0.5:
            h = paddle.matmul(h, self.w) * 0.3
            if h.sum() > 0:
                h = h * 0.7
            else:
                h = h * 0.9 + 0.01 * paddle.tanh(x.sum(1))
        return h


class Nested(nn.Layer):
    """A loop over features in a loop over time, with a weight in both."""

    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([3])

    def forward(self, x):
        total = paddle.zeros([x.shape[0]])
        rows = []
        for t in range(x.shape[1]):
            acc = paddle.zeros([x.shape[0]])
            for d in range(x.shape[2]):
                acc = paddle.tanh(acc * self.w[d] + x[:, t, d] * total)
            total = total * 0.5 + acc + self.w.sum()
            rows.append(acc)
        return rows, total


@pytest.mark.paired
@pytest.mark.quick("HandGRU-0-float64", "SpikingLIF-1-float64")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps", LENGTHS)
@pytest.mark.parametrize("model", [HandGRU, SpikingLIF, SSM, Breaks, Halving, Nested])
def test_model(model, steps, dtype):
    trains(model, lambda: [data(2, steps, 3, dtype=dtype)], dtype=dtype)


@pytest.mark.paired
@pytest.mark.quick("CRF-1-float64")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("model", [AttentionDecoder, CRF])
def test_model_that_needs_a_step(model, steps, dtype):
    """Softmax and the first tag of nothing are errors in eager, too."""
    tags = paddle.to_tensor(np.arange(2 * steps).reshape(2, steps) % 4)
    extra = [tags] if model is CRF else []
    trains(model, lambda: [data(2, steps, 3, dtype=dtype), *extra], dtype=dtype)


@pytest.mark.paired
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps", [1, 3])
def test_conv_lstm(steps, dtype):
    trains(ConvLSTM, lambda: [data(2, steps, 4, 3, 2, dtype=dtype)], dtype=dtype)


@pytest.mark.paired
@pytest.mark.quick("1-float64")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("steps", [1, 7])
def test_char_lstm(steps, dtype):
    tokens = paddle.to_tensor(np.arange(2 * steps).reshape(2, steps) * 7 % 20)
    trains(lambda: recurrent.CharLSTM(20, 6), lambda: [tokens], dtype=dtype)


@pytest.mark.slow
@pytest.mark.quick("7-GRU")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.SimpleRNN])
@pytest.mark.parametrize("steps", [1, 7])
def test_recurrent_layers(kind, steps):
    trains(lambda: kind(3, 4, num_layers=2, direction="bidirect"), lambda: [data(2, steps, 3)])


class MLP(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)
        )

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_mlp(dtype):
    trains(MLP, lambda: [data(4, 3, dtype=dtype)], dtype=dtype)


def test_transformer_encoder_layer():
    trains(lambda: recurrent.Encoder(0.0), lambda: [data(2, 5, 8)])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_dropout_draws_what_eager_draws(dtype):
    trains(lambda: recurrent.Encoder(0.3), lambda: [data(2, 5, 8, dtype=dtype)], dtype=dtype)


def test_small_cnn_with_batch_norm():
    def net():
        return nn.Sequential(
            nn.Conv2D(2, 3, 3, padding=1), nn.BatchNorm2D(3), nn.ReLU(), nn.MaxPool2D(2),
            nn.Flatten(), nn.Linear(12, 2),
        )  # fmt: skip

    trains(net, lambda: [data(2, 2, 4, 4)])


@pytest.mark.paired
@pytest.mark.quick("0-sqrt")
@pytest.mark.parametrize("checkpoint", ["sqrt", 1, 3, 50])
@pytest.mark.parametrize("steps", LENGTHS)
def test_checkpoints_change_no_gradient(checkpoint, steps):
    trains(HandGRU, lambda: [data(2, steps, 3)], checkpoint=checkpoint)


def training_of(steps, **options):
    """What a call with `steps` steps is run backwards by."""
    with default_dtype("float64"):
        return dy2st.to_static(HandGRU(), **options).forward.entry(data(2, steps, 3)).training


def test_programs_are_as_large_for_every_length():
    short, long = (training_of(steps).gradient for steps in (40, 2000))
    for one, two in ((short.forward, long.forward), (short.backward, long.backward)):
        assert len(str(one).splitlines()) == len(str(two).splitlines())


@pytest.mark.parametrize("checkpoint, most", [("none", (17, 17)), ("sqrt", (4.5, 10))])
def test_what_is_kept_grows_with_the_square_root(checkpoint, most):
    """Sixteen times as many steps: kept values, and the memory of the backward program, in which
    the gradients of the sequences themselves are as long as they are."""
    memory = []
    for steps in (256, 4096):
        training = training_of(steps, checkpoint=checkpoint)
        kept = sum(r.bytes for r in training.gradient.residuals)
        backward = executor.compile(training.finished(training.gradient.backward))
        memory.append((kept, backward.layout.bytes({})))
    for few, many, bound in zip(*memory, most, strict=True):
        assert many / few < bound


def test_a_checkpoint_that_does_not_exist():
    for wrong in ("often", 0, -1, 1.5, True):
        with pytest.raises(ValueError, match="checkpoint"):
            dy2st.to_static(MLP(), checkpoint=wrong)


@pytest.mark.quick
def test_batch_norm_statistics_are_updated():
    def net():
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4), nn.ReLU(), nn.Linear(4, 2))

    trains(net, lambda: [data(6, 3)])
