"""Error messages that contain values of the program.

In a message each value has an object replacement character in its place; a `Shown` says how it is
written there: as Python writes a number, or as Paddle writes a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

#: how a value is shown: a number by "str", "repr", "ascii", "format" or "%", with the format; a
#: "tensor" or "parameter" with its stop_gradient ("True"); an "array" by "str" or "repr"
Shown: TypeAlias = tuple[str, str]
HOLE = "\ufffc"
HOW = ("str", "repr", "ascii", "format", "%")
#: kinds of values that are shown with their axes, and what is said of them
WHOLE = {"tensor": ("True", "False"), "parameter": ("True", "False"), "array": ("str", "repr")}
#: so many values a message has at most
MOST_SHOWN = 8
#: Paddle writes so many elements at each end of an axis of a tensor with more than THRESHOLD
EDGE, THRESHOLD, DIGITS, COLUMNS = 3, 1000, 8, 80
#: formats that a program may have: their text is short
_SPEC = re.compile(r"%?(.?[<>=^])?[-+ #0,_z]{0,3}\d{0,3}(\.\d{0,3})?[A-Za-z%]?", re.DOTALL)


def is_shown(x: object) -> bool:
    """Whether it is a `Shown`."""
    if not (isinstance(x, (tuple, list)) and len(x) == 2 and all(isinstance(q, str) for q in x)):
        return False
    how, spec = x
    return spec in WHOLE[how] if how in WHOLE else how in HOW and bool(_SPEC.fullmatch(spec))


def fits(shown: Shown, one: np.ndarray) -> bool:
    """Whether values with the type of this one can be written so."""
    try:
        return bool(_text(shown, one))
    except (ValueError, TypeError):
        return False


def worded(message: str, shown: Sequence[Shown], values: Sequence[np.ndarray]) -> str:
    """The message with the values in it."""
    first, *rest = message.split(HOLE) if shown else [message]
    return first + "".join(_text(q, v) + text for q, v, text in zip(shown, values, rest))


def _text(shown: Shown, array: Any) -> str:
    how, spec = shown
    if how in WHOLE:
        if how == "array":
            return str(array[()]) if spec == "str" else repr(array[()])
        return tensor(how, spec, array)
    value = array.item()
    if how == "%":
        return str(spec % (value,))
    return format(value, spec) if how == "format" else repr(value)


# ---------------------------------------------------------------- tensors, as Paddle writes them
def tensor(kind: str, stop_gradient: str, x: np.ndarray) -> str:
    """`repr` of a Paddle tensor on the CPU, under the options that Paddle begins with."""
    summary = x.size > THRESHOLD
    items = [_item(q) for q in _edges(x).flatten()]
    width = max(map(len, items), default=0)
    body = _rows(x, summary, 7, width, any(q < 0 for q in _edges(x).flatten()))
    head = f"shape={list(x.shape)}, dtype={x.dtype.name}, place=Place(cpu)"
    text = f"Tensor({head}, stop_gradient={stop_gradient},\n       {body})"
    return f"Parameter containing:\n{text}" if kind == "parameter" else text


def _edges(x: np.ndarray) -> np.ndarray:
    """The elements at both ends of each axis, which decide how wide a column is."""
    for axis, n in enumerate(x.shape):
        if n > 2 * EDGE:
            x = np.take(x, [*range(EDGE), *range(n - EDGE, n)], axis)
    return x


def _item(x: Any, width: int = 0, signed: bool = False) -> str:
    text = str(x)
    if x.dtype.kind == "f":
        text = f"{x:.0f}." if np.ceil(x) == x else f"{x:.{DIGITS}f}"
    return (text if not signed or x < 0 or width <= len(text) else " " + text).ljust(width)


def _rows(x: np.ndarray, summary: bool, indent: int, width: int, signed: bool) -> str:
    if x.ndim == 0:
        return _item(x[()], width, signed)
    short = summary and len(x) > 2 * EDGE
    inner = [_rows(q, summary, indent + 1, width, signed) for q in (x[:EDGE] if short else x)]
    if short:
        inner += ["...", *(_rows(q, summary, indent + 1, width, signed) for q in x[-EDGE:])]
    step = max(1, (COLUMNS - indent) // (width + 2)) if x.ndim == 1 else 1
    lines = [", ".join(inner[k : k + step]) for k in range(0, len(inner), step)]
    gap = "\n" * max(1, x.ndim - 1) + " " * (indent + 1)
    return f"[{(',' + gap).join(lines)}]"


__all__ = ["HOLE", "MOST_SHOWN", "Shown", "fits", "is_shown", "worded"]
