"""Iterators of `itertools` over rollable iterables: a `for` over them is rolled, too."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from dy2st.library.iterable_builtins import plain_loop
from dy2st.loops.iterables import (
    ChainIterator,
    PartialIterator,
    ProductIterator,
    RemainingItems,
    range_,
    sequence_of,
    wrapped,
)
from dy2st.loops.loop_code import LoopIterable
from dy2st.state.ownership import LIBRARIES
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform


def counted(trace: Trace | None, *iterables: object) -> list[LoopIterable]:
    """Return iterables of loops over these, if all lengths are known to Python; empty for iterators
    that are referenced elsewhere, from which no item is taken."""
    if trace is None or any(isinstance(q, PartialIterator) for q in iterables):
        return []
    found = [sequence_of(trace, q, numbers=True) for q in iterables]
    known = [q for q in found if q is not None and not q.is_open()]
    return known if len(known) == len(found) else []


def joined(trace: Trace, over: LoopIterable, *iterables: object) -> PartialIterator:
    numbers = any(sequence_of(trace, q) is None for q in iterables)
    return PartialIterator(trace, RemainingItems(over, numbers))


def islice_(iterable: object, *ends: Any) -> object:
    trace = current()
    over = counted(trace, iterable)
    at = slice(*ends)
    parts = (at.start, at.stop, at.step)
    plain = all(q is None or type(q) is int and q >= 0 for q in parts) and at.step != 0
    if trace is None or not over or not plain or any(map(is_symint, parts)):
        return perform(itertools.islice, iterable, *ends)
    trip: Any = over[0].trip
    chosen, item = range(trip)[at], over[0].item
    picked = LoopIterable(
        len(chosen), lambda i: item(chosen.start + i * chosen.step), lists=over[0].lists
    )
    return joined(trace, picked, iterable)


def pairwise_(iterable: object) -> object:
    trace = current()
    over = counted(trace, iterable)
    if trace is None or not over:
        return perform(itertools.pairwise, iterable)
    trip: Any = over[0].trip
    item = over[0].item
    pairs = LoopIterable(max(trip - 1, 0), lambda i: (item(i), item(i + 1)), lists=over[0].lists)
    return joined(trace, pairs, iterable)


def chain_(*iterables: object) -> object:
    trace = current()
    if trace is None or all(sequence_of(trace, q, numbers=True) is None for q in iterables):
        return perform(itertools.chain, *iterables)
    return ChainIterator(trace, iterables)


def product_(*iterables: object, repeat: object = 1) -> object:
    trace = current()
    many = trace is not None and any(sequence_of(trace, q, numbers=True) for q in iterables)
    once = any(
        hasattr(type(q), "__next__") and not isinstance(q, PartialIterator) for q in iterables
    )
    if trace is None or not many or once or type(repeat) is not int or repeat < 1:
        return perform(itertools.product, *iterables, repeat=repeat)
    return ProductIterator(trace, tuple(map(wrapped, iterables)) * repeat)


def ndindex_(*shape: object) -> object:
    trace = current()
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if trace is None or not sizes or not all(type(n) is int or is_symint(n) for n in sizes):
        return perform(np.ndindex, *shape)
    return ProductIterator(trace, [range_(n) for n in sizes])


def zip_longest_(*iterables: object, fillvalue: object = None) -> object:
    """One loop up to the end of the shortest, another one up to that of the next."""
    trace = current()
    over = counted(trace, *iterables)
    if trace is None or not over:
        return perform(itertools.zip_longest, *iterables, fillvalue=fillvalue)

    def part(low: int, high: int) -> PartialIterator:
        def item(i: object) -> tuple[object, ...]:
            return tuple(q.item(low + i) if q.trip >= high else fillvalue for q in over)  # type: ignore[operator]

        lists = tuple(pair for q in over for pair in q.lists)
        return joined(trace, LoopIterable(high - low, item, lists=lists), *iterables)

    trips: list[Any] = sorted({q.trip for q in over})  # type: ignore[type-var]
    return ChainIterator(trace, [part(low, high) for low, high in zip([0, *trips], trips)])


@plain_loop
def _accumulated(items: Any, f: Any, *start: Any) -> list[Any]:
    out = list(start)
    for q in items:
        out.append(f(out[-1], q) if out else q)
    return out


def accumulate_(iterable: object, func: object = None, *, initial: object = None) -> object:
    """Made as a whole where the function is one of a library: one of the user's is called when an
    item is asked for."""
    trace = current()
    own = (getattr(func, "__module__", None) or "").split(".")[0] in (*LIBRARIES, "_operator")
    pure = func is None or own
    if trace is None or not pure or sequence_of(trace, iterable) is None:
        return perform(itertools.accumulate, iterable, func, initial=initial)
    start = () if initial is None else (initial,)
    made = trace.hooks.call(_accumulated)(iterable, func or operator.add, *start)
    return iter(made) if (over := sequence_of(trace, made)) is None else joined(trace, over, made)


ITERATORS: dict[int, Callable[..., object]] = {
    id(itertools.islice): islice_,
    id(itertools.chain): chain_,
    id(itertools.zip_longest): zip_longest_,
    id(itertools.accumulate): accumulate_,
    id(itertools.pairwise): pairwise_,
    id(itertools.product): product_,
    id(np.ndindex): ndindex_,
}
