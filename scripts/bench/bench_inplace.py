"""Writes in place: caches that a loop fills, states, statistics and parameters, against eager.

Prints Markdown. `python -m scripts.bench.bench_inplace [--rounds 5]` from the root. Eager and dy2st
are called in turns, under `no_grad`, each on tensors of its own. A step of a cache costs the row
that it writes: the same for every number of steps, and no copy of the cache is in the plan.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

import dy2st
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_inplace"
ROWS, WIDTH = 4096, 512
STEPS = (512, 1024, 2048, 4096)


# ---------------------------------------------------------------- caches
def rows(cache: Any, x: Any) -> Any:
    """cache[t] = row; the row is read back."""
    total = paddle.zeros([x.shape[1]])
    for t in range(x.shape[0]):
        cache[t] = x[t] + total
        total = 0.5 * (total + cache[t])
    return total


def columns(cache: Any, x: Any) -> Any:
    """cache[:, t] = row; the column is read back."""
    total = paddle.zeros([x.shape[1]])
    for t in range(x.shape[0]):
        cache[:, t] = x[t] + total
        total = 0.5 * (total + cache[:, t])
    return total


def local(cache: Any, x: Any) -> Any:
    """A cache of the function's own, summed up at the end."""
    cache = paddle.zeros([ROWS, WIDTH])
    total = paddle.zeros([x.shape[1]])
    for t in range(x.shape[0]):
        cache[t] = x[t] + total
        total = 0.5 * (total + cache[t])
    return total + cache.sum(0)


def at_data(cache: Any, x: Any, at: Any) -> Any:
    """cache[i] = row with i = at[t], from data."""
    total = paddle.zeros([x.shape[1]])
    for t in range(x.shape[0]):
        cache[at[t]] = x[t] + total
        total = 0.5 * (total + cache[at[t]])
    return total


def in_slots(cache: Any, x: Any, at: Any) -> Any:
    """cache[i, t] = row in a cache of 4 slots, with i = at[t] % 4 from data."""
    cache, at = cache.reshape([4, -1, x.shape[1]]), at % 4
    total = paddle.zeros([x.shape[1]])
    for t in range(x.shape[0]):
        i, s = at[t], t // 4
        cache[i, s] = x[t] + total
        total = 0.5 * (total + cache[i, s])
    return total


class Buffer(paddle.nn.Layer):
    """The cache is a buffer, and so is the position, which moves on from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", paddle.zeros([ROWS, WIDTH]))
        self.register_buffer("position", paddle.zeros([], "int64"))

    def forward(self, x: Any) -> Any:
        self.position.zero_()
        total = paddle.zeros([x.shape[1]])
        for t in range(x.shape[0]):
            self.cache[self.position] = x[t] + total
            total = 0.5 * (total + self.cache[self.position])
            self.position += 1
        return total


class Attention(Buffer):
    """Every step attends to the whole cache: it reads 2 x 8 MiB and writes 2 KiB."""

    def forward(self, x: Any) -> Any:
        out = []
        for t in range(x.shape[0]):
            self.cache[t] = x[t]
            weights = F.softmax(paddle.matmul(self.cache, x[t]), -1)
            out.append(paddle.matmul(weights, self.cache))
        return paddle.stack(out)


# ---------------------------------------------------------------- states and parameters
class State(paddle.nn.Layer):
    """An LSTM cell whose state stays in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = paddle.nn.LSTMCell(128, 128)
        self.register_buffer("h", paddle.zeros([8, 128]))
        self.register_buffer("c", paddle.zeros([8, 128]))

    def forward(self, x: Any) -> Any:
        h, c = self.h.clone(), self.c.clone()
        for t in range(x.shape[0]):
            _, (h, c) = self.cell(x[t], (h, c))
        paddle.assign(h, self.h)
        paddle.assign(c, self.c)
        return h.sum()


class Statistics(paddle.nn.Layer):
    """Mean and variance of a batch, and their running averages."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", paddle.zeros([WIDTH]))
        self.register_buffer("variance", paddle.ones([WIDTH]))

    def forward(self, x: Any) -> Any:
        mean = x.mean(0)
        variance = ((x - mean) ** 2).mean(0)
        self.mean.scale_(0.9).add_(mean * 0.1)
        self.variance.scale_(0.9).add_(variance * 0.1)
        return (x - mean) * paddle.rsqrt(variance + 1e-5)


class Momentum(paddle.nn.Layer):
    """One step of SGD with momentum, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.w = self.create_parameter([ROWS, WIDTH])
        self.register_buffer("moment", paddle.zeros([ROWS, WIDTH]))

    def forward(self, gradient: Any) -> None:
        self.moment.scale_(0.9).add_(gradient)
        self.w.subtract_(self.moment * 0.01)


# ---------------------------------------------------------------- measuring
def in_turns(calls: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """The median time of a call of each, in microseconds."""
    times: list[list[float]] = [[] for _ in calls]
    for f in calls:
        f()
    for _ in range(rounds):
        for f, into in zip(calls, times):
            start = time.perf_counter()
            f()
            into.append(1e6 * (time.perf_counter() - start))
    return [statistics.median(q) for q in times]


def pair(made: Any, arguments: Sequence[Any]) -> tuple[list[Callable[[], Any]], Any]:
    """Eager and translated calls with tensors of their own, and the compiled program."""
    copies = [[a.clone() for a in arguments] for _ in range(2)]
    if isinstance(made, type):
        eager, own = made(), made()
        own.set_state_dict(eager.state_dict())
        layer = dy2st.to_static(own)
        static, call = layer.forward, layer
    else:
        eager = made
        static = call = dy2st.to_static(made)
    for a, b in zip(copies[0], copies[1]):
        assert bool((a == b).all())
    calls = [lambda: eager(*copies[0]), lambda: call(*copies[1])]
    check(*(f() for f in calls))
    return calls, static.entry(*copies[1]).executable


def check(eager: Any, translated: Any) -> None:
    if eager is not None:
        np.testing.assert_allclose(translated.numpy(), eager.numpy(), rtol=1e-3, atol=1e-4)


def row(name: str, steps: int, made: Any, arguments: Sequence[Any], rounds: int) -> float:
    calls, run = pair(made, arguments)
    eager, static = (q / steps for q in in_turns(calls, rounds))
    arena = run.layout.bytes({}) / 1024
    print(
        f"| {name} | {steps} | {eager:.1f} | {static:.2f} | {eager / static:.1f} "
        f"| {len(run.copies)} | {arena:.1f} |",
        flush=True,
    )
    return static


def caches(rounds: int) -> None:
    x = paddle.randn([max(STEPS), WIDTH])
    at = paddle.randperm(ROWS)
    ends: dict[str, list[float]] = {}
    for steps in STEPS:
        own = x[:steps].clone()
        cases: list[tuple[str, Any, list[Any]]] = [
            ("argument, `cache[t] = row`", rows, [paddle.zeros([ROWS, WIDTH]), own]),
            ("argument, `cache[:, t] = row`", columns, [paddle.zeros([WIDTH, ROWS]), own]),
            ("local, `cache[t] = row`", local, [paddle.zeros([1]), own]),
            (
                "argument, `cache[i] = row`, i from data",
                at_data,
                [paddle.zeros([ROWS, WIDTH]), own, at[:steps].clone()],
            ),
            (
                "argument, `cache[i, t] = row`, i from data",
                in_slots,
                [paddle.zeros([ROWS, WIDTH]), own, at[:steps].clone()],
            ),
            ("buffer, at a position in a buffer", Buffer, [own]),
        ]
        for name, made, arguments in cases:
            ends.setdefault(name, []).append(row(name, steps, made, arguments, rounds))
    for steps in (64, 128):
        row("buffer, attention over all of it", steps, Attention, [x[:steps].clone()], rounds)
    print("\nA step of the longest loop against one of the shortest: ", end="")
    print(", ".join(f"{name} {q[-1] / q[0]:.2f}" for name, q in ends.items()) + ".\n")


def states(rounds: int) -> None:
    head = "|---|---:|---:|---:|---:|---:|---:|"
    print(f"| | steps | eager, µs a step | dy2st | times faster | copies | arena, KiB |\n{head}")
    cases = [
        ("LSTM cell, state in buffers", 256, State, [paddle.randn([256, 8, 128])]),
        ("statistics of a batch", 1, Statistics, [paddle.randn([256, WIDTH])]),
        ("momentum, 2 x 8 MiB", 1, Momentum, [paddle.randn([ROWS, WIDTH])]),
    ]
    for name, steps, made, arguments in cases:
        row(name, steps, made, arguments, 4 * rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    fast_eager()
    paddle.seed(0)
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {rounds}`, {processor()}, one thread, "
        f"Python {platform.python_version()}, Paddle {paddle.__version__}, medians.\n"
    )
    print(f"| cache of {ROWS} x {WIDTH} | steps | eager, µs a step | dy2st | times faster ", end="")
    print("| copies | arena, KiB |\n|---|---:|---:|---:|---:|---:|---:|")
    with paddle.no_grad():
        caches(rounds)
        states(rounds)


if __name__ == "__main__":
    main()
