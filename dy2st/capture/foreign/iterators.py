"""`next` of an iterator from outside: a host call, made again on every call.

What an iterator gives next is learned from a copy, if one can be made that takes nothing out of the
iterator itself. Of any other, such as a generator, a trace takes an item, which is kept until a
call of a program takes it. Items of another structure than a call expects are kept as well, and the
function is translated again.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import random
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from paddle.base import core

from dy2st.capture.foreign.host import recorded
from dy2st.capture.foreign.host_ops import Callee
from dy2st.capture.foreign.host_results import GENERATORS, HostResult, article, result_of
from dy2st.capture.foreign.probe import RANDOM
from dy2st.capture.foreign.reachability import watched
from dy2st.state.arrays import tensor_of
from dy2st.state.guards import is_constant
from dy2st.state.ownership import refuse
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import DTYPE_FROM_PADDLE, Tensor, type_of
from dy2st.trace.scalar import DTYPES
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import perform
from ir import Op, SourceError, Type
from ir.program import Node
from ir.uses import walk

#: iterators whose copies are independent of them
COPIED: tuple[type, ...] = (
    itertools.count, itertools.cycle, itertools.repeat, itertools.chain, itertools.islice,
    type(iter([])), type(iter(())), type(iter(range(0))), type(reversed([])),
    type(iter(range(1 << 70))), type(iter({})), type(iter(set())), type(iter({}.values())),
)  # fmt: skip
#: what a copy raises if a part of the iterator, or an element, has none
NO_COPY = (TypeError, RuntimeError, copy.Error)
ENDLESS = (itertools.count, itertools.cycle)
#: so many elements are looked at
MOST = 1000
#: so often a call is translated again because an item has another structure than expected
MOST_RETRIES = 8
#: what `structure` gives for numbers
NUMBERS = {kind: ("number", Type(dtype)) for kind, dtype in DTYPES.items()}
#: so many calls of `next` are traced, one behind the other
MOST_AHEAD = 64
REMEDY = "Call `next` outside of the translated function, and pass the value as an argument."
TAKEN = "It has taken an item of the {}, with which the next translated call begins."
ALONE = (
    "It comes next in the next call, which has a program for it. In front of random numbers, "
    "clocks and other functions that the program calls, such an item is no error."
)
COPY = "It is an element of an iterator from outside, which may keep it, and this one is a copy."


def advanced(trace: Trace, iterator: object, default: tuple[object, ...]) -> object:
    """`next(iterator)`, made again on every call. Raises StopIteration where eager does now."""
    if trace.trying and not default and type(iterator) not in ENDLESS:
        raise refuse(
            "next() of an iterator that may end, inside of a `try` statement.",
            "The program advances it later, when the handlers of the function are left.",
            "Give a default, `next(it, 0.0)`; or call `next` outside of the translated function.",
        )
    found = numbers_of(trace, iterator, default)
    if found is not None:
        take = functools.partial(next, iterator, *default)
        return recorded(trace, Callee.of("next", take, iterator, False, found), (), {})
    return drawn(trace, iterator, default)


def numbers_of(trace: Trace, iterator: object, default: Sequence[object]) -> HostResult | None:
    """The result of `next`, if a copy says that it is a number of one kind in all calls."""
    known = KNOWN.get(id(iterator))
    if type(iterator) not in COPIED or known is not None and known.kept:
        return None
    try:
        with trace.pause():
            elements = list(itertools.islice(copied(iterator), MOST))
    except NO_COPY:
        return None
    if not elements and not default:
        raise StopIteration
    every = (*elements, *default)
    same = all(type(q) is type(every[0]) for q in every)
    return result_of("next", every[0]) if same and type(every[0]) in DTYPES else None


def copied(iterator: object) -> Any:
    """A copy that can be advanced alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return copy.deepcopy(iterator)


# ---------------------------------------------------------------- the structure of an item
class Ended:
    """In place of an item: there are no more. `error` is that of `next`."""

    def __init__(self, error: StopIteration) -> None:
        self.error = error


def structure(x: Any, leaves: list[Any]) -> object:
    """What all items have in common that a program takes, for comparison; collects the `leaves` of
    this one. Raises Refused for what a program does not take."""
    kind = type(x)
    if kind in NUMBERS and (kind is not int or -(1 << 63) <= x < 1 << 63):
        leaves.append(x)
        return NUMBERS[kind]
    if kind is Ended or x is None:
        return kind
    if kind in (tuple, list) or isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind, tuple(structure(q, leaves) for q in x)
    if kind is dict and all(map(is_constant, x)):
        return kind, tuple(x), tuple(structure(q, leaves) for q in x.values())
    leaves.append(x)
    if isinstance(x, Tensor) and x.stop_gradient and x.dtype in DTYPE_FROM_PADDLE:
        return "tensor", type_of(x)
    if isinstance(x, Tensor):
        raise refuse(
            "next() gives a tensor here that requires a gradient, or of an element type that "
            "programs do not have.",
            "It enters the program as a copy.",
            REMEDY,
        )
    found = result_of("next", x)
    return found.kind, found.type


def rebuilt(like: object, leaves: list[Any], trace: Trace) -> Any:
    """The item of a structure with these leaves, which are taken in order; its lists and dicts are
    those of the trace."""
    if not isinstance(like, tuple):
        return None
    if isinstance(like[0], str):
        return leaves.pop(0)
    parts = [rebuilt(q, leaves, trace) for q in like[-1]]
    if like[0] is list:
        return TraceList(parts)
    if like[0] is dict:
        made = dict(zip(like[1], parts))
        trace.make(made)
        return made
    return like[0](*parts) if hasattr(like[0], "_fields") else tuple(parts)


# ---------------------------------------------------------------- items that have been drawn
class CallItems(threading.local):
    """The items of this thread's call. taken: of each, where it is from, and whether it is new;
    arrays: those in them, by their `id`, with what they held; peeked: where those are from that the
    trace has seen."""

    def __init__(self) -> None:
        self.taken: list[tuple[DrawnItems, object, bool]] = []
        self.arrays: dict[int, tuple[object, Any]] = {}
        self.peeked: list[DrawnItems] = []


CALL = CallItems()
#: by the `id` of an iterator; those with `kept` items, and all that are in use
WAITING: dict[int, DrawnItems] = {}
KNOWN: weakref.WeakValueDictionary[int, DrawnItems] = weakref.WeakValueDictionary()


class UnexpectedItem(TypeError):
    """An item that the program does not take."""


class DrawnItems:
    """What has been taken from an iterator, by traces or by calls that could not use it: `kept` for
    the next calls. `draws`: a trace has taken one that was drawn from a random generator."""

    def __init__(self, iterator: object) -> None:
        key = id(iterator)
        self.kept: list[Any] = []
        self.draws = False
        self.lock = threading.RLock()

        def forget(_: object) -> None:
            WAITING.pop(key, None)
            KNOWN.pop(key, None)

        try:
            self.iterator: Callable[[], Any] = weakref.ref(iterator, forget)
        except TypeError:
            self.iterator = lambda: iterator
        KNOWN[key] = self

    @staticmethod
    def of(iterator: object) -> DrawnItems:
        return KNOWN.get(id(iterator)) or DrawnItems(iterator)

    def keep(self, at: int, item: object) -> None:
        with self.lock:
            self.kept.insert(at, item)
            WAITING[id(self.iterator())] = self

    def peek(self, at: int) -> object:
        """The item of a trace's draw `at`: one of those that are kept, or another one if there are
        none."""
        with self.lock:
            if not self.kept and type(self.iterator()) in COPIED:
                with contextlib.suppress(*NO_COPY):
                    found = list(itertools.islice(copied(self.iterator()), at + 1))
                    return found[at] if at < len(found) else Ended(StopIteration())
            CALL.peeked.append(self)
            if not self.kept:
                before = random_state()
                self.keep(0, self.another())
                self.draws |= random_state() != before
            return self.kept[min(at, len(self.kept) - 1)]

    def another(self) -> object:
        try:
            return perform(next, self.iterator())
        except StopIteration as end:
            return Ended(end)

    def take(self) -> object:
        """The next item, for a call of a program."""
        with self.lock:
            new = not self.kept
            item = self.another() if new else self.kept.pop(0)
            if not self.kept:
                WAITING.pop(id(self.iterator()), None)
        CALL.taken.append((self, item, new))
        return item


@dataclass(eq=False)
class ItemCall:
    """The calls of a program that stand for one `next`: `first` takes the item, and all give their
    leaf of it. `expected`: the structure of the item, or of a constant `default`."""

    items: DrawnItems
    default: tuple[object, ...]
    expected: object
    running: threading.local

    def first(self) -> object:
        item = self.items.take()
        if isinstance(item, Ended) and not self.default:
            raise item.error
        given, found = instead(item, self.default), list[Any]()
        if not self.accepts(given, found):
            what = "nothing more" if isinstance(given, Ended) else article(given)
            raise UnexpectedItem(
                f"next() gives {what} now, which is of another type or size than what it gave "
                "when the function was translated"
            )
        self.running.leaves = [*map(as_value, found)]
        for q, held in zip(found, self.running.leaves):
            if not isinstance(held, np.ndarray):
                continue
            before = CALL.arrays.setdefault(id(q), (q, held))[1]
            if held.tobytes() != before.tobytes():
                raise TypeError(
                    "next() gives an array a second time, which has been changed in between"
                )
        return self.running.leaves[0] if found else None

    def leaf(self, at: int) -> object:
        return self.running.leaves[at]

    def accepts(self, item: object, leaves: list[Any]) -> bool:
        try:
            return structure(item, leaves) == self.expected
        except (Refused, TypeError):  # not an item for any program
            return False


def instead(item: object, default: tuple[object, ...]) -> object:
    """What `next` gives; a default that is no constant is none of the program's."""
    return default[0] if isinstance(item, Ended) and all(map(is_constant, default)) else item


def as_value(x: Any) -> Any:
    """A copy of an array or tensor, as an array."""
    return x.numpy() if isinstance(x, Tensor) else x.copy() if isinstance(x, np.ndarray) else x


def random_state() -> tuple[object, ...]:
    """The states of the generators of Python, NumPy and Paddle."""
    paddles = str(core.default_cpu_generator().get_state())  # with the address of the generator
    numpys = str(np.random.get_state(legacy=False))
    return random.getstate(), numpys, paddles.partition("0x")[2].split()[1:]


# ---------------------------------------------------------------- in a trace
def drawn(trace: Trace, iterator: object, default: tuple[object, ...]) -> object:
    items = DrawnItems.of(iterator)
    calls, count = trace.objects.drawn.setdefault(id(iterator), ({}, []))
    at = len(count)
    if at > MOST_AHEAD:
        raise refuse(
            f"more than {MOST_AHEAD} calls of next() of one iterator in one call, each by itself.",
            "Whether the iterator ends before is known only when the program runs.",
            "Loop over a known number of elements: `for _ in range(n): x = next(it)`.",
        )
    with trace.pause():
        item = items.peek(at)
    if items.draws and any(map(is_draw, walk(q for f in trace.frames for q in f.builder.ops))):
        raise refuse(
            "next() of an iterator that draws random numbers, behind random numbers of the "
            "function.",
            "Its first element is taken when the function is translated, before those are drawn.",
            "Call `next` first, or outside of the translated function.",
        )
    if isinstance(item, Ended) and not default:
        raise item.error
    item, leaves = instead(item, default), list[Any]()
    like = structure(item, leaves)
    if trace.tentative and any(structure(instead(q, default), []) != like for q in items.kept):
        raise NeedsConcrete("an iterator from outside gives items of different types")
    calls[at] = call = ItemCall(items, default, like, threading.local())
    count.append(call)
    trace.undo_log.note(count.pop)
    expect(trace, items, iterator, calls)
    step: Callable[[], object] = watched(trace, call.first, "next", (iterator,))
    made: list[object] = []
    for k, q in enumerate(leaves or [None]):
        if isinstance(q, Tensor):
            result = HostResult("tensor", type_of(q))
        else:
            result = result_of("next", q)
        callee = Callee.of("next", step, None, False, result)
        callee.repeats = True
        made.append(recorded(trace, callee, (), {}))
        step = functools.partial(call.leaf, k + 1)
    for x in map(tensor_of, made):
        if isinstance(x, Tensor):
            trace.freeze(trace.root(x._value), COPY, None)
    return default[0] if isinstance(item, Ended) else rebuilt(like, made, trace)


def expect(
    trace: Trace, items: DrawnItems, iterator: object, calls: Mapping[int, ItemCall]
) -> None:
    """A call checks the items that are kept."""
    guards, key = trace.guards, ("items", id(iterator))
    kept, test = map(guards.ref_constant, (items.kept, functools.partial(accepted, items, calls)))
    guards.note(key, f"the next item of {guards.name(iterator)}")
    guards.terms[key] = f"(not {kept} or {test}())"


def accepted(items: DrawnItems, calls: Mapping[int, ItemCall]) -> bool:
    """Whether a program takes the items that are kept."""
    last = max(calls)
    given = [(calls[min(k, last)], q) for k, q in enumerate(items.kept)]
    return all(call.accepts(instead(q, call.default), []) for call, q in given)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """An error of a translation says that it has taken items."""
    CALL.peeked = []
    try:
        yield
    except SourceError as error:
        kept = [type(q.iterator()).__name__ for q in CALL.peeked if q.kept]
        if kept:
            error.reason = f"{error.reason} {TAKEN.format(*kept)}".strip()
        raise
    finally:
        CALL.peeked = []


# ---------------------------------------------------------------- in a call
def is_draw(node: Node) -> bool:
    """Whether an op draws random numbers."""
    if not isinstance(node, Op) or node.name != "foreign":
        return False
    host = node.attrs["call"] == "host" and node.attrs["args"][0].owner
    return node.attrs["call"] in RANDOM or isinstance(host, tuple(GENERATORS))


def takes_items(nodes: Iterable[Node]) -> bool | None:
    """Whether a call that has met an unexpected item may be made again: nothing in it acts but
    draws of items. None if there are none."""
    found = [q for q in walk(nodes) if isinstance(q, Op) and q.name == "foreign"]
    acting = [q for q in found if q.attrs["call"] in RANDOM | {"host", "print"}]
    calls = [q.attrs["args"][0] for q in acting if q.attrs["call"] == "host"]
    items = [q for q in calls if q.repeats]
    return len(items) == len(acting) if items else None


def retried(call: Callable[..., object], repeats: bool, miss: object) -> Callable[..., object]:
    """A call of a program that takes items: with one of another type than it expects it gives
    `miss`, if it `repeats` all that it does, and the items are kept."""

    def run(leaves: Sequence[object], _only_check: bool = False) -> object:
        if _only_check:
            return call(leaves, True)
        outer, taken = (CALL.taken, CALL.arrays), list[tuple[DrawnItems, object, bool]]()
        CALL.taken, CALL.arrays = taken, {}
        try:
            return call(leaves)
        except UnexpectedItem as error:
            for items, item, _ in reversed(taken):
                items.keep(0, item)
            if not repeats or len(taken) > MOST_RETRIES or not any(new for _, _, new in taken):
                raise TypeError(f"{error}. {ALONE}") from None
            return miss
        finally:
            CALL.taken, CALL.arrays = outer

    return run


__all__ = ["advanced", "retried", "takes_items", "told"]
