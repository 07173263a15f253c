"""Builtins that consume an iterable: sum, any, all, min, max, sorted, list, tuple.

Over something that can be one loop they are one loop; a generator expression that is written as
their argument is such a loop itself, and `any` and `all` end it as soon as the answer is known.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard, TypeVar

from dy2st.branches.cond import choose, settled_condition
from dy2st.loops.generators import check_made_here, comprehension, consumed, listed, registered
from dy2st.loops.iterables import RemainingItems, RuntimeRange, sequence_of, taken, zip_
from dy2st.state.arrays import tensor_of
from dy2st.state.containers import rebound_containers
from dy2st.state.containers.constants import is_constant
from dy2st.state.containers.dynamic_lookup import picked
from dy2st.state.containers.tagged_union import TaggedUnion, is_number
from dy2st.state.ownership import note_contents, refuse
from dy2st.state.traced_list import MOST_ELEMENTS, TraceList, contents
from dy2st.trace import scalar as number
from dy2st.trace.conditions import at_most, check_cut, surely_at_most
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import DTYPES, RuntimeScalar, is_runtime_scalar, kind_of
from dy2st.trace.symint import SymInt, SymRange, is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform
from ir.loc import acts_for_user

#: numbers of the program are sorted by n * n comparisons
MOST_SORTED = 64
MOST_COMPARED = 256
_pairs = registered(zip_)


def is_lazy(x: object) -> TypeGuard[Tensor | RuntimeScalar | SymInt | TaggedUnion]:
    """Whether its value is known only when the program runs."""
    known = isinstance(x, Tensor) or is_runtime_scalar(x) or is_symint(x)
    return known or type(x) is TaggedUnion


def waits(key: object) -> bool:
    """Whether a comparison with it is known only when the program runs."""
    return any(map(waits, key)) if isinstance(key, tuple) else is_lazy(key)


def is_ordered(key: object) -> bool:
    """Whether it is a number, or a tuple of such."""
    return all(map(is_ordered, key)) if isinstance(key, tuple) else kind_of(key) is not None


def numbers_in(key: object) -> Iterator[object]:
    for q in key if isinstance(key, tuple) else ():
        yield from numbers_in(q)
    if not isinstance(key, tuple):
        yield key


def read_whole(trace: Trace, x: object, stops: bool = False) -> object:
    """An iterable that is run through: one from outside is guarded, or refused. `stops`: it may not
    be run through to its end."""
    check_made_here(trace, x)
    note_contents(trace, x)
    with taken(x, stops) as rest:
        made = isinstance(rest, RemainingItems) and rest.over.computed and not stops
        return trace.hooks.call(listed)(rest) if made else tensor_of(rest)


def plain_loop(f: Callable[..., object]) -> Callable[..., object]:
    """A function that is converted like a user's: it must not pass for a library's, and what it
    raises is no defect."""
    f.__module__ = "dy2st_user_code"
    return acts_for_user(f)


@plain_loop
def _sum(items: Any, start: object) -> object:
    total = start
    for q in items:
        total = total + q
    return total


@plain_loop
def _any(items: Iterable[object]) -> bool:
    for q in items:
        if q:
            return True
    return False


@plain_loop
def _all(items: Iterable[object]) -> bool:
    for q in items:
        if not q:
            return False
    return True


@plain_loop
def _keys(items: Iterable[object], key: Callable[[object], object]) -> list[object]:
    return [key(q) for q in items]


@plain_loop
def _less(x: Any, y: Any) -> object:
    """`x < y`; tuples by the first elements that differ."""
    if isinstance(x, tuple) and isinstance(y, tuple):
        for a, b in zip(x, y):
            if a != b:
                return _less(a, b)
        return len(x) < len(y)
    return x < y


@plain_loop
def _best(
    pairs: Iterable[tuple[object, object]], at: object, element: object, largest: bool
) -> object:
    """Return the best of pairs of a key and an element, from the first one on."""
    for k, q in pairs:
        if _less(at, k) if largest else _less(k, at):
            element, at = q, k
    return element


def sum_(items: object, start: object = 0) -> object:
    """A plain loop, which becomes one loop of the program over a list that a loop has filled."""
    trace = current()
    if trace is None or isinstance(items, (str, bytes)):
        return perform(sum, items, start)
    items = read_whole(trace, items)
    found = consumed(items, "sum", start)
    return found[0] if found else comprehension(trace.hooks.call(_sum), items, start)


def written_for(trace: Trace, name: str, items: Any) -> Any:
    """The list of a generator expression that is the argument of this builtin, else `items`."""
    items = read_whole(trace, items)
    found = consumed(items, name)
    return found[0] if found else items


def _search(name: str, loop: Callable[[Any], object]) -> Callable[[object], object]:
    plain = getattr(builtins, name)

    def search(items: object) -> object:
        trace = current()
        if trace is None:
            return perform(plain, items)
        items = read_whole(trace, items, stops=True)
        found = consumed(items, name)
        return found[0] if found else comprehension(trace.hooks.call(loop), items)

    return search


# ---------------------------------------------------------------- min and max
def _extreme(name: str) -> Callable[..., object]:
    plain = getattr(builtins, name)

    def pick(
        *args: object, key: Callable[[object], object] | None = None, **default: object
    ) -> object:
        trace = current()
        if trace is None:
            return perform(plain, *args, key=key, **default)
        items = written_for(trace, name, args[0]) if len(args) == 1 else TraceList(list(args))
        rolled = sequence_of(trace, items) is not None and type(items) is not range
        items = items if rolled else perform(list, items)
        if not rolled and key is None and not any(map(waits, items)):
            return perform(plain, items, **default)
        if not rolled and key is None and items and all(map(is_number, items)):
            return functools.reduce(lambda x, y: _better(trace, name, x, y), items)
        keys: Any = items if key is None else comprehension(trace.hooks.call(_keys), items, key)
        if not rolled and not any(map(waits, keys)):
            known = list(keys)
            return (
                items[plain(range(len(known)), key=known.__getitem__)]
                if known
                else perform(plain, items, **default)
            )
        if not rolled and any(is_constant(q) and kind_of(q) is None for q in items):
            raise refuse(
                f"{name}() picks {picked(items)} by a key that the program computes.",
                "Which one is known only when the program runs, and it chooses between tensors and "
                "numbers.",
                "Take the index of the largest key, `paddle.stack(keys).argmax()`, and branch on "
                "it or index a stack of tensors with it.",
            )
        some = settled_condition(trace, length_of(trace, items) > 0)
        if some is False:
            return perform(plain, (), **default)
        if is_runtime_scalar(some):
            check_some(trace, some, name, bool(default))
        best = trace.hooks.call(_best)
        return best(_pairs(keys, items), first(trace, keys), first(trace, items), name == "max")

    return pick


def length_of(trace: Trace, items: Any) -> Any:
    over = sequence_of(trace, items)
    if over is None:
        return len(items)
    return trace.sym(over.trip) if over.more is None else items.length


def first(trace: Trace, items: Any) -> Any:
    over = None if isinstance(items, TraceList) else sequence_of(trace, items)
    return items[0] if over is None else over.item(0)


def check_some(trace: Trace, some: RuntimeScalar, name: str, default: bool) -> None:
    """Raise what Python does for no elements, unless there are `some`."""
    if default:
        raise refuse(
            f"{name}() with a default, of a list whose length depends on data.",
            "The result would be an element of the list, or the default, depending on data.",
            f"Start with the default, and compare in the loop: `best = {name}(best, y)`.",
        )
    try:
        text = str(getattr(builtins, name)(()))
    except ValueError as e:
        text = str(e)
    number.check(trace, some.value, "ValueError", text)


def _better(trace: Trace, name: str, x: Any, y: Any) -> object:
    """Like Python: `y` where it is smaller (larger) than `x`, else `x`."""
    for least, most in ((x, y), (y, x)):
        if surely_at_most(trace, least, most):
            return least if name == "min" else most
    test = settled_condition(trace, y < x if name == "min" else y > x)
    if not is_runtime_scalar(test):
        return y if test else x
    if at_most(trace, *((y, x) if name == "min" else (x, y))):
        return y
    for op, gap in test.implies & test.implied:
        check_cut(op, gap, trace)
    kinds = {kind_of(x), kind_of(y)}
    if len(kinds) == 1 and None not in kinds and bool not in kinds:
        dtype = DTYPES[kinds.pop()]  # type: ignore[index]
        values = [number.value_in(trace, q, dtype) for q in (y, x)]
        return number.make(trace, trace.emit("where", [test.value, *values], {}), x, y, test)
    return choose(trace, test, lambda: y, lambda: x)


# ---------------------------------------------------------------- sorted
def sorted_(items: Any, *, key: Any = None, reverse: bool = False) -> object:
    trace = current()
    if trace is None:
        return sorted(items, key=key, reverse=reverse)
    found: list[object] = perform(list, written_for(trace, "sorted", items))
    keys: list[object] = found if key is None else [trace.hooks.call(key)(q) for q in found]
    if not any(map(waits, keys)):
        order = perform(sorted, range(len(found)), key=keys.__getitem__, reverse=reverse)
        return TraceList([found[i] for i in order])
    if (heads := distinct_heads(keys)) is not None:
        order = sorted(range(len(found)), key=heads.__getitem__, reverse=reverse)
        return TraceList([found[i] for i in order])
    if not all(map(is_ordered, keys)) or len(found) > MOST_SORTED:
        raise refuse(
            f"sorted() by tensors, or of more than {MOST_SORTED} elements by numbers that only the "
            "program knows.",
            "Which element comes first would depend on data.",
            "Stack the tensors, and take them in the order of `paddle.argsort`; or sort a few by "
            "numbers: `key=lambda x: float(x.sum())`.",
        )
    refuse_nan(trace, keys)
    if key is None and all(map(kind_of, found)):
        return TraceList(_sorted_numbers(trace, found, reverse))
    return TraceList(_sorted_by(trace, keys, found, reverse))


def distinct_heads(keys: Sequence[Any]) -> list[tuple[object, ...]] | None:
    """Return the constant prefixes of tuples, as of the items of a dict, if they decide the
    order."""
    if not all(type(key) is tuple for key in keys):
        return None
    waiting = min(next((i for i, q in enumerate(key) if waits(q)), len(key)) for key in keys)
    heads = [key[:waiting] for key in keys]
    pairs = itertools.combinations(heads, 2)
    return heads if all(is_constant(q) for q in heads) and all(a != b for a, b in pairs) else None


def refuse_nan(trace: Trace, keys: list[object]) -> None:
    """Python's order of NaN is that of its algorithm, and is not repeated."""
    for q in (q for key in keys for q in numbers_in(key)):
        if kind_of(q) is float and is_lazy(q):
            ok = number.negate(number.compare(trace, "ne", q, q))
            number.check(trace, ok.value, "ValueError", "sorted() of NaN in a translated function")


def _sorted_by(
    trace: Trace, keys: list[object], items: list[object], reverse: object
) -> list[object]:
    """Objects by insertion, each with its key."""
    less = trace.hooks.call(_less)
    out: list[tuple[object, object]] = []
    for pair in zip(keys, items):
        out.append(pair)
        for i in range(len(out) - 1, 0, -1):
            x, y = out[i - 1], out[i]
            test = settled_condition(trace, less(x[0], y[0]) if reverse else less(y[0], x[0]))
            out[i - 1], out[i] = _exchanged(trace, test, x, y)
    return [q for _, q in out]


T = TypeVar("T")


def _exchanged(trace: Trace, test: object, x: T, y: T) -> tuple[T, T]:
    """`y, x` if the test holds, else `x, y`."""
    if not is_runtime_scalar(test):
        return (y, x) if test else (x, y)
    return choose(trace, test, lambda: (y, x), lambda: (x, y))  # type: ignore[no-any-return]


def _sorted_numbers(trace: Trace, items: list[object], reverse: object) -> list[object]:
    """By insertion: a number moves past those that it is less than."""
    out: list[Any] = []
    for q in items:
        out.append(q)
        for i in range(len(out) - 1, 0, -1):
            x, y = out[i - 1], out[i]
            test = settled_condition(trace, y > x if reverse else y < x)
            out[i - 1] = _where(trace, test, y, x)
            out[i] = _where(trace, test, x, y)
    return out


def _where(trace: Trace, test: object, x: object, y: object) -> object:
    if not is_runtime_scalar(test):
        return x if test else y
    kinds = kind_of(x), kind_of(y)
    if kinds[0] is not kinds[1] or kinds[0] is None:
        return choose(trace, test, lambda: x, lambda: y)
    values = [number.value_in(trace, q, DTYPES[kinds[0]]) for q in (x, y)]
    return number.make(trace, trace.emit("where", [test.value, *values], {}), x, y, test)


# ---------------------------------------------------------------- in
def contains(trace: Trace, items: Any, x: Any) -> object:
    """`x in items` where the program knows a number of them: one comparison for each element."""
    if type(items) is range:
        low, high = (items[0], items[-1]) if items.step > 0 else (items[-1], items[0])
        tests = [x >= low, x <= high, (x - low) % items.step == 0] if items else [False]
        return _all_of(trace, tests, True)
    elements = list(items)
    if any(isinstance(q, Tensor) for q in elements):
        raise refuse(
            "`in` a list of tensors.",
            "It compares values, which are known only when the program runs.",
            "Compare with each element: `(x == a).logical_or(x == b)`.",
        )
    if len(elements) > MOST_COMPARED:
        raise refuse(
            f"`in` {len(elements)} elements, with a number that only the program knows.",
            f"A program compares with each of them, with at most {MOST_COMPARED}.",
            "Look the number up in a tensor: `table[i]`.",
        )
    return _all_of(trace, [q == x for q in elements if kind_of(q)], False)


def _all_of(trace: Trace, tests: list[object], value: bool) -> object:
    """Whether all tests are true; whether any is, if `value` is false."""
    row = "logical_and" if value else "logical_or"
    if any(type(q) is bool and q is not value for q in tests):
        return not value
    later = [q for q in tests if is_runtime_scalar(q)]
    if not later:
        return value
    values = [number.value_in(trace, q, DTYPES[bool]) for q in later]
    found = functools.reduce(lambda a, b: trace.emit(row, [a, b], {}), values)
    return number.make(trace, found, *later)


# ---------------------------------------------------------------- list and tuple
def list_of(*args: Iterable[object]) -> object:
    trace = current()
    if trace is None or len(args) != 1:
        return TraceList(list(*args))
    items = written_for(trace, "list", args[0])
    if isinstance(items, (SymRange, RuntimeRange)) or is_long(items):
        return trace.hooks.call(listed)(items)
    if items is not args[0] and not isinstance(items, RemainingItems):
        return items
    if isinstance(items, TraceList):
        return items.copy() if items.kind is list else TraceList(contents(items))
    whole = items.as_list() if isinstance(items, RemainingItems) else None
    return TraceList(perform(list, items)) if whole is None else whole


def is_long(items: object) -> TypeGuard[RemainingItems]:
    """Whether the program knows the length."""
    return isinstance(items, RemainingItems) and items.over.is_open()


def tuple_of(*args: Iterable[object]) -> object:
    trace = current()
    if trace is None or len(args) != 1:
        return perform(tuple, *args)
    items = written_for(trace, "tuple", args[0])
    if isinstance(items, TraceList) and items.segmented:
        size = items.size()
        if items.kind is tuple or type(size) is not int or size > MOST_ELEMENTS:
            return rebound_containers.tuple_of(items)
    return perform(tuple, items)


CONSUMERS: dict[int, Callable[..., object]] = {
    id(sum): sum_,
    id(any): _search("any", _any),
    id(all): _search("all", _all),
    id(min): _extreme("min"),
    id(max): _extreme("max"),
    id(sorted): sorted_,
    id(list): list_of,
    id(tuple): tuple_of,
}
