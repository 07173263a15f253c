"""Compiles programs of `ir` and runs them. Knows no framework.

`compile(program)` gives an `Executable`: call it with NumPy arrays, or `run` it on addresses.
This is where backends are imported, which register themselves; all else finds them by name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from executor import cpu, gpu
from executor.backend import (
    PRECISIONS,
    Backend,
    Unsupported,
    named,
    precision_of,
    register,
    require_kernels,
)
from executor.capacity import GrowingExecutable, Replay
from executor.executable import Executable
from executor.host_calls import Foreign, HostCall
from executor.lowering import (
    branches,
    calls,
    conv,
    gather_scatter,
    loops,
    matmul,
    movement,
    pooling,
)
from executor.lowering.program import lower
from executor.plan.arena import layout
from executor.poison import poisoned, wanted
from executor.segmented.interpreter import Interpreted
from executor.segmented.partition import growing
from ir import Program, Scan
from ir.uses import walk


def compile(
    program: Program,
    foreign: Foreign | None = None,
    donated: Collection[int] = (),
    poison: bool | None = None,
    backend: str = "cpu",
    matmul_precision: str | None = None,
) -> Executable | Interpreted | GrowingExecutable:
    """Compile a functional program: no op of it writes its operands.

    `foreign` runs the ops of that name. A program with a value whose size only a loop without a
    bound finds is split into native segments; one with capacities starts again until they suffice.

    donated: numbers of inputs whose memory the program may use for other values: what is in them
    after a call, also one that fails, is anything. A program in segments or with capacities does
    without.
    poison: fill memory with NaN where its content is dead; None asks `DY2ST_POISON`.
    backend: the name of the backend that compiles it (`executor.backend`).
    matmul_precision: what it may round operands of products of float32 to (`PRECISIONS`); None is
        its own default.

    Raises NotImplementedError for an op without a kernel, `Unsupported` for what the backend cannot
    do, and ValueError for a program with foreign ops and no `foreign`, an unknown backend, and an
    unknown precision.
    """
    if foreign is None and any(n.name == "foreign" for n in walk(program.ops)):
        raise ValueError(f"{program.name} calls foreign kernels, but `foreign` is missing")
    machine, precision = named(backend), precision_of(matmul_precision)
    if precision is not None:
        machine = machine.rounding(precision)
    if program.capacities:
        replay = None if foreign is None else Replay(foreign)
        return GrowingExecutable(_compiled(program, replay, (), poison, machine), replay)
    return _compiled(program, foreign, donated, poison, machine)


def require_device(device: str, matmul_precision: str | None = None) -> None:
    """Raises ValueError for what is neither "cpu" nor "gpu" and for an unknown precision, and
    `executor.gpu.DriverError` where a GPU is asked for and cannot be used."""
    precision_of(matmul_precision)
    if device not in ("cpu", "gpu"):
        raise ValueError(f'device is "cpu" or "gpu", not {device!r}')
    if device == "gpu":
        gpu.require()


def _compiled(
    program: Program,
    foreign: Foreign | None,
    donated: Collection[int],
    poison: bool | None,
    machine: Backend,
) -> Executable | Interpreted:
    grown = growing(program.ops)
    if grown:
        if not machine.memory.on_host:
            loops = (n for n in walk(program.ops) if isinstance(n, Scan) and n.count in grown)
            text = f"a {machine.name.upper()} cannot collect results of a loop without a bound"
            raise Unsupported(text, next(loops).loc)
        segment = partial(native, poison=poison, machine=machine, foreign=foreign)
        return Interpreted(program, segment)
    return native(program, donated, poison, machine, foreign)


def native(
    program: Program,
    donated: Collection[int] = (),
    poison: bool | None = None,
    machine: Backend | None = None,
    foreign: Foreign | None = None,
) -> Executable:
    """Compile a program in one piece; None is the CPU."""
    machine = machine or named("cpu")
    lowered = machine.legalize(lower(program, machine, donated))
    require_kernels(machine, lowered.launches)
    plan = layout(lowered.launches, machine.memory.alignment)
    if wanted() if poison is None else poison:
        lowered = replace(lowered, launches=poisoned(lowered, donated))
    code = machine.build(lowered, plan)
    calls = [HostCall(op, sizes, foreign) for op, sizes in lowered.calls if foreign is not None]
    failures, copies, memory = lowered.failures, lowered.copies, machine.memory
    return Executable(
        program, code, plan, failures, copies, donated, memory, lowered.requires, calls
    )


__all__ = [
    "PRECISIONS",
    "Executable",
    "Unsupported",
    "branches",
    "calls",
    "compile",
    "conv",
    "cpu",
    "gpu",
    "native",
    "gather_scatter",
    "pooling",
    "matmul",
    "register",
    "require_device",
    "movement",
    "loops",
]
