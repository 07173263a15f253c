"""Random indices: reads, writes and their gradients against eager Paddle."""

from __future__ import annotations

import pytest

from tests import random_indices
from tests.conftest import mostly_slow


@pytest.mark.parametrize("first", mostly_slow(range(0, 200, 5)))
def test_random_indices(first):
    for seed in range(first, first + 5):
        print(random_indices.source(seed))
        random_indices.compare(seed)
