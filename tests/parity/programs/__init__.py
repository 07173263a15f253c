"""A table of small eager programs, written as users write them; test_programs.py runs each.

A program is a function or a Layer, registered with its arguments:

    @program(x="f32[B,T,4]", h="f32[B,4]", steps="T")
    def smooth(x, h, steps): ...

Text with a type is a tensor of random numbers (`i64`: 0 to 6), text with a size is that size as an
int, lists and dicts hold arguments, anything else is the argument. `by_call(a, b, c)` gives a 0-d
tensor, `values(a, b, c)` a Python value, that differ from call to call. B and T are the sizes that
vary.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

SUBJECTS = (
    "loops", "whiles", "jumps", "branches", "indices", "lists", "state", "buffers", "growing",
    "functions", "syntax", "numbers", "effects", "recurrent",
)  # fmt: skip
DTYPES = {"f32": "float32", "f64": "float64", "i64": "int64", "i32": "int32", "bool": "bool"}
TYPE = re.compile(r"(f32|f64|i64|i32|bool)\[(.*)\]")
PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True)
class ByCall:
    """What differs from call to call: a 0-d tensor, or a Python value."""

    values: tuple[Any, ...]
    tensor: bool


def by_call(*values: Any) -> ByCall:
    """A 0-d tensor with one of these values in each call: bool, int64 or float32."""
    return ByCall(values, True)


def values(*values: Any) -> ByCall:
    """One of these Python values in each call."""
    return ByCall(values, False)


@dataclass(frozen=True)
class Program:
    """One row of the table. `unrolled` says why a loop cannot stay one; `fixed` why its sizes
    cannot be named; `copies` why a result is not the object that eager gives; `least` is the
    smallest T that eager survives; `quick` rows belong to the quick part of the tests."""

    name: str
    code: types.CodeType
    new: Callable[[], Any]
    arguments: dict[str, Any]
    unrolled: str
    fixed: str
    least: int
    copies: str = ""
    quick: bool = False

    @property
    def sizes(self) -> set[str]:
        """Those of B and T that the arguments depend on."""
        return {n for q in texts(list(self.arguments.values())) for n in names_in(q)}

    @property
    def calls(self) -> int:
        """Three, or as many as there are values by call."""
        return max(3, *(len(q.values) for q in self.arguments.values() if isinstance(q, ByCall)), 0)

    def make(self) -> Any:
        """A fresh Layer, a closure of its own, or the function."""
        paddle.seed(1)
        return self.new()

    def args(self, sizes: dict[str, int], call: int) -> list[Any]:
        """The arguments of one call; equal for equal sizes and calls."""
        seed = [zlib.crc32(self.name.encode()), call, *sizes.values()]
        rng = np.random.default_rng(seed)
        return [argument(q, sizes, call, rng) for q in self.arguments.values()]

    def spec(self) -> list[InputSpec]:
        """An InputSpec for each tensor, B and T left open."""
        found = [q for q in texts(list(self.arguments.values())) if TYPE.match(q)]
        return [input_spec(q, f"a{k}") for k, q in enumerate(found)]


def texts(x: Any) -> list[str]:
    """The texts in an argument, in order."""
    if isinstance(x, dict):
        return texts(list(x.values()))
    if isinstance(x, (list, tuple)):
        return [q for part in x for q in texts(part)]
    if isinstance(x, ByCall):
        found = [q for q in x.values if isinstance(q, str)]
        return [f"i64[] {' '.join(found)}" if found else dtype_text(x)] if x.tensor else found
    return [x] if isinstance(x, str) else []


def dtype_text(x: ByCall) -> str:
    kind = type(x.values[0])
    return {bool: "bool[]", int: "i64[]", float: "f32[]"}[kind]


def names_in(text: str) -> set[str]:
    found = TYPE.match(text)
    inside = text[found.end(1) :] if found else text
    return set(re.findall(r"\b[BT]\b", inside))


def argument(x: Any, sizes: dict[str, int], call: int, rng: Any) -> Any:
    if isinstance(x, ByCall):
        value = x.values[call % len(x.values)]
        value = argument(value, sizes, call, rng) if isinstance(value, str) else value
        return scalar(value) if x.tensor else value
    if isinstance(x, dict):
        return {k: argument(q, sizes, call, rng) for k, q in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(argument(q, sizes, call, rng) for q in x)
    if not isinstance(x, str) or not (TYPE.match(x) or x in sizes):
        return x
    return sizes[x] if x in sizes else tensor(x, sizes, rng)


def scalar(value: Any) -> Any:
    return paddle.to_tensor(value, {bool: "bool", int: "int64", float: "float32"}[type(value)])


def dims(text: str, sizes: dict[str, Any]) -> tuple[str, list[Any]]:
    dtype, shape = TYPE.match(text).groups()
    parts = [q.strip() for q in shape.split(",") if q.strip()]
    return dtype, [sizes[q] if q in sizes else int(q) for q in parts]


def tensor(text: str, sizes: dict[str, int], rng: Any) -> Any:
    dtype, shape = dims(text, sizes)
    if dtype == "bool":
        numbers = rng.random(shape) < 0.5
    else:
        numbers = rng.integers(0, 7, shape) if dtype[0] == "i" else rng.normal(size=shape)
    return paddle.to_tensor(numbers, DTYPES[dtype])


def input_spec(text: str, name: str) -> InputSpec:
    dtype, shape = dims(text, {"B": None, "T": None})
    return InputSpec(shape, DTYPES[dtype], name)


def register(f: Any, new: Callable[[], Any], arguments: Any, *marks: Any) -> Any:
    assert f.__name__ not in PROGRAMS, f"two programs are called {f.__name__}"
    code = (f.forward if inspect.isclass(f) else inspect.unwrap(f)).__code__
    PROGRAMS[f.__name__] = Program(f.__name__, code, new, arguments, *marks)
    return f


def program(
    *,
    unrolled: str = "",
    fixed: str = "",
    least: int = 0,
    copies: str = "",
    quick: bool = False,
    **arguments: Any,
) -> Callable[[Any], Any]:
    """Registers a function, or a Layer that is made without arguments."""

    def add(f: Any) -> Any:
        new = f if inspect.isclass(f) else lambda: f
        return register(f, new, arguments, unrolled, fixed, least, copies, quick)

    return add


def closure(*, unrolled: str = "", fixed: str = "", **arguments: Any) -> Callable[[Any], Any]:
    """Registers a function that makes the program: each run has a closure of its own."""

    def add(f: Any) -> Any:
        return register(f, f, arguments, unrolled, fixed, 0)

    return add


for _subject in SUBJECTS:
    importlib.import_module(f"tests.parity.programs.{_subject}")
