"""Arguments of foreign calls as attributes: nested literals in which tensors are operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from dy2st.state.ownership import refuse
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, Tensor, dtype_from
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from ir import Size
from ir.types import DType

KEYS = {bool: "bool", int: "int", float: "float"}


NUMBERS: dict[str, type] = {name: kind for kind, name in KEYS.items()}


# ---------------------------------------------------------------- arguments as attributes
class ArgumentTemplate:
    """Arguments as nested literals: tensors become operands, marked by their position. Numbers in
    lists, which may be sizes, may follow the index of a loop."""

    def __init__(self, trace: Trace, name: str) -> None:
        self.trace, self.name = trace, name
        self.operands: list[Tensor] = []

    def of(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return {"x": self.operand(lift(self.trace, a))}
        if is_runtime_scalar(a):
            return {KEYS[a.kind]: self.operand(self.trace.fake(a.value))}
        if is_symint(a):
            return self.symbol(a)
        if isinstance(a, (list, tuple)):
            return tuple(q.dim if is_symint(q) else self.of(q) for q in a)
        if isinstance(a, slice):
            return {"slice": (self.of(a.start), self.of(a.stop), self.of(a.step))}
        if a is Ellipsis:
            return {"ellipsis": 0}
        return self.literal(a)

    def symbol(self, a: Any) -> object:
        if not a.loops:
            return a.dim
        fake = self.trace.fake(self.trace.index_value(a))
        return {"int": self.operand(fake)}

    def literal(self, a: object) -> Any:
        if isinstance(a, (paddle.CPUPlace, core.Place)):
            return {"place": 0}
        if isinstance(a, (core.DataType, core.VarDesc.VarType)):
            return dtype_from(a)
        if isinstance(a, np.generic):
            a = a.item()
        if a is None or isinstance(a, (bool, int, float, str)):
            return a
        raise refuse(
            f"an object of class {type(a).__name__} is an argument of {self.name}.",
            "A program passes tensors, numbers, text and element types to Paddle.",
            "Pass a number or a tensor that the object holds; or make this call outside of the "
            "translated function.",
            like=TypeError,
        )

    def operand(self, fake: object) -> int:
        for k, q in enumerate(self.operands):
            if q is fake:
                return k
        self.operands.append(fake)
        return len(self.operands) - 1


def rebuild(a: object, tensors: Sequence[object], sizes: Mapping[str, int]) -> object:
    """The argument that a literal stands for."""
    if isinstance(a, tuple):
        return [rebuild(q, tensors, sizes) for q in a]
    if isinstance(a, Size):
        return a.evaluate(sizes)
    if isinstance(a, DType):
        return DTYPE_TO_PADDLE[a]
    if not isinstance(a, dict):
        return a
    ((kind, value),) = a.items()
    if kind == "x":
        return tensors[value]
    if kind in NUMBERS:
        return NUMBERS[kind](tensors[value])
    if kind == "slice":
        return slice(*(rebuild(q, tensors, sizes) for q in value))
    return Ellipsis if kind == "ellipsis" else paddle.CPUPlace()


def reads_numbers(literal: object) -> bool:
    """Whether an argument is a number that is in an operand when the call is made."""
    if isinstance(literal, dict):
        return any(k in NUMBERS or reads_numbers(q) for k, q in literal.items())
    return isinstance(literal, tuple) and any(map(reads_numbers, literal))


def flatten(x: object) -> list[object]:
    if isinstance(x, (list, tuple)):
        return [leaf for q in x for leaf in flatten(q)]
    return [x]


def dims_in(literal: object) -> Iterator[Size]:
    """The sizes that are arguments."""
    if isinstance(literal, Size):
        yield literal
    elif isinstance(literal, tuple):
        for q in literal:
            yield from dims_in(q)


def factors_in(literal: object) -> set[str]:
    """The named sizes and quotients of which the sizes that are arguments consist."""
    return {n for d in dims_in(literal) for n in d.factors}
