"""A hook of MkDocs: README.md and CONTRIBUTING.md become pages of the site, with their links."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md"}
LINKS = {
    "](docs/": "](",
    "](CONTRIBUTING.md": "](contributing.md",
    "](README.md": "](index.md",
    "](LICENSE)": "](LICENSE.txt)",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=as_page((ROOT / source).read_text())))
    licence = (ROOT / "LICENSE").read_text()
    files.append(File.generated(config, "LICENSE.txt", content=licence))
    return files


def as_page(text: str) -> str:
    """The links of a file at the top of the repository, as links of a page of the site."""
    for old, new in LINKS.items():
        text = text.replace(old, new)
    return text
