"""Generators and other iterators in converted code.

A generator function is converted like any other, but a loop or branch that contains a `yield` stays
Python's, so what it yields is made one by one. An iterator cannot be put back: one that was made
before a loop is not advanced while the loop's body is traced, so that loop is unrolled.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paddle.nn import Layer

from dy2st.branches.cond import condition
from dy2st.branches.unresolved import here
from dy2st.capture.foreign.iterators import advanced
from dy2st.convert.unsupported import is_generator
from dy2st.loops.iterables import (
    NumberSequence,
    PartialIterator,
    applied,
    is_lost,
    lost,
    sequence_of,
    taken,
    zip_,
)
from dy2st.state.containers import rebound_containers
from dy2st.state.containers.dynamic_lookup import MOST_UNROLLED, flat
from dy2st.state.ownership import check_keys, note_contents, refuse
from dy2st.state.protocols import UserIterator, iterable_of, users_method
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform

#: the members of a group, which `itertools.groupby` gives
_GROUP = type(next(itertools.groupby((0,)))[1])
_MANAGER = contextlib.contextmanager(lambda: iter(())).__code__  # type: ignore[attr-defined]


class TraceGenerator:
    """A generator made by converted code. `what` describes it; None keeps it out of the report.
    `whole` makes what the builtin `consumer` needs of all its items, until one has been made."""

    __class__ = property(lambda self: types.GeneratorType)  # type: ignore[assignment]

    def __init__(self, trace: Trace, inner: Any, what: str | None) -> None:
        self.trace, self.home, self.inner, self.what = trace, trace.frame, inner, what
        self.whole: Callable[..., object] | None = None
        self.consumer = ""

    def __iter__(self) -> TraceGenerator:
        return self

    def __next__(self) -> Any:
        return self.advance(lambda: next(self.inner))

    def send(self, value: object) -> object:
        return self.advance(lambda: self.inner.send(value))

    def throw(self, *error: object) -> object:
        return self.advance(lambda: self.inner.throw(*error))

    def close(self) -> None:
        self.inner.close()

    def advance(self, step: Callable[[], object]) -> object:
        trace, self.whole = current(), None
        if trace is None:
            return step()
        if trace.frame is not self.home and not is_lost(trace, self):
            raise NeedsConcrete("a generator from outside of the loop is advanced in it")
        before = len(trace.builder.ops)
        out = step()
        if len(trace.builder.ops) > before and next(flat((out,)), None) is not None:
            self.note(trace)
        return out

    def note(self, trace: Trace) -> None:
        """The report says once that what this generator makes is unrolled."""
        if self.what is not None:
            trace.frame.notes.append(("unrolled", trace.where(), f"iterates over {self.what}"))
            self.what = None


TraceGenerator.__name__ = TraceGenerator.__qualname__ = "generator"


def maker(f: Callable[..., object]) -> Callable[..., object]:
    """A converted function; a generator function gives generators that the trace knows. Those of
    `Layer` itself (`named_sublayers`) run over its parts, not over time."""
    if not is_generator(f):
        return f
    what = None if f.__module__ == Layer.__module__ else "a generator"

    @functools.wraps(f)
    def make(*args: object, **kwargs: object) -> object:
        trace = current()
        made = f(*args, **kwargs)
        return made if trace is None else TraceGenerator(trace, made, what)

    return make


def manager_maker(
    f: types.FunctionType, call: Callable[[object], Any]
) -> Callable[..., object] | None:
    """Return the context manager of a generator function with that function converted; None for a
    function that `contextlib.contextmanager` has not made."""
    inner: Any = getattr(f, "__wrapped__", None)
    if f.__code__ is not _MANAGER or not is_generator(inner):
        return None
    function = call(inner)

    def quiet(*args: object, **kwargs: object) -> Any:
        made = function(*args, **kwargs)
        made.what = None
        return made

    return contextlib.contextmanager(functools.wraps(inner)(quiet))


def generator_(
    make: Callable[[Any], Iterator[object]], iterable: object, whole: Any, name: str, item: Any
) -> object:
    """A generator expression over `iterable`; `whole` and `name`: `TraceGenerator`. `item`: a
    function of one item, if it is that of each of them."""
    trace = current()
    if trace is None:
        return make(iterable)
    if item is not None and (found := applied(item, zip_(iterable))) is not None:
        trace.objects.iterators[id(found)] = (found, trace.frame)
        return found
    what = "a generator expression" if is_long(trace, iterable) else None
    made = TraceGenerator(trace, later(make, iterable), what)
    if whole is not None:
        made.whole, made.consumer = functools.partial(comprehension, whole, iterable), name
    return made


def later(make: Callable[[Any], Iterator[object]], iterable: object) -> Iterator[object]:
    """`make(iterable)`, made when the first item is asked for."""
    yield from make(iterable)


def consumed(x: object, name: str, *rest: object) -> Any:
    """`(result,)`: what the builtin `name` needs of a generator expression that was written for it,
    with the `rest` of its arguments; () for anything else."""
    if type(x) is not TraceGenerator or x.whole is None or x.consumer != name:
        return ()
    make, x.whole, x.inner = x.whole, None, iter(())
    return (make(*rest),)


def holds(value: object) -> bool:
    """The truth of a test whose branch or loop contains a `yield`."""
    trace = current()
    known = value if trace is None else condition(trace, value)
    if is_runtime_scalar(known):
        raise refuse(
            "a condition on data decides about a `yield`.",
            "A generator makes its items one by one while the function is traced.",
            "Write the loop in the function itself, or yield in any case.",
        )
    return bool(known)


# ---------------------------------------------------------------- iterators of Python
def registered(f: Callable[..., object]) -> Callable[..., object]:
    """`f`, whose iterators are known to be made in the loop that calls it."""

    @functools.wraps(f)
    def make(*args: object, **kwargs: object) -> object:
        trace = current()
        if trace is not None and f is not iter_:
            for x in args:
                check_made_here(trace, x)
        made = f(*args, **kwargs)
        if trace is not None and not any(made is x for x in args):
            for q in made if isinstance(made, tuple) else (made,):
                trace.objects.iterators[id(q)] = (q, trace.frame)
        return made

    return make


def is_outside(trace: Trace, x: object) -> bool:
    """Whether an iterator was there before the call."""
    if not hasattr(type(x), "__next__") or users_method(x, "__next__") is not None:
        return False
    kinds = (UserIterator, TraceGenerator, _GROUP)
    return id(x) not in trace.objects.iterators and type(x) not in kinds


def check_made_here(trace: Trace, x: object) -> None:
    """An iterator from outside may not be used up by code that takes all of it."""
    check_keys(x)
    if is_lost(trace, x):
        raise lost()
    if is_outside(trace, x):
        raise refuse(
            f"the function takes all that is left of a {type(x).__name__} that was there "
            "before the call.",
            "The next call would find it at another place.",
            "Loop over a list or a range, or take single elements: `next(it)`.",
        )


def check_advance(trace: Trace, iterator: object) -> None:
    """An iterator from outside of the loop would be elsewhere after the trace is undone."""
    if not hasattr(type(iterator), "__next__"):
        return
    if is_lost(trace, iterator):
        raise lost()
    if not trace.tentative:
        return check_made_here(trace, iterator)
    if type(iterator) is UserIterator:
        return
    known = trace.objects.iterators.get(id(iterator))
    if type(iterator) is not TraceGenerator and (known is None or known[1] is not trace.frame):
        raise NeedsConcrete("an iterator from outside of the loop is advanced in it")


def next_(iterator: Any, *default: Any) -> object:
    trace = current()
    if trace is None:
        return perform(next, iterator, *default)
    if users_method(iterator, "__next__") is not None:
        iterator = UserIterator(trace, iterator)
    if is_outside(trace, iterator):
        return advanced(trace, iterator, default)
    check_advance(trace, iterator)
    return perform(next, iterator, *default)


def iter_(x: Any, *rest: Any) -> object:
    trace = current()
    if trace is None or rest:
        return perform(iter, x, *rest)
    made = iterable_of(trace, x)
    return perform(iter, made.obj if type(made) is UserIterator else made)


def iterated(x: Any, parts: bool = False) -> Any:
    """Return an iterable for Python's own code; with `parts`, its elements are iterated, too."""
    trace = current()
    if trace is None:
        return x
    x = iterable_of(trace, x)
    check_made_here(trace, x)
    return map(iterated, x) if parts else x


def display(kind: str, stars: Sequence[bool], *values: Any) -> Any:
    """`[*x, y]` or `(*x, y)`; `stars`: which values are starred."""
    trace, made = current(), {"list": list, "tuple": tuple}[kind]
    if trace is not None:
        pairs = zip(stars, values)
        return rebound_containers.display(
            made, stars, [shown(q) if star else here(q) for star, q in pairs]
        )
    return made(q for star, x in zip(stars, values) for q in (x if star else (x,)))


def shown(x: object) -> Any:
    """Return an iterable for C code, which exhausts it: the list of an iterator that can be one
    loop."""
    trace, x = current(), iterated(x)
    return x if trace is None or not isinstance(x, PartialIterator) else trace.hooks.call(listed)(x)


def listed(items: Any) -> list[object]:
    return [q for q in items]  # noqa: C416


listed.__module__ = "dy2st_user_code"  # converted like a user's: it must not pass for a library's


def consume(trace: Trace, iterable: object) -> None:
    """A `for` runs over this in Python."""
    check_advance(trace, iterable)
    if type(iterable) is TraceGenerator:
        iterable.note(trace)
    note_contents(trace, iterable)


def items(iterable: object, test: Callable[[], object] | None = None) -> Iterator[object]:
    """The items of a loop that contains a `yield`; `test` is evaluated before each one."""
    trace = current()
    with taken(iterable, test is not None) as rest:
        source = iter(rest if trace is None else one_by_one(trace, rest))
        while test is None or holds(test()):
            try:
                item = next(source)
            except StopIteration:
                return
            yield item


def is_long(trace: Trace, iterable: Any) -> bool:
    """Whether a generator expression over this may be one over time; a few elements of a list are
    no loop, as in a `for`."""
    if isinstance(iterable, TraceGenerator):
        return True
    if isinstance(iterable, list) and len(iterable) <= MOST_UNROLLED:
        return False
    return sequence_of(trace, iterable) is not None


def one_by_one(trace: Trace, iterable: Any) -> Any:
    over = sequence_of(trace, iterable)
    if over is None:
        consume(trace, iterable)
        return iterable
    if over.is_open():
        length = "of a length that data decides"
        raise refuse(
            f"a loop {length if over.more else f'over the size {over.trip} of the program'} "
            "contains a `yield`.",
            "A generator makes its items one by one while the function is traced.",
            "Collect the items in a list, or give the size as a number in input_spec.",
        )
    trace.frame.notes.append(("unrolled", trace.where(), "it contains a yield"))
    return map(over.item, range(over.trip))  # type: ignore[arg-type]


def comprehension(f: Callable[..., object], iterable: object, *rest: object) -> object:
    """`f(iterable, *rest)`; loops that only compute with Python values are not worth a note."""
    trace = current()
    if trace is None:
        return f(iterable, *rest)
    check_made_here(trace, iterable)
    if sequence_of(trace, iterable) is None and sequence_of(trace, iterable, numbers=True):
        iterable = NumberSequence(iterable)
    frame = trace.frame
    ops, notes = len(frame.builder.ops), len(frame.notes)
    out = f(iterable, *rest)
    if len(frame.builder.ops) == ops:
        del frame.notes[notes:]
    return out
