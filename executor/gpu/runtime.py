"""The runtime of a compiled program on the GPU: its CUDA graph, and its calls.

A call copies the table to the device, launches the graph (several, with products of a library
between them), and copies the table back if that tells
anything. Tensors on the host are copied too, with a warning that counts them; written inputs go
back only if the call has not failed.

In `on_stream` a call is work of the caller's stream: it is ordered behind what the stream has, and
nothing waits for its end but what asks for it. The host waits for that end only where the call can
fail, tells counts, or has copied tensors. Elsewhere a call waits for the work of all streams, and
ends when its results are there.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from executor.executable import CallTable, output_bounds
from executor.gpu.blas import NO_PRODUCTS, LibraryProducts
from executor.gpu.codegen import CudaSource
from executor.gpu.device_table import CALL, CODE, FAILURES, INDEX, INDEXED, NONE, shown
from executor.gpu.driver import U32, CudaModule, Driver, DriverError, Event, Graph, Pointer
from executor.gpu.preamble import SHARED
from executor.gpu.schedule import DeviceLimits, Schedule, Stage, every
from executor.launches import CODE_BITS, Failure, Lowered, results, views
from executor.memory import memory_of
from executor.plan.arena import aligned
from ir import Slot
from ir.types import Dim, evaluate_dim

#: calls whose work may be given to the device before that of the first is done
MOST_RUNS = 8
#: bytes of an input on the host that goes with the table: a number
SMALL = 8


class HostCopyWarning(UserWarning):
    """Tensors on the host are copied to the GPU and back in every call."""


class _Caller(threading.local):
    stream: int | None = None


_CALLER = _Caller()


@contextmanager
def on_stream(handle: int) -> Iterator[None]:
    """Calls of this thread are work of this stream of the first GPU, as are the tensors that they
    are given."""
    before, _CALLER.stream = _CALLER.stream, handle
    try:
        yield
    finally:
        _CALLER.stream = before


@dataclass(frozen=True)
class HostTransfer:
    """An input or output: its entry in the table, its bytes, and which way it is copied."""

    entry: int
    size: Dim
    read: bool
    written: bool
    name: str

    @property
    def small(self) -> bool:
        """Whether it may go with the table."""
        fits = isinstance(self.size, int) and self.size <= SMALL
        return fits and self.read and not self.written


def arguments(lowered: Lowered) -> tuple[HostTransfer, ...]:
    table, program = CallTable.of(lowered.program), lowered.program
    written = {v.buffer for x in every(lowered.launches) for v in results(x)}
    touched = {b for x in every(lowered.launches) for v in views(x) for b in memory_of(v.buffer)}
    kept = {target for target, _ in program.writes}
    out = [
        HostTransfer(
            table.inputs + k, b.size, b in touched, b in written and i.value in kept, i.name
        )
        for k, (b, i) in enumerate(zip(lowered.inputs, program.inputs))
    ]
    bounds = output_bounds(program)
    for k, (v, n) in enumerate(zip(program.outputs, bounds)):
        if isinstance(v, Slot):
            continue
        assert n is not None
        out.append(HostTransfer(table.outputs + k, n * v.type.dtype.size, False, True, "a result"))
    return tuple(out)


@dataclass(frozen=True)
class CopiedArgument:
    """An argument at an `address` of the host, and its `place` on the device."""

    argument: HostTransfer
    address: int
    place: int
    size: int


class Staging:
    """Memory of the device for tensors of the host, kept between calls."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.capacity = driver, -1

    def reserve(self, size: int) -> int:
        if size > self.capacity:
            self.block = self.driver.allocate(size)
            self.capacity = size
        return self.block.address


class CallSlot:
    """The resources of one call at a time: a table on both sides, with room for small inputs behind
    it, and the graph that uses them. `done`: its work has come to its end."""

    def __init__(self, native: DeviceProgram) -> None:
        driver, size = native.driver, native.uploaded
        self.staging = Staging(driver)
        self.host, self.device = driver.pinned(size), driver.allocate(size)
        words = native.source.table.words
        self.words: Any = (ctypes.c_int64 * words).from_address(self.host.address)
        self.pointer = ctypes.c_uint64(self.device.address)
        self.shown: list[object] = []
        self.done, self.module = driver.event(), native.module
        self.graphs = native.captured(self)

    def __del__(self) -> None:
        """Memory of the host goes away at once, that of a device when nothing uses it."""
        with suppress(AttributeError, DriverError), self.done.driver.current():
            self.done.wait()


class DeviceProgram:
    """Compiled code of a program (`executor.executable.NativeProgram`)."""

    def __init__(
        self, driver: Driver, device: DeviceLimits, lowered: Lowered, schedule: Schedule,
        source: CudaSource, image: bytes, products: LibraryProducts = NO_PRODUCTS,
    ) -> None:  # fmt: skip
        self.products = products
        self.driver, self.device, self.schedule, self.source = driver, device, schedule, source
        self.name, self.sizes = lowered.program.name, lowered.program.sizes
        self.arguments, self.failures = arguments(lowered), lowered.failures
        self.module: CudaModule = driver.load(image)
        with driver.current():
            self.functions = [self.module.function(s.name) for s in schedule.stages]
            for stage, function in zip(schedule.stages, self.functions):
                self._require_room(stage, function)
        #: those in use are not among them; the one that has been used first is first
        self.runs: list[CallSlot] = []
        table = source.table
        small = [a.entry for a in self.arguments if a.small]
        self.rooms = {entry: 8 * table.words + SMALL * k for k, entry in enumerate(small)}
        self.uploaded = 8 * table.words + SMALL * len(small)
        self.tells = bool(lowered.failures) or table.call.asks > table.call.counts
        self.last: tuple[int | None, Event] | None = None
        self._warned = False

    @property
    def report(self) -> str:
        return str(self.schedule)

    def _require_room(self, stage: Stage, function: ctypes.c_void_p) -> None:
        """Raises DriverError where blocks that wait for each other do not run together."""
        if not stage.cooperative:
            return
        most = self.driver.resident(function, self.device.threads, SHARED)
        if stage.blocks > most:
            text = f"{stage.blocks} blocks wait for each other, {most} run together on this GPU"
            raise DriverError(f"{self.name}: {text}")

    def captured(self, run: CallSlot) -> list[Graph | None]:
        """Capture the work of a call on the device before, between and behind products of the
        library as graphs; None where there is no work."""
        pieces = list(self.products.pieces(len(self.functions)))
        last = len(pieces) - 1
        out: list[Graph | None] = []
        for k, piece in enumerate(pieces):
            some = k == 0 or piece or (k == last and self.tells)
            take = partial(self.enqueue, run, piece, k == 0, k == last)
            out.append(self.driver.capture(take) if some else None)
        return out

    def enqueue(self, run: CallSlot, piece: range, first: bool, last: bool) -> None:
        """Some of the stages, for a graph."""
        driver = self.driver
        if first:
            driver.upload(run.device.address, run.host.address, self.uploaded)
        given = (Pointer * 1)(ctypes.addressof(run.pointer))
        for k in piece:
            stage, function = self.schedule.stages[k], self.functions[k]
            shape = [U32(n) for n in (stage.blocks, 1, 1, self.device.threads, 1, 1, SHARED)]
            if stage.cooperative:
                driver.call("cuLaunchCooperativeKernel", function, *shape, driver.stream, given)
            else:
                driver.call("cuLaunchKernel", function, *shape, driver.stream, given, None)
        if last and self.tells:
            driver.download(run.host.address, run.device.address, 8 * self.source.table.words)

    def run(self, address: int) -> int:
        """Run on the table of a call; 0 or the failure's number. Calls of other threads wait."""
        given = _CALLER.stream
        with self.driver.lock, self.driver.current():
            stream = self.driver.stream if given is None else Pointer(given)
            if given is None:
                self.driver.settle()
            elif self.driver.is_capturing(stream):
                text = "cannot be recorded in a CUDA graph: end the capture before the call"
                raise DriverError(f"{self.name}: a call {text}")
            run = self._ready()
            code = self._call(run, address, stream, given is None)
            self.runs.append(run)
            return code

    def _ready(self) -> CallSlot:
        """A run whose memory on the host nothing reads any more."""
        if self.runs and len(self.runs) >= MOST_RUNS:
            self.runs[0].done.wait()
        if self.runs and self.runs[0].done.has_happened:
            return self.runs.pop(0)
        return CallSlot(self)

    def _call(self, run: CallSlot, address: int, stream: Pointer, waits: bool) -> int:
        """`waits`: for the results, whatever the call tells."""
        own = self.source.table
        given, call = run.host.address + 8 * CALL, own.call
        ctypes.memset(run.host.address, 0, 8 * own.words)
        ctypes.memset(run.host.address, 0xFF, 8 * INDEX)
        ctypes.memmove(given, address, 8 * call.asks)
        copied = self._placed(run)
        if self.last is not None and self.last[0] != stream.value:
            self.last[1].hold(stream)  # calls share the arena
        for c in copied:
            if c.argument.read:
                self.driver.upload(c.place, c.address, c.size, stream)
        self.launch(run, stream)
        run.done.record(stream)
        self.last = stream.value, run.done
        if not (waits or self.tells or copied):
            return 0
        self.driver.synchronize(stream)
        found = 8 * (call.asks - call.counts)
        ctypes.memmove(address + 8 * call.counts, given + 8 * call.counts, found)
        code = failure(run.words) if self.tells else 0
        if code:
            self._show(run, self.failures[(code & CODE) - 1], address + 8 * call.shown)
            return code
        for c in copied:
            if c.argument.written:
                self.driver.download(c.address, c.place, c.size, stream)
        if copied:
            self.driver.synchronize(stream)
        return 0

    def launch(self, run: CallSlot, stream: Pointer) -> None:
        """Enqueue the work of a call on the device in a stream."""
        for k, graph in enumerate(run.graphs):
            if k:
                words = run.words[CALL : CALL + self.source.table.call.asks]
                self.products.take(k - 1, words, dict(zip(self.sizes, words)), stream)
            if graph is not None:
                graph.launch(stream)

    def _show(self, run: CallSlot, failure: Failure, address: int) -> None:
        """The values for the message of a failure go to the table of the call; tensors to the host,
        where they stay until the next failure."""
        at, run.shown = shown(self.source.table.call), []
        for _, t in failure.shown:
            count = 1 + 2 * t.ndim
            words = list(run.words[at : at + count])
            if t.ndim and 0 not in words[1 : 1 + t.ndim]:
                words[0] = self._brought(run, words[0], t.dtype.size, words[1:])
            (ctypes.c_int64 * count).from_address(address)[:] = words
            at, address = at + count, address + 8 * count

    def _brought(self, run: CallSlot, address: int, size: int, lie: Sequence[int]) -> int:
        """Return the host address of a tensor's first element, after copying the tensor to the
        host."""
        reach = [(d - 1) * s for d, s in zip(lie, lie[len(lie) // 2 :])]
        low = sum(r for r in reach if r < 0) * size
        high = (sum(r for r in reach if r > 0) + 1) * size
        memory = ctypes.create_string_buffer(high - low)
        run.shown.append(memory)
        self.driver.download(ctypes.addressof(memory), address + low, high - low)
        self.driver.synchronize()
        return ctypes.addressof(memory) - low

    def _placed(self, run: CallSlot) -> list[CopiedArgument]:
        """The arguments that lie on the host; the table gets their places on the device."""
        words = run.words[CALL : CALL + self.source.table.call.asks]
        sizes = dict(zip(self.sizes, words))
        found, total = [], 0
        for a in self.arguments:
            size = max(0, evaluate_dim(a.size, sizes))
            if not size or not (a.read or a.written):
                continue
            address = words[a.entry]
            if self.driver.on_device(address, a.name):
                continue
            if a.entry in self.rooms:
                room = self.rooms[a.entry]
                ctypes.memmove(run.host.address + room, address, size)
                run.words[CALL + a.entry] = run.device.address + room
            else:
                found.append(CopiedArgument(a, address, total, size))
                total += aligned(size, 256)
        base = run.staging.reserve(total) if found else 0
        out = [replace(c, place=base + c.place) for c in found]
        for c in out:
            run.words[CALL + c.argument.entry] = c.place
        if out and not self._warned:
            self._warned = True
            text = _copies(self.name, [c.argument for c in out])
            warnings.warn(text, HostCopyWarning, stacklevel=2)
        return out


def _copies(name: str, found: Sequence[HostTransfer]) -> str:
    to, back = sum(a.read for a in found), sum(a.written for a in found)
    return (
        f"{name}: tensors on the host are copied in every call, {to} to the GPU and {back} back; "
        "give tensors that lie on the GPU"
    )


def failure(words: Sequence[int]) -> int:
    """The number of the first failure, with the index that it tells; 0 if there is none."""
    least = min(w & NONE for w in words[FAILURES:INDEX])
    if least == NONE:
        return 0
    index = words[INDEX] if least & INDEXED else 0
    return (index << CODE_BITS) | (least & CODE)
