"""Stand-ins that code which is not converted has left in an object of the user."""

from __future__ import annotations

from typing import Any

from dy2st.trace.undo import MISSING

#: where the classes of stand-ins are
HOMES = tuple(f"dy2st.{q}." for q in ("trace", "state", "capture", "branches", "loops"))


def put_attr(obj: Any, name: str, value: object) -> None:
    """Another thread may have taken the attribute away."""
    obj.__dict__.pop(name, None)
    if value is not MISSING:
        obj.__dict__[name] = value


def changed(now: tuple[Any, ...], old: tuple[Any, ...], whole: bool) -> bool:
    """Whether other elements are in a container; without `whole`, whether they are stand-ins."""
    known = {id(q) for q in flat(old)}
    if whole and [id(q) for q in flat(now)] != [id(q) for q in flat(old)]:
        return True
    return any(id(q) not in known and is_stand_in(q) for q in flat(now))


def flat(contents: tuple[Any, ...]) -> list[Any]:
    """Elements, and the keys and values of items."""
    return [q for x in contents for q in (x if type(x) is tuple else (x,))]


def is_stand_in(x: object, depth: int = 3) -> bool:
    """Whether an object of a trace stands for, or is in, a value of the user."""
    if type(x) in (tuple, list, dict) and depth:
        parts: Any = x.values() if isinstance(x, dict) else x
        return any(is_stand_in(q, depth - 1) for q in parts)
    return type(x).__module__.startswith(HOMES)
