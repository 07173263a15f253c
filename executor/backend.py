"""The interface of a backend, and the registry of backends by name.

A backend turns a lowered program into code. It is asked in this order: `lower` asks what it prefers
where the launches leave a choice (`executor.lowering.lowerer.Machine`), `legalize` replaces
launches by those that the backend has code for and adds memory for scratch, the plan lays out the
arena with the alignment of the backend's memory, and `build` makes one function of the whole.

A backend is a package beside `executor/cpu`. It registers itself when it is imported, which
`executor/__init__.py` does; nothing else imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from executor.allocation import Memory
from executor.executable import NativeProgram
from executor.launches import STRUCTURE, Launch, Lowered, blocks
from executor.lowering.lowerer import Machine
from executor.plan.arena import ArenaLayout
from ir.loc import UNKNOWN, Loc

#: what operands of products of float32 are rounded to, by the words of JAX and those of PyTorch
PRECISIONS = {
    **{q: q for q in ("float32", "tensorfloat32", "bfloat16")},
    "highest": "float32",
    "high": "tensorfloat32",
    "medium": "bfloat16",
}


def precision_of(name: str | None, what: str = "matmul_precision") -> str | None:
    """Raises ValueError for a word that `what` cannot be."""
    if name is None:
        return None
    if name not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise ValueError(f"{what} is {name!r}; there is {known}")
    return PRECISIONS[name]


class Unsupported(NotImplementedError):
    """A program needs what a backend cannot do, at `loc`."""

    def __init__(self, text: str, loc: Loc = UNKNOWN) -> None:
        super().__init__(f"{text} ({loc})" if loc.line > 0 else text)
        self.text, self.loc = text, loc


class Backend(Machine, Protocol):
    """One way to run programs; the object serves all of them, from several threads at once."""

    @property
    def name(self) -> str: ...

    @property
    def memory(self) -> Memory: ...

    def rounding(self, precision: str) -> Backend:
        """This one, which may round operands of products of float32 to `precision`, a value of
        `PRECISIONS`. One that does not is as good."""
        ...

    def legalize(self, lowered: Lowered) -> Lowered:
        """The same program in launches of `families`, as far as the backend can.

        New buffers are of kind "arena": the plan finds their lives from the launches. What fails
        does so as before, and inputs are written no earlier.
        """
        ...

    def build(self, lowered: Lowered, layout: ArenaLayout) -> NativeProgram:
        """Compile a legalized program whose buffers lie as `layout` says."""
        ...


def require_kernels(backend: Backend, launches: Sequence[Launch]) -> None:
    """Raises NotImplementedError for a launch that the backend has no kernel for."""
    for x in launches:
        if type(x) not in backend.families and not isinstance(x, STRUCTURE):
            raise NotImplementedError(f"backend {backend.name}: no kernel for {type(x).__name__}")
        for inside in blocks(x):
            require_kernels(backend, inside)


_BACKENDS: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    """Make a backend known by its name."""
    assert backend.name not in _BACKENDS, f"two backends named {backend.name}"
    _BACKENDS[backend.name] = backend


def named(name: str) -> Backend:
    """Raises ValueError for a name that no backend has."""
    if name not in _BACKENDS:
        raise ValueError(f"no backend {name!r}; there is {', '.join(sorted(_BACKENDS))}")
    return _BACKENDS[name]
