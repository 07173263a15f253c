"""Paddle's own recurrent layers and control flow, called by the user."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program


@program(x="f32[B,T,4]", least=1)
class OfACell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(nn.SimpleRNNCell(4, 3))

    def forward(self, x):
        return self.rnn(x)


@program(x="f32[T,B,4]", h="f32[B,3]", c="f32[B,3]", least=1)
class OfACellBackwards(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(nn.LSTMCell(4, 3), is_reverse=True, time_major=True)

    def forward(self, x, h, c):
        y, (h, c) = self.rnn(x, (h, c))
        return y, h + c


@program(x="f32[B,T,4]", least=1)
class OfTwoCells(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.BiRNN(nn.GRUCell(4, 3), nn.GRUCell(4, 3))

    def forward(self, x):
        return self.rnn(x)


class Leaky(nn.RNNCellBase):
    """A cell of the user."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @property
    def state_shape(self):
        return (4,)

    def forward(self, inputs, states):
        h = states * 0.5 + paddle.tanh(self.linear(inputs))
        return h * 2, h


@program(x="f32[B,T,4]", least=1)
class OfAUsersCell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(Leaky())

    def forward(self, x):
        y, h = self.rnn(x)
        return y + h.unsqueeze(1)


@program(x="f32[B,T,4]", least=1)
class TwoLayersOfLSTM(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=2)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


@program(x="f32[3,T,4]", least=1)
class BidirectionalGRU(nn.Layer):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 3, direction="bidirect")

    def forward(self, x):
        lengths = paddle.to_tensor([1, 2, 1]).clip(max=x.shape[1])
        return self.gru(x, sequence_length=lengths)


@program(x="f32[B,T,4]", least=1)
class RecurrentBetweenLoops(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.SimpleRNN(4, 4, time_major=False)

    def forward(self, x):
        y, h = self.rnn(x)
        s = h[0]
        for t in range(x.shape[1]):
            s = s * 0.5 + y[:, t]
        return s


@program(
    x="f32[B,4]",
    a=by_call(1.0, -1.0, 0.0),
    copies="two results are one new tensor or two, depending on data",
)
def cond_of_paddle(x, a):
    y = paddle.static.nn.cond(a > 0, lambda: x * 2, lambda: x - 1)
    return y, paddle.static.nn.cond(a == 0, lambda: (x, a), lambda: (y, a + 1))


@program(x="f32[B,4]", n=by_call(3, 0, 7))
def while_loop_of_paddle(x, n):
    i = paddle.zeros([], "int64")
    i, x = paddle.static.nn.while_loop(
        lambda i, x: i < n, lambda i, x: [i + 1, paddle.tanh(x + i.astype("float32"))], [i, x]
    )
    return i, x


@program(x="f32[B,4]", a=by_call(1.0, -1.0, 0.0))
def case_of_paddle(x, a):
    return paddle.static.nn.case(
        [(a > 0, lambda: x * 2), (a < 0, lambda: x - 1)], default=lambda: x + 5
    )


@program(x="f32[B,4]", k=by_call(1, 2, 9))
def switch_case_of_paddle(x, k):
    branches = {1: lambda: x * 2, 2: lambda: x - 1}
    return paddle.static.nn.switch_case(k, branches, default=lambda: x + 5)
