"""Random conditions and slices by a loop's index: `python scripts/fuzz/indices.py --count 500`.

Each function is called with sizes in any order, and compared with eager in results, gradients and
random numbers. Prints the seed of every function that differs. Exit code 1 if any does.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ir import Dy2stError  # noqa: E402
from scripts.fuzz.driver import differences  # noqa: E402
from tests.parity.random import random_indices  # noqa: E402


def one(seed: int, native: bool) -> None:
    try:
        random_indices.compare(seed)
    except Dy2stError as e:
        print(f"seed {seed} is refused: {str(e).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(differences(one, __doc__))
