"""Messages of errors with values of the program in them.

In a message each value has an object replacement character in its place; a `Shown` says how it is
written there, as Python does it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

#: how a value is shown ("str", "repr", "ascii", "format" or "%"), and the format
Shown: TypeAlias = tuple[str, str]
HOLE = "\ufffc"
HOW = ("str", "repr", "ascii", "format", "%")
#: so many values a message has at most
MOST_SHOWN = 8
#: formats that a program may have: their text is short
_SPEC = re.compile(r"%?(.?[<>=^])?[-+ #0,_z]{0,3}\d{0,3}(\.\d{0,3})?[A-Za-z%]?", re.DOTALL)


def is_shown(x: object) -> bool:
    """Whether it is a `Shown`."""
    return (
        isinstance(x, (tuple, list))
        and len(x) == 2
        and x[0] in HOW
        and isinstance(x[1], str)
        and _SPEC.fullmatch(x[1]) is not None
    )


def fits(shown: Shown, value: Any) -> bool:
    """Whether a value of this type can be written so."""
    try:
        return bool(_text(shown, value))
    except (ValueError, TypeError):
        return False


def worded(message: str, shown: Sequence[Shown], values: Sequence[Any]) -> str:
    """The message with the values in it."""
    first, *rest = message.split(HOLE) if shown else [message]
    return first + "".join(_text(q, v) + text for q, v, text in zip(shown, values, rest))


def _text(shown: Shown, value: Any) -> str:
    how, spec = shown
    if how == "%":
        return str(spec % (value,))
    return format(value, spec) if how == "format" else repr(value)


__all__ = ["HOLE", "MOST_SHOWN", "Shown", "fits", "is_shown", "worded"]
