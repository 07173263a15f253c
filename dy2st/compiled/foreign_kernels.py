"""Devices of programs, and the functions that the executor calls for foreign ops.

A program of the GPU takes tensors by their address, and its work is work of Paddle's current stream
if one of them lies there. Its results lie where a tensor of the call does: on the GPU, or on the
host, from where tensors are copied (`executor.gpu.HostCopyWarning`).

Operands of a foreign op are tensors on the program's own memory, made once for memory that is used
again; a result is copied to where the program wants it.
"""

from __future__ import annotations

import ctypes
import functools
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import paddle
from paddle.base import core

import executor
from dy2st.capture.foreign import gradient
from dy2st.capture.foreign.arguments import flatten, reads_numbers
from dy2st.capture.foreign.run import HOST_CALLS, arguments, function, is_void, run
from dy2st.compiled.arguments import array_tensor, copied_tensor
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, Tensor
from dy2st.trace.signals import Refused
from dy2st.trace.user_stack import perform
from executor.allocation import LARGE, prefer_large_pages
from executor.capacity import GrowingExecutable
from executor.gpu.runtime import on_stream
from executor.host_calls import HostOperand
from executor.segmented.interpreter import Interpreted
from ir import Dy2stError, Op, Program, SourceError

Compiled: TypeAlias = executor.Executable | Interpreted | GrowingExecutable


class Placement(NamedTuple):
    """The place of the results of a call, and the stream that its work goes to, if one is asked."""

    place: object
    stream: int | None


HOST = Placement(paddle.CPUPlace(), None)
#: elements of memory that is large, if they are floats
_MANY = LARGE // 4


@dataclass(frozen=True)
class Device:
    """The device of programs: the `name` of a backend, and the precision of products of float32
    there (`executor.compile`)."""

    name: str = "cpu"
    matmul_precision: str | None = None

    @property
    def on_host(self) -> bool:
        return self.name == "cpu"

    def compiled(self, program: Program, donated: Collection[int] = ()) -> Compiled:
        """Raises `Refused` for what the device cannot run."""
        try:
            return executor.compile(
                program, kernel, donated, None, self.name, self.matmul_precision
            )
        except executor.Unsupported as e:
            remedy = 'Translate this function with device="cpu".'
            raise Refused(f"{e.text}.", e.loc, remedy=remedy) from None

    def where(self, tensors: Sequence[Tensor]) -> Placement:
        """Return the placement of a call with these tensors; without any, that of Paddle's new
        tensors."""
        if self.on_host or not (any(map(is_on_gpu, tensors)) if tensors else makes_on_gpu()):
            return HOST
        return Placement(gpu_place(), current_stream())


CPU = Device()


def run_on(run: Callable[..., object], where: Placement, *call: Sequence[int | None]) -> object:
    """`Executable.run`, there."""
    if where.stream is None:
        return run(*call)
    with on_stream(where.stream):
        return run(*call)


def run_with(
    run: Compiled,
    where: Placement,
    sizes: Mapping[str, int],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Run on tensors that lie there, and are contiguous."""
    run_on(
        run.run,
        where,
        tuple(sizes[n] for n in run.sizes),
        tuple(t.data_ptr() or 0 for t in inputs),
        tuple(t.data_ptr() or 0 for t in outputs),
    )


def empty(shape: list[int], dtype: object, place: object) -> Tensor:
    """Memory for a result."""
    made = core.eager.ops.empty(shape, dtype, place)
    count = prod(shape)  # Paddle takes longer to count them than most programs run
    if count >= _MANY and place is HOST.place:
        prefer_large_pages(made.data_ptr(), count * made.element_size())
    return made


# ---------------------------------------------------------------- the Python of a call
@functools.lru_cache(maxsize=512)
def code_of(source: str) -> types.CodeType:
    """Models of one class, and one function for several shapes, often have the same text."""
    return compile(source, "<dy2st call>", "exec")


def tuple_text(parts: Iterable[str]) -> str:
    return "".join(f"{p}, " for p in parts)


def addresses_text(tensors: Iterable[str]) -> str:
    return "".join(f"{t}.data_ptr() or 0, " for t in tensors)


def shape_text(shape: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def allocator(shape: Sequence[object]) -> Callable[..., Tensor]:
    """`empty` for tensors of this shape, of which it need not ask how large they are."""
    known = [d for d in shape if isinstance(d, int)]
    small = len(known) == len(shape) and prod(known) < _MANY
    return core.eager.ops.empty if small else empty  # type: ignore[no-any-return]


# ---------------------------------------------------------------- Paddle on a GPU
def has_gpus() -> bool:
    """Whether a tensor of this build of Paddle may lie on one."""
    return bool(paddle.is_compiled_with_cuda())


def require_host(tensors: Sequence[Tensor], names: Sequence[str]) -> None:
    """Raises SourceError for a tensor on the GPU, which code of the CPU cannot read."""
    for tensor, name in zip(tensors, names):
        if is_on_gpu(tensor):
            raise SourceError(
                f"{name} lies on the GPU, and this function is translated for the CPU.",
                remedy='Translate it with `to_static(..., device="gpu")`, or move its tensors and '
                "parameters to the host (`x.cpu()`).",
            )


def is_on_gpu(tensor: Tensor) -> bool:
    return bool(tensor.place.is_gpu_place())


def makes_on_gpu() -> bool:
    """Whether Paddle makes new tensors there."""
    return isinstance(paddle.framework._current_expected_place_(), core.CUDAPlace)


@cache
def gpu_place() -> object:
    """Return Paddle's place of the GPU that programs run on."""
    return paddle.CUDAPlace(0)


def current_stream() -> int:
    """Its handle; 0 is the stream without one."""
    raw = getattr(paddle.base.libpaddle, "_get_current_raw_stream", None)
    if raw is not None:
        return int(raw(0))
    return int(paddle.device.current_stream(gpu_place()).stream_base.cuda_stream)


# ---------------------------------------------------------------- foreign ops


def kernel(
    op: Op,
    operands: Sequence[HostOperand],
    results: Sequence[HostOperand],
    sizes: Mapping[str, int],
) -> Callable[[], None]:
    """Return a function that runs a foreign op on memory of a program
    (`executor.host_calls.Foreign`)."""
    call = op.attrs["call"]
    if call in HOST_CALLS:
        return partial(python_call, op, operands, results, sizes)
    tensors, made = [tensor_on(q.array) for q in operands], ForeignResults(op, results)
    if call.startswith(gradient.PREFIX):
        literal, _, written, *_ = op.attrs["args"]
        if written or reads_numbers(literal):
            return lambda: made.fill(gradient.run_backward(run, op, tensors, sizes))
        return gradient.backward_on(op, tensors, sizes, made.fill)
    writes, literal = op.attrs["writes"], op.attrs["args"]
    if writes or reads_numbers(literal):
        return lambda: made.fill(overwriting(op, tensors, sizes))
    args, kwargs = arguments(literal, tensors, sizes)
    given = set(map(id, tensors))
    return lambda: made.fill(fresh(perform(function(call), *args, **kwargs), given))


def tensor_on(array: np.ndarray) -> Tensor:
    return array_tensor(array) if array.size else copied_tensor(array)


def python_call(
    op: Op,
    operands: Sequence[HostOperand],
    results: Sequence[HostOperand],
    sizes: Mapping[str, int],
) -> None:
    """The function gets copies, which it may keep."""
    made = HOST_CALLS[op.attrs["call"]](op, [q.array.copy() for q in operands], sizes)
    for array, place in zip(made, results, strict=True):
        place.array[...] = array


def overwriting(op: Op, tensors: Sequence[Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """The new results, then the operands that the kernel has overwritten, copies of those that the
    program has."""
    writes = op.attrs["writes"]
    own = [t.clone() if k in writes else t for k, t in enumerate(tensors)]
    out = run(op.attrs["call"], op.attrs["args"], own, sizes)
    return [*fresh(out, set(map(id, own))), *(own[k] for k in writes)]


def fresh(out: object, given: Collection[int]) -> list[Tensor]:
    """The tensors that a kernel has made."""
    tensors = (t for t in flatten(out) if isinstance(t, Tensor))
    return [t for t in tensors if id(t) not in given and not is_void(t)]


class ForeignResults:
    """The memory of the results of a foreign op, and what Paddle's kernel must give for it."""

    def __init__(self, op: Op, places: Sequence[HostOperand]) -> None:
        self.op = op
        self.dtypes = [DTYPE_TO_PADDLE[r.type.dtype] for r in op.results]
        self.shapes = [list(q.array.shape) for q in places]
        self.places = [(q, q.address, q.array.nbytes) for q in places]

    def fill(self, found: Sequence[Tensor]) -> None:
        """Raises Dy2stError when the kernel gives other types than the stand-ins did."""
        if [t.dtype for t in found] != self.dtypes or [t.shape for t in found] != self.shapes:
            have, want = [(t.dtype, t.shape) for t in found], list(zip(self.dtypes, self.shapes))
            name, loc = self.op.attrs["call"], self.op.loc
            raise Dy2stError(f"{name} gave {have}, its stand-in {want} ({loc})")
        for tensor, (place, address, size) in zip(found, self.places):
            if size and tensor.is_contiguous():
                ctypes.memmove(address, tensor.data_ptr(), size)
            elif size:
                place.array[...] = tensor.numpy()
