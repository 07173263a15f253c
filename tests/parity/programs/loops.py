"""`for` over ranges, tensors, `enumerate`, `zip`, `reversed`; nested loops; `for ... else`."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program, values


@program(x="f32[B,T,4]", h="f32[B,4]")
def range_of_a_shape(x, h):
    for t in range(x.shape[1]):
        h = paddle.tanh(x[:, t] + 0.5 * h)
    return h


@program(x="f32[B,T,4]")
def range_from_one(x):
    total = paddle.zeros([x.shape[0], 4])
    for t in range(1, x.shape[1]):
        total = total + (x[:, t] - x[:, t - 1]).abs()
    return total


@program(x="f32[B,T,4]")
def range_without_the_ends(x):
    out = []
    for t in range(1, x.shape[1] - 1):
        out.append((x[:, t - 1] + x[:, t] + x[:, t + 1]) / 3.0)
    return paddle.stack(out, axis=1)


@program(x="f32[B,T,4]")
def range_with_step_two(x):
    even = paddle.zeros_like(x[:, 0]) if x.shape[1] else paddle.zeros([x.shape[0], 4])
    for t in range(0, x.shape[1], 2):
        even = even * 0.5 + x[:, t]
    return even


@program(
    x="f32[B,T,4]",
    copies="a list keeps the tensor of the last iteration, a stack a copy",
    quick=True,
)
def range_backwards(x):
    h = paddle.zeros([x.shape[0], 4])
    ys = []
    for t in range(x.shape[1] - 1, -1, -1):
        h = paddle.tanh(x[:, t] + h)
        ys.append(h)
    ys.reverse()
    return ys, h


@program(x="f32[B,T,4]")
def range_backwards_by_two(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1] - 1, 0, -2):
        h = h * 0.5 + x[:, t] - x[:, t - 1]
    return h


@program(x="f32[B,4]")
def range_of_a_constant(x):
    for k in range(5):
        x = paddle.tanh(x * (1.0 + 0.1 * k))
    return x


@program(x="f32[B,4]")
def range_with_constants(x):
    s = x
    for k in range(10, 0, -3):
        s = s * 0.5 + k
    return s


@program(x="f32[B,T,4]", steps="T")
def range_of_an_argument(x, steps):
    y = x.sum(-1)
    for t in range(steps):
        y = y * 0.9 + x[:, t].mean(-1, keepdim=True)
    return y


@program(x="f32[4]", steps=values(3, 5, 9))
def range_of_a_number_that_varies(x, steps):
    for _ in range(steps):
        x = x * 0.9 + 0.1
    return x


@program(x="f32[T,4]", n=by_call("T", 0, 1))
def range_of_a_tensor(x, n):
    s = paddle.zeros([4])
    for t in range(min(int(n), x.shape[0])):
        s = s + x[t]
    return s


@program(x="f32[4]", n=by_call(3, 0, 6))
def range_of_a_tensor_as_it_is(x, n):
    for i in range(n):
        x = x * 0.5 + i
    return x


@program(x="f32[9,4]", lo=by_call(2, 5, 0), hi=by_call(7, 5, 9))
def range_between_tensors(x, lo, hi):
    s = paddle.zeros([4])
    for t in range(int(lo), int(hi)):
        s = s * 0.5 + x[t]
    return s


@program(x="f32[4]", n=by_call(7, 0, 8), step=by_call(2, 3, 5))
def range_with_a_tensor_as_step(x, n, step):
    for i in range(0, int(n), int(step)):
        x = x * 0.5 + i
    return x


@program(x="f32[4]", n=by_call(6, 1, 0))
def range_of_a_tensor_backwards(x, n):
    for i in range(int(n) - 1, -1, -1):
        x = x * 0.5 + i
    return x


@program(lengths="i64[3]", x="f32[3,7,4]")
def range_of_an_element(lengths, x):
    out = []
    for b in range(3):
        s = paddle.zeros([4])
        for t in range(int(lengths[b])):
            s = s + x[b, t]
        out.append(s)
    return paddle.stack(out)


@program(x="f32[T,B,4]")
def rows_of_a_tensor(x):
    h = paddle.zeros([x.shape[1], 4])
    for row in x:
        h = paddle.tanh(h + row)
    return h


@program(x="f32[B,T,4]", quick=True)
def rows_of_a_transposed_tensor(x):
    h, ys = paddle.zeros([x.shape[0], 4]), []
    for row in x.transpose([1, 0, 2]):
        h = h * 0.5 + row
        ys.append(h)
    return paddle.stack(ys, axis=1), h


@program(x="f32[T,4]")
def enumerated_rows(x):
    s = paddle.zeros([4])
    for t, row in enumerate(x):
        s = s + row * t
    return s


@program(x="f32[T,4]")
def enumerated_from_one(x):
    mean = paddle.zeros([4])
    for n, row in enumerate(x, 1):
        mean = mean + (row - mean) / n
    return mean


@program(x="f32[T,4]", y="f32[T,4]")
def zipped_tensors(x, y):
    s = paddle.zeros([4])
    for a, b in zip(x, y):
        s = s * 0.9 + a * b
    return s


@program(x="f32[T,4]", y="f32[T,4]")
def zipped_with_a_range(x, y):
    s = paddle.zeros([4])
    for a, t, b in zip(x, range(y.shape[0]), y):
        s = s + (a - b) * y[t]
    return s


@program(x="f32[T,4]", y="f32[5,4]")
def zipped_with_a_shorter_one(x, y):
    s = paddle.zeros([4])
    for a, b in zip(x, y):
        s = s + a * b
    return s


@program(x="f32[T,4]", mask="f32[T]")
def enumerated_pairs(x, mask):
    h = paddle.zeros([4])
    for t, (row, m) in enumerate(zip(x, mask)):
        new = paddle.tanh(h + row * (t + 1))
        h = m * new + (1 - m) * h
    return h


@program(x="f32[B,T,4]", copies="a list keeps the tensor of the last iteration, a stack a copy")
def reversed_range(x):
    h, ys = paddle.zeros([x.shape[0], 4]), []
    for t in reversed(range(x.shape[1])):
        h = paddle.tanh(x[:, t] - h)
        ys.append(h)
    return ys[::-1], h


@program(x="f32[T,4]")
def reversed_rows(x):
    h = paddle.zeros([4])
    for row in reversed(x):
        h = h * 0.5 + row
    return h


@program(x="f32[T,4]")
def indices_from_arange(x):
    s = paddle.zeros([4])
    for t in paddle.arange(x.shape[0]):
        s = s + x[t] * (t + 1).astype("float32")
    return s


@program(x="f32[B,T,4]")
def unbound_rows(x):
    h = paddle.zeros([x.shape[0], 4])
    for row in paddle.unbind(x, axis=1):
        h = paddle.tanh(h + row)
    return h


@program(x="f32[B,T,4]")
def the_index_after_the_loop(x):
    t, last = -1, paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        last = x[:, t] * 2
    return last + t


@program(x="f32[B,T,4]", quick=True)
def nested_over_both_axes(x):
    s = paddle.zeros([4])
    for b in range(x.shape[0]):
        h = paddle.zeros([4])
        for t in range(x.shape[1]):
            h = paddle.tanh(h + x[b, t])
        s = s + h
    return s


@program(x="f32[T,3,4]")
def nested_rows(x):
    table = []
    for frame in x:
        row = []
        for cell in frame:
            row.append(cell.max())
        table.append(paddle.stack(row))
    return paddle.stack(table)


@program(x="f32[B,T,4]")
def nested_triangle(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        for s in range(t):
            h = h + x[:, t] * x[:, s]
    return h


@program(x="f32[2,3,T]")
def three_loops_deep(x):
    total = paddle.zeros([])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for k in range(x.shape[2]):
                total = total * 0.9 + x[i, j, k] * (i + 2 * j)
    return total


@program(x="f32[B,T,4]")
def two_loops_in_a_row(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t])
    back = []
    for t in reversed(range(x.shape[1])):
        h = paddle.tanh(h - x[:, t])
        back.append(h)
    return h, len(back)


@program(x="f32[B,T,4]")
class FramesTimesLayers(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        states = [paddle.zeros([x.shape[0], 4]) for _ in self.layers]
        for t in range(x.shape[1]):
            y = x[:, t]
            for k, layer in enumerate(self.layers):
                states[k] = paddle.tanh(layer(y) + states[k])
                y = states[k]
        return states


@program(x="f32[B,4]", scales={"a": 0.5, "b": -2.0}, parts=["f32[B,4]", "f32[B,4]"])
def dicts_and_lists_stay_python(x, scales, parts):
    for name, k in scales.items():
        x = x * k if name == "a" else x + k
    for part in parts:
        x = x + part
    for i, part in enumerate(parts):
        x = x * (i + 1) - part
    return x


@program(x="f32[B,T,4]")
def loop_with_else(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h + x[:, t]
    else:
        h = h * 2
    return h


@program(x="f32[T,4]", limit=by_call(0.5, 1e9, 3.0))
def loop_with_else_and_break(x, limit):
    s = paddle.zeros([])
    for row in x:
        s = s + row.abs().sum()
        if s > limit:
            s = s * 0
            break
    else:
        s = s + 100.0
    return s


@program(x="f32[B,4]")
def empty_loop(x):
    for _ in range(0):
        x = x.undefined_method()
    for k in range(3, 3):
        x = x[k]
    return x * 2
