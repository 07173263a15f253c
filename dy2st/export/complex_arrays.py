"""Complex arrays of a saved program, which represents them as pairs of floats.

The manifest's entry `complex` gives the numbers of the inputs and outputs that are complex.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dy2st.export.limits import FileError
from executor.gpu.arrays import DeviceArray
from ir import Program, Type, Value
from ir.types import COMPLEX, complex_type

Some = TypeVar("Some", np.ndarray, DeviceArray)


@dataclass(frozen=True)
class ComplexArrays:
    """The inputs and outputs of a program that are complex arrays to its caller."""

    program: Program
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()

    def input_type(self, k: int) -> Type:
        return _type(self.program.inputs[k].value, k in self.inputs)

    def output_type(self, k: int) -> Type:
        found: Type = self.program.outputs[k].type
        return complex_type(found) if k in self.outputs else found


def _type(v: Value, is_complex: bool) -> Type:
    return complex_type(v.type) if is_complex else v.type


def read_complex(program: Program, manifest: Mapping[str, object]) -> ComplexArrays:
    """Raises FileError for an entry that does not fit the program."""
    entry = manifest.get("complex", {"inputs": [], "outputs": []})
    if not isinstance(entry, dict) or entry.keys() != {"inputs", "outputs"}:
        raise FileError("its entry of complex arrays has no inputs and outputs")
    found = []
    for name, values in (
        ("inputs", [i.value for i in program.inputs]),
        ("outputs", list(program.outputs)),
    ):
        numbers = entry[name]
        if not isinstance(numbers, list):
            raise FileError(f"its complex {name} are no list")
        for k in numbers:
            if type(k) is not int or not 0 <= k < len(values):
                raise FileError(f"it has no number {k!r:.80} among its {name}")
            t = values[k].type
            if t.dtype not in COMPLEX or t.shape[-1:] != (2,):
                raise FileError(f"{t} among its {name} are no pairs of floats")
        found.append(frozenset(numbers))
    return ComplexArrays(program, *found)


def pairs_of(a: Some) -> Some:
    """A contiguous complex array as pairs of floats on the same memory."""
    part, shape = np.dtype(f"float{a.dtype.itemsize * 4}"), (*a.shape, 2)
    if isinstance(a, DeviceArray):
        return a.seen_as(part, shape)
    return a.reshape(-1).view(part).reshape(shape)


def complex_of(a: Some) -> Some:
    """Pairs of floats as a complex array on the same memory, if they are contiguous."""
    whole = np.dtype(f"complex{a.dtype.itemsize * 16}")
    if isinstance(a, DeviceArray):
        return a.seen_as(whole, a.shape[:-1])
    return np.ascontiguousarray(a).reshape(-1).view(whole).reshape(a.shape[:-1])


__all__ = ["ComplexArrays", "complex_of", "pairs_of", "read_complex"]
