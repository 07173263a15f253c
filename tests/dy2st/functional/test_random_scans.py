"""Random bodies and options: eager as a plain loop, translated as eager."""

from __future__ import annotations

import random

import numpy as np
import paddle
import pytest

import dy2st
from tests.check import close, data, detached, leaves, step, trained
from tests.dy2st.functional import plain

pytestmark = pytest.mark.sampled(every=24)

UNARY = [lambda a: a * 0.5, paddle.tanh, lambda a: -a, lambda a: a.flip(0), lambda a: a + 1]
BINARY = [lambda a, b: a + b, lambda a, b: a * b * 0.3, paddle.maximum,
          lambda a, b: paddle.where(a > b, a, b * 0.1)]  # fmt: skip
LOOPS = [
    lambda a, b: dy2st.cond(a.sum() > 0, lambda: a * 0.5 + b, lambda: b * 0.5),
    lambda a, b: dy2st.scan(lambda c, q: (c * 0.5 + q, None), a, paddle.stack([b, b * 2]))[0],
    lambda a, b: dy2st.while_loop(lambda c: c.abs().max() > 1, lambda c: c * 0.5, a + b),
]


def picked(pool, share):
    return pool[int(share * len(pool))]


def drawn(draw, binary):
    """The steps of a body: two functions and the shares at which their operands stand."""
    kinds = draw.choices(UNARY, k=5), draw.choices(binary, k=5)
    steps = [(f, g, draw.random(), draw.random()) for f, g in zip(*kinds)]
    return steps[: draw.randint(1, 5)]


def extended(pool, steps):
    for f, g, a, b in steps:
        pool.append(f(g(picked(pool, a), picked(pool, b))))
    return pool


@pytest.mark.parametrize("seed", range(30))
def test_random_body(seed):
    draw = random.Random(seed)
    states, inputs, length = draw.randint(1, 3), draw.randint(1, 2), draw.choice([1, 2, 5, 8])
    steps, written = drawn(draw, BINARY), draw.random() < 0.4
    new = [draw.random() for _ in range(states)]
    outputs = [draw.random() for _ in range(draw.randint(0, 3))]
    axis, reverse = draw.choice([0, 1]), draw.random() < 0.5
    unroll = draw.choice([1, 1, 2, 3, True])

    def body(carry, xs):
        if written:
            carry[0].multiply_(paddle.full([3], 0.9, "float64"))
        pool = extended([*carry, *xs], steps)
        return tuple(picked(pool, q) for q in new), tuple(picked(pool, q) for q in outputs)

    def of(scan, **options):
        def f(*q):
            return scan(body, q[:states], q[states:], axis=axis, reverse=reverse, **options)

        return f

    shape = (length, 3) if axis == 0 else (3, length)
    args = [data(3, seed=k) for k in range(states)]
    args += [data(*shape, seed=10 + k) for k in range(inputs)]
    static = plain.check(of(dy2st.scan, unroll=unroll), of(plain.scan), *args)
    assert not any("unrolled" in q for q in plain.kinds(static, *args)), f"seed {seed}"


TAPS = [None, None, (-1,), (-2,), (-2, -1), (-3, -1)]


@pytest.mark.parametrize("seed", range(30))
def test_random_options(seed):
    """Values and gradients; a state with taps may require a gradient for its first steps only."""
    draw = random.Random(seed)
    states, inputs, length = draw.randint(1, 3), draw.randint(0, 2), draw.choice([0, 1, 2, 5, 8])
    steps, written = drawn(draw, BINARY + LOOPS), draw.random() < 0.5
    new = [draw.random() for _ in range(states)]
    outputs = [draw.random() for _ in range(draw.randint(0, 3))]
    taps = draw.choices(TAPS, k=states)
    options = {"reverse": draw.random() < 0.4, "unroll": draw.choice([1, 2, 3, True])}
    options["truncate_gradient"] = draw.choice([None, None, 1, 3])
    options["checkpoint"] = draw.choice([None, "sqrt", 2])

    def f(h, x):
        def body(carry, xs):
            pool = [q for c, k in zip(carry, taps) for q in (c if k else [c])]
            if written:
                pool[0].multiply_(paddle.full([3], 0.9, "float64"))
            pool = extended([*pool, *(xs or ())], steps)
            return tuple(picked(pool, q) for q in new), [picked(pool, q) for q in outputs]

        init = [dy2st.taps(c[: -min(k)], k) if k else c[0] for c, k in zip(h, taps)]
        xs = tuple(x * (k + 1) for k in range(inputs)) or None
        return dy2st.scan(body, tuple(init), xs, length=x.shape[0], **options)

    args = [data(3, 3, 3, seed=1), data(length, 3, seed=2)]
    one, two = detached(args), detached(args)
    want, wanted = step(f, one, one)
    have, had = step(dy2st.to_static(f), two, two, trained(want))
    for k, (a, b) in enumerate(zip(leaves(have), leaves(want), strict=True)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-8, err_msg=f"{k}")
    for k, (a, b) in enumerate(zip(had, wanted, strict=True)):
        close(a, b, 1e-8, f"seed {seed}: gradient of argument {k}")
