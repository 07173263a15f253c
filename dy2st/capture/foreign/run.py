"""Calls of foreign ops: Paddle's own kernels, and functions of Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from paddle.base import core

from dy2st.capture.foreign.arguments import flatten, rebuild
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.user_stack import perform
from ir import Op

PythonCall: TypeAlias = Callable[[Op, Sequence[np.ndarray], Mapping[str, int]], "list[np.ndarray]"]
#: calls that Python makes itself, by the name of the call
HOST_CALLS: dict[str, PythonCall] = {}


def function(call: str) -> Callable[..., object]:
    """`Tensor.__getitem__` is a method, `matmul` an entry of `_C_ops`."""
    if call.startswith("Tensor."):
        return getattr(Tensor, call.removeprefix("Tensor."))
    return getattr(core.eager.ops, call)


def arguments(
    literal: Any, tensors: Sequence[Tensor], sizes: Mapping[str, int]
) -> tuple[list[object], dict[str, object]]:
    """The arguments of a call that a literal stands for."""
    positional, keywords = literal
    values = [rebuild(a, tensors, sizes) for a in positional]
    return values, {k: rebuild(a, tensors, sizes) for k, a in keywords}


def run(
    call: str, args: object, tensors: Sequence[Tensor], sizes: Mapping[str, int]
) -> list[Tensor]:
    """Call the kernel; the flat results, then the new values of what it overwrote."""
    values, named = arguments(args, tensors, sizes)
    out = perform(function(call), *values, **named)
    return [t for t in flatten(out) if isinstance(t, Tensor)]


def is_void(tensor: Tensor) -> bool:
    """A result that the kernel did not make; an empty tensor has no storage, yet it is one."""
    if tensor._is_initialized():
        return False
    made = (
        0 in tensor.shape and tensor.data_ptr() is not None
    )  # asking any other for strides aborts
    return not made
