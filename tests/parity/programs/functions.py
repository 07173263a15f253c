"""Functions: nested, closures, decorators, recursion, methods, defaults, `*args` and `**kwargs`."""

from __future__ import annotations

import functools
import linecache

import paddle
from paddle import nn

from tests.parity.programs import by_call, closure, program, values


@program(x="f32[B,T,4]")
def nested_function(x):
    w = paddle.full([4], 0.5)

    def step(h, row):
        return paddle.tanh(h * w + row)

    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = step(h, x[:, t])
    return h


@program(x="f32[B,T,4]")
def nonlocal_state(x):
    h, n = paddle.zeros([x.shape[0], 4]), 0

    def step(row):
        nonlocal h, n
        h = paddle.tanh(h + row)
        n += 1

    for t in range(x.shape[1]):
        step(x[:, t])
    return h, n


@program(x="f32[B,T,4]")
def a_lambda(x):
    mix = lambda a, b, k=0.5: a * k + b * (1 - k)  # noqa: E731
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = mix(h, x[:, t])
    return mix(h, h, k=2.0)


@program(x="f32[4]", unrolled="each iteration makes a function")
def functions_made_in_a_loop(x):
    steps = []
    for k in range(3):
        steps.append(lambda y, k=k: y * (k + 1) + 0.5)
    for f in steps:
        x = f(x)
    return x


@closure(x="f32[T,4]")
def counter_in_a_closure():
    calls, h = 0, paddle.zeros([4])

    def run(x):
        nonlocal calls, h
        calls += 1
        for row in x:
            h = paddle.tanh(h + row)
        return h * calls

    return run


def scaled(k):
    def wrap(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * k

        return inner

    return wrap


@scaled(3.0)
def decorated_step(h, row, decay=0.5):
    return h * decay + row


@program(x="f32[B,T,4]")
def decorated_function(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(decorated_step(h, x[:, t], decay=0.1))
    return h


def power(x, n):
    if n == 0:
        return paddle.ones_like(x)
    half = power(x, n // 2)
    return half * half * (x if n % 2 else 1.0)


@program(x="f32[4]", n=values(0, 5, 10))
def recursion(x, n):
    return power(paddle.tanh(x), n)


def tree_sum(tree):
    if isinstance(tree, (list, tuple)):
        return sum([tree_sum(q) for q in tree[1:]], tree_sum(tree[0]))
    return tree * 2


@program(tree=["f32[B,4]", ["f32[B,4]", "f32[B,4]"], ("f32[B,4]",)])
def recursion_over_a_structure(tree):
    return tree_sum(tree)


def gated(h, *rows, scale=1.0, **options):
    for row in rows:
        h = h + row * scale
    if options.get("activate", False):
        h = paddle.tanh(h)
    return h


@program(x="f32[B,T,4]")
def variable_arguments(x):
    h = paddle.zeros([x.shape[0], 4])
    options = {"scale": 0.5, "activate": True}
    for t in range(x.shape[1]):
        h = gated(h, x[:, t], -h * 0.1, **options)
    rows = [h, h * 2]
    return gated(*rows), gated(h, scale=2.0)


@program(x="f32[B,T,4]")
class ReceiverNotCalledSelf(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.h = None

    def advance(this, row):
        this.h = paddle.tanh(this.linear(row) + this.h)

    def forward(net, x):
        net.h = paddle.zeros([x.shape[0], 4])
        for t in range(x.shape[1]):
            net.advance(x[:, t])
        return net.h


class Helpers:
    rate = 0.25

    @staticmethod
    def mix(a, b):
        return a * 0.5 + b

    @classmethod
    def decay(cls, a):
        return a * cls.rate

    @property
    def bias(self):
        return self.rate * 4

    def __call__(self, a):
        return self.decay(a) + self.bias


@program(x="f32[B,T,4]", quick=True)
def static_class_and_property(x):
    helpers = Helpers()
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = helpers(Helpers.mix(h, x[:, t]))
    return h


class Base(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def step(self, h, row):
        return paddle.tanh(self.linear(row) + h)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 4])
        for t in range(x.shape[1]):
            h = self.step(h, x[:, t])
        return h


@program(x="f32[B,T,4]")
class Inherited(Base):
    def step(self, h, row):
        return super().step(h, row) * 0.5 + h


TEXT = """
def written_as_text(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t])
    return h
"""


def from_text():
    """The function of TEXT, as a notebook makes it: by exec, with its source in linecache."""
    name = "<programs cell 1>"
    linecache.cache[name] = (len(TEXT), None, TEXT.splitlines(True), name)
    space = {"paddle": paddle, "__name__": __name__}
    exec(compile(TEXT, name, "exec"), space)
    return space["written_as_text"]


program(x="f32[B,T,4]")(from_text())


@program(x="f32[B,4]", n=by_call(3, 0, 1))
def loop_in_a_callee(x, n):
    return repeat(lambda y: paddle.tanh(y * 2), x, n)


def repeat(f, x, n):
    for _ in range(n):
        x = f(x)
    return x


@program(x="f32[B,T,4]")
def partial_and_map(x):
    step = functools.partial(decorated_step, decay=0.2)
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(step(h, x[:, t]))
    halves = map(lambda q: q * 0.5, [h, h + 1])
    return list(halves)


@program(x="f32[T,4]")
def reduce_over_a_list(x):
    parts = [x * 2, x + 1, x - 1]
    return functools.reduce(lambda a, b: a * 0.5 + b, parts)


@program(x="f32[B,T,4]")
class CallsOfLayersInLayers(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 3)
        self.norm = nn.LayerNorm(3)
        self.blocks = nn.LayerList([nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)])

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 3])
        ys = []
        for t in range(x.shape[1]):
            y, h = self.cell(x[:, t], h)
            for block in self.blocks:
                y = y + block(y)
            ys.append(self.norm(y))
        return paddle.stack(ys, 1)


@program(x="f32[T,4]", limit=by_call(1.0, -9.0, 0.5))
def callee_returns_early(x, limit):
    y = first_above(x, limit)
    return y * 2


def first_above(x, limit):
    s = paddle.zeros([4])
    for row in x:
        s = s + row
        if s.max() > limit:
            return s
    return s - 100


@program(x="f32[T,4]", step=values(1, 2, 3))
def keyword_only(x, step):
    def run(y, /, *, times, shift=0.0):
        for _ in range(times):
            y = y * 0.5 + shift
        return y

    return run(x, times=step, shift=1.0), run(x, times=4)
