"""Random programs of loops: `python scripts/fuzz/loops.py --count 5000 --seed 0`.

The rewrites of loops keep values, and gradients of all and of some results; each pass, applied
again, changes nothing. `--native N` compiles every N-th as well. Exit code 1 if any differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import executor  # noqa: E402
from ir.interpreter import evaluate  # noqa: E402
from ir.passes import run  # noqa: E402
from scripts.fuzz.driver import differences  # noqa: E402
from tests.ir.passes.loops.random_loops import Loops, agree, arrays_for, check, lengths  # noqa: E402


def compiled(seed: int) -> None:
    p = Loops(seed).program()
    native = executor.compile(run(p))
    for n in lengths(p):
        inputs = arrays_for(p, n, seed)
        agree(native(*(a.copy() for a in inputs)), evaluate(p, inputs)[0])


def one(seed: int, native: bool) -> None:
    check(seed)
    if native:
        compiled(seed)


if __name__ == "__main__":
    sys.exit(differences(one, __doc__))
