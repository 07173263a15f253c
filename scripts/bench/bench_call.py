"""The cost of a call: overhead of a cached call, translation time, and CharLSTM against eager.

Prints Markdown. `python -m scripts.bench.bench_call` from the root; every figure is for one thread
and under `no_grad`. Compared times are taken in turns, so that a slow spell of the machine hits
all of them.
"""

from __future__ import annotations

import datetime
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

import dy2st
from scripts.demo import (
    HIDDEN,
    LENGTH,
    SPEC,
    CharLSTM,
    copy_of,
    fast_eager,
    interleaved,
    processor,
)

COMMAND = ".venv/bin/python -m scripts.bench.bench_call"
VOCAB = 96


def in_turns(functions: list[Callable[[], Any]], rounds: int, calls: int) -> list[list[float]]:
    """Microseconds of a call: for each function one figure a round, the mean of `calls` calls."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for f, into in zip(functions, times):
            start = time.perf_counter()
            for _ in range(calls):
                f()
            into.append(1e6 * (time.perf_counter() - start) / calls)
    return times


def kernels_of(executable: Any) -> Callable[[], None]:
    """The compiled program alone, on addresses that are made once."""
    types = [i.value.type for i in executable.inputs], executable.outputs
    arrays = [[np.zeros(t.concrete({}), t.dtype.numpy) for t in part] for part in types]
    inputs, outputs = ([a.ctypes.data for a in part] for part in arrays)
    return lambda alive=arrays: executable.run((), inputs, outputs)


def overhead() -> None:
    one_op = dy2st.to_static(lambda x: x + 1.0)
    lstm = dy2st.to_static(CharLSTM(8, 4))
    print("| cached call | whole call, µs | kernels alone, µs | on top, µs | on top, least |")
    print("|---|---:|---:|---:|---:|")
    cases = [
        ("`x + 1.0`, float32[4]", one_op, one_op, paddle.zeros([4])),
        ("CharLSTM, B = T = 1, H = 4", lstm, lstm.forward, paddle.zeros([1, 1], "int64")),
    ]
    for name, function, static, x in cases:
        kernels = kernels_of(static.entry(x).executable)
        call, alone = in_turns([lambda f=function, x=x: f(x), kernels], 50, 200)
        a, b = statistics.median(call), statistics.median(alone)
        print(f"| {name} | {a:.1f} | {b:.1f} | {a - b:.1f} | {min(call) - min(alone):.1f} |")


def translation(rounds: int = 5) -> None:
    """A fresh copy of the model each time; its first call is not made, only its translation."""
    lengths = (50, 2000)
    model = CharLSTM(VOCAB, HIDDEN)
    times: dict[int, list[float]] = {n: [] for n in lengths}
    for _ in range(rounds):
        for n in lengths:
            static = dy2st.to_static(copy_of(model))
            tokens = paddle.zeros([1, n], "int64")
            start = time.perf_counter()
            static.forward.entry(tokens)
            times[n].append(time.perf_counter() - start)
    print("| CharLSTM, B = 1, H = 256 | trace and compile, s | least |")
    print("|---|---:|---:|")
    for n in lengths:
        print(f"| T = {n} | {statistics.median(times[n]):.2f} | {min(times[n]):.2f} |")


def against_eager() -> None:
    model = CharLSTM(VOCAB, HIDDEN)
    print(
        f"| CharLSTM, T = {LENGTH}, H = {HIDDEN} | eager, ms | dy2st, ms | times faster "
        "| dy2st with sizes of None, ms |"
    )
    print("|---|---:|---:|---:|---:|")
    for batch in (1, 16):
        tokens = paddle.randint(0, VOCAB, [batch, LENGTH])
        models = {
            "eager": copy_of(model),
            "dy2st": dy2st.to_static(copy_of(model)),
            "named": dy2st.to_static(copy_of(model), input_spec=SPEC),
        }
        ms = interleaved(models, tokens, rounds=50)
        print(
            f"| B = {batch} | {ms['eager']:.2f} | {ms['dy2st']:.2f} "
            f"| {ms['eager'] / ms['dy2st']:.1f} | {ms['named']:.2f} |"
        )


def main() -> None:
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND}`, {processor()}, one thread, "
        f"Python {platform.python_version()}, Paddle {paddle.__version__}, medians.\n"
    )
    paddle.seed(0)
    with paddle.no_grad():
        for part in (overhead, translation, against_eager):
            part()
            print()


if __name__ == "__main__":
    main()
