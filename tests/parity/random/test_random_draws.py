"""Random programs that draw, against eager; `scripts/fuzz/draws.py` runs more of them."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.conftest import mostly_slow
from tests.parity.random.random_draws import compare, program

SEED = int(os.environ.get("DY2ST_SEED", "0"))
COUNT, GROUPS = 80, 16


@pytest.mark.parametrize("group", mostly_slow(range(6), 0, nightly=range(6, GROUPS)))
def test_random_draws(group):
    """Results, gradients, generators and iterators. DY2ST_SEED moves all seeds."""
    seen = Counter()
    for seed in range(SEED + group, SEED + COUNT, GROUPS):
        try:
            seen[compare(seed, gradients=seed % 2 == 1, named=seed % 3 == 2)] += 1
        except Exception as e:
            text = f"seed {seed}: {type(e).__name__}: {e}\n{program(seed)}"
            raise AssertionError(text) from e
    compared = seen["native"] + seen["segmented"]
    assert compared >= 1 and compared + seen["no gradient"] >= 4, seen
