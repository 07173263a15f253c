"""The table of adapters, and reading the arguments of Paddle's entries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import paddle

from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import DTYPE_FROM_PADDLE, FakeTensor, Tensor
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import current
from dy2st.trace.user_stack import innermost
from ir.types import Dim, DType

A = TypeVar("A", bound=Callable[..., object])
ADAPTERS: dict[str, Callable[..., Any]] = {}
ALIASES = {"input": "x", "dim": "axis", "other": "y", "keepdims": "keepdim"}


def _most_positional(f: Callable[..., object]) -> float:
    """Return the number of arguments besides the emitter; entries may add a None for `out`."""
    found = inspect.signature(f).parameters.values()
    if any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in found):
        return float("inf")
    return sum(not p.name.startswith("_") for p in found) - 1


def adapter(*names: str) -> Callable[[A], A]:
    def declare(f: A) -> A:
        most = _most_positional(f)

        def call(e: Emitter, *args: object, **kwargs: object) -> object:
            while len(args) > most and args[-1] is None:
                args = args[:-1]
            out = kwargs.pop("out", None)
            if out is not None or kwargs.pop("predefined_out", None) is not None:
                raise NoRow("out=")
            kwargs.pop("name", None)
            named = {ALIASES.get(k, k): v for k, v in kwargs.items()}
            try:
                return f(e, *args, **named)
            except TypeError as error:
                if innermost(error) is error.__traceback__:
                    raise NoRow(str(error)) from None  # it takes other arguments
                raise

        for n in names:
            ADAPTERS[n] = call
        return f

    return declare


def is_number(x: object) -> bool:
    return isinstance(x, (bool, int, float)) or is_symint(x)


def axes_of(axis: object) -> tuple[int, ...]:
    if axis is None:
        return ()
    if isinstance(axis, (list, tuple)):
        return tuple(int_of(a) for a in axis)
    return (int_of(axis),)


def number_of(x: object) -> object:
    """The number that a tensor with one element is known to hold, else `x`."""
    found = elements_of(x)
    return found[0] if found is not None and len(found) == 1 else x


def elements_of(x: object) -> tuple[object, ...] | None:
    """The elements of a tensor, as numbers, if the trace knows them."""
    trace = current()
    return trace.known(x._value) if trace is not None and isinstance(x, FakeTensor) else None


def int_of(a: Any) -> int:
    a = number_of(a)
    if isinstance(a, Tensor) or is_symint(a):
        raise NoRow("an axis that is a tensor")
    if not hasattr(a, "__int__"):
        raise NoRow("an axis that is not a number")
    return int(a)


def dims_of(shape: object) -> tuple[Dim, ...]:
    found = elements_of(shape)
    if not isinstance(shape, Iterable):
        raise NoRow("a shape that is not a list")
    dims = [number_of(d) for d in (shape if found is None else found)]
    if isinstance(shape, Tensor) and found is None or any(isinstance(d, Tensor) for d in dims):
        raise NoRow("a shape that is a tensor")
    return tuple(dim_of(d) for d in dims)


def dtype_of(dtype: object) -> DType:
    if isinstance(dtype, str):
        dtype = getattr(paddle, dtype)
    found = DTYPE_FROM_PADDLE.get(dtype)
    if found is None or found.widened:
        raise NoRow(f"dtype {dtype}")
    return found


def given(dtype: object) -> bool:
    return dtype is not None and str(dtype) not in ("paddle.undefined", "Undefined", "UNDEFINED")
