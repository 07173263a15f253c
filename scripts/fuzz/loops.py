"""Random programs of loops: `python scripts/fuzz/loops.py --count 5000 --seed 0`.

The rewrites of loops keep values, and gradients of all and of some results; each pass, applied
again, changes nothing. `--native N` compiles every N-th as well. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import executor  # noqa: E402
from ir.interpreter import evaluate  # noqa: E402
from ir.passes import run  # noqa: E402
from tests.ir.random_loops import Loops, agree, arrays_for, check, lengths  # noqa: E402


def compiled(seed: int) -> None:
    p = Loops(seed).program()
    native = executor.compile(run(p))
    for n in lengths(p):
        inputs = arrays_for(p, n, seed)
        agree(native(*(a.copy() for a in inputs)), evaluate(p, inputs)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--native", type=int, default=0, help="compile every N-th program")
    options = parser.parse_args()
    start, bad = time.time(), 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            check(seed)
            if options.native and seed % options.native == 0:
                compiled(seed)
        except Exception as e:
            bad += 1
            print(f"seed {seed}: {type(e).__name__}: {str(e)[:400]}", flush=True)
        done = seed - options.seed + 1
        if done % 500 == 0 or done == options.count:
            print(f"programs {done}, {bad} different, {time.time() - start:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
