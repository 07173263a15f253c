"""Memory that compiled code computes on: its alignment, and blocks of it by address."""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np

#: bytes of memory that is worth a request to the system
LARGE = 1 << 22


class MemoryBlock(Protocol):
    """Memory that lives as long as the object."""

    @property
    def address(self) -> int: ...


class Memory(Protocol):
    """The memory that a backend's code reads and writes."""

    @property
    def alignment(self) -> int:
        """The alignment of a block and of every buffer in it, in bytes; a power of two."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether this process can read it."""
        ...

    def allocate(self, size: int) -> MemoryBlock:
        """A block of at least `size` bytes, with any content."""
        ...


class HostMemory:
    """Memory of this process, aligned to the lines of the caches."""

    alignment = 64
    on_host = True

    def allocate(self, size: int) -> MemoryBlock:
        self.require(size)
        return _HostBlock(size, self.alignment)

    def require(self, size: int) -> None:
        """Raises MemoryError for more than the machine has: the system would promise it, and end
        the process that uses it."""
        if size > self.most:
            raise MemoryError(f"a call needs {size} bytes, the machine has {self.most}")

    @cached_property
    def most(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _HostBlock:
    def __init__(self, size: int, alignment: int) -> None:
        self._bytes = np.empty(size + alignment, np.uint8)
        self.address: int = -(-self._bytes.ctypes.data // alignment) * alignment


@cache
def _advise() -> Any:
    """`madvise`, where the system has it and pages of several sizes."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


def prefer_large_pages(address: int, size: int) -> None:
    """Ask for large pages before memory that may be fresh is written. The system fills a page when
    it is touched first, which takes longer than most programs do for each small one; NumPy asks the
    same for its arrays. It is a hint: whether the system follows it makes no difference."""
    advise = _advise()
    if advise is not None:
        first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        advise(first, max(address + size - first, 0), mmap.MADV_HUGEPAGE)


HOST = HostMemory()
