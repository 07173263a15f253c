"""Python numbers that are known only when the program runs: `int(t)`, `float(t)`, `item()`."""

from __future__ import annotations

import paddle

from tests.parity.programs import by_call, program, values


@program(x="f32[4]", n=by_call(3, -2, 0))
def int_in_arithmetic(x, n):
    k = int(n)
    return x * k + (k + 1) * 2


@program(x="f32[4]", a=by_call(0.5, -2.0, 0.0))
def float_in_arithmetic(x, a):
    k = float(a)
    return x * k + k * k


@program(x="f32[4]", a=by_call(0.5, -2.0, 0.0))
def item_in_arithmetic(x, a):
    return x * a.item() + x.sum().item()


@program(x="f32[4]", n=by_call(3, -2, 0))
def int_is_returned(x, n):
    return int(n), int(n) + 1, float(n) * 0.5, bool(n)


@program(x="f32[4]", n=by_call(3, -2, 0))
def int_as_a_condition(x, n):
    k = int(n)
    if k > 0:
        x = x + 1
    elif k == 0:
        x = x * 2
    return x


@program(x="f32[4]", a=by_call(0.5, -2.0, 0.0))
def float_as_a_condition(x, a):
    if float(a) > 0.25 or a.item() < -1:
        return x * 3
    return x


@program(x="f32[4]", a=by_call(True, False, True), quick=True)
def bool_as_a_condition(x, a):
    flag = bool(a)
    if flag:
        x = x + 1
    return x if not flag else x * 2


@program(x="f32[T,4]", n=by_call(3, 0, 1))
def int_as_a_bound_of_while(x, n):
    k, i = int(n), 0
    s = paddle.zeros([])
    while i < k:
        s = s + x.sum() * i
        i += 1
    return s, i


@program(x="f32[7,4]", n=by_call(3, 0, 6))
def int_as_an_index(x, n):
    return x[int(n)] * 2


@program(x="f32[T,4]")
def item_in_a_loop(x):
    total = 0.0
    for row in x:
        total += row.sum().item()
    return total


@program(x="f32[T,4]")
def int_in_a_loop(x):
    n = 0
    for row in x:
        n += int((row > 0).sum())
    return n


@program(x="f32[T,4]", limit=by_call(2.0, 1e9, -1.0))
def loss_as_a_float(x, limit):
    best, t = 1e9, 0
    for t in range(x.shape[0]):
        loss = float((x[t] * 4).round().abs().sum())  # alike in any order
        if loss < best:
            best = loss
        if best < float(limit):
            break
    return best, t


@program(n=by_call(12, 7, 1))
def digits_of_a_number(n):
    k, ones = int(n), 0
    while k > 0:
        ones += k % 2
        k //= 2
    return ones


@program(x="f32[4]", a=by_call(9.0, -9.0, 0.5))
def number_from_a_conditional_expression(x, a):
    k = 1 if a > 0 else 3
    return x * k + (k + 1)


@program(x="f32[T,4]")
def counts_on_data(x):
    positive, negative = 0, 0
    for row in x:
        if row.sum() > 0:
            positive += 1
        else:
            negative -= 1
    return positive, negative, positive - negative


@program(x="f32[T,4]")
def step_size_from_data(x):
    rate, s = 1.0, paddle.zeros([4])
    for row in x:
        if row.mean() > 0:
            rate *= 0.5
        else:
            rate = rate + 0.25
        s = s + rate * row
    return s, rate


@program(x="f32[4]", n=by_call(3, 8, 0))
def min_and_max_of_numbers(x, n):
    k = min(int(n), 5)
    j = max(k, 2)
    return x * k + j, abs(int(n) - 4)


@program(x="f32[4]", n=values(3, 8, 0, 1, 4, 9), rate=values(0.5, 0.25, 2.0, 1.0, 3.0))
def python_numbers_that_vary(x, n, rate):
    if n > 5:
        x = x - 1
    return x * n + rate, n * rate


@program(x="f32[T,4]", quick=True)
def flag_across_iterations(x):
    seen, after = False, paddle.zeros([4])
    for row in x:
        if seen:
            after = after + row
        if row.max() > 1:
            seen = True
    return after, seen


@program(x="f32[T,4]")
def mixed_condition(x):
    s = paddle.zeros([4])
    for t in range(x.shape[0]):
        if t > 1 and x[t].sum() > 0:
            s = s + x[t]
        elif t % 2 == 0 or x[t].max() > 1:
            s = s - x[t]
    return s


@program(n=by_call(7, -3, 0))
def integer_arithmetic_of_scalars(n):
    """`//` of a 0-d integer tensor has the shape [1] in eager."""
    return n // 2, n % 3, n * 2 - 1, (n // 2).shape, n / 2, 7 // (n * n + 1)


@program(x="f32[T,4]", n=by_call(2, 0, 5))
def index_computed_from_data(x, n):
    s = paddle.zeros([4])
    k = int(n)
    for t in range(x.shape[0]):
        if t == k:
            s = s + 10 * x[t]
        s = s + x[(t + 1) % x.shape[0]]
    return s
