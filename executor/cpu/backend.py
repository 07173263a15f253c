"""The CPU as a backend: LLVM text for the host's vector unit, compiled by llvmlite."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from executor.allocation import HOST, Memory
from executor.backend import register
from executor.cpu.codegen import source
from executor.cpu.jit import JitProgram
from executor.cpu.kernel_table import families
from executor.cpu.kernels.gemm import columns
from executor.cpu.legalize import legalize
from executor.cpu.target import Target, current
from executor.launches import Lowered
from executor.plan.arena import ArenaLayout
from ir.types import Type, product

#: results of an image, in panels, up to which those of all images lie side by side
FEW = 4


@dataclass(frozen=True)
class Cpu:
    """`only`: the target to make code for; None: that of the moment, see `executor.cpu.target`."""

    only: Target | None = None
    name: str = "cpu"
    memory: Memory = HOST

    @property
    def target(self) -> Target:
        return self.only or current()

    def rounding(self, precision: str) -> Cpu:
        return self

    @property
    def families(self) -> Collection[type]:
        return families()

    def joins_images(self, t: Type) -> bool:
        size = product(t.shape[2:])
        if not isinstance(size, int):
            return False
        width = columns(self.target, t.dtype, t.shape[1], size)
        return size < FEW * width and size % width != 0

    def legalize(self, lowered: Lowered) -> Lowered:
        return replace(lowered, launches=legalize(self.target, lowered.launches))

    def build(self, lowered: Lowered, layout: ArenaLayout) -> JitProgram:
        return JitProgram(source(lowered, layout, self.target), self.target)


register(Cpu())


def machine_for(target: Target) -> Cpu:
    return Cpu(target)


def machine() -> Cpu:
    return Cpu()
