"""Results that are views: the chain of views between a result and its storage, and replaying it.

Paddle's own view calls make the view on the real tensor, so it shares memory exactly as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import paddle

from dy2st.capture.trace import Trace
from ir import Op, Value
from ir.types import evaluate_dim

Recipe: TypeAlias = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


def chain_of(trace: Trace, value: Value, root: Value) -> Recipe | None:
    """The views from `root` to `value`; None when one of them has an index from data."""
    makers = {r: op for op in trace.frames[0].builder.ops if isinstance(op, Op) for r in op.results}
    steps: list[Any] = []
    while value is not root:
        op = makers.get(value)
        if op is None or op.name in ("select", "window"):
            return None
        steps.append((op.name, tuple(sorted(op.attrs.items()))))
        value = op.operands[0]
    return tuple(reversed(steps)) or (("alias", ()),)


def replay(tensor: Any, recipe: Recipe, sizes: Mapping[str, int], stop_gradient: bool) -> Any:
    """The view of a real tensor."""
    with paddle.no_grad() if stop_gradient else paddle.enable_grad():
        for name, attrs in recipe:
            if name == "alias" and not stop_gradient:
                tensor = tensor.view(tensor.shape)
            else:
                tensor = _one(tensor, name, dict(attrs), sizes)
    return tensor


def _one(x: Any, name: str, attrs: dict[str, Any], sizes: Mapping[str, int]) -> Any:
    if name in ("alias", "detach"):
        return x.detach()
    if name == "reshape":
        shape = [evaluate_dim(d, sizes) for d in attrs["shape"]]
        return x.reshape(shape) if list(x.shape) != shape else x.detach()
    if name == "transpose":
        return paddle.transpose(x, list(attrs["perm"]))
    at = (slice(None),) * (attrs["axis"] % len(x.shape))
    if name == "pick":
        picked = (*at, evaluate_dim(attrs["index"], sizes))
        return x[picked]
    start, length = evaluate_dim(attrs["start"], sizes), evaluate_dim(attrs["length"], sizes)
    step = attrs["step"]
    stop: int | None = start + step * length
    stop = None if stop is not None and stop < 0 else stop
    cut = (*at, slice(start, stop, step) if length else slice(0, 0))
    return x[cut]
