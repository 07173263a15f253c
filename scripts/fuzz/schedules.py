"""Wrong schedules of random programs: `python scripts/fuzz/schedules.py --count 5000 --seed 0`.

Every schedule with which the emulator of the GPU gives a wrong result, or no end, must be refused
by the proof, and every real one accepted. Prints what differs, and a summary at the end; the count
is of schedules that the emulator shows to be wrong. Exit code 1 if one of them is accepted.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from executor.gpu import HostCopyWarning  # noqa: E402
from tests.executor.gpu import emulator  # noqa: E402
from tests.executor.gpu.mutants import outcomes  # noqa: E402

EACH = 60


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    emulator.library()
    warnings.simplefilter("ignore", HostCopyWarning)
    seen: Counter[str] = Counter()
    seed, start = options.seed, time.time()
    while seen["wrong, refused"] + seen["wrong, ACCEPTED"] < options.count:
        seen += outcomes(seed, EACH)
        seed += 1
        if seed % 20 == 0:
            done = f"{seed - options.seed} programs, {time.time() - start:.0f} s"
            print(f"{done}, {dict(seen)}", flush=True)
    for what, count in seen.most_common():
        print(f"{count:6} {what}")
    return int(seen["wrong, ACCEPTED"] + seen["real, REFUSED"] > 0)


if __name__ == "__main__":
    sys.exit(main())
