"""Random numbers, and what is printed while a program runs."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program


@program(x="f32[B,T,4]")
class DropoutInALoop(nn.Layer):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 4])
        for t in range(x.shape[1]):
            h = self.dropout(paddle.tanh(h + x[:, t]))
        return h


@program(x="f32[T,4]")
def noise_in_a_loop(x):
    h = paddle.zeros([4])
    for row in x:
        h = h * 0.5 + row + 0.1 * paddle.randn([4])
    return h


@program(x="f32[B,4]", a=by_call(1.0, -1.0, 1.0))
def noise_in_a_branch(x, a):
    if a > 0:
        x = x + paddle.rand([x.shape[0], 4])
    return x + paddle.rand([1])


@program(x="f32[B,T,4]")
def zoneout(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        keep = (paddle.rand([x.shape[0], 1]) < 0.5).astype("float32")
        h = keep * h + (1 - keep) * paddle.tanh(h + x[:, t])
    return h


@program(x="f32[4]")
def printed_once(x):
    print("input", x.shape)
    y = x * 2
    print("output:", y, sep=" ")
    return y


@program(x="f32[T,4]")
def printed_in_a_loop(x):
    s = paddle.zeros([])
    for t, row in enumerate(x):
        s = s + row.sum()
        print(f"step {t}", "of", x.shape[0])
        print(s)
    return s


@program(x="f32[4]", a=by_call(9.0, -9.0, 0.0))
def printed_in_a_branch(x, a):
    if a > 0:
        print("positive", a)
        x = x + 1
    else:
        print("not positive")
    print("done", end=".\n")
    return x


@program(x="f32[4]", n=by_call(3, 0, 5))
def printed_in_a_while(x, n):
    i = paddle.zeros([], "int64")
    while i < n:
        print("i =", i.item())
        i = i + 1
    return x + i.astype("float32")


@program(n=by_call(1, 2, 7), quick=True)
def printed_numbers(n):
    k = int(n)
    print(f"k is {k}", k + 1)
    return k
