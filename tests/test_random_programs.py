"""Random programs against eager; `scripts/fuzz/programs.py` runs many more."""

from __future__ import annotations

import os

import pytest

import dy2st
from tests import random_programs
from tests.conftest import mostly_slow

SEED = int(os.environ.get("DY2ST_SEED", "0"))
COUNT, GROUPS = 200, 10


@pytest.mark.parametrize("group", mostly_slow(range(GROUPS)))
def test_random_programs(group):
    """Prints the seed of a program that differs; DY2ST_SEED moves all seeds."""
    equal = rolled = 0
    for seed in range(SEED + group, SEED + COUNT, GROUPS):
        named = seed % 3 == 0
        try:
            kinds = random_programs.compare(seed, (0, 1, 2, 5)[seed % 4], named)
        except dy2st.SourceError as e:
            assert named, f"seed {seed}: {e}"
            continue
        except Exception as e:
            raise AssertionError(f"seed {seed}, named={named}: {e}") from e
        equal += 1
        rolled += "scan" in kinds
    assert equal > 10 and rolled > 3
