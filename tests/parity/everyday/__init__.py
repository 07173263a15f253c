"""Small models as a new user writes them, in the style of common repositories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle


@dataclass(frozen=True)
class Everyday:
    """One model: `make()` builds it, `args()` are fresh arguments; `trained`: with gradients."""

    make: Callable[[], Any]
    args: Callable[[], list[Any]]
    trained: bool


MODELS: dict[str, Everyday] = {}


def model(*args: Callable[[], Any], trained: bool = True) -> Callable[[Any], Any]:
    """Register a Layer class or a function; `args` make its arguments."""

    def register(f: Any) -> Any:
        make = f if isinstance(f, type) else lambda: f
        MODELS[f.__name__] = Everyday(make, lambda: [a() for a in args], trained)
        return f

    return register


def floats(*shape: int, seed: int = 0) -> Callable[[], Any]:
    array = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return lambda: paddle.to_tensor(array)


def integers(high: int, *shape: int, seed: int = 0) -> Callable[[], Any]:
    array = np.random.default_rng(seed).integers(0, high, shape)
    return lambda: paddle.to_tensor(array)


def const(value: Any) -> Callable[[], Any]:
    return lambda: value
