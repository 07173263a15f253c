"""Random programs with Python state: `python scripts/fuzz/state.py --count 2000 --seed 0`.

Prints the seed of every program that differs from eager, and a summary after each hundred. Exit
code 1 if any differs, or if more than a tenth of them is refused.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests.parity.random import random_state  # noqa: E402


def too_slow(*args: Any) -> None:
    raise TimeoutError("the program takes too long")


def run(seed: int, options: Any, seen: Counter[str]) -> None:
    """One program. A refusal counts with the first line of its message."""
    signal.alarm(options.limit)
    try:
        seen[random_state.compare(seed)] += 1
    except dy2st.SourceError as e:
        seen["refused"] += 1
        seen[f"refused: {e.message.split(chr(10))[0][:90]}"] += 1
        if options.refusals:
            print(f"seed {seed}: {e}", flush=True)
    except dy2st.Dy2stError as e:  # a result without a gradient, which is refused by `backward`
        seen["refused in backward"] += 1
        if options.refusals:
            print(f"seed {seed}: {e}", flush=True)
    except Exception as e:
        seen["DIFFERENT"] += 1
        print(f"seed {seed}: {type(e).__name__}: {str(e)[:500]}", flush=True)
        if options.trace:
            traceback.print_exc()
    finally:
        signal.alarm(0)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=0, help="the first one")
    p.add_argument("--limit", type=int, default=120, help="seconds for one program")
    p.add_argument("--show", action="store_true", help="print the text of each program")
    p.add_argument("--refusals", action="store_true", help="print the error of refused programs")
    p.add_argument("--trace", action="store_true", help="print where a program failed")
    options = p.parse_args()
    warnings.simplefilter("ignore", dy2st.CopyWarning)
    signal.signal(signal.SIGALRM, too_slow)
    seen: Counter[str] = Counter()
    start = time.time()
    for k in range(options.count):
        if options.show:
            print(random_state.source(options.seed + k))
        run(options.seed + k, options, seen)
        if (k + 1) % 100 == 0 or k + 1 == options.count:
            print(f"{k + 1} programs, {time.time() - start:.0f} s: {dict(seen)}", flush=True)
    return int(seen["DIFFERENT"] > 0 or seen["refused"] * 10 > options.count)


if __name__ == "__main__":
    sys.exit(main())
