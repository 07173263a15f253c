"""Tensors that a `while` loop without a bound makes longer and reads as a whole.

The buffer has room for as many iterations as a call turns out to need.
"""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from executor.allocation import HOST
from tests import check

WIDTH = 4
names = {"ids": lambda f: f.__name__}


def attended(h, cache):
    return F.softmax(h @ cache.T, -1) @ cache


def until_a_limit(x, limit):
    """Does not run for a limit of 0."""
    cache, h, n = x, x[:1], paddle.zeros([], x.dtype)
    while n < limit:
        h = paddle.tanh(attended(h, cache) + h)
        cache = paddle.concat([cache, h])
        n = n + 1
    return cache, h


def until_a_break(x, limit):
    cache, h = x, x[:1]
    while True:
        h = paddle.tanh(attended(h, cache) + h * 0.5)
        cache = paddle.concat([cache, h])
        limit = limit - 1
        if limit <= 0:
            break
    return cache, h


def until_a_break_in_front(x, limit):
    """The step that ends the loop adds nothing."""
    cache, h = x, x[:1]
    while True:
        h = paddle.tanh(attended(h, cache) + h * 0.5)
        limit = limit - 1
        if limit <= 0:
            break
        cache = paddle.concat([cache, h])
    return cache, h


def in_front(x, limit):
    cache, n = x, paddle.zeros([], x.dtype)
    while n < limit:
        h = paddle.tanh(attended(cache[-1:], cache) + cache[:1])
        cache = paddle.concat([h, cache])
        n = n + 1
    return cache


def two_caches(x, limit):
    """One grows by two rows, the other begins as None."""
    keys, values, h = x, None, x[:1]
    while True:
        keys = paddle.concat([keys, h, h * 0.5])
        values = h if values is None else paddle.concat([values, h])
        h = paddle.tanh(attended(h, keys) + values.mean(0, keepdim=True))
        limit = limit - 1
        if limit <= 0:
            break
    return keys, h


def in_an_inner_loop(x, limit):
    total = x[:1] * 0
    for t in range(3):
        cache, n = x[:1] * (t + 1), paddle.zeros([], x.dtype)
        while n < limit + t:
            cache = paddle.concat([cache, paddle.tanh(attended(cache[:1], cache))])
            n = n + 1
        total = total + cache.sum(0, keepdim=True)
    return total


def reordered(x, limit):
    """As the caches of a beam search."""
    cache, n = x.unsqueeze(1), paddle.zeros([], x.dtype)
    while n < limit:
        h = paddle.tanh(cache.mean(1, keepdim=True) + cache[:, -1:])
        cache = paddle.concat([cache, h], 1)
        cache = paddle.index_select(cache, paddle.argsort(cache.sum([1, 2])), 0)
        n = n + 1
    return cache


class Module(paddle.nn.Layer):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def triangle(x, limit):
    """Nothing grows, but a size follows the index."""
    total, n, t = x[:1] * 0, paddle.zeros([], x.dtype), 0
    while n < limit:
        for j in range(t):
            total = total * 0.5 + x[:1] * j
        n, t = n + 1, t + 1
    return total


def in_some_steps(x, limit):
    """Data decides how long the tensor is in each step."""
    cache, h, n = x, x[:1], paddle.zeros([], x.dtype)
    while n < limit:
        h = paddle.tanh(attended(h, cache) + paddle.sin(3 * h + n))
        n = n + 1
        if h.sum() < -0.5:
            continue
        cache = paddle.concat([cache, h])
        if h[0, 0] > 0:
            cache = paddle.concat([cache, h * 2, h * 3])
    return cache, h


def behind_the_first(x, limit):
    """A slice in a branch of the index that does not begin in front, and all but the prompt."""
    cache, prompt = x, x.shape[0]
    for step in range(int(limit)):
        h = paddle.tanh(attended(cache[-1:], cache))
        if step > 0:
            h = h - cache[1:].mean(0, keepdim=True)
        cache = paddle.concat([cache, h])
    return cache[prompt:].sum(0)


FUNCTIONS = (
    behind_the_first,
    until_a_limit, until_a_break, until_a_break_in_front, in_front, two_caches, in_an_inner_loop,
    reordered, triangle, in_some_steps,
)  # fmt: skip
#: the first capacity is 16
LIMITS = (0, 1, 3, 15, 16, 17, 70, 2)


def arguments(limit):
    return [check.data(2, WIDTH), paddle.to_tensor(float(limit), "float64")]


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_results_of_calls_of_any_length(f):
    limits = itertools.cycle(LIMITS)
    static = check.parity(
        Module(f), lambda: arguments(next(limits)), calls=len(LIMITS), rtol=1e-9, atol=1e-9
    )
    assert "unrolled" not in str(dy2st.report(static, *arguments(3)))


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_gradients(f):
    static = dy2st.to_static(f)
    for limit in (1, 5, 20, 4):
        x, n = arguments(limit)
        (want, dx), (have, dy) = (
            check.step(q, [q_x := check.detached(x), n], [q_x]) for q in (f, static)
        )
        check.same(have, want, rtol=1e-9, atol=1e-9, what=f"limit {limit}")
        check.close(dy[0], dx[0], 1e-9, f"limit {limit}: gradient")


def test_a_bound_in_the_body_is_found():
    def f(x, limit):
        n = 0
        while (x.sum() < limit).all():
            x = paddle.concat([x, x.mean(0, keepdim=True)])
            n += 1
            if n > 20:
                break
        return x

    static = check.parity(Module(f), lambda: arguments(5))
    assert "capacities" not in str(dy2st.program(static, *arguments(5)))


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
def test_memory_follows_the_length():
    def f(x, steps):
        cache, h, n = x, x, paddle.zeros([])
        while n < steps:
            h = paddle.tanh(attended(h, cache))
            cache = paddle.concat([cache, h])
            n = n + 1
        return cache

    static, x = dy2st.to_static(f), paddle.ones([1, 64])
    static(x, paddle.to_tensor(2.0))
    before = resident()
    for steps in (1000, 20_000):
        made = static(x, paddle.to_tensor(float(steps)))
        assert made.shape == [steps + 1, 64]
        # a copy for each step would be 51 GB; an allocator with a history keeps some MB
        assert resident() - before < 4 * made.size * 4 + (32 << 20)
        assert bool(paddle.isfinite(made).all())


@pytest.mark.slow
def test_draws_and_host_calls_are_made_once():
    """A call that needs more capacity than the last one starts again."""

    def f(ids):
        while True:
            weights = F.softmax(ids.astype("float32").mean(1, keepdim=True) + paddle.arange(5.0))
            token = paddle.multinomial(weights, 1)
            drawn = random.random()
            ids = paddle.concat([ids, token], 1)
            print(drawn)
            if (token == 0).all():
                break
        return ids, drawn

    static, lengths = dy2st.to_static(f), []
    for k in range(6):
        results = []
        for g in (f, static):
            random.seed(k)
            seen = check.observe(g, [paddle.ones([1, 2], "int64")], seed=k)
            results.append((seen, random.random()))
        (want, after), (have, also) = results
        check.equal(have, want, f"call {k}")
        assert after == also
        lengths.append(want.result[0].shape[1])
    assert max(lengths) > 40 and "unrolled" not in str(
        dy2st.report(static, paddle.ones([1, 2], "int64"))
    )


def test_written_buffers_and_errors():
    """A call that starts again, or fails, has written nothing before."""

    class Counts(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", paddle.zeros([]))

        def forward(self, x, limit):
            while True:
                x = paddle.concat([x, x.mean(0, keepdim=True) + self.steps])
                self.steps.add_(paddle.ones([]))
                if x.shape[0] > 40 and limit < 0:
                    raise ValueError("negative")
                if self.steps % 50 >= limit:
                    break
            return x

    limits = itertools.cycle((3.0, 45.0, -1.0, 20.0))
    check.parity(Counts(), lambda: [paddle.ones([1, 2]), paddle.to_tensor(next(limits))], calls=8)


def test_saved_programs(tmp_path):
    path = tmp_path / "decoder.dy2st"
    spec = [InputSpec([None, WIDTH], "float64"), InputSpec([], "float64")]
    with paddle.no_grad():
        dy2st.save(until_a_limit, path, spec)
        loaded = dy2st.load(path)
        for limit in (0, 1, 50, 3):
            x, n = arguments(limit)
            for have, want in zip(loaded(x.numpy(), n.numpy()), until_a_limit(x, n)):
                np.testing.assert_allclose(have, want.numpy(), rtol=1e-9)


@pytest.mark.slow
def test_more_than_the_machine_has(monkeypatch):
    """An endless loop ends with the memory."""
    monkeypatch.setattr(HOST, "most", 1 << 24)

    def f(x):
        while True:
            x = paddle.concat([x, x[:1] + x.mean()])
            if x.sum() < 0:
                break
        return x[-1]

    with pytest.raises(MemoryError):
        dy2st.to_static(f)(paddle.ones([1, 1 << 10]))


@pytest.mark.slow
def test_an_endless_loop_can_be_interrupted():
    def stop(number, frame):
        raise KeyboardInterrupt

    def f(x):
        while True:
            x = paddle.concat([x, x[-1:] * 0.5 + x.mean() * 0])
            if x[-1] < -1:
                break
        return x

    static, before = dy2st.to_static(f), signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        with pytest.raises(KeyboardInterrupt):
            static(paddle.ones([1]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_new_program_begins_with_the_capacities_of_another_one():
    static, x = dy2st.to_static(until_a_limit), check.data(2, WIDTH)
    static(x, paddle.to_tensor(100.0, "float64"))
    other = check.data(3, WIDTH)
    limit = paddle.to_tensor(90.0, "float64")
    run = static.entry(other, limit).executable
    assert run is not static.entry(x, limit).executable
    assert list(run._first.values()) == [128]
    check.same(static(other, limit), until_a_limit(other, limit), rtol=1e-9, atol=1e-9)


def test_donated_arguments_of_such_a_loop_keep_their_content():
    """It may start again, from them."""
    static, limit = dy2st.to_static(until_a_limit, donate=("x",)), paddle.to_tensor(40.0, "float64")
    with paddle.no_grad():
        x = check.data(2, WIDTH, trained=False)
        before, want = x.numpy().copy(), until_a_limit(x, limit)
        check.same(static(x, limit), want, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(x.numpy(), before)
