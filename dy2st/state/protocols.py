"""Python's implicit calls on user objects, converted: constructors, properties, items, `with`.

Operators and the methods that Python calls from C are those of `dy2st.runtime.special_methods`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import dis
import functools
import types
import warnings
from collections import abc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import paddle

from dy2st.state.effects import Effect, effect_of
from dy2st.state.ownership import (
    LIBRARIES,
    check_strong,
    is_plain_paddle,
    is_users_object,
    made_here,
    note_class,
    note_contents,
    package_of,
    refuse,
)  # fmt: skip
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.signals import raise_defect
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING, AttributeLocation, ItemLocation, in_class, plain_get
from dy2st.trace.user_stack import perform

_DYNAMIC = "<string>"
T = TypeVar("T")
#: classes of Python whose methods are converted like those of the user
CONVERTED = frozenset(
    {collections.UserList, collections.UserDict, collections.ChainMap}
    | {abc.Mapping, abc.MutableMapping, abc.Sequence, abc.MutableSequence}
)


def users_method(x: object, name: str) -> types.FunctionType | None:
    """The Python function that the class of `x`, a user's, defines under this name."""
    found = defined(x, name)
    return noted(x, name, found) if isinstance(found, types.FunctionType) else None


def noted(x: object, name: str, found: T) -> T:
    """Note that the program depends on an attribute of the class of `x`, and return it."""
    trace, kind = current(), type(x)
    if trace is not None and trace.guards is not None:
        trace.guards.special_method(kind, name, found)
        if not made_here(trace, x):
            trace.guards.class_of(x)
    return found


def defined(x: object, name: str) -> object:
    """`of_class` of the class of `x`."""
    kind: type = type(x)
    return of_class(kind, name)


def of_class(kind: type, name: str) -> object:
    """Return an attribute of a user's class or its bases, or of a class of Python that is converted
    like them; None for attributes that other libraries define."""
    for base in kind.__mro__:
        if name in vars(base):
            library = package_of(base) in LIBRARIES and base not in CONVERTED
            return None if library else vars(base)[name]
    return None


# ---------------------------------------------------------------- making objects
def make_object(trace: Trace, kind: type, *args: object, **kwargs: object) -> object:
    """An instance of a user's class: nobody outside knows it, so its stores are not replayed."""
    if trace.guards is not None:
        trace.guards.on_object(kind)
    init = of_class(kind, "__init__")
    own = isinstance(kind.__new__, types.FunctionType)
    if issubclass(kind, BaseException) and isinstance(init, types.FunctionType) and not own:
        return made_error(trace, kind, init, args, kwargs)
    if type(kind).__call__ is not type.__call__ and users_method(kind, "__call__") is not None:
        raise refuse(
            f"{kind.__name__}() calls {type(kind).__name__}.__call__.",
            "It may give an object that was there before, or keep the one that it makes.",
            "Make the object outside of the translated function.",
        )
    for maker in (kind.__new__, init):
        if isinstance(maker, types.FunctionType) and not is_written(maker):
            trace.guards.function(maker)
    if isinstance(of_class(kind, "__new__"), staticmethod) and is_written(kind.__new__):
        found = trace.hooks.call(kind.__new__)(kind, *args, **kwargs)
        if isinstance(found, kind) and isinstance(init, types.FunctionType):
            trace.hooks.call(noted(found, "__init__", init))(found, *args, **kwargs)
        return found
    plain = type(kind).__call__ is type.__call__ and not own
    known = is_written(init) or dataclasses.is_dataclass(kind)
    if not plain or not known or not isinstance(init, types.FunctionType):
        for x in args:
            note_items(trace, x)
        made: object = perform(kind, *args, **kwargs)
        trace.make(made)
        if dataclasses.is_dataclass(made):
            adopt_defaults(trace, made, args, kwargs)
        return made
    plain = kind.__new__ is object.__new__
    made = object.__new__(kind) if plain else kind.__new__(kind, *args, **kwargs)
    trace.make(made)
    init = noted(made, "__init__", init)
    if is_written(init):
        trace.hooks.call(init)(made, *args, **kwargs)
    else:  # `dataclasses` has written it; it calls `__post_init__`, which is converted
        perform(with_factories(trace, init), made, *args, **kwargs)
        adopt_defaults(trace, made, args, kwargs)
    return made


def with_factories(trace: Trace, init: types.FunctionType) -> types.FunctionType:
    """A constructor that `dataclasses` has written, with its default factories converted."""
    cells, known = list(init.__closure__ or ()), init.__code__.co_freevars
    for k, name in enumerate(known):
        factory = cells[k].cell_contents if "dflt_" in name else type
        if callable(factory) and not is_library_class(factory):
            cells[k] = types.CellType(trace.hooks.call(factory))
    made = types.FunctionType(
        init.__code__, init.__globals__, init.__name__, init.__defaults__, tuple(cells)
    )
    made.__kwdefaults__ = init.__kwdefaults__
    return made


def is_written(f: object) -> bool:
    """Whether a constructor is a function with a source: not one that Python has, or that
    `dataclasses` or `namedtuple` has made."""
    return isinstance(f, types.FunctionType) and f.__code__.co_filename != _DYNAMIC


def note_items(trace: Trace, x: object) -> None:
    """All items of a dict are read, if it is one."""
    trace.note_use(x)
    if isinstance(x, dict) and trace.guards is not None and id(x) in trace.guards.ids:
        note_contents(trace, x)


def new_object(kind: type, *args: object, **kwargs: object) -> object:
    """`object.__new__`."""
    made: object = object.__new__(kind, *args, **kwargs)
    if (trace := current()) is not None:
        trace.make(made)
    return made


def made_error(
    trace: Trace,
    kind: type[BaseException],
    init: types.FunctionType,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> BaseException:
    """An error of a user's class. It keeps its attributes when the trace is undone, so it is a copy
    of the one that the trace knows."""
    first = kind.__new__(kind, *args, **kwargs)
    trace.make(first)
    trace.hooks.call(init)(first, *args, **kwargs)
    error: BaseException = kind.__new__(kind, *first.args)
    error.args = first.args
    error.__dict__.update(first.__dict__)
    trace.make(error)
    return error


def is_library_class(x: object) -> bool:
    return isinstance(x, type) and package_of(x) in LIBRARIES


def adopt_defaults(
    trace: Trace, made: Any, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """The containers that a dataclass made for fields that were not given."""
    given = {id(q) for q in (*args, *kwargs.values())}
    for field in dataclasses.fields(made):
        value = getattr(made, field.name, None)
        if is_library_class(field.default_factory) and id(value) not in given:
            trace.make(value)


# ---------------------------------------------------------------- attributes and items
def computed_by(obj: object, name: str) -> object:
    """Return the descriptor of a user's class that computes an attribute, such as a property; None
    for stored attributes."""
    found = descriptor_of(obj, name)
    return None if found is None else noted(obj, name, found)


def descriptor_of(obj: object, name: str) -> object:
    found = defined(obj, name)
    if isinstance(found, property):
        return found if isinstance(found.fget, types.FunctionType) else None
    if isinstance(found, functools.cached_property):
        return None if is_own(obj, name) else found
    if found is None or users_method(found, "__get__") is None:
        return None
    return None if is_own(obj, name) and users_method(found, "__set__") is None else found


def is_own(obj: object, name: str) -> bool:
    """Whether an object itself has an attribute, not its class; slots are those of the class."""
    return name in getattr(obj, "__dict__", ())


def computed_attr(trace: Trace, obj: object, name: str) -> tuple[object, ...]:
    """Return `(value,)` of an attribute that a function of the user's class computes, which is
    converted; () for a stored attribute."""
    if isinstance(obj, super):
        return inherited_attr(trace, obj, name)
    found = computed_by(obj, name)
    if isinstance(found, property):
        return (trace.hooks.call(found.fget)(obj),)
    if isinstance(found, functools.cached_property):
        not_yet(trace, obj, name)
        value = trace.hooks.call(found.func)(obj)
        layers = isinstance(obj, paddle.nn.Layer) and isinstance(value, Tensor)
        trace.store(
            ItemLocation(vars(obj), name) if layers else AttributeLocation(obj, name), value
        )
        return (value,)
    if found is not None:
        if users_method(found, "__set__") is None:
            not_yet(trace, obj, name)
        return special(trace, found, "__get__", obj, type(obj))
    if is_plain_paddle(trace, obj) and isinstance(own := in_class(type(obj), name), property):
        own = own.fget
        return (trace.hooks.call(types.MethodType(own, obj))(),) if callable(own) else ()
    own = defined(obj, name)
    if isinstance(own, functools.partialmethod) and not is_own(obj, name):
        trace.guards.in_class(obj, name, own)
        return (own.__get__(obj, type(obj)),)
    if isinstance(own, functools.singledispatchmethod) and not is_own(obj, name):
        trace.guards.in_class(obj, name, own)
        return (functools.partial(dispatched, trace, own, obj),)
    if defined(obj, "__getattribute__") is not None:
        raise refuse(
            f"{type(obj).__name__} defines __getattribute__.",
            "Every read of its attributes runs code that a program does not follow.",
            "Define `__getattr__`, or properties.",
        )
    if defined(obj, "__getattr__") is None or plain_get(obj, name) is not MISSING:
        return ()
    if not made_here(trace, obj):
        trace.guards.absent(obj, name)
    note_class(trace, obj, name)
    return hooked(trace, obj, "__getattr__", name)


def inherited_attr(trace: Trace, obj: Any, name: str) -> tuple[object, ...]:
    """The same of `super()`: an attribute of a user's class behind the one that asks."""
    owner, kinds = obj.__self__, obj.__self_class__.__mro__
    behind = kinds[kinds.index(obj.__thisclass__) + 1 :]
    base = next((k for k in behind if name in vars(k)), None)
    if base is not None and package_of(base) not in LIBRARIES:
        trace.guards.special_method(base, name, found := vars(base)[name])
        if isinstance(found, property) and not isinstance(owner, type):
            return (trace.hooks.call(found.fget)(owner),)
    return (perform(getattr, obj, name),)


def dispatched(
    trace: Trace,
    method: functools.singledispatchmethod[object],
    obj: object,
    *args: object,
    **kwargs: object,
) -> object:
    """A call of a `functools.singledispatchmethod`."""
    kind = trace.hooks.call(type)(args[0])
    found = trace.hooks.call(method.dispatcher.dispatch)(kind)
    return trace.hooks.call(found.__get__(obj, type(obj)))(*args, **kwargs)


def not_yet(trace: Trace, obj: object, name: str) -> None:
    """The descriptor of the class was asked, because the object has no such attribute."""
    if (
        AttributeLocation(obj, name).key not in trace.objects.stored
        and id(obj) not in trace.objects.made
    ):
        trace.guards.absent(obj, name)


def hooked(trace: Trace, obj: object, hook: str, *args: object) -> tuple[object, ...]:
    """`(result,)` of `__setattr__` and the like, which may be a method of a C type in the user's
    class (`__setattr__ = dict.__setitem__`); () where the class does not define it."""
    found = defined(obj, hook)
    if found is None:
        return ()
    noted(obj, hook, found)
    if isinstance(found, types.FunctionType) and found.__code__.co_filename == _DYNAMIC:
        return (found(obj, *args),)
    return (trace.hooks.call(found)(obj, *args),)


def store_computed(trace: Trace, obj: object, name: str, value: object) -> bool:
    """Store through a property or descriptor of a user's class; False for anything else."""
    found = defined(obj, name)
    if isinstance(found, property) and isinstance(found.fset, types.FunctionType):
        noted(obj, name, found)
        sets = trace.hooks.call(found.fset)
        sets(obj, value)
        if isinstance(obj, paddle.nn.Layer) and not isinstance(value, (Tensor, paddle.nn.Layer)):
            sets(obj, value)  # Layer.__setattr__ comes to the setter twice
        return True
    descriptor = found is not None and not isinstance(found, property)
    return descriptor and bool(special(trace, found, "__set__", obj, value))


def special(trace: Trace, obj: object, name: str, *args: object) -> tuple[object, ...]:
    """`(result,)` of a special method that a user's class defines; () if it does not."""
    function = users_method(obj, name)
    return () if function is None else (trace.hooks.call(function)(obj, *args),)


def iterable_of(trace: Trace, x: object) -> Any:
    """Return the iterable of a `for` over a user's object."""
    check_strong(x)
    found = special(trace, x, "__iter__")
    made = found[0] if found else x
    if users_method(made, "__next__") is not None:
        return UserIterator(trace, made)
    if not hasattr(type(made), "__iter__") and users_method(made, "__getitem__") is not None:
        items = by_index(trace, made)
        trace.objects.iterators[id(items)] = (items, trace.frame)
        return items
    return made


class UserIterator:
    """An iterator of a user's class. Its state is in attributes, which a trace can put back."""

    def __init__(self, trace: Trace, obj: object) -> None:
        self.trace, self.obj = trace, obj

    def __iter__(self) -> UserIterator:
        return self

    def __next__(self) -> object:
        return special(self.trace, self.obj, "__next__")[0]


def by_index(trace: Trace, x: object) -> Iterator[object]:
    """The old protocol: x[0], x[1], ... up to IndexError."""
    i = 0
    while True:
        try:
            item = special(trace, x, "__getitem__", i)[0]
        except IndexError as error:
            raise_defect(error)
            return
        yield item
        i += 1


# ---------------------------------------------------------------- with
class UserContextManager:
    """A user's context manager whose methods are converted."""

    def __init__(self, trace: Trace, obj: object) -> None:
        self.trace, self.obj = trace, obj
        swallows = may_swallow(users_method(obj, "__exit__"))
        self.waiting: contextlib.AbstractContextManager[None] = (
            trying() if swallows else contextlib.nullcontext()
        )

    def __enter__(self) -> object:
        entered = special(self.trace, self.obj, "__enter__")[0]
        self.waiting.__enter__()
        return entered

    def __exit__(self, *error: Any) -> object:
        self.waiting.__exit__(*error)
        kind = error[0]
        if kind is not None and not issubclass(kind, Exception):
            return False
        swallow = special(self.trace, self.obj, "__exit__", *error)[0]
        if isinstance(swallow, Tensor):
            raise refuse(
                "`__exit__` returns a tensor.",
                "Python needs its truth value while the function is traced.",
                "Return a bool that Python knows, or None.",
            )
        return swallow


def may_swallow(f: types.FunctionType | None) -> bool:
    """Whether an `__exit__` returns anything but constants that are false."""
    code = [] if f is None else list(dis.get_instructions(f))
    ends = [
        q.argval if q.opname == "RETURN_CONST" else before.opname != "LOAD_CONST" or before.argval
        for before, q in zip(code, code[1:])
        if q.opname in ("RETURN_VALUE", "RETURN_CONST")
    ]
    return any(ends) or not ends


class SuppressContext:
    """`contextlib.suppress`."""

    def __init__(self, obj: contextlib.AbstractContextManager[object]) -> None:
        self.obj, self.trying = obj, trying()

    def __enter__(self) -> None:
        self.trying.__enter__()

    def __exit__(self, *error: Any) -> object:
        self.trying.__exit__(*error)
        return self.obj.__exit__(*error)


class CatchWarningsContext:
    """`warnings.catch_warnings`: what it makes of the filters holds while the function is traced,
    and for the warnings of the program inside."""

    def __init__(self, trace: Trace, obj: warnings.catch_warnings[None]) -> None:
        if obj._record:  # type: ignore[attr-defined]
            raise refuse(
                "warnings.catch_warnings(record=True) in a translated function.",
                "The list gets its warnings when the program runs, not when it is traced.",
                "Write the `with` around the call of the translated function.",
            )
        self.trace, self.obj = trace, obj

    def __enter__(self) -> None:
        self.trace.calls.filters.append((self.trace.frame, []))
        self.obj.__enter__()
        given = getattr(self.obj, "_filter", None)
        if given is not None:
            self.trace.calls.filters[-1][1].append(lambda: warnings.simplefilter(*given))

    def __exit__(self, *error: Any) -> None:
        self.trace.calls.filters.pop()
        self.obj.__exit__(*error)


def manager(x: object) -> object:
    """The manager of a `with` statement."""
    trace = current()
    if isinstance(x, warnings.catch_warnings) and trace is not None:
        return CatchWarningsContext(trace, x)
    if isinstance(x, contextlib.suppress) and trace is not None:
        return SuppressContext(x)
    if trace is not None and not is_users_object(x) and effect_of(type(x)) is Effect.REFUSED:
        raise refuse(
            f"a `with` statement enters a {type(x).__name__}.",
            "It would be entered and left while the function is traced, not by the program.",
            "Write the `with` around the call of the translated function.",
        )
    if trace is None or users_method(x, "__enter__") is None or users_method(x, "__exit__") is None:
        return x
    return UserContextManager(trace, x)


class trying:
    """A handler waits for errors inside: none of them may be left to the program."""

    def __enter__(self) -> None:
        self.trace = current()
        if self.trace is not None:
            self.trace.trying += 1

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if self.trace is not None:
            self.trace.trying -= 1
            raise_defect(error)


# ---------------------------------------------------------------- caches
def cached_call(
    f: Callable[..., object], made_again: Callable[..., object]
) -> Callable[..., object]:
    """A function with `functools.lru_cache`: called as in eager, where it computes once."""

    def call(*args: object, **kwargs: object) -> object:
        if any(isinstance(x, Tensor) for x in (*args, *kwargs.values())):
            raise refuse(
                f"{f.__name__}, which has an lru_cache, is called with a tensor.",
                "The cache would keep a tensor of one call and give it to all others.",
                f"Call it without the cache: `{f.__name__}.__wrapped__(...)`.",
            )
        return made_again(*args, **kwargs)

    return call
