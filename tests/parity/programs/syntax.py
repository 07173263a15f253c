"""`with`, `try`, `match`, generators, comprehensions, unpacking, walrus, `del`, f-strings."""

from __future__ import annotations

import contextlib

import paddle
from paddle import nn

from tests.parity.programs import by_call, program, values


@program(x="f32[B,T,4]")
def no_grad_in_a_loop(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        with paddle.no_grad():
            h = paddle.tanh(h + x[:, t])
    return h


class Scale:
    """A context manager of the user."""

    def __init__(self, factor):
        self.factor, self.depth = factor, 0

    def __enter__(self):
        self.depth += 1
        return self.factor

    def __exit__(self, kind, value, trace):
        self.depth -= 1
        return False


@program(x="f32[B,4]")
def own_context_manager(x):
    scale = Scale(0.5)
    with scale as k, Scale(2.0) as j:
        x = x * k + j
        for _ in range(3):
            x = paddle.tanh(x)
    return x * scale.depth + 1


@contextlib.contextmanager
def shifted(values):
    values.append(1.0)
    try:
        yield values[-1]
    finally:
        values.pop()


@program(x="f32[B,4]")
def context_manager_from_a_generator(x):
    stack = [0.5]
    with shifted(stack) as k:
        x = x + k + len(stack)
    return x + len(stack)


@program(x="f32[B,4]", key=values("a", "b", "missing"))
def try_and_except(x, key):
    scales = {"a": 2.0, "b": 3.0}
    try:
        k = scales[key]
    except KeyError:
        k = -1.0
    else:
        k = k + 1
    finally:
        x = x + 1
    return x * k


@program(x="f32[T,4]", key=values("a", "b", "missing"))
def try_around_a_loop(x, key):
    h = paddle.zeros([4])
    try:
        for row in x:
            h = h * 0.5 + row * {"a": 1.0, "b": 2.0}[key]
    except KeyError as e:
        h = h + len(str(e))
    return h


def pairs(x):
    for k in range(3):
        yield k, x * k


@program(x="f32[B,4]", unrolled="iterates over a generator")
def generator_as_an_iterable(x):
    s = x
    for k, y in pairs(x):
        s = s * 0.5 + y + k
    return s


def chunks(x, n):
    start = 0
    while start < x.shape[0]:
        yield x[start : start + n]
        start += n


@program(x="f32[6,4]", unrolled="iterates over a generator")
def generator_with_a_while(x):
    h = paddle.zeros([4])
    for part in chunks(x, 4):
        h = paddle.tanh(h + part.sum(0))
    return h


@program(x="f32[B,4]")
def generator_expression(x):
    return sum(x * k for k in range(4)), max(k * 2 for k in (1, 5, 3))


@program(x="f32[B,4]", mode=values("relu", "tanh", "other"))
def match_on_a_string(x, mode):
    match mode:
        case "relu":
            y = paddle.nn.functional.relu(x)
        case "tanh":
            y = paddle.tanh(x)
        case _:
            y = x
    return y


@program(x="f32[B,4]", job=values(("scale", 2.0), ("shift", 1.0, 3), ("none",)), quick=True)
def match_on_a_structure(x, job):
    for _ in range(2):
        match job:
            case ("scale", k):
                x = x * k
            case ("shift", k, n) if n > 2:
                x = x + k * n
            case [first, *rest]:
                x = x - len(first) - len(rest)
    return x


@program(x="f32[B,4]")
def starred_targets(x):
    first, *rest = [x, x * 2, x * 3]
    *_, last = rest
    (a, b), c = (first, last), rest[0]
    return a + b * c


@program(x="f32[B,T,4]")
def unpacking_a_split(x):
    h = c = paddle.zeros([x.shape[0], 2])
    for t in range(x.shape[1]):
        i, j = paddle.split(x[:, t], 2, axis=-1)
        h, c = paddle.tanh(i + h), c * 0.5 + j
    return h, c


@program(x="f32[B,T,4]")
def walrus_in_a_loop(x):
    s = paddle.zeros([])
    for t in range(x.shape[1]):
        s = s + (m := x[:, t].mean()) * m
    return s


@program(x="f32[T,4]")
def walrus_in_a_condition(x):
    s = paddle.zeros([])
    for row in x:
        if (m := row.max()) > 1:
            s = s + m
    return s


@program(x="f32[B,T,4]")
def deleted_variable(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        row = x[:, t]
        h = h + row
        del row
    return h


@program(x="f32[3,4]")
def comprehensions(x):
    rows = {k: x[k] * 2 for k in range(3) if k != 1}
    table = [[a * b for a in range(2)] for b in range(3)]
    kinds = {k % 2 for k in range(5)}
    return rows, table, len(kinds), [rows[k] for k in sorted(rows)]


@program(x="f32[B,4]", name=values("a", "b", "a"))
def text_of_python_values(x, name):
    key = f"{name}_{x.shape[-1]:02d}"
    table = {"a_04": 2.0, "b_04": 3.0}
    return x * table[key], f"{key!s}!"


@program(x="f32[B,4]", n=by_call(2, 3, 2))
def pass_and_ellipsis(x, n):
    for _ in range(n):
        pass
    if x.shape[-1] == 4:
        ...
    return x * 2


@program(x="f32[B,4]")
def builtins_on_python_values(x):
    sizes = [3, 1, 2]
    k = max(sizes) - min(sizes) + sum(sizes) + abs(-2) + len(sizes)
    ok = all(s > 0 for s in sizes) and any(s == 2 for s in sizes) and isinstance(x, paddle.Tensor)
    return x * k if ok else x, sorted(sizes), round(2.5), divmod(7, 2)


@program(x="f32[B,T,4]")
def builtins_on_tensors(x):
    total = sum([x.mean(), x.max(), x.min()])
    return abs(x) * 2, total, len(x), pow(x, 2), max(x.mean(), x.sum() * 0 - 100)


@program(x="f32[B,T,4]")
class StopsAndStarts(nn.Layer):
    """Dropout in train mode and in eval mode, and a flag of the Layer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)
        self.use_dropout = True

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 4])
        for t in range(x.shape[1]):
            h = paddle.tanh(self.linear(x[:, t]) + h)
            if self.use_dropout and self.training:
                h = self.dropout(h)
        return h
