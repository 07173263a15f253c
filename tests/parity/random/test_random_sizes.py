"""Random functions whose sizes data decides; `scripts/fuzz/sizes.py` runs many more."""

from __future__ import annotations

import os

import pytest

from tests.conftest import mostly_slow
from tests.parity.random import random_sizes

SEED = int(os.environ.get("DY2ST_SEED", "0"))
COUNT, GROUPS = 100, 10


@pytest.mark.parametrize("group", mostly_slow(range(4), 0, nightly=range(4, GROUPS)))
def test_random_sizes(group):
    """Prints the seed of a function that differs; DY2ST_SEED moves all seeds."""
    compare_all(range(SEED + group, SEED + COUNT, GROUPS))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((0, 4), marks=pytest.mark.slow),
        pytest.param((4, 60), marks=pytest.mark.nightly),
    ],
)
def test_sizes_that_change(seeds):
    first = random_sizes.RESIZED_FROM + SEED
    compare_all(range(first + seeds[0], first + seeds[1]))


def compare_all(seeds):
    seen = []
    for seed in seeds:
        try:
            seen.append(random_sizes.compare(seed))
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e}") from e
    assert "equal" in seen
