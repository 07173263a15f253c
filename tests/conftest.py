"""Fixtures for all tests. `golden` compares with a file under tests/golden/.

`assert str(q) == golden` reads tests/golden/<test file>/<test>.txt; `pytest --update-golden`
writes it instead. A golden file that is missing fails the test.
"""

from __future__ import annotations

import difflib
import gc
import os
import re
import sys
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from dy2st import convert
from executor import code_cache
from executor.cpu import jit, kernel_cache

GOLDEN = Path(__file__).parent / "golden"
#: where LLVM optimises as it does for users: tests of kernels, of models, and of long computations
OPTIMISED = (
    "executor",
    "parity/test_idioms.py",
    "parity/test_packages.py",
    "parity/test_unbounded_growth.py",
)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/")
    parser.addoption("--nightly", action="store_true", help="also run what is marked `nightly`")


def pytest_configure(config):
    """Importing Paddle and all tests makes a million objects that stay. Machine code is kept with
    pytest's other files; nobody looks how many there are, as there is room for all."""
    gc.disable()
    folder = config.cache.mkdir("code")
    folder.chmod(0o700)
    os.environ["DY2ST_CACHE"] = str(folder)
    code_cache.MOST_BYTES = code_cache.INTERVAL = 1 << 30


def pytest_collection_finish(session):
    """From here on the collector leaves them alone, and it comes rarely. Tests share more code than
    programs of users do."""
    jit.KEPT = kernel_cache.KEPT = convert.KEPT = 4096
    gc.freeze()
    gc.set_threshold(500_000, 50, 10)
    gc.enable()


def pytest_sessionfinish(session):
    """pytest and Python collect at their end: they need not go through all that is left."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Elsewhere LLVM takes a third of the time; what code computes does not depend on its level."""
    place = item.path.relative_to(GOLDEN.parent).as_posix()
    optimised = place.startswith(OPTIMISED) or item.config.getoption("--nightly")
    jit.LEVEL = 2 if optimised else 0


def pytest_collection_modifyitems(config, items):
    """In modules marked `sampled` whatever is not marked `quick` is slow; `sampled(every=n)` leaves
    every n-th row of each test quick as well."""
    unknown, rows = {}, Counter()
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            test, every = item.nodeid.split("[")[0], mark.kwargs.get("every", 0)
            regular = every and rows[test] % every == 0
            rows[test] += 1
            if not is_quick(item, unknown) and not regular:
                item.add_marker(pytest.mark.slow)
        elif (mark := item.get_closest_marker("quick")) and mark.args:
            raise pytest.UsageError(
                f"{item.nodeid}: rows are quick in a module that is not sampled"
            )
    if any(unknown.values()) and not any("::" in q for q in config.args):
        raise pytest.UsageError(f"no such rows: {[(t, q) for t, q in unknown.items() if q]}")
    leave_products_to_the_night(items)
    if not config.getoption("--nightly"):
        left_out = [q for q in items if q.get_closest_marker("nightly")]
        items[:] = [q for q in items if not q.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)


def leave_products_to_the_night(items):
    """Of a test marked `paired`, what is neither in a covering sample nor named by `quick`."""
    products, numbers = defaultdict(dict), {}
    for item in items:
        if item.get_closest_marker("paired") and not item.get_closest_marker("nightly"):
            values = map(id, item.callspec.params.values())
            row = tuple(numbers.setdefault(q, len(numbers)) for q in values)
            products[item.nodeid.split("[")[0]][row] = item
    for rows in products.values():
        named = [r for r, q in rows.items() if q.get_closest_marker("quick") and is_quick(q, {})]
        for row in rows.keys() - covering(list(rows), named):
            rows[row].add_marker(pytest.mark.nightly)


def covering(rows, first=()):
    """A sample of a product with the rows `first`: every value of two parameters, every pair of
    values of more."""
    width = min(2, max(1, len(rows[0]) - 1))
    parts = {row: set(combinations(enumerate(row), width)) for row in rows}
    wanted = set().union(*parts.values())
    taken, used = set(), Counter()
    pending = list(first)
    while wanted or pending:
        if pending:
            row = pending.pop()
        else:
            rows = [r for r in rows if not wanted.isdisjoint(parts[r])]
            row = max(rows, key=lambda r: (len(parts[r] & wanted), -sum(used[q] for q in parts[r])))
        taken.add(row)
        wanted -= parts[row]
        used.update(parts[row])
    return taken


def is_quick(item, unknown):
    """`quick` marks a test or a row; with arguments the rows whose ids are, or begin or end with,
    one of these: `quick("0", "name")` the rows `0`, `name-7` and `f32-name`.

    `unknown`: for each test the arguments that no row has had so far."""
    mark = item.get_closest_marker("quick")
    if mark is None or not mark.args:
        return mark is not None
    name = f"-{item.callspec.id}-"
    named = {q for q in mark.args if name.startswith(f"-{q}-") or name.endswith(f"-{q}-")}
    test = item.nodeid.split("[")[0]
    unknown[test] = unknown.get(test, set(mark.args)) - named
    return bool(named)


def mostly_slow(values, quick=1, nightly=()):
    """Parameters of a random test: the first `quick` belong to the quick part, the rest is slow,
    and what is in `nightly` is left to the night."""
    slow = [
        q if k < quick else pytest.param(q, marks=pytest.mark.slow) for k, q in enumerate(values)
    ]
    return [*slow, *(pytest.param(q, marks=pytest.mark.nightly) for q in nightly)]


def without_columns(text: str) -> str:
    """Python 3.10 keeps neither columns nor qualified names of running code: there an error marks
    the start of its line and gives the plain name; a reason does not name the expression."""
    if sys.version_info >= (3, 11):
        return text
    text = re.sub(r"^( +\S+\.py:\d+, )[\w.<>]*\.", r"\1", text, flags=re.M)
    text = re.sub(r"((?:Reason: |unrolled \()[^`\n]*): `[^`\n]*`", r"\1", text)
    text = re.sub(r"((?:Reason: |unrolled \())`[^`\n]*` ", r"\1an index ", text)
    return re.sub(r"^ +\^~*", "", text, flags=re.M)


class Golden:
    def __init__(self, path: Path, update: bool) -> None:
        self.path, self.update = path, update

    def text(self) -> str:
        return self.path.read_text().rstrip("\n") if self.path.exists() else "<no golden file>"

    def __eq__(self, other: object) -> bool:
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(f"{other}\n")
        return without_columns(self.text()) == without_columns(str(other))

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


@pytest.fixture
def young():
    """`gc.collect()` goes through what the test has made: all that earlier tests have left takes it
    seconds."""
    gc.freeze()
    yield
    gc.unfreeze()
