"""Tagged unions: values that are a number or a tensor, or an int or a float, depending on data.

    total = 0.0
    if x.sum() > 0:
        total = total + x.sum()
    return total * scale            a product of numbers, or of a tensor and a number

Operators, Paddle's functions and the type of the result differ between the two, so each use runs in
a branch for the number and in one for the tensor. An int or a float (`max(0, float(x))`) is a float
where that makes no difference.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import kind_of, known, make, negated, value_in
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform
from ir.types import F64


class TaggedUnion:
    """`number` where `test` is true, `tensor` elsewhere; or the int `number` and the float
    `tensor`."""

    __slots__ = ("number", "tensor", "test")

    def __init__(self, test: Any, number: Any, tensor: Any) -> None:
        self.test, self.number, self.tensor = test, number, tensor
        if (trace := current()) is not None:
            trace.objects.undecided = True

    def here(self) -> Any:
        """The number or the tensor, if the branches around this place single one out."""
        trace = current()
        if type(self.test) is bool:
            return self.number if self.test else self.tensor
        if trace is None:
            return self
        facts = trace.facts_here()
        if facts & known(self.test, "implied"):
            return self.number
        return self.tensor if facts & negated(known(self.test, "implies")) else self

    @property
    def numeric(self) -> bool:
        """Whether it is an int or a float."""
        return not isinstance(self.tensor, Tensor)

    def as_float(self) -> Any:
        """The number as a float."""
        trace, x = current(), self.here()
        if trace is None or x is not self:
            return float(x) if type(x) is int else x
        parts = [self.test.value, *(value_in(trace, q, F64) for q in (x.number, x.tensor))]
        return make(trace, trace.emit("where", parts, {}), self.test, x.number, x.tensor)

    def alternatives(self) -> tuple[Any, Any, Any]:
        """Return the test, the number and the tensor."""
        return self.test, self.number, self.tensor

    def each(self, use: Callable[[Any], object]) -> Any:
        """`use` of the value: of the number in one branch, of the tensor in the other."""
        found, trace = self.here(), current()
        if found is not self or trace is None:
            return use(found)
        return trace.hooks.choose(
            trace, self.test, lambda: use(self.number), lambda: use(self.tensor)
        )

    def __describe__(self) -> str:
        kinds = "an int or a float" if self.numeric else "a number or a tensor"
        return f"{kinds}, depending on data"

    def __repr__(self) -> str:
        return f"<{self.__describe__()}>"


def is_int_or_float(x: object) -> TypeGuard[TaggedUnion]:
    return type(x) is TaggedUnion and x.numeric


def is_number(x: object) -> bool:
    return kind_of(x) is not None or is_int_or_float(x)


def refused(x: TaggedUnion, use: str) -> Refused:
    trace = current()
    assert trace is not None
    numeric = "`max(0.0, y)` and `0.0` instead of 0, `float(n)` instead of n"
    return Refused(
        f"a value that is {x.__describe__()}, is needed now ({use}).",
        trace.where(),
        reason="One branch of a condition on data gives it "
        + ("an int, the other one a float." if x.numeric else "a number, the other one a tensor."),
        remedy=f"Let it be a float always: {numeric}."
        if x.numeric
        else "Begin with a tensor: `total = paddle.zeros([])`.",
    )


def _operator(name: str) -> Callable[..., object]:
    f = getattr(operator, name)

    def method(self: TaggedUnion, *rest: Any) -> object:
        if self.numeric and (found := of_numbers(self, f, False, *rest)) is not NotImplemented:
            return found
        return self.each(lambda x: f(x, *rest))

    return method


def _reflected(name: str) -> Callable[..., object]:
    f = getattr(operator, name)

    def method(self: TaggedUnion, other: Any) -> object:
        if self.numeric and (found := of_numbers(self, f, True, other)) is not NotImplemented:
            return found
        return self.each(lambda x: f(other, x))

    return method


def of_numbers(x: TaggedUnion, f: Any, swapped: bool, *rest: Any) -> object:
    """`f` of an int or float where no branch is needed; NotImplemented elsewhere."""
    name, other = f.__name__, rest[0] if rest else None
    if x.here() is not x:
        return NotImplemented
    if not rest:
        return TaggedUnion(x.test, f(x.number), f(x.tensor))
    if isinstance(other, Tensor):
        trace = current()
        floats = trace is not None and lift(trace, other)._value.type.dtype.differentiable
        known = floats and name in SIMPLE
    else:
        other = other.as_float() if is_int_or_float(other) and name in COMPARED else other
        known = name in COMPARED and kind_of(other) is not None
        known |= name in SIMPLE and kind_of(other) is float
        divides = type(other) in (int, float) and other and not swapped
        known |= name == "truediv" and bool(divides)
    if known:
        pair = (other, x.as_float()) if swapped else (x.as_float(), other)
        return f(*pair)
    if name not in SIMPLE or kind_of(other) not in (bool, int):
        return NotImplemented
    parts = [(other, q) if swapped else (q, other) for q in (x.number, x.tensor)]
    return TaggedUnion(x.test, *(f(*pair) for pair in parts))


def _stop(use: str) -> Callable[..., object]:
    def method(self: TaggedUnion, *args: object) -> Any:
        raise refused(self, use)

    return method


#: operators that give for an int what they give for its float; those that never raise
COMPARED = frozenset("eq ne lt le gt ge".split())
SIMPLE = frozenset("add sub mul".split())


_BINARY = "add sub mul truediv floordiv mod pow matmul"
for _name in f"{_BINARY} eq ne lt le gt ge neg pos abs getitem".split():
    setattr(TaggedUnion, f"__{_name}__", _operator(_name))
for _name in _BINARY.split():
    setattr(TaggedUnion, f"__r{_name}__", _reflected(_name))
_USES = {
    "bool": "its truth, in code that is not translated",
    "int": "an int, in code that is not translated",
    "float": "a float, in code that is not translated",
    "index": "an index, a length or a shape",
    "array": "an array",
    "hash": "a dict key",
    "str": "its text",
    "format": "its text",
    "len": "its length",
    "iter": "iteration",
    "contains": "`in`",
    "setitem": "a store of an item",
}
for _name, _use in _USES.items():
    setattr(TaggedUnion, f"__{_name}__", _stop(_use))


# ---------------------------------------------------------------- calls
def first(values: Iterable[object]) -> TaggedUnion | None:
    """The first of the values that data decides, also in lists and tuples."""
    for x in values:
        found = first(parts_of(x)) if isinstance(x, (list, tuple)) else x
        if type(found) is TaggedUnion:
            return found
    return None


def parts_of(x: object) -> Any:
    return x.raw() if type(x) is TraceList else x


def replaced(x: Any, one: TaggedUnion, value: Any) -> Any:
    """`x` with `value` in the place of `one`, also in lists and tuples, which are made anew."""
    if type(x) is TaggedUnion:
        return value if x is one else x
    if not isinstance(x, (list, tuple)) or first((x,)) is None:
        return x
    parts = [replaced(q, one, value) for q in parts_of(x)]
    return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)


class SplitCall:
    """A function that is not converted: called in a branch for the number and in one for the
    tensor, where one of its arguments is either. One that `shows_numbers` makes a text of them.

    The arguments may be the first that are either (`int(min(x.sum(), n))`): they come later."""

    __slots__ = ("__wrapped__", "trace")

    def __init__(self, trace: Trace, f: Any) -> None:
        self.trace, self.__wrapped__ = trace, f

    def __call__(self, *args: object, **kwargs: object) -> Any:
        f = self.__wrapped__
        one = first((*args, *kwargs.values())) if self.trace.objects.undecided else None
        if one is None or one.numeric and getattr(f, "shows_numbers", False):
            return perform(f, *args, **kwargs)

        def again(value: object) -> Any:
            new = {k: replaced(q, one, value) for k, q in kwargs.items()}
            return self(*(replaced(q, one, value) for q in args), **new)

        return one.each(again)


__all__ = ["TaggedUnion", "SplitCall", "is_int_or_float", "is_number", "refused"]
