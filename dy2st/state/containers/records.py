"""Records: dicts, lists and plain objects as elements of a list that a loop fills.

Every iteration makes a new container, and the loop stacks what is in it: in the run of the list, a
`Record` stands for it. A read of an element rebuilds a container that is read-only. In eager Paddle
it is the very object of the iteration, so the loop is unrolled if the function changes an element
or compares its identity.
"""

from __future__ import annotations

import collections
import inspect
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import paddle

from dy2st.trace.frames import TracedLoop
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.trace import Trace, current
from dy2st.trace.trace_state import AmbiguousContainer

#: why loops over the rows of lists of lists are not rolled
LOST = "a row of a list of lists, which the loop changes, has another name, too"
DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


@dataclass(frozen=True)
class RecordType:
    """The class of a container, and what its elements are called. `like`: one without elements; for
    a list, the class of lists in a trace. Both are `TaggedUnion` for a number or a tensor."""

    kind: type
    keys: tuple[object, ...]
    like: Any = field(compare=False)

    def made(self, parts: Sequence[object]) -> object:
        if self.kind is self.like:
            return like_of(self.like, parts).here()
        return list(parts) if self.kind is list else like_of(self.like, parts)


class Record(tuple[object, ...]):
    """The elements of a container that each iteration of `loop` makes."""

    form: RecordType
    loop: TracedLoop

    @staticmethod
    def of(parts: Sequence[object], form: RecordType, loop: TracedLoop) -> Record:
        made = Record(parts)
        made.form, made.loop = form, loop
        return made


def regrouped(like: object, parts: Sequence[object]) -> Any:
    """A tuple, named tuple or record like `like` with other parts."""
    if isinstance(like, Record):
        return Record.of(parts, like.form, like.loop)
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def same_form(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Whether two tuples or records have one structure."""
    return type(a) is type(b) and len(a) == len(b) and form_of(a) == form_of(b)


def form_of(x: object) -> RecordType | None:
    return x.form if isinstance(x, Record) else None


def loops_of(tree: object) -> set[TracedLoop]:
    """The loops whose containers an element consists of."""
    own = {tree.loop} if isinstance(tree, Record) else set()
    return own.union(*map(loops_of, tree)) if isinstance(tree, tuple) else own


def holds_record(tree: object) -> TypeGuard[tuple[object, ...]]:
    return bool(loops_of(tree))


# ---------------------------------------------------------------- containers with fields
def fields_of(x: Any) -> dict[object, object] | None:
    """The elements of a dict or plain object; None for all others."""
    if type(x) in DICTS:
        return dict(x)
    return dict(attributes(x).items()) if is_plain_object(x) else None


def attributes(x: object) -> dict[str, object]:
    """The attributes of an object, those in slots too."""
    classes = [vars(k) for k in type(x).__mro__ if "__slots__" in vars(k)]
    names = [n for fields in classes for n, d in fields.items() if inspect.ismemberdescriptor(d)]
    found = {n: getattr(x, n) for n in names if hasattr(x, n)}
    return {**found, **getattr(x, "__dict__", {})}


def is_plain_object(x: object) -> bool:
    """An object that the function has made and that is no more than its attributes."""
    trace = current()
    if trace is None or id(x) not in trace.objects.made or isinstance(x, paddle.nn.Layer):
        return False
    kind = type(x)
    plain = kind is types.SimpleNamespace or kind.__new__ is object.__new__
    slots = any(vars(k).get("__slots__") for k in kind.__mro__)
    return plain and (type(getattr(x, "__dict__", None)) is dict or slots)


def like_of(like: Any, parts: Sequence[Any]) -> Any:
    if isinstance(like, type):
        return like(*parts)
    if isinstance(like, tuple):
        return type(like)(*parts)
    if isinstance(like, collections.deque):
        return collections.deque(parts, like.maxlen)
    if type(like) in DICTS:
        out = like.copy()
        for k, part in zip(like, parts):
            out[k] = part
        return out
    kind: Any = type(like)
    out = kind.__new__(kind)
    for name, part in zip(attributes(like), parts):
        object.__setattr__(out, name, part)
    return out


# ---------------------------------------------------------------- to records and back
def fields_or_items(x: object) -> dict[object, object] | None:
    """The elements of a container that a record can stand for."""
    if isinstance(x, list):
        return None if getattr(x, "segmented", True) else dict(enumerate(list.__iter__(x)))
    return fields_of(x)


def containers_in(x: object) -> Iterator[object]:
    """The containers in an element for which there are records."""
    found = None if isinstance(x, tuple) else fields_or_items(x)
    if found is not None:
        yield x
    for q in x if isinstance(x, tuple) else (found or {}).values():
        yield from containers_in(q)


def recorded(x: Any, loop: TracedLoop) -> object:
    """Records for a container, and for those in it and in tuples."""
    if isinstance(x, tuple):
        return regrouped(x, [recorded(q, loop) for q in x])
    if hasattr(type(x), "alternatives"):
        kind, parts = type(x), [recorded(q, loop) for q in x.alternatives()]
        return Record.of(parts, RecordType(kind, (), kind), loop)
    found = fields_or_items(x)
    if found is None:
        return x
    keys, parts = tuple(found), [recorded(q, loop) for q in found.values()]
    if isinstance(x, list):
        return Record.of(parts, RecordType(list, keys, type(x)), loop)
    return Record.of(parts, RecordType(type(x), keys, like_of(x, [None] * len(keys))), loop)


def unpacked(trace: Trace, x: object) -> object:
    """Return an element as the function sees it."""
    if not holds_record(x):
        return x
    parts = [unpacked(trace, q) for q in x]
    if not isinstance(x, Record):
        return regrouped(x, parts)
    made = x.form.like(parts) if x.form.kind is list else like_of(x.form.like, parts)
    if x.form.kind is x.form.like:
        return made
    trace.make(made)
    trace.doubt(element_doubt(trace, made, x.loop))
    return made


def element_doubt(
    trace: Trace, x: object, loop: TracedLoop, also: tuple[object, ...] = ()
) -> AmbiguousContainer:
    """`x` may be any of the elements that a loop has put into lists, or one of `also`."""

    def stop() -> BaseException:
        what = "an element of a list that a loop fills is changed, or is kept elsewhere, too"
        tables = trace.loop_facts.tables
        trace.unroll(loop, LOST if tables else what, tables)
        return Refused(
            f"{what}.",
            trace.where(),
            reason="The loop leaves stacked tensors, not a container for each iteration.",
            remedy="Make a new one with the changes: `{**s, 'h': h}`.",
        )

    return AmbiguousContainer(x, (*also, loop), stop)


def pin(trace: Trace, x: object, loop: TracedLoop) -> None:
    """The containers in an element are read by the body of a loop as they were before it."""
    body = trace.frames[next(k for k, f in enumerate(trace.frames) if f.loop is loop) :]
    reason = "an element of a list that the loop fills is changed"
    for q in containers_in(x):
        if any(id(q) in f.changed or id(q) in f.appends for f in body):
            raise NeedsConcrete(reason, [loop])
        if any(place.obj is q for f in body for place in f.stores.values()):
            raise NeedsConcrete(reason, [loop])
        if id(q) not in trace.objects.doubts:
            trace.doubt(AmbiguousContainer(q, (loop,), lambda: NeedsConcrete(reason, [loop])))


def snapshot(trace: Trace, x: object, loop: TracedLoop) -> object:
    """A record for an element from before a loop that goes on with its list: it stays as it is."""
    found = list(containers_in(x))
    if any(trace.home(q) is None for q in found):
        return x
    for q in found:
        if id(q) not in trace.objects.doubts:
            trace.doubt(replace(element_doubt(trace, q, loop), among=()))
    return recorded(x, loop)


__all__ = [
    "DICTS", "RecordType", "Record", "attributes", "containers_in", "element_doubt", "fields_of",
    "holds_record", "is_plain_object", "like_of", "loops_of", "pin", "recorded", "regrouped",
    "same_form", "snapshot", "unpacked",
]  # fmt: skip
