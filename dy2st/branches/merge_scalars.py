"""Merging of numbers after a condition on data, with the path conditions that they imply."""

from __future__ import annotations

from dy2st.trace.scalar import PathCondition, RuntimeScalar, known, negated, sources
from ir import Value


def merged(value: Value, test: RuntimeScalar, then: object, orelse: object) -> RuntimeScalar:
    """The bool, int or float `value` that is `then` where `test` is true and `orelse` elsewhere."""
    loops, data = sources(test, then, orelse)
    implies = implied = frozenset[PathCondition]()
    yes = (known(test, "implies"), known(test, "implied"))
    no = (negated(yes[1]), negated(yes[0]))
    then, orelse = truth_under(then, yes[0]), truth_under(orelse, no[0])
    if then is True and orelse is False:
        implies, implied = yes
    elif then is False and orelse is True:
        implies, implied = no
    elif then is True:
        implied = yes[1] | _of(orelse, "implied")
    elif orelse is True:
        implied = no[1] | _of(then, "implied")
    elif orelse is False:
        implies = yes[0] | _of(then, "implies")
    elif then is False:
        implies = no[0] | _of(orelse, "implies")
    return RuntimeScalar(value, test.home, loops, data, implies, implied)


def truth_under(x: object, facts: frozenset[PathCondition]) -> object:
    """Return the bool that `facts` imply for `x`; else `x`."""
    if type(x) is not RuntimeScalar or x.kind is not bool:
        return x
    if not facts.isdisjoint(known(x, "implied")):
        return True
    return x if facts.isdisjoint(negated(known(x, "implies"))) else False


def _of(x: object, name: str) -> frozenset[PathCondition]:
    return known(x, name) if type(x) is RuntimeScalar else frozenset()


__all__ = ["merged"]
