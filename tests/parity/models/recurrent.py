"""Recurrent, spiking and state-space models with their loops in Python."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class CharLSTM(nn.Layer):
    """A character model: the cell is written by hand, `steps` counts the calls."""

    def __init__(self, vocab: int = 50, hidden: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.ih = nn.Linear(hidden, 4 * hidden)
        self.hh = nn.Linear(hidden, 4 * hidden)
        self.out = nn.Linear(hidden, vocab)
        self.hidden = hidden
        self.register_buffer("steps", paddle.zeros([], "int64"))

    def forward(self, tokens):
        x = self.embed(tokens)
        h = c = paddle.zeros([tokens.shape[0], self.hidden])
        ys = []
        for t in range(tokens.shape[1]):
            i, f, g, o = paddle.split(self.ih(x[:, t]) + self.hh(h), 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
            ys.append(h)
        self.steps.add_(paddle.to_tensor(1))
        return self.out(paddle.stack(ys, axis=1))


class GRU(nn.Layer):
    """Paddle's own cell in a loop; the state starts as None."""

    def __init__(self, features: int = 5, hidden: int = 12) -> None:
        super().__init__()
        self.cell = nn.GRUCell(features, hidden)

    def forward(self, x):
        h = None
        ys = []
        for t in range(x.shape[1]):
            y, h = self.cell(x[:, t], h)
            ys.append(y)
        return paddle.stack(ys, 1), h


class VanillaRNN(nn.Layer):
    """The sequence is iterated over its leading axis."""

    def __init__(self, features: int = 5, hidden: int = 9) -> None:
        super().__init__()
        self.wx = self.create_parameter([features, hidden])
        self.wh = self.create_parameter([hidden, hidden])
        self.b = self.create_parameter([hidden], is_bias=True)

    def forward(self, x):
        h = paddle.zeros([x.shape[1], self.b.shape[0]])
        for row in x:
            h = paddle.tanh(paddle.matmul(row, self.wx) + paddle.matmul(h, self.wh) + self.b)
        return h


class LIF(nn.Layer):
    """Leaky integrate-and-fire neurons: the state starts as a Python number."""

    def __init__(self, tau: float = 2.0) -> None:
        super().__init__()
        self.tau = tau

    def forward(self, x):
        v = 0.0
        spikes = []
        for t in range(x.shape[0]):
            v = v + (x[t] - v) / self.tau
            s = (v >= 1).astype("float32")
            v = v * (1 - s)
            spikes.append(s)
        return paddle.stack(spikes), v


class SSM(nn.Layer):
    """A diagonal state-space recurrence that fills a buffer."""

    def __init__(self, channels: int = 6, state: int = 4) -> None:
        super().__init__()
        self.log_a = self.create_parameter([channels, state])
        self.b = self.create_parameter([channels, state])
        self.c = self.create_parameter([channels, state])

    def forward(self, x):
        batch, steps, channels = x.shape
        a = paddle.exp(-paddle.exp(self.log_a))
        s = paddle.zeros([batch, channels, self.b.shape[1]])
        y = paddle.zeros([batch, steps, channels])
        for t in range(steps):
            s = s * a + self.b * x[:, t].unsqueeze(-1)
            y[:, t] = (s * self.c).sum(-1)
        return y


class Stacked(nn.Layer):
    """Two loops, the second over what the first collected."""

    def __init__(self, features: int = 5, hidden: int = 7) -> None:
        super().__init__()
        self.one = nn.SimpleRNNCell(features, hidden)
        self.two = nn.LSTMCell(hidden, hidden)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 7])
        middle = []
        for t in range(x.shape[1]):
            y, h = self.one(x[:, t], h)
            middle.append(y)
        state = (paddle.zeros([x.shape[0], 7]), paddle.zeros([x.shape[0], 7]))
        ys = []
        for t in range(x.shape[1] - 1, -1, -1):
            y, state = self.two(middle[t], state)
            ys.append(y)
        return paddle.stack(ys, axis=1), state


class Nested(nn.Layer):
    """A loop over channels in a loop over time."""

    def forward(self, x):
        total = paddle.zeros([x.shape[0]])
        rows = []
        for t in range(x.shape[1]):
            acc = paddle.zeros([x.shape[0]])
            inner = []
            for d in range(x.shape[2]):
                acc = paddle.tanh(acc + x[:, t, d] * total)
                inner.append(acc)
            total = total + acc + 1.0
            rows.append(paddle.stack(inner, 1))
        return paddle.stack(rows, 1), total


class MLP(nn.Layer):
    """No loop at all."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Softmax()
        )

    def forward(self, x):
        return self.net(x)


class Encoder(nn.Layer):
    """Paddle's transformer encoder layer; its dropout is active in training."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout)

    def forward(self, x):
        return self.layer(x)
