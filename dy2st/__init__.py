"""dy2st: eager Paddle models, Python loops and in-place writes included, as one compiled program.

`import dy2st` does not import Paddle: a saved program is loaded and run on machines without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import executor
import ir

if TYPE_CHECKING:
    from dy2st.api import StaticFunction, to_static
    from dy2st.capture.detached_writes import AliasWarning, CopyWarning
    from dy2st.convert.marks import ignore_module, not_to_static
    from dy2st.export.load import LoadedProgram, load, save

for _module in (ir, executor):
    if getattr(_module, "OWNER", None) != "dy2st":
        raise ImportError(
            f"dy2st needs its own package {_module.__name__!r}, but Python found "
            f"{getattr(_module, '__file__', '?')}. Rename that file or move it off the path."
        )

from ir import Dy2stError, SourceError  # noqa: E402

_HOME = {
    "AliasWarning": "dy2st.capture.detached_writes",
    "CopyWarning": "dy2st.capture.detached_writes",
    "to_static": "dy2st.api",
    "StaticFunction": "dy2st.api",
    "save": "dy2st.export.load",
    "load": "dy2st.export.load",
    "LoadedProgram": "dy2st.export.load",
    "ignore_module": "dy2st.convert.marks",
    "not_to_static": "dy2st.convert.marks",
}
__version__ = "0.1.0"
__all__ = [
    "AliasWarning",
    "CopyWarning",
    "Dy2stError",
    "LoadedProgram",
    "SourceError",
    "StaticFunction",
    "ignore_module",
    "load",
    "not_to_static",
    "save",
    "to_static",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dy2st' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
