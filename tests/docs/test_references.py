"""Modules and files that a docstring, a comment or a page names between backquotes are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.test_layout import ROOT, name_of

MODULE = re.compile(r"`((?:dy2st|ir|executor|tests|scripts)(?:\.\w+)+)")
FILE = re.compile(r"`((?:dy2st|ir|executor|tests|scripts|docs)/[\w/]+(?:\.\w+|/))")
#: names of files that are no modules
SUFFIXES = ("py", "md")


def texts() -> dict[Path, str]:
    places = ("dy2st", "ir", "executor", "tests", "scripts")
    found = [p for q in places for p in (ROOT / q).rglob("*.py")]
    return {p: p.read_text() for p in (*found, *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}


def missing(text: str, modules: dict[str, str]) -> Iterator[str]:
    yield from (name for name in FILE.findall(text) if not (ROOT / name).exists())
    for name in MODULE.findall(text):
        parts = name.split(".")
        home = next(k for k in range(len(parts), -1, -1) if ".".join(parts[:k]) in modules or not k)
        inside = modules.get(".".join(parts[:home]), "")
        known = home == len(parts) or re.search(rf"\b{parts[home]}\b", inside)
        if not known and parts[-1] not in SUFFIXES:
            yield name


def test_what_is_named_is_there():
    found = texts()
    modules = {name_of(p): text for p, text in found.items() if p.suffix == ".py"}
    wrong = {p.relative_to(ROOT).as_posix(): [*missing(text, modules)] for p, text in found.items()}
    assert {p: names for p, names in wrong.items() if names} == {}


def test_a_name_of_nothing_is_found():
    modules = {"ir": "", "ir.types": "class Size: ..."}
    names = "ir.types.Size ir.types.Dim ir.nothing docs/guide.md docs/nothing.md".split()
    text = " and ".join(f"`{q}`" for q in names)
    assert [*missing(text, modules)] == ["docs/nothing.md", "ir.types.Dim", "ir.nothing"]
