"""The gain of single loop rewrites: each program with and without one of them.

Prints Markdown. `python -m scripts.bench.bench_rewrites [table ...] [--rounds 15]` from the
root. The versions are called in turns; times are those of the processor, as all run on one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import platform
import statistics
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import paddle

import dy2st
import ir.passes
from ir.autodiff import region_gradients
from ir.types import evaluate_dim
from scripts.bench.bench_resnet import in_turns
from scripts.demo import processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_rewrites"
MIB = 1 << 20


def neurons(x: Any) -> Any:
    """Four layers, each over all steps."""
    for layer in (0.9, 0.8, 0.7, 0.6):
        v, ys = paddle.zeros(x.shape[1:]), []
        for row in x:
            v = layer * v + row
            ys.append(v)
        x = paddle.stack(ys)
    return x


def window(x: Any) -> Any:
    h, ys = paddle.zeros(x.shape[1:]), []
    for row in x:
        h = paddle.tanh(h + row)
        ys.append(h)
    return paddle.stack(ys[-3:])


def counter(x: Any) -> Any:
    i, h = paddle.zeros([1], "int64"), paddle.zeros([x.shape[1], 64])
    while i < x.shape[0]:
        h = paddle.tanh(h + paddle.matmul(x[i[0]], WEIGHTS[: x.shape[2]]))
        i = i + 1
    return h


def running_sum(x: Any) -> Any:
    h, ys = paddle.zeros(x.shape[1:]), []
    for row in x:
        h = h + row
        ys.append(h)
    return paddle.stack(ys)


def cumsum(x: Any) -> Any:
    return paddle.cumsum(x, 0)


WEIGHTS = paddle.randn([512, 64]) / 16


class Recurrent(paddle.nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.x, self.h = paddle.nn.Linear(width, width), paddle.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        h, ys = paddle.zeros(x.shape[1:]), []
        for row in x:
            h = paddle.tanh(self.x(row) + self.h(h))
            ys.append(h)
        return paddle.stack(ys)


class Spiking(paddle.nn.Layer):
    """Neurons whose potential stays at the Layer from step to step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(width, width)
        self.v: Any = None

    def forward(self, x: Any) -> Any:
        v = 0.9 * self.v + self.linear(x)
        spikes = (v > 1.0).astype("float32")
        self.v = v * (1 - spikes)
        return spikes + 0.1 * v


class Stepped(paddle.nn.Layer):
    """Layers in a loop over them in a loop over time."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([Spiking(width) for _ in range(layers)])
        self.names = [str(k) for k in range(layers)]

    def start(self, xs: Any) -> None:
        for layer in self.layers:
            layer.v = paddle.zeros(xs.shape[1:])

    def forward(self, xs: Any) -> Any:
        self.start(xs)
        ys = []
        for x in xs:
            for layer in self.layers:
                x = layer(x)
            ys.append(x)
        return paddle.stack(ys)


class WrittenOut(Stepped):
    """The loop over the layers is one over texts, which is written out."""

    def forward(self, xs: Any) -> Any:
        self.start(xs)
        ys = []
        for x in xs:
            for name in self.names:
                x = getattr(self.layers, name)(x)
            ys.append(x)
        return paddle.stack(ys)


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    before = list(ir.passes.PIPELINE)
    ir.passes.PIPELINE[:] = [q for q in before if ir.passes.name_of(q[0]) != name]
    try:
        yield
    finally:
        ir.passes.PIPELINE[:] = before


def translated(f: Any, x: Any) -> Any:
    static = dy2st.to_static(f)
    with paddle.no_grad():
        static(x)
    return static


def median(calls: list[Callable[[], None]], rounds: int) -> list[float]:
    return list(map(statistics.median, in_turns(calls, rounds)))


def arena(static: Any, x: Any) -> float:
    with paddle.no_grad():
        return static.entry(x).executable.layout.bytes({}) / MIB  # type: ignore[no-any-return]


def quietly(f: Any, x: Any) -> Callable[[], None]:
    def call() -> None:
        with paddle.no_grad():
            f(x)

    return call


def inference(rounds: int) -> None:
    print(
        "\n| rewrite | program | shape | before, ms | now, ms | ratio | arena before, MiB | now |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for name, f in (("fuse_loops", neurons), ("last_k_steps", window), ("known_trips", counter)):
        for shape in ((1000, 1, 64), (1000, 16, 512)):
            x = paddle.randn(list(shape))
            with without(name):
                old = translated(f, x)
            now = translated(f, x)
            before, after = median([quietly(old, x), quietly(now, x)], rounds)
            memory = f"{arena(old, x):.2f} | {arena(now, x):.2f}"
            times = f"{before:.3f} | {after:.3f} | {before / after:.2f}"
            print(f"| {name} | {f.__name__} | {list(shape)} | {times} | {memory} |", flush=True)


def sums(rounds: int) -> None:
    print("\n| running sum | as a loop, ms | as `cumsum`, ms | ratio |\n|---|---:|---:|---:|")
    for shape in ((1000, 1), (1000, 64), (1000, 4096)):
        x = paddle.randn(list(shape))
        calls = [quietly(translated(f, x), x) for f in (running_sum, cumsum)]
        loop, row = median(calls, rounds)
        print(f"| {list(shape)} | {loop:.4f} | {row:.4f} | {loop / row:.2f} |", flush=True)


def trained(net: Any, x: Any) -> Callable[[], None]:
    def call() -> None:
        net(x).sum().backward()
        net.clear_gradients()

    call()
    return call


def kept(net: Any, x: Any) -> float:
    residuals = net.forward.entry(x).training.gradient.residuals
    return sum(evaluate_dim(r.bytes, {}) for r in residuals) / MIB


def training(rounds: int) -> None:
    print("\n| recurrent layer, a step | before, ms | now, ms | ratio | kept before, MiB | now |")
    print("|---|---:|---:|---:|---:|---:|")
    for shape in ((200, 4, 64), (400, 16, 256)):
        x = paddle.randn(list(shape))
        with patch.object(region_gradients, "share_states", lambda *args: set()):
            old = dy2st.to_static(Recurrent(shape[-1]))
            calls = [trained(old, x)]
        now = dy2st.to_static(Recurrent(shape[-1]))
        calls.append(trained(now, x))
        before, after = median(calls, rounds)
        memory = f"{kept(old, x):.2f} | {kept(now, x):.2f}"
        times = f"{before:.2f} | {after:.2f} | {before / after:.2f}"
        print(f"| {list(shape)} | {times} | {memory} |", flush=True)


def two_ops(h: Any, x: Any) -> Any:
    h = 0.9 * h + x
    return h, h


def product(h: Any, x: Any) -> Any:
    h = paddle.tanh(h @ WEIGHTS[:16, :16] + x)
    return h, h


def small_ops(h: Any, x: Any) -> Any:
    y = h @ WEIGHTS[:16, :16]
    return paddle.cumsum(y) / (y.sum() + y.max() + 1), None


FACTORS = (1, 2, 4, 8)


def unrolling(rounds: int) -> None:
    """`dy2st.scan` over 400 steps of 16 numbers."""
    print("\n| body | " + " | ".join(f"unroll {k}, µs" for k in FACTORS) + " | least ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    x = paddle.randn([400, 16])
    for body in (two_ops, product, small_ops):
        static = [translated(scanned(body, k), x) for k in FACTORS]
        calls = [repeated(quietly(f, x)) for f in static]
        least = [10 * min(times) for times in in_turns(calls, 5 * rounds)]
        numbers = " | ".join(f"{t:.1f}" for t in least)
        print(f"| {body.__name__} | {numbers} | {least[0] / min(least):.2f} |", flush=True)


def stepped(rounds: int) -> None:
    """A loop over layers with states, in one over time, next to both other ways to write it."""
    print("\n| layers | steps, batch, units | eager, ms | written out, ms | a loop, ms | ratio |")
    print("|---:|---|---:|---:|---:|---:|")
    shapes = [(steps, batch, 64) for steps in (16, 128) for batch in (1, 16)]
    for layers in (4, 9, 12, 24):
        for shape in (*shapes, (128, 1, 256)):
            x, width = paddle.randn(list(shape)), shape[2]
            fs = [WrittenOut(layers, width), Stepped(layers, width)]
            eager = min(in_turns([quietly(fs[1], x)], 2)[0])
            calls = [quietly(translated(f, x), x) for f in fs]
            written, now = map(min, in_turns(calls, rounds))
            times = f"{eager:.2f} | {written:.3f} | {now:.3f} | {now / written:.2f}"
            print(f"| {layers} | {list(shape)} | {times} |", flush=True)


def scanned(body: Any, unroll: int) -> Any:
    return lambda xs: dy2st.scan(body, paddle.zeros([16]), xs, unroll=unroll)


def repeated(call: Callable[[], None]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(100):
            call()

    return calls


TABLES = {
    "rewrites": inference,
    "sums": sums,
    "training": training,
    "unrolling": unrolling,
    "layers": stepped,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", metavar="table", help=", ".join(TABLES))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    command = " ".join([COMMAND, *options.tables])
    print(
        f"{datetime.date.today()}, `{command} --rounds {options.rounds}`, {processor()}, "
        f"one thread, Python {platform.python_version()}, Paddle {paddle.__version__}."
    )
    for name in options.tables or TABLES:
        TABLES[name](options.rounds)


if __name__ == "__main__":
    main()
