"""Calling a compiled program: one table of numbers, one native call.

A table and an arena belong to one call at a time; finished calls hand them on, so any number of
threads may call at once.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np

from executor.launches import Failure
from executor.plan import ALIGN, Layout
from ir import Input, Program, Type, Value
from ir.walk import bind_sizes


class Native(Protocol):
    """Compiled code. `run` takes the address of the table and returns 0 or a failure's number."""

    @property
    def run(self) -> object: ...


class Frame:
    """The memory of one call: the table, and an arena of at least `capacity` bytes."""

    def __init__(self, entries: int) -> None:
        self.table = ctypes.create_string_buffer(8 * entries)
        self.address = ctypes.addressof(self.table)
        self.arena = np.empty(0, np.uint8)
        self.capacity = self.base = 0

    def reserve(self, size: int) -> None:
        self.arena = np.empty(size + ALIGN, np.uint8)
        self.base = -(-self.arena.ctypes.data // ALIGN) * ALIGN
        self.capacity = size


class Executable:
    """A compiled program.

    `sizes` are its named sizes, `inputs` and `outputs` what a call takes and gives.
    """

    def __init__(
        self, program: Program, native: Native, layout: Layout, failures: Sequence[Failure]
    ) -> None:
        self.program, self.native, self.layout = program, native, layout
        self.sizes: tuple[str, ...] = program.sizes
        self.inputs: tuple[Input, ...] = program.inputs
        self.outputs: tuple[Type, ...] = tuple(v.type for v in program.outputs)
        self._failures = tuple(failures)
        self._entries = len(self.sizes) + len(self.inputs) + len(self.outputs) + 1
        self._pack = struct.Struct(f"={self._entries}q").pack_into
        self._run = native.run
        self._frames: list[Frame] = []
        self._bytes: dict[tuple[int, ...], int] = {}

    def run(self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on addresses of contiguous row-major buffers; writes go into the inputs.

        An input that is written overlaps no other input, and no output overlaps anything.

        Raises IndexError, ZeroDivisionError or ValueError for bad data; then nothing is written
        back. The interpreter lock is released meanwhile, and several threads may call at once.
        """
        key = tuple(sizes)
        need = self._bytes.get(key)
        if need is None:
            need = self._measure(key)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self._entries)
        if frame.capacity < need:
            frame.reserve(need)
        self._pack(frame.table, 0, *key, *inputs, *outputs, frame.base)
        code = self._run(frame.address)  # type: ignore[operator]
        self._frames.append(frame)
        if code:
            self._fail(code)

    def _measure(self, sizes: tuple[int, ...]) -> int:
        if len(self._bytes) > 4096:
            self._bytes.clear()
        need = self._bytes[sizes] = self.layout.bytes(dict(zip(self.sizes, sizes)))
        return need

    def _fail(self, code: int) -> NoReturn:
        failure = self._failures[code - 1]
        raise failure.kind(failure.text)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run on NumPy arrays; `program.writes` go back into the given arrays.

        Raises ValueError for arrays that do not fit the program, and for an array that is to be
        written but is read-only or not contiguous.
        """
        return call_with_arrays(self, arrays)


class Runnable(Protocol):
    """What `Executable` and the interpreter share."""

    program: Program
    sizes: tuple[str, ...]

    def run(self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> None: ...


def call_with_arrays(executable: Runnable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    program = executable.program
    if len(arrays) != len(program.inputs):
        raise ValueError(f"{program.name} takes {len(program.inputs)} inputs, not {len(arrays)}")
    for i, a in zip(program.inputs, arrays):
        if a.dtype != i.value.type.dtype.numpy:
            raise ValueError(f"{i.name} is {i.value.type}, not of {a.dtype}")
    sizes = bind_sizes(program, [a.shape for a in arrays])
    written = {target for target, _ in program.writes}
    _check_apart(program, arrays, written)
    ready = []
    for i, a in zip(program.inputs, arrays):
        if i.value in written and not (a.flags.c_contiguous and a.flags.writeable):
            raise ValueError(f"{i.name} is written, but the array is read-only or not contiguous")
        ready.append(a if a.flags.c_contiguous else np.ascontiguousarray(a))
    outputs = [np.empty(v.type.concrete(sizes), v.type.dtype.numpy) for v in program.outputs]
    executable.run(
        [sizes[n] for n in executable.sizes],
        [a.ctypes.data for a in ready],
        [a.ctypes.data for a in outputs],
    )
    return outputs


def _check_apart(program: Program, arrays: Sequence[np.ndarray], written: set[Value]) -> None:
    for n, i in enumerate(program.inputs):
        if i.value not in written:
            continue
        for k, other in enumerate(arrays):
            if k != n and np.may_share_memory(arrays[n], other):
                raise ValueError(f"{i.name} is written, but shares memory with input {k}")
