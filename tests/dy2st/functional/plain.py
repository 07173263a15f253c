"""The functions of `dy2st.functional` as plain Python loops, and how both are compared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paddle

import dy2st
from tests.check import BOUNDS, agree, close, detached, same, step, tensors


def mapped(f: Callable[..., Any], x: Any, *more: Any) -> Any:
    """`f` of the leaves of structures."""
    if x is None:
        return None
    if isinstance(x, dict):
        return {k: mapped(f, v, *(q[k] for q in more)) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        parts = [mapped(f, *q) for q in zip(x, *more)]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return f(x, *more)


def leaves(x: Any) -> list[Any]:
    out: list[Any] = []
    mapped(out.append, x)
    return out


def scan(
    body: Any, init: Any, xs: Any, length: Any = None, reverse: bool = False, axis: int = 0
) -> Any:
    """`jax.lax.scan` as its documentation writes it."""
    if xs is not None and length is None:
        length = leaves(xs)[0].shape[axis]
    carry, ys = mapped(paddle.clone, init), []
    for k in range(length):
        t = length - 1 - k if reverse else k
        x = mapped(functools.partial(picked, axis=axis, t=t), xs)
        carry, y = body(mapped(paddle.clone, carry), x)
        ys.append(mapped(paddle.clone, y))
    ys = ys[::-1] if reverse else ys
    return carry, mapped(lambda *q: paddle.stack(q, axis), *ys)


def picked(x: Any, axis: int, t: int) -> Any:
    """Step t, in memory of its own."""
    return paddle.index_select(x, paddle.to_tensor([t]), axis).squeeze(axis)


def check(f: Callable[..., Any], plain: Callable[..., Any], *args: Any) -> Any:
    """`f` does in eager code what `plain` does, gradients included, and translated what it does in
    eager code. Returns the translated function."""
    one, two = detached(args), detached(args)
    want, wanted = step(plain, one, tensors(one))
    have, had = step(f, two, tensors(two))
    same(have, want, rtol=BOUNDS["float64"], atol=BOUNDS["float64"], what="eager")
    for k, (a, b) in enumerate(zip(had, wanted, strict=True)):
        close(a, b, BOUNDS["float64"], f"eager: gradient of argument {k}")
    return agree(f, *args)


def kinds(static: Any, *args: Any) -> Sequence[str]:
    """What became of each loop, from the report."""
    loops = (replace(q, states=()) for q in dy2st.report(static, *args).loops)
    return [str(q).partition(": ")[2] for q in loops]


class Function(paddle.nn.Layer):
    """A function as a Layer, for `tests.check.parity`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)
