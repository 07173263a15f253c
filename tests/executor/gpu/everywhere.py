"""Tests of the CPU on the emulated GPU: `pytest -p tests.executor.gpu.everywhere tests/parity`.

Programs for "cpu" are compiled for the GPU. A test that needs what a GPU refuses is skipped with
the words of the refusal; those that look at what the CPU's backend alone has fail.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest

from executor import backend
from executor.gpu import HostCopyWarning
from tests.executor.gpu import emulator

#: tests of what a CPU has: alignment of its arena; and of the time that 20,000 steps take, each of
#: which reads what all have made
LEFT_OUT = (
    "test_a_carry_is_updated_through_turned_and_reshaped_views",
    "test_memory_follows_the_length",
)
#: the backend has the name of the CPU here
REFUSED = "a GPU cannot", "a CPU cannot"


def pytest_configure(config: pytest.Config) -> None:
    emulator.library()
    backend._BACKENDS["cpu"] = replace(backend.named("gpu"), name="cpu")
    warnings.simplefilter("ignore", HostCopyWarning)
    config.addinivalue_line("filterwarnings", "ignore::executor.gpu.HostCopyWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name.startswith(LEFT_OUT):
            item.add_marker(pytest.mark.skip(reason="of the CPU"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except Exception as e:
        error: BaseException | None = e
        while error is not None:
            if any(q in str(error) for q in REFUSED):
                pytest.skip(str(error).splitlines()[0][:200])
            error = error.__cause__ or error.__context__
        raise
