"""README.md and CONTRIBUTING.md say what is so.

Every Python block of README.md runs, and prints the `text` block that follows it, if one does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("paddle")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
MARK = "---- end of block"


def as_script() -> str:
    """The blocks in the lines that they have in README.md; each ends by printing a mark."""
    out = ""
    for block in BLOCK.finditer(README):
        first_line = README.count("\n", 0, block.start(1))
        out += "\n" * (first_line - out.count("\n")) + block[1] + f"print({MARK!r})\n"
    return out


def without_lines(text: str) -> str:
    """Line numbers of README.md change with every edit of it."""
    return re.sub(r"README\.py:\d+ *|^ +\d+ \|", "", text, flags=re.M)


def test_the_blocks_run_and_print_what_readme_shows(tmp_path):
    (tmp_path / "README.py").write_text(as_script())
    command = [sys.executable, "-W", "ignore", "README.py"]
    env = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    shown = [block[2] for block in BLOCK.finditer(README)]
    printed = [q.removeprefix("\n") for q in done.stdout.split(MARK)[:-1]]
    assert len(printed) == len(shown)
    for have, want in zip(printed, shown):
        if want is not None:
            assert without_lines(have) == without_lines(want)


def test_files_that_readme_names_exist():
    for link, script in re.findall(r"\]\(([\w./-]+)\)|bash (scripts/[\w.]+)", README):
        assert (ROOT / (link or script)).exists(), link or script


@pytest.mark.parametrize("package", ["ir", "dy2st", "executor"])
def test_contributing_names_every_module(package):
    listed = dict(re.findall(r"^\*\*`(\S+)/`\*\*\n\n((?:- .*\n)+)", CONTRIBUTING, re.M))
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    for folder in folders:
        have = set(re.findall(r"^- `(\w+\.py)`", listed[str(folder.relative_to(ROOT))], re.M))
        want = {path.name for path in folder.glob("*.py")}
        assert have - {"__init__.py"} == want - {"__init__.py"}
