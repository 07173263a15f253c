"""Programs compiled once in a test, and kernels whose barriers can be left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import executor
from executor.gpu.kernel_builder import Kernel
from ir import Program
from tests.executor.gpu import emulator

#: those of the test that runs, by `id`
COMPILED: dict[int, tuple[Program, executor.Executable]] = {}
#: places of barriers in a block, behind those of `mutants`
PLACES = 1 << 20


def on_gpu(program: Program) -> executor.Executable:
    if id(program) not in COMPILED:
        COMPILED[id(program)] = program, executor.compile(program, backend="gpu")
    return COMPILED[id(program)][1]


def optional(kernel: Kernel, count: int) -> Kernel:
    """The kernel, whose `count` barriers of a block `missing` leaves out."""
    wait = "__syncthreads();"
    places = [k for k, line in enumerate(kernel._lines) if wait in line]
    assert len(places) == count
    for number, k in enumerate(places):
        asked = f"if (!emu_planted({PLACES + number})) {wait}"
        kernel._lines[k] = kernel._lines[k].replace(wait, asked)
    return kernel


@contextmanager
def missing(barrier: int) -> Iterator[None]:
    emulator.library().emu_plant(PLACES + barrier, 1)
    try:
        yield
    finally:
        emulator.library().emu_plant(PLACES + barrier, 0)
