"""Random indices against eager Paddle: `python scripts/fuzz/indexing.py --count 3000 --seed 0`.

Reads, writes, augmented assignments and their gradients (`random_indices.py`). Prints what
differs, and a summary after each hundred. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests.parity.indexing import random_indices  # noqa: E402


def run(seed: int, seen: Counter[str], options: Any) -> None:
    try:
        seen[f"equal: {random_indices.compare(seed)}"] += 1
    except dy2st.SourceError as e:
        seen[f"refused: {e.message.split(chr(10))[0][:90]}"] += 1
        if options.refusals:
            print(f"seed {seed}: {random_indices.source(seed)}\n{e}", flush=True)
    except Exception as e:
        seen["DIFFERENT"] += 1
        text = " ".join(str(e).split())[:300]
        print(f"seed {seed}: {random_indices.source(seed)}: {type(e).__name__}: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--refusals", action="store_true", help="print every refusal")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seen: Counter[str] = Counter()
    start = time.time()
    for seed in range(options.seed, options.seed + options.count):
        run(seed, seen, options)
        done = seed - options.seed + 1
        if done % 100 == 0 or done == options.count:
            print(f"indices {done}, first seed {options.seed}, {time.time() - start:.0f} s")
            print(*(f"{n:7d} {name}" for name, n in seen.most_common()), sep="\n", flush=True)
    return 1 if seen["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
