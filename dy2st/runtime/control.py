"""The runtime of converted code: the meaning of each construct, decided while the function runs.

On a thread that traces, loops are offered to `dy2st.loops.roll`, stores go through
the undo log, callees are converted. Anywhere else every construct means what Python means.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence, ValuesView
from typing import Any, TypeGuard

import numpy as np
from paddle.nn import Layer

from dy2st.branches import error_exits
from dy2st.branches.cond import check_not_trying, choose, condition, decide, settled_condition
from dy2st.branches.predicates import known_index
from dy2st.branches.unresolved import Unresolved, here, is_none, unreadable
from dy2st.capture.dispatch import drop_ops
from dy2st.capture.indexing.masks import MaskedSelection
from dy2st.library.iterable_builtins import contains
from dy2st.library.numbers import converted_to
from dy2st.loops import roll
from dy2st.loops.generators import consume, iterated, shown
from dy2st.loops.iterables import (
    ChainIterator,
    ProductIterator,
    in_turn,
    note_unlike,
    sequence_of,
    taken,
)
from dy2st.loops.peeled_iterations import unrolled
from dy2st.runtime.library_calls import PureCall, guarded_call
from dy2st.state.arrays import is_array
from dy2st.state.container_writes import change
from dy2st.state.containers.dynamic_lookup import MOST_UNROLLED, SelectedObject
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.ownership import note_contents, note_namespaces, refuse
from dy2st.state.protocols import (  # fmt: skip
    iterable_of,
    special,
)
from dy2st.state.strings import is_lazy, text_of, with_values
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import UNDEF
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import RuntimeScalar, check, is_runtime_scalar, negate
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import SymInt, is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import kind_of
from ir import Value
from ir.loc import acts_for_user


# ---------------------------------------------------------------- loops
def for_(
    iterable: Any,
    body: Callable[[object], None],
    get_state: Callable[[], tuple[object, ...]],
    set_state: Callable[[tuple[object, ...]], None],
    names: tuple[str, ...],
    test: Callable[[], object] | None = None,
) -> None:
    trace = current()
    if trace is None:
        return _python_for(iterable, body, test)
    code = roll.LoopCode(body, get_state, set_state, names, test)
    with taken(here(iterable), test is not None) as rest:
        run_through(trace, rest, code)


def run_through(trace: Trace, iterable: Any, code: roll.LoopCode) -> None:
    parts = iterable.taken(trace) if isinstance(iterable, ChainIterator) else None
    for k, part in enumerate(parts or ()):
        with taken(part, code.test is not None) as rest:
            run_through(trace, rest, dataclasses.replace(code, key=(code.key, k)))
    if parts is not None:
        return None
    pools = iterable.taken(trace) if isinstance(iterable, ProductIterator) else None
    if pools is not None:
        return run_nested(trace, pools, code)
    over = sequence_of(trace, iterable, numbers=True)
    if over is not None:
        return roll.run(trace, over, code)
    note_unlike(trace, iterable)
    iterable = iterable_of(trace, iterable)
    consume(trace, iterable)
    if code.test is None:
        return _python_for(noted(trace, iterable), code.body, None)
    more = functools.partial(code.more, trace, roll.UNKNOWN)
    items = iter(iterable)
    return unrolled(
        trace,
        enumerate(noted(trace, items)),
        code,
        more,
        of=items if items is iterable else None,
    )


def run_nested(
    trace: Trace, pools: Sequence[Any], code: roll.LoopCode, chosen: tuple[object, ...] = ()
) -> None:
    """Loops over these sequences, each in the one before; the body gets a tuple of their items."""

    def body(item: object) -> None:
        if len(pools) == 1:
            return code.body((*chosen, item))
        return run_nested(trace, pools[1:], code, (*chosen, item))

    # the body may not run in an iteration of an outer loop
    names = code.names if len(pools) == 1 else tuple(n.rstrip("=") for n in code.names)
    key = (code.key, len(pools))
    run_through(trace, pools[0], dataclasses.replace(code, body=body, names=names, key=key))


def noted(trace: Trace, items: Any) -> Any:
    """The items of an iterator of Python; the report says what becomes of the loop, if they are
    many."""
    iterators = (zip, map, filter, enumerate)
    if not isinstance(items, iterators) and type(items).__module__ != "itertools":
        return items
    return counted(
        trace, items, f"iterates over {type(items).__name__}(), whose items are made one by one"
    )


def counted(trace: Trace, items: Iterable[Any], text: str) -> Iterator[Any]:
    """The items, with a note in the report, which has their number when the loop has ended."""
    ops, where, notes = len(trace.builder.ops), trace.where(), trace.frame.notes
    own, at = bool(trace.objects.partial), -1
    for k, item in enumerate(items, 1):
        own = own or has_layer(item)
        if k > MOST_UNROLLED and at < 0 and len(trace.builder.ops) > ops:
            at = len(notes)
            notes.append(("", where, ""))
        if at >= 0:
            notes[at] = in_turn(where, k, text, own)
        yield item


def has_layer(x: object) -> bool:
    return isinstance(x, Layer) or isinstance(x, tuple) and any(map(has_layer, x))


def _python_for(
    iterable: Iterable[object],
    body: Callable[[object], None],
    test: Callable[[], object] | None,
) -> None:
    if test is None:
        for item in iterable:
            body(item)
        return
    items = iter(iterable)
    while test():
        try:
            item = next(items)
        except StopIteration:
            return
        body(item)


def while_(
    test: Callable[[], object],
    body: Callable[[], None],
    get_state: Callable[[], tuple[object, ...]],
    set_state: Callable[[tuple[object, ...]], None],
    names: tuple[str, ...],
) -> None:
    trace = current()
    if trace is not None:
        code = roll.LoopCode(lambda _: body(), get_state, set_state, names, test)
        return roll.run(trace, roll.UNKNOWN, code)
    while test():
        body()
    return None


def if_(
    test: object,
    then: Callable[[], None],
    orelse: Callable[[], None],
    get_state: Callable[[], tuple[object, ...]],
    set_state: Callable[[tuple[object, ...]], None],
    names: tuple[str, ...],
) -> None:
    trace = current()
    known = test if trace is None else settled_condition(trace, test)
    if trace is not None and is_runtime_scalar(known):
        return decide(trace, known, then, orelse, get_state, set_state, names)
    then() if known else orelse()
    return None


# ---------------------------------------------------------------- expressions
def and_(*thunks: Callable[[], object]) -> object:
    """The first value that is false, else the last."""
    return _connected(True, thunks)


def or_(*thunks: Callable[[], object]) -> object:
    """The first value that is true, else the last."""
    return _connected(False, thunks)


def _connected(go_on: bool, thunks: tuple[Callable[[], object], ...]) -> object:
    trace = current()
    value = thunks[0]()
    for i, thunk in enumerate(thunks[1:]):
        known = value if trace is None else condition(trace, value)
        if trace is not None and is_runtime_scalar(known):
            return _later(trace, go_on, value, known, thunks[i + 1 :])
        if bool(known) is not go_on:
            return value
        value = thunk()
    return known_index(value) if is_runtime_scalar(value) and value.kind is bool else value


def _later(
    trace: Trace,
    go_on: bool,
    first: object,
    known: RuntimeScalar,
    rest: tuple[Callable[[], object], ...],
) -> object:
    """`first and rest`, decided at run time; where the two have different types, only its truth."""

    def other() -> object:
        return _connected(go_on, rest)

    def keep() -> object:
        return not go_on if is_runtime_scalar(first) and first.kind is bool else first

    mark, ops = trace.undo_log.mark(), len(trace.builder.ops)
    sides = (other, keep) if go_on else (keep, other)
    out = choose(trace, known, *sides, either=True)
    if type(out) is not Unresolved:
        return out
    trace.undo_log.undo_to(mark)
    drop_ops(trace, ops)
    error = out.__dict__["error"]
    truths = (lambda: truth_or(trace, other(), error)), (lambda: not go_on)
    either = unreadable(error)
    either.__dict__["truth"] = choose(trace, known, *(truths if go_on else truths[::-1]))
    return either


def truth_or(trace: Trace, x: object, error: BaseException) -> object:
    """The truth of the last operand; `error` if it is no condition."""
    if isinstance(x, Tensor) and any(d != 1 for d in lift(trace, x)._value.type.shape):
        raise error
    return condition(trace, x)


def subject(x: object) -> Any:
    """The subject of a `match`, or what is raised: Python looks at it without asking."""
    found = here(x)
    if type(found) is Unresolved:
        raise found.__dict__["error"]
    return found


def not_(value: object) -> object:
    trace = current()
    known = value if trace is None else condition(trace, value)
    return negate(known) if trace is not None and is_runtime_scalar(known) else not known


def ifexp(test: object, then: Callable[[], object], orelse: Callable[[], object]) -> object:
    trace = current()
    known = test if trace is None else settled_condition(trace, test)
    if trace is not None and is_runtime_scalar(known):
        return choose(trace, known, then, orelse)
    return then() if known else orelse()


def is_(a: object, b: object) -> object:
    trace = current()
    for x, other in ((a, b), (b, a)):
        if type(x) is TaggedUnion and type(other) is TaggedUnion and a is not b:
            raise refuse(
                "`is` of two values of which data decides whether they are numbers or tensors.",
                "They may be one object or two.",
                "Compare values, or begin with a tensor: `total = paddle.zeros([])`.",
            )
        if type(x) is TaggedUnion and a is not b:
            return x.each(lambda q: is_(q, other))  # noqa: B023
        if type(x) is SelectedObject and other is not None and a is not b:
            raise x.refused("a comparison with")
        if type(x) is Unresolved and other is None:
            return is_none(x)
        if type(x) is Unresolved:
            raise x.__dict__["error"]
    if trace is not None and a is not b and isinstance(a, Tensor) and isinstance(b, Tensor):
        values = [q._value for q in (a, b) if isinstance(q, FakeTensor)]
        if any(v in trace.values.placeholders for v in values):
            raise NeedsConcrete("`is` between a carried variable and a tensor", (), peel=True)
        if trace.tentative and any(trace.values.copies.get(v) for v in values):
            raise NeedsConcrete("`is` of an element that an index picks")
        check_no_copy(trace, values)
        real = [
            trace.inputs.by_id[id(q)].fake if id(q) in trace.inputs.by_id else q for q in (a, b)
        ]
        if real[0] is not real[1]:
            trace.guards.different(*map(trace.inputs.tensor_of, (a, b)))
        return real[0] is real[1]
    if trace is not None and a is not b:
        for x, other in ((a, b), (b, a)):
            doubt = trace.objects.doubts.get(id(x))
            unsure = id(other) in trace.objects.doubts
            if doubt is not None and (unsure or any(q is other for q in doubt.among)):
                trace.check_certain(x)
        if trace.guards is not None:
            trace.guards.separate(a, b)
    return a is b


def check_no_copy(trace: Trace, values: list[Value]) -> None:
    """Refuse `is` of a tensor that the program copies of others, where eager may have one of
    these: an element of a list that a loop has filled."""
    for v in values:
        if v in trace.values.picks:
            reason = "`is` asks for an element of the list that it fills"
            trace.unroll(trace.values.picks[v][0].source(), reason)
    if any(trace.values.copies.get(v) for v in values):
        raise refuse(
            "`is` of a tensor that was in a list which a loop fills or reads at an index.",
            "The loop has one tensor for all elements, not one for each.",
            "Compare values, or decide on the index.",
        )


def is_not(a: object, b: object) -> object:
    return not_(is_(a, b))


def in_(a: object, b: Any) -> object:
    trace = current()
    if trace is not None:
        users = special(trace, b, "__contains__", a)
        if users:
            return converted_to(trace, users[0], bool)
        if isinstance(a, Tensor):
            raise refuse(
                "`in` with a tensor.",
                "It compares values, which are known only when the program runs.",
                "Compare with each element: `(x == a).logical_or(x == b)`.",
            )
        if isinstance(b, type(os.environ)):
            return guarded_call(trace, operator.contains, b, a)
        b = iterated(b)
        note_contents(trace, b)
        note_namespaces(trace, (a, b))
        trace.guards.pin(a)
        elements = b if isinstance(b, (list, tuple)) else ()
        if is_later(a) and isinstance(b, COLLECTIONS) or any(map(is_later, elements)):
            return contains(trace, b, a)
    return a in b


#: what `in` compares with element by element
COLLECTIONS = (list, tuple, set, frozenset, dict, range, KeysView, ValuesView)


def is_later(x: object) -> TypeGuard[RuntimeScalar | SymInt]:
    """A number that is known when the program runs."""
    return is_runtime_scalar(x) or is_symint(x)


def compared(x: object) -> object:
    """An operand of `==` or `!=`, which Python's own code may look into."""
    trace = current()
    if trace is not None:
        note_namespaces(trace, x)
    return x


def not_in(a: object, b: object) -> object:
    return not_(in_(a, b))


AUGMENTED = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "@": operator.imatmul,
    "/": operator.itruediv, "//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow,
    "<<": operator.ilshift, ">>": operator.irshift, "|": operator.ior, "^": operator.ixor,
    "&": operator.iand,
}  # fmt: skip


def aug(op: str, x: object, value: Any) -> object:
    """`x op= value`: rebinding for tensors and numbers; a list grows in place."""
    trace = current()
    if op == "+" and isinstance(x, (list, collections.deque)):
        value = shown(value)
    if trace is not None and isinstance(x, TraceList) and op == "+":
        if x.kind is tuple:
            return x + value
        x.extend(value)
        return x
    if trace is not None and kind_of(x) is not None:
        change(trace, x)
    if trace is not None and isinstance(x, np.ndarray) and not is_array(x):
        PureCall(trace, AUGMENTED[op]).write_array(x)
    users = () if trace is None else special(trace, x, f"__{AUGMENTED[op].__name__}__", value)
    if users and users[0] is not NotImplemented:
        return users[0]
    kind = None if trace is None else kind_of(x)
    in_place = getattr(kind and kind.base, f"__{AUGMENTED[op].__name__}__", None)
    if in_place is not None:
        return in_place(x, value)
    if isinstance(x, MaskedSelection):
        return x.changed(op, AUGMENTED[op], value)
    if isinstance(x, list) and op == "+":
        return type(x).__iadd__(x, value)  # operator.iadd asks the class of `value` first
    return AUGMENTED[op](x, value)


@acts_for_user
def assert_(test: Callable[[], object], message: Callable[[], object] | None) -> None:
    trace = current()
    value: Any = test()
    if trace is not None:
        value = settled_condition(trace, value)
    if trace is not None and is_runtime_scalar(value):
        check_not_trying(trace, value)
        at = error_exits.decision(trace.frame)
        if error_exits.assumed(trace, value, at) is not None:
            raise AssertionError(*([] if message is None else [message()]))
        given = message() if message is not None else ""
        whole = not isinstance(given, str) and is_lazy(given)
        text, shown = with_values(trace, text_of(AssertionError(given)))
        site = error_exits.numbered(trace, (at, False), whole)
        return check(trace, value.value, "AssertionError", text, shown=shown, site=site)
    if not value:
        raise AssertionError(message()) if message is not None else AssertionError
    return None


def read(thunk: Callable[[], object]) -> object:
    try:
        return thunk()
    except NameError:
        return UNDEF
