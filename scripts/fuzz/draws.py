"""Random programs that draw against eager: `python scripts/fuzz/draws.py --count 500 --seed 0`.

Prints every program that differs, and a summary at the end. Exit code 1 if any differs.
`--gradients` compares the gradients too, `--named` translates for any size.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests.parity.random.random_draws import compare, program  # noqa: E402


def too_slow(*args: Any) -> None:
    raise TimeoutError("the program takes too long")


def outcome(seed: int, options: Any) -> str:
    signal.alarm(options.limit)
    try:
        return compare(seed, options.gradients, options.named)
    except dy2st.SourceError as e:
        return f"refused: {e.message.split(chr(10))[0]}"
    except Exception as e:
        print(f"seed {seed}: {type(e).__name__}: {e}\n{program(seed)}", flush=True)
        return "DIFFERENT"
    finally:
        signal.alarm(0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=120, help="seconds for a program")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--named", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    seen = Counter(outcome(options.seed + k, options) for k in range(options.count))
    for what, count in seen.most_common():
        print(f"{count:6} {what}")
    return int(seen["DIFFERENT"] > 0)


if __name__ == "__main__":
    sys.exit(main())
