"""Errors for variables whose values in the two branches of a condition on data cannot be merged."""

from __future__ import annotations

from dy2st.branches.unresolved import remedy_of
from dy2st.state.tree import describe
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import kind_of
from dy2st.trace.undo import ItemLocation, Location
from dy2st.trace.user_stack import user_name


def difference(what: str, a: object, b: object, loop: bool) -> tuple[str, str, str]:
    """The message, reason and remedy for values `a` and `b` of `what`, at the condition; `loop`: at
    that of a loop."""
    sides = f"{describe(a)} where the condition holds, {describe(b)} where it does not."
    if {kind_of(a), kind_of(b)} == {int, float}:
        return (
            f"{what} is an int in one branch of a condition on data, a float in the other.",
            f"It is {sides}",
            "Let it be a float in both: `0.0` instead of `0`, `float(n)` instead of `n`.",
        )
    tensors = isinstance(a, Tensor) and isinstance(b, Tensor)
    if tensors and loop:
        return (
            f"{what} changes its type in a loop that data ends.",
            f"It is {describe(a)} after an iteration, {describe(b)} before it.",
            "Give it before the loop the type that it has after an iteration.",
        )
    if tensors or kind_of(a) or kind_of(b):
        return (
            f"{what} has different types in the branches of a condition on data.",
            f"It is {sides}",
            "Give it the same type and shape in both branches, or decide on a Python value.",
        )
    return (
        f"{what} depends on a condition on data: {sides[:-1]}.",
        "A program chooses between tensors of one type and between numbers, not between other "
        "Python objects.",
        remedy_of(what, a, b),
    )


def absence(place: Location, a: object, b: object) -> tuple[str, str, str]:
    """The message, reason and remedy for a place that only one branch sets."""
    shown, remedy = str(place), "Set it before the branch."
    if isinstance(place, ItemLocation):
        name = user_name(place.obj)
        shown = f"{name}[{place.index!r}]" if name else shown
        remedy = (
            "Set it before the branch; in a comprehension keep all keys, and choose the values: "
            "`{k: v if c else 0 * v ...}`."
        )
    return (
        f"{shown} is set in only one branch of a condition on data.",
        f"It is {describe(a)} where the condition holds, {describe(b)} elsewhere.",
        remedy,
    )


def lengths(target: str, a: str, b: str) -> tuple[str, str, str]:
    """The same for containers that the branches leave with other keys or lengths."""
    return (
        target,
        f"It has {a} where the condition holds, {b} elsewhere.",
        "Change it in both branches alike, or select with `paddle.where`.",
    )


def changing_keys(what: str, a: object) -> tuple[str, str, str]:
    """The same for a dict or object whose keys a branch changes, and which is one of two."""
    return (
        f"{what} is a {type(a).__name__} that data chooses, and its keys change.",
        "A branch of the condition deletes one, or sets one that was not there.",
        "Change the keys after the branches, or set them before.",
    )


__all__ = ["absence", "changing_keys", "difference", "lengths"]
