"""Kernel selection: kernels are registered for a kind of launch, with a condition.

    @kernel_for(Gemm, when=few_rows)
    def strip(target: Target, module: Module, g: Gemm) -> Call: ...

The first registration whose condition holds wins. All kernels of a kind are in one module, so their
order is that of the file: special ones first, and last one without a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from executor.cpu.kernel_builder import KernelBuilder
from executor.cpu.llvm_text import LlvmModule
from executor.cpu.target import Target
from executor.launches import Launch

L = TypeVar("L", bound=Launch)
#: makes the kernel of a launch; what it calls goes into the module
KernelEmitter: TypeAlias = Callable[[Target, LlvmModule, L], KernelBuilder]
Condition: TypeAlias = Callable[[Target, L], bool]


@dataclass(frozen=True)
class RegisteredKernel:
    """`when` is None where the kernel serves every launch of its kind."""

    make: KernelEmitter[Any]
    when: Condition[Any] | None


_TABLE: dict[type, list[RegisteredKernel]] = {}


def kernel_for(
    kind: type[L], when: Condition[L] | None = None
) -> Callable[[KernelEmitter[L]], KernelEmitter[L]]:
    def add(make: KernelEmitter[L]) -> KernelEmitter[L]:
        entries = _TABLE.setdefault(kind, [])
        home = {q.make.__module__ for q in entries} | {make.__module__}
        assert len(home) == 1, f"kernels of {kind.__name__} in {', '.join(sorted(home))}"
        assert all(q.when is not None for q in entries), f"{make.__name__} is never reached"
        entries.append(RegisteredKernel(make, when))
        return make

    return add


def families() -> Collection[type]:
    """The kinds of launch that have kernels."""
    return _TABLE.keys()


def matching(target: Target, x: Launch) -> RegisteredKernel | None:
    """The first kernel whose condition holds."""
    found = _TABLE.get(type(x), ())
    return next((q for q in found if q.when is None or q.when(target, x)), None)


def kernel(target: Target, module: LlvmModule, x: Launch) -> KernelBuilder:
    """Raises NotImplementedError where no kernel matches."""
    found = matching(target, x)
    if found is None:
        raise NotImplementedError(f"cpu: no kernel for this {type(x).__name__}")
    call: KernelBuilder = found.make(target, module, x)
    return call
