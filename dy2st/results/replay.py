"""Replay of the chain of views from a storage to a result that is a view.

Paddle's own view calls make the view on the real tensor, so it shares memory exactly as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.memory import Recipe
from ir import Size
from ir.opdef import view_rule
from ir.types import evaluate_dim


def replay(
    tensor: Tensor,
    recipe: Recipe,
    sizes: Mapping[str, int],
    stop_gradient: bool,
    outputs: Sequence[object] = (),
) -> object:
    """The view of a real tensor; `outputs` are those of the program."""
    with paddle.no_grad() if stop_gradient else paddle.enable_grad():
        for name, attrs in recipe:
            if name == "alias" and not stop_gradient:
                tensor = again(tensor)
            elif name == "alias":
                tensor = tensor.detach()
            else:
                tensor = _one(tensor, name, dict(attrs), sizes, outputs)
    return tensor


def again(x: Any) -> object:
    """Another object on the storage, through which gradients pass; `view` refuses empty ones."""
    return x[...] if 0 in x.shape else x.view(x.shape)


def _one(
    x: object, name: str, attrs: dict[str, Any], sizes: Mapping[str, int], outputs: Sequence[object]
) -> object:
    """One view, as its row writes it in Python; an index from data is an output."""
    at = [outputs[attrs.pop("output")].item()] if "output" in attrs else []
    known = {k: _concrete(q, sizes) for k, q in attrs.items()}
    return view_rule(name).python(_Real(x), *at, **known)


def _concrete(q: object, sizes: Mapping[str, int]) -> object:
    if isinstance(q, (tuple, list)):
        return [_concrete(d, sizes) for d in q]
    return evaluate_dim(q, sizes) if isinstance(q, Size) else q


class _Real:
    """A real tensor, where views are always views and offsets are counted in its elements."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, at: object) -> Any:
        return self.tensor[at]

    def __getattr__(self, method: str) -> Any:
        return getattr(self.tensor, method)

    def reshape(self, shape: Sequence[int]) -> Any:
        x = self.tensor
        if not x.shape and shape:
            return x.unsqueeze(list(range(len(shape))))
        if list(x.shape) != shape:
            return x.reshape(shape)
        return again(x) if paddle.is_grad_enabled() else x.detach()

    def as_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> object:
        """Paddle counts offsets in bytes from the beginning of the memory."""
        x = self.tensor
        (unit,) = x.strides
        begin = x.offset + offset * unit * x.element_size()
        return paddle.as_strided(x, list(shape), [s * unit for s in strides], begin)
