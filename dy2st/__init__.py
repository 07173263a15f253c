"""dy2st: eager Paddle models, Python loops and in-place writes included, as one compiled program.

`import dy2st` imports neither Paddle nor the compiler: each public name is imported on first use.
A saved program is loaded and run on machines without Paddle.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dy2st import nn
    from dy2st.api import StaticFunction, to_static
    from dy2st.capture.detached_writes import AliasWarning
    from dy2st.compiled.recompilation import Explanation, RecompileWarning
    from dy2st.convert.marks import host, ignore_module, not_to_static, pure
    from dy2st.export.load import FileError, LoadedProgram, load
    from dy2st.export.save import save
    from dy2st.functional.arguments import taps
    from dy2st.functional.branching import cond, while_loop
    from dy2st.functional.flex import flex_scan
    from dy2st.functional.scanning import scan
    from dy2st.inspection import code, explain, program, report
    from dy2st.results.planner import CopyWarning
    from dy2st.streaming.api import stream
    from ir import Dy2stError, SourceError

_HOME = {
    "AliasWarning": "dy2st.capture.detached_writes",
    "CopyWarning": "dy2st.results.planner",
    "Dy2stError": "ir",
    "Explanation": "dy2st.compiled.recompilation",
    "FileError": "dy2st.export.load",
    "LoadedProgram": "dy2st.export.load",
    "RecompileWarning": "dy2st.compiled.recompilation",
    "SourceError": "ir",
    "StaticFunction": "dy2st.api",
    "code": "dy2st.inspection",
    "cond": "dy2st.functional.branching",
    "explain": "dy2st.inspection",
    "flex_scan": "dy2st.functional.flex",
    "host": "dy2st.convert.marks",
    "ignore_module": "dy2st.convert.marks",
    "load": "dy2st.export.load",
    "not_to_static": "dy2st.convert.marks",
    "program": "dy2st.inspection",
    "pure": "dy2st.convert.marks",
    "report": "dy2st.inspection",
    "save": "dy2st.export.save",
    "scan": "dy2st.functional.scanning",
    "stream": "dy2st.streaming.api",
    "taps": "dy2st.functional.arguments",
    "to_static": "dy2st.api",
    "while_loop": "dy2st.functional.branching",
}
_NEED_PADDLE = frozenset(
    "AliasWarning CopyWarning Explanation RecompileWarning StaticFunction code cond explain "
    "flex_scan nn program report save scan stream taps to_static while_loop".split()
)
__version__ = "0.1.0"
__all__ = [
    "AliasWarning",
    "CopyWarning",
    "Dy2stError",
    "Explanation",
    "FileError",
    "LoadedProgram",
    "RecompileWarning",
    "SourceError",
    "StaticFunction",
    "code",
    "cond",
    "explain",
    "flex_scan",
    "host",
    "ignore_module",
    "load",
    "nn",
    "not_to_static",
    "program",
    "pure",
    "report",
    "save",
    "scan",
    "stream",
    "taps",
    "to_static",
    "while_loop",
]


def _check_not_shadowed(package: str) -> None:
    """Raises ImportError if a user's `ir.py` or `executor.py` comes before the package of dy2st."""
    spec = find_spec(package)
    origin = spec.origin if spec is not None else None
    here = Path(__file__).resolve().parent.parent
    if origin is None or Path(origin).resolve().parent.parent != here:
        raise ImportError(
            f"dy2st needs its own package {package!r}, but Python found {origin or 'none'}. "
            "Rename that file or move it off the path."
        )


for _package in ("ir", "executor"):
    _check_not_shadowed(_package)


def __getattr__(name: str) -> Any:
    if name not in _HOME and name != "nn":
        raise AttributeError(f"module 'dy2st' has no attribute {name!r}")
    if name in _NEED_PADDLE and find_spec("paddle") is None:
        raise ImportError(
            f"dy2st.{name} needs Paddle, which is not installed: "
            'pip install "dy2st[paddle]". Saved programs run without it (dy2st.load).'
        )
    if name == "nn":
        return importlib.import_module("dy2st.nn")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
