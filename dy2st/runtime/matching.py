"""`match` in converted code: the tests and parts that `dy2st.convert.match_lowering` asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dy2st.runtime.access import del_item, getattr_, load_item
from dy2st.runtime.calls import fn
from dy2st.runtime.control import in_, not_
from dy2st.state.tree import UNDEF

#: classes whose only positional pattern is for the object itself
ITSELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def given(x: object) -> bool:
    return x is not UNDEF


def matches(x: object, kind: str, *of: Any) -> object:
    """Whether `x` fits: "class" with the class and the number of its positional patterns,
    "mapping", "sequence" with a length, and whether it may be longer."""
    if kind == "class":
        return fits(x, *of)
    if kind == "mapping":
        return is_a(x, Mapping)
    length, longer = of
    if not is_a(x, Sequence) or is_a(x, (str, bytes, bytearray)):
        return False
    n = fn(len)(x)
    return n >= length if longer else n == length


def is_a(x: object, kinds: object) -> Any:
    return fn(isinstance)(x, kinds)


def fits(x: object, kind: object, positions: int) -> object:
    if not isinstance(kind, type):
        raise TypeError("called match pattern must be a type")
    known = is_a(x, kind)
    if known is not False and positions > (n := len(positional(kind))):
        named = f"{n} positional sub-pattern{'' if n == 1 else 's'}"
        raise TypeError(f"{kind.__name__}() accepts {named} ({positions} given)")
    return known


def positional(kind: type) -> Sequence[str]:
    """The names of the positional patterns of a class; "" stands for the object itself."""
    itself = ("",) if issubclass(kind, ITSELF) else ()
    found: Any = getattr_(kind, "__match_args__", itself)
    return found  # type: ignore[no-any-return]


def part(x: object, kind: str, *of: Any) -> object:
    """A part of `x`, UNDEF if it has none: the "attribute" or "item" of a name or index, the
    attribute at a "position" of a class, the value of a "key"; a dict of the "rest" without these
    keys, or a list of the elements between so many at the start and the end ("star")."""
    if kind == "attribute":
        return getattr_(x, *of, UNDEF)
    if kind == "position":
        name = positional(of[0])[of[1]]
        return getattr_(x, name, UNDEF) if name else x
    if kind == "item":
        return load_item(x, *of)
    if kind == "key":
        return UNDEF if not_(in_(of[0], x)) else load_item(x, *of)
    if kind == "rest":
        rest = fn(dict)(x)
        for key in of[0]:
            del_item(rest, key)
        return rest
    first, behind = of
    return fn(list)(load_item(x, slice(first, fn(len)(x) - behind)))
