"""The CUDA driver by ctypes; `DY2ST_CUDA_LIBRARY` names another library of its interface."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from executor.allocation import MemoryBlock

Pointer = ctypes.c_void_p
U64, U32, Int, Size = ctypes.c_uint64, ctypes.c_uint, ctypes.c_int, ctypes.c_size_t
LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY, NO_DEVICE, NOT_READY = 2, 100, 600
#: numbers of attributes
THREADS_OF_BLOCK, MULTIPROCESSORS, MAJOR, MINOR, COOPERATIVE = 1, 16, 75, 76, 95
MEMORY_TYPE, ON_DEVICE, ORDINAL = 2, 2, 9
#: the first major compute capability whose instructions kernels use
LEAST = 8


class DriverError(RuntimeError):
    """The GPU, its driver or its compiler is missing, or refuses what it is asked."""


class Driver:
    """The first GPU. Its memory and streams are those of its primary context, which Paddle uses
    too. A thread holds `lock` while it uses the stream."""

    def __init__(self, path: str) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as e:
            raise DriverError(f'device="gpu" needs the CUDA driver: {e}') from None
        self.lock = threading.RLock()
        count, context, stream = Int(), Pointer(), Pointer()
        if found := self.library.cuInit(U32(0)) != NO_DEVICE:
            self.call("cuInit", U32(0))
            self.call("cuDeviceGetCount", ctypes.byref(count))
        if not found or not count.value:
            raise DriverError('device="gpu" needs a GPU, the CUDA driver finds none')
        major, minor = self.attribute(MAJOR), self.attribute(MINOR)
        if major < LEAST:
            text = f"compute capability {LEAST}.0 or later, {self.name} has {major}.{minor}"
            raise DriverError(f'device="gpu" needs a GPU of {text}')
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), Int(0))
        self.context = context
        with self.current():
            self.call("cuStreamCreate", ctypes.byref(stream), U32(1))
        self.stream = stream
        if not self.attribute(COOPERATIVE):
            raise DriverError('device="gpu" needs a GPU whose blocks can wait for each other')

    def call(self, name: str, *arguments: Any) -> None:
        """Raises MemoryError where the device has too little memory, else DriverError."""
        code = getattr(self.library, name)(*arguments)
        if code == OUT_OF_MEMORY:
            raise MemoryError(f"the GPU has too little memory ({name})")
        if code:
            raise DriverError(f"{name}: {self.error_name(code)}")

    def error_name(self, code: int) -> str:
        text = ctypes.c_char_p()
        failed = self.library.cuGetErrorName(Int(code), ctypes.byref(text))
        return f"CUDA error {code}" if failed or not text.value else text.value.decode()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current. A thread that has none keeps it; a thread that works on another
        GPU has its own again afterwards."""
        found = Pointer()
        self.call("cuCtxGetCurrent", ctypes.byref(found))
        if found.value == self.context.value:
            yield
            return
        if not found.value:
            self.call("cuCtxSetCurrent", self.context)
            yield
            return
        self.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(found))

    def attribute(self, which: int) -> int:
        value = Int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), Int(which), Int(0))
        return value.value

    @cached_property
    def multiprocessors(self) -> int:
        return self.attribute(MULTIPROCESSORS)

    @cached_property
    def threads(self) -> int:
        """The most threads of a block."""
        return self.attribute(THREADS_OF_BLOCK)

    @cached_property
    def name(self) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, Int(len(text)), Int(0))
        return text.value.decode()

    @cached_property
    def architecture(self) -> str:
        return f"sm_{self.attribute(MAJOR)}{self.attribute(MINOR)}"

    # ------------------------------------------------------------ memory
    def allocate(self, size: int) -> DeviceBlock:
        """Raises MemoryError where there is too little."""
        pointer = U64()
        with self.current():
            try:
                self.call("cuMemAlloc_v2", ctypes.byref(pointer), Size(max(size, 1)))
            except MemoryError:
                text = f"the GPU has too little memory: {size} bytes more are needed"
                raise MemoryError(text) from None
        return DeviceBlock(self, pointer.value, size)

    def pinned(self, size: int) -> PinnedBlock:
        pointer = Pointer()
        with self.current():
            self.call("cuMemAllocHost_v2", ctypes.byref(pointer), Size(max(size, 1)))
        return PinnedBlock(self, pointer.value or 0)

    def resident(self, function: ctypes.c_void_p, threads: int, shared: int) -> int:
        """Return the number of blocks of a kernel that run together."""
        count = Int()
        given = function, Int(threads), Size(shared)
        self.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), *given)
        return count.value * self.multiprocessors

    def on_device(self, address: int, what: str = "a tensor") -> bool:
        """Raises DriverError for memory of a GPU that is not the first."""
        kind, ordinal = U32(), Int()
        code = self.library.cuPointerGetAttribute(
            ctypes.byref(kind), Int(MEMORY_TYPE), U64(address)
        )
        if code or kind.value != ON_DEVICE:
            return False
        self.call("cuPointerGetAttribute", ctypes.byref(ordinal), Int(ORDINAL), U64(address))
        if ordinal.value:
            raise DriverError(f"{what} lies on GPU {ordinal.value}, programs run on the first")
        return True

    def upload(self, to: int, source: int, size: int, stream: Pointer | None = None) -> None:
        queue = self.stream if stream is None else stream
        self.call("cuMemcpyHtoDAsync_v2", U64(to), Pointer(source), Size(size), queue)

    def download(self, to: int, source: int, size: int, stream: Pointer | None = None) -> None:
        queue = self.stream if stream is None else stream
        self.call("cuMemcpyDtoHAsync_v2", Pointer(to), U64(source), Size(size), queue)

    def copy(self, to: int, source: int, size: int) -> None:
        self.call("cuMemcpyDtoDAsync_v2", U64(to), U64(source), Size(size), self.stream)

    def settle(self) -> None:
        """Wait for the work of all streams, those of others included."""
        self.call("cuCtxSynchronize")

    def synchronize(self, stream: Pointer | None = None) -> None:
        self.call("cuStreamSynchronize", self.stream if stream is None else stream)

    def is_capturing(self, stream: Pointer) -> bool:
        """Whether work of the stream is recorded, and not done."""
        status = Int()
        self.call("cuStreamIsCapturing", stream, ctypes.byref(status))
        return status.value != 0

    def event(self) -> Event:
        """An event that has happened."""
        handle, without_time = Pointer(), U32(2)
        with self.current():
            self.call("cuEventCreate", ctypes.byref(handle), without_time)
        return Event(self, handle)

    # ------------------------------------------------------------ kernels
    def load(self, image: bytes) -> CudaModule:
        module = Pointer()
        with self.current():
            try:
                self.call("cuModuleLoadData", ctypes.byref(module), image)
            except DriverError as e:
                text = f"the CUDA driver cannot load what NVRTC has compiled ({e})"
                raise DriverError(f"{text}: NVRTC may be newer than the driver") from None
        return CudaModule(self, module)

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """A graph of the work that `enqueue` gives to the stream; the context is current."""
        graph, executable = Pointer(), Pointer()
        relaxed = Int(2)
        self.call("cuStreamBeginCapture_v2", self.stream, relaxed)
        try:
            enqueue()
        finally:
            self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        try:
            self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, U64(0))
        finally:
            self.call("cuGraphDestroy", graph)
        return Graph(self, executable)


class _Owned:
    """Something of the driver that goes away with the object."""

    release = ""

    def __init__(self, driver: Driver, handle: Any) -> None:
        self.driver, self.handle = driver, handle

    def __del__(self) -> None:
        try:
            with self.driver.current():
                getattr(self.driver.library, self.release)(self.handle)
        except (AttributeError, DriverError):
            return  # the interpreter ends, or the context is gone with its memory


class DeviceBlock(_Owned, MemoryBlock):
    """Memory of the GPU."""

    release = "cuMemFree_v2"

    def __init__(self, driver: Driver, address: int, size: int) -> None:
        super().__init__(driver, U64(address))
        self._address, self.size = address, size

    @property
    def address(self) -> int:
        return self._address


class PinnedBlock(_Owned):
    """Memory of the host that the GPU can reach."""

    release = "cuMemFreeHost"

    def __init__(self, driver: Driver, address: int) -> None:
        super().__init__(driver, Pointer(address))
        self.address = address


class Graph(_Owned):
    release = "cuGraphExecDestroy"

    def launch(self, stream: Pointer | None = None) -> None:
        queue = self.driver.stream if stream is None else stream
        self.driver.call("cuGraphLaunch", self.handle, queue)


class Event(_Owned):
    """A place in a stream: when what comes before it is done, it has happened."""

    release = "cuEventDestroy_v2"

    def record(self, stream: Pointer) -> None:
        self.driver.call("cuEventRecord", self.handle, stream)

    @property
    def has_happened(self) -> bool:
        code = self.driver.library.cuEventQuery(self.handle)
        if code not in (0, NOT_READY):
            raise DriverError(f"cuEventQuery: {self.driver.error_name(code)}")
        return int(code) == 0

    def wait(self) -> None:
        """The host waits."""
        self.driver.call("cuEventSynchronize", self.handle)

    def hold(self, stream: Pointer) -> None:
        """Make a stream wait for the event; the host does not wait."""
        self.driver.call("cuStreamWaitEvent", stream, self.handle, U32(0))


class CudaModule(_Owned):
    """Compiled kernels."""

    release = "cuModuleUnload"

    def function(self, name: str) -> ctypes.c_void_p:
        function = Pointer()
        self.driver.call("cuModuleGetFunction", ctypes.byref(function), self.handle, name.encode())
        return function


_DRIVERS: dict[str, Driver] = {}
_LOCK = threading.Lock()


def driver() -> Driver:
    """The driver of this process. Raises DriverError where there is none, or no GPU."""
    path = os.environ.get("DY2ST_CUDA_LIBRARY") or LIBRARY
    with _LOCK:
        if path not in _DRIVERS:
            _DRIVERS[path] = Driver(path)
        return _DRIVERS[path]
