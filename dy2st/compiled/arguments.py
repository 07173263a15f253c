"""NumPy arrays among the arguments of a call: inputs of the program, like tensors.

An array enters a program as a tensor on its own memory, so that a program that writes it writes the
caller's array. While gradients are recorded it is a copy, as `paddle.to_tensor` makes it in eager,
because the caller may change the array before the backward. Where the function gives an array to
code that needs its elements (`np.mean(a)`), the array is a constant of the program, whose elements
are compared in every call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle.base import core

from dy2st.state.arrays import made_array
from dy2st.state.ownership import refuse
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.trace import Trace
from ir.types import DTYPES

SUPPORTED = {d.numpy.name for d in DTYPES.values() if d.name != "bf16" and not d.widened}


def array_tensor(array: np.ndarray) -> Any:
    """A tensor on the memory of an array, or a copy of one that is not contiguous."""
    return core.eager.Tensor(
        value=np.asarray(array), place=paddle.CPUPlace(), persistable=False, zero_copy=True,
        name=None, stop_gradient=True,
    )  # fmt: skip


def copied_tensor(array: np.ndarray) -> Any:
    return core.eager.Tensor(
        value=np.asarray(array), place=paddle.CPUPlace(), persistable=False, zero_copy=False,
        name=None, stop_gradient=True,
    )  # fmt: skip


def is_computable(array: np.ndarray) -> bool:
    """Whether programs have its element type."""
    return array.dtype.name in SUPPORTED and array.dtype.isnative


def check_kind(array: np.ndarray, name: str) -> None:
    if type(array) not in (np.ndarray, np.memmap):
        raise refuse(
            f"the argument {name} is a {type(array).__name__}.",
            "Programs take arrays of numpy.ndarray itself.",
            "Pass `np.asarray(...)` of it.",
        )
    if array.dtype.hasobject:
        raise refuse(
            f"the argument {name} is an array of Python objects.",
            "Whether they have changed cannot be checked.",
            "Pass a list, or an array of numbers.",
        )


def constant_array(trace: Trace, array: np.ndarray, at: int, name: str) -> np.ndarray:
    """A copy that the function cannot write; the program belongs to these elements."""
    guards, key = trace.guards, ("array", at)
    value = np.array(array)
    guards.terms[key] = guards.array_test(f"_L[{at}]", array)
    guards.note(key, f"the elements of {name} have changed")
    value.flags.writeable = False
    return value


def array_argument(trace: Trace, fake: FakeTensor, at: int) -> object:
    """The stand-in for argument `at`, whose tensor has become an input."""
    q = next(q for q in trace.inputs.by_id.values() if q.fake is fake)
    if q.leaf is None:
        q.leaf = at
        q.array = made_array(trace, fake)
    return q.array
