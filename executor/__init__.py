"""Compiles programs of `ir` and runs them. Knows no framework.

`compile(program)` gives an `Executable`: call it with NumPy arrays, or `run` it on addresses.
This is where backends are imported, which register themselves; all else finds them by name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from executor import cpu
from executor.backend import named, register, require_kernels
from executor.executable import Executable
from executor.lower import branches, conv, gather_scatter, loops, matmul, movement, pooling
from executor.lower.program import lower
from executor.plan.arena import layout
from executor.poison import poisoned, wanted
from executor.segmented.interpreter import Foreign, Interpreted
from executor.segmented.partition import growing, has_foreign
from ir import Program


def compile(
    program: Program,
    foreign: Foreign | None = None,
    donated: Collection[int] = (),
    poison: bool | None = None,
    backend: str = "cpu",
) -> Executable | Interpreted:
    """Compile a functional program: no op of it writes its operands.

    `foreign(op, arrays, sizes)` runs the ops named `foreign`. A program that has one, or a value
    whose size only a loop without a bound finds, is split into native segments.

    donated: numbers of inputs whose memory the program may use for other values: what is in them
    after a call, also one that fails, is anything. A program in segments does without.
    poison: fill memory with NaN where its content is dead; None asks `DY2ST_POISON`.
    backend: the name of the backend that compiles it (`executor.backend`).

    Raises NotImplementedError for an op without a kernel, and ValueError for a program with
    foreign ops and no `foreign`, and for an unknown backend.
    """
    calls = has_foreign(program.ops)
    if calls and foreign is None:
        raise ValueError(f"{program.name} calls foreign kernels, but `foreign` is missing")
    if calls or growing(program.ops):
        return Interpreted(program, foreign, partial(native, poison=poison, backend=backend))
    return native(program, donated, poison, backend)


def native(
    program: Program,
    donated: Collection[int] = (),
    poison: bool | None = None,
    backend: str = "cpu",
) -> Executable:
    """Compile a program without foreign ops."""
    machine = named(backend)
    lowered = machine.legalize(lower(program, machine, donated))
    require_kernels(machine, lowered.launches)
    plan = layout(lowered.launches, machine.memory.alignment)
    if wanted() if poison is None else poison:
        lowered = replace(lowered, launches=poisoned(lowered, donated))
    code = machine.build(lowered, plan)
    failures, copies = lowered.failures, lowered.copies
    requires = lowered.requires
    return Executable(program, code, plan, failures, copies, donated, machine.memory, requires)


__all__ = [
    "Executable",
    "branches",
    "compile",
    "conv",
    "cpu",
    "native",
    "gather_scatter",
    "pooling",
    "matmul",
    "register",
    "movement",
    "loops",
]
