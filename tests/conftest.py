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
#: of these files every n-th test belongs to the quick part, the others are slow
SAMPLED = {
    "test_inplace_apis": 40,
    "test_programs": 12,
    "test_idioms": 12,
    "test_adversarial_control": 6,
    "test_gradients": 8,
    "test_autodiff_rows": 6,
    "test_layers": 6,
    "test_static_nn": 4,
    "test_decoding": 4,
    "test_syntax": 4,
    "test_outside": 4,
    "test_errors": 3,
    "test_alias_gradients": 11,
    "test_parity_bugs": 13,
    "test_inplace_models": 13,
    "test_slots": 10,
    "test_chains": 4,
    "test_chain_steps": 8,
    "test_views": 24,
    "test_aliases": 9,
    "test_versions": 6,
    "test_parity": 5,
    "test_gemm": 7,
    "test_executor": 3,
    "test_ir_random": 3,
    "test_functions": 3,
    "test_indexing": 6,
    "test_inplace_setitem": 36,
    "test_scatter": 9,
    "test_adversarial": 3,
    "test_ops": 3,
    "test_gradients_autograd": 3,
    "test_executor_control": 2,
    "test_inplace_cost": 14,
    "test_masked_updates": 12,
    "test_images": 7,
}


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")


def pytest_collection_modifyitems(items):
    seen = {}
    for item in items:
        name = Path(item.path).stem
        k = seen[name] = seen.get(name, -1) + 1
        if k % SAMPLED.get(name, 1):
            item.add_marker(pytest.mark.slow)


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
