"""Writes `docs/errors.md`: every message of dy2st, with a program that leads to it.

`python -m scripts.errors_page` from the root; `--check` only says whether the page is up to date.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.errors import Example, outcomes, sections

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
HEAD = """# Errors

The messages that dy2st raises, each with a program that leads to it, as Python prints it. A
refused program has changed nothing: not its arguments, not the model, not a Python object.
`dy2st.SourceError` names the line, the reason and a remedy; an error that eager Paddle raises as
well has eager's type. This page is written by `python -m scripts.errors_page`.
"""


def page() -> str:
    return "\n".join([HEAD, *(text for part in parts() for text in part)])


def parts() -> Iterator[list[str]]:
    for module, found in sections():
        title, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
        yield [f"## {title.rstrip('.')}", "", *([rest, ""] if rest else [])]
        for example in found:
            yield entry(example)


def entry(example: Example) -> list[str]:
    seen = outcomes()[example.name]
    return [
        f"### {example.title}",
        "",
        f"```python\n{example.source}\n```",
        "",
        f"```text\n{seen.text}\n```",
        "",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
