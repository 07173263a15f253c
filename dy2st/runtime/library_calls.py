"""Calls of code that is not converted, by their effect (`dy2st.state.effects`).

A pure function is called while tracing, with arguments that are known; what it reads of objects
from outside is guarded, and functions of the user that it is given are converted when it calls
them. A guarded call is made again in the check of every call of the program.
"""

from __future__ import annotations

import collections
import copy
import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from dy2st.capture.foreign import host_call, is_host
from dy2st.loops.generators import check_made_here, maker
from dy2st.state.arrays import is_array
from dy2st.state.container_writes import change
from dy2st.state.containers.tagged_union import SplitCall, TaggedUnion
from dy2st.state.effects import (
    GENERIC,
    IMMUTABLE,
    OPAQUE,
    PLAIN,
    Effect,
    effect_of,
    is_in,
    is_recorded,
    name_of,
    refusal_of,
    written,
)
from dy2st.state.guards import is_plain
from dy2st.state.ownership import is_users_object, made_here, note_contents, note_object, refuse
from dy2st.state.strings import LazyText
from dy2st.state.strings import stop as stop_text
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import is_runtime_scalar, stop
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.undo import MISSING
from dy2st.trace.user_stack import OUTSIDE, called_method, perform

FUNCTIONS = (
    types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType,
    functools.partial,
)  # fmt: skip
CALLED = (*FUNCTIONS, types.WrapperDescriptorType, types.MethodWrapperType, type, np.ufunc,
          type(np.mean))  # fmt: skip
#: operators, by the names of their functions in `operator`
SHOWN = {"setitem": "`a[i] = ...`", "delitem": "`del a[i]`", "iadd": "`+=`", "isub": "`-=`",
         "imul": "`*=`", "ior": "`|=`", "iand": "`&=`", "ixor": "`^=`"}  # fmt: skip
CONTAINERS = (list, tuple, set, frozenset, dict, collections.deque)
HASHES: tuple[type, ...] = tuple(
    {type(hashlib.new(name)) for name in ("md5", "sha3_256", "blake2b", "blake2s")}
)
FRESH: tuple[type, ...] = (list, set, dict, collections.deque, bytearray, np.ndarray, *HASHES)


def unconverted(trace: Trace, f: Callable[..., object]) -> Callable[..., object]:
    """Wrap a function that is not converted: calls of Paddle are recorded, other calls by
    effect."""
    recorded = is_recorded(f) and effect_of(f) is Effect.PURE
    return SplitCall(trace, maker(f) if recorded else library_call(trace, f))


def library_call(trace: Trace, f: Callable[..., object]) -> Callable[..., object]:
    """Return the function to call in place of `f`, which is not converted.

    Raises Refused for a function that cannot be part of a program.
    """
    effect = effect_of(f)
    if effect is Effect.HOST or is_host(f):
        return lambda *args, **kwargs: host_call(trace, f, args, kwargs)
    if effect is Effect.PURE:
        return PureCall(trace, f)
    if effect is Effect.GUARDED:
        return functools.partial(guarded_call, trace, f)
    raise refuse(f"{name_of(f)}() in a translated function.", *refusal_of(f))


class PureCall:
    """A pure function, which reads its arguments and writes at most one of them."""

    def __init__(self, trace: Trace, f: Callable[..., object]) -> None:
        self.trace, self.f, self.written = trace, f, written(f)
        self.opaque = is_in(f, OPAQUE)
        self.generic = is_in(f, GENERIC) and not is_in(f, PLAIN)
        self.seen: dict[int, object] = {}

    def __call__(self, *args: object, **kwargs: object) -> object:
        owner = getattr(self.f, "__self__", None if isinstance(self.f, CALLED) else self.f)
        if not isinstance(owner, (types.ModuleType, type, type(None))):
            self.read(owner)
        self.follow(owner)
        self.write(owner, args, kwargs)
        for x in (*args, *kwargs.values()):
            self.read(x)
        if self.f is id or self.f is hash:
            self.trace.guards.pin(args[0])
        if self.f is inspect.signature and args and not made_here(self.trace, args[0]):
            given = getattr(args[0], "__signature__", MISSING)
            self.trace.guards.attr(args[0], "__signature__", given)
        if not self.opaque:
            args = tuple(map(self.callback, args))
            kwargs = {k: self.callback(x, named=True) for k, x in kwargs.items()}
        out = perform(self.f, *args, **kwargs)
        self.adopt(out)
        return out

    # ------------------------------------------------------------ arguments
    def read(self, x: object) -> None:
        """The result depends on this value: it is known, and what may change of it is guarded."""
        if id(x) in self.seen:
            return
        self.seen[id(x)] = x
        if is_lazy(x):
            if not self.generic:
                raise self.unknown(x)
        elif isinstance(x, TraceList) or isinstance(x, CONTAINERS):
            self.read_container(x)
        elif self.opaque or isinstance(x, type):
            return
        elif isinstance(x, np.ndarray) and not made_here(self.trace, x):
            self.trace.guards.array(x)
        elif hasattr(type(x), "__next__"):
            check_made_here(self.trace, x)
        elif isinstance(x, (bytearray, memoryview)) and not made_here(self.trace, x):
            raise refuse(
                f"{name_of(self.f)}() of a {type(x).__name__} from outside.",
                "Its bytes may change between calls, and are not checked.",
                "Pass `bytes(...)` of it.",
            )
        elif is_users_object(x):
            note_object(self.trace, x)

    def read_container(self, x: Any) -> None:
        if isinstance(x, TraceList) and x.segmented and not self.generic:
            raise self.unknown(x)
        self.trace.note_use(x)
        if not self.opaque and not isinstance(x, TraceList):
            note_contents(self.trace, x)
        parts = x.parts() if isinstance(x, TraceList) else x.values() if isinstance(x, dict) else x
        for q in parts:
            self.read(q)

    def unknown(self, x: object) -> BaseException:
        """Return the error for an argument whose value the program computes."""
        name = name_of(self.f)
        if is_runtime_scalar(x):
            return stop(x, f"{name}()")
        if is_symint(x):
            return NeedsConcrete(f"{x!r} is needed as a number ({name}())", x.loops)
        if type(x) is LazyText:
            stop_text(x, f"needed by {name}()")
        method = called_method()
        by = f" by {method}()" if method else ""
        remedy = "Use the function of Paddle, or call it outside of the translated function."
        return refuse(
            f"{name}() of a tensor is needed{by} while the program is traced.",
            "Its value is known only when the program runs.",
            OUTSIDE if method else remedy,
        )

    def callback(self, x: Any, named: bool = False) -> object:
        """A function as an argument (an object of the user, if its name says that it is called):
        it is converted when it is called."""
        users = named and is_users_object(x) and callable(x)
        if isinstance(x, type) or not (isinstance(x, FUNCTIONS) or users):
            return x

        @functools.wraps(x)
        def call(*args: object, **kwargs: object) -> object:
            out = self.trace.hooks.call(x)(*args, **kwargs)
            if is_lazy(out) and not self.generic:
                raise self.unknown(out)
            return out

        return call

    # ------------------------------------------------------------ effects
    def follow(self, owner: object) -> None:
        """A method of a library's object may change it, in a way that the program does not."""
        if owner is None or isinstance(owner, (types.ModuleType, type)) or self.is_known(owner):
            return
        trace = self.trace
        if not made_here(trace, owner):
            raise refuse(
                f"{name_of(self.f)}() of an object from outside.",
                f"What is in a {type(owner).__name__} may change between calls, and a program does "
                "not check it.",
                "Make the object in the function, or call it outside and pass the result in.",
            )
        if trace.home(owner) is not trace.frame:
            raise NeedsConcrete(
                f"{name_of(self.f)}() may change an object from outside of the loop"
            )

    def is_known(self, owner: object) -> bool:
        plain = is_plain(owner) or is_array(owner) or is_lazy(owner)
        return plain or is_users_object(owner) or is_in(type(owner), IMMUTABLE)

    def write(self, owner: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Log a container that changes, so that it is restored and changed on every call; an array
        must have been made by the function."""
        at = self.written
        targets = [] if at is None else [owner if at < 0 else args[at] if at < len(args) else None]
        if is_in(self.f, frozenset(("numpy",))) and kwargs.get("out") is not None:
            out = kwargs["out"]
            targets += out if isinstance(out, tuple) else [out]
        for x in targets:
            if isinstance(x, (list, dict, set)) and not isinstance(x, TraceList):
                change(self.trace, x)
            elif isinstance(x, TraceList) and (x.segmented or self.trace.tentative):
                raise NeedsConcrete(f"{name_of(self.f)}() changes a list in the loop")
            elif isinstance(x, (np.ndarray, bytearray)):
                self.write_array(x)

    def write_array(self, x: object) -> None:
        if not made_here(self.trace, x):
            raise refuse(
                f"{SHOWN.get(self.f.__name__, f'{name_of(self.f)}()')} writes to "
                f"{'an array' if isinstance(x, np.ndarray) else 'a bytearray'} from outside.",
                "A program writes to tensors and to Python's containers.",
                "Write to a copy (`a.copy()`), or call it outside of the translated function.",
            )
        if self.trace.tentative:
            raise NeedsConcrete(f"{name_of(self.f)}() writes to an array in the loop")

    def adopt(self, out: object) -> None:
        """Take ownership of the objects that the function has made: nothing else refers to them."""
        if isinstance(self.f, type) and type(out) is self.f:
            self.trace.make(out)
        if self.opaque or id(out) in self.seen or is_array(out):
            return
        self.seen[id(out)] = out
        if isinstance(out, FRESH) and getattr(out, "base", None) is None:
            self.trace.make(out)
        if isinstance(out, (list, tuple, dict)):
            for q in out.values() if isinstance(out, dict) else out:
                self.adopt(q)
        elif hasattr(out, "__next__"):
            self.trace.objects.iterators[id(out)] = (out, self.trace.frame)


# ---------------------------------------------------------------- guarded calls
def guarded_call(trace: Trace, f: Callable[..., object], *args: object, **kwargs: object) -> object:
    """The result, or the exception; every call of the program checks that it is the same."""
    call = PureCall(trace, f)
    call.generic = False
    call.opaque |= isinstance(f, functools._lru_cache_wrapper)
    for x in (*args, *kwargs.values()):
        call.read(x)
    with trace.pause():
        try:
            out = perform(f, *args, **kwargs)
        except Exception as e:
            trace.guards.call(f, args, kwargs, raised=type(e))
            raise
        again = f(*args, **kwargs)
        known = copy.deepcopy(out) if again is not out and is_plain(out) else out
    if again is not out and not is_plain(out):
        raise refuse(
            f"{name_of(f)}() in a translated function.",
            "It returns a different object on every call.",
            "Call it outside of the translated function, and pass the result in.",
        )
    trace.guards.call(f, args, kwargs, known)
    if again is not out:
        call.adopt(out)
    elif isinstance(out, FRESH):
        trace.guards.ref(out)
        note_contents(trace, out)
    return out


# ---------------------------------------------------------------- kinds of values
def is_lazy(x: object) -> bool:
    """Whether the value is known only when the program runs."""
    known = isinstance(x, Tensor) or is_symint(x) or is_runtime_scalar(x)
    return known or type(x) in (LazyText, TaggedUnion)


__all__ = ["PureCall", "guarded_call", "library_call"]
