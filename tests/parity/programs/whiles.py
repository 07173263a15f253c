"""`while` on Python values, on tensors, on both, and `while True`."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program, values


@program(x="f32[B,T,4]")
def counter_up_to_a_size(x):
    h, t = paddle.zeros([x.shape[0], 4]), 0
    while t < x.shape[1]:
        h = paddle.tanh(h + x[:, t])
        t += 1
    return h, t


@program(x="f32[B,T,4]")
def counter_down_to_zero(x):
    t = x.shape[1]
    h = paddle.zeros([x.shape[0], 4])
    while t > 0:
        t = t - 1
        h = h * 0.5 + x[:, t]
    return h


@program(x="f32[B,T,4]", quick=True)
def counter_in_steps_of_two(x):
    t, out = 0, []
    while t + 1 < x.shape[1]:
        out.append(x[:, t] + x[:, t + 1])
        t += 2
    return out


@program(x="f32[4]", n=values(3, 0, 5))
def counter_up_to_an_argument(x, n):
    i = 0
    while i < n:
        x = x * 0.5 + 1
        i += 1
    return x


@program(x="f32[4]", limit=by_call(0.01, 1e9, 1.0))
def halve_until_small(x, limit):
    x = x.abs() + 0.5
    while x.sum() > limit:
        x = x * 0.5
    return x


@program(x="f32[T,4]", n=by_call("T", 0, 1))
def tensor_counter(x, n):
    i, s = paddle.zeros([], "int64"), paddle.zeros([4])
    while i < paddle.minimum(n, paddle.to_tensor(x.shape[0])):
        s = s + x[i]
        i = i + 1
    return s, i


@program(x="f32[4]")
def tensor_counter_in_place(x):
    i = paddle.full([1], 0, dtype="int64")
    ten = paddle.full([1], 10, dtype="int64")
    while i < ten:
        x = x * 0.9
        i.add_(paddle.ones([1], dtype="int64"))
    return x, i


@program(a=by_call(84, 17, 5), b=by_call(36, 5, 0))
def greatest_common_divisor(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@program(a=by_call(2.0, 144.0, 1e-4))
def newton_square_root(a):
    y = paddle.ones_like(a)
    steps = paddle.zeros([], "int64")
    while (y * y - a).abs() > 1e-3 * a:
        y = 0.5 * (y + a / y)
        steps += 1
    return y, steps


@program(n="i64[1]")
def collatz(n):
    n = n + 1
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return n, steps


@program(x="f32[4]", go=by_call(5.0, -1.0, 60.0))
def python_true_then_a_tensor(x, go):
    running = True
    s = x.abs() + 1
    while running:
        s = s * 2
        running = s.max() < go
    return s


@program(x="f32[4]", limit=by_call(1.0, 1e9, 1e-6))
def flag_tensor(x, limit):
    done = paddle.to_tensor(False)
    y = x.abs() + 0.1
    while not done:
        y = y * 1.5
        done = y.max() > paddle.minimum(limit, paddle.to_tensor(1e6))
    return y


@program(x="f32[B,T,4]", limit=by_call(4.0, 1e9, -1.0))
def counter_and_tensor(x, limit):
    t, s = 0, paddle.zeros([])
    while t < x.shape[1] and s < limit:
        s = s + x[:, t].abs().sum()
        t += 1
    return s, t


@program(x="f32[T,4]", limit=by_call(3.0, 1e9, 0.0))
def tensor_or_counter(x, limit):
    t, s = 0, paddle.zeros([])
    while not (t >= x.shape[0] or s > limit):
        s = s + x[t].abs().max()
        t += 1
    return s


@program(x="f32[4]", limit=by_call(10.0, 0.0, 1000.0))
def forever_until_a_tensor(x, limit):
    y, n = x.abs() + 1, 0
    while True:
        y = y * 1.25
        n += 1
        if y.sum() > limit:
            break
    return y, n


@program(x="f32[T,4]", limit=by_call(3.0, 1e9, 0.0))
def forever_with_two_exits(x, limit):
    t, s = 0, paddle.zeros([4])
    while True:
        if t == x.shape[0]:
            break
        s = s + x[t].abs()
        t += 1
        if s.max() > limit:
            break
    return s, t


@program(x="f32[B,4]", quick=True)
def forever_until_a_counter(x):
    k = 0
    while True:
        x = x * 0.9 + k
        k += 1
        if k == 4:
            break
    return x


@program(x="f32[T,4]", limit=by_call(3.0, 1e9, 0.0))
def forever_until_return(x, limit):
    t, s = 0, paddle.zeros([])
    while True:
        if t >= x.shape[0]:
            return s, "end"
        s = s + x[t].abs().sum()
        t += 1
        s = paddle.where(s > limit, s * 0 - 1, s)


@program(x="f32[B,4]", k=values(5, 0, 2), unrolled="a Python list says how often the loop runs")
def python_list_as_a_stack(x, k):
    work = list(range(k))
    while work:
        n = work.pop()
        x = x * 0.5 + n
        if n == 4:
            work.extend([1, 1])
    return x


@program(n=by_call(4, 0, 2))
def nested_tensor_whiles(n):
    total = paddle.zeros([], "int64")
    i = paddle.zeros([], "int64")
    while i < n:
        j = paddle.zeros([], "int64")
        while j < i:
            total = total + i * j
            j = j + 1
        i = i + 1
    return total


@program(x="f32[T,4]", limit=by_call(2.0, 0.1, 1e9))
def while_in_a_for(x, limit):
    out = []
    for row in x:
        y = row.abs()
        while y.sum() > limit:
            y = y * 0.5
        out.append(y)
    return paddle.stack(out)


@program(x="f32[T,4]", n=by_call(3, 0, 1))
def for_in_a_while(x, n):
    s = paddle.zeros([4])
    i = paddle.zeros([], "int64")
    while i < n:
        for row in x:
            s = paddle.tanh(s + row)
        i += 1
    return s


@program(x="f32[4]", n=by_call(3, 0, 5))
def while_with_else(x, n):
    i = paddle.zeros([], "int64")
    while i < n:
        x = x + i.astype("float32")
        i = i + 1
    else:
        x = x * 2
    return x


@program(x="f32[4]", limit=by_call(0.5, 1e9, 0.01))
def while_with_a_walrus(x, limit):
    x = x.abs() + 0.1
    while (worst := x.max()) > limit:
        x = x - worst * 0.25
    return x, worst


@program(x="f32[T,4]", limit=by_call(0.5, 1e9, 0.01))
def while_on_an_element(x, limit):
    t = 0
    while t < x.shape[0] and x[t, 0] < limit:
        t += 1
    return t


@program(lo=by_call(0.0, 1.0, -3.0), hi=by_call(4.0, 2.0, 5.0))
def bisection(lo, hi):
    while hi - lo > 1e-3:
        mid = (lo + hi) / 2
        if mid * mid * mid > 2.0:
            hi = mid
        else:
            lo = mid
    return lo, hi


@program(x="f32[1,4]", n=by_call(5, 0, 9))
def while_on_item(x, n):
    while n.item() > 0:
        x = x * 0.5 + n.item()
        n = n - 2
    return x


@program(x="f32[B,T,4]", limit=by_call(2.0, 1e9, 5.0))
class AdaptiveComputation(nn.Layer):
    """Ponders on each frame until its halting sum is large enough."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.halt = nn.Linear(4, 1)

    def forward(self, x, limit):
        h = paddle.zeros([x.shape[0], 4])
        ponder = paddle.zeros([], "int64")
        for t in range(x.shape[1]):
            halted = paddle.zeros([])
            n = 0
            while halted < limit and n < 4:
                h = paddle.tanh(self.cell(h) + x[:, t])
                halted = halted + paddle.nn.functional.sigmoid(self.halt(h)).mean()
                n += 1
            ponder = ponder + n
        return h, ponder


@program(x="f32[4]", limit=by_call(5.0, -1.0, 1e9))
def tensor_then_python_false(x, limit):
    s, n = x.abs() + 1, 0
    go = s.max() < limit
    while go:
        s = s * 1.5
        n += 1
        go = s.max() < limit if n < 5 else False
    return s, n


@program(x="f32[B,T,4]", tokens=values(3, 1, 5))
def growing_python_list(x, tokens):
    ys = []
    while len(ys) < tokens:
        ys.append(x.sum(1) * (len(ys) + 1))
    return paddle.stack(ys, 1)
