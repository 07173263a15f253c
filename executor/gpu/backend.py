"""The GPU as a backend: CUDA C++ text, compiled by NVRTC, run by the driver."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace

from executor.allocation import Memory, MemoryBlock
from executor.backend import Unsupported, precision_of, register
from executor.gpu.blas import LibraryProducts, Places, blas, product_of
from executor.gpu.codegen import source
from executor.gpu.driver import driver
from executor.gpu.kernel_builder import KERNELS
from executor.gpu.kernels.attention import attention
from executor.gpu.kernels.launch_fusion import grouped
from executor.gpu.kernels.loops.cell import celled
from executor.gpu.kernels.loops.linear import chunked
from executor.gpu.kernels.row_reductions import merged
from executor.gpu.kernels.skinny_gemm import fills_blocks
from executor.gpu.kernels.split_k import split
from executor.gpu.kernels.split_keys import shared
from executor.gpu.loop_rotation import rotated
from executor.gpu.nvrtc import compiler, machine_code
from executor.gpu.preamble import THREADS
from executor.gpu.runtime import DeviceProgram
from executor.gpu.schedule import DeviceLimits, Schedule, every, schedule
from executor.gpu.schedule_verifier import validate
from executor.launches import Call, Gemm, Lowered
from executor.plan.arena import ArenaLayout
from ir.types import Type


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of the GPU."""

    alignment: int = 256
    on_host: bool = False

    def allocate(self, size: int) -> MemoryBlock:
        return driver().allocate(size)


@dataclass(frozen=True)
class Gpu:
    """`precision`: of products of float32; None asks `DY2ST_MATMUL_PRECISION` for each program."""

    name: str = "gpu"
    memory: Memory = DeviceMemory()
    precision: str | None = None

    def rounding(self, precision: str) -> Gpu:
        return replace(self, precision=precision)

    @property
    def families(self) -> Collection[type]:
        return KERNELS

    def joins_images(self, t: Type) -> bool:
        return False

    def legalize(self, lowered: Lowered) -> Lowered:
        """Loops that are linear recurrences, attention of few queries, and runs of launches over
        rows, become one launch each.
        Raises `Unsupported` for calls of Python."""
        for x in every(lowered.launches):
            if isinstance(x, Call):
                op = lowered.calls[x.number][0]
                name = op.attrs.get("call") or op.name
                what = "a function of Python" if name == "host" else repr(name)
                raise Unsupported(f"a GPU cannot run {what}, which is called on the host", op.loc)
        launches = grouped(celled(rotated(chunked(lowered.launches))), attention, merged)
        sizes = lowered.program.sizes

        def others(x: Gemm) -> bool:
            return fills_blocks(x) or product_of(x, "float32", sizes) is not None

        return replace(lowered, launches=tuple(split(shared(launches), others)))

    def schedule(self, lowered: Lowered, layout: ArenaLayout, device: DeviceLimits) -> Schedule:
        products = {}
        for x in lowered.launches if device.has_library else ():
            found = isinstance(x, Gemm) and product_of(x, device.precision, lowered.program.sizes)
            if found:
                products[id(x)] = found
        return schedule(lowered.launches, layout, device, products)

    def build(self, lowered: Lowered, layout: ArenaLayout) -> DeviceProgram:
        """Raises `DriverError` where a driver, a GPU or NVRTC is missing, and ValueError for a
        precision that there is not."""
        own = driver()
        rounded = self.precision or precision()
        library, threads = blas(own), min(THREADS, own.threads)
        device = DeviceLimits(own.multiprocessors, threads, rounded, library is not None)
        planned = self.schedule(lowered, layout, device)
        validate(planned, device)
        text = source(lowered, layout, planned)
        image = machine_code(text.text, own.architecture)
        products = LibraryProducts(library, Places(lowered, layout), planned.products)
        return DeviceProgram(own, device, lowered, planned, text, image, products)


def precision() -> str:
    """The default precision of products of float32."""
    variable = "DY2ST_MATMUL_PRECISION"
    return precision_of(os.environ.get(variable) or "float32", variable) or "float32"


def require() -> None:
    """Raises `DriverError` where no program can run: without driver, GPU or NVRTC."""
    driver()
    compiler()


register(Gpu())
