"""Random stacks by chunks against the whole sequence: `python scripts/fuzz/stream.py --count 500`.

Prints every stack that differs, and a summary at the end. Exit code 1 if any differs.
`--compiled` runs the streaming programs as native code, in place of the reference interpreter.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dy2st.streaming.program import StreamingProgram  # noqa: E402
from ir import SourceError  # noqa: E402
from tests.ir.streaming.streamed_stacks import Interpreted, compare  # noqa: E402


def outcome(seed: int, options: Any) -> str:
    try:
        return compare(seed, StreamingProgram if options.compiled else Interpreted)
    except SourceError as e:
        return f"refused: {e.message}"
    except Exception as e:
        print(f"seed {seed}: {type(e).__name__}: {e}", flush=True)
        return "DIFFERENT"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # frames that are no data may be anything
    seen = Counter(outcome(options.seed + k, options) for k in range(options.count))
    for what, count in seen.most_common():
        print(f"{count:6} {what}")
    return int(seen["DIFFERENT"] > 0)


if __name__ == "__main__":
    sys.exit(main())
