"""The CPU backend: LLVM text, compiled by llvmlite. The modules listed first register kernels."""

from executor.cpu.backend import Cpu, machine, machine_for
from executor.cpu.kernels import (
    conv,
    cumulative,
    elementwise,
    fourier,
    gather,
    gemm,
    gemv,
    pack,
    reduce,
    scatter,
    sorting,
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
    "cumulative",
    "sorting",
    "Cpu",
    "machine",
    "machine_for",
]
