"""Random bodies and options: eager as a plain loop, translated as eager."""

from __future__ import annotations

import random

import paddle
import pytest

import dy2st
from tests.check import data
from tests.dy2st.functional import plain


def body_of(draw, states, inputs):
    """A body over tuples of `states` carries and `inputs` sequences, all f64[3]."""
    unary = [lambda a: a * 0.5, paddle.tanh, lambda a: -a, lambda a: a.flip(0), lambda a: a + 1]
    binary = [lambda a, b: a + b, lambda a, b: a * b * 0.3, paddle.maximum,
              lambda a, b: paddle.where(a > b, a, b * 0.1)]  # fmt: skip
    plan = [(draw.choice(unary), draw.choice(binary), draw.random(), draw.random(), draw.random())
            for _ in range(draw.randint(1, 5))]  # fmt: skip
    new = [draw.random() for _ in range(states)]
    outputs = [draw.random() for _ in range(draw.randint(0, 3))]
    written = draw.random() < 0.4

    def body(carry, xs):
        pool = [*carry, *xs]
        if written:
            pool[0].multiply_(paddle.full([3], 0.9, "float64"))
        for f, g, a, b, c in plan:
            one, two = pool[int(a * len(pool))], pool[int(b * len(pool))]
            pool.append(f(g(one, two)) if c < 0.8 else g(f(one), two.detach()))
        ys = tuple(pool[int(q * len(pool))] for q in outputs)
        return tuple(pool[int(q * len(pool))] for q in new), ys

    return body


@pytest.mark.parametrize("seed", range(40))
def test_random_scan(seed):
    draw = random.Random(seed)
    states, inputs, steps = draw.randint(1, 3), draw.randint(1, 2), draw.choice([1, 2, 5, 8])
    body, axis, reverse = body_of(draw, states, inputs), draw.choice([0, 1]), draw.random() < 0.5
    unroll = draw.choice([1, 1, 2, 3, True])

    def of(scan, **options):
        def f(*q):
            return scan(body, q[:states], q[states:], axis=axis, reverse=reverse, **options)

        return f

    shape = (steps, 3) if axis == 0 else (3, steps)
    args = [data(3, seed=k) for k in range(states)]
    args += [data(*shape, seed=10 + k) for k in range(inputs)]
    static = plain.check(of(dy2st.scan, unroll=unroll), of(plain.scan), *args)
    assert not any("unrolled" in q for q in plain.kinds(static, *args)), f"seed {seed}"
