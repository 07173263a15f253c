"""`while_loop` and `cond`: a data-dependent loop and branch, given by functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from dy2st.branches.cond import choose, settled_condition
from dy2st.functional import structure
from dy2st.functional.arguments import ScanState, call, check_function
from dy2st.functional.errors import fault
from dy2st.functional.loops import key_of, repeat_while
from dy2st.functional.structure import Structure, spelled, type_of
from dy2st.library.builtins import SUBSTITUTES
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import current


def while_loop(
    cond: Callable[[object], object], body: Callable[[object], object], init: object
) -> object:
    """`carry = body(carry)` as long as `cond(carry)` holds, from `carry = init`.

    As `jax.lax.while_loop`, in eager code a Python loop, in translated code one `while` of the
    program; gradients go through it. `init` is tensors in nested tuples, lists, dicts and None. A
    step has tensors of its own: the body may write to them in place, and `init` does not change.

    Args:
        cond: a function of the carry that returns a bool, or a tensor with one element.
        body: a function or Layer of the carry that returns the next one, of the same structure,
            shapes and element types.
        init: the first carry. Numbers are tensors without axes. A leaf may be `dy2st.taps(...)`.

    Returns:
        The last carry, in new tensors; a copy of `init` if the condition does not hold at first.

    Raises:
        TypeError: a leaf that is not a tensor, functions that cannot be called with one argument, a
            condition that is neither a bool nor a tensor, or a carry that changes its type.
        ValueError: a condition of several elements.

    Example:
        >>> last = dy2st.while_loop(lambda h: h.max() > 1, lambda h: h / 2, paddle.ones([2]) * 6)
        >>> last.tolist()
        [0.75, 0.75]
    """
    check_function(cond, 1, "while_loop: cond")
    check_function(body, 1, "while_loop: body")
    carry = ScanState("while_loop", init)

    def test() -> object:
        return truth("while_loop: the result of cond", call(cond, carry.given()))

    def step() -> None:
        carry.advance(call(body, carry.given()), "the carry that the body returns")

    repeat_while(test, step, carry, key_of(body))
    return carry.final()


def cond(
    test: object, then: Callable[..., object], orelse: Callable[..., object], *operands: object
) -> Any:
    """`then(*operands)` if `test` holds, else `orelse(*operands)`.

    As `jax.lax.cond`, in eager code an `if`, in translated code one `cond` of the program. A test
    that Python knows chooses while the function is translated.

    Args:
        test: a bool, a number, or a tensor with one element, which holds if it is true or above
            zero.
        then, orelse: functions or Layers of the operands. They return tensors in nested tuples,
            lists, dicts and None, both of one structure, shapes and element types.
        operands: what the functions are given; they may also use tensors from outside.

    Returns:
        What the function returns. Numbers are tensors without axes.

    Raises:
        TypeError: a test of another type, a function that cannot be called with the operands, a
            result that is not a tensor; in translated code also results of different types.
        ValueError: a test of several elements.

    Example:
        >>> x = paddle.to_tensor([1.0, -3.0])
        >>> dy2st.cond(x.sum() > 0, lambda q: q, lambda q: -q, x).tolist()
        [-1.0, 3.0]
    """
    check_function(then, len(operands), "cond: then")
    check_function(orelse, len(operands), "cond: orelse")
    test = truth("cond: test", test)
    trace = current()
    known = test if trace is None else settled_condition(trace, test)
    sides = CondFunctions(operands)
    if trace is None or not is_runtime_scalar(known):
        flat = sides.flat(then if known else orelse, "then" if known else "orelse")
    else:
        try:
            flat = choose(
                trace, known, lambda: sides.flat(then, "then"), lambda: sides.flat(orelse, "orelse")
            )
        except BranchMismatch as stop:
            raise fault(TypeError, str(stop)) from None
    assert sides.like is not None
    return structure.filled(sides.like, iter(flat))


class BranchMismatch(BaseException):
    """Ends the trace of the second branch: its results are not those of the first, whichever of the
    two runs."""


class CondFunctions:
    """The functions of a `cond`, called with the same operands; results have one structure."""

    def __init__(self, operands: tuple[object, ...]) -> None:
        self.operands = operands
        self.like: Structure | None = None
        self.types: list[object] = []
        self.texts: list[str] = []

    def flat(self, f: object, name: str) -> tuple[object, ...]:
        out = call(f, *self.operands)
        first = self.like is None
        if first:
            self.like = structure.structure_of(out)
        assert self.like is not None
        raw = structure.leaves(out, self.like, "the result", self.different)
        names = structure.names(self.like, "the result")
        found = [structure.tensor(x, f"cond: {n} of {name}") for x, n in zip(raw, names)]
        types = list(map(type_of, found))
        for n, x, kind, text in zip(names, found, self.types, self.texts):
            if type_of(x) != kind:
                raise self.different(f"{n} is {spelled(x)}, not {text}")
        if first:
            self.types, self.texts = types, list(map(spelled, found))
        return tuple(found)

    def different(self, text: str) -> BaseException:
        return BranchMismatch(f"cond: the results of then and orelse differ: {text}")


def truth(name: str, x: object) -> object:
    """A condition: a bool, a number or a tensor with one element."""
    if isinstance(x, paddle.Tensor):
        if any(d != 1 for d in x.shape):
            raise fault(ValueError, f"{name} must have one element, it is {spelled(x)}")
        return x
    if isinstance(x, (bool, int, float)) or is_runtime_scalar(x) or is_symint(x):
        return x
    raise fault(TypeError, f"{name} must be a bool or a tensor, it is {structure.described(x)}")


SUBSTITUTES[id(while_loop)] = while_loop
SUBSTITUTES[id(cond)] = cond

__all__ = ["cond", "while_loop"]
