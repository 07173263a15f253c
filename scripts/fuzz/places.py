"""Random programs about storage: `python scripts/fuzz/places.py --count 5000 --seed 0`.

Lowered programs are run launch by launch on memory that remembers who wrote it, and compared with
the reference; `--native N` compiles every N-th as well, with memory that is free filled with NaN.
Exit code 1 if any differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import executor  # noqa: E402
import ir  # noqa: E402
from scripts.fuzz.driver import differences  # noqa: E402
from tests.executor.plan.random_places import native_places  # noqa: E402
from tests.executor.plan.test_reuse import check_plan  # noqa: E402
from tests.executor.test_random_programs import agree, arrays  # noqa: E402


def one(seed: int, native: bool) -> None:
    p, sizes = native_places(seed), {"T": (3, 3, 3, 1, 2, 0)[seed % 6]}
    check_plan(p, sizes, seed, range(seed % 3, 8, 2) if seed % 5 == 2 else ())
    if native:
        compiled(p, sizes, seed)


def compiled(p: ir.Program, sizes: dict[str, int], seed: int) -> None:
    xs = arrays(p, sizes, np.random.default_rng(seed))
    own = [x.copy() for x in xs]
    try:
        outputs, written = ir.evaluate(p, xs)
    except (IndexError, OverflowError, ValueError, ZeroDivisionError):
        return
    for a, b in zip(executor.compile(p, poison=True)(*own), outputs, strict=True):
        agree(a, b, str(p))
    after = dict(zip((target for target, _ in p.writes), written))
    for i, x, a in zip(p.inputs, xs, own):
        agree(a, after.get(i.value, x), str(p))


if __name__ == "__main__":
    sys.exit(differences(one, __doc__))
