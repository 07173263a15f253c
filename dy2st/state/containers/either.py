"""Values of which data decides whether they are a Python number or a tensor.

    total = 0.0
    if x.sum() > 0:
        total = total + x.sum()
    return total * scale            a product of numbers, or of a tensor and a number

Operators, Paddle's functions and the type of the result differ between the two, so each use runs in
a branch for the number and in one for the tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from dy2st.state.traced_list import TraceList
from dy2st.trace.scalar import known, negated
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current


class Either:
    """`number` where `test` is true, `tensor` elsewhere."""

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
        facts = frozenset().union(*(f.facts for f in trace.frames))
        if facts & known(self.test, "implied"):
            return self.number
        return self.tensor if facts & negated(known(self.test, "implies")) else self

    def alternatives(self) -> tuple[Any, Any, Any]:
        """What it is made of."""
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
        return "a number or a tensor, as data decides"

    def __repr__(self) -> str:
        return f"<{self.__describe__()}>"


def refused(use: str) -> Refused:
    trace = current()
    assert trace is not None
    return Refused(
        f"a value that is a number or a tensor, as data decides, is needed now ({use}).",
        trace.where(),
        reason="One branch of a condition on data gives it a number, the other one a tensor.",
        remedy="Begin with a tensor: `total = paddle.zeros([])`.",
    )


def _operator(name: str) -> Callable[..., object]:
    f = getattr(operator, name)
    return lambda self, *rest: self.each(lambda x: f(x, *rest))


def _reflected(name: str) -> Callable[..., object]:
    f = getattr(operator, name)
    return lambda self, other: self.each(lambda x: f(other, x))


def _stop(use: str) -> Callable[..., object]:
    def method(self: Either, *args: object) -> Any:
        raise refused(use)

    return method


_BINARY = "add sub mul truediv floordiv mod pow matmul"
for _name in f"{_BINARY} eq ne lt le gt ge neg pos abs getitem".split():
    setattr(Either, f"__{_name}__", _operator(_name))
for _name in _BINARY.split():
    setattr(Either, f"__r{_name}__", _reflected(_name))
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
    setattr(Either, f"__{_name}__", _stop(_use))


# ---------------------------------------------------------------- calls
def first(values: Iterable[object]) -> Either | None:
    """The first of the values that data decides, also in lists and tuples."""
    for x in values:
        found = first(parts_of(x)) if isinstance(x, (list, tuple)) else x
        if type(found) is Either:
            return found
    return None


def parts_of(x: object) -> Any:
    return x.raw() if type(x) is TraceList else x


def replaced(x: Any, one: Either, value: Any) -> Any:
    """`x` with `value` in the place of `one`, also in lists and tuples, which are made anew."""
    if type(x) is Either:
        return value if x is one else x
    if not isinstance(x, (list, tuple)) or first((x,)) is None:
        return x
    parts = [replaced(q, one, value) for q in parts_of(x)]
    return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)


def split(trace: Trace, f: Any) -> Any:
    """A function that is not converted: called in a branch for the number and in one for the
    tensor, where one of its arguments is either."""
    if not trace.objects.undecided:
        return f

    def call(*args: object, **kwargs: object) -> Any:
        one = first((*args, *kwargs.values()))
        if one is None:
            return f(*args, **kwargs)

        def again(value: object) -> Any:
            new = {k: replaced(q, one, value) for k, q in kwargs.items()}
            return call(*(replaced(q, one, value) for q in args), **new)

        return one.each(again)

    return call


__all__ = ["Either", "refused", "split"]
