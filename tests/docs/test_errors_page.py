"""docs/errors.md: up to date, complete, and true."""

from __future__ import annotations

import ast
import copy
import functools
import re
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

import dy2st
from scripts import errors_page
from tests.docs import errors
from tests.docs.test_layout import nodes
from tests.parity.models import wrong_data

ROOT = Path(__file__).parent.parent.parent
#: functions that make an error or a warning, and exceptions that pass on to the user
MAKERS = {"Dy2stError", "SourceError", "Refused", "FileError", "refuse", "refusal", "warn", "fault"}
RAISED = {
    "TypeError", "ValueError", "IndexError", "RuntimeError", "AttributeError", "ImportError",
    "ZeroDivisionError", "KeyError", "StopIteration",
}  # fmt: skip
#: what users of the package must not read
INTERNAL = re.compile(
    r"FakeTensor|FakeArray|TraceList|RuntimeScalar|SymInt|StackedRun|Unresolved|NeedsConcrete|stand-in"
)
#: what belongs to this machine or process
PLACE = re.compile(
    rf"{re.escape(str(ROOT))}|{re.escape(tempfile.gettempdir())}|site-packages|0x[0-9a-f]{{6}}"
)
#: functions with a message that no program of a user leads to, and why
UNREACHABLE = {
    "dy2st/__init__.py: __getattr__": "Paddle is not installed",
    "dy2st/__init__.py: _check_not_shadowed": "a module of the user shadows a package of dy2st",
    "dy2st/convert/source.py: changed": "a file changes while the process runs",
    "dy2st/convert/source.py: source_of": "every caller passes a Python function",
    "dy2st/compiled/foreign_kernels.py: fill": "a check of dy2st: a kernel broke its contract",
    "dy2st/capture/intercept.py: _bound": "a check of the installed version of Paddle",
    "dy2st/compiled/errors.py: unstable": "a check of dy2st itself: a trace holds for its call",
    "dy2st/compiled/error_exits.py: ending": "a check of dy2st: a trace ends as the last one",
    "dy2st/compiled/foreign_kernels.py: compiled": "needs a GPU: tests/parity/test_gpu.py",
    "dy2st/compiled/foreign_kernels.py: require_host": "needs a GPU: test_gpu_tensors.py",
    "dy2st/export/load.py: load": "needs a GPU: tests/parity/test_gpu.py has its text",
    "dy2st/library/layer_modes.py: mixed_precision": "Paddle has no mixed precision on a CPU",
    "dy2st/branches/unresolved.py: __getattr__": "the protocol of `hasattr`; no text",
    "dy2st/state/containers/dynamic_lookup.py: __getattr__": "the protocol of `hasattr`; no text",
    "dy2st/state/strings.py: __getattr__": "the protocol of `hasattr`; no text",
    "dy2st/streaming/api.py: __getattr__": "the protocol of `hasattr`; no text",
    "dy2st/state/containers/layers.py: __getitem__": "the protocol of a dict; no text",
    "dy2st/state/shared_inputs.py: storage": "the program is for other arguments, and is passed by",
}
#: functions with a message of eager Paddle, which they repeat
REPEATED = {"dy2st/library/decoding.py: advance"}
WITHOUT_EXAMPLE = {*UNREACHABLE, *REPEATED}
EXAMPLES = {q.name: q for q in errors.examples()}


@pytest.fixture(scope="module")
def seen():
    """What each example printed."""
    return errors.outcomes()


def test_names_are_given_once():
    assert len(EXAMPLES) == len(errors.examples())


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="other texts of Python, and no carets")
def test_the_page_is_up_to_date():
    have, want = errors_page.PAGE.read_text(), errors_page.page()
    if sys.version_info >= (3, 13):  # underlines more of a `with` statement
        have, want = (re.sub(r"\n +\^~*$", "", q, flags=re.MULTILINE) for q in (have, want))
    assert have == want, "python -m scripts.errors_page"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no carets")
@pytest.mark.parametrize("name", ["unknown_option", "both_branches_raise", "index_of_floats"])
def test_an_example_stands_on_the_page(name):
    assert errors.outcome(EXAMPLES[name]).text in errors_page.PAGE.read_text()


@pytest.mark.slow
def test_every_example_has_a_message_without_internal_names(seen):
    for name, q in seen.items():
        assert q.text, f"{name} raises nothing"
        assert not INTERNAL.search(q.text), f"{name}: {q.text}"
        assert not PLACE.search(q.text), f"{name}: {q.text}"


@pytest.mark.slow
def test_an_error_of_eager_keeps_its_type(seen, monkeypatch):
    for name in ("box", "history", "table", "seen", "mode"):
        monkeypatch.setattr(wrong_data, name, copy.copy(getattr(wrong_data, name)))
    given = [q for q in EXAMPLES.values() if q.ends and not q.whole and seen[q.name].error]
    kinds = {q.name: eager_kind(q) for q in given}
    found = {name for name, kind in kinds.items() if not isinstance(seen[name].error, kind)}
    assert not found
    silent = [name for name, kind in kinds.items() if kind is object]
    claim = re.compile("[Ee]ager Paddle (raises|refuses)")
    assert not [name for name in silent if claim.search(seen[name].text)], "eager raises nothing"


def eager_kind(example: errors.Example) -> type:
    """Python's class of the error that eager Paddle raises; `object` if it raises none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            example.run_eagerly()
        except Exception as e:
            return next(k for k in type(e).__mro__ if k.__module__ == "builtins")
    return object


# ---------------------------------------------------------------- completeness
@functools.cache
def functions(file: str) -> list[ast.FunctionDef]:
    return [node for node in nodes(Path(file)) if isinstance(node, ast.FunctionDef)]


@functools.cache
def sites() -> list[tuple[str, int, int]]:
    """The file, first and last line of each statement of dy2st that makes a message."""
    return [
        (str(path), node.lineno, node.end_lineno or node.lineno)
        for path in sorted((ROOT / "dy2st").rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.stmt) and makes_message(node)
    ]


def lines(site: tuple[str, int, int]) -> set[tuple[str, int]]:
    file, first, last = site
    return {(file, line) for line in range(first, last + 1)}


def makes_message(node: ast.stmt) -> bool:
    if hasattr(node, "body"):
        return False
    calls = [q for q in ast.walk(node) if isinstance(q, ast.Call)]
    names = {getattr(q.func, "id", getattr(q.func, "attr", "")) for q in calls if not carries(q)}
    return bool(names & MAKERS) or isinstance(node, ast.Raise) and bool(names & RAISED)


def carries(call: ast.Call) -> bool:
    """Whether it makes a Refused of an error that is there."""
    return getattr(call.func, "id", "") == "Refused" and len(call.args) == 1 and not call.keywords


def where(file: str, line: int) -> str:
    """The function that a line is in: "dy2st/api.py: to_static"."""
    around = [f for f in functions(file) if f.lineno <= line <= (f.end_lineno or line)]
    inner = max(around, key=lambda f: f.lineno)
    return f"{Path(file).relative_to(ROOT)}: {inner.name}"


@pytest.mark.slow
def test_every_message_has_an_example(seen):
    made = set().union(*map(lines, sites()))
    unclear = [n for n, q in seen.items() if q.error and not is_known(q.error, q.sites & made)]
    found = [*seen.values(), *(errors.outcome(EXAMPLES[name], watched=True) for name in unclear)]
    met = {site for q in found for site in q.sites}
    missing = {where(*q[:2]) for q in sites() if lines(q).isdisjoint(met)}
    assert missing == WITHOUT_EXAMPLE


def is_known(error: BaseException, met: frozenset[tuple[str, int]]) -> bool:
    """Whether the lines `met` have the one that made `error`: those that only kept the text of
    another error do not show it."""
    return bool(met if isinstance(error, dy2st.SourceError) else met & {*errors.lines_of(error)})


@pytest.mark.slow
def test_functions_without_an_example_exist():
    assert WITHOUT_EXAMPLE <= {where(*q[:2]) for q in sites()}


def test_public_errors_show_their_public_name():
    for name in ("SourceError", "Dy2stError", "AliasWarning", "CopyWarning"):
        assert getattr(dy2st, name).__module__ == "dy2st"
