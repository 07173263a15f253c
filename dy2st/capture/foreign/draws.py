"""Random generators in a program: what they draw, the orders that they give, and their seeds.

A draw is a host call of the generator. A choice among numbers is made by the call, one among
tensors by an index that it draws. `paddle.seed` is a foreign op that sets Paddle's generator when
the program runs, in order; every op that draws is a foreign op, too.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.capture.foreign.host_ops import Callee, HostArguments, Literal, emitted, flat, rebuilt
from dy2st.capture.foreign.host_results import HostResult, generator_of, probed, result_of
from dy2st.capture.foreign.run import HOST_CALLS
from dy2st.state.arrays import is_array
from dy2st.state.container_writes import change
from dy2st.state.containers.dynamic_lookup import element, is_called, one_kind, picked
from dy2st.state.containers.elements import MOST_NUMBERS
from dy2st.state.guards import is_constant
from dy2st.state.ownership import note_contents, refuse
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.item import number
from dy2st.trace.scalar import KINDS, RuntimeScalar, is_runtime, is_runtime_scalar, kind_of
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.symint import SymRange
from dy2st.trace.trace import Trace, current
from ir import Op, Size, Value

DRAW = "__dy2st_draw__"
#: the generators of the modules `random` and `numpy.random`
RANDOM: Any = random.random
NUMPY: Any = np.random.rand
OWN: dict[int, str] = {id(RANDOM.__self__): "random", id(NUMPY.__self__): "numpy.random"}


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


def name_of(f: object) -> str:
    """The user's name for a method of a generator."""
    owner = generator_of(f)
    return f"{OWN.get(id(owner), type(owner).__name__)}.{getattr(f, '__name__', '')}"


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


# ---------------------------------------------------------------- populations
def is_chosen_by_index(population: Any) -> bool:
    """Whether a choice among these is that of an index, which the program makes: of tensors, of
    tuples with tensors, or of what can be called."""
    known = isinstance(population, (list, tuple, paddle.nn.LayerList))
    if not known or getattr(population, "segmented", False) or not len(population):
        return False
    return all(map(holds_tensor, population)) or all(map(is_called, population))


def holds_tensor(x: object) -> bool:
    return isinstance(x, Tensor) or type(x) is tuple and any(map(holds_tensor, x))


def check_population(name: str, population: object) -> None:
    """It chooses from numbers of one kind."""
    if isinstance(population, (range, SymRange)) or getattr(population, "segmented", False):
        return
    items = list(population) if isinstance(population, (list, tuple, str)) else []
    if not items or one_kind(items):
        return
    if all(map(kind_of, items)):
        raise refuse(
            f"{name}() of numbers of different types.",
            "The type of its result is known only when the program runs.",
            "Write all of them as floats, or all as integers.",
        )
    raise refuse(
        f"{name}() picks {picked(items)}.",
        "Which one is known only when the program runs. A program chooses between numbers, "
        "tensors, tuples of them, Layers and functions.",
        "Choose between those (`random.choice([paddle.tanh, paddle.sin])(x)`), or draw an index "
        "and branch on it: `i = random.randrange(2)`, `if i == 0: ...`.",
    )


def not_shuffled(name: str, x: object) -> Refused:
    """A shuffle that a program does not make."""
    known: dict[type, str] = {list: "a list from outside", TraceList: "a list of other elements"}
    array = isinstance(x, np.ndarray) or is_array(x)
    what = "an array" if array else known.get(type(x)) or f"a {type(x).__name__}"
    return refuse(
        f"{name}() of {what}.",
        f"A program shuffles lists of numbers, tensors or Layers that the function has made, and "
        f"lists from outside of at most {MOST_NUMBERS} numbers and tuples.",
        "Index a tensor with a random order: `x[numpy.random.permutation(n)]`, or "
        "`i = list(range(n)); random.shuffle(i); x = x[i]`.",
    )


# ---------------------------------------------------------------- seeds
def seed(seed: Any) -> object:
    """`paddle.seed` in converted code. Returns the generator, as Paddle does."""
    trace = current()
    if trace is None:
        return paddle.seed(seed)
    if isinstance(seed, Tensor):
        seed = number(trace, lift(trace, seed), "the argument of seed()")
    operands = []
    if is_runtime(seed):
        operands = [seed.value if is_runtime_scalar(seed) else trace.index_value(seed)]
    args = () if operands else (int(seed),)
    trace.emit("foreign", operands, {"call": "seed", "args": args, "types": (), "writes": ()})
    trace.frame.notes.append(("foreign", trace.where(), "seed"))
    return paddle.framework.core.default_cpu_generator()


def run_seed(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    paddle.seed(int(arrays[0]) if arrays else op.attrs["args"][0])
    return []


HOST_CALLS["seed"] = run_seed

__all__ = ["drawing", "drawn", "name_of", "patched_draws", "refusing", "seed"]
