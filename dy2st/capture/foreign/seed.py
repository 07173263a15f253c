"""`paddle.seed` in a program: a foreign op that sets the generator when the program runs, in order.

Every op that draws random numbers is a foreign op, too, so that draws after it are those of eager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.capture.foreign.run import HOST_CALLS
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.item import number
from dy2st.trace.scalar import is_runtime, is_runtime_scalar
from dy2st.trace.trace import current
from ir import Op


def seed(seed: Any) -> object:
    """`paddle.seed` in converted code. Returns the generator, as Paddle does."""
    trace = current()
    if trace is None:
        return paddle.seed(seed)
    if isinstance(seed, Tensor):
        seed = number(trace, lift(trace, seed), "the argument of seed()")
    operands = []
    if is_runtime(seed):
        operands = [seed.value if is_runtime_scalar(seed) else trace.index_value(seed)]
    args = () if operands else (int(seed),)
    trace.emit("foreign", operands, {"call": "seed", "args": args, "types": (), "writes": ()})
    trace.frame.notes.append(("foreign", trace.where(), "seed"))
    return paddle.framework.core.default_cpu_generator()


def run(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    paddle.seed(int(arrays[0]) if arrays else op.attrs["args"][0])
    return []


HOST_CALLS["seed"] = run
