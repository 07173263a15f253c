"""What converted code calls: the meaning of each construct, decided while the function runs.

On a thread that traces, loops are offered to `dy2st.loops`, stores go through the journal, callees
are converted. Anywhere else every construct means what Python means.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

import paddle

from dy2st import loops
from dy2st.calls import fn
from dy2st.capture.fake import FakeTensor, Shape, Tensor
from dy2st.capture.trace import current
from dy2st.containers import TraceList
from dy2st.journal import MISSING, Attr, Item, container_snapshot
from dy2st.loops import truth
from dy2st.owned import check_mutable, made_here, note_attr, note_contents, refuse
from dy2st.plan import UNDEF
from dy2st.sequences import sequence_of
from dy2st.stops import NeedsConcrete
from dy2st.symbols import is_sym


# ---------------------------------------------------------------- loops
def for_(
    iterable: Any,
    body: Callable[[Any], None],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[tuple[Any, ...]], None],
    names: tuple[str, ...],
    test: Callable[[], Any] | None = None,
) -> None:
    trace = current()
    if trace is None:
        return _python_for(iterable, body, test)
    over = sequence_of(trace, iterable)
    if over is not None:
        return loops.run(trace, over, body, get_state, set_state, names, test)
    note_contents(trace, iterable)
    return _python_for(iterable, body, test)


def _python_for(iterable: Any, body: Callable[[Any], None], test: Any) -> None:
    if test is None:
        for item in iterable:
            body(item)
        return
    items = iter(iterable)
    while truth_of(test()):
        try:
            item = next(items)
        except StopIteration:
            return
        body(item)


def while_(
    test: Callable[[], Any],
    body: Callable[[], None],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[tuple[Any, ...]], None],
    names: tuple[str, ...],
) -> None:
    while truth_of(test()):
        body()


def if_(
    test: Any,
    then: Callable[[], None],
    orelse: Callable[[], None],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[tuple[Any, ...]], None],
    names: tuple[str, ...],
) -> None:
    then() if truth_of(test) else orelse()


def truth_of(value: Any) -> bool:
    trace = current()
    return bool(value) if trace is None else truth(trace, value)


# ---------------------------------------------------------------- expressions
def and_(*thunks: Callable[[], Any]) -> Any:
    value: Any = True
    for i, thunk in enumerate(thunks):
        value = thunk()
        if i + 1 < len(thunks) and not truth_of(value):
            return value
    return value


def or_(*thunks: Callable[[], Any]) -> Any:
    value: Any = False
    for i, thunk in enumerate(thunks):
        value = thunk()
        if i + 1 < len(thunks) and truth_of(value):
            return value
    return value


def not_(value: Any) -> bool:
    return not truth_of(value)


def ifexp(test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    return then() if truth_of(test) else orelse()


def is_(a: Any, b: Any) -> bool:
    trace = current()
    if trace is not None and a is not b and isinstance(a, Tensor) and isinstance(b, Tensor):
        held = [q for q in (a, b) if isinstance(q, FakeTensor) and q._value in trace.placeholders]
        if held:
            raise NeedsConcrete("`is` between a carried variable and a tensor", (), peel=True)
        real = [trace.lifted[id(q)].fake if id(q) in trace.lifted else q for q in (a, b)]
        return real[0] is real[1]
    return a is b


def is_not(a: Any, b: Any) -> bool:
    return not is_(a, b)


def in_(a: Any, b: Any) -> bool:
    trace = current()
    if trace is not None:
        if isinstance(a, Tensor):
            raise refuse("`in` with a tensor.", "It compares values, which a trace lacks.")
        note_contents(trace, b)
    return a in b


def not_in(a: Any, b: Any) -> bool:
    return not in_(a, b)


AUGMENTED = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "@": operator.imatmul,
    "/": operator.itruediv, "//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow,
    "<<": operator.ilshift, ">>": operator.irshift, "|": operator.ior, "^": operator.ixor,
    "&": operator.iand,
}  # fmt: skip


def aug(op: str, x: Any, value: Any) -> Any:
    """`x op= value`: rebinding for tensors and numbers; a list grows in place."""
    trace = current()
    if trace is not None and isinstance(x, TraceList) and op == "+":
        x.extend(value)
        return x
    if trace is not None and isinstance(x, (list, dict, set)):
        check_mutable(trace, x, f"{op}=")
        trace.journal.note(container_snapshot(x))
    return AUGMENTED[op](x, value)


def assert_(test: Callable[[], Any], message: Callable[[], Any] | None) -> None:
    trace = current()
    value = test()
    if trace is not None and isinstance(value, Tensor):
        truth(trace, value)
    if not value:
        raise AssertionError(message()) if message is not None else AssertionError


def read(thunk: Callable[[], Any]) -> Any:
    try:
        return thunk()
    except NameError:
        return UNDEF


# ---------------------------------------------------------------- containers
def list_(items: list[Any]) -> list[Any]:
    return TraceList(items) if current() is not None else items


def dict_(items: dict[Any, Any]) -> dict[Any, Any]:
    return _made(items)


def set_(items: set[Any]) -> set[Any]:
    return _made(items)


def _made(x: Any) -> Any:
    trace = current()
    if trace is not None:
        trace.made[id(x)] = x
    return x


slice_ = slice


# ---------------------------------------------------------------- attributes and items
def load_attr(obj: Any, name: str) -> Any:
    trace = current()
    if trace is None or isinstance(obj, (Tensor, TraceList)) or trace.guards is None:
        return getattr(obj, name)
    value = getattr(obj, name, MISSING)
    if value is MISSING:
        note_attr(trace, obj, name, value)
        return getattr(obj, name)
    note_attr(trace, obj, name, value)
    return value


def store_attr(value: Any, obj: Any, name: str) -> None:
    trace = current()
    if trace is None:
        setattr(obj, name, value)
        return
    if isinstance(obj, FakeTensor):
        old = getattr(obj, name)
        trace.journal.note(lambda: setattr(obj, name, old))
        setattr(obj, name, value)
        return
    if isinstance(obj, (Tensor, types.ModuleType, type)):
        raise refuse(
            f"the attribute {name} of a {type(obj).__name__} is set.",
            "Only attributes of Layers and of plain objects are carried by a program.",
            "Set it outside of the translated function.",
        )
    trace.store(Attr(obj, name), value)


def del_attr(obj: Any, name: str) -> None:
    trace = current()
    if trace is None:
        delattr(obj, name)
        return
    getattr(obj, name)
    trace.store(Attr(obj, name), MISSING)


def load_item(obj: Any, index: Any) -> Any:
    trace = current()
    if trace is None or isinstance(obj, (Tensor, TraceList)):
        return obj[index]
    if isinstance(obj, collections.defaultdict) and index not in obj:
        if trace.tentative:
            raise NeedsConcrete("a defaultdict makes an item in the loop")
        trace.journal.note(container_snapshot(obj))
        trace.store(Item(obj, index), obj[index])
    value = obj[index]
    shape = isinstance(obj, (Shape, paddle.Size))
    known = isinstance(obj, (list, dict, tuple)) and not shape and not made_here(trace, obj)
    if known and trace.guards is not None and isinstance(index, (int, str)) and not is_sym(index):
        if ("item", id(obj), index) not in trace.stored and not _holds_fake(obj):
            trace.guards.item(obj, index, value)
    return value


def _holds_fake(x: Any) -> bool:
    values = x.values() if isinstance(x, dict) else x
    return isinstance(x, tuple) or any(isinstance(q, FakeTensor) for q in values)


def store_item(value: Any, obj: Any, index: Any) -> None:
    trace = current()
    if trace is None or isinstance(obj, (Tensor, TraceList)):
        obj[index] = value
        return
    if is_sym(index):
        raise NeedsConcrete(f"{type(obj).__name__}[{index!r}] = ...", index.loops)
    if not isinstance(obj, (list, dict)) or isinstance(index, slice):
        raise refuse(
            f"an item of a {type(obj).__name__} is set.",
            "Only items of lists and dicts are carried by a program.",
        )
    if id(obj) in trace.arguments:
        check_mutable(trace, obj, "item assignment")
    trace.store(Item(obj, index), value)


def del_item(obj: Any, index: Any) -> None:
    trace = current()
    if trace is not None and isinstance(obj, (list, dict, set)):
        check_mutable(trace, obj, "del")
        trace.journal.note(container_snapshot(obj))
    del obj[index]


__all__ = ["UNDEF", "current", "fn"]
