"""Results of host calls: their types, learned without tracing the call.

A function of a random generator is called on another generator of its class, so that the user's
own keeps its state. Clocks are known by name, marked functions say it themselves.
"""

from __future__ import annotations

import gc
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dy2st.state.arrays import element_type
from dy2st.state.ownership import refuse
from dy2st.trace.scalar import DTYPES, KINDS
from dy2st.trace.trace import current
from dy2st.trace.user_stack import perform
from ir import Size, Type

#: a Python number, an array, a tensor (made of an array), a list of Python numbers, or nothing
ResultKind: TypeAlias = Literal["number", "array", "tensor", "list", "nothing"]
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29)
REMEDY = (
    "Call it outside of the translated function and pass a number or a tensor; or draw an index "
    "`i`, and branch on it (`if i == 0: y = a(x)`) or index a stack of tensors with it."
)


@dataclass(frozen=True)
class HostResult:
    """The result of a host call. `type` is that of the value in the program; None for no result."""

    kind: ResultKind
    type: Type | None = None
    name: str = "a host call"

    def made(self, value: object, sizes: Mapping[str, int]) -> np.ndarray:
        """Return the result of one call as an array of this type; raises TypeError if it does not
        fit."""
        assert self.type is not None
        dtype, shape = self.type.dtype.numpy, self.type.concrete(sizes)
        array = np.asarray(value)
        if self.kind == "list" and not shape[0]:
            array = array.astype(dtype)
        if array.shape != shape or not self.fits(array.dtype):
            have = f"a {type(value).__name__}"
            if isinstance(value, np.ndarray):
                have = f"an array of {array.dtype} with the shape {list(array.shape)}"
            want = f"an array of {dtype} with the shape {list(shape)}" if shape else f"a {dtype}"
            raise TypeError(f"{self.name}() gave {have}, and the program takes {want}")
        return array.astype(dtype, copy=False)

    def fits(self, dtype: np.dtype) -> bool:
        """A number may also be one of NumPy's scalars of fewer bits."""
        assert self.type is not None
        want = self.type.dtype.numpy
        return (
            dtype == want
            or self.kind != "array"
            and (dtype.kind == want.kind and np.can_cast(dtype, want))
        )

    def number(self, value: object, sizes: Mapping[str, int]) -> Any:
        """Return the result of one call as a Python number."""
        assert self.type is not None
        return value if type(value) is KINDS[self.type.dtype] else self.made(value, sizes).item()

    def stacked(
        self, values: Sequence[object], shape: Sequence[int], sizes: Mapping[str, int]
    ) -> np.ndarray:
        """Return the results of the calls of a loop as one array."""
        assert self.type is not None
        if not values:
            return np.empty(shape, self.type.dtype.numpy)
        if self.kind == "number" and set(map(type, values)) == {KINDS[self.type.dtype]}:
            return np.array(values, self.type.dtype.numpy).reshape(shape)
        return np.stack([self.made(q, sizes) for q in values]).reshape(shape)


def number(kind: type) -> HostResult:
    return HostResult("number", Type(DTYPES[kind]))


#: clocks and other functions of the machine: each call gives another number
CLOCKS: dict[Callable[..., object], type | None] = {
    time.time: float, time.perf_counter: float, time.monotonic: float, time.process_time: float,
    time.thread_time: float, time.time_ns: int, time.perf_counter_ns: int, time.monotonic_ns: int,
    time.process_time_ns: int, time.thread_time_ns: int, time.sleep: None,
    secrets.randbelow: int, gc.collect: int,
}  # fmt: skip
#: functions that set the state of NumPy's own generator
SEEDS = (np.random.seed, np.random.set_state)
GENERATORS: dict[type, Callable[[], object]] = {
    random.Random: lambda: random.Random(0),
    np.random.RandomState: lambda: np.random.RandomState(0),
    np.random.Generator: lambda: np.random.default_rng(0),
}
MAKERS = (random.SystemRandom, np.random.default_rng)
#: what `random`'s functions give, for arguments that the program computes
NUMBERS: dict[str, type] = {
    "randint": int, "randrange": int, "getrandbits": int, "uniform": float, "triangular": float,
    "gauss": float, "normalvariate": float, "lognormvariate": float, "expovariate": float,
    "betavariate": float, "gammavariate": float, "paretovariate": float, "vonmisesvariate": float,
    "weibullvariate": float, "binomialvariate": int,
}  # fmt: skip


def generator_of(f: Any) -> Any:
    """The random generator whose method `f` is; None for other functions, and for those that a
    user's class of generators adds."""
    owner = getattr(f, "__self__", None)
    if not isinstance(owner, tuple(GENERATORS)):
        return None
    known = any(hasattr(k, f.__name__) for k in GENERATORS if isinstance(owner, k))
    return owner if known else None


def makes(f: object) -> bool:
    """Whether it makes a random generator."""
    return any(f is q for q in (*GENERATORS, *MAKERS))


# ---------------------------------------------------------------- marked functions
def declared(f: Callable[..., object], spec: Any) -> HostResult:
    """Return the declared result of a function marked with `dy2st.host`, which may raise."""
    trace = current()
    if trace is not None and trace.trying:
        raise refuse(
            f"{f.__name__}() inside of a `try` statement.",
            "The program calls it later, when the handlers of the function are left.",
            "Write the `try` into the function that is called.",
        )
    if spec is None:
        return HostResult("nothing")
    if spec in (bool, int, float):
        return number(spec)
    shape, dtype = spec
    return HostResult("array", Type(element_type(dtype), tuple(int(d) for d in shape)))


# ---------------------------------------------------------------- functions of generators
Arguments: TypeAlias = Callable[[Mapping[str, int]], tuple[list[object], dict[str, object]]]


def probed(
    f: Any, name: str, arguments: Arguments, names: Sequence[str], exact: bool
) -> HostResult:
    """The type of a generator's draw for `arguments`, which follow from the sizes `names`. `exact`
    is false if the program computes some arguments: the probe is made with ones instead."""
    if not exact and isinstance(generator_of(f), random.Random) and f.__name__ in NUMBERS:
        return number(NUMBERS[f.__name__])
    make = next(m for kind, m in GENERATORS.items() if isinstance(generator_of(f), kind))

    def once(sizes: Mapping[str, int]) -> HostResult:
        args, kwargs = arguments(sizes)
        return result_of(name, perform(getattr(make(), f.__name__), *args, **kwargs))

    return affine(once, names) if names else once({})


def result_of(name: str, value: object) -> HostResult:
    if value is None:
        return HostResult("nothing")
    if isinstance(value, np.ndarray):
        return HostResult("array", Type(element_type(value.dtype), value.shape))
    if isinstance(value, list) and all(type(q) is type(value[0]) for q in value):
        kind = type(value[0]) if value else int
        if kind in DTYPES:
            return HostResult("list", Type(DTYPES[kind], (len(value),)))
    value = value.item() if isinstance(value, (np.float64, np.integer, np.bool_)) else value
    if type(value) in DTYPES and (type(value) is not int or -(1 << 63) <= value < 1 << 63):
        return number(type(value))
    raise refuse(
        f"{name}() gives {article(value)} here.",
        "It is called again on every call of the program, which takes numbers of 64 bits and "
        "arrays of numbers.",
        REMEDY,
    )


def article(value: object) -> str:
    """Describe the type of a value, with its article."""
    if type(value) is int:
        return "an integer of more than 64 bits"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def affine(once: Callable[[Mapping[str, int]], HostResult], names: Sequence[str]) -> HostResult:
    """The result for sizes that a call brings: its dims follow from those of a few calls."""
    base = dict(zip(names, PRIMES))
    first = once(base)
    if first.type is None:
        return first
    dims: list[Any] = list(first.type.shape)
    for n in names:
        moved = once({**base, n: base[n] + 1}).type
        assert moved is not None
        for axis, (a, b) in enumerate(zip(first.type.shape, moved.shape)):
            dims[axis] = dims[axis] + (Size.named(n) - base[n]) * (b - a)  # type: ignore[operator]
    found = Type(first.type.dtype, tuple(dims))
    check = {n: v + 3 for n, v in base.items()}
    other = once(check).type
    if other is None or other.shape != found.concrete(check):
        raise refuse(
            "the shape of a random array does not follow from the sizes of the program.",
            "",
            "Give the size as a number in input_spec.",
        )
    return HostResult(first.kind, found)


__all__ = [
    "CLOCKS",
    "GENERATORS",
    "SEEDS",
    "HostResult",
    "declared",
    "generator_of",
    "number",
    "probed",
    "result_of",
]
