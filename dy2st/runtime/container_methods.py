"""Methods of containers in converted code: some change a container, some read it, some make one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dy2st.loops.generators import registered, shown
from dy2st.runtime import access
from dy2st.runtime.library_calls import unconverted
from dy2st.state import container_writes
from dy2st.state.ownership import LIBRARIES, note_contents, note_namespaces, package_of, refuse
from dy2st.state.traced_list import TraceList
from dy2st.trace.trace import Trace
from dy2st.trace.undo import kind_of
from dy2st.trace.user_stack import perform

MUTATORS = frozenset(
    "append extend insert pop popitem remove clear update setdefault add discard sort reverse "
    "appendleft popleft rotate extendleft move_to_end subtract difference_update "
    "intersection_update symmetric_difference_update frombytes fromlist fromstring "
    "__init__ __iadd__ __imul__ __ior__ __iand__ __isub__ __ixor__".split()
)
READERS = frozenset(
    "index count get keys items values issubset issuperset isdisjoint most_common elements total "
    "tolist tobytes decode find hex startswith endswith __len__ __iter__ __contains__ __eq__ "
    "__ne__ __lt__ __le__ __gt__ __ge__ __reversed__ __repr__ __str__ __bool__ __sizeof__ "
    "__class__ __getattribute__".split()
)
#: those of them whose arguments are elements or indices; other methods run through theirs
OF_ELEMENTS = frozenset(
    "append insert pop remove setdefault add discard appendleft rotate move_to_end index count "
    "get __getitem__ __setitem__ __delitem__ __contains__ __eq__ __ne__ __mul__ __rmul__ "
    "__imul__".split()
)
#: those of them that compare elements
SEARCHES = frozenset(("index", "count", "remove", "__contains__", "__eq__", "__ne__"))
#: those of them that give an iterator
ITERATORS = frozenset(("elements", "__iter__", "__reversed__"))
#: methods that make a container
MAKERS = frozenset(
    "copy union intersection difference symmetric_difference __copy__ __add__ __mul__ __rmul__ "
    "__or__ __ror__ __and__ __sub__ __xor__".split()
)


def container_method(trace: Trace, f: Any, owner: object) -> Callable[..., object]:
    """A method that a C type defines, of an object of this type or of one derived from it."""
    kind, name = kind_of(owner), f.__name__
    if name == "sort":
        f = sorting(trace, f)
    elif name in SEARCHES:
        f = searching(trace, f, owner)
    elif kind is not None and name not in OF_ELEMENTS:
        f = container_writes.pinning(trace, running_through(f))
    if isinstance(owner, TraceList) and name in MUTATORS | READERS | MAKERS:
        return f
    if name in access.STORES or kind is not None and name in access.ITEMS:
        return functools.partial({**access.STORES, **access.ITEMS}[name], owner)
    if kind is None:
        return unconverted(trace, f)
    if id(owner) in trace.objects.fields and name == "update":
        return functools.partial(access.update_fields, owner)
    unknown = name == "pop" and isinstance(owner, set) or id(owner) in trace.objects.fields
    if name in MUTATORS and not unknown:
        return container_writes.method(trace, f, owner)
    if name not in READERS | MAKERS:
        raise refuse(
            f"{name}() of a {type(owner).__name__}.",
            "The element that it takes, or its effect on the container, is not known.",
            "Use the methods of a list or a dict; for a set `x = min(s)`, `s.remove(x)`.",
        )
    note_contents(trace, owner)
    if name in ITERATORS:
        return registered(f)
    return made(trace, f) if name in MAKERS else f


def made(trace: Trace, f: Callable[..., object]) -> Callable[..., object]:
    """A function that makes a container."""

    def make(*args: object, **kwargs: object) -> object:
        out = perform(f, *args, **kwargs)
        if type(out) is list:
            return TraceList(out)
        if package_of(type(out)) not in LIBRARIES or kind_of(out) is not None:
            trace.make(out)
        return out

    return make


def unbound(trace: Trace, f: Any, owner: object, *args: object, **kwargs: object) -> object:
    """`list.append(self, v)`: as the method of the object."""
    bound = getattr(owner, f.__name__) if isinstance(owner, TraceList) else f.__get__(owner)
    return container_method(trace, bound, owner)(*args, **kwargs)


def running_through(f: Callable[..., object]) -> Callable[..., object]:
    """`list.extend`, `dict.update` and the like; they ask a mapping for its keys."""

    @functools.wraps(f)
    def run(*args: object, **kwargs: object) -> object:
        seen = [x if hasattr(x, "keys") else shown(x) for x in args]
        return perform(f, *seen, **kwargs)

    return run


def searching(trace: Trace, f: Callable[..., object], owner: object) -> Callable[..., object]:
    """`list.index` and the like, which compare elements."""

    @functools.wraps(f)
    def search(*args: object) -> object:
        note_namespaces(trace, (owner, *args))
        return perform(f, *args)

    return search


def sorting(trace: Trace, f: Callable[..., object]) -> Callable[..., object]:
    """`list.sort`, which gives the elements the order of `sorted`."""
    owner: Any = f.__self__  # type: ignore[attr-defined]

    @functools.wraps(f)
    def sort(*, key: Callable[[object], object] | None = None, reverse: bool = False) -> None:
        found = list(trace.hooks.call(sorted)(owner, key=key, reverse=reverse))
        if isinstance(owner, TraceList):
            owner.replace_parts(found)
        else:
            list.__setitem__(owner, slice(None), found)

    return sort
