"""Running foreign ops: Paddle's own kernel, called when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import paddle
from paddle.base import core

from dy2st.capture.foreign import gradient
from dy2st.capture.foreign.arguments import flatten, rebuild
from dy2st.trace.fake_tensor import Tensor
from ir import Dy2stError, Op

HostCall: TypeAlias = Callable[[Op, Sequence[np.ndarray], Mapping[str, int]], "list[np.ndarray]"]
#: calls that Python makes itself, by the name of the call
HOST_CALLS: dict[str, HostCall] = {}


def function(call: str) -> Callable[..., Any]:
    """`Tensor.__getitem__` is a method, `matmul` an entry of `_C_ops`."""
    if call.startswith("Tensor."):
        return getattr(Tensor, call.removeprefix("Tensor."))
    return getattr(core.eager.ops, call)


def run(call: str, args: Any, tensors: Sequence[Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """Call the kernel; the flat results, then the new values of what it overwrote."""
    positional, keywords = args
    values = [rebuild(a, tensors, sizes) for a in positional]
    named = {k: rebuild(a, tensors, sizes) for k, a in keywords}
    out = function(call)(*values, **named)
    return [t for t in flatten(out) if isinstance(t, Tensor)]


def is_void(tensor: Tensor) -> bool:
    """A result that the kernel did not make; an empty tensor has no storage, yet it is one."""
    return not tensor._is_initialized() and 0 not in tensor.shape


# ---------------------------------------------------------------- running
def handler(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """What the executor calls for a foreign op: NumPy in, NumPy out.

    Raises Dy2stError when Paddle's kernel gives other types than the stand-ins did.
    """
    if op.attrs["call"] in HOST_CALLS:
        return HOST_CALLS[op.attrs["call"]](op, arrays, sizes)
    with paddle.no_grad():
        tensors = [paddle.to_tensor(np.ascontiguousarray(a).reshape(a.shape)) for a in arrays]
        if op.attrs["call"].startswith(gradient.PREFIX):
            return [t.numpy() for t in gradient.run_backward(run, op, tensors, sizes)]
        inputs = {id(t) for t in tensors}
        out = run(op.attrs["call"], op.attrs["args"], tensors, sizes)
        fresh = [t for t in out if id(t) not in inputs and not is_void(t)]
        fresh += [tensors[k] for k in op.attrs["writes"]]
    results = [t.numpy() for t in fresh]
    want = [(r.type.dtype.numpy, r.type.concrete(sizes)) for r in op.results]
    have = [(a.dtype, a.shape) for a in results]
    if want != have:
        raise Dy2stError(f"{op.attrs['call']} gave {have}, its stand-in {want} ({op.loc})")
    return results
