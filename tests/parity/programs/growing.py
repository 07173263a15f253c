"""Tensors that `concat` makes longer in each iteration."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program


@program(x="f32[B,T,4]")
def grown_from_the_first(x):
    y = x[:, :1] * 0
    for t in range(x.shape[1]):
        y = paddle.concat([y, x[:, t : t + 1] * 2], axis=1)
    return y


@program(x="f32[T,4]")
def grown_along_the_leading_axis(x):
    y = paddle.zeros([1, 4])
    for row in x:
        y = paddle.concat([y, row.unsqueeze(0)])
    return y


@program(x="f32[B,4]")
def tokens_of_a_decoder(x):
    tokens = paddle.zeros([x.shape[0], 1], "int64")
    h = x
    for _ in range(6):
        h = paddle.sin(h * 2 + tokens[:, -1:].astype("float32"))
        following = h.argmax(-1, keepdim=True)
        tokens = paddle.concat([tokens, following], axis=1)
    return tokens


@program(x="f32[B,4]", eos=by_call(1, 3, 9))
def tokens_until_all_ended(x, eos):
    tokens = paddle.zeros([x.shape[0], 1], "int64")
    h = x
    for _ in range(8):
        h = paddle.sin(h * 3 + tokens[:, -1:].astype("float32"))
        following = h.argmax(-1, keepdim=True)
        tokens = paddle.concat([tokens, following], axis=1)
        if (following == eos).all():
            break
    return tokens


@program(x="f32[B,4]", limit=by_call(3, 0, 7), copies="the argument, if the loop does not run")
def grown_while_short(x, limit):
    y = x
    while y.shape[1] < 4 * limit:
        y = paddle.concat([y, x], axis=1)
    return y


@program(x="f32[B,T,4]")
def grown_in_front(x):
    y = paddle.zeros([x.shape[0], 1, 4])
    for t in range(x.shape[1]):
        y = paddle.concat([x[:, t : t + 1], y], axis=1)
    return y


@program(x="f32[B,T,4]")
class GrowingCache(nn.Layer):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        cache = x[:, :1]
        ys = []
        for t in range(1, x.shape[1]):
            cache = paddle.concat([cache, x[:, t : t + 1]], axis=1)
            scores = self.q(x[:, t : t + 1]) @ self.k(cache).transpose([0, 2, 1])
            ys.append(paddle.nn.functional.softmax(scores, -1) @ cache)
        return ys


@program(x="f32[T,4]", quick=True)
def grown_scores(x):
    scores = paddle.zeros([0])
    for row in x:
        scores = paddle.concat([scores, row.sum().reshape([1])])
    return scores


@program(x="f32[B,T,4]")
def string_of_states(x):
    h = paddle.zeros([x.shape[0], 4])
    history = h.unsqueeze(1)
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t] + history[:, -1])
        history = paddle.concat((history, h.unsqueeze(1)), 1)
    return history[:, 1:], h
