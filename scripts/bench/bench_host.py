"""The cost of host calls: a scalar at the top, and teacher forcing that draws in every step.

Prints Markdown. `python -m scripts.bench.bench_host [--rounds 15] [--steps 128]` from the root.
The functions are called in turns; times are those of the processor, as all run on one thread.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import random
import statistics
from collections.abc import Callable
from typing import Any

import paddle

import dy2st
from scripts.bench.bench_resnet import in_turns
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_host"
#: calls in one measurement
MANY = 20


class Decoder(paddle.nn.Layer):
    """A recurrent cell that sees its own output or the teacher's, as `choose` says."""

    def __init__(self, choose: Callable[[Any, int], Any], hidden: int = 64) -> None:
        super().__init__()
        self.inner = paddle.nn.Linear(2 * hidden, hidden)
        self.choose, self.hidden = choose, hidden

    def forward(self, x: Any, given: Any) -> Any:
        h = seen = paddle.zeros([x.shape[0], self.hidden])
        for t in range(x.shape[1]):
            h = paddle.tanh(self.inner(paddle.concat([seen, h], -1)))
            seen = x[:, t] if self.choose(given, t) else h
        return h


def drawn(given: Any, t: int) -> Any:
    return random.random() < 0.5


def from_argument(given: Any, t: int) -> Any:
    return given[t] < 0.5


def drawn_in_a_branch(given: Any, t: int) -> Any:
    return given[t] > 0 and random.random() < 0.5


def scaled(x: Any) -> Any:
    return x * 0.5


def scaled_by_a_draw(x: Any) -> Any:
    return x * random.random()


def many(f: Callable[..., Any], *args: Any) -> Callable[[], None]:
    def call() -> None:
        with paddle.no_grad():
            for _ in range(MANY):
                f(*args)

    return call


def table(rows: dict[str, Callable[[], None]], rounds: int) -> None:
    print("\n| call | median, µs | least, µs |\n|---|---:|---:|")
    for name, times in zip(rows, in_turns(list(rows.values()), rounds)):
        each = [1e3 * q / MANY for q in times]
        print(f"| {name} | {statistics.median(each):.1f} | {min(each):.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=128)
    options = parser.parse_args()
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {options.rounds}`, {processor()}, "
        f"one thread, Python {platform.python_version()}, Paddle {paddle.__version__}."
    )
    one = paddle.ones([4])
    x, given = paddle.randn([1, options.steps, 64]), paddle.rand([options.steps])
    table(
        {
            "x * 0.5": many(dy2st.to_static(scaled), one),
            "x * random.random()": many(dy2st.to_static(scaled_by_a_draw), one),
            f"teacher forcing, {options.steps} steps, eager": many(Decoder(drawn), x, given),
            "drawn before the loop": many(dy2st.to_static(Decoder(drawn)), x, given),
            "decided by an argument": many(dy2st.to_static(Decoder(from_argument)), x, given),
            "drawn in the loop": many(dy2st.to_static(Decoder(drawn_in_a_branch)), x, given),
        },
        options.rounds,
    )


if __name__ == "__main__":
    main()
