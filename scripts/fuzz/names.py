"""Random functions with containers of several names: `python scripts/fuzz/names.py --count 2000`.

Prints the seed of every function that differs from eager, and a summary after each hundred. Exit
code 1 if any differs. A fifth is refused: a container may have been changed by another name.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.fuzz.driver import outcomes  # noqa: E402
from tests.dy2st.branches import random_names  # noqa: E402

if __name__ == "__main__":
    sys.exit(outcomes(random_names.compare, random_names.source, __doc__))
