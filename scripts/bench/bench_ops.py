"""Common calls and small blocks next to eager: forward, and forward with backward, at two sizes.

Run:  python -m scripts.bench.bench_ops [NAME ...] [--sizes large] [--below 0.95] [--rounds 9]

Prints how many times faster than eager dy2st is, as a Markdown table of those below `--below`.
Names choose the cases that begin with them. Calls of a case are timed in turns, and the best of the
rounds counts: time of the processor, or of the clock where OMP_NUM_THREADS is more than 1.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", os.environ["OMP_NUM_THREADS"])
os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import paddle

import dy2st
from scripts.bench import op_cases_moving
from scripts.bench.op_cases import Case

CASES = op_cases_moving.CASES
ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("names", nargs="*")
ARGUMENTS.add_argument("--below", type=float, default=0.95)
ARGUMENTS.add_argument("--seconds", type=float, default=0.1)
ARGUMENTS.add_argument("--sizes", nargs="+", default=["small", "large"])
ARGUMENTS.add_argument("--rounds", type=int, default=9)
OPTIONS = ARGUMENTS.parse_args()


def timed(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Least seconds of each."""
    alone = os.environ["OMP_NUM_THREADS"] == "1"
    clock = time.thread_time if alone else time.perf_counter
    counts = []
    for f in calls:
        f()
        f()
        start = time.perf_counter()
        f()
        took = max(time.perf_counter() - start, 1e-6)
        counts.append(max(1, int(OPTIONS.seconds / OPTIONS.rounds / took)))
    best = [float("inf")] * len(calls)
    for _ in range(OPTIONS.rounds):
        for k, f in enumerate(calls):
            start = clock()
            for _ in range(counts[k]):
                f()
            best[k] = min(best[k], (clock() - start) / counts[k])
    return best


def forward(f: Callable, xs: Sequence[object]) -> Callable[[], object]:
    def call() -> None:
        with paddle.no_grad():
            f(*xs)

    return call


def results(out: object) -> list[paddle.Tensor]:
    """The first of several results is what is trained."""
    return [out[0]] if isinstance(out, (list, tuple)) else [out]


def loss_of(f: Callable) -> Callable:
    """The sum of what `f` gives times `weights`, which it takes in front of its operands."""

    def loss(weights: Sequence[paddle.Tensor], *xs: paddle.Tensor) -> paddle.Tensor:
        floats = [y for y in results(f(*xs)) if y.is_floating_point() and not y.stop_gradient]
        return sum((y * w).sum() for y, w in zip(floats, weights))

    return loss


def weights_for(f: Callable, xs: Sequence[object]) -> list[paddle.Tensor]:
    outs = [y for y in results(f(*xs)) if not y.stop_gradient]
    return [paddle.randn(y.shape).astype(y.dtype) for y in outs]


def both(f: Callable, xs: Sequence[object], held: Sequence[object]) -> Callable[[], object]:
    def call() -> None:
        f(*xs).backward()
        for x in held:
            x.clear_gradient(False)

    return call


def measured(case: Case) -> Iterator[tuple[str, str, float, float]]:
    """Size, direction, seconds of eager and of dy2st."""
    for size, made in (("small", case.small), ("large", case.large)):
        if size not in OPTIONS.sizes:
            continue
        paddle.seed(0)
        f, xs = case.made(made)
        weights = list(f.parameters()) if isinstance(f, paddle.nn.Layer) else []
        plain = case.call(f)
        ours = dy2st.to_static(plain)
        yield size, "forward", *timed([forward(plain, xs), forward(ours, xs)])
        if case.trained:
            held = [q for q in (*xs, *weights) if isinstance(q, paddle.Tensor)]
            held = [q for q in held if not q.stop_gradient]
            loss, given = loss_of(plain), [weights_for(plain, xs), *xs]
            ours = dy2st.to_static(loss)
            yield size, "both", *timed([both(loss, given, held), both(ours, given, held)])


def main() -> None:
    print("| call | size | | eager, µs | dy2st, µs | times faster |\n|---|---|---|---:|---:|---:|")
    count = slower = 0
    for case in CASES:
        if OPTIONS.names and not case.name.startswith(tuple(OPTIONS.names)):
            continue
        try:
            for size, way, eager, ours in measured(case):
                count += 1
                if eager / ours < OPTIONS.below:
                    slower += 1
                    times = f"{eager * 1e6:.1f} | {ours * 1e6:.1f} | {eager / ours:.2f}"
                    print(f"| {case.name} | {size} | {way} | {times} |", flush=True)
        except Exception as error:
            print(f"{case.name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
    print(f"\n{count} measured, {slower} below {OPTIONS.below}")


if __name__ == "__main__":
    main()
