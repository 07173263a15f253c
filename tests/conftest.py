"""Fixtures for all tests. `golden` compares with a file under tests/golden/.

`assert str(q) == golden` reads tests/golden/<test file>/<test>.txt; `pytest --update-golden`
writes it instead. A golden file that is missing fails the test.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")
    parser.addoption("--nightly", action="store_true", help="also run what is marked `nightly`")


def pytest_collection_modifyitems(config, items):
    """In modules marked `sampled` whatever is not marked `quick` is slow."""
    for item in items:
        if item.get_closest_marker("sampled") and not is_quick(item):
            item.add_marker(pytest.mark.slow)
    if not config.getoption("--nightly"):
        left_out = [q for q in items if q.get_closest_marker("nightly")]
        items[:] = [q for q in items if not q.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)


def is_quick(item):
    """`quick` marks a test or a row; with arguments the rows whose ids are, or begin or end with,
    one of these: `quick("0", "name")` the rows `0`, `name-7` and `f32-name`."""
    mark = item.get_closest_marker("quick")
    if mark is None or not mark.args:
        return mark is not None
    name = f"-{item.callspec.id}-"
    return any(name.startswith(f"-{q}-") or name.endswith(f"-{q}-") for q in mark.args)


def mostly_slow(values, quick=1):
    """Parameters of a random test: the first `quick` belong to the quick part, the rest is slow."""
    return [
        value if k < quick else pytest.param(value, marks=pytest.mark.slow)
        for k, value in enumerate(values)
    ]


class Golden:
    def __init__(self, path: Path, update: bool) -> None:
        self.path, self.update = path, update

    def text(self) -> str:
        return self.path.read_text().rstrip("\n") if self.path.exists() else "<no golden file>"

    def __eq__(self, other: object) -> bool:
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(f"{other}\n")
        return self.text() == str(other)

    def __repr__(self) -> str:
        return self.text()


def pytest_assertrepr_compare(op, left, right):
    """The difference, line by line."""
    if not isinstance(right, Golden) or op != "==":
        return None
    old, new = right.text().splitlines(), str(left).splitlines()
    diff = difflib.unified_diff(old, new, str(right.path), "now", lineterm="", n=2)
    return ["the text has changed (--update-golden accepts it):", *diff]


@pytest.fixture
def golden(request) -> Golden:
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    path = GOLDEN / Path(request.node.path).stem.removeprefix("test_") / f"{name}.txt"
    return Golden(path, request.config.getoption("--update-golden"))
