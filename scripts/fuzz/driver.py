"""The command line of random programs that either agree or differ, some of them compiled."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable


def differences(one: Callable[[int, bool], None], description: str) -> int:
    """Run `one(seed, native)` for each seed, print those that raise; 1 if there are any, else 0."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--native", type=int, default=0, help="compile every N-th program")
    options = parser.parse_args()
    start, bad = time.time(), 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            one(seed, options.native > 0 and seed % options.native == 0)
        except Exception as e:
            bad += 1
            print(f"seed {seed}: {type(e).__name__}: {str(e)[:400]}", flush=True)
        done = seed - options.seed + 1
        if done % 500 == 0 or done == options.count:
            print(f"programs {done}, {bad} different, {time.time() - start:.0f} s", flush=True)
    return 1 if bad else 0
