"""The table of library functions that are converted like user code, with their substitutes.

Paddle's gather and scatter functions look at values of index and mask, and `istft` at those of its
window: they are converted as Paddle
has written them, so that their checks are made when the program runs. Layers that call one Layer
after the other have loops like those of the user.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor
from paddle.nn import Sequential, TransformerDecoder, TransformerEncoder
from paddle.tensor import manipulation

from dy2st.library import decoding, recurrent, static_nn
from dy2st.state.ownership import refuse
from dy2st.state.protocols import CONVERTED

_NAMES = "put_along_axis scatter_add scatter_reduce masked_scatter".split()
_FOUND = [
    getattr(home, name)
    for home in (paddle, paddle.Tensor, manipulation)
    for name in (*_NAMES, *(f"{q}_" for q in _NAMES))
    if hasattr(home, name)
]
_FOUND += [paddle.signal.istft]
_FOUND += [TransformerEncoder.forward, TransformerDecoder.forward]


def sequential(self: Sequential, input: object) -> object:
    """`Sequential.forward`."""
    for layer in self:
        input = layer(input)
    return input


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


def accuracy(
    input: Tensor,
    label: Tensor,
    k: int = 1,
    correct: Tensor | None = None,
    total: Tensor | None = None,
    name: object = None,
) -> Tensor:
    """`paddle.metric.accuracy`: the share of rows whose label is among their k largest."""
    if correct is not None or total is not None:
        raise refuse(
            "paddle.metric.accuracy() with `correct` or `total` in a translated function.",
            "It writes the counts into tensors by a kernel that a program does not have.",
            "Leave these arguments out, and count in the function.",
        )
    found = paddle.topk(input.detach(), k)[1]
    hits = paddle.any(found == paddle.cast(label, "int64").reshape([-1, 1]), -1)
    return paddle.cast(hits, "float32").sum() / hits.shape[0]


def clear_gradients(self: paddle.nn.Layer, set_to_zero: bool = True) -> None:
    """`Layer.clear_gradients`."""
    for p in self.parameters():
        if p.trainable:
            p.clear_gradient(set_to_zero)


def clear_grad(self: paddle.optimizer.Optimizer, set_to_zero: bool = True) -> None:
    """`Optimizer.clear_grad`."""
    grouped = isinstance(self._parameter_list[0], dict)
    groups = [g["params"] for g in self._param_groups] if grouped else [self._parameter_list]
    for group in groups:
        for p in group:
            if not p.stop_gradient:
                p.clear_gradient(set_to_zero)


#: what is converted and called instead of a function, by identity: itself, without decorators (but
#: for those that give operands a second name), or a substitute
REWRITTEN: dict[Callable[..., object], Any] = {
    **recurrent.REWRITTEN,
    **static_nn.REWRITTEN,
    **decoding.REWRITTEN,
    **{f: inspect.unwrap(f) for f in _FOUND},
    **{f: f for f in map(inspect.unwrap, _FOUND)},
    **{f: f for own in (paddle.gcd, paddle.lcm) for f in (own, inspect.unwrap(own))},
    **{f: f for k in CONVERTED for f in vars(k).values() if isinstance(f, types.FunctionType)},
    **{f: f for f in (paddle.incubate.autograd.vjp, paddle.incubate.autograd.jvp)},
    Sequential.forward: sequential,
    paddle.index_fill_: index_fill_,
    paddle.nn.Layer.clear_gradients: clear_gradients,
    paddle.optimizer.Optimizer.clear_grad: clear_grad,
    paddle.metric.accuracy: accuracy,
}
