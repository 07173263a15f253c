"""The cost of a translation, which does not depend on the length of the loop.

Prints Markdown: for each idiom of `tests/parity/models/idioms.py` and each model of
`tests/parity/packages` the time of the trace with its passes, the time of the compilation, the
lines and the ops of the program, at T = 20 and at T = 2000. The two lengths take turns, each time
on a fresh copy of the model, and the best round counts. Nothing is executed: `entry` translates for
a call's arguments and does not make the call.

With `--training` the two programs of a call in training are translated: the compilation is that of
both, the lines and ops are theirs together. No report may say that a loop is unrolled.

With `--calls` the cached call of each is timed at T = 50 instead, next to eager, in turns, in time
of the processor.

With `--against PATH`, the root of another version of the project, the first translation of CharLSTM
and of ResNet-18 is timed instead: there and here in turns, each in a process of its own, in seconds
of the processor.

`python -m scripts.bench.bench_translate [idiom ...] [--training] [--calls] [--against PATH]`.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

import dy2st
import executor
from ir.uses import walk
from scripts.bench.bench_resnet import in_turns
from scripts.bench.translate_models import MODELS
from scripts.demo import fast_eager, processor
from tests.check import tensors
from tests.parity import packages
from tests.parity.models import idioms

COMMAND = ".venv/bin/python -m scripts.bench.bench_translate"
LENGTHS = (20, 2000)
STEPS = 50
PACKAGES = {n: q for n, q in packages.MODELS.items() if not q.refused}
NAMES = [*idioms.IDIOMS, *(n for n in PACKAGES if n not in idioms.IDIOMS)]


@dataclass(frozen=True)
class Cost:
    """Of one translation: milliseconds, and the size of its program."""

    trace: float
    compilation: float
    lines: int
    ops: int


@contextmanager
def timed_compilation() -> Iterator[list[float]]:
    """Milliseconds of every call of `executor.compile` inside of the block."""
    original, times = executor.compile, []

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            times.append(1e3 * (time.perf_counter() - start))

    executor.compile = timed
    try:
        yield times
    finally:
        executor.compile = original


def translate(model: Any, args: list[Any]) -> Cost:
    """Translate a fresh copy of the model for these arguments; the backward program, too, if
    gradients are recorded and it has one."""
    static = dy2st.to_static(copy.deepcopy(model))
    with timed_compilation() as compilation:
        start = time.perf_counter()
        entry = static.forward.entry(*args)
        gradient = getattr(entry.training, "gradient", None)
        if gradient is not None:
            entry.training.run, entry.training.executable  # noqa: B018
        whole = 1e3 * (time.perf_counter() - start)
    report = str(dy2st.report(static, *args))
    assert "unrolled" not in report, report
    programs = [entry.program] if gradient is None else [gradient.forward, gradient.backward]
    lines = sum(len(str(p).splitlines()) for p in programs)
    ops = sum(1 for p in programs for _ in walk(p.ops))
    return Cost(whole - sum(compilation), sum(compilation), lines, ops)


def best(costs: list[Cost]) -> Cost:
    """The least times; the program is the same in every round."""
    (size,) = {(c.lines, c.ops) for c in costs}
    return Cost(min(c.trace for c in costs), min(c.compilation for c in costs), *size)


def case(name: str, steps: int) -> tuple[Any, list[Any]]:
    """A model for this many steps, and arguments of it."""
    table = idioms if name in idioms.IDIOMS else packages
    row = idioms.IDIOMS[name] if name in idioms.IDIOMS else PACKAGES[name]
    args = row.args(np.random.default_rng(0), steps)
    for x in tensors(args):
        x.stop_gradient = x.dtype not in (paddle.float32, paddle.float64)
    return table.make(name, steps), args


def call_row(name: str, rounds: int) -> str:
    """Median milliseconds of a call, eager and translated."""
    model, args = case(name, STEPS)
    static = dy2st.to_static(copy.deepcopy(model))
    fresh = [copy.deepcopy(args) for _ in range(2)]
    calls = [lambda f=f, a=a: f(*a) for f, a in zip((model, static), fresh)]  # type: ignore[misc]
    eager, ours = map(statistics.median, in_turns(calls, rounds))
    return f"| {name} | {eager:.2f} | {ours:.3f} | {eager / ours:.1f} |"


def compare(name: str, rounds: int) -> tuple[Cost, Cost]:
    """The costs at both lengths, in turns."""
    cases = [case(name, steps) for steps in LENGTHS]
    costs: list[list[Cost]] = [[], []]
    for _ in range(rounds):
        for (model, args), into in zip(cases, costs):
            into.append(translate(model, args))
    return best(costs[0]), best(costs[1])


def row(name: str, short: Cost, long: Cost) -> str:
    return (
        f"| {name} | {short.trace:.0f} | {long.trace:.0f} | {long.trace / short.trace:.2f} "
        f"| {short.compilation:.0f} | {long.compilation:.0f} "
        f"| {long.compilation / short.compilation:.2f} "
        f"| {short.lines} / {long.lines} | {short.ops} / {long.ops} |"
    )


def seconds_in(tree: Path, model: str) -> tuple[float, ...]:
    """Of the first translation of a process, and of a second one, with the packages of `tree`."""
    script = Path(__file__).with_name("translate_models.py")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), model],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(map(float, run.stdout.split()))


def against(other: Path, rounds: int) -> None:
    here = Path(__file__).resolve().parents[2]
    print(
        "| model | translation | there, s | here, s | times faster | there, least | here | times |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for model in MODELS:
        found = [(seconds_in(other, model), seconds_in(here, model)) for _ in range(rounds)]
        for k, which in enumerate(("first", "again")):
            times = [[pair[tree][k] for pair in found] for tree in (0, 1)]
            cells = []
            for of in (statistics.median, min):
                there, now = map(of, times)
                cells.append(f"{there:.3f} | {now:.3f} | {there / now:.2f}")
            print(f"| {model} | {which} | {' | '.join(cells)} |", flush=True)


def print_calls(names: list[str], rounds: int) -> None:
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND} --calls --rounds {rounds}`, {processor()}, one "
        f"thread, Python {platform.python_version()}, Paddle {paddle.__version__}, medians.\n"
    )
    print(f"| model, T = {STEPS} | eager, ms | dy2st, ms | times faster |")
    print("|---|---:|---:|---:|")
    with paddle.no_grad():
        for name in names:
            print(call_row(name, rounds), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("idioms", nargs="*", help="names; all of them by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--training", action="store_true", help="with the backward programs")
    parser.add_argument("--calls", action="store_true", help="time cached calls, next to eager")
    parser.add_argument("--against", type=Path, help="the root of another version")
    options = parser.parse_args()
    os.environ["DY2ST_CACHE"] = ""  # everything is compiled
    if options.against is not None:
        against(options.against.resolve(), options.rounds)
        return
    unknown = set(options.idioms) - set(NAMES)
    if unknown:
        parser.error(f"no idiom is called {unknown.pop()!r}; there are {', '.join(NAMES)}")
    if options.calls:
        return print_calls(options.idioms or NAMES, options.rounds)
    command = COMMAND + " --training" * options.training
    print(
        f"{datetime.date.today()}, `{command}`, {processor()}, Python "
        f"{platform.python_version()}, Paddle {paddle.__version__}, best of {options.rounds}; "
        f"sizes at T = {LENGTHS[0]} / T = {LENGTHS[1]}.\n"
    )
    short, long = (f"T = {t}" for t in LENGTHS)
    print(
        f"| idiom | trace and passes, ms, {short} | {long} | ratio "
        f"| compilation, ms, {short} | {long} | ratio | lines | ops |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    with paddle.set_grad_enabled(options.training):
        for name in options.idioms or NAMES:
            print(row(name, *compare(name, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
