"""The cost of one step of a loop: loops of small ops, with kernels of Paddle, and with one step.

Prints Markdown. `python -m scripts.bench.bench_steps [--rounds 15] [--steps 400]` from the root.
The functions are called in turns; times are those of the processor, as all run on one thread. The
time of a step is the difference between calls of 5n and of n steps: what a call costs besides is
not in it.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import random
from collections.abc import Callable
from typing import Any

import paddle

import dy2st
from scripts.bench.bench_host import many, table
from scripts.bench.bench_resnet import in_turns
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_steps"


def four_ops(x: Any, steps: int) -> Any:
    """A product, a sum, a largest element and a sum along an axis: no two are one kernel."""
    w = paddle.ones([4, 4]) / 8
    for _ in range(steps):
        y = x @ w
        x = paddle.cumsum(y, 1) / (y.sum() + y.max() + 1)
    return x


def noise(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x * 0.9 + paddle.randn(x.shape)
    return x


def gains(x: Any, steps: int) -> Any:
    """Both operands ask for a gradient: in eager, Paddle's kernel ends the process otherwise."""
    for _ in range(steps):
        x = paddle.linalg.solve(MATRIX + x * 0.01, x) * 0.9
    return x


def solved(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = paddle.linalg.solve(MATRIX, x) * 0.9
    return x


def drawn_in_a_branch(x: Any, steps: int) -> Any:
    for _ in range(steps):
        if x.sum() > -1e9:
            x = x * random.random()
    return x


def smallest(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x + paddle.kthvalue(x, 3, axis=1)[0].unsqueeze(1) * 0.01
    return x


def gammas(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = paddle.lgamma(x.abs() + 1.0)
    return x


def roots(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = paddle.linalg.cholesky(x @ x.T + MATRIX) * 0.1
    return x


def body(x: Any) -> Any:
    return paddle.tanh(x @ MATRIX) + x


def one_step(x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = body(x)
    return x


MATRIX = paddle.eye(16) * 2


def steps_table(options: argparse.Namespace, loops: dict[Any, Any], call: Any, what: str) -> None:
    print(f"\n| {what} | eager, µs a step | dy2st, µs a step | difference |\n|---|---:|---:|---:|")
    lengths = (options.steps, 5 * options.steps)
    for loop, given in loops.items():
        static = dy2st.to_static(loop)
        calls = [call(f, given, n) for f in (loop, static) for n in lengths]
        least = list(map(min, in_turns(calls, options.rounds)))
        eager, ours = (
            1e3 * (long - short) / (lengths[1] - lengths[0])
            for short, long in zip(least[::2], least[1::2])
        )
        print(f"| {loop.__name__} | {eager:.2f} | {ours:.3f} | {ours - eager:.2f} |", flush=True)


def repeated(f: Callable[..., Any], x: Any, steps: int) -> Callable[[], None]:
    def call() -> None:
        with paddle.no_grad():
            f(x, steps)

    return call


def trained(f: Callable[..., Any], x: Any, steps: int) -> Callable[[], None]:
    """Forward and backward."""

    def call() -> None:
        given = x.detach()
        given.stop_gradient = False
        f(given, steps).sum().backward()

    return call


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {options.rounds} --steps {options.steps}`, "
        f"{processor()}, one thread, Python {platform.python_version()}, "
        f"Paddle {paddle.__version__}."
    )
    x = paddle.ones([16, 16])
    loops = {four_ops: x[:4, :4], noise: x, solved: x, drawn_in_a_branch: x}
    steps_table(options, loops, repeated, "loop")
    gradients = {smallest: x, gammas: x, roots: x, gains: x}
    steps_table(options, gradients, trained, "loop, with its gradient")
    x = paddle.ones([1, 16])
    calls = {
        "the body alone": many(dy2st.to_static(body), x),
        "a loop of one step": many(dy2st.to_static(one_step), x),
    }
    table(calls, options.rounds)


if __name__ == "__main__":
    main()
