"""The cost of translating straight-line programs of 500 to 8,000 ops, stage by stage.

Prints Markdown. Three programs: an LSTM decoder that feeds its output back and reads Python strings
by its index, so that its loop is unrolled; a function without a loop; and a buffer that is written
in place line by line. For each length the seconds of the processor in each stage, the least of
`--runs` in turns, and how many times more that is than for half the length. `--training` adds the
first forward and backward of the decoder. Nothing is executed otherwise.

`python -m scripts.bench.bench_length [--lengths 500 1000 ...] [--runs 3] [--training]` from the
root.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paddle
import paddle.nn.functional as F

import dy2st

LENGTHS = (500, 1000, 2000, 4000, 8000)
#: ops that a step of the decoder, of the function without a loop and of the cache records
DECODER_OPS, STRAIGHT_OPS, CACHE_OPS = 18, 5, 3
SPENT: dict[str, float] = defaultdict(float)
_INSIDE: list[float] = []


def timed(module: str, name: str, stage: str) -> None:
    """Count the time of a function, without that of others that are counted, as `stage`."""
    owner = importlib.import_module(module)
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        _INSIDE.append(0.0)
        try:
            return original(*args, **kwargs)
        finally:
            took = time.process_time() - start
            SPENT[stage.format(*args[:1])] += took - _INSIDE.pop()
            if _INSIDE:
                _INSIDE[-1] += took

    setattr(owner, name, call)


class _Named:
    """A pass as text: its name."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f, self.__name__ = f, f.__name__

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)

    def __format__(self, _: str) -> str:
        return self.__name__


def install() -> None:
    """Count from here on."""
    passes = importlib.import_module("ir.passes")
    passes.PIPELINE[:] = [(_Named(f), reason) for f, reason in passes.PIPELINE]
    timed("dy2st.compiled.translate", "_captured", "trace")
    timed("ir.passes", "_applied", "{}")
    timed("dy2st.compiled.training", "differentiate", "differentiate")
    timed("executor", "lower", "lower")
    timed("executor", "layout", "layout")
    timed("executor.cpu.backend", "legalize", "legalize")
    timed("executor.cpu.backend", "source", "code")
    timed("executor.cpu.jit", "_compile", "LLVM")


class Decoder(paddle.nn.Layer):
    """`names`, which is read at the index of the loop, says what a step computes: no two need be
    alike, so the loop is unrolled."""

    def __init__(self, steps: int, width: int = 16) -> None:
        super().__init__()
        self.ih = paddle.nn.Linear(width, 4 * width)
        self.hh = paddle.nn.Linear(width, 4 * width)
        self.out = paddle.nn.Linear(width, width)
        self.names = ["tanh" if k % 7 else "sigmoid" for k in range(steps)]

    def forward(self, x: Any) -> Any:
        h = c = paddle.zeros_like(x)
        ys = []
        for t in range(len(self.names)):
            i, f, g, o = paddle.split(self.ih(x) + self.hh(h), 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
            x = getattr(F, self.names[t])(self.out(h))
            ys.append(x)
        return paddle.stack(ys, axis=1)


def straight_line(k: int) -> tuple[str, ...]:
    return (
        "x = paddle.tanh(paddle.matmul(x, w))",
        f"y = x * {1 + k % 7 / 10}",
        "x = x - y.sum(axis=-1, keepdim=True)",
    )


def cache_line(k: int) -> tuple[str, ...]:
    return "x = paddle.tanh(paddle.matmul(x, w))", f"rows[{k}] = x"


def function(
    name: str, arguments: str, line: Callable[[int], tuple[str, ...]], steps: int, folder: str
) -> Callable[..., Any]:
    """A function of `steps` times some lines; its source must be in a file."""
    lines = ["import paddle", "", f"def f({arguments}):"]
    lines += [f"    {text}" for k in range(steps) for text in line(k)]
    path = Path(folder) / f"{name}_{steps}.py"
    path.write_text("\n".join([*lines, "    return x", ""]))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., Any] = module.f
    return found


def decoder_cost(ops: int) -> dict[str, float]:
    static = dy2st.to_static(Decoder(ops // DECODER_OPS))
    x = paddle.randn([2, 16])
    with paddle.no_grad():
        return cost(lambda: dy2st.program(static, x))


def straight_cost(ops: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, paddle.no_grad():
        f = function("straight", "x, w", straight_line, ops // STRAIGHT_OPS, folder)
        static, x, w = dy2st.to_static(f), paddle.randn([2, 16]), paddle.randn([16, 16])
        return cost(lambda: dy2st.program(static, x, w))


def cache_cost(ops: int) -> dict[str, float]:
    steps = ops // CACHE_OPS
    with tempfile.TemporaryDirectory() as folder, paddle.no_grad():
        static = dy2st.to_static(function("cache", "x, w, rows", cache_line, steps, folder))
        x, w, rows = paddle.randn([2, 16]), paddle.randn([16, 16]), paddle.zeros([steps, 2, 16])
        return cost(lambda: dy2st.program(static, x, w, rows))


def training_cost(ops: int) -> dict[str, float]:
    static, x = dy2st.to_static(Decoder(ops // DECODER_OPS)), paddle.randn([2, 16])
    return cost(lambda: static(x).sum().backward())


def cost(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds by stage, and of all, with no native function from an earlier program."""
    jit = importlib.import_module("executor.cpu.jit")
    jit._RECENT.clear()
    jit._KNOWN.clear()
    SPENT.clear()
    start = time.process_time()
    work()
    whole = time.process_time() - start
    return {"all": whole, **SPENT, "rest": whole - sum(SPENT.values())}


def least(costs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {stage: min(c.get(stage, 0.0) for c in costs) for stage in costs[0]}


def table(
    name: str, cost_of: Callable[[int], dict[str, float]], lengths: list[int], runs: int
) -> None:
    cost_of(lengths[0] // 2)  # what only the first translation of a process costs
    rounds = [[cost_of(n) for n in lengths] for _ in range(runs)]
    costs = [least(found) for found in zip(*rounds)]
    print(f"\n| {name}, s | " + " | ".join(f"{n} ops | times" for n in lengths) + " |")
    print("|---|" + "---:|---:|" * len(lengths))
    for stage in sorted(costs[-1], key=lambda q: -costs[-1][q]):
        seconds = [c.get(stage, 0.0) for c in costs]
        ratios = [
            b / a if a > 0 else float("nan") for a, b in zip([float("nan"), *seconds], seconds)
        ]
        cells = (f"{s:.3f} | {r:.2f}" for s, r in zip(seconds, ratios))
        print(f"| {stage} | {' | '.join(cells)} |".replace("nan", ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    os.environ["DY2ST_CACHE"] = ""  # everything is compiled
    install()
    lengths, runs = list(options.lengths), options.runs
    table("unrolled decoder", decoder_cost, lengths, runs)
    table("function without a loop", straight_cost, lengths, runs)
    table("buffer written in place", cache_cost, lengths, runs)
    if options.training:
        table("decoder, forward and backward", training_cost, lengths, runs)


if __name__ == "__main__":
    main()
