"""Iterables of loops: ranges, tensors, filled lists, and `enumerate`, `zip`, `reversed`."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from dy2st.branches.predicates import known_here
from dy2st.capture.indexing.items import getitem
from dy2st.loops.loop_code import LoopCode, LoopIterable
from dy2st.state.arrays import is_array
from dy2st.state.containers import dynamic_lookup
from dy2st.state.containers.layers import difference
from dy2st.state.containers.records import holds_record
from dy2st.state.ownership import made_here, note_contents, refuse
from dy2st.state.stacked_run import StackedRun
from dy2st.state.traced_list import TraceList, contents
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import number
from dy2st.trace.scalar import RuntimeScalar, check, is_runtime_scalar, stop, truncated
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import SymInt, SymRange, dim_of
from dy2st.trace.symint import range_ as symbolic_range
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform
from ir import ENDLESS, Loc
from ir.types import Dim


def sequence_of(trace: Trace, iterable: Any, numbers: bool = False) -> LoopIterable | None:
    """Return the iterable of a rolled loop over an object, None if there is none. With `numbers`, a
    list of numbers, which become numbers of the program, or of Layers has one, too."""
    if isinstance(iterable, Tensor):
        shape = _shape(trace, iterable)
        if not shape:
            return None
        return LoopIterable(shape[0], lambda i: getitem(trace, iterable, i))
    if type(iterable) is range:
        return LoopIterable(len(iterable), lambda i: iterable.start + i * iterable.step)
    if isinstance(iterable, SymRange):
        return of_range(trace, iterable)
    if isinstance(iterable, RuntimeRange):
        return LoopIterable(ENDLESS, iterable.item, iterable.has)
    if isinstance(iterable, PartialIterator):
        iterable = iterable.rest()
    if isinstance(iterable, RemainingItems):
        return iterable.over if numbers or not iterable.numbers else None
    if is_array(iterable) and iterable.ndim:  # type: ignore[attr-defined]
        rows: Any = iterable
        return LoopIterable(rows.fake._value.type.shape[0], lambda i: rows[i])
    if isinstance(iterable, TraceList) and iterable.segmented:
        parts = contents(iterable)
        part = parts[0] if len(parts) == 1 else iterable.as_segment(trace)
        if isinstance(part, StackedRun):
            return of_filled(trace, iterable, part)
    return of_elements(trace, iterable) if numbers else None


def of_filled(trace: Trace, items: TraceList, part: StackedRun) -> LoopIterable:
    """A loop over a list that loops have filled, whose elements are `part` when it begins. Those
    that its body stores are read as in eager."""
    begun = items.raw()

    def item(i: object) -> object:
        stored, now = items.pick(i), items.raw()
        if not stored and len(now) == len(begun) and all(map(operator.is_, now, begun)):
            return part.item(trace, i)
        if items.size() != part.trip:
            raise length_changes()
        return items[i]

    return LoopIterable(part.trip, item, lists=((items, part.trip),))


def length_changes() -> BaseException:
    return refuse(
        "a list changes its length while a loop runs over it.",
        "A loop over many elements has as many iterations as there are when it begins.",
        "Loop over a copy, or use `while`.",
    )


def check_lengths(over: LoopIterable, code: LoopCode | None = None) -> None:
    """Refuse a change of the length of a list that a loop runs over to its end."""
    if any(items.size() != n for items, n in over.lists):
        if code is None or code.test is None or code.test() is not False:
            raise length_changes()


def of_elements(trace: Trace, items: Any) -> LoopIterable | None:
    """A loop over a list, tuple or array of many numbers of one kind, or over many tensors or
    Layers of one structure."""
    layers = dynamic_lookup.is_holder(items)
    if not (layers or isinstance(items, TraceList) or dynamic_lookup.is_sequence(items)):
        return None
    n = len(items)
    if n <= dynamic_lookup.MOST_UNROLLED or not dynamic_lookup.are_alike(
        list(items) if layers else items
    ):
        return None
    if not layers:
        note_contents(trace, items)
    elif trace.guards is not None and not made_here(trace, items):
        trace.guards.holder(items)

    def item(i: Any) -> object:
        if type(i) is not int:
            return picked(trace, element_of(trace, items, i))
        if len(items) != n:
            raise length_changes()
        return items[i]

    return LoopIterable(n, item, lists=((items, n),) if isinstance(items, TraceList) else ())


def note_unlike(trace: Trace, items: Any) -> None:
    """The report says why a loop over many Layers is none of the program."""
    many = dynamic_lookup.is_holder(items) and len(items) > dynamic_lookup.MOST_UNROLLED
    if many and (why := difference(list(items))):
        trace.frame.notes.append(in_turn(trace.where(), len(items), f"its index {why}", True))


def in_turn(site: Loc, trip: Dim, why: str, of_layers: bool) -> tuple[str, Loc, str]:
    """The line of the report about a loop that is unrolled. One over the layers of a model, or over
    a Python list with an element for each of them, is as long as the model is deep: a loop of the
    program would take no less time."""
    if of_layers and isinstance(trip, int) and 0 <= trip <= dynamic_lookup.MOST_WRITTEN_OUT:
        return "written out", site, f"{trip} iterations: {why}"
    return "unrolled", site, why


def picked(trace: Trace, item: object) -> object:
    """The item of a list at the loop's index. It may not leave the loop: the list has it, too."""
    found = dynamic_lookup.flat((item,))
    trace.values.iterated.update(q._value for q in found if isinstance(q, FakeTensor))
    return item


def element_of(trace: Trace, items: Any, i: RuntimeScalar | SymInt) -> object:
    if isinstance(items, TraceList):
        return items[i]
    if dynamic_lookup.is_holder(items):
        return dynamic_lookup.element(trace, items, list(items), i, type(items).__name__)
    return dynamic_lookup.element(trace, items, items, i, type(items).__name__)


def of_range(trace: Trace, r: SymRange) -> LoopIterable:
    """A step that does not divide the range leaves a loop of at most as many iterations."""
    gap = (dim_of(r.stop) - dim_of(r.start)) * (1 if r.step > 0 else -1)
    trace.require(gap, 0, "range")
    if r.divides:
        return LoopIterable(r.trip, lambda i: r.start + i * r.step)

    def more(i: Any) -> object:
        if type(i) is int and i == 0:
            return trace.sym(gap) > 0
        return r.start + i * r.step < r.stop if r.step > 0 else r.start + i * r.step > r.stop

    limit = (abs(r.step), gap - 1)
    return LoopIterable(gap, lambda i: r.start + i * r.step, more, limit)


class RuntimeRange:
    """A `range` whose bounds the program computes."""

    def __init__(self, trace: Trace, start: object, stop: Any, step: Any) -> None:
        self.start, self.step = start, step
        self.length = -((start - stop) // step)
        if is_runtime_scalar(step):
            zero = (step != 0).value  # type: ignore[attr-defined]
            check(trace, zero, "ValueError", "range() arg 3 must not be zero")

    def item(self, i: object) -> object:
        return self.start + i * self.step

    def has(self, i: object) -> Any:
        return i < self.length

    def __iter__(self) -> NoReturn:
        raise stop(self.length, "range() outside of a for statement")

    def __len__(self) -> int:
        raise stop(self.length, "the length of a range")

    def __getitem__(self, i: object) -> Any:
        raise stop(self.length, "an element of a range")


RuntimeRange.__name__ = RuntimeRange.__qualname__ = "range"


def range_(*args: Any) -> object:
    """`range` for converted code: tensors and numbers of the program are bounds of a loop."""
    trace = current()
    if trace is None:
        return perform(range, *args)
    numbers = [as_index(trace, a) for a in args]
    if not any(map(is_runtime_scalar, numbers)):
        return symbolic_range(*numbers)
    start, last, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if not is_runtime_scalar(step) and step == 0:
        raise ValueError("range() arg 3 must not be zero")
    return RuntimeRange(trace, start, last, step)


def as_index(trace: Trace, x: object) -> object:
    """`operator.index(x)`: tensors become numbers, those of floats without their fractions."""
    if isinstance(x, Tensor):
        fake = lift(trace, x)
        found = number(trace, fake, "the bound of a range")
        if type(found) is float:
            return int(found)
        return truncated(found) if fake._value.type.dtype.differentiable else found
    if is_runtime_scalar(x) and x.kind is float:
        raise TypeError("'float' object cannot be interpreted as an integer")
    return known_here(trace, x)


def _shape(trace: Trace, x: Tensor) -> tuple[Dim, ...]:
    return x.ask_type().shape if isinstance(x, FakeTensor) else tuple(int(d) for d in x.shape)


class NumberSequence:
    """Numbers of Python for a comprehension or a builtin, which may need them as such."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[object]:
        return iter(self.items)


class RemainingItems:
    """The remaining items of `enumerate`, `zip`, `reversed` or `map` over a rollable iterable.
    `numbers`: over a list of numbers, which only a `for` statement makes one of. `backwards`: the
    list that `reversed` runs over, if a loop has filled it."""

    def __init__(
        self, over: LoopIterable, numbers: bool = False, backwards: TraceList | None = None
    ) -> None:
        self.over, self.numbers, self.backwards = over, numbers, backwards

    def as_list(self) -> TraceList | None:
        """A list of it, without taking apart what loops have filled."""
        items = self.backwards
        if items is None or items.size() != self.over.trip:
            return None
        return TraceList(contents(items[::-1]))

    def after(self, n: int) -> RemainingItems:
        """Without the first `n` items."""
        if not n:
            return self
        trip, more, item = self.over.trip, self.over.more, self.over.item
        if trip != ENDLESS:
            trip = trip - min(n, trip) if isinstance(trip, int) else trip - n
        later = None if more is None else lambda i: more(i + n)
        over = self.over
        rest = LoopIterable(
            trip, lambda i: item(i + n), later, computed=over.computed, lists=over.lists
        )
        return RemainingItems(rest, self.numbers)

    def __iter__(self) -> Iterator[object]:
        """One by one, for code that is no `for` statement."""
        if self.over.is_open():
            raise NeedsConcrete("a sequence whose length is a size of the program is taken apart")
        if not self.over.trip:
            check_lengths(self.over)
        return map(self.over.item, range(self.over.trip))  # type: ignore[arg-type]


class PartialIterator:
    """An iterator over `whole`, `at` items of which have been taken: all that is left by what runs
    through it, single ones by `next`. `lost`: a loop is running over it, or may have ended before
    its last item, or data decides if there was one."""

    def __init__(self, trace: Trace, whole: RemainingItems) -> None:
        self.home, self.whole, self.at, self.lost = trace.frame, whole, 0, False

    def rest(self) -> RemainingItems:
        if self.lost:
            raise lost()
        return self.whole.after(self.at)

    @contextlib.contextmanager
    def taken(self, stops: bool) -> Iterator[RemainingItems]:
        """Take the remaining items; `stops`: the consumer may end before the last one."""
        rest, trace, inner = self.rest(), current(), False
        if trace is not None:
            inner = self.is_inner(trace, True)
        if trace is not None and not inner:
            trace.undo_log.note(functools.partial(vars(self).update, dict(vars(self))))
        self.whole, self.at, self.lost = RemainingItems(LoopIterable(0, lambda i: None)), 0, True
        yield rest
        self.lost = stops or inner

    def is_inner(self, trace: Trace, allowed: bool) -> bool:
        """Whether this is a branch on data in the block that made it, if that is `allowed`."""
        frames = trace.frames[trace.frames.index(self.home) :] if self.home in trace.frames else ()
        if not frames or len(frames) > 1 and not (allowed and all(f.branch for f in frames[1:])):
            raise NeedsConcrete("an iterator from outside of the loop is advanced in it")
        return len(frames) > 1

    def __iter__(self) -> PartialIterator:
        return self

    def __next__(self) -> Any:
        if (trace := current()) is not None:
            self.is_inner(trace, False)
        item = next(iter(self.rest()))
        self.at += 1
        return item


class ChainIterator:
    """An iterator over several iterables, one after the other: a loop over each of them, if none
    has been asked for an item."""

    def __init__(self, trace: Trace, parts: Sequence[object]) -> None:
        self.parts: tuple[object, ...] | None = tuple(parts)
        self.items: Iterator[object] = itertools.chain.from_iterable(parts)  # type: ignore[arg-type]
        self.home = trace.frame

    def taken(self, trace: Trace) -> tuple[object, ...] | None:
        """The iterables, for a loop in the block that has made it; None if items are gone."""
        parts, self.parts = (self.parts if trace.frame is self.home else None), None
        return parts

    def __iter__(self) -> ChainIterator:
        return self

    def __next__(self) -> object:
        self.parts = None
        return next(self.items)


class ProductIterator:
    """`itertools.product` of sequences, if no item has been asked for: a loop over the first one
    around loops over the rest."""

    def __init__(self, trace: Trace, pools: Sequence[Any]) -> None:
        self.pools: tuple[Any, ...] | None = tuple(pools)
        self.items: Iterator[object] = iter(())
        self.home = trace.frame

    def taken(self, trace: Trace) -> tuple[Any, ...] | None:
        """The sequences, for a loop in the block that has made it; None if items are gone."""
        if trace.frame is not self.home:
            return None
        pools, self.pools = self.pools, None
        return pools

    def __iter__(self) -> ProductIterator:
        return self

    def __next__(self) -> object:
        if self.pools is not None:
            self.items, self.pools = itertools.product(*self.pools), None
        return next(self.items)


ChainIterator.__name__ = ChainIterator.__qualname__ = "chain"
ProductIterator.__name__ = ProductIterator.__qualname__ = "product"
PartialIterator.__name__ = PartialIterator.__qualname__ = "iterator"


def lost() -> BaseException:
    return refuse(
        "an iterator is used again, and how much is left of it is not known.",
        "A loop over it may end early, or another iterator takes its items when they are needed.",
        "Loop over a list, or make the iterator again (`for x in zip(a, b)`).",
    )


def is_lost(trace: Trace, x: object) -> bool:
    """Whether data has decided how much is left of an iterator of Python."""
    known = trace.objects.iterators.get(id(x))
    return known is not None and known[1] is None


def lose(trace: Trace, x: object) -> None:
    """Data decides how much a loop takes of an iterator, and of those that it takes from."""
    found = [x]
    for q in found:
        if hasattr(type(q), "__next__"):
            trace.objects.iterators[id(q)] = (q, None)
        if q is x or type(q) is tuple or hasattr(type(q), "__next__"):
            found += [p for p in gc.get_referents(q) if not any(p is r for r in found)]


def taken(x: Any, stops: bool) -> contextlib.AbstractContextManager[Any]:
    """Take the remaining items of an iterator for a loop; `stops`: it may end before the last
    item."""
    return x.taken(stops) if isinstance(x, PartialIterator) else contextlib.nullcontext(x)


def wrapped(x: object) -> Any:
    """Take the remaining items of an iterator for another iterator."""
    with taken(x, True) as rest:
        return rest


def enumerate_(iterable: object, start: int = 0) -> object:
    trace, iterable = current(), wrapped(iterable)
    over = sequence_of(trace, iterable, numbers=True) if trace is not None else None
    if over is None or trace is None:
        return perform(enumerate, iterable, start)
    pairs = replace(over, item=lambda i: (i + start, over.item(i)))
    return PartialIterator(trace, RemainingItems(pairs, sequence_of(trace, iterable) is None))


def unzip(f: Callable[..., object], pairs: Any) -> object:
    """`f(*pairs)` where f is `zip`: the columns of a list of tuples that a loop has filled."""
    trace = current()
    if (
        trace is None
        or inspect.unwrap(f) is not zip_
        or not isinstance(pairs, TraceList)
        or not pairs.segmented
    ):
        return f(*pairs)
    whole = pairs.as_segment(trace)
    if whole is None or not isinstance(whole.tree, tuple) or holds_record(whole.tree):
        return f(*pairs)
    made = iter([TraceList([StackedRun(whole.trip, part)]) for part in whole.tree])
    trace.objects.iterators[id(made)] = (made, trace.frame)
    return made


def reversed_(iterable: Any) -> object:
    trace = current()
    ask = trace is not None and not isinstance(iterable, PartialIterator)
    over = sequence_of(trace, iterable, numbers=True) if ask else None  # type: ignore[arg-type]
    if over is None or trace is None:
        return perform(reversed, iterable)
    if isinstance(iterable, RuntimeRange):
        n, step = iterable.length, iterable.step
        back = RuntimeRange(trace, iterable.item(n - 1), iterable.start - step, -step)
        return PartialIterator(trace, RemainingItems(LoopIterable(ENDLESS, back.item, back.has)))
    if over.trip == ENDLESS:
        raise NeedsConcrete("reversed() of a sequence whose length depends on data")
    last = trace.sym(over.trip - 1)
    numbers = sequence_of(trace, iterable) is None
    filled = isinstance(iterable, TraceList) and iterable.segmented
    backwards = LoopIterable(over.trip, lambda i: over.item(last - i), lists=over.lists)
    return PartialIterator(trace, RemainingItems(backwards, numbers, iterable if filled else None))


def zip_(*iterables: object, strict: bool = False) -> object:
    trace = current()
    if trace is None:
        return perform(zip, *iterables, strict=strict)
    found = [sequence_of(trace, q, numbers=True) for q in iterables]
    rolled = [q for q in found if q is not None]
    twice = len({*map(id, iterables)}) < len(found)
    if len(rolled) != len(found) or not rolled or twice and PartialIterator in map(type, iterables):
        return perform(zip, *iterables, strict=strict)
    tests = [q.more for q in rolled if q.more is not None]
    if tests:
        if len(rolled) > 1 and any(q.trip != ENDLESS for q in rolled) or len(tests) > 1:
            raise NeedsConcrete("zip of sequences whose lengths depend on data")
    trips = [trace.sym(q.trip) for q in rolled]
    if strict and any(t != trips[0] for t in trips):
        raise ValueError("zip() arguments have different lengths")
    shortest = trips[0]
    for t in trips[1:]:
        shortest = t if t < shortest else shortest
    shortest = dim_of(shortest)
    more = tests[0] if tests else None
    numbers = any(sequence_of(trace, q) is None for q in iterables)
    for q in iterables:
        wrapped(q)
    tuples = LoopIterable(
        shortest,
        lambda i: tuple(q.item(i) for q in rolled),
        more,
        computed=any(q.computed for q in rolled),
        lists=tuple(pair for q in rolled for pair in q.lists),
    )
    return PartialIterator(trace, RemainingItems(tuples, numbers))


def applied(f: Callable[..., object], tuples: object) -> PartialIterator | None:
    """`f(*q)` for each of the tuples, if these can be one loop."""
    trace = current()
    if trace is None or not isinstance(tuples, PartialIterator):
        return None
    whole = wrapped(tuples)
    over = whole.over
    results = replace(over, item=lambda i: f(*over.item(i)), uncut=True, computed=True)
    return PartialIterator(trace, RemainingItems(results, whole.numbers))
