"""ResNet-18 in inference, and one step of its training, against eager: time, and peak memory.

Prints Markdown. `python -m scripts.bench.bench_resnet [--rounds 5] [--batch 8] [--size 224]` from
the root. The peak of the translated program is its arena, which holds every activation and all
scratch memory of its kernels; next to it stand the two largest activations that live at the same
time, which no order of the ops can do without. Eager and dy2st are called in turns; times are
those of the processor, as both run on one thread.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.vision.models import resnet18

import dy2st
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_resnet"
MIB = 1 << 20
#: (channels, filters, pixels, taps, stride, padding) of its convolutions, one of each kind
CONVS = (
    (3, 64, 224, 7, 2, 3), (64, 64, 56, 3, 1, 1), (64, 128, 56, 3, 2, 1), (128, 128, 28, 3, 1, 1),
    (64, 128, 56, 1, 2, 0), (128, 256, 28, 3, 2, 1), (256, 256, 14, 3, 1, 1),
    (256, 512, 14, 3, 2, 1), (512, 512, 7, 3, 1, 1), (256, 512, 14, 1, 2, 0),
)  # fmt: skip


def in_turns(calls: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """The processor times of all rounds, of each, in milliseconds."""
    times: list[list[float]] = [[] for _ in calls]
    for f in calls:
        f()
    for _ in range(rounds):
        for f, into in zip(calls, times):
            start = time.process_time()
            f()
            into.append(1e3 * (time.process_time() - start))
    return times


def line(name: str, times: Sequence[Sequence[float]]) -> None:
    eager, static = map(statistics.median, times)
    least = [min(q) for q in times]
    print(
        f"| {name} | {eager:.2f} | {static:.2f} | {eager / static:.2f} "
        f"| {least[0]:.2f} | {least[1]:.2f} | {least[0] / least[1]:.2f} |",
        flush=True,
    )


def heading(what: str) -> None:
    print(
        f"\n| {what} | eager, ms | dy2st, ms | times faster | eager, least | dy2st, least | times |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")


def networks() -> tuple[Any, Any]:
    """Two of the same weights and running statistics."""
    paddle.seed(0)
    net = resnet18()
    rng = np.random.default_rng(0)
    for q in net.sublayers():
        if isinstance(q, paddle.nn.BatchNorm2D):
            q._variance.set_value(rng.uniform(0.5, 2.0, q._variance.shape).astype("float32"))
    return net, dy2st.to_static(copy.deepcopy(net))


def inference(x: Any, rounds: int) -> None:
    eager, static = networks()
    eager.eval()
    static.eval()
    with paddle.no_grad():
        np.testing.assert_allclose(static(x).numpy(), eager(x).numpy(), rtol=1e-3, atol=1e-3)
        heading(f"ResNet-18, float32{list(x.shape)}")
        line("inference", in_turns([lambda: eager(x), lambda: static(x)], rounds))
        memory(static.forward, x)


def memory(static: Any, x: Any) -> None:
    program, run = dy2st.program(static, x), static.entry(x).executable
    assert not dy2st.report(static, x).foreign_counts
    arena, most = run.layout.bytes({}), largest_pair(x)
    weights = sum(
        int(np.prod(i.value.type.shape)) * i.value.type.dtype.size
        for i in program.inputs
        if i.kind != "arg"
    )
    print("\n| peak memory of inference | MiB |\n|---|---:|")
    print(f"| parameters and statistics | {weights / MIB:.2f} |")
    print(f"| the two largest live activations | {most / MIB:.2f} |")
    print(f"| arena: activations and scratch | {arena / MIB:.2f} |")
    print(f"| arena / the two largest | {arena / most:.3f} |")


def largest_pair(x: Any) -> int:
    """Bytes of the first convolution's result and of what is pooled from it: the most that an op
    of ResNet-18 reads and writes."""
    n, _, h, w = x.shape
    first = [(d - 1) // 2 + 1 for d in (h, w)]
    second = [(d - 1) // 2 + 1 for d in first]
    return 4 * 64 * n * (first[0] * first[1] + second[0] * second[1])


def training(x: Any, rounds: int) -> None:
    labels = paddle.randint(0, 1000, [x.shape[0]])

    def step_of(net: Any) -> Callable[[], Any]:
        optimizer = paddle.optimizer.SGD(1e-3, net.parameters())

        def step() -> Any:
            loss = F.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            return loss

        return step

    line("a step of SGD", in_turns([step_of(q) for q in networks()], rounds))


def convolutions(batch: int, rounds: int) -> None:
    heading(f"convolutions, N = {batch}, under `no_grad`")
    for c, o, n, k, s, p in CONVS:
        x, w = paddle.randn([batch, c, n, n]), paddle.randn([o, c, k, k])

        def eager(x: Any, w: Any, s: int = s, p: int = p) -> Any:
            return F.conv2d(x, w, stride=s, padding=p)

        static = dy2st.to_static(eager)
        with paddle.no_grad():
            calls = [lambda e=eager, a=(x, w): e(*a), lambda e=static, a=(x, w): e(*a)]
            line(f"{c} x {n} x {n}, {o} filters {k} x {k}, stride {s}", in_turns(calls, rounds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--without-training", action="store_true")
    options = parser.parse_args()
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {options.rounds}`, {processor()}, "
        f"one thread, Python {platform.python_version()}, Paddle {paddle.__version__}."
    )
    x = paddle.randn([options.batch, 3, options.size, options.size])
    inference(x, options.rounds)
    if not options.without_training:
        heading(f"ResNet-18, float32{list(x.shape)}")
        training(x, options.rounds)
    convolutions(options.batch, options.rounds)


if __name__ == "__main__":
    main()
