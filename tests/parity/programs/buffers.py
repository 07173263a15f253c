"""Tensors written in place: preallocated buffers, arguments, views, reads of what was written."""

from __future__ import annotations

import paddle

from tests.parity.programs import program


@program(x="f32[B,T,4]")
def preallocated_over_time(x):
    out = paddle.zeros([x.shape[0], x.shape[1], 4])
    for t in range(x.shape[1]):
        out[:, t] = x[:, t] * 2
    return out


@program(x="f32[T,4]")
def preallocated_rows(x):
    out = paddle.empty_like(x)
    for t in range(x.shape[0]):
        out[t] = x[t] + t
    return out


@program(x="f32[B,T,4]")
def read_back_the_step_before(x):
    out = paddle.zeros([x.shape[0], x.shape[1], 4])
    for t in range(x.shape[1]):
        out[:, t] = paddle.tanh(out[:, t - 1] + x[:, t])
    return out


@program(x="f32[T,4]")
def read_back_from_the_second_on(x):
    out = paddle.zeros_like(x)
    for t in range(x.shape[0]):
        if t == 0:
            out[t] = x[t]
        else:
            out[t] = out[t - 1] * 0.5 + x[t]
    return out


@program(x="f32[T,4]", quick=True)
def one_longer_than_the_input(x):
    h = paddle.zeros([x.shape[0] + 1, 4])
    for t in range(x.shape[0]):
        h[t + 1] = paddle.tanh(h[t] + x[t])
    return h


@program(x="f32[B,T,4]")
def written_backwards(x):
    out = paddle.zeros_like(x)
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1] - 1, -1, -1):
        h = h * 0.5 + x[:, t]
        out[:, t] = h
    return out


@program(x="f32[B,T,4]")
def part_of_each_step(x):
    out = paddle.ones([x.shape[0], x.shape[1], 4])
    for t in range(x.shape[1]):
        out[:, t, 1:3] = x[:, t, :2]
        out[:, t, 0] += 1
    return out


@program(x="f32[B,T,4]")
def argument_scaled_row_by_row(x):
    for t in range(x.shape[1]):
        x[:, t] = x[:, t] * (t + 1)
    return x.sum()


@program(x="f32[B,T,4]", h="f32[B,4]")
def argument_updated_in_place(x, h):
    for t in range(x.shape[1]):
        h.multiply_(paddle.full([], 0.5))
        h.add_(x[:, t])
    return h


@program(x="f32[B,T,4]", h="f32[B,4]")
def augmented_assignment(x, h):
    total = h
    for t in range(x.shape[1]):
        total += x[:, t]
        total *= 0.5
    return total


@program(x="f32[T,4]")
def view_of_a_row_written(x):
    y = x.clone()
    for t in range(x.shape[0]):
        row = y[t]
        row.add_(paddle.ones([4]) * t)
        row[0] = 0.0
    return y


@program(x="f32[T,4]")
def cumulative_sum_in_place(x):
    y = x * 1
    for t in range(1, y.shape[0]):
        y[t] += y[t - 1]
    return y


@program(x="f32[T,5]")
def dynamic_programming(x):
    cost = paddle.zeros([x.shape[0] + 1, 6])
    for i in range(x.shape[0]):
        for j in range(5):
            best = paddle.minimum(cost[i, j], cost[i, j + 1])
            cost[i + 1, j + 1] = x[i, j] + best
    return cost


@program(x="f32[T,4]", cache="f32[6,4]")
def shifted_cache(x, cache):
    out = []
    for row in x:
        cache = paddle.concat([cache[1:], row.unsqueeze(0)], axis=0)
        out.append(cache.mean(0))
    return out, cache


@program(x="f32[T,4]", cache="f32[6,4]")
def ring_buffer(x, cache):
    for t in range(x.shape[0]):
        cache[t % 6] = x[t]
    return cache.sum(0)


@program(x="f32[T,4]", order="i64[T]")
def scatter_by_a_tensor(x, order):
    table = paddle.zeros([7, 4])
    for t in range(x.shape[0]):
        table[order[t]] = table[order[t]] * 0.5 + x[t]
    return table


@program(x="f32[B,T,4]", quick=True)
def masked_write(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        step = x[:, t] * 1
        step[step < 0] = 0.0
        h = h + step
    return h


@program(x="f32[B,T,4]")
def set_value_in_a_loop(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h.set_value(paddle.tanh(h + x[:, t]))
    return h


@program(x="f32[B,T,4]")
def fresh_buffer_in_each_iteration(x):
    out = []
    for t in range(x.shape[1]):
        row = paddle.zeros([x.shape[0], 4])
        row[:, 1:] = x[:, t, :-1]
        row.clip_(-1.0, 1.0)
        out.append(row)
    return paddle.stack(out, 1)
