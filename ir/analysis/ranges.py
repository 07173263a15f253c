"""Ranges: the interval in which a number of the program provably stays.

`Ranges` gives the least and the largest value of names: of a loop's index in its body, of the
count of a `while` loop behind it. The bounds of a name may contain names before it, so that those
of an inner loop follow the index of an outer one. A polynomial that is linear in a name takes its
extremes at the ends of that name's range.

    for i < T, j < i:   0 <= j <= i - 1,   the largest i - j is at j = 0 and i = T - 1: T - 1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ir.types import Dim, Size, is_natural, substitute_dim

#: name -> (least, largest), the names of outer loops first
Ranges: TypeAlias = Mapping[str, tuple[Dim, Dim]]


def names_in(d: Dim) -> frozenset[str]:
    return d.names if isinstance(d, Size) else frozenset()


def slope(d: Dim, name: str) -> Dim | None:
    """By how much `d` grows with `name`; None where it is not linear in it."""
    if isinstance(d, Size) and any(names.count(name) > 1 for names, _ in d.terms):
        return None
    return substitute_dim(d, {name: 1}) - substitute_dim(d, {name: 0})


def rises(factor: Dim) -> bool | None:
    """Whether a factor is surely 0 or more (True) or 0 or less (False); None if not known."""
    if is_natural(factor):
        return True
    return False if is_natural(0 - factor) else None


def extreme(d: Dim, ranges: Ranges, largest: bool) -> Dim | None:
    """The largest, or the least, value of `d` in names that have no range; None if not known."""
    for name in reversed(tuple(ranges)):
        if name not in names_in(d):
            continue
        factor = slope(d, name)
        up = None if factor is None else rises(factor)
        if up is None:
            return None
        d = substitute_dim(d, {name: ranges[name][up == largest]})
    return d


__all__ = ["Ranges", "extreme", "names_in", "rises", "slope"]
