"""Paddle functions whose own Python branches on data: they are converted like user code.

A function whose source cannot become a program is written again here; it makes the same writes.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor
from paddle.nn import functional as F


def gcd_(x: Tensor, y: Tensor, name: object = None) -> object:
    """Without rebinding x, which the loop overwrites."""
    shape = paddle.broadcast_shape(x.shape, y.shape)
    if list(shape) != list(x.shape):
        raise ValueError(f"The result has the shape {shape}, x, which it overwrites, {x.shape}.")
    y = paddle.abs(paddle.broadcast_to(y, shape))
    paddle.abs_(x)
    while paddle.any(y != 0):
        done = y == 0
        divisor = paddle.where(done, paddle.ones(y.shape, y.dtype), y)
        rest = paddle.where(done, paddle.zeros(y.shape, y.dtype), paddle.mod(x, divisor))
        paddle.where_(done, x, y)
        y = paddle.where(x < rest, x, rest)
        paddle.where_(x >= rest, x, rest)
    return x


def embedding_renorm_(x: object, weight: Tensor, max_norm: float, norm_type: float = 2.0) -> object:
    """All rows are written, those that `x` does not name as they are."""
    with paddle.no_grad():
        ids = paddle.flatten(x)
        named = paddle.zeros([weight.shape[0]], weight.dtype)
        named = paddle.scatter(named, ids, paddle.ones(ids.shape, weight.dtype)) > 0
        powers = paddle.abs(weight) ** norm_type
        norm = paddle.sum(powers, axis=1, keepdim=True) ** (1 / norm_type)
        far = paddle.logical_and(paddle.unsqueeze(named, 1), norm > max_norm)
        scale = paddle.where(far, max_norm / (norm + 1e-7), paddle.ones_like(norm))
        return weight.multiply_(scale)


def index_fill_(x: Tensor, index: Tensor, axis: int, value: Tensor, name: object = None) -> object:
    """Through a transposed view, where Paddle transposes x in place, and back."""
    if index.size == 0:
        return x
    perm = list(range(len(x.shape)))
    perm[0], perm[axis] = perm[axis], perm[0]
    if x.stop_gradient or not paddle.is_grad_enabled():
        paddle.transpose(x, perm).index_put_((index,), paddle.to_tensor(value, dtype=x.dtype))
    else:
        paddle.assign(paddle.index_fill(x, index, axis, value), x)
    return x


_OWN = (paddle.gcd, paddle.gcd_, paddle.lcm, paddle.lcm_)
REWRITTEN: dict[Any, Any] = {
    **{f: f for own in _OWN for f in (own, own.__wrapped__)},
    paddle.gcd_.__wrapped__: gcd_,
    gcd_: gcd_,
    F.embedding_renorm_: embedding_renorm_,
    paddle.index_fill_: index_fill_,
}
