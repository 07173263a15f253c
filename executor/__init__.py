"""Compiles programs of `ir` for the CPU and runs them. Knows no framework.

`compile(program)` gives an `Executable`: call it with NumPy arrays, or `run` it on addresses.
"""

from __future__ import annotations

from executor import branches, cpu, products, rules, scans
from executor.interpret import Foreign, Interpreted
from executor.lower import lower
from executor.plan import layout
from executor.runtime import Executable
from executor.steps import growing, has_foreign
from ir import Program

OWNER = "dy2st"


def compile(program: Program, foreign: Foreign | None = None) -> Executable | Interpreted:
    """Compile a functional program: no op of it writes its operands.

    `foreign(op, arrays, sizes)` runs the ops named `foreign`. A program that has one, or a value
    whose size only a loop without a bound finds, is split into native segments.

    Raises NotImplementedError for an op without a kernel, and ValueError for a program with
    foreign ops and no `foreign`.
    """
    calls = has_foreign(program.ops)
    if calls and foreign is None:
        raise ValueError(f"{program.name} calls foreign kernels, but `foreign` is missing")
    if calls or growing(program.ops):
        return Interpreted(program, foreign, native)
    return native(program)


def native(program: Program) -> Executable:
    """Compile a program without foreign ops."""
    lowered = lower(program, cpu.machine())
    plan = layout(lowered.launches)
    return Executable(program, cpu.build(lowered, plan), plan, lowered.failures)


__all__ = ["OWNER", "Executable", "compile", "branches", "native", "products", "rules", "scans"]
