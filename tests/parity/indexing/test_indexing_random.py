"""Random indices: reads, writes and their gradients against eager Paddle."""

from __future__ import annotations

import pytest

from tests.conftest import mostly_slow
from tests.parity.indexing import random_indices


@pytest.mark.parametrize(
    "first",
    mostly_slow(range(0, 200, 20), 0, nightly=sorted({*range(0, 200, 5)} - {*range(0, 200, 20)})),
)
def test_random_indices(first):
    for seed in range(first, first + 5):
        print(random_indices.source(seed))
        random_indices.compare(seed)
