"""Random functions with lists in a loop: `python scripts/fuzz/lists.py --count 2000 --seed 0`.

Prints the seed of every function that differs from eager, and a summary after each hundred. Exit
code 1 if any differs, or if more than a tenth of them is refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests.parity.random import random_lists  # noqa: E402


def run(seed: int, seen: Counter[str]) -> None:
    try:
        seen[random_lists.compare(seed)] += 1
    except dy2st.SourceError:
        seen["refused"] += 1
    except Exception as e:
        seen["DIFFERENT"] += 1
        print(f"seed {seed}: {type(e).__name__}: {str(e)[:500]}", flush=True)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=0, help="the first one")
    p.add_argument("--show", action="store_true", help="print the text of each function")
    options = p.parse_args()
    seen: Counter[str] = Counter()
    start = time.time()
    for k in range(options.count):
        if options.show:
            print(random_lists.source(options.seed + k))
        run(options.seed + k, seen)
        if (k + 1) % 100 == 0 or k + 1 == options.count:
            print(f"{k + 1} functions, {time.time() - start:.0f} s: {dict(seen)}", flush=True)
    return int(seen["DIFFERENT"] > 0 or seen["refused"] * 10 > options.count)


if __name__ == "__main__":
    sys.exit(main())
