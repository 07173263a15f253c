"""`print` in a program: a foreign op that writes a text when the program runs, in order.

Its arguments are the text's parts: strings, and marks that say which operand is shown, and how.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base.framework import EagerParamBase

from dy2st.capture.foreign.run import HOST_CALLS
from dy2st.state.arrays import is_array
from dy2st.state.containers.tagged_union import is_int_or_float
from dy2st.state.ownership import refuse
from dy2st.state.strings import PLAIN, FormattedValue, pieces, value_in
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.trace import Trace, current
from ir import Op, Value


def print_(
    *values: object,
    sep: str | None = " ",
    end: str | None = "\n",
    file: Any = None,
    flush: bool = False,
) -> None:
    """`print` in converted code."""
    trace = current()
    if trace is None:
        return print(*values, sep=sep, end=end, file=file, flush=flush)
    if file is not None and file is not sys.stdout and file is not sys.stderr:
        raise refuse(
            f"print to a {type(file).__name__}.",
            "A program writes to sys.stdout and sys.stderr only.",
            "Print to one of those, or return the values and write them outside.",
        )
    parts: list[object] = []
    for i, q in enumerate(values):
        parts += [*(pieces(" " if sep is None else sep) if i else ()), *pieces(q)]
    parts += pieces("\n" if end is None else end)
    record(trace, parts, "stderr" if file is sys.stderr else "stdout", bool(flush))
    return None


def record(trace: Trace, parts: Sequence[object], stream: str, flush: bool) -> None:
    if trace.endings.ahead is not None:
        return  # the call that has failed has written it
    operands: list[Value] = []
    args = (marks_of(trace, parts, operands), stream, flush)
    trace.emit("foreign", operands, {"call": "print", "args": args, "types": (), "writes": ()})
    trace.frame.notes.append(("foreign", trace.where(), "print"))


def marks_of(trace: Trace, parts: Sequence[Any], operands: list[Value]) -> tuple[object, ...]:
    """The parts of a text as literals; the values that it shows are added to `operands`."""
    marks: list[object] = []
    for q in parts:
        if isinstance(q, FormattedValue):
            operands.append(value_in(trace, q.value))
            marks.append({"shown": (len(operands) - 1, q.how, q.spec, *kind_of(q.value))})
        elif q and marks and isinstance(marks[-1], str):
            marks[-1] += q
        elif q:
            marks.append(q)
    return tuple(marks)


def kind_of(x: object) -> tuple[str, bool]:
    """Return the kind of a printed object (a tensor with its stop_gradient, a parameter, an array,
    a number) and a flag. A value that is an int or a float is printed by two numbers: whether it is
    an int, and its value."""
    if is_int_or_float(x):
        return "int or float", True
    if isinstance(x, EagerParamBase):
        return "parameter", bool(x.stop_gradient)
    if is_array(x):
        return "array", True
    return ("tensor", bool(x.stop_gradient)) if isinstance(x, Tensor) else ("number", True)


# ---------------------------------------------------------------- when the program runs
def run(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Write the text."""
    marks, stream, flush = op.attrs["args"]
    print(text_of(marks, arrays), end="", file=getattr(sys, stream), flush=flush)
    return []


def text_of(marks: Sequence[Any], arrays: Sequence[np.ndarray]) -> str:
    return "".join(q if isinstance(q, str) else show(arrays, *q["shown"]) for q in marks)


def show(
    arrays: Sequence[np.ndarray], index: int, how: str, spec: str, kind: str, stop: bool
) -> str:
    array = np.ascontiguousarray(arrays[index]).reshape(arrays[index].shape)
    if kind == "number":
        return PLAIN[how](array.item(), spec)
    if kind == "int or float":
        whole, value = array.tolist()
        return PLAIN[how](int(value) if whole else value, spec)
    if kind == "array":
        return PLAIN[how](array, spec)
    tensor = paddle.to_tensor(array, stop_gradient=stop)
    text = PLAIN[how](tensor, spec)
    plain = how in ("str", "repr") or how == "format" and tensor.ndim
    return f"Parameter containing:\n{text}" if kind == "parameter" and plain else text


HOST_CALLS["print"] = run
