"""Random programs against eager Paddle: `python scripts/fuzz/programs.py --count 2000 --seed 0`.

Prints the seed of every program that differs, and a summary after each hundred. Exit code 1 if any
differs. A program that agrees in float64 only is counted apart: there, rounding has crossed one of
its conditions.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests.parity.random import random_gradients, random_programs  # noqa: E402


def too_slow(*args: Any) -> None:
    raise TimeoutError("the program takes too long")


def by_rounding(seed: int, steps: int, named: bool) -> bool:
    """Whether the program agrees in float64."""
    try:
        random_programs.compare(seed, steps, named, "float64")
    except Exception:
        return False
    return True


def run(seed: int, named: bool, options: Any, seen: Counter[str]) -> None:
    """One program, once. A refusal counts with the first line of its message."""
    steps = (0, 1, 2, 5)[seed % 4]
    signal.alarm(options.limit)
    try:
        compare = random_gradients.compare if options.gradients else random_programs.compare
        kinds = compare(seed, steps, named)
        if kinds == ["shared memory"]:
            seen["eager ignores shared memory"] += 1
            return
        seen["raises as eager" if kinds == ["raises"] else "equal"] += 1
        seen.update(f"loop: {q}" for q in kinds if q != "raises")
    except dy2st.SourceError as e:
        seen["refused by name"] += 1
        seen[f"refused: {e.message.split(chr(10))[0][:90]}"] += 1
        if options.refusals:
            print(f"seed {seed} named={named}: {e}", flush=True)
    except Exception as e:
        alike = isinstance(e, AssertionError) and not options.gradients
        if alike and by_rounding(seed, steps, named):
            seen["equal in float64 only"] += 1
            return
        seen["DIFFERENT"] += 1
        print(f"seed {seed} named={named}: {type(e).__name__}: {str(e)[:300]}", flush=True)
        if options.show:
            print(random_programs.source(seed))
            traceback.print_exc()
    finally:
        signal.alarm(0)


def modes(sizes: str, seed: int) -> tuple[bool, ...]:
    """Whether the sizes are named in the runs of a program; "turns": in every second four."""
    if sizes == "both":
        return False, True
    return (bool(seed // 4 % 2) if sizes == "turns" else sizes == "named",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--gradients", action="store_true", help="compare gradients, in float64")
    parser.add_argument("--sizes", choices=["both", "fixed", "named", "turns"], default="both")
    parser.add_argument("--limit", type=int, default=60, help="seconds for one program")
    parser.add_argument("--show", action="store_true", help="print the text of failing programs")
    parser.add_argument("--refusals", action="store_true", help="print every refusal")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    seen: Counter[str] = Counter()
    start = time.time()
    for seed in range(options.seed, options.seed + options.count):
        for named in modes(options.sizes, seed):
            run(seed, named, options, seen)
        done = seed - options.seed + 1
        if done % 100 == 0 or done == options.count:
            print(f"programs {done}, first seed {options.seed}, {time.time() - start:.0f} s")
            print(*(f"{n:7d} {name}" for name, n in seen.most_common()), sep="\n", flush=True)
    return 1 if seen["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
