"""The limits of the device: copies, launches and barriers, as ceilings for programs.

The kernels use the preamble of all programs. The soak writes a word per thread, waits at a barrier
and reads a word of another block with a plain load, as programs do: a word that is stale shows that
a barrier does not order memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from executor.gpu.driver import DeviceBlock, Driver, Pointer
from executor.gpu.nvrtc import machine_code
from executor.gpu.preamble import SHARED, TEXT, THREADS, WARP

COUNTER, FIRST = 8, 16
KERNELS = """
extern "C" __global__ void touch(i64* table) { if (!threadIdx.x) table[16]++; }
extern "C" __global__ void copy(i64* table) {
  float *x = (float*)table[16], *y = (float*)table[17];
  i64 n = table[18], step = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) y[i] = x[i];
}
extern "C" __global__ void matrix(i64* table) {
  float sums[8][4] = {}, total = 0;
  u32 words[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  for (i64 t = 0; t < table[16]; t++)
#pragma unroll
    for (int j = 0; j < 8; j++) mma_bf16(sums[j], words, words[0], words[1]);
  for (int j = 0; j < 32; j++) total += sums[j / 4][j % 4];
  if (total < 0) table[17] = 1;
}
extern "C" __global__ void rounds(i64* table) {
  Grid g = grid_of(table, 0, 8);
  for (i64 t = 0; t < table[16]; t++)
    if (barrier(g, gridDim.x)) return;
}
extern "C" __global__ void soak(i64* table) {
  Grid g = grid_of(table, 0, 8);
  u32 *words = (u32*)table[17], n = gridDim.x, m = blockDim.x;
  u64 stale = 0;
  for (u32 t = 1; t <= (u32)table[16]; t++) {
    words[((t & 1) * n + blockIdx.x) * m + threadIdx.x] = t;
    if (barrier(g, n)) return;
    stale += words[((t & 1) * n + (blockIdx.x + t) % n) * m + (threadIdx.x + t * 37) % m] != t;
  }
  ((u64*)table[18])[g.thread] = stale;
}
"""


@dataclass(frozen=True)
class Ceilings:
    """Bytes read and written per second, operations of bfloat16 products by `mma.sync` per second;
    the rest in microseconds."""

    copy: float
    matrix: float
    launch: float
    barrier: float


class Events:
    """Milliseconds of work on the stream."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.marks = driver, (Pointer(), Pointer())
        for m in self.marks:
            driver.call("cuEventCreate", ctypes.byref(m), ctypes.c_uint(0))

    def milliseconds(self, work: Callable[[], None]) -> float:
        driver, taken = self.driver, ctypes.c_float()
        driver.call("cuEventRecord", self.marks[0], driver.stream)
        work()
        driver.call("cuEventRecord", self.marks[1], driver.stream)
        driver.call("cuEventSynchronize", self.marks[1])
        driver.call("cuEventElapsedTime", ctypes.byref(taken), *self.marks)
        return taken.value


class Probe:
    def __init__(self, driver: Driver) -> None:
        self.driver, self.events = driver, Events(driver)
        self.module = driver.load(machine_code(TEXT + KERNELS, driver.architecture))
        self.table = driver.allocate(8 * 64)
        self.threads = min(THREADS, driver.threads)

    def upload(self, block: DeviceBlock, array: np.ndarray) -> None:
        self.driver.upload(block.address, array.ctypes.data, array.nbytes)
        self.driver.synchronize()

    def prepare(self, *words: int) -> None:
        table = np.zeros(64, np.int64)
        table[:4] = -1
        table[FIRST : FIRST + len(words)] = words
        self.upload(self.table, table)

    def launch(self, name: str, blocks: int, cooperative: bool = False) -> Callable[[], None]:
        function, driver = self.module.function(name), self.driver
        pointer = ctypes.c_uint64(self.table.address)
        given: Any = (Pointer * 1)(ctypes.addressof(pointer))
        shape = [ctypes.c_uint(n) for n in (blocks, 1, 1, self.threads, 1, 1, SHARED)]

        def once() -> None:
            assert pointer.value
            if cooperative:
                driver.call("cuLaunchCooperativeKernel", function, *shape, driver.stream, given)
            else:
                driver.call("cuLaunchKernel", function, *shape, driver.stream, given, None)

        return once

    def copy(self, count: int) -> float:
        x, y = (self.driver.allocate(4 * count) for _ in range(2))
        self.prepare(x.address, y.address, count)
        run = self.launch("copy", 8 * self.driver.multiprocessors)
        best = min(self.events.milliseconds(run) for _ in range(5))
        return 8 * count / max(best, 1e-9) * 1e3

    def matrix(self, count: int) -> float:
        """Of eight tiles of 16 x 8 x 16 at once in each warp."""
        blocks = 4 * self.driver.multiprocessors
        self.prepare(count)
        run = self.launch("matrix", blocks)
        best = min(self.events.milliseconds(run) for _ in range(5))
        done = 2 * 16 * 8 * 16 * 8 * count * blocks * self.threads // WARP
        return done / max(best, 1e-9) * 1e3

    def chain(self, count: int) -> float:
        """Microseconds of one of `count` kernels that wait for each other, in a graph."""
        self.prepare()
        once = self.launch("touch", 1)
        graph = self.driver.capture(lambda: [once() for _ in range(count)] and None)
        return min(self.events.milliseconds(graph.launch) for _ in range(5)) / count * 1e3

    def rounds(self, count: int) -> float:
        """Microseconds of a barrier of all multiprocessors."""
        run, taken = self.launch("rounds", self.driver.multiprocessors, True), []
        for _ in range(3):
            self.prepare(count)
            taken.append(self.events.milliseconds(run))
        return min(taken) / count * 1e3

    def soak(self, count: int) -> int:
        """How many words were stale in `count` rounds."""
        threads = self.driver.multiprocessors * self.threads
        words, stale = self.driver.allocate(8 * threads), self.driver.allocate(8 * threads)
        self.prepare(count, words.address, stale.address)
        self.launch("soak", self.driver.multiprocessors, True)()
        found = np.full(threads, -1, np.int64)
        self.driver.download(found.ctypes.data, stale.address, found.nbytes)
        self.driver.synchronize()
        assert (found >= 0).all(), "a thread has not come to the end"
        return int(found.sum())

    def ceilings(self, elements: int, count: int) -> Ceilings:
        return Ceilings(self.copy(elements), self.matrix(count), self.chain(64), self.rounds(count))
