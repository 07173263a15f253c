"""Host calls: Python calls that are made again on every call of the program, and in every iteration
of a loop, in the user's order. Their numbers and arrays enter the program.

A host call is a `foreign` op with a `Callee`. `dy2st.compiled.host_inputs` makes inputs of those
that can be made before the program runs.
"""

from __future__ import annotations

import contextlib
import logging
import random
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import paddle

from dy2st.capture.foreign.host_results import (
    CLOCKS,
    REMEDY,
    SEEDS,
    HostResult,
    declared,
    generator_of,
    makes,
    number,
    probed,
    result_of,
)
from dy2st.capture.foreign.populations import check_population, is_chosen_by_index, not_shuffled
from dy2st.capture.foreign.print import marks_of, text_of
from dy2st.capture.foreign.reachability import watched
from dy2st.capture.foreign.run import HOST_CALLS
from dy2st.convert.marks import mark_of
from dy2st.state.arrays import is_array, made_array, tensor_of
from dy2st.state.container_writes import change
from dy2st.state.containers.dynamic_lookup import element
from dy2st.state.containers.elements import MOST_NUMBERS
from dy2st.state.effects import name_of as known
from dy2st.state.guards import is_constant
from dy2st.state.ownership import note_contents, refuse
from dy2st.state.strings import LazyText
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Shape, Tensor
from dy2st.trace.scalar import KINDS, RuntimeScalar, is_runtime_scalar, kind_of
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import SymRange, is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform
from ir import Op, Size, Value

#: positional arguments and named ones
Literal: TypeAlias = tuple[tuple[object, ...], tuple[tuple[str, object], ...]]
UNMARKED: object = object()
DRAW = "__dy2st_draw__"
#: the generators of the modules `random` and `numpy.random`
_RANDOM: Any = random.random
_NUMPY: Any = np.random.rand
OWN: dict[int, str] = {id(_RANDOM.__self__): "random", id(_NUMPY.__self__): "numpy.random"}


class Callee(str):
    """The name of a host call's function, with the function.

    owner: the object whose state the call changes: calls of one owner keep their order. None is
    for functions that may change anything. still: the call reads a clock, or acts: it also keeps
    its place in the computation. result: what it gives.
    """

    function: Callable[..., object]
    owner: object
    still: bool
    result: HostResult

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


# ---------------------------------------------------------------- what is a host call
def is_host(f: object) -> bool:
    """Whether a call of `f`, which is not converted, is made again on every call."""
    try:
        known = f in CLOCKS
    except TypeError:
        known = False
    known = known or any(f is q for q in SEEDS) or makes(f) or acts(f)
    return known or generator_of(f) is not None or marked(f) is not UNMARKED


def marked(f: object) -> Any:
    """Return the result that `dy2st.host` declares for `f`, or `UNMARKED`."""
    mark = mark_of(f)
    return mark.result if mark is not None and mark.host else UNMARKED


def host_call(
    trace: Trace, f: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """Record a call of `f`; its result is a stand-in.

    Raises Refused for a function, arguments or a result that a program cannot have.
    """
    name = name_of(f)
    if marked(f) is not UNMARKED:
        result, call = declared(f, marked(f)), watched(trace, f, name, (*args, *kwargs.values()))
        return recorded(trace, Callee.of(name, call, None, True, result), args, kwargs)
    if generator_of(f) is not None:
        return drawn(trace, f, name, args, kwargs)
    if makes(f):
        raise refuse(
            f"{name}() in a translated function.",
            "Every call of the program would have to make the generator again.",
            "Make it outside of the translated function, and draw from it in the function.",
        )
    if acts(f):
        call = watched(trace, action(trace, f), name, (f,))
        callee = Callee.of(name, call, acts, True, HostResult("nothing"))
        return recorded(trace, callee, args, kwargs)
    if f in SEEDS:
        callee = Callee.of(name, f, _NUMPY.__self__, False, HostResult("nothing"))
        return recorded(trace, callee, args, kwargs)
    if f in CLOCKS:
        kind = CLOCKS[f]
        result = HostResult("nothing") if kind is None else number(kind)
        return recorded(trace, Callee.of(name, f, f, True, result), args, kwargs)
    raise refuse(
        f"{name}() in a translated function.",
        "It has side effects, or a different result on every call, of a type unknown to dy2st.",
        f"{REMEDY} A function of your own that gives a number is marked: `dy2st.host(f, "
        "result=float)`.",
    )


def computed_number(
    trace: Trace, f: Any, kind: type, args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """A number that `f`, a pure function, gives for numbers of the program."""
    return recorded(trace, Callee.of(f.__name__, f, f, False, number(kind)), args, kwargs)


def name_of(f: object) -> str:
    """The user's name for a function."""
    owner, name = generator_of(f), str(getattr(f, "__name__", type(f).__name__))
    if owner is not None:
        return f"{OWN.get(id(owner), type(owner).__name__)}.{name}"
    module = {"_warnings": "warnings"}.get(f.__module__, f.__module__)
    return f"{module}.{name}" if f in CLOCKS or f in SEEDS or makes(f) or acts(f) else known(f)


# ---------------------------------------------------------------- draws of libraries
def patched_draws() -> list[tuple[object, str]]:
    """The functions of `random` and `numpy.random` that draw from the modules' own generators."""
    modules: tuple[object, ...] = (random, np.random)
    return [(m, k) for m in modules for k, f in vars(m).items() if id(owner_of(f)) in OWN]


def owner_of(f: object) -> Any:
    return getattr(f, "__self__", None)


def refusing(original: Callable[..., object]) -> Callable[..., object]:
    """A function that draws, for code that is not converted: what it draws while it is traced would
    be drawn once and for all."""

    def call(*args: object, **kwargs: object) -> object:
        if current() is None:
            return original(*args, **kwargs)
        raise refuse(
            f"a function of a library calls {name_of(original)}().",
            "It would draw when the function is traced, not when the program runs.",
            "Call it outside of the translated function, or draw in the function itself.",
        )

    call.__dict__[DRAW] = original
    return call


def drawing(f: object) -> object:
    """The function that `refusing` stands for, else `f`."""
    return f.__dict__.get(DRAW, f) if isinstance(f, types.FunctionType) else f


# ---------------------------------------------------------------- draws
def drawn(trace: Trace, f: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call of a method of a random generator."""
    owner, method = generator_of(f), f.__name__
    if kwargs.get("out") is not None:
        raise refuse(f"{name}(out=...).", "It writes into an array.", "Use what it returns.")
    if method == "shuffle":
        return shuffled(trace, f, owner, name, *args, **kwargs)
    if method in ("choice", "choices", "sample") and isinstance(owner, random.Random):
        named = {k: q for k, q in kwargs.items() if k not in ("population", "seq")}
        population = args[0] if args else kwargs.get("population", kwargs.get("seq"))
        if isinstance(population, TraceList) and population.segmented:
            population.split(trace)
        if is_chosen_by_index(population):
            note_contents(trace, population)
            found = drawn(trace, f, name, (range(len(population)), *args[1:]), named)
            if method == "choice":
                return element(trace, population, list(population), found, "list")
            items = list(population)
            return TraceList([element(trace, population, items, i, "list") for i in found.parts()])
        check_population(name, population)
    template = HostArguments(trace, name, tensors=False)
    literal = template.all(args, kwargs)
    ones = [np.ones((), v.type.dtype.numpy) for v in template.operands]
    names = sorted({n for q in flat(literal) if isinstance(q, Size) for n in q.factors})
    exact = not template.operands
    result = probed(f, name, lambda sizes: rebuilt(literal, ones, sizes), names, exact)
    if result.type is not None and result.type.shape and not exact:
        check_sizes(f, name, literal, template.operands, names, result)
    callee = Callee.of(name, f, owner, False, result)
    return emitted(trace, callee, literal, template.operands)


def check_sizes(
    f: object,
    name: str,
    literal: Literal,
    operands: Sequence[Value],
    names: Sequence[str],
    result: HostResult,
) -> None:
    """The shape of a random array does not follow from numbers that the program computes."""
    twos = [np.full((), 2, v.type.dtype.numpy) for v in operands]
    other = probed(f, name, lambda sizes: rebuilt(literal, twos, sizes), names, False)
    if other.type != result.type:
        raise refuse(
            f"the size in {name}() is a number that the program computes.",
            "The shape of an array has to follow from the shapes of the inputs: `n` and `n // 2`"
            " do, `n // m` and numbers read from tensors do not.",
            "Draw an array of the largest size, and take a part of it.",
        )


def shuffled(
    trace: Trace, f: Any, owner: object, name: str, x: Any, *rest: object, **kwargs: object
) -> None:
    """`shuffle(x)` of a list that the function has made: of numbers of one type, or of what a
    choice may be made from. One from outside has few of them, as each call checks them."""
    short = type(x) is list and not rest and not kwargs and len(x) <= MOST_NUMBERS
    if short and all(kind_of(q) or type(q) is tuple and is_constant(q) for q in x):
        return shuffled_outside(trace, f, owner, name, x)
    if isinstance(x, TraceList) and x.segmented:
        x.split(trace)
    made = isinstance(x, TraceList) and not x.segmented and not rest and not kwargs
    kinds = {type(q) for q in x.parts()} if made else set()
    numbers = len(kinds) <= 1 and kinds <= set(KINDS.values())
    if not made or not numbers and not is_chosen_by_index(x):
        raise not_shuffled(name, x)
    if trace.frame is not x.born:
        raise NeedsConcrete("a list from outside of the loop is shuffled in it")
    items = x.parts()
    values = items if numbers else list(range(len(items)))
    places = drawn_order(trace, f, owner, name, values)
    x.replace_parts(places if numbers else [element(trace, x, items, i, "list") for i in places])


def shuffled_outside(
    trace: Trace, f: Callable[..., object], owner: object, name: str, x: list[object]
) -> None:
    """`shuffle(x)` of a list from outside: which element stands where, as a call decides."""
    change(trace, x)
    items = list(x)
    order = drawn_order(trace, f, owner, name, list(range(len(items))))
    x[:] = [element(trace, items, items, i, "list") for i in order]


def drawn_order(
    trace: Trace, f: Callable[..., object], owner: object, name: str, values: list[object]
) -> list[RuntimeScalar]:
    """Known values as a shuffle leaves them."""

    def permuted() -> list[object]:
        out = list(values)
        f(out)
        return out

    result = result_of(name, values)
    callee = Callee.of(name, permuted, owner, False, result)
    return emitted(trace, callee, ((), ()), []).parts()  # type: ignore[no-any-return]


# ---------------------------------------------------------------- logs and warnings
LEVELS = frozenset("debug info warning warn error critical exception log".split())
#: which warnings have been shown, by file
SHOWN: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}


def acts(f: Any) -> bool:
    """Whether it writes to a log, or warns."""
    if f is warnings.warn:
        return True
    owner = getattr(f, "__self__", None)
    if isinstance(owner, (logging.Logger, logging.LoggerAdapter)):
        return f.__name__ in LEVELS
    return getattr(f, "__module__", None) == "logging" and getattr(f, "__name__", "") in LEVELS


def action(trace: Trace, f: Any) -> Callable[..., None]:
    """Return the function that the program calls for `f`; a warning has the user's line."""
    if f is not warnings.warn:
        return f  # type: ignore[no-any-return]
    loc, filters = trace.where(), [f for _, known in trace.calls.filters for f in known]

    def warn(
        message: Warning | str,
        category: type[Warning] | None = None,
        *rest: object,
        **kwargs: object,
    ) -> None:
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        shown = SHOWN.setdefault(loc.file, {})
        with warnings.catch_warnings() if filters else contextlib.nullcontext():
            for f in filters:
                f()
            warnings.warn_explicit(message, kind, loc.file, loc.line, registry=shown)

    return warn


# ---------------------------------------------------------------- recording
def recorded(
    trace: Trace, callee: Callee, args: Sequence[object], kwargs: Mapping[str, object]
) -> Any:
    template = HostArguments(trace, callee, tensors=callee.owner is None or callee.owner is acts)
    literal = template.all(args, kwargs)
    return emitted(trace, callee, literal, template.operands)


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

__all__ = ["Callee", "computed_number", "host_call", "is_host", "rebuilt", "sizes_in"]
