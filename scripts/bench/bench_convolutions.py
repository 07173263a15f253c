"""Depthwise convolutions of small and large images against eager: the first backward, every call.

Prints Markdown. `python -m scripts.bench.bench_convolutions [--rounds 7] [--sizes 28 256]` from the
root. The first backward is timed in a process of its own for each size, so that no compiled kernel
is there before. Eager and dy2st are called in turns; times are those of the processor, as both run
on one thread.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import paddle
import paddle.nn.functional as F

import dy2st
from scripts.bench.bench_resnet import heading, in_turns, line
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_convolutions"
#: images, channels, taps, stride, dilation
FORMS = (
    (1, 64, 3, 1, 1),
    (8, 32, 3, 1, 1),
    (1, 64, 3, 2, 1),
    (8, 32, 3, 2, 1),
    (1, 32, 5, 1, 2),
    (1, 32, 7, 1, 1),
)


def depthwise(form: tuple[int, ...], size: int) -> tuple[Callable[..., Any], Any, Any]:
    """The eager function and its operands, which have gradients."""
    n, channels, taps, stride, dilation = form
    padding = dilation * (taps - 1) // 2

    def conv(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=channels)

    operands = [paddle.randn([n, channels, size, size]), paddle.randn([channels, 1, taps, taps])]
    for q in operands:
        q.stop_gradient = False
    return conv, *operands


def name_of(form: tuple[int, ...], size: int) -> str:
    n, channels, taps, stride, dilation = form
    gaps = f", dilation {dilation}" if dilation != 1 else ""
    return f"{n} x {channels} x {size} x {size}, {taps} x {taps}, stride {stride}{gaps}"


def first(form: tuple[int, ...], size: int) -> None:
    """Seconds of the processor for the first forward and the first backward."""
    conv, x, w = depthwise(form, size)
    static = dy2st.to_static(conv)
    small = dy2st.to_static(lambda x: (x * 2).sum())
    small(x).backward()
    start = time.process_time()
    total = static(x, w).sum()
    middle = time.process_time()
    total.backward()
    print(f"{middle - start:.2f} | {time.process_time() - middle:.2f}")


def first_calls(sizes: list[int]) -> None:
    print("\n| first call, seconds of the processor | forward | backward |\n|---|---:|---:|")
    for k, form in enumerate(FORMS):
        for size in sizes:
            found = subprocess.run(
                [sys.executable, "-m", "scripts.bench.bench_convolutions", "--first", str(k),
                 "--sizes", str(size)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            print(f"| {name_of(form, size)} | {found.stdout.strip()} |", flush=True)


def steady(form: tuple[int, ...], size: int, rounds: int) -> None:
    eager, x, w = depthwise(form, size)
    static = dy2st.to_static(eager)

    def forward(f: Callable[..., Any]) -> None:
        with paddle.no_grad():
            f(x, w)

    def trained(f: Callable[..., Any]) -> None:
        y = f(x, w)
        paddle.grad(y, [x, w], y)

    for what, call in (("forward", forward), ("and backward", trained)):
        calls = [partial(call, f) for f in (eager, static)]
        line(f"{name_of(form, size)}, {what}", in_turns(calls, rounds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[28, 256])
    parser.add_argument("--first", type=int, help="time the first call of one form only")
    options = parser.parse_args()
    fast_eager()
    if options.first is not None:
        first(FORMS[options.first], options.sizes[0])
        return
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {options.rounds}`, {processor()}, "
        f"one thread, Python {platform.python_version()}, Paddle {paddle.__version__}."
    )
    first_calls(options.sizes)
    heading("calls")
    for form in FORMS:
        for size in options.sizes:
            steady(form, size, options.rounds)


if __name__ == "__main__":
    main()
