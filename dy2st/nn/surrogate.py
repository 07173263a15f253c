"""Spikes with surrogate gradients: a step forward, the slope of a smooth function backward.

Neftci, Mostafa and Zenke, "Surrogate gradient learning in spiking neural networks", 2019.
"""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from dy2st.library.substitutes import REWRITTEN


class _Sigmoid(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x >= 0).astype(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensor()
        s = paddle.nn.functional.sigmoid(ctx.alpha * x)
        return grad * (ctx.alpha * s * (1 - s))


class _ATan(_Sigmoid):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensor()
        return grad * (ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * x) ** 2))


def sigmoid_spike(x: Tensor, alpha: float = 4.0) -> Tensor:
    """1 where `x` is 0 or more, else 0; the gradient is that of `sigmoid(alpha * x)`.

    Args:
        x: a tensor of floats of any shape, the potential above the threshold.
        alpha: the steepness.

    Example:
        >>> dy2st.nn.sigmoid_spike(paddle.to_tensor([-0.5, 0.0, 2.0])).tolist()
        [0.0, 1.0, 1.0]
    """
    return _Sigmoid.apply(x, alpha)  # type: ignore[no-any-return]


def atan_spike(x: Tensor, alpha: float = 2.0) -> Tensor:
    """1 where `x` is 0 or more, else 0; the gradient is that of `atan(pi / 2 * alpha * x) / pi`.

    Args:
        x: a tensor of floats of any shape, the potential above the threshold.
        alpha: the steepness.
    """
    return _ATan.apply(x, alpha)  # type: ignore[no-any-return]


REWRITTEN.update({f: f for f in (sigmoid_spike, atan_spike)})
