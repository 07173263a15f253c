"""The cache of emitted kernels: launches that differ in addresses only share one.

A kernel is text. What it says depends on the target and on the launch: its kind, its numbers and
expressions, and for each view its element type, shape and strides, and whether it is the same as
one before. The buffers and the offsets of the views are given to it when it is called.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from executor.cpu.kernel_table import kernel
from executor.cpu.llvm_text import LlvmModule
from executor.cpu.target import Target
from executor.launches import Launch
from executor.memory import View
from ir.scalar.language import Scalar, nodes
from ir.types import Dim

#: how many kernels are remembered
KEPT = 512
_RECENT: OrderedDict[Hashable, KernelText] = OrderedDict()
_LOCK = threading.Lock()


@dataclass(frozen=True)
class KernelText:
    """`module` has its function, called `name`, and those that it calls. `actual` is what a caller
    passes: a dim, or the position of a view among those of the launch (`View` tells them apart)."""

    name: str
    module: LlvmModule
    actual: tuple[tuple[bool, Any], ...]


def kernel_of(target: Target, module: LlvmModule, launch: Launch) -> tuple[str, list[View | Dim]]:
    """The name of the kernel of `launch` in `module`, and what to pass to it."""
    views: list[View] = []
    fields = [_key(v, views) for name, v in vars(launch).items() if name != "error"]
    key: Hashable = (target, type(launch), *fields)
    with _LOCK:
        found = _RECENT.get(key)
        if found is not None:
            _RECENT.move_to_end(key)
    if found is None:
        own = LlvmModule()
        call = kernel(target, own, launch)
        found = KernelText(call.finish(own), own, tuple(_origin(q, views) for q in call.actual))
        with _LOCK:
            _RECENT[key] = found
            if len(_RECENT) > KEPT:
                _RECENT.popitem(last=False)
    module.include(found.module)
    return found.name, [views[q] if is_view else q for is_view, q in found.actual]


def clear() -> None:
    """Forget every kernel, so that the next compilation writes its own."""
    with _LOCK:
        _RECENT.clear()


def _origin(actual: View | Dim, views: list[View]) -> tuple[bool, Any]:
    if not isinstance(actual, View):
        return False, actual
    return True, next(k for k, v in enumerate(views) if v is actual)


def _key(value: Any, views: list[View]) -> Hashable:
    """Return the part of a kernel's cache key for a field of its launch; collect the views in
    `views`."""
    if isinstance(value, View):
        views.append(value)
        first = next(k for k, v in enumerate(views) if v is value)
        return value.dtype, value.shape, value.strides, first
    if isinstance(value, Scalar):
        return _expressions((value,))
    if isinstance(value, tuple):
        if value and isinstance(value[0], Scalar):
            return _expressions(value)
        return tuple(_key(v, views) for v in value)
    return (type(value), repr(value)) if isinstance(value, (int, float)) else value


@lru_cache(maxsize=512)
def _expressions(roots: tuple[Scalar, ...]) -> str:
    """Every node by the positions of its arguments, as text, which is hashed once."""
    order = nodes(roots)
    at = {id(s): k for k, s in enumerate(order)}
    lines = [(s.op, s.dtype.name, s.value, *(at[id(a)] for a in s.args)) for s in order]
    return repr((lines, [at[id(r)] for r in roots]))
