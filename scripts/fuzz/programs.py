"""Random programs against eager Paddle: `python scripts/fuzz/programs.py --count 2000 --seed 0`.

Prints the seed of every program that differs, and a summary. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dy2st  # noqa: E402
from tests import random_programs  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--show", action="store_true", help="print the text of failing programs")
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        for named in (False, True):
            try:
                kinds = random_programs.compare(seed, (0, 1, 2, 5)[seed % 4], named)
                seen["equal"] += 1
                seen.update(kinds)
            except dy2st.SourceError as e:
                seen["refused by name"] += 1
                seen[f"refused: {e.message.split(chr(10))[0][:60]}"] += 1
            except Exception as e:
                seen["DIFFERENT"] += 1
                print(f"seed {seed} named={named}: {type(e).__name__}: {str(e)[:300]}")
                if options.show:
                    print(random_programs.source(seed))
                    traceback.print_exc()
    print(f"programs {options.count}, first seed {options.seed}")
    for name, n in seen.most_common():
        print(f"{n:7d} {name}")
    return 1 if seen["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
