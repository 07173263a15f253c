"""Random programs of loops: 120 here, 300 with `--nightly`, more by `scripts/fuzz/loops.py`."""

from __future__ import annotations

import pytest

from tests.conftest import mostly_slow
from tests.ir.passes.loops.random_loops import check

CHUNK = 10
STARTS = mostly_slow(range(0, 120, CHUNK), 0, nightly=range(120, 300, CHUNK))


@pytest.mark.parametrize("start", STARTS)
def test_rewrites_keep_values_and_gradients(start):
    for seed in range(start, start + CHUNK):
        try:
            check(seed)
        except BaseException as e:
            raise AssertionError(f"seed {seed}") from e
