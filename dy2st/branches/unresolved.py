"""Unresolved variables: those with different types in the two branches of a condition on data.

Only a read is an error: a variable that is dead behind the branch, or that is read only where one
of the branches ran, does no harm. `if stop: break` is the common case: changes by the rest of the
body are carried on only where the loop goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import paddle

from dy2st.state.ownership import uncertain_keys
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import PathCondition, RuntimeScalar, negate
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING
from dy2st.trace.user_stack import cells_of, raise_again, variables


@dataclass(frozen=True, eq=False)
class Alternative:
    """A value that is right where all of `facts` hold; None where nothing says when."""

    value: Any
    facts: frozenset[PathCondition] | None


#: stands for values that nobody noted
REST: object = type("Rest", (), {})()


class Unresolved(FakeTensor):  # type: ignore[misc]
    """Passes for a tensor, so that every use asks for its value: that of the alternative which the
    branches around the use single out, else `error` is raised."""

    @property
    def _value(self) -> Any:
        return self.chosen()._value

    @property  # type: ignore[misc]
    def stop_gradient(self) -> Any:  # type: ignore[override]
        return self.chosen().stop_gradient

    @property
    def name(self) -> str:
        """A Layer asks for it when the value is stored in an attribute."""
        return "unresolved" if current() is None else str(self.chosen().name)

    def set_error(self) -> BaseException | None:
        """The error to raise if the key of a dict that holds this may not be set."""
        return self.__dict__["error"] if absent(here(self)) else None

    def chosen(self) -> Any:
        """The tensor that this is here; raises `error`."""
        found = here(self)
        if type(found) is not Unresolved and issubclass(type(found), FakeTensor):
            return found
        raise self.__dict__["error"]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """`isinstance` asks it for every class that is none of a tensor's."""
        if current() is None:
            return Unresolved
        raise self.__dict__["error"]

    def __getattr__(self, name: str) -> NoReturn:
        raise_again(self, name)
        if current() is None:
            raise AttributeError(name)
        raise self.__dict__["error"]

    def __repr__(self) -> str:
        return "<one of several values>"

    def __describe__(self) -> str:
        return "one of several types"


def _use(self: Unresolved, *args: object) -> NoReturn:
    raise self.__dict__["error"]


for _name in "call hash bool str format enter exit contains int float index iter len".split():
    setattr(Unresolved, f"__{_name}__", _use)


def _operator(name: str) -> Callable[..., object]:
    def method(self: Unresolved, *args: object) -> object:
        return getattr(self.chosen(), name)(*args)

    return method


for _name in "eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv matmul getitem".split():
    setattr(Unresolved, f"__{_name}__", _operator(f"__{_name}__"))


def here(x: object) -> object:
    """`x`, or the alternative that the branches around this place single out."""
    trace = current()
    if type(x) is not Unresolved or trace is None:
        return x
    return resolve_under(x, trace.facts_here())


def is_none(x: Unresolved) -> object:
    """`x is None`: a bool, or a runtime scalar where data decides."""
    found = here(x)
    if type(found) is not Unresolved:
        return found is None
    trace = current()
    nones = [a for a in alternatives(x) if a.value is None]
    if any(a.value is REST for a in alternatives(x)):
        raise x.__dict__["error"]
    if not nones:
        return False
    facts = nones[0].facts
    if trace is None or len(nones) > 1 or facts is None or len(facts) != 1:
        raise x.__dict__["error"]
    ((op, value),) = facts
    test = RuntimeScalar(value, trace)
    return test if op == "is" else negate(test)


def unresolved(error: BaseException, alternatives: tuple[Alternative, ...]) -> Unresolved:
    made = Unresolved()
    made.__dict__.update(error=error, alternatives=alternatives)
    return made


def unreadable(error: BaseException, *known: Alternative) -> Unresolved:
    """Any value, but for those of `known`."""
    return unresolved(error, (*known, Alternative(REST, None)))


def alternatives(x: object) -> tuple[Alternative, ...]:
    if type(x) is Unresolved:
        return x.__dict__["alternatives"]  # type: ignore[no-any-return]
    return (Alternative(x, frozenset()),)


def absent(x: object) -> tuple[Alternative, ...]:
    """Says that `x` may be no item at all, if data decides whether there is one."""
    missing = any(a.value is MISSING for a in alternatives(x))
    return (Alternative(MISSING, None),) if missing else ()


def resolve_under(x: object, facts: frozenset[PathCondition]) -> object:
    """The value of `x` where `facts` hold: one of its alternatives if they single one out."""
    if type(x) is not Unresolved:
        return x
    right = [a.value for a in alternatives(x) if a.facts is not None and a.facts <= facts]
    return right[0] if len(right) == 1 else x


def settle_items(trace: Trace) -> None:
    """Items of dicts that a `break` has left undecided become what they are where the loop goes on:
    the methods of a dict and `**` hand them out as they lie there."""
    for target in {id(q): q for found in trace.objects.partial for q in found}.values():
        for key, value in list(dict.items(target)):
            if (value_here := here(value)) is not value and value_here is not MISSING:
                trace.undo_log.note(functools.partial(dict.__setitem__, target, key, value))
                dict.__setitem__(target, key, value_here)


def generated(name: str) -> bool:
    """A variable of the conversion: a flag guards every read of it."""
    return name.startswith("_return_value__")


def plain(name: str) -> str:
    """The user's name for a place, in quotes if it is a variable."""
    if generated(name):
        return "the returned value"
    return f"'{name}'" if name.isidentifier() else name


def remedy_of(what: str, a: object, b: object) -> str:
    """Return the remedy for branches that leave Python objects of which data would choose one."""
    if (a is None or b is None) and what == "the returned value":
        return "Return a tensor of the same type in every case."
    if a is None or b is None:
        return "Start with a tensor of the same type (`paddle.zeros_like(...)`) instead of None."
    if isinstance(a, paddle.nn.Layer) or callable(a):
        return "Call each in its branch: `y = a(x) if c else b(x)`."
    if isinstance(a, str) and isinstance(b, str):
        return "Use each text in the branch that has it, or decide on a Python value."
    return "Give it the same structure in both branches, or decide on a Python value."


# ---------------------------------------------------------------- dicts of uncertain keys
def forget(trace: Trace, f: object, partial: list[dict[object, object]]) -> None:
    """A dict of which data has decided the keys has no name any more, in `f` and around it: Python
    would read them."""
    errors = {id(q): e for q in partial if (e := uncertain_keys(q)) is not None}
    for cell in cells_of(f, {}) if errors else ():
        value = cell.cell_contents
        if id(value) in errors:
            trace.undo_log.note(functools.partial(setattr, cell, "cell_contents", value))
            cell.cell_contents = unreadable(errors[id(value)])
    for q in (q for values in variables() for q in values) if errors else ():
        if id(q) in errors:
            raise errors[id(q)]


__all__ = [
    "Alternative",
    "Unresolved",
    "absent",
    "alternatives",
    "generated",
    "unresolved",
    "here",
    "is_none",
    "plain",
    "remedy_of",
    "unreadable",
    "resolve_under",
    "settle_items",
]
