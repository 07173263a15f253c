"""Programs whose state is in lists, dicts and objects; test_containers.py runs each.

A program is registered with what becomes of its first loop ("" if it has none, "refused" if it is
not translated), and with functions that make its arguments besides `x`.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import paddle

Makers = tuple[Callable[[], Any], ...]
CASES: dict[str, tuple[Callable[..., Any], str, Makers]] = {}


def case(kind: str, *makers: Callable[[], Any]) -> Callable[[Any], Any]:
    def register(f: Any) -> Any:
        assert f.__name__ not in CASES
        CASES[f.__name__] = (f, kind, makers)
        return f

    return register


def v(value: float) -> Any:
    return paddle.full([2], float(value))


@dataclasses.dataclass
class St:
    h: object
    c: object


class Obj:
    def __init__(self, h: object, n: int = 0) -> None:
        self.h, self.n = h, n


NT = collections.namedtuple("NT", "h c")


def step(x: Any, s: Any) -> Any:
    """Writes the state that it is given, and returns it."""
    s["h"] = paddle.tanh(s["h"] + x)
    return s["h"] * 2, s


def fresh(x: Any, s: Any) -> Any:
    """Makes a new state."""
    return {"h": paddle.tanh(s["h"] + x), "c": s["c"] + s["h"]}
