"""Calls that belong to whole training steps, which are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from dy2st.trace.fake_tensor import refuse_training


def _refused(f: Any, name: str) -> Callable[..., object]:
    def call(*args: object, **kwargs: object) -> object:
        raise refuse_training(name)

    return call


TRAINING_STEPS: dict[int, Any] = {
    id(f): _refused(f, name)
    for f, name in (
        (paddle.grad, "paddle.grad()"),
        (paddle.autograd.backward, "paddle.autograd.backward()"),
        (paddle.autograd.jacobian, "paddle.autograd.jacobian()"),
        (paddle.autograd.hessian, "paddle.autograd.hessian()"),
        (paddle.incubate.autograd.vjp, "paddle.incubate.autograd.vjp()"),
        (paddle.incubate.autograd.jvp, "paddle.incubate.autograd.jvp()"),
    )
}
