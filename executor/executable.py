"""The executable: the call of a compiled program, with one table of numbers and one native call.

A table and an arena belong to one call at a time; finished calls hand them on, so any number of
threads may call at once.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np

from executor import interrupt
from executor.allocation import HOST, Memory, MemoryBlock
from executor.host_calls import RAISED, HostCall, HostCalls
from executor.launches import CODE_BITS, Copy, Failure
from executor.plan.arena import ArenaLayout
from executor.plan.trip_counts import all_ranges, asks, counts
from ir import Input, Program, Require, Slot, Type, Value
from ir.analysis.overflow import extents, too_large
from ir.analysis.ranges import natural_bound
from ir.interpreter import bind_sizes
from ir.loc import acts_for_user
from ir.rewrite import expand_composites
from ir.types import Dim, Size, evaluate_dim, product
from ir.uses import dim_names, walk


@dataclass(frozen=True)
class CallTable:
    """The offsets of the i64 entries in a call's table: named sizes, addresses of the inputs, of
    the outputs and of the arena, then room for the counts of the outermost loops, which the code
    stores, for what `interrupt` says, for the values in the message of an error (a number, or the
    address, dims and strides of a tensor with axes), and for calls of Python: the address of a
    function, and what a call takes."""

    inputs: int
    outputs: int
    arena: int
    counts: int
    asks: int
    shown: int
    calls: int

    @staticmethod
    def of(program: Program) -> CallTable:
        inputs = len(program.sizes)
        outputs = inputs + len(program.inputs)
        arena = outputs + len(program.outputs)
        found = len(counts(program.ops))
        asks = arena + 1 + found
        shown = asks + interrupt.ENTRIES
        checks = [q.operands[1:] for q in walk(program.ops) if q.name == "check"]
        most = max((sum(1 + 2 * v.type.ndim for v in q) for q in checks), default=0)
        return CallTable(inputs, outputs, arena, arena + 1, asks, shown, shown + most)


class NativeProgram(Protocol):
    """Compiled code. `run` takes the address of a `CallTable` and returns 0 or a failure's
    number."""

    @property
    def run(self) -> Callable[[int], int]: ...

    @property
    def report(self) -> str:
        """A readable description of the execution; may be empty."""
        ...


class CallFrame:
    """The memory of one call: the table, and an arena of at least `capacity` bytes.

    `asks`: where the table has the entries of `interrupt`, if it has them. `calls`: of Python.
    """

    def __init__(self, at: CallTable, asks: int | None, calls: Sequence[HostCall]) -> None:
        most = max((c.entries for c in calls), default=0)
        self.table = ctypes.create_string_buffer(8 * (at.calls + 1 + most))
        if asks is not None:
            interrupt.prepare(self.table, 8 * asks)
        if calls:
            self.calls = HostCalls(calls, self.table, 8 * (at.calls + 1))
            struct.pack_into("=q", self.table, 8 * at.calls, self.calls.address)
        self.address = ctypes.addressof(self.table)
        self.arena: MemoryBlock | None = None
        self.capacity = self.base = 0

    def reserve(self, size: int, memory: Memory) -> None:
        self.arena = memory.allocate(size)
        self.base, self.capacity = self.arena.address, size


@dataclass(frozen=True)
class CallResults:
    """Sizes and outputs that only a run determines: how often each of `counts` loops ran, by name,
    and the `arrays` of those outputs that the caller could not allocate, by number."""

    counts: dict[str, int]
    arrays: dict[int, np.ndarray] = field(default_factory=dict)


class Executable:
    """A compiled program.

    `sizes` are its named sizes, `inputs` and `outputs` the types of a call. `counts` are
    the sizes that a call finds: how often the `while` loops of the outermost block ran. An output
    whose type names one of them has memory for the most elements that it can have (`bounds`); its
    elements come first, row-major. `copies` are those that the plan could not avoid,
    `donated` the numbers of inputs that a call may overwrite.
    """

    def __init__(
        self,
        program: Program,
        native: NativeProgram,
        layout: ArenaLayout,
        failures: Sequence[Failure],
        copies: Sequence[Copy] = (),
        donated: Collection[int] = (),
        memory: Memory = HOST,
        requires: Sequence[Require] = (),
        calls: Sequence[HostCall] = (),
    ) -> None:
        self.program, self.native, self.layout, self.memory = program, native, layout, memory
        self.copies: tuple[Copy, ...] = tuple(copies)
        self.donated = frozenset(donated)
        self.sizes: tuple[str, ...] = program.sizes
        self.inputs: tuple[Input, ...] = program.inputs
        self.outputs: tuple[Type, ...] = tuple(v.type for v in program.outputs)
        self.counts: tuple[str, ...] = counts(program.ops)
        self._bounds = output_bounds(program)
        self._failures, self._requires = tuple(failures), tuple(requires)
        self._extents = extents(program, most_of_each(program))
        if too_large(tuple(d for d in self._extents if isinstance(d, int)), {}):
            raise MemoryError(f"{program.name} has a tensor that no memory can hold")
        self._table, self._calls = CallTable.of(program), tuple(calls)
        self._entries = self._table.counts
        self._asks = (
            self._table.asks if asks(expand_composites(program).ops, program.capacities) else None
        )
        self._counted = struct.Struct(f"={len(self.counts)}q").unpack_from
        self._pack = struct.Struct(f"={self._entries}q").pack_into
        self._run = native.run
        self._frames: list[CallFrame] = []
        self._bytes: dict[tuple[int, ...], int] = {}

    @property
    def report(self) -> str:
        return self.native.report

    def bounds(self, sizes: Sequence[int]) -> list[int | None]:
        """Return the number of elements to allocate for each output; None for `Interpreted`
        only."""
        named = dict(zip(self.sizes, sizes))
        self._need(tuple(sizes))
        return [None if d is None else max(0, evaluate_dim(d, named)) for d in self._bounds]

    def run(
        self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int | None]
    ) -> CallResults | None:
        """Run on addresses of contiguous row-major buffers; writes go into the inputs.

        An input that is written or donated overlaps no other input, and no output overlaps
        anything.
        Returns None if the program has no `counts`, which is what most have.

        Raises IndexError, ZeroDivisionError or ValueError for bad data or sizes that the program
        does not take, MemoryError for sizes that no memory can hold, what a `check` names, and
        what a foreign kernel raises; then nothing is written back. Ctrl-C stops a long loop, which
        may have written then. The interpreter lock is released meanwhile, and several threads may
        call at once.
        """
        key = tuple(sizes)
        need = self._bytes.get(key)
        if need is None:
            need = self._need(key)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = CallFrame(self._table, self._asks, self._calls)
        if frame.capacity < need:
            frame.reserve(need, self.memory)
        self._pack(frame.table, 0, *key, *inputs, *outputs, frame.base)
        code = self._run(frame.address)
        if code:
            self._fail(code, frame)
        found = None
        if self.counts:
            values = self._counted(frame.table, 8 * self._entries)
            found = CallResults(dict(zip(self.counts, values)))
        self._frames.append(frame)
        return found

    def _need(self, sizes: tuple[int, ...]) -> int:
        """The bytes of the arena, found once for the sizes of a call, which are checked then."""
        if sizes in self._bytes:
            return self._bytes[sizes]
        named = dict(zip(self.sizes, sizes))
        if too_large(self._extents, named):
            raise MemoryError(f"{self.program.name}: a tensor is too large for {named}")
        for r in self._requires:
            if not r.holds(named):
                raise ValueError(f"{r} does not hold ({r.reason}, {r.loc}) for {named}")
        if len(self._bytes) > 4096:
            self._bytes.clear()
        need = self._bytes[sizes] = self.layout.bytes(named)
        return need

    @acts_for_user
    def _fail(self, code: int, frame: CallFrame) -> NoReturn:
        if code == interrupt.INTERRUPTED and self._asks is not None:
            interrupt.raise_from(frame.table, 8 * self._asks)
        if code == RAISED:
            self._frames.append(frame)
            raise frame.calls.raised()
        failure = self._failures[(code & ((1 << CODE_BITS) - 1)) - 1]
        values = shown(failure, frame.address + 8 * self._table.shown)
        error = failure.error(code >> CODE_BITS, values)
        self._frames.append(frame)
        raise error

    def __call__(self, *arrays: Any, make: Make | None = None) -> list[Any]:
        """Run on NumPy arrays, or those of a device; `program.writes` go back into the given
        arrays.

        The results have the shapes that they turned out to have. They lie where `make` makes them,
        else on the device if an array does.

        Raises ValueError for arrays that do not fit the program, and for an array that is to be
        written but is read-only or not contiguous.
        """
        return call_with_arrays(self, arrays, make)


def shown(failure: Failure, at: int) -> list[np.ndarray]:
    """The values in the message of a failure, of which the table tells from `at` on; tensors with
    axes are where they lie."""
    found = []
    for _, t in failure.shown:
        address, *lie = (ctypes.c_int64 * (1 + 2 * t.ndim)).from_address(at)
        where = address if t.ndim else at
        found.append(array_at(where, t.dtype.numpy, lie[: t.ndim], lie[t.ndim :]))
        at += 8 * (1 + 2 * t.ndim)
    return found


def array_at(
    address: int, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int]
) -> np.ndarray:
    """The array that lies there; the strides count elements."""
    if 0 in shape:
        return np.empty(shape, dtype)
    steps = [(n - 1) * s for n, s in zip(shape, strides)]
    low, high = sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)
    size = dtype.itemsize
    memory: Any = (ctypes.c_char * (size * (high - low + 1))).from_address(address + size * low)
    found: np.ndarray = np.ndarray(shape, dtype, memory, -low * size, [size * s for s in strides])
    return found


def most_of_each(program: Program) -> dict[str, Dim | None]:
    """The largest value of each size that a loop defines."""
    ranges = all_ranges(walk(program.ops))
    return {name: natural_bound(Size.named(name), ranges.get) for name in ranges}


def output_bounds(program: Program) -> list[Dim | None]:
    """For every output how many elements it has at most; None where nothing says."""
    ranges, known = all_ranges(program.ops).get, set(program.sizes)
    found = [natural_bound(product(v.type.shape), ranges) for v in program.outputs]
    return [d if dim_names(d) <= known else None for d in found]


class Runnable(Protocol):
    """The interface that `Executable` and the interpreter share."""

    program: Program
    sizes: tuple[str, ...]
    counts: tuple[str, ...]
    donated: frozenset[int]

    def bounds(self, sizes: Sequence[int]) -> list[int | None]: ...

    def run(
        self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int | None]
    ) -> CallResults | None: ...


class RemoteArray(Protocol):
    """An array in memory that this process cannot read; `extent` are the addresses of its first
    byte and of the one behind the last."""

    dtype: np.dtype
    shape: tuple[int, ...]
    address: int
    read_only: bool

    @property
    def contiguous(self) -> bool: ...

    @property
    def extent(self) -> tuple[int, int]: ...

    def shaped(self, shape: Sequence[int]) -> RemoteArray:
        """The first elements of contiguous ones."""
        ...

    def beside(self, count: int, dtype: np.dtype) -> RemoteArray:
        """New memory of the same kind."""
        ...

    def assign(self, array: np.ndarray) -> None:
        """Copy from this process."""
        ...


#: gives memory for so many elements
Make: TypeAlias = Callable[[int, np.dtype], Any]


def empty(count: int, dtype: np.dtype) -> np.ndarray:
    """Memory for an output."""
    HOST.require(count * dtype.itemsize)
    return np.empty(count, dtype)


def results_of(
    executable: Runnable, sizes: Mapping[str, int], inputs: Sequence[int], make: Make = empty
) -> tuple[list[Any], dict[str, int]]:
    """Allocate the outputs, run on addresses, and give the outputs and the counts of the call.

    A slot is nothing that is allocated: its array is empty.
    """
    given = [sizes[n] for n in executable.sizes]
    values = executable.program.outputs
    memory = [
        None if n is None else make(0 if isinstance(v, Slot) else n, v.type.dtype.numpy)
        for n, v in zip(executable.bounds(given), values)
    ]
    addresses = [None if a is None else _address(a) for a in memory]
    found = executable.run(given, inputs, addresses) or CallResults({})
    named = {**sizes, **found.counts}
    outputs = []
    for k, (v, a) in enumerate(zip(values, memory)):
        shape = (0,) if isinstance(v, Slot) else v.type.concrete(named)
        outputs.append(_moved(found.arrays[k], make) if a is None else _shaped(a, shape))
    return outputs, found.counts


def _address(a: np.ndarray | RemoteArray) -> int:
    return a.ctypes.data if isinstance(a, np.ndarray) else a.address


def _moved(array: np.ndarray, make: Make) -> np.ndarray | RemoteArray:
    """Copy an array that the call has allocated into memory from `make`."""
    if make is empty:
        return array
    a = _shaped(make(array.size, array.dtype), array.shape)
    if isinstance(a, np.ndarray):
        a[...] = array
    else:
        a.assign(array)
    return a


def _shaped(a: np.ndarray | RemoteArray, shape: Sequence[int]) -> np.ndarray | RemoteArray:
    """The first elements."""
    if isinstance(a, np.ndarray):
        return a[: math.prod(shape)].reshape(shape)
    return a.shaped(shape)


def call_with_arrays(
    executable: Runnable, arrays: Sequence[np.ndarray | RemoteArray], make: Make | None = None
) -> list[Any]:
    program = executable.program
    if len(arrays) != len(program.inputs):
        raise ValueError(f"{program.name} takes {len(program.inputs)} inputs, not {len(arrays)}")
    for i, a in zip(program.inputs, arrays):
        if a.dtype != i.value.type.dtype.numpy:
            raise ValueError(f"{i.name} is {i.value.type}, not of {a.dtype}")
    sizes = bind_sizes(program, [a.shape for a in arrays])
    written = {target for target, _ in program.writes}
    written |= {program.inputs[n].value for n in executable.donated}
    _check_apart(program, arrays, written)
    ready = [_ready(i, a, i.value in written) for i, a in zip(program.inputs, arrays)]
    if make is None:
        make = next((a.beside for a in arrays if not isinstance(a, np.ndarray)), empty)
    outputs, _ = results_of(executable, sizes, [_address(a) for a in ready], make)
    at = {i.value: a for i, a in zip(program.inputs, arrays)}
    slots = [at[v.input] if isinstance(v, Slot) else None for v in program.outputs]
    return [a if s is None else s for a, s in zip(outputs, slots)]


def _ready(i: Input, a: np.ndarray | RemoteArray, written: bool) -> np.ndarray | RemoteArray:
    """The array, or a contiguous copy of one that is read."""
    if not isinstance(a, np.ndarray):
        if not a.contiguous or written and a.read_only:
            what = "read-only" if a.contiguous else "not contiguous: give a contiguous copy"
            raise ValueError(f"the array {i.name} on the device is {what}")
        return a
    if written and not a.flags.carray:
        raise ValueError(f"{i.name} is written, but the array is read-only or not contiguous")
    fits = a.flags.c_contiguous and a.flags.aligned
    return a if fits else np.array(a, order="C")


def _check_apart(
    program: Program, arrays: Sequence[np.ndarray | RemoteArray], written: set[Value]
) -> None:
    for n, i in enumerate(program.inputs):
        if i.value not in written:
            continue
        for k, (q, other) in enumerate(zip(program.inputs, arrays)):
            if k != n and _may_meet(arrays[n], other):
                raise ValueError(f"{i.name} is written, but shares memory with input {q.name}")


def _may_meet(a: np.ndarray | RemoteArray, b: np.ndarray | RemoteArray) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    return a.extent[0] < b.extent[1] and b.extent[0] < a.extent[1]
