"""Merging of a number and a tensor, or an int and a float, that the branches of a condition
leave."""

from __future__ import annotations

from typing import Any

from dy2st.branches.merge_lists import half_element
from dy2st.state.containers.tagged_union import TaggedUnion, is_number
from dy2st.state.guards import is_constant
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import kind_of


def merge_either(merge: Any, name: str, a: object, b: object) -> TaggedUnion | None:
    """The value that is a number or a tensor, depending on data; each of the two may be so already.
    Likewise for an int and a float. None for other values. `merge`: the `Merge` of the branches."""
    numeric = is_number(a) and is_number(b)
    one, two = (numbers(q) if numeric else alternatives(q) for q in (a, b))
    if one is None or two is None or type(a) is type(b) is TaggedUnion:
        return None
    (test, x, s), (other, y, t) = one, two
    decided = merge.test.data or type(a) is TaggedUnion or type(b) is TaggedUnion
    if not decided or x is y is None or s is t is None:
        return None
    number = one_or_both(merge, name, x, y)
    return TaggedUnion(merge.numbers(test, other), number, one_or_both(merge, name, s, t))


def numbers(x: object) -> tuple[object, object, object] | None:
    """Whether a number is an int, the int, the float; None for a bool."""
    if type(x) is TaggedUnion:
        return x.test, x.number, x.tensor
    return {int: (True, x, None), float: (False, None, x)}.get(kind_of(x))  # type: ignore[arg-type]


def alternatives(x: object) -> tuple[object, object, object] | None:
    """Whether `x` is a number, the number, the tensor; None for what is neither."""
    if type(x) is TaggedUnion:
        return None if x.numeric else (x.test, x.number, x.tensor)
    if isinstance(x, Tensor):
        return False, None, x
    return None if kind_of(x) is None else (True, x, None)


def one_or_both(merge: Any, name: str, a: object, b: object) -> object:
    """The merged value; that of one branch alone if the other one has none."""
    if a is not None and b is not None:
        return merge.agreed(name, a, b)
    known, missing = (b, merge.yes) if a is None else (a, merge.no)
    return known if is_constant(known) else half_element(merge, known, missing)


__all__ = ["merge_either"]
