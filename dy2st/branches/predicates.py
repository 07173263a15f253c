"""Predicates: what Python needs of the numbers of a call, as a guard of the program.

A number that changes from call to call is an input. Where the truth of a condition on it cannot be
merged into the program, or the number that follows from it is needed itself (an index of a list of
Layers), the trace goes on with what this call has, and the program is for the calls that have the
same there: one program for each truth of `self.step % 10 == 0`, not for each `self.step`.

A predicate is the expression behind a number, recovered from the ops that compute it. Calls
evaluate it as Python does. Where a trace finds out that it needs one, at a place of the user, it
begins again and has a constant there from the start: of the branch that this call does not take,
nothing is left.
"""

from __future__ import annotations

import ast
import linecache
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dy2st.branches.merge_lists import is_uncertain
from dy2st.branches.unresolved import Unresolved
from dy2st.state.containers.constants import same_constant
from dy2st.state.guards import Guards
from dy2st.state.tree import UNDEF
from dy2st.trace.frames import TracedInput
from dy2st.trace.scalar import KINDS, RuntimeScalar, is_runtime_scalar, truth
from dy2st.trace.signals import NeedsConcrete, Refused, RetraceForTruth
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import (
    CALL,
    ArgumentLocation,
    AttributeLocation,
    ItemLocation,
    LookedUpLocation,
    lookup,
)
from dy2st.trace.user_stack import expression
from ir import Cond, Loc, Op, Value
from ir.types import BOOL, F64, I64, DType

#: characters of an expression
MOST_TEXT = 2000
#: predicates of a program
MOST_PREDICATES = 64
OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "pow": "**", "equal": "==", "not_equal": "!=", "less_than": "<",
    "less_equal": "<=", "greater_than": ">", "greater_equal": ">=", "logical_and": "and",
    "logical_or": "or", "logical_xor": "is not", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip
#: of one number; those of `math` on doubles
FUNCTIONS = {
    "logical_not": "not {}", "abs": "abs({})", "floor": "float(floor({}))",
    "ceil": "float(ceil({}))", "trunc": "float(trunc({}))", "sqrt": "sqrt({})", "exp": "exp({})",
    "log": "log({})", "sin": "sin({})", "cos": "cos({})", "tanh": "tanh({})",
}  # fmt: skip
NAMES = {
    n: getattr(math, n) for n in "floor ceil trunc sqrt exp log sin cos tanh".split()
}  # fmt: skip
CASTS = {BOOL: "bool({})", I64: "int({})", F64: "float({})"}


class Unrecoverable(Exception):
    """A value does not follow from numbers of the call alone, by operations that Python has."""


@dataclass(frozen=True)
class Recovered:
    """An expression over `{0}`, `{1}`, ..., which are `numbers`."""

    text: str
    numbers: tuple[TracedInput, ...]


class Recovery:
    """The expression of one value."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.numbers = trace, list[TracedInput]()
        self.inputs = {q.value: q for q in trace.inputs.by_id.values() if q.number is not None}
        self.known: dict[Value, str] = {}
        self.length = 0

    def of(self, value: Value) -> str:
        root = self.trace.root(value)
        if root not in self.known:
            if root.type != value.type or root.type.shape or self.trace.values.writes.get(root):
                raise Unrecoverable
            self.known[root] = self.made(root)
        self.length += len(self.known[root])
        if self.length > MOST_TEXT:
            raise Unrecoverable
        return self.known[root]

    def made(self, value: Value) -> str:
        if value in self.inputs:
            if self.inputs[value] not in self.numbers:
                self.numbers.append(self.inputs[value])
            return f"{{{self.numbers.index(self.inputs[value])}}}"
        op = self.maker(value)
        if op is None:
            return self.chosen(value)
        if op.name == "full" and op.attrs["dtype"] in KINDS:
            return constant(op.attrs["value"], op.attrs["dtype"])
        if op.name == "cast" and value.type.dtype in CASTS:
            return CASTS[value.type.dtype].format(self.of(op.operands[0]))
        if op.name == "where":
            return "({1} if {0} else {2})".format(*map(self.of, op.operands))
        if op.name in FUNCTIONS:
            return f"({FUNCTIONS[op.name].format(self.of(op.operands[0]))})"
        if op.name not in OPERATORS or len(op.operands) != 2:
            raise Unrecoverable
        left, right = self.operands(op)
        return f"({left} {OPERATORS[op.name]} {right})"

    def operands(self, op: Op) -> list[str]:
        """Without the casts of ints that Python makes itself: it divides and compares them exactly,
        where a double may be another number."""
        parts = [self.maker(q) for q in op.operands]
        whole = [
            q.operands[0] if q is not None and q.name == "cast" and is_of(q.operands[0], I64) else v
            for q, v in zip(parts, op.operands)
        ]
        exact = op.name == "divide" or op.results[0].type.dtype == BOOL
        mixed = sum(a is not b for a, b in zip(whole, op.operands)) < 2
        return [self.of(q) for q in (whole if exact or mixed else op.operands)]

    def maker(self, value: Value) -> Op | None:
        root = self.trace.root(value)
        home = self.trace.values.frame_of.get(root)
        return None if home is None or root.type != value.type else home.maker(root)

    def chosen(self, value: Value) -> str:
        """A number that one of two branches has left."""
        home = self.trace.values.frame_of.get(value)
        nodes = () if home is None else home.builder.ops
        for node in nodes:
            for join in node.outs if isinstance(node, Cond) else ():
                if join.outer is value and isinstance(node, Cond):
                    parts = map(self.of, (join.then, node.test, join.orelse))
                    return "({} if {} else {})".format(*parts)
        raise Unrecoverable


def is_of(value: Value, dtype: DType) -> bool:
    return value.type.dtype == dtype


def constant(value: object, dtype: DType) -> str:
    made = KINDS[dtype](value)
    return repr(made) if not isinstance(made, float) or math.isfinite(made) else f"float('{made}')"


def recovered(trace: Trace, n: RuntimeScalar) -> tuple[Recovered, object] | None:
    """The expression of a number, and what it is in this call; None where it does not follow from
    numbers of the call alone."""
    if not trace.inputs.numbers or n.mixed or n.loops:
        return None
    recovery = Recovery(trace)
    try:
        text = recovery.of(n.value)
    except (Unrecoverable, RecursionError):
        return None
    if not recovery.numbers:
        return None
    with trace.pause():
        given = [q.tensor.item() for q in recovery.numbers]
    names = [f"n{k}" for k in range(len(given))]
    space = {**NAMES, **dict(zip(names, given))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = eval(text.format(*names), space)
    except (ArithmeticError, ValueError, TypeError):
        return None
    known = type(value) is n.kind and same_constant(value, value)
    return (Recovered(text, tuple(recovery.numbers)), value) if known else None


# ---------------------------------------------------------------- what the trace goes on with
def is_guarded(trace: Trace, site: Loc) -> bool:
    sites = trace.inputs.guarded
    return site in sites or None in sites


def known_number(n: RuntimeScalar) -> tuple[object, ...]:
    """`(value,)` of a number that is needed as it is, where the program is made for it; else (),
    and the next trace may have it."""
    trace: Any = n.home
    site = trace.where()
    if trace.inputs.numbers and not is_guarded(trace, site) and recovered(trace, n) is not None:
        trace.inputs.needed.add(site)
    return guarded(trace, n, site)


def known_here(trace: Trace, n: object) -> object:
    """A number as it is in this call, where the program is made for that; else itself."""
    found = guarded(trace, n, trace.where()) if is_runtime_scalar(n) else ()
    return found[0] if found else n


def known_index(x: object) -> object:
    """`known_here` of what may be a number."""
    trace = current() if is_runtime_scalar(x) else None
    return x if trace is None else known_here(trace, x)


@contextmanager
def testing(trace: Trace) -> Iterator[None]:
    """The test of a loop: where the program is made for all that follows from numbers, it compares
    the numbers themselves, so that the loop has a bound that Python knows."""
    before, trace.inputs.testing = trace.inputs.testing, None in trace.inputs.guarded
    try:
        yield
    finally:
        trace.inputs.testing = before


def guarded(trace: Trace, n: RuntimeScalar, site: Loc) -> tuple[object, ...]:
    """`(value,)` where the program is made for it, which is a guard then."""
    if not trace.inputs.guarded or not is_guarded(trace, site):
        return ()
    found = recovered(trace, n) if len(trace.frame.predicates) < MOST_PREDICATES else None
    if found is None:
        return ()
    one, value = found
    made = Predicate(one.text, one.numbers, value, test_shown(site) if n.kind is bool else "")
    trace.frame.predicates.setdefault(made.key, made)
    return (value,)


def truth_here(trace: Trace, n: RuntimeScalar) -> object:
    """The truth of a number: a bool where the program is made for it."""
    return known_here(trace, truth(n))


@contextmanager
def attempt(trace: Trace, test: RuntimeScalar) -> Iterator[Callable[..., None]]:
    """Both sides of a condition are merged inside. Where they cannot be, and the condition follows
    from numbers of the call, the trace begins again with its truth as a guard: at once, or, in a
    loop that may yet learn how, if it fails. What it gives is told of the merged values, and of
    those of the sides, which may have two types if `either`, and whether one of the sides has a
    tensor that requires a gradient where the other has one that does not."""
    site = trace.where()
    able = bool(trace.inputs.numbers) and not is_guarded(trace, site)
    able = able and recovered(trace, test) is not None

    def stop(at_once: bool) -> None:
        if able and at_once:
            raise RetraceForTruth(site)
        if able:
            trace.inputs.needed.add(site)

    def check(
        values: Sequence[object],
        yes: Sequence[object] = (),
        no: Sequence[object] = (),
        either: bool = False,
        unlike: bool = False,
    ) -> None:
        if unlike or any(map(is_uncertain, values)):
            stop(True)
        for x, *sides in zip(values, yes or values, no or values):
            if (
                type(x) is Unresolved
                and not either
                and (not yes or Unresolved not in map(type, sides))
            ):
                stop(not trace.in_loop and not any(q is UNDEF for q in sides))

    try:
        yield check
    except (Refused, NeedsConcrete, Exception):
        stop(not trace.in_loop)
        raise


# ---------------------------------------------------------------- guards
@dataclass(frozen=True)
class Predicate:
    """`text` over the numbers gives `value`; `shown`: the user's expression, if that is known."""

    text: str
    numbers: tuple[TracedInput, ...]
    value: object
    shown: str

    @property
    def key(self) -> tuple[object, ...]:
        """What it asks, without the answer; the same in every program."""
        return ("truth", self.text, tuple(q.number for q in self.numbers))

    def title(self, guards: Guards) -> str:
        names = [q.name if q.place is None else named(guards, q.place) for q in self.numbers]
        return f"`{self.shown or ast.unparse(ast.parse(self.text.format(*names)))}`"


def named(guards: Guards, place: Any) -> str:
    """The user's name for a place."""
    if isinstance(place, LookedUpLocation):
        of = named(guards, place.home)
        inner: Any = place.place
        return f"{of}[{inner.index!r}]" if isinstance(inner, ItemLocation) else f"{of}.{inner.name}"
    if isinstance(place, ArgumentLocation):
        return guards.named.get(id(place.get()), "the_argument")
    if isinstance(place, ItemLocation) and "__builtins__" in place.obj:
        return str(place.index)
    return guards.title(place.key, place)


def test_shown(site: Loc) -> str:
    """The user's condition at a place; "" where it is not known. Python 3.10 knows lines only."""
    text = expression(site)
    if text == "":
        line = linecache.getline(site.file, site.line).encode()[site.column or 0 :].decode().strip()
        text = line.removeprefix("el") + " pass" * line.endswith(":")
    try:
        (found,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return ""
    found = found.value if isinstance(found, ast.Expr) else found  # type: ignore[assignment]
    if isinstance(found, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return ast.unparse(found.test)
    return text if isinstance(found, ast.Compare) else ""


def reading(guards: Guards, place: object) -> str:
    """The expression that reads a place in a call, by itself."""
    if isinstance(place, ArgumentLocation):
        return f"_L[{place.index}]"
    if isinstance(place, LookedUpLocation):
        of = reading(guards, place.home)
        now: Any = place.now()
        if not isinstance(now, ItemLocation):
            return f"{of}.{now.name}"
        base = guards.base(now.obj)
        at = repr(now.index) if type(now.index) in (int, str) else guards.ref_constant(now.index)
        return f"{of}[{at}]" if base is None else f"{base}.__getitem__({of}, {at})"
    if isinstance(place, AttributeLocation):
        return lookup(place.obj, place.name, guards.ref)
    if isinstance(place, ItemLocation):
        return guards.element(place.obj, place.index)
    return f"{guards.ref_constant(place)}.get()"


def note(guards: Guards, predicates: Iterable[Predicate], leaves: Sequence[object]) -> Asked:
    """Add guards for these predicates, which come first: they tell most programs apart. `leaves`:
    of the arguments of the call that is translated."""
    with CALL.of(leaves):
        return noted(guards, predicates)


def noted(guards: Guards, predicates: Iterable[Predicate]) -> Asked:
    terms, before, parts = guards.terms, dict(guards.terms), list[str]()
    every = list[str]()
    dict.clear(terms)
    keys, values = list[object](), list[object]()
    for one in predicates:
        reads = [
            f"_L[{q.number[0][1]}]" if q.place is None else reading(guards, q.place)  # type: ignore[index]
            for q in one.numbers
        ]
        text, value = one.text.format(*reads), one.value
        kinds = [
            f"type({r}) is {q.number[1].__name__}"  # type: ignore[index]
            for r, q in zip(reads, one.numbers)
        ]
        test = (
            text if value is True else f"not {text}" if value is False else f"{text} == {value!r}"
        )
        if type(value) is float:
            test = f"same({text}, {guards.ref_constant(value)})"
        dict.__setitem__(terms, one.key, " and ".join((*kinds, test)))
        guards.note(one.key, one.title(guards), text, value)
        parts.append(text)
        every += kinds
        keys.append(one.key)
        values.append(value)
    dict.update(terms, before)
    if not parts:
        return Asked((), (), nothing_asked)
    guards.names.update(NAMES)
    source = f"lambda _L: ({', '.join(parts)},) if {' and '.join(dict.fromkeys(every))} else None"
    return Asked(tuple(keys), tuple(values), eval(source, guards.names))


@dataclass(frozen=True, eq=False)
class Asked:
    """What a program asks of the numbers of a call: the same `keys` for several programs, of which
    each has other `values`. `of` gives the values for the arguments of a call."""

    keys: tuple[object, ...]
    values: tuple[object, ...]
    of: Callable[[Sequence[object]], tuple[object, ...]]


def nothing_asked(leaves: Sequence[object]) -> tuple[object, ...]:
    return ()


__all__ = [
    "Asked",
    "attempt",
    "guarded",
    "known_here",
    "known_index",
    "known_number",
    "note",
    "truth_here",
]
