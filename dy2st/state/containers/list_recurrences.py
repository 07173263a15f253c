"""List recurrences: a loop reads elements of a list from outside to which it may append.

    ys = [x0, x1]
    for t in range(2, n):
        ys.append(f(ys[t - 1], ys[-2]))     taps: the last element and the one before it are carried

How many elements an iteration appends is learned by one trace of the body and known in the next.
An element at a constant distance from the end is a carry; those that this iteration has appended
are at hand. A list that the loop does not append to is read by `lookup`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dy2st.state.containers import list_buffers
from dy2st.state.containers.dynamic_lookup import (
    at_frame,
    element,
    is_inside,
    is_later,
    is_natural,
    picked,
)
from dy2st.state.containers.list_buffers import MOST_CARRIED
from dy2st.state.containers.records import pin, recorded, regrouped, same_form, unpacked
from dy2st.state.stacked_run import StackedRun, Unstacked, length_of, mapped
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import (
    DTYPES,
    PathCondition,
    RuntimeScalar,
    is_runtime_scalar,
    kind_of,
    value_in,
)
from dy2st.trace.signals import NeedsConcrete, Retrace
from dy2st.trace.symint import SymInt, bounds, is_symint
from dy2st.trace.trace import Frame, Trace
from ir import Type
from ir.types import Dim


class WholeListRead:
    """A list was read as a whole inside of a loop."""

    def __init__(self, target: object, what: str) -> None:
        self.target, self.what = target, what


@dataclass(frozen=True)
class ConditionalElement:
    """`item` was appended where `ran` is true, which follows from `facts`; `error` says why that
    is wrong where nothing follows from it. `tests`: the conditions, each with its answer."""

    item: object
    ran: RuntimeScalar
    facts: frozenset[PathCondition]
    error: BaseException
    tests: tuple[tuple[RuntimeScalar, bool], ...] = ()


# ---------------------------------------------------------------- ports
class ListTap:
    """A tensor or number of an element at the start of an iteration; `first`: of the first one."""

    def __init__(self, key: tuple[object, ...], first: Any, trace: Trace) -> None:
        kind = kind_of(first)
        if kind is None and not isinstance(first, Tensor):
            raise NeedsConcrete("an element of a list that the loop fills is not a tensor")
        self.key, self.kind = key, kind
        with trace.outside():
            self.init = value_in(trace, first, DTYPES[kind]) if kind else lift(trace, first)._value
        self.inner = trace.new_value(self.init.type, "tail")
        trace.values.placeholders.add(self.inner)
        stop = kind is not None or (first.stop_gradient and key not in trace.frame.learned.trained)
        self.fake: RuntimeScalar | Tensor = (
            RuntimeScalar(self.inner, trace) if kind else trace.fake(self.inner, stop)
        )


class ListTapPort:
    """The element that is `back` elements from the end of `target` when an iteration starts:
    `inner` its tensors, `fake` what the body reads."""

    def __init__(self, target: object, back: int, first: object, trace: Trace) -> None:
        self.target, self.back = target, back
        loop = trace.frame.loop
        assert loop is not None
        pin(trace, first, loop)
        self.tree = made(("tail", id(target), back), recorded(first, loop), trace)
        self.inner = mapped(lambda tap: tap.fake, self.tree)
        self.fake = unpacked(trace, self.inner)

    def pairs(self, after: object) -> Iterator[tuple[ListTap, object]]:
        """Each tap with its part of the element that takes this place."""
        return paired(self.tree, after)


def made(key: tuple[object, ...], first: object, trace: Trace) -> Any:
    """A tree of taps for an element."""
    if not isinstance(first, tuple):
        return ListTap(key, first, trace)
    return regrouped(first, [made((*key, k), q, trace) for k, q in enumerate(first)])


def paired(tree: Any, after: object) -> Iterator[tuple[ListTap, object]]:
    if not isinstance(tree, tuple):
        yield tree, after
        return
    if not isinstance(after, tuple) or not same_form(after, tree):
        raise NeedsConcrete("elements of different structure are appended to a list", (), True)
    for tap, q in zip(tree, after):
        yield from paired(tap, q)


def port(trace: Trace, target: Any, frame: Frame, back: int) -> ListTapPort:
    """The port of the loop with this body, once per distance."""
    if (id(target), back) not in frame.tails:
        at = trace.frames.index(frame)
        new = sum(len(appended(f, target)) for f in trace.frames[at:])
        before = type(target)(target.raw()[: len(target.raw()) - new])
        before.born = target.born
        with at_frame(trace, at - 1):
            first = before[-back]
        with at_frame(trace, at):
            frame.tails[id(target), back] = ListTapPort(target, back, first, trace)
    return frame.tails[id(target), back]  # type: ignore[no-any-return]


def appended(frame: Frame, target: object) -> list[Any]:
    """Return the elements that the body has appended so far."""
    return frame.appends[id(target)][1] if id(target) in frame.appends else []


# ---------------------------------------------------------------- distances
def is_grown(target: object, loops: Sequence[Frame]) -> bool:
    """Whether one of these loops appends to a list."""
    return any(f.growth.get(id(target)) for f in loops)


def grows(target: object, loops: Sequence[Frame]) -> bool:
    """Whether the outermost of these loops, and no inner one, appends to a list."""
    known = [bool(f.growth.get(id(target))) for f in loops]
    return bool(known) and known[0] and not any(known[1:])


def distance(trace: Trace, target: Any, i: object, loops: Sequence[Frame]) -> int | None:
    """Return the distance of `target[i]` from the end, if it is the same in every iteration."""
    if not loops or any(id(target) in f.queues or id(target) in f.fills for f in loops):
        return None
    if type(i) is int:
        back: Dim = -i
    elif is_symint(i):
        back = target.size() - i.dim
    else:
        return None
    if type(back) is not int or not 1 <= back <= MOST_CARRIED:
        return None
    if is_grown(target, loops[1:]) or back > 1 and not grows(target, loops):
        return None
    if is_symint(i):
        check_counted(trace, i)
    return None if has_slot(trace, target, back) else back


def check_counted(trace: Trace, i: SymInt) -> None:
    """An index that is negative in the first iterations counts from the end there."""
    low, _ = bounds(i.dim, trace) or (None, None)
    if not isinstance(low, int):
        raise NeedsConcrete(f"{i!r} may be negative", i.loops)
    if low < 0:
        raise NeedsConcrete(f"{i!r} is negative in the first iteration", i.loops, peel=-low)


def has_slot(trace: Trace, target: Any, back: int) -> bool:
    """Whether the loops store this element by its index: it is a place, and no tap."""
    key = ("item", id(target), len(target.raw()) - back)
    if target.born not in trace.frames:
        return False
    return any(key in f.stores for f in trace.frames[trace.frames.index(target.born) + 1 :])


def from_end(trace: Trace, target: Any, loops: Sequence[Frame], back: int) -> object:
    """The element that is so far from the end now."""
    inside = trace.frames[trace.frames.index(loops[0]) :]
    new = [q for f in inside for q in appended(f, target)]
    if any(isinstance(q, StackedRun) for q in new[-back:]):
        if back > 1:
            raise NeedsConcrete("an inner loop has appended to a list that is read from its end")
        return new[-1].item(trace, new[-1].size - 1)
    if back == 1 and is_conditional(new):
        return last_if_any(trace, new[0], from_before(trace, target, loops, 1))
    if back <= len(new):
        return new[-back]
    if not target.parts():
        raise IndexError("list index out of range")
    return from_before(trace, target, loops, back - len(new))


def from_before(trace: Trace, target: object, loops: Sequence[Frame], back: int) -> object:
    """The element that is so far from the end when an iteration starts."""
    for f in loops[1:]:
        f.observed.setdefault(id(target), WholeListRead(target, "the last element"))
    return port(trace, target, loops[0], back).fake


def is_conditional(new: Sequence[object]) -> bool:
    """Whether an iteration appends one element or none."""
    return len(new) == 1 and isinstance(new[0], ConditionalElement)


def last_if_any(trace: Trace, one: ConditionalElement, before: object) -> object:
    """The last element behind that one, where it was `before`."""
    if isinstance(before, tuple) or isinstance(one.item, tuple):
        raise one.error
    return trace.hooks.choose(trace, one.ran, lambda: one.item, lambda: before)


# ---------------------------------------------------------------- other indices
def item_at(trace: Trace, target: Any, i: RuntimeScalar | SymInt, loops: Sequence[Frame]) -> Any:
    """`target[i]`, where only the program knows i, of a list that no loop is known to fill."""
    items = target.parts()
    check_complete(trace, target, loops)
    made = all(q is not None for q in items)
    if made and is_symint(i) and is_inside(trace, i, len(items)) or not unknown(target, loops):
        return element(trace, target, items, i, "list")
    return guess(trace, target, loops, i)


def check_complete(trace: Trace, target: object, loops: Sequence[Frame]) -> None:
    """Note that the list is read as one that the loops do not append to."""
    if is_grown(target, loops):
        list_buffers.want(trace, target, loops)
    for f in loops:
        f.picked.setdefault(id(target), target)


def unknown(target: object, loops: Sequence[Frame]) -> list[Frame]:
    """The loops that may yet turn out to append."""
    return [f for f in loops if id(target) not in f.growth]


def may_be_short(trace: Trace, target: Any, i: object, loops: Sequence[Frame]) -> bool:
    """Whether `target[i]`, of a list that an earlier loop has filled, may be an element that these
    loops append; raises NeedsConcrete if it is one of them but unknown which."""
    n = target.size()
    if not is_later(i) or not loops or type(n) is int and is_inside(trace, i, n):
        return False
    if is_grown(target, loops):
        check_complete(trace, target, loops)
    return type(n) is int and bool(unknown(target, loops))


def guess(trace: Trace, target: object, loops: Sequence[Frame], i: object = None) -> object:
    """A stand-in for an element: the next trace knows how the list grows."""
    return unpacked(trace, guessed(trace, target, loops, i))


def guessed(trace: Trace, target: Any, loops: Sequence[Frame], i: object = None) -> object:
    note_read(target, loops, target.size() - i.dim if is_symint(i) else None)
    for f in unknown(target, loops):
        f.guessed.add(id(target))
        f.picked.setdefault(id(target), target)
    items = target.parts()
    if not items:
        raise NeedsConcrete("a list is empty in the first iteration", (), True)
    like: Any = next((q for q in items if q is not None), None)
    if isinstance(like, StackedRun):
        like = like.item(trace, like.size - 1)
    if isinstance(like, type(target)):
        like.split(trace)
        for f in unknown(target, loops):
            if new := appended(f, target):
                f.learned.growth[id(target)], f.learned.free = length_of(new), True
                raise Retrace
    loop = loops[-1].loop
    assert loop is not None
    return mapped(lambda q: stand_in(trace, q, items), recorded(like, loop))


def note_read(target: object, loops: Sequence[Frame], back: Dim | None = None) -> None:
    """The list is read so far from its end, or at no constant distance, by loops that may append
    to it."""
    for f in unknown(target, loops):
        f.wants.setdefault(id(target), []).append(back)


def guess_slice(trace: Trace, target: object, at: slice, loops: Sequence[Frame]) -> list[object]:
    """A stand-in for `target[:i]`."""
    if not is_symint(at.stop) or at.step not in (None, 1):
        raise NeedsConcrete(f"{at.start!r} is needed as a number", getattr(at.start, "loops", ()))
    start = at.start.dim if is_symint(at.start) else at.start or 0
    one = guessed(trace, target, loops)

    def rows(x: RuntimeScalar | FakeTensor) -> Unstacked:
        value = x.value if is_runtime_scalar(x) else x._value
        t = value.type.with_shape((at.stop.dim - start, *value.type.shape))
        fake = trace.fake(trace.new_value(t), getattr(x, "stop_gradient", True))
        return Unstacked(fake, is_runtime_scalar(x), ())

    return [StackedRun(at.stop.dim - start, mapped(rows, one))]


def stand_in(trace: Trace, x: object, items: Sequence[object]) -> object:
    kind = kind_of(x)
    if kind is not None:
        leaves = (q.tree if isinstance(q, StackedRun) else q for q in items)
        data = any(map(list_buffers.is_data, leaves))
        loops = frozenset(f.loop for f in trace.frames[-1:] if f.loop is not None and not data)
        return RuntimeScalar(trace.new_value(Type(DTYPES[kind])), trace, loops, data)
    if x is None:
        return None
    if not isinstance(x, Tensor):
        raise NeedsConcrete(f"picks {picked(items)}", subject="an index", own=True)
    fake = lift(trace, x)
    return trace.fake(trace.new_value(fake._value.type), fake.stop_gradient)


# ---------------------------------------------------------------- windows
def window(trace: Trace, target: Any, at: slice, loops: Sequence[Frame]) -> list[object] | None:
    """The elements of `target[-k:]` or `target[t-k:t]`; None for any other slice."""
    if at.step not in (None, 1) or not loops or any(id(target) in f.queues for f in loops):
        return None
    if grows(target, loops):
        return tapped(trace, target, at, loops)
    if not (is_symint(at.start) and is_symint(at.stop)) or target.segmented:
        return None
    width = at.stop.dim - at.start.dim
    if type(width) is not int or width < 1:
        return None
    check_complete(trace, target, loops)
    n = len(target.parts())
    if is_inside(trace, at.start, n) and is_inside(trace, at.stop - 1, n):
        return [item_at(trace, target, at.start + k, loops) for k in range(width)]
    if not unknown(target, loops):
        raise NeedsConcrete("a window of a list may reach over its ends", at.start.loops)
    return [guess(trace, target, loops, at.start) for _ in range(width)]


def forward(trace: Trace, target: Any, at: slice, loops: Sequence[Frame]) -> slice | None:
    """The slice of which a backward one of a list that loops fill has the elements, in reverse;
    None for others, and where an end may count from the other side."""
    later = [q for q in (at.start, at.stop) if is_later(q)]
    whole = at.start is None and at.stop is None
    if at.step != -1 or at.stop == -1 or whole:
        return None
    if not loops and not later and type(target.size()) is int:
        return None
    if not all(is_symint(q) and is_natural(trace, q) for q in later):
        return None
    behind = None if at.start in (None, -1) else at.start + 1
    return slice(None if at.stop is None else at.stop + 1, behind)


def is_window(at: slice) -> bool:
    """Whether a slice counts from the end, and is short."""
    end = at.stop is None or type(at.stop) is int and at.stop < 0
    return end and type(at.start) is int and -MOST_CARRIED <= at.start < 0


def tapped(trace: Trace, target: Any, at: slice, loops: Sequence[Frame]) -> list[object] | None:
    """A window at a constant distance from the end of a list that the loop fills."""
    size = target.size()
    start, stop = (from_back(size, q) for q in (at.start, 0 if at.stop is None else at.stop))
    stop = 0 if at.stop is None else stop
    if start is None or stop is None or not 1 <= start <= MOST_CARRIED:
        return None
    if is_symint(at.start):
        check_counted(trace, at.start)
    least = bounds(size, trace)
    if least is not None and isinstance(least[0], int) and least[0] < start:
        reason = "a window of a list is shorter in the first iterations"
        raise NeedsConcrete(reason, (), peel=start - least[0])
    return [from_end(trace, target, loops, k) for k in range(start, max(stop, 0), -1)]


def from_back(size: Dim, i: object) -> int | None:
    """The distance of an index from the end, if it is constant."""
    back = -i if type(i) is int and i < 0 else size - i.dim if is_symint(i) else None
    return back if type(back) is int else None


def between(items: list[object], start: int, stop: int | None) -> list[object]:
    """`items[start:stop]` where data decides how many there are."""
    n = len(items)
    low = max(n + start, 0) if start < 0 else min(start, n)
    if stop is None:
        high = n
    else:
        high = max(n + stop, 0) if stop < 0 else min(stop, n)
    return [items[i] for i in range(low, high)]


between.__module__ = "dy2st_user_code"  # converted like a user's: it must not pass for a library's


__all__ = [
    "WholeListRead",
    "ListTapPort",
    "between",
    "distance",
    "from_end",
    "grows",
    "item_at",
    "port",
    "window",
]
