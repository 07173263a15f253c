"""Random programs of loops: 300 here, more by `scripts/fuzz/loops.py`."""

from __future__ import annotations

import pytest

from tests.conftest import mostly_slow
from tests.ir.passes.loops.random_loops import check

CHUNK = 10


@pytest.mark.parametrize("start", mostly_slow(range(0, 300, CHUNK), 0))
def test_rewrites_keep_values_and_gradients(start):
    for seed in range(start, start + CHUNK):
        try:
            check(seed)
        except BaseException as e:
            raise AssertionError(f"seed {seed}") from e
