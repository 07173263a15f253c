"""Random functions whose sizes data decides: `python scripts/fuzz/sizes.py --count 2000 --seed 0`.

Prints the seed of every function that differs from eager, and a summary after each hundred. Exit
code 1 if any differs, or if more than a tenth of them is refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.fuzz.driver import outcomes  # noqa: E402
from tests.parity.random import random_sizes  # noqa: E402

if __name__ == "__main__":
    sys.exit(outcomes(random_sizes.compare, random_sizes.source, __doc__))
