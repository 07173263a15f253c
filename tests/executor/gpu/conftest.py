"""The tests of this folder run on the emulator."""

from __future__ import annotations

import pytest

from executor.gpu import HostCopyWarning
from tests.executor.gpu import emulator
from tests.executor.gpu.compiled import COMPILED


@pytest.fixture(autouse=True)
def gpu():
    if emulator.compiler() is None:
        pytest.skip("no C++ compiler: neither g++, clang++ nor the package ziglang")
    yield emulator.library()
    COMPILED.clear()


def pytest_collection_modifyitems(items):
    """The arrays of these tests lie on the host."""
    for item in items:
        if "/executor/gpu/" in str(item.path):
            item.add_marker(
                pytest.mark.filterwarnings(
                    f"ignore::{HostCopyWarning.__module__}.{HostCopyWarning.__name__}"
                )
            )
