"""Calls of Python from native code: kernels of foreign ops, in program order.

Before a call the code stores in the table where the operands and the results lie, and the sizes
that the op asks for. Memory is used again in every iteration and in every call of a program: what
has been made for it once is kept. Where it is other memory in each iteration, as that of the steps
of a stack, small operands and results are copied, which takes less than making tensors on it.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any, Protocol

import numpy as np

from ir import Op, Type

#: what native code returns when a call has raised
RAISED = -2
#: for so many places of operands and results of an op arrays are kept
MOST_PLACES = 4096
#: so many places are bound before others are copied, if they have no more bytes than this
FEW_PLACES, MOST_COPIED = 8, 1 << 16
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
        self.copies: dict[tuple[int, ...], _Copies] = {}

    @property
    def entries(self) -> int:
        return len(self.types) + len(self.sizes)

    def at(self, entries: tuple[int, ...]) -> Callable[[], None]:
        """Return a function that runs the op on memory at these addresses, with these sizes."""
        found = self.bound.get(entries)
        if found is not None:
            return found
        if len(self.bound) < FEW_PLACES or (copies := self.copied(entries)) is None:
            return self.bind(entries)
        return partial(copies.run, entries)

    def bind(self, entries: tuple[int, ...]) -> Callable[[], None]:
        if len(self.bound) >= MOST_PLACES:
            self.bound.clear()
        sizes = self.sizes_of(entries)
        places = [place(a, t, sizes) for a, t in zip(entries, self.types)]
        self.bound[entries] = run = self.on(places, sizes)
        return run

    def on(self, places: Sequence[HostOperand], sizes: Mapping[str, int]) -> Callable[[], None]:
        count = len(self.op.operands)
        return self.foreign(self.op, places[:count], places[count:], sizes)

    def sizes_of(self, entries: tuple[int, ...]) -> dict[str, int]:
        return dict(zip(self.sizes, entries[len(self.types) :]))

    def copied(self, entries: tuple[int, ...]) -> _Copies | None:
        """The op on memory of its own, of each thread; None for large operands and results."""
        key = (get_ident(), *entries[len(self.types) :])
        if key not in self.copies:
            sizes = self.sizes_of(entries)
            arrays = [np.empty(t.concrete(sizes), t.dtype.numpy) for t in self.types]
            if sum(q.nbytes for q in arrays) > MOST_COPIED:
                return None
            if len(self.copies) >= FEW_PLACES:
                self.copies.clear()
            places = [HostOperand(q.ctypes.data, q) for q in arrays]
            self.copies[key] = _Copies(places, len(self.op.operands), self.on(places, sizes))
        return self.copies[key]


class _Copies:
    """Copies of operands and results: for a call on memory that has not been seen before, and may
    not be seen again, as the steps of a stack have."""

    def __init__(self, places: Sequence[HostOperand], count: int, call: Callable[[], None]) -> None:
        sized = [(k, q.address, q.array.nbytes) for k, q in enumerate(places) if q.array.nbytes]
        self.given = [q for q in sized if q[0] < count]
        self.made = [q for q in sized if q[0] >= count]
        self.places, self.call = places, call

    def run(self, entries: tuple[int, ...]) -> None:
        for k, own, size in self.given:
            ctypes.memmove(own, entries[k], size)
        self.call()
        for k, own, size in self.made:
            ctypes.memmove(entries[k], own, size)


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
