"""What setup.cfg says about the wheel is so: `bash scripts/check_wheel.sh` builds and runs one."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from pathlib import Path

import pytest

import dy2st

ROOT = Path(dy2st.__file__).parent.parent
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")
PACKAGES = ("dy2st", "ir", "executor")


def lines(section: str, key: str) -> list[str]:
    return CONFIG[section][key].strip().splitlines()


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found


def requirements(*places: tuple[str, str]) -> set[str]:
    return {re.split(r"[<>=\[]", line)[0] for place in places for line in lines(*place)}


@pytest.mark.slow
def test_every_import_is_declared():
    found = set().union(*(imported(q) for p in PACKAGES for q in (ROOT / p).rglob("*.py")))
    third_party = found - set(sys.stdlib_module_names) - set(PACKAGES) - {"__future__"}
    declared = requirements(("options", "install_requires"), ("options.extras_require", "paddle"))
    names = {"paddle": "paddlepaddle", "typing_extensions": "typing-extensions"}
    assert {names.get(q, q) for q in third_party} <= declared


def test_the_packages_are_typed_and_their_files_are_in_the_wheel():
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").exists()
        assert CONFIG["options.package_data"][package] == "py.typed"
        for folder in {q.parent for q in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").exists(), folder


def test_readme_and_metadata_name_the_same_pythons():
    pythons = [q.split()[-1] for q in lines("metadata", "classifiers") if re.search(r":: 3\.\d", q)]
    lowest, highest = pythons[0], pythons[-1]
    assert f"Python {lowest} to {highest}" in (ROOT / "README.md").read_text()
    after = f"3.{int(highest.split('.')[1]) + 1}"
    assert CONFIG["options"]["python_requires"] == f">={lowest},<{after}"
