"""Compiles programs of `ir` and runs them. Knows no framework.

`compile(program)` gives an `Executable`: call it with NumPy arrays, or `run` it on addresses.
This is where backends are imported, which register themselves; all else finds them by name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from executor import cpu, gpu
from executor.backend import Unsupported, named, register, require_kernels
from executor.executable import Executable
from executor.host_calls import Foreign, HostCall
from executor.lower import (
    branches,
    calls,
    conv,
    gather_scatter,
    loops,
    matmul,
    movement,
    pooling,
)
from executor.lower.program import lower
from executor.plan.arena import layout
from executor.poison import poisoned, wanted
from executor.rooms import Expanding, Replay
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
) -> Executable | Interpreted | Expanding:
    """Compile a functional program: no op of it writes its operands.

    `foreign` runs the ops of that name. A program with a value whose size only a loop without a
    bound finds is split into native segments; one with rooms starts again until they are enough.

    donated: numbers of inputs whose memory the program may use for other values: what is in them
    after a call, also one that fails, is anything. A program in segments or with rooms does
    without.
    poison: fill memory with NaN where its content is dead; None asks `DY2ST_POISON`.
    backend: the name of the backend that compiles it (`executor.backend`).

    Raises NotImplementedError for an op without a kernel, `Unsupported` for what the backend cannot
    do, and ValueError for a program with foreign ops and no `foreign`, and for an unknown backend.
    """
    if foreign is None and any(n.name == "foreign" for n in walk(program.ops)):
        raise ValueError(f"{program.name} calls foreign kernels, but `foreign` is missing")
    if program.rooms:
        replay = None if foreign is None else Replay(foreign)
        return Expanding(_compiled(program, replay, (), poison, backend), replay)
    return _compiled(program, foreign, donated, poison, backend)


def require_device(device: str) -> None:
    """Raises ValueError for what is neither "cpu" nor "gpu", and `executor.gpu.DriverError` where a
    GPU is asked for and cannot be used."""
    if device not in ("cpu", "gpu"):
        raise ValueError(f'device is "cpu" or "gpu", not {device!r}')
    if device == "gpu":
        gpu.require()


def _compiled(
    program: Program,
    foreign: Foreign | None,
    donated: Collection[int],
    poison: bool | None,
    backend: str,
) -> Executable | Interpreted:
    grown = growing(program.ops)
    if grown:
        if not named(backend).memory.on_host:
            loops = (n for n in walk(program.ops) if isinstance(n, Scan) and n.count in grown)
            text = f"a {backend.upper()} cannot collect results of a loop without a bound"
            raise Unsupported(text, next(loops).loc)
        segment = partial(native, poison=poison, backend=backend, foreign=foreign)
        return Interpreted(program, segment)
    return native(program, donated, poison, backend, foreign)


def native(
    program: Program,
    donated: Collection[int] = (),
    poison: bool | None = None,
    backend: str = "cpu",
    foreign: Foreign | None = None,
) -> Executable:
    """Compile a program in one piece."""
    machine = named(backend)
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
