"""The command lines of random programs that agree, differ, or are refused."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable

import dy2st


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


def outcomes(compare: Callable[[int], str], source: Callable[[int], str], description: str) -> int:
    """Run `compare(seed)` for each seed, count what it says, print the seeds of those that raise; 1
    if any differs, or if more than a tenth of them is refused."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--show", action="store_true", help="print the text of each function")
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    start = time.time()
    for k in range(options.count):
        seed = options.seed + k
        if options.show:
            print(source(seed))
        try:
            seen[compare(seed)] += 1
        except dy2st.SourceError:
            seen["refused"] += 1
        except Exception as e:
            seen["DIFFERENT"] += 1
            print(f"seed {seed}: {type(e).__name__}: {str(e)[:500]}", flush=True)
        if (k + 1) % 100 == 0 or k + 1 == options.count:
            print(f"{k + 1} functions, {time.time() - start:.0f} s: {dict(seen)}", flush=True)
    return int(seen["DIFFERENT"] > 0 or seen["refused"] * 10 > options.count)
