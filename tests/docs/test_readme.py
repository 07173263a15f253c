"""The pages for people say what is so: README.md, docs/ and CONTRIBUTING.md.

Every Python block of README.md and of docs/ runs, page by page and in order, and prints the `text`
block that follows it, if one does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dy2st
from tests.conftest import without_columns

pytest.importorskip("paddle")

ROOT = Path(__file__).parents[2]
#: docs/errors.md is made of programs that fail: tests/docs/test_errors_page.py
WRITTEN = [p for p in sorted((ROOT / "docs").glob("*.md")) if p.name != "errors.md"]
PAGES = [ROOT / "README.md", *WRITTEN, ROOT / "CONTRIBUTING.md"]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ +(.+)$", re.M)
MARK = "---- end of block"
WITH_CODE = [page for page in PAGES[:-1] if BLOCK.search(page.read_text())]


def named(pages: list[Path]) -> pytest.MarkDecorator:
    """One test for each page; README is the quick one."""
    rest = [pytest.param(q, marks=pytest.mark.slow) for q in pages if q.name != "README.md"]
    first = [q for q in pages if q.name == "README.md"]
    return pytest.mark.parametrize("page", first + rest, ids=lambda q: q.name)


def as_script(text: str) -> str:
    """The blocks in the lines that they have in the page; each ends by printing a mark."""
    out = ""
    for block in BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        out += "\n" * (first_line - out.count("\n")) + block[1] + f"print({MARK!r})\n"
    return out


def without_lines(text: str) -> str:
    """Line numbers of a page change with every edit of it."""
    return re.sub(r"\w+\.py:\d+ *|^ +\d+ \|", "", without_columns(text), flags=re.M)


@pytest.mark.slow
@named(WITH_CODE)
def test_the_blocks_run_and_print_what_the_page_shows(page, tmp_path):
    script = page.with_suffix(".py").name
    (tmp_path / script).write_text(as_script(page.read_text()))
    command = [sys.executable, "-W", "ignore", script]
    env = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    shown = [block[2] for block in BLOCK.finditer(page.read_text())]
    printed = [q.removeprefix("\n") for q in done.stdout.split(MARK)[:-1]]
    assert len(printed) == len(shown)
    for have, want in zip(printed, shown):
        if want is not None:
            assert without_lines(have) == without_lines(want)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 1300


def test_the_api_page_lists_every_public_name():
    listed = re.findall(r"^::: dy2st\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.M)
    assert sorted(listed) == sorted(dy2st.__all__)


def anchors(page: Path) -> set[str]:
    """The names that headings have on the site: lower case, spaces become hyphens."""
    names = (re.sub(r"[^\w\s-]", "", q).strip().lower() for q in HEADING.findall(page.read_text()))
    return {re.sub(r"[\s-]+", "-", name) for name in names}


@named(PAGES)
def test_links_lead_to_files_and_headings(page):
    for path, anchor in LINK.findall(CODE.sub("", page.read_text())):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@named(PAGES)
def test_scripts_that_a_page_names_exist(page):
    for script in re.findall(r"(?:bash|python) (scripts/[\w./]+)", page.read_text()):
        assert (ROOT / script).exists(), script


def test_paths_that_contributing_names_exist():
    paths = re.findall(r"`((?:ir|dy2st|executor|tests|scripts|docs)/[\w./]*)`", CONTRIBUTING)
    assert len(paths) > 50
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", ["ir", "dy2st", "executor"])
def test_contributing_names_every_folder(package):
    listed = set(re.findall(r"^\| `([\w/]+)/` \|", CONTRIBUTING, re.M))
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    assert {str(q.relative_to(ROOT)) for q in folders} <= listed


def test_the_glossary_has_one_line_for_each_of_at_most_30_terms():
    glossary = CONTRIBUTING.split("## Glossary")[1].split("\n## ")[0]
    terms = re.findall(r"^\| ([\w ]+) \|", glossary, re.M)[1:]
    assert 20 < len(terms) <= 30
    assert len(set(terms)) == len(terms)
