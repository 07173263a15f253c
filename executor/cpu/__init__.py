"""The CPU backend: LLVM text, compiled by llvmlite."""

from executor.cpu.backend import build, machine, machine_for

__all__ = ["build", "machine", "machine_for"]
