"""Files that mean harm: `python scripts/fuzz/files.py --count 20000 --seed 0`.

Every file ends in a FileError, in a clean error of the call, or in results of the declared types.
Prints each that does not, and a summary after each thousand. Exit code 1 if there is any. `--keep`
is a folder for the files that went wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.dy2st.export.guarded import run_cases, summary  # noqa: E402
from tests.dy2st.export.hostile_files import bases, case  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    start, bad = time.time(), 0
    bases()
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(options.seed, options.seed + options.count)
        for seed, outcome in run_cases(case, seeds, Path(folder)):
            wrong = outcome[:1].isupper()
            seen[outcome.split()[0] if wrong else outcome] += 1
            if wrong:
                bad += 1
                print(f"seed {seed}: {outcome}", flush=True)
                if options.keep:
                    (options.keep / f"{seed}.dy2st").write_bytes(case(seed))
            if sum(seen.values()) % 1000 == 0:
                print(f"{time.time() - start:.0f} s: {summary(seen)}", flush=True)
    print(summary(seen))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
