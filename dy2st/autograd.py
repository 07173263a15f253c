"""A translated call in Paddle's graph: native nodes, and hooks that run the backward program.

    asked inputs -> view -> one element each --concat--> token -> results
                    hook:                       hook:              hook:
                    its gradient                run backward       note what arrived

The elements carry no values that matter: hooks replace every gradient that passes. Paddle's engine
does the rest: order, accumulation, hooks of the user, `paddle.grad`, the error of a second backward
through a graph that was not retained. (A `PyLayer` cannot stand here: Paddle 3.3 crashes when its
node runs twice, also with retain_graph.)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import paddle
from paddle.base import core

from dy2st.gradient import Training
from ir import Dy2stError

ops: Any = core.eager.ops
_ZERO: dict[Any, Any] = {}


class Node:
    """One call. It lives as long as its results do."""

    def __init__(self, training: Training, inputs: Sequence[Any]) -> None:
        self.training = training
        self.arrived: dict[int, Any] = {}
        self.gradients: list[Any] = []
        self.kept: Kept | None = None
        pieces = [self.piece(k, inputs[i]) for k, i in enumerate(training.wrt)]
        joined = ops.concat(pieces, 0)
        joined._register_grad_hook(self.run)
        self.tokens: dict[Any, Any] = {paddle.float32: ops.slice(joined, [0], [0], [1], [1], [0])}

    def piece(self, k: int, tensor: Any) -> Any:
        """One element of an input: behind a view whose hook gives the gradient."""
        flat = ops.reshape(tensor, [-1])
        flat._register_grad_hook(lambda g: self.gradient(k))
        one = ops.slice(flat, [0], [0], [1], [1], [])
        if flat.shape[0] == 0:
            one = ops.reshape(paddle.sum(flat), [1])
        return one if one.dtype == paddle.float32 else ops.cast(one, paddle.float32)

    def result(self, k: int, shape: Sequence[int], dtype: Any) -> Any:
        """Memory for output k of those with a gradient."""
        token = self.tokens.get(dtype)
        if token is None:
            token = self.tokens[dtype] = ops.cast(self.tokens[paddle.float32], dtype)
        made = ops.expand(token, shape)
        zero = _ZERO.get(dtype)
        if zero is None:
            with paddle.no_grad():
                zero = _ZERO[dtype] = paddle.zeros([], dtype)

        def hook(g: Any) -> Any:
            self.arrived[k] = g
            return zero

        made._register_grad_hook(hook)
        return ops.reshape(made, shape)

    def filled(self, k: int, source: Any) -> Any:
        """As `result`, with the values of a tensor."""
        made = self.result(k, source.shape, source.dtype)
        with paddle.no_grad():
            made.copy_(source, True)
        return made

    def close(
        self, inputs: Sequence[Any], outputs: Sequence[Any], sizes: Mapping[str, int]
    ) -> None:
        """The program has run: attach what it has written, and keep what backward will read."""
        for i, k in self.training.attached:
            paddle.assign(outputs[k], output=inputs[i])
        self.kept = Kept(self.training, inputs, outputs, sizes)
        self.tokens.clear()

    # ------------------------------------------------------------ backwards
    def run(self, g: Any) -> None:
        """All gradients of the results have arrived."""
        asked = caller()
        arrived, self.arrived = self.arrived, {}
        if asked.get("create_graph"):
            raise Dy2stError(
                "dy2st: create_graph=True through a translated function: gradients of gradients "
                "are not there yet. Use the eager function for them."
            )
        if self.kept is None:
            raise Dy2stError("dy2st: backward twice through a graph that was not retained")
        kept = self.kept
        kept.check()
        if not asked.get("retain_graph", True):
            self.kept = None
        self.gradients = self.training.backward(arrived, kept.residuals, kept.sizes)

    def gradient(self, k: int) -> Any:
        found, self.gradients[k] = self.gradients[k], None
        return found


def caller() -> Mapping[str, Any]:
    """The arguments of Paddle's function that runs backward."""
    frame = sys._getframe(1)
    for _ in range(8):
        if "retain_graph" in frame.f_code.co_varnames:
            return frame.f_locals
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}


class Kept:
    """What the backward program reads, with the versions that it must still have.

    Tensors that the user sees are kept detached: a result must not keep its own graph alive.
    """

    def __init__(
        self,
        training: Training,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        sizes: Mapping[str, int],
    ) -> None:
        self.sizes = sizes
        self.residuals: list[Any] = []
        self.versions: list[tuple[Any, int, str]] = []
        for r in training.gradient.residuals:
            own = r.source == "kept"
            tensor = (outputs if own or r.source == "output" else inputs)[r.index]
            if not own:
                tensor = tensor if tensor.is_leaf and r.source == "input" else tensor.detach()
                self.versions.append((tensor, tensor.inplace_version, r.name))
            self.residuals.append(tensor)

    def check(self) -> None:
        for tensor, version, name in self.versions:
            if tensor.inplace_version != version:
                raise RuntimeError(
                    f"{name}, which is needed for the gradient computation, has been modified by "
                    f"an inplace operation. Its version is {tensor.inplace_version} but the "
                    f"expected version is {version}. Do not write to it between forward and "
                    "backward, or pass a clone."
                )


__all__ = ["Kept", "Node"]
