"""Outputs of a program whose inputs require gradients.

Reverse mode is not there yet. A result that would have a gradient in eager gets a node that raises
in `backward`, so that nothing is ever silently without its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from ir import Dy2stError


class _Box:
    """Keeps PyLayer from taking the outputs for inputs."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = tensors


class _NoGradient(PyLayer):
    @staticmethod
    def forward(ctx: Any, box: _Box, *inputs: Any) -> Any:
        return tuple(box.tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Dy2stError(
            "dy2st: backward through a translated function is not there yet. Call the function "
            "under paddle.no_grad(), or train the eager one."
        )


def without_gradient(outputs: list[Any], flags: Sequence[bool], inputs: Sequence[Any]) -> list[Any]:
    """The outputs, those with `flags` False as results of a node that refuses to run backwards."""
    needs = [t for t in inputs if not t.stop_gradient]
    chosen = [k for k, stop in enumerate(flags) if not stop]
    if not chosen:
        return outputs
    if not needs:
        for k in chosen:
            outputs[k].stop_gradient = False
        return outputs
    with paddle.enable_grad():
        new = _NoGradient.apply(_Box([outputs[k] for k in chosen]), *needs)
    out = list(outputs)
    for k, t in zip(chosen, new if isinstance(new, tuple) else (new,)):
        out[k] = t
    return out
