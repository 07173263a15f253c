"""Gradients inside of functions: a physics-informed network, and molecules in a learnt potential.

Prints Markdown. `python -m scripts.bench.bench_gradients [--rounds 30]` from the root. Eager and
translated models run in turns; the best round counts.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import platform
import time
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn

import dy2st
from scripts.bench.bench_resnet import in_turns
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_gradients"


def perceptron(*width: int) -> nn.Sequential:
    layers = [q for a, b in zip(width, width[1:]) for q in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


class Burgers(nn.Layer):
    """The residual of Burgers' equation: u_t, u_x and u_xx of a network of 4 layers of 64."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(2, 64, 64, 64, 64, 1)

    def forward(self, x: Any, t: Any) -> Any:
        x, t = x.detach(), t.detach()
        x.stop_gradient = t.stop_gradient = False
        u = self.net(paddle.concat([x, t], 1))
        u_x, u_t = paddle.grad(u, [x, t], create_graph=True)
        u_xx = paddle.grad(u_x, x, create_graph=True)[0]
        return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()


class Molecules(nn.Layer):
    """100 steps of leapfrog of 16 atoms, with the forces of a network of their distances."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron(1, 32, 32, 1)

    def forward(self, r: Any, v: Any) -> Any:
        for _ in range(100):
            r = r.detach()
            r.stop_gradient = False
            d = r.unsqueeze(0) - r.unsqueeze(1)
            energy = self.net((d * d).sum(-1).reshape([-1, 1])).sum()
            v = v - 0.01 * paddle.grad(energy, r)[0]
            r = r + 0.01 * v
        return r.detach(), v


def trainer(model: Any, *args: Any) -> Callable[[], object]:
    adam = paddle.optimizer.Adam(1e-3, parameters=model.parameters())

    def step() -> None:
        model(*args).backward()
        adam.step()
        adam.clear_grad()

    return step


def caller(model: Any, *args: Any) -> Callable[[], object]:
    return lambda: model(*args)


def row(name: str, make: Any, run: Callable[..., Any], args: Any, rounds: int) -> None:
    model = make()
    eager = run(copy.deepcopy(model), *args)
    static = run(dy2st.to_static(copy.deepcopy(model)), *args)
    start = time.perf_counter()
    static()
    first = time.perf_counter() - start
    slow, fast = map(min, in_turns([eager, static], rounds))
    print(f"| {name} | {first:.2f} | {slow:.2f} | {fast:.2f} | {slow / fast:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {options.rounds}`, {processor()}, "
        f"Python {platform.python_version()}, Paddle {paddle.__version__}.\n"
    )
    print("| | first call, s | eager, ms | dy2st, ms | ratio |\n|---|---:|---:|---:|---:|")
    paddle.seed(0)
    points = paddle.rand([1000, 1]) * 2 - 1, paddle.rand([1000, 1])
    row("Burgers, a step of Adam", Burgers, trainer, points, options.rounds)
    atoms = paddle.randn([16, 3]), paddle.zeros([16, 3])
    row("molecules, 100 steps", Molecules, caller, atoms, options.rounds)


if __name__ == "__main__":
    main()
