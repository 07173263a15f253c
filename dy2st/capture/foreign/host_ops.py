"""The op of a host call: a `foreign` op with a `Callee` and the arguments of the call as literals.

Values of the program among the arguments are operands, marked by their position; the others are
kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import paddle

from dy2st.capture.foreign.host_results import HostResult
from dy2st.capture.foreign.print import marks_of, text_of
from dy2st.capture.foreign.run import HOST_CALLS
from dy2st.state.arrays import is_array, made_array, tensor_of
from dy2st.state.guards import is_constant
from dy2st.state.ownership import note_contents, refuse
from dy2st.state.strings import LazyText
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Shape, Tensor
from dy2st.trace.scalar import RuntimeScalar, is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import SymRange, is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import perform
from ir import Op, Size, Value

#: positional arguments and named ones
Literal: TypeAlias = tuple[tuple[object, ...], tuple[tuple[str, object], ...]]


class Callee(str):
    """The name of a host call's function, with the function.

    owner: the object whose state the call changes: calls of one owner keep their order. None is
    for functions that may change anything. still: the call reads a clock, or acts: it also keeps
    its place in the computation. result: what it gives. repeats: a call of the program that has
    failed can be made again, with the same result of this one.
    """

    function: Callable[..., object]
    owner: object
    still: bool
    result: HostResult
    repeats = False

    @staticmethod
    def of(
        name: str, function: Callable[..., object], owner: object, still: bool, result: HostResult
    ) -> Callee:
        out = Callee(name)
        out.function, out.owner, out.still = function, owner, still
        out.result = replace(result, name=name)
        return out


class HeldArgument(str):
    """The text of an argument that is not a literal, with the argument."""

    value: object

    @staticmethod
    def of(value: object) -> HeldArgument:
        out = HeldArgument(f"<{type(value).__name__}>")
        out.value = value
        return out


# ---------------------------------------------------------------- recording
def emitted(trace: Trace, callee: Callee, literal: object, operands: Sequence[Value]) -> Any:
    result = callee.result
    types = () if result.type is None else (result.type,)
    attrs = {"call": "host", "args": (callee, literal), "types": types, "writes": ()}
    value = trace.emit("foreign", operands, attrs)
    trace.frame.notes.append(("host", trace.where(), str(callee)))
    if result.kind == "nothing":
        return None
    trace.values.hosted[value] = f"{callee}()"
    if result.kind == "number":
        return RuntimeScalar(value, trace)
    if result.kind == "tensor":
        return trace.fake(value)
    array = made_array(trace, trace.fake(value))
    return array if result.kind == "array" else TraceList(list(array))


class HostArguments:
    """Arguments as literals: values of the program become operands, marked by their position.

    tensors: the function takes tensors and arrays, too.
    """

    def __init__(self, trace: Trace, name: str, tensors: bool) -> None:
        self.trace, self.name, self.tensors = trace, name, tensors
        self.operands: list[Value] = []

    def all(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Literal:
        for a in (*args, *kwargs.values()):
            note_contents(self.trace, a)
        return tuple(map(self.of, args)), tuple((k, self.of(v)) for k, v in kwargs.items())

    def of(self, a: Any) -> Any:
        if is_symint(a):
            return self.operand("number", self.trace.index_value(a)) if a.loops else a.dim
        if is_runtime_scalar(a):
            return self.operand("number", a.value)
        if isinstance(a, Tensor) or is_array(a):
            return self.tensor(a)
        if isinstance(a, SymRange):
            return {"range": tuple(map(self.of, (a.start, a.stop, a.step)))}
        if isinstance(a, (list, tuple)):
            if isinstance(a, TraceList) and a.segmented:
                raise NeedsConcrete(f"a list that a loop has filled is an argument of {self.name}")
            if type(a) in (tuple, list, TraceList):
                return {"tuple" if isinstance(a, tuple) else "list": tuple(map(self.of, a))}
            if isinstance(a, (Shape, paddle.Size)):
                return {"size": tuple(map(self.of, a))}
            if hasattr(a, "_fields"):
                return {"named": (HeldArgument.of(type(a)), *map(self.of, a))}
        if a is None or type(a) in (bool, int, float):
            return a
        if type(a) is LazyText and self.tensors:
            return {"text": marks_of(self.trace, a.parts, self.operands)}
        return HeldArgument.of(self.known(a))

    def operand(self, kind: str, value: Value) -> dict[str, int]:
        self.operands.append(value)
        return {kind: len(self.operands) - 1}

    def tensor(self, a: object) -> dict[str, int]:
        if self.tensors:
            stop = isinstance(a, Tensor) and a.stop_gradient
            kind = "array" if is_array(a) else "tensor" if stop else "trained"
            return self.operand(kind, lift(self.trace, tensor_of(a))._value)
        what = "an array that the program computes" if is_array(a) else "a tensor"
        raise refuse(
            f"{self.name}() of {what}.",
            "The program calls it with Python numbers.",
            "Draw first and compute with the result (`x[numpy.random.permutation(n)]`), or pass a "
            "number: `float(x)`.",
        )

    def known(self, a: object) -> Any:
        """A Python object that the call gets as it is."""
        if isinstance(a, np.ndarray):
            return a.copy()
        constant = is_constant(a) or isinstance(a, (type, np.dtype, np.generic))
        made = id(a) in self.trace.objects.made or str(type(a).__module__).startswith("dy2st.")
        if constant or self.tensors and not (made or isinstance(a, (dict, set))):
            return a
        raise refuse(
            f"an argument of {self.name}() is a {a.__class__.__name__}.",
            "The program calls it with numbers, text and lists of them"
            + (", tensors, and objects that were there before the call." if self.tensors else "."),
            "Pass numbers, and build the object in the function that is called.",
        )


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple, "list": list, "range": lambda parts: range(*parts), "size": paddle.Size,
    "named": lambda parts: parts[0](*parts[1:]),
}  # fmt: skip


def rebuilt(
    literal: Literal, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> tuple[list[object], dict[str, object]]:
    """The arguments of one call."""
    positional, named = literal
    return [value_of(q, arrays, sizes) for q in positional], {
        k: value_of(q, arrays, sizes) for k, q in named
    }


def value_of(a: object, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> object:
    if isinstance(a, HeldArgument):
        return a.value
    if isinstance(a, Size):
        return a.evaluate(sizes)
    if not isinstance(a, dict):
        return a
    ((kind, given),) = a.items()
    if kind in CONTAINERS:
        return CONTAINERS[kind]([value_of(q, arrays, sizes) for q in given])
    if kind == "text":
        return text_of(given, arrays)
    array = np.ascontiguousarray(arrays[given]).reshape(arrays[given].shape)
    if kind in ("tensor", "trained"):
        return paddle.to_tensor(array, stop_gradient=kind == "tensor")
    return array.item() if kind == "number" else array.copy()


def flat(literal: object) -> list[Any]:
    """The arguments, those in lists and tuples one by one."""
    if isinstance(literal, dict):
        literal = tuple(literal.values())
    return [q for part in literal for q in flat(part)] if isinstance(literal, tuple) else [literal]


def sizes_in(literal: object) -> set[str]:
    """The named sizes of the arguments."""
    return {n for q in flat(literal) if isinstance(q, Size) for n in q.names}


# ---------------------------------------------------------------- when the program runs
def run(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Make the call of a host call that stands in the program."""
    callee, literal = op.attrs["args"]
    args, kwargs = rebuilt(literal, arrays, sizes)
    out = perform(callee.function, *args, **kwargs)
    return [] if callee.result.type is None else [callee.result.made(out, sizes)]


HOST_CALLS["host"] = run

__all__ = [
    "Callee", "HostArguments", "Literal", "emitted", "flat", "rebuilt", "sizes_in",
]  # fmt: skip
