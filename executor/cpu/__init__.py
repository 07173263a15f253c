"""The CPU backend: LLVM text, compiled by llvmlite. The modules listed first register kernels."""

from executor.cpu.backend import Cpu, machine, machine_for
from executor.cpu.kernels import (
    conv,
    elementwise,
    fourier,
    gather,
    gemm,
    gemv,
    pack,
    reduce,
    running,
    scatter,
    selection,
)

__all__ = [
    "conv",
    "elementwise",
    "fourier",
    "gather",
    "gemm",
    "gemv",
    "pack",
    "scatter",
    "reduce",
    "running",
    "selection",
    "Cpu",
    "machine",
    "machine_for",
]
