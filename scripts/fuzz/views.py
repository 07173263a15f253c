"""Random views and writes against eager: `python scripts/fuzz/views.py --count 5000 --seed 0`.

Prints every program that differs, made smaller by leaving statements out, and a summary after each
hundred. Exit code 1 if any differs. `--gradients` compares the gradients instead; DY2ST_POISON=1
in the environment fills memory that is free with NaN.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests.parity.random.views.random_views import Program, compare, gradients, program, shrink  # noqa: E402


def too_slow(*args: Any) -> None:
    raise TimeoutError("the program takes too long")


def outcome(p: Program, seed: int, named: bool, options: Any) -> tuple[str, str]:
    """Return the outcome of a program, and the message of its error."""
    signal.alarm(options.limit)
    try:
        return (gradients if options.gradients else compare)(p, str(seed), named), ""
    except dy2st.SourceError as e:
        return f"refused: {e.message.split(chr(10))[0]}", str(e)
    except Exception as e:
        return f"DIFFERENT {type(e).__name__}", str(e)
    finally:
        signal.alarm(0)


def smallest(p: Program, kind: str, message: str, seed: int, named: bool, options: Any) -> Program:
    """Only programs that fail alike: with the same exception and the same first words."""

    def alike(q: Program) -> bool:
        have, text = outcome(q, seed, named, options)
        return have == kind and words(text) == words(message)

    return shrink(p, alike) if options.shrink else p


def words(message: str) -> str:
    """Return a key that differences of one kind share."""
    lines = [q for q in message.splitlines() if q.startswith("call")] or message.splitlines()
    return "".join(q for q in (lines[0] if lines else "") if q.isalpha())[:40]


def run(seed: int, named: bool, options: Any, seen: Counter[str]) -> None:
    p = program(seed, named, not options.gradients)
    kind, message = outcome(p, seed, named, options)
    seen[kind if "refused" not in kind else "refused by name"] += 1
    if "refused" in kind:
        seen[kind[:100]] += 1
    if "DIFFERENT" in kind or "refused" in kind and options.refusals:
        p = smallest(p, kind, message, seed, named, options)
        print(f"seed {seed} named={named}: {kind}: {message[:600]}\n{p.text()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--gradients", action="store_true", help="compare gradients")
    parser.add_argument("--sizes", choices=["fixed", "named", "turns"], default="turns")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one program")
    parser.add_argument("--shrink", action="store_true", help="make failing programs smaller")
    parser.add_argument("--refusals", action="store_true", help="print every refusal")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    seen: Counter[str] = Counter()
    start = time.time()
    for seed in range(options.seed, options.seed + options.count):
        named = options.sizes == "named" or options.sizes == "turns" and seed % 4 == 3
        run(seed, named, options, seen)
        done = seed - options.seed + 1
        if done % 100 == 0 or done == options.count:
            print(f"programs {done}, first seed {options.seed}, {time.time() - start:.0f} s")
            print(*(f"{n:7d} {name}" for name, n in seen.most_common()), sep="\n", flush=True)
    return 1 if any("DIFFERENT" in name for name in seen) else 0


if __name__ == "__main__":
    sys.exit(main())
