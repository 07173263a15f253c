"""Portraits of Python values: structure, types, tensors, and which objects are one.

Two portraits are alike if a caller that walks through both values sees no difference. An object
that has been met before is drawn as its number, so `[a, a]` and `[a, b]` differ.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import paddle

PLAIN = (bool, int, float, str, type(None))


def portrait(x: Any, tensors: bool = True) -> Any:
    """The value as nested tuples of constants and arrays; without `tensors` it does not show which
    tensors are one object."""
    return draw(x, {}, tensors)


def draw(x: Any, seen: dict[int, tuple[int, Any]], tensors: bool = True) -> Any:
    if isinstance(x, PLAIN):
        return type(x).__name__, x
    if isinstance(x, tuple):
        return type(x).__name__, tuple(draw(q, seen, tensors) for q in x)
    if isinstance(x, paddle.Tensor) and not tensors:
        return "tensor", 0, str(x.dtype), x.stop_gradient, x.numpy()
    if id(x) in seen:
        return "again", seen[id(x)][0]
    number = len(seen)
    seen[id(x)] = (number, x)
    if isinstance(x, paddle.Tensor):
        return "tensor", number, str(x.dtype), x.stop_gradient, x.numpy()
    return type(x).__name__, number, *contents(x, seen, tensors)


def contents(x: Any, seen: dict[int, tuple[int, Any]], tensors: bool) -> tuple[Any, ...]:
    if isinstance(x, dict):
        return (tuple((draw(k, seen), draw(v, seen, tensors)) for k, v in x.items()),)
    if isinstance(x, collections.deque):
        return x.maxlen, tuple(draw(q, seen, tensors) for q in x)
    if isinstance(x, list):
        return (tuple(draw(q, seen, tensors) for q in x),)
    if isinstance(x, (set, frozenset)):
        return (tuple(sorted(map(repr, x))),)
    return (tuple((k, draw(v, seen, tensors)) for k, v in attributes(x).items()),)


def attributes(x: Any) -> dict[str, Any]:
    slots = [n for k in type(x).__mro__ for n in vars(k).get("__slots__", ()) if hasattr(x, n)]
    return {**{n: getattr(x, n) for n in slots}, **getattr(x, "__dict__", {})}


def difference(a: Any, b: Any, bound: float = 2e-5, flags: bool = True) -> str:
    """What tells two portraits apart; empty if nothing does. `flags`: also which tensors require a
    gradient."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        if not flags and is_tensor(a) and is_tensor(b):
            a, b = (*a[:3], *a[4:]), (*b[:3], *b[4:])
        found = (q for q in (difference(x, y, bound, flags) for x, y in zip(a, b)) if q)
        return next(found, "" if len(a) == len(b) else f"{len(a)} parts instead of {len(b)}")
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.shape == b.shape and np.allclose(a, b, bound, bound, equal_nan=True)
    elif type(a) is float and type(b) is float:
        same = a == b or abs(a - b) <= bound * max(1.0, abs(b))
    else:
        same = type(a) is type(b) and not isinstance(a, np.ndarray) and a == b
    return "" if same else f"{a} is not {b}"


def is_tensor(a: tuple[Any, ...]) -> bool:
    return len(a) == 5 and isinstance(a[0], str) and a[0] == "tensor"
