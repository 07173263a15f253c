"""The boundary of the backend: what lowering must know of it, and the compilation."""

from __future__ import annotations

from executor.cpu.codegen import source
from executor.cpu.jit import Native
from executor.cpu.kernels.gemm import columns, depth, packs
from executor.cpu.target import Target, current
from executor.launches import Lowered
from executor.lower.lowerer import Machine
from executor.plan.arena import Layout


def machine_for(target: Target) -> Machine:
    return Machine(lambda dtype, rows, n: columns(target, dtype, rows, n), depth, packs)


def machine() -> Machine:
    return machine_for(current())


def build(lowered: Lowered, layout: Layout) -> Native:
    target = current()
    return Native(source(lowered, layout, target), target)
