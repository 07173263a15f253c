"""Calls of Python from native code: kernels of foreign ops, in program order.

Before a call the code stores in the table where the operands and the results lie, and the sizes
that the op asks for. Memory is used again in every iteration and in every call of a program: what
has been made for it once is kept.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ir import Op, Type

#: what native code returns when a call has raised
RAISED = -2
#: for so many places of operands and results of an op arrays are kept
MOST_PLACES = 4096
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, eq=False)
class HostOperand:
    """Contiguous memory of a call: its address, and an array on it."""

    address: int
    array: np.ndarray


class Foreign(Protocol):
    """Runs the ops named `foreign`."""

    def __call__(
        self,
        op: Op,
        operands: Sequence[HostOperand],
        results: Sequence[HostOperand],
        sizes: Mapping[str, int],
    ) -> Callable[[], None]:
        """A function that runs the op on this memory: it reads the operands as they are then,
        changes none of them, and fills the results. There is no memory where there are no elements.
        """
        ...


class HostCall:
    """A foreign op, and what runs it, by the places of operands and results and by the sizes."""

    def __init__(self, op: Op, sizes: Sequence[str], foreign: Foreign) -> None:
        self.op, self.sizes, self.foreign = op, tuple(sizes), foreign
        self.types = (*(v.type for v in op.operands), *(v.type for v in op.results))
        self.unpack = struct.Struct(f"={self.entries}q").unpack_from
        self.bound: dict[tuple[int, ...], Callable[[], None]] = {}

    @property
    def entries(self) -> int:
        return len(self.types) + len(self.sizes)

    def at(self, entries: tuple[int, ...]) -> Callable[[], None]:
        """Return a function that runs the op on memory at these addresses, with these sizes."""
        found = self.bound.get(entries)
        return self.bind(entries) if found is None else found

    def bind(self, entries: tuple[int, ...]) -> Callable[[], None]:
        sizes = dict(zip(self.sizes, entries[len(self.types) :]))
        places = [place(a, t, sizes) for a, t in zip(entries, self.types)]
        count = len(self.op.operands)
        if len(self.bound) >= MOST_PLACES:
            self.bound.clear()
        run = self.foreign(self.op, places[:count], places[count:], sizes)
        self.bound[entries] = run
        return run


def place(address: int, t: Type, sizes: Mapping[str, int]) -> HostOperand:
    """The memory of a tensor of type `t` at an address, which is not copied."""
    shape = t.concrete(sizes)
    count = math.prod(shape)
    if count == 0:
        return HostOperand(address, np.empty(shape, t.dtype.numpy))
    memory = (ctypes.c_uint8 * (count * t.dtype.size)).from_address(address)
    array: np.ndarray = np.frombuffer(memory, t.dtype.numpy)  # type: ignore[call-overload]
    return HostOperand(address, array.reshape(shape))


class HostCalls:
    """The calls of one frame: `address` is that of the function that native code calls."""

    def __init__(self, calls: Sequence[HostCall], table: Any, at: int) -> None:
        self.calls, self.table, self.at = calls, table, at
        self.error: BaseException | None = None
        self.function = FUNCTION(self.call)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value

    def call(self, number: int) -> int:
        try:
            call = self.calls[number]
            call.at(call.unpack(self.table, self.at))()
        except BaseException as e:
            self.error = e
            return 1
        return 0

    def raised(self) -> BaseException:
        error, self.error = self.error, None
        assert error is not None
        return error
