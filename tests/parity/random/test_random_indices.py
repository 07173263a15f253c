"""Random conditions and slices by a loop's index; `scripts/fuzz/indices.py` runs many more."""

from __future__ import annotations

import pytest

from ir import Dy2stError
from tests.conftest import mostly_slow
from tests.parity.random import random_indices

COUNT, GROUPS = 60, 6


@pytest.mark.parametrize("group", mostly_slow(range(4), 0, nightly=range(4, GROUPS)))
def test_random_indices(group):
    seen = []
    for seed in range(group, COUNT, GROUPS):
        try:
            seen.append(random_indices.compare(seed))
        except Dy2stError:
            seen.append("refused")
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e}\n{random_indices.source(seed)}") from e
    assert seen.count("equal") >= 5 and seen.count("refused") <= 4, seen
