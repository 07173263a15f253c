"""The table of library functions that are converted like user code, with their substitutes."""

from __future__ import annotations

import types
from typing import Any

from dy2st.library import decoding, integer_math, layer_stacks, recurrent, scatter, static_nn
from dy2st.state.protocols import CONVERTED

REWRITTEN: dict[Any, Any] = {
    **recurrent.REWRITTEN,
    **static_nn.REWRITTEN,
    **decoding.REWRITTEN,
    **integer_math.REWRITTEN,
    **scatter.REWRITTEN,
    **{f: f for k in CONVERTED for f in vars(k).values() if isinstance(f, types.FunctionType)},
    **layer_stacks.REWRITTEN,
}
