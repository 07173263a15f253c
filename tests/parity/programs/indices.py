"""Conditions on loop indices, windows, and indices computed from them."""

from __future__ import annotations

import paddle

from tests.parity.programs import by_call, program


@program(x="f32[B,T,4]")
def first_iteration(x):
    h = None
    for t in range(x.shape[1]):
        if t == 0:
            h = x[:, t]
        else:
            h = h * 0.5 + x[:, t]
    return h


@program(x="f32[B,T,4]")
def all_but_the_first(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h + x[:, t]
        if t > 0:
            h = h - x[:, t - 1] * 0.5
    return h


@program(x="f32[B,T,4]")
def first_three(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t < 3:
            h = h + x[:, t]
        else:
            h = h * 0.9
    return h


@program(x="f32[B,T,4]")
def last_iteration(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t])
        if t == x.shape[1] - 1:
            h = h * 10
    return h


@program(x="f32[B,T,4]")
def both_ends(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t == 0 or t == x.shape[1] - 1:
            h = h + 2 * x[:, t]
        else:
            h = h + x[:, t]
    return h


@program(x="f32[B,T,4]")
def even_and_odd(x):
    even = odd = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t % 2 == 0:
            even = even + x[:, t]
        else:
            odd = odd + x[:, t]
    return even, odd


@program(x="f32[B,T,4]")
def clockwork(x):
    fast = slow = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        fast = paddle.tanh(fast + x[:, t])
        if (t + 1) % 4 == 0:
            slow = paddle.tanh(slow + fast)
    return fast, slow


@program(x="f32[B,T,4]")
def between_two_indices(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if 2 <= t < 5:
            h = h + x[:, t]
    return h


@program(x="f32[B,T,4]", n=by_call(3, 0, 40))
def index_against_a_tensor(x, n):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t < n:
            h = h + x[:, t]
    return h


@program(x="f32[B,T,4]", lengths="i64[B]")
def masked_by_lengths(x, lengths):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        new = paddle.tanh(h + x[:, t])
        keep = (t < lengths).astype("float32").unsqueeze(-1)
        h = keep * new + (1 - keep) * h
    return h


@program(x="f32[B,T,4]")
def windows_of_two(x):
    out = []
    for t in range(x.shape[1] - 1):
        out.append(x[:, t : t + 2].mean(1))
    return paddle.stack(out, 1)


@program(x="f32[B,T,4]", quick=True)
def windows_in_chunks(x):
    h = paddle.zeros([x.shape[0], 4])
    for i in range(0, x.shape[1] - 2, 3):
        chunk = x[:, i : i + 3]
        h = paddle.tanh(h + chunk.sum(1))
    return h


@program(x="f32[B,T,4]")
def prefixes(x):
    out = []
    for t in range(x.shape[1]):
        out.append(x[:, : t + 1].mean(1))
    return paddle.stack(out, 1)


@program(x="f32[B,T,4]")
def index_from_the_end(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h * 0.5 + x[:, -t - 1] * x[:, x.shape[1] - 1 - t]
    return h


@program(x="f32[7,4]", order="i64[T]")
def indices_from_a_tensor(x, order):
    h = paddle.zeros([4])
    for i in order:
        h = h * 0.5 + x[i]
    return h


@program(x="f32[7,4]", order="i64[T]")
def indices_read_by_int(x, order):
    h = paddle.zeros([4])
    for t in range(order.shape[0]):
        h = h * 0.5 + x[int(order[t])]
    return h


@program(x="f32[T,4]")
def matrix_by_two_indices(x):
    y = paddle.zeros([x.shape[0], 4])
    for i in range(x.shape[0]):
        for j in range(4):
            y[i, j] = x[i, j] * i + j
    return y


@program(x="f32[B,T,4]")
def index_in_arithmetic(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h + x[:, t] * (0.9**t) / (t + 1)
    return h


@program(x="f32[B,T,4]")
def index_divided(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h + x[:, t // 2] * (t % 3)
    return h


@program(x="f32[T,4]")
def list_of_numbers_by_index(x):
    scales = [1.0, 0.5, 0.25, 0.125]
    s = paddle.zeros([4])
    for t in range(x.shape[0]):
        s = s + x[t] * scales[t % 4]
    return s


@program(x="f32[B,T,4]")
def defined_in_the_first_iteration(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t == 0:
            base = x[:, 0] * 2
        h = paddle.tanh(h + base - x[:, t])
    return h


@program(x="f32[B,T,4]")
def index_passed_to_a_function(x):
    def at(t, shift=0):
        return x[:, max(t - shift, 0)]

    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h * 0.5 + at(t) - at(t, shift=1)
    return h
