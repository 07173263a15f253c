"""Device arrays: tensors in GPU memory that calls take and return without a copy.

Arrays of other libraries are taken by `__cuda_array_interface__` or DLPack, and given by the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from executor.gpu.arrays import dlpack
from executor.gpu.driver import driver
from ir.layout import contiguous


class DeviceArray:
    """A tensor on the GPU; `numpy` gives a copy on the host. `strides` count elements. `owner`
    keeps the memory alive."""

    def __init__(
        self, address: int, shape: Sequence[int], dtype: np.dtype, owner: object,
        strides: Sequence[int] | None = None, read_only: bool = False,
    ) -> None:  # fmt: skip
        self.address, self.shape, self.dtype = address, tuple(shape), np.dtype(dtype)
        self.strides = _row_major(shape) if strides is None else tuple(strides)
        self.owner, self.read_only = owner, read_only
        if self.size and not driver().on_device(address):
            raise ValueError(f"an array of {list(self.shape)} does not lie on the GPU")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        wanted = zip(self.shape, self.strides, _row_major(self.shape))
        return not self.size or all(d == 1 or s == w for d, s, w in wanted)

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte, and the one behind the last."""
        if not self.size:
            return 0, 0
        steps = [(d - 1) * s for d, s in zip(self.shape, self.strides)]
        low, high = sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)
        unit = self.dtype.itemsize
        return self.address + low * unit, self.address + (high + 1) * unit

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({list(self.shape)}, {self.dtype})"

    # ------------------------------------------------------------ for the host
    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        low, high = self.extent
        unit = self.dtype.itemsize
        memory = np.empty((high - low) // unit, self.dtype)
        gpu = driver()
        with gpu.lock, gpu.current():
            gpu.settle()
            gpu.download(memory.ctypes.data, low, memory.nbytes)
            gpu.synchronize()
        steps = [unit * s for s in self.strides]
        start = self.address - low if self.size else 0
        made: np.ndarray = np.ndarray(self.shape, self.dtype, memory, start, steps)
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array on the GPU is copied to be one of NumPy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def item(self) -> Any:
        return self.numpy().item()

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    # ------------------------------------------------------------ for other libraries
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Nothing is left to wait for: a call ends when its results are there."""
        unit = self.dtype.itemsize
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, self.read_only),
            "strides": None if self.contiguous else tuple(unit * s for s in self.strides),
            "stream": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, 0

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return dlpack.capsule(self.address, self.shape, self.strides, self.dtype, self)

    # ------------------------------------------------------------ for programs
    def shaped(self, shape: Sequence[int]) -> DeviceArray:
        """The first elements of contiguous ones."""
        return DeviceArray(self.address, shape, self.dtype, self.owner, None, self.read_only)

    def seen_as(self, dtype: np.dtype, shape: Sequence[int]) -> DeviceArray:
        """The same memory as elements of another type, as many bytes in all."""
        if not self.contiguous:
            text = f"an array of {list(self.shape)} on the device is not contiguous"
            raise ValueError(f"{text}: give a contiguous copy")
        return DeviceArray(self.address, shape, dtype, self, None, self.read_only)

    def viewed(self, view: Callable[[np.ndarray], np.ndarray]) -> DeviceArray:
        """The same memory as NumPy would look at it; it must not take a copy."""
        low, high = self.extent
        unit = self.dtype.itemsize
        memory = np.empty((high - low) // unit, self.dtype)  # never touched: for its addresses
        steps = [unit * s for s in self.strides]
        start = self.address - low if self.size else 0
        found = view(np.ndarray(self.shape, self.dtype, memory, start, steps))
        if found.size and not np.may_share_memory(found, memory):
            what = f"a result of {list(found.shape)} takes a copy"
            raise ValueError(f"{what}: give arrays on the host")
        moved = found.ctypes.data - memory.ctypes.data
        strides = [s // found.itemsize for s in found.strides]
        return DeviceArray(low + moved, found.shape, found.dtype, self, strides, self.read_only)

    def beside(self, count: int, dtype: np.dtype) -> DeviceArray:
        return empty(count, dtype)

    def copy(self) -> DeviceArray:
        if not self.contiguous:
            return uploaded(self.numpy())
        made, gpu = empty(self.size, self.dtype).shaped(self.shape), driver()
        with gpu.lock, gpu.current():
            gpu.settle()
            gpu.copy(made.address, self.address, self.size * self.dtype.itemsize)
            gpu.synchronize()
        return made

    def assign(self, array: np.ndarray) -> None:
        """Copy from the host, in place. Raises ValueError for another type."""
        source = np.asarray(array, order="C")
        if source.dtype != self.dtype or source.shape != self.shape or not self.contiguous:
            raise ValueError(f"{self} cannot be given {source.dtype}{list(source.shape)}")
        gpu = driver()
        with gpu.lock, gpu.current():
            gpu.upload(self.address, source.ctypes.data, source.nbytes)
            gpu.synchronize()


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(str(s)) for s in contiguous(tuple(shape)))


def empty(count: int, dtype: np.dtype) -> DeviceArray:
    """Memory for an output."""
    block = driver().allocate(count * np.dtype(dtype).itemsize)
    return DeviceArray(block.address, (count,), dtype, block)


def uploaded(array: np.ndarray) -> DeviceArray:
    made = empty(array.size, array.dtype).shaped(array.shape)
    made.assign(array)
    return made


def device_array(x: object) -> DeviceArray | None:
    """Return a tensor on the GPU as a `DeviceArray` without a copy; None for any other object.

    Raises ValueError for what a program cannot take: masks, and places between elements.
    """
    if isinstance(x, DeviceArray):
        return x
    found = getattr(x, "__cuda_array_interface__", None)
    if isinstance(found, dict):
        return _from_interface(found, x)
    where = getattr(x, "__dlpack_device__", None)
    if where is not None and where()[0] == dlpack.CUDA:
        stream = driver().stream.value
        address, shape, strides, dtype, owner = dlpack.taken(x.__dlpack__(stream=stream))  # type: ignore[attr-defined]
        return DeviceArray(address, shape, dtype, owner, strides)
    return None


def _from_interface(found: dict[str, Any], owner: object) -> DeviceArray:
    if found.get("mask") is not None:
        raise ValueError("an array with a mask cannot be given to a program")
    dtype, steps = np.dtype(found["typestr"]), found.get("strides")
    address, read_only = found["data"]
    if steps is not None and any(s % dtype.itemsize for s in steps):
        raise ValueError(f"an array whose strides are {steps} bytes has elements of {dtype}")
    strides = None if steps is None else [s // dtype.itemsize for s in steps]
    return DeviceArray(address or 0, found["shape"], dtype, owner, strides, bool(read_only))
