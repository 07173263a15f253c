"""The arguments of a call as inputs of a program: their names, tensors and NumPy arrays.

An array enters a program as a tensor on its own memory, so that a program that writes it writes the
caller's array; a small one is copied if the program writes nothing. While gradients are recorded it
is a copy, as `paddle.to_tensor` makes it in eager, because the caller may change the array before
the backward. Where the function gives an array to code that needs its elements (`np.mean(a)`), the
array is a constant of the program, whose elements are compared in every call.
"""

from __future__ import annotations

import ctypes
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from dy2st.state.arrays import made_array
from dy2st.state.containers.constants import is_open
from dy2st.state.ownership import refuse
from dy2st.state.signature import Signature
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor, NoElementType, Tensor, dtype_from
from dy2st.trace.memory import extent, meet
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, TracedInput
from dy2st.trace.undo import CALL, Location
from ir import Program, Size, SourceError, Type
from ir.types import DTYPES

PADDLE_DTYPES = {d.numpy: q for d, q in DTYPE_TO_PADDLE.items() if d.name != "bf16"}
#: bytes that are copied faster than Paddle makes a tensor on the memory of an array
MOST_COPIED = 1 << 16
SUPPORTED = {d.numpy.name for d in DTYPES.values() if d.name != "bf16" and not d.widened}


def array_tensor(array: np.ndarray) -> object:
    """A tensor on the memory of an array, or a copy of one that is not contiguous."""
    return core.eager.Tensor(
        value=np.asarray(array), place=paddle.CPUPlace(), persistable=False, zero_copy=True,
        name=None, stop_gradient=True,
    )  # fmt: skip


def copied_tensor(array: np.ndarray) -> Tensor:
    """Paddle's constructor for arrays takes longer, and never frees some hundred bytes."""
    dtype = PADDLE_DTYPES[array.dtype]
    tensor = core.eager.ops.empty(list(array.shape), dtype, paddle.CPUPlace())
    if array.size:
        source = np.ascontiguousarray(array)
        ctypes.memmove(tensor.data_ptr(), source.ctypes.data, source.nbytes)
    return tensor


def read_tensor(array: np.ndarray) -> object:
    """A tensor for a program that writes no input: a small array is copied."""
    return copied_tensor(array) if array.nbytes <= MOST_COPIED else array_tensor(array)


def number_tensor(n: Any) -> object:
    """A Python number as a 0-d tensor: int64 or float64."""
    dtype = paddle.int64 if type(n) is int else paddle.float64
    return core.eager.ops.full([], n, dtype, paddle.CPUPlace())


def host_tensor(x: Any, dtype: object) -> object:
    """The results of a host call as a tensor."""
    if isinstance(x, np.ndarray):
        return copied_tensor(x)
    return core.eager.ops.full([], x, dtype, paddle.CPUPlace())


def contiguous(tensor: object, pinned: object) -> object:
    """A contiguous copy of an input that is read; `Tensor.contiguous` would change the tensor
    itself. Where the trace of another thread has put its stand-in, the copy of before is used: a
    stand-in is contiguous to its own thread only."""
    return pinned if type(tensor) is FakeTensor else core.eager.ops.assign(tensor)


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


# ---------------------------------------------------------------- tensors and names
def argument_names(function: Callable[..., object], signature: Signature) -> list[str]:
    """The user's name for each leaf: `x`, `states.0`, ..."""
    raw = getattr(function, "__func__", function)
    code: types.CodeType | None = getattr(raw, "__code__", None)
    known = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    if isinstance(function, types.MethodType):
        known = known[1:]
    out = []
    for first, *rest in signature.paths:
        if isinstance(first, int):
            first = known[first] if first < len(known) else f"arg{first}"
        out.append(".".join([first, *map(str, rest)]))
    return out


def check_arrays(
    bound: Sequence[TracedInput], program: Program, trained: bool, leaves: Sequence[Any]
) -> None:
    """An array that is written is written where it lies."""
    written = {target for target, _ in program.writes}
    for i, q in zip(program.inputs, bound):
        if q.leaf is None or i.value not in written:
            continue
        flags = leaves[q.leaf].flags
        if trained or not flags.carray:
            why = "while gradients are recorded" if trained else "that is not contiguous"
            why = why if flags.writeable else "that is read-only"
            raise SourceError(
                f"the argument {q.name}, a NumPy array, is written {why}."
                if trained
                else f"the argument {q.name}, a NumPy array {why}, is written.",
                remedy="Make it a tensor, `paddle.to_tensor(a)`, and write that.",
            )


def add_argument(trace: Trace, tensor: Tensor, name: str, spec: Any) -> FakeTensor:
    try:
        dtype = dtype_from(tensor.dtype)
    except NoElementType as e:
        raise Refused(f"the argument {name} cannot be an input: {e}.") from None
    shape: list[Any] = [int(d) for d in tensor.shape]
    if spec is not None:
        check_spec(tensor, name, spec)
        for axis, d in enumerate(spec.shape):
            if isinstance(d, Size):
                trace.sizes.streamed = True
                trace.sizes.hints |= {
                    name: shape[axis] // d.evaluate({name: 1}) for name in d.names
                }
                shape[axis] = d
            elif d is None or int(d) < 0:
                size = re.sub(r"\W", "_", f"{name}_{axis}")
                trace.sizes.hints[size] = shape[axis]
                shape[axis] = Size.named(size)
    return trace.add_input(tensor, "arg", name, Type(dtype, tuple(shape)))


def check_spec(tensor: Tensor, name: str, spec: Any) -> None:
    fits = len(spec.shape) == len(tensor.shape) and all(
        d is None or isinstance(d, Size) or int(d) < 0 or int(d) == int(n)
        for d, n in zip(spec.shape, tensor.shape)
    )
    if not fits or spec.dtype != tensor.dtype:
        raise Refused(
            f"the argument {name} does not fit its input_spec.",
            reason=f"It is {tensor.dtype}{list(tensor.shape)}, the spec says {spec}.",
            remedy="Pass a tensor that fits the spec, or change the spec.",
        )


def overlap(written: Sequence[bool], tensors: Sequence[object], odd: Sequence[object]) -> bool:
    """Whether one of the tensors that are written shares memory with another one, or with one of
    the others, `odd`."""
    extents = [extent(t) for t in tensors]
    others = [extent(t) for t in odd]
    for k, own in enumerate(extents):
        rest = (*extents[:k], *extents[k + 1 :], *others) if written[k] else ()
        if any(meet(own, e) for e in rest):
            return True
    return False


# ---------------------------------------------------------------- objects
def kept_alive(leaves: Sequence[object]) -> list[object]:
    """The arguments that the cache's key knows by `id`."""
    others = [q for q in leaves if not isinstance(q, (Tensor, np.ndarray))]
    return [q for q in others if not is_open(q)]


def looked_up(place: Location, leaves: Sequence[object]) -> object:
    """Return the object at a place in a call with these leaves."""
    with CALL.of(leaves):
        return place.get()


def passing(call: Callable[..., object], found: object) -> Callable[..., object]:
    """A call, in whose arguments it looks objects up if the trace has `found` some there."""
    if not found:
        return call

    def run(leaves: Sequence[object], _only_check: bool = False) -> object:
        with CALL.of(leaves):
            return call(leaves, _only_check)

    return run
