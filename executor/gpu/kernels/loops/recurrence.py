"""Matching of loops whose lanes are linear recurrences.

`ir.analysis.recurrences` finds such states among the ops of a loop, for the report; here they are
found in its launches, which are what a kernel is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from executor.gpu.kernels.loops.scan import ElementwiseLoop
from executor.memory import View
from ir.scalar.language import Scalar, binary, const, input_, nodes, select
from ir.types import F32, F64, Dim, DType, Size, is_natural, substitute_dim


@dataclass(frozen=True)
class Linear:
    """slope * h + offset."""

    slope: Scalar
    offset: Scalar


@dataclass(frozen=True, eq=False)
class Iteration:
    """Input k of the expressions is `leaves[k]` as it is before the iteration; `values` are what
    the views that it writes hold afterwards. `states` are places that all iterations share: by the
    view that an iteration reads the one that it writes, which is the same or its other half."""

    lanes: ElementwiseLoop
    leaves: tuple[View, ...]
    values: Mapping[View, Scalar]
    states: Mapping[View, View]

    def following(self, v: View) -> Scalar:
        """The next value of a state."""
        return self.values[self.states[v]]

    def old(self, v: View) -> frozenset[View]:
        """The states that the next value of a state depends on."""
        found = {self.leaves[int(s.value or 0)] for s in _inputs(self.following(v))}
        return frozenset(found & self.states.keys())

    @cached_property
    def solved(self) -> Mapping[View, Linear] | None:
        """The states that iterations hand on, each a linear function of itself and of states
        before it; None if that is not so."""
        left = [v for v in self.states if v in self.leaves]
        found: dict[View, Linear] = {}
        while left:
            v = next((v for v in left if self.old(v) <= {v, *found}), None)
            linear = None if v is None else self.linear(v)
            if v is None or linear is None:
                return None
            found[v] = linear
            left.remove(v)
        return found

    def linear(self, v: View) -> Linear | None:
        if v.dtype not in (F32, F64):
            return None
        form = _form(self.following(v), self.leaves.index(v))
        if form is None:
            return None
        slope, offset = (const(0.0, v.dtype) if q is None else q for q in form)
        return Linear(slope, offset)


def iteration(lanes: ElementwiseLoop) -> Iteration | None:
    """None where iterations meet elsewhere than in states: by elements that one writes and another
    one touches."""
    states = _states(lanes)
    if states is None:
        return None
    leaves: dict[View, Scalar] = {}
    values: dict[View, Scalar] = {}

    def value(v: View) -> Scalar:
        return values.get(v) or leaves.setdefault(v, input_(len(leaves), v.dtype))

    for m in lanes.maps:
        found = _substituted(m.roots, [value(v) for v in m.ins])
        values |= dict(zip(m.outs, found))
    kept = set(states.values())
    if any(v in leaves and v not in states for v in values):
        return None
    if not all(v in kept or lanes.apart(v) and _meets_not(lanes, v) for v in values):
        return None
    return Iteration(lanes, tuple(leaves), values, states)


def _states(lanes: ElementwiseLoop) -> dict[View, View] | None:
    """Places that stay the same, and those of which each iteration reads one half and writes the
    other one; None where a view is neither of these nor moves evenly."""
    found = {v: v for v in lanes.states if lanes.is_even(v)}
    for v in lanes.views:
        if v.buffer in lanes.written and lanes.alternates(v):
            other = _other_half(lanes, v)
            if any(q not in (v, other) for q in lanes.views if q.buffer is v.buffer):
                return None
            outs = [q for m in lanes.maps for q in m.outs if q.buffer is v.buffer]
            if len(set(outs)) > 1 or v not in outs:
                continue
            found[other] = v
    known = {*found, *found.values()}
    return found if all(v in known or lanes.is_even(v) for v in lanes.views) else None


def _other_half(lanes: ElementwiseLoop, v: View) -> View:
    parity = lanes.loop.parity
    return replace(v, offset=substitute_dim(v.offset, {parity: 1 - Size.named(parity)}))


def _meets_not(lanes: ElementwiseLoop, v: View) -> bool:
    """Whether an iteration writes other elements than the ones before."""
    step = lanes.step(v)
    time = (lanes.loop.trip, step if is_natural(step) else -step)
    axes = [(d, s) for d, s in zip(v.shape, v.strides) if d != 1]
    return any(_nested([*axes[:k], time, *axes[k:]]) for k in range(len(axes) + 1))


def _nested(axes: Sequence[tuple[Dim, Dim]]) -> bool:
    """Whether all elements of an axis lie within one step of the axis before."""
    span: Dim = 1
    for d, stride in reversed(axes):
        if not is_natural(stride - span):
            return False
        span = span + (d - 1) * stride
    return True


def _inputs(s: Scalar) -> list[Scalar]:
    return [q for q in nodes([s]) if q.op == "input"]


def _substituted(roots: Sequence[Scalar], ins: Sequence[Scalar]) -> list[Scalar]:
    """The expressions with others in the place of their inputs."""
    made: dict[int, Scalar] = {}
    for s in nodes(roots):
        if s.op == "input":
            made[id(s)] = ins[int(s.value or 0)]
        else:
            args = tuple(made[id(a)] for a in s.args)
            made[id(s)] = Scalar(s.op, args, s.dtype, s.value)
    return [made[id(r)] for r in roots]


# ---------------------------------------------------------------- linear functions
#: slope and offset; None is 0
Form: TypeAlias = tuple[Scalar | None, Scalar | None]


def _form(root: Scalar, state: int) -> Form | None:
    """`root` as a linear function of the input with the number `state`; None if it is none."""
    forms: dict[int, Form | None] = {}
    for s in nodes([root]):
        args = [forms[id(a)] for a in s.args]
        if s.op == "input" and s.value == state:
            forms[id(s)] = const(1.0, s.dtype), None
        elif any(a is None for a in args):
            forms[id(s)] = None
        else:
            forms[id(s)] = _step(s, [a for a in args if a is not None])
    return forms[id(root)]


def _step(s: Scalar, args: Sequence[Form]) -> Form | None:
    """Apply an op to linear functions; None if the result is not linear."""
    if all(slope is None for slope, _ in args):
        return None, s
    if s.op not in _RULES:
        return None
    return _RULES[s.op](s, *args)


def _sum(x: Scalar | None, y: Scalar | None) -> Scalar | None:
    return x + y if x is not None and y is not None else x if y is None else y


def _times(x: Scalar | None, y: Scalar | None) -> Scalar | None:
    return None if x is None or y is None else x * y


def _add(s: Scalar, x: Form, y: Form) -> Form:
    return _sum(x[0], y[0]), _sum(x[1], y[1])


def _negative(s: Scalar, x: Form) -> Form:
    slope, offset = (None if q is None else -q for q in x)
    return slope, offset


def _subtract(s: Scalar, x: Form, y: Form) -> Form:
    return _add(s, x, _negative(s, y))


def _multiply(s: Scalar, x: Form, y: Form) -> Form | None:
    if x[0] is None:
        x, y = y, x
    return None if y[0] is not None else (_times(x[0], y[1]), _times(x[1], y[1]))


def _divide(s: Scalar, x: Form, y: Form) -> Form | None:
    if y[0] is not None or y[1] is None:
        return None
    slope, offset = (None if q is None else binary("div", q, y[1]) for q in x)
    return slope, offset


def _fused(s: Scalar, x: Form, y: Form, z: Form) -> Form | None:
    found = _multiply(s, x, y)
    return None if found is None else _add(s, found, z)


def _select(s: Scalar, test: Form, x: Form, y: Form) -> Form | None:
    if test[0] is not None or test[1] is None:
        return None
    return _either(test[1], x[0], y[0], s.dtype), _either(test[1], x[1], y[1], s.dtype)


def _either(test: Scalar, x: Scalar | None, y: Scalar | None, d: DType) -> Scalar | None:
    if x is None and y is None:
        return None
    zero = const(0.0, d)
    return select(test, zero if x is None else x, zero if y is None else y)


_RULES: dict[str, Callable[..., Form | None]] = {
    "add": _add,
    "sub": _subtract,
    "neg": _negative,
    "mul": _multiply,
    "div": _divide,
    "fma": _fused,
    "select": _select,
}
