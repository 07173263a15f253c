"""`paddle.static.nn.cond`, `while_loop`, `case` and `switch_case` in translated code.

In eager mode Paddle runs them as Python, and so do the functions here. They are converted like user
code, so a condition on data becomes a `cond` or a `while` of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle
from paddle.static.nn import control_flow
from paddle.utils import map_structure


def cond(
    pred: object,
    true_fn: Any = None,
    false_fn: Any = None,
    name: object = None,
    return_names: object = None,
) -> object:
    """What the function of the side taken returns; None for a side without a function."""
    if not isinstance(pred, paddle.Tensor):
        raise AssertionError("The pred in cond must be Variable")
    if pred.size != 1:
        raise AssertionError("condition input's numel should be 1")
    for key, f in (("true_fn", true_fn), ("false_fn", false_fn)):
        if f is not None and not callable(f):
            raise TypeError(f"The {key} in cond must be callable, but received {type(f).__name__}")
    result = None
    if pred.item():
        if true_fn is not None:
            result = true_fn()
    elif false_fn is not None:
        result = false_fn()
    return result


def while_loop(
    cond: Any, body: Any, loop_vars: Any, is_test: bool = False, name: object = None
) -> object:
    """`loop_vars`, whose tensors are written in place after each iteration, as in eager mode.

    A Python number among them stays what it is.
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
    """What Paddle does with a result and its loop variable: a write if the variable is a tensor."""
    if isinstance(old, paddle.Tensor) and isinstance(new, (paddle.Tensor, bool, float, int)):
        paddle.assign(new, old)


def case(pred_fn_pairs: Any, default: Any = None, name: object = None) -> object:
    """The function of the first true condition; `default`, or else the last one, if none is."""
    pairs = list(pred_fn_pairs)
    for pair in pairs:
        check_pair(pair, "pred_fn_pairs", "case")
        if not callable(pair[1]):
            raise TypeError("The fn of pred_fn_pairs in Op(case) must be callable.")
    if default is None:
        *pairs, (_, default) = pairs
    elif not callable(default):
        raise TypeError("The default in Op(case) must be callable.")
    return chain(pairs, default)()


def switch_case(
    branch_index: object, branch_fns: Any, default: Any = None, name: object = None
) -> object:
    """The function with the key `branch_index`; `default`, or else that of the largest key."""
    index = paddle.cast(branch_index, "int64")
    pairs = list(branch_fns.items() if isinstance(branch_fns, dict) else branch_fns)
    if all(map(callable, pairs)):
        pairs = list(enumerate(pairs))
    check_keys(pairs)
    if default is None:
        *pairs, (_, default) = sorted(pairs)
    elif not callable(default):
        raise TypeError("The default in Op(case) must be callable.")
    tests = [paddle.equal(index, paddle.full([1], key, "int64")) for key, _ in pairs]
    return chain([(test, f) for test, (_, f) in zip(tests, pairs)], default)()


def chain(pairs: list[Any], default: Callable[[], object]) -> Callable[[], object]:
    """A function that tries the conditions in order."""
    out = default
    for pred, f in reversed(pairs):
        out = functools.partial(cond, pred=pred, true_fn=f, false_fn=out)
    return out


def check_keys(pairs: list[Any]) -> None:
    for pair in pairs:
        check_pair(pair, "branch_fns", "switch_case")
        if not isinstance(pair[0], int):
            raise TypeError(f"the key of a branch of switch_case must be an int: {pair[0]!r}")
        if not callable(pair[1]):
            raise TypeError(f"the branch {pair[0]} of switch_case must be callable: {pair[1]!r}")
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"the keys of switch_case must be unique: {keys}")


def check_pair(pair: object, what: str, caller: str) -> None:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"the elements of {what} in {caller} must be tuples of two: {pair!r}")


REWRITTEN: dict[Any, Any] = {
    control_flow.cond: cond,
    control_flow.while_loop: while_loop,
    control_flow.case: case,
    control_flow.switch_case: switch_case,
    cond: cond,
}
