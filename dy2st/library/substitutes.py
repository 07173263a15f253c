"""The table of library functions that are converted like user code, with their substitutes."""

from __future__ import annotations

from typing import Any

from dy2st.library import decoding, integer_math, layer_stacks, recurrent, scatter, static_nn
from dy2st.state.containers import queues

REWRITTEN: dict[Any, Any] = {
    **recurrent.REWRITTEN,
    **static_nn.REWRITTEN,
    **decoding.REWRITTEN,
    **integer_math.REWRITTEN,
    **scatter.REWRITTEN,
    **queues.REWRITTEN,
    **layer_stacks.REWRITTEN,
}
