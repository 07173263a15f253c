"""`if`, conditional expressions, `and`, `or`, `not`, chained comparisons, `assert`: on data."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program, values


@program(x="f32[B,4]", bias=by_call(9.0, -9.0, 0.1))
def two_sides(x, bias):
    if (x + bias).mean() > 0:
        y = x * 2
    else:
        y = x - 1
    return y


@program(x="f32[B,4]", bias=by_call(9.0, -9.0, 0.1))
def one_side(x, bias):
    y = x + 1
    if bias > 0:
        y = y * bias
    return y


@program(x="f32[B,4]", k=by_call(0, 1, 2, 5))
def elif_chain(x, k):
    if k == 0:
        y = x
    elif k == 1:
        y = x * 2
    elif k == 2:
        y = x * 3
    else:
        y = -x
    return y


@program(x="f32[B,4]", a=by_call(1.0, -1.0, 1.0), b=by_call(1.0, 1.0, -1.0))
def nested_branches(x, a, b):
    if a > 0:
        if b > 0:
            x = x + 1
        else:
            x = x + 2
        x = x * a
    else:
        x = x - 1
        if b > 0:
            x = x * 3
    return x


@program(x="f32[B,4]", a=by_call(True, False, True))
def condition_is_a_bool_tensor(x, a):
    if a:
        return x + 1
    else:
        return x - 1


@program(x="f32[B,4]", a=by_call(0, 1, 3))
def condition_is_an_integer_tensor(x, a):
    if a:
        x = x * 2
    if not a:
        x = x + 100
    return x


@program(x="f32[1,1]")
def condition_of_one_element(x):
    if x:
        x = x + 1
    if x > 1:
        x = x * 2
    return x


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0), quick=True)
def several_variables(x, a):
    y, z, w = x, x * 2, 1.0
    if a > 0:
        y, z = z, y
        w = a * 2
    else:
        z = z - y
        w = a - 1
    return y, z, w


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def temporaries_in_a_branch(x, a):
    if a > 0:
        scale = x.abs().max()
        x = x / (scale + 1)
    else:
        shift = x.mean()
        x = x - shift
    return x


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0), use=values(True, False, True))
def defined_under_a_python_guard(x, a, use):
    if use:
        extra = x * 3
    y = x + a
    if use:
        y = y + extra
    return y


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def defined_and_used_on_one_side(x, a):
    extra = None
    if a.shape == []:
        extra = x * a
    if extra is not None:
        x = x + extra
    return x


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def conditional_expression(x, a):
    y = x * 2 if a > 0 else x - 2
    return y.sum() if y.mean() > 0 else y.max()


@program(x="f32[4]", a=by_call(1.0, -1.0, 1.0), b=by_call(1.0, 1.0, -1.0))
def and_or_not(x, a, b):
    if a > 0 and b > 0:
        x = x + 1
    if a > 0 or b > 0:
        x = x * 2
    if not a > 0:
        x = x - 5
    if not (a > 0 and b > 0) and x.shape[0] == 4:
        x = -x
    return x


@program(x="f32[4]", a=by_call(0.5, -1.0, 2.0))
def chained_comparison(x, a):
    if 0 < a < 1:
        x = x + 10
    if -2 <= a <= 1 != 5:
        x = x * 3
    return x


@program(x="f32[4]", a=by_call(0.5, 0.0, 2.0))
def guarded_division(x, a):
    if a != 0 and (1 / a) > 1:
        return x / a
    return x


@program(x="f32[T,4]")
def branch_in_a_loop(x):
    h = paddle.zeros([4])
    for row in x:
        if row.sum() > 0:
            h = h * 0.5 + row
        else:
            h = paddle.tanh(h - row)
    return h


@program(x="f32[T,4]")
def branch_in_a_loop_keeps_the_state(x):
    best, where = paddle.full([], -1e9), paddle.full([], -1, "int64")
    for t, row in enumerate(x):
        score = row.sum()
        if score > best:
            best = score
            where = paddle.full([], t, "int64")
    return best, where


@program(x="f32[T,4]", n=by_call(5, 2, 0))
def loop_in_a_branch(x, n):
    h = paddle.zeros([4])
    if n > 3:
        for row in x:
            h = paddle.tanh(h + row)
    elif n > 1:
        for row in reversed(x):
            h = h * 0.5 + row
    return h


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def branch_writes_an_argument(x, a):
    if a > 0:
        x[:, 0] = a
        x.add_(paddle.ones([4]))
    return x.sum()


@program(x="f32[T,4]")
def branch_writes_a_buffer_in_a_loop(x):
    out = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            out[t] = x[t]
        else:
            out[t, 0] = -1.0
    return out


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
class BranchRebindsAnAttribute(nn.Layer):
    def __init__(self):
        super().__init__()
        self.h = paddle.zeros([4])
        self.register_buffer("seen", paddle.zeros([], "int64"))

    def forward(self, x, a):
        if a > 0:
            self.h = self.h + x.mean(0)
            self.seen += 1
        else:
            self.h = self.h * 0.5
        return x + self.h


@program(x="f32[4]", a=by_call(1.0, 2.0, 3.0), quick=True)
def passing_assert(x, a):
    assert a > 0, "a must be positive"
    assert x.shape[-1] == 4
    return x * a


@program(x="f32[4]", a=by_call(1.0, -2.0, 3.0))
def failing_assert(x, a):
    assert a > 0, "a must be positive"
    return x * a


@program(x="f32[4]", a=by_call(1.0, -2.0, 3.0))
def raise_on_data(x, a):
    if a < 0:
        raise ValueError("a is negative")
    return x * a


@program(x="f32[T,4]", limit=by_call(1e9, 1.0, 1e9))
def assert_in_a_loop(x, limit):
    s = paddle.zeros([4])
    for row in x:
        s = s + row.abs()
        assert s.max() < limit
    return s


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def number_from_a_branch(x, a):
    if a > 0:
        k = 2
    else:
        k = 5
    return x * k, k


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def nothing_in_a_branch(x, a):
    if a > 0:
        pass
    else:
        x = x * 2
    return x


@program(x="f32[B,4]", train=values(True, False, True))
def branch_on_a_python_flag(x, train):
    if train:
        x = x * 2
    return x + 1 if not train else x - 1


@program(x="f32[B,4]", a=by_call(9.0, 1.5, -9.0))
def all_and_any(x, a):
    x = x + a
    if (x > 0).all():
        x = x + 1
    elif paddle.any(x > 2):
        x = x + 2
    elif (x < 9).all() and x.mean() < 3:
        x = x + 3
    return x


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
def branch_calls_functions(x, a):
    def grow(y):
        return y * 2 + 1

    def shrink(y):
        return paddle.tanh(y)

    if a > 0:
        out = grow(x)
    else:
        out = shrink(grow(x))
    return out


@program(x="f32[B,4]", a=by_call(9.0, -9.0, 0.0))
class MixtureOfTwoExperts(nn.Layer):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x, a):
        if a > 0:
            y = self.left(x)
        else:
            y = self.right(x)
        return paddle.tanh(y)


@program(x="f32[4]", a=by_call(1.0, -1.0, 1.0), b=by_call(1.0, 1.0, -1.0))
def conditions_in_variables(x, a, b):
    positive = a > 0
    both = positive and b > 0
    some = a > 0 or b > 0
    neither = not some
    if both:
        x = x + 1
    if neither or not positive:
        x = x * 2
    return x, both, some


@program(x="f32[4]", y="f32[4]", a=by_call(0.0, 2.0, 0.0))
def or_and_and_give_values(x, y, a):
    chosen = a or x.max()
    other = a and y.max()
    return chosen, other


@program(x="f32[4]", a=by_call(0.5, -1.0, 7.0), quick=True)
def conditional_expression_in_a_call(x, a):
    return paddle.clip(x * 3, min=-1.0, max=(a if a > 0 else -a)), (x, a)[0 if a.shape else 1]
