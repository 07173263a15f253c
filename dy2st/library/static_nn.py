"""`paddle.static.nn.cond`, `while_loop`, `case` and `switch_case` in translated code.

In eager mode Paddle runs them as Python, which is converted like user code, so a condition on data
becomes a `cond` or a `while` of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle.static.nn import control_flow
from paddle.utils import map_structure


def while_loop(
    cond: Callable[..., paddle.Tensor],
    body: Callable[..., object],
    loop_vars: Sequence[object],
    is_test: bool = False,
    name: object = None,
) -> object:
    """`loop_vars`, whose tensors are written in place after each iteration, as in eager mode.

    A Python number among them stays what it is. The test is a tensor, where Paddle's is the number
    in it: a loop whose test is known at first is one loop.
    """
    if not callable(cond):
        raise TypeError("cond in while_loop should be callable")
    if not callable(body):
        raise TypeError("body in while_loop should be callable")
    if len(loop_vars) == 0:
        raise ValueError("loop_vars in while_loop should not be empty")
    go = cond(*loop_vars)
    if go.size != 1:
        raise TypeError(
            "the shape of the variable returned by cond should be [1],"
            f"but given shape as {list(go.shape)}."
        )
    while go:
        new = body(*loop_vars)
        if not isinstance(new, (list, tuple)):
            new = [new]
        if len(new) != len(loop_vars):
            raise ValueError(
                "body in while_loop should return the same arity "
                "(length and structure) and types as loop_vars"
            )
        go = cond(*new)
        map_structure(overwrite, new, loop_vars)
    return loop_vars


def overwrite(new: object, old: object) -> None:
    """Write a result into its loop variable, as Paddle does, if the variable is a tensor."""
    if isinstance(old, paddle.Tensor) and isinstance(new, (paddle.Tensor, bool, float, int)):
        paddle.assign(new, old)


_AS_WRITTEN = (control_flow.cond, control_flow.case, control_flow.switch_case)
REWRITTEN: dict[Callable[..., object], Any] = {
    **{f: f for f in _AS_WRITTEN},
    control_flow.while_loop: while_loop,
}
