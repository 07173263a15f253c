"""Library functions that are converted like user code: what is converted in their place."""

from __future__ import annotations

from typing import Any

from dy2st import decoding, functions, layers, scattering, static_nn

REWRITTEN: dict[Any, Any] = {
    **layers.REWRITTEN,
    **static_nn.REWRITTEN,
    **decoding.REWRITTEN,
    **functions.REWRITTEN,
    **scattering.REWRITTEN,
}
