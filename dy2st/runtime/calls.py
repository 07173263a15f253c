"""Calls in converted code: callees are converted, library functions are called as they are."""

from __future__ import annotations

import collections
import functools
import inspect
import operator
import os
import types
import weakref
from collections.abc import Callable
from typing import Any

import paddle
from paddle.jit.dy2static.program_translator import StaticFunction as PaddleStatic

from dy2st.branches.cond import choose
from dy2st.capture import pylayer
from dy2st.capture.foreign import is_host
from dy2st.capture.foreign.draws import drawing
from dy2st.convert import convert
from dy2st.convert.marks import is_ignored, is_plain
from dy2st.convert.unsupported import is_converted
from dy2st.library.builtins import SUBSTITUTES
from dy2st.library.introspection import KINDS as INTROSPECTION
from dy2st.library.introspection import note_partial
from dy2st.library.layer_modes import check_hooks
from dy2st.library.substitutes import REWRITTEN
from dy2st.loops.generators import is_outside, maker, manager_maker, next_, registered
from dy2st.runtime import access
from dy2st.runtime.container_methods import (
    MUTATORS,
    OF_ELEMENTS,
    container_method,
    made,
    running_through,
    sorting,
    unbound,
)
from dy2st.runtime.library_calls import guarded_call, library_call, unconverted
from dy2st.runtime.special_methods import generated_call, is_generated
from dy2st.state.containers.dynamic_lookup import SelectedObject
from dy2st.state.containers.layers import originals, picked_of
from dy2st.state.containers.tagged_union import SplitCall
from dy2st.state.dynamic_numbers import hold_dynamic
from dy2st.state.effects import mark_of
from dy2st.state.guards import HOLDERS
from dy2st.state.ownership import (
    LIBRARIES,
    NAMESPACES,
    check_opaque,
    is_plain_paddle,
    made_here,
    note_class,
    note_contents,
    note_method,
    package_of,
    referent,
    refuse,
)  # fmt: skip
from dy2st.state.protocols import cached_call, make_object, noted
from dy2st.state.strings import str_method
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import compare
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import KINDS, AttributeLocation, ItemLocation, kind_of

#: The objects that converted functions call; the package registers them when it is imported.
RUNTIMES: dict[str, object] = {}
Layer = paddle.nn.Layer
CONTAINERS = (
    dict, set, collections.deque, collections.defaultdict, collections.OrderedDict,
    collections.Counter, collections.UserList, collections.UserDict, collections.ChainMap,
    *NAMESPACES,
)  # fmt: skip
BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
UNBOUND = (types.MethodDescriptorType, types.WrapperDescriptorType)
REGISTRATION = frozenset(
    "register_buffer add_parameter add_sublayer register_forward_pre_hook "
    "register_forward_post_hook to set_state_dict load_dict".split()
)
LOADING = frozenset({"set_state_dict", "load_dict"})
WRITE_EACH = (
    "Write each parameter, `for p, q in zip(a.parameters(), b.parameters()): p.set_value(q)`, or "
    "load them outside of the function."
)
REGISTER_BEFORE = (
    "Register parameters, buffers, sublayers and hooks in `__init__`; move or convert the layer "
    "before the call."
)


def converted(fn: types.FunctionType) -> types.FunctionType:
    """The converted form of a user's function, once per function, with its defaults of today."""
    known, key = fn.__dict__.get(ConvertedFunction.NAME), (fn, fn.__code__, is_plain(fn))
    if known is None or known.key != key:
        new = convert(fn, RUNTIMES["unconverted" if key[2] else "converted"])
        known = fn.__dict__[ConvertedFunction.NAME] = ConvertedFunction(key, new)
    new = known.new
    new.__defaults__, new.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    return new


class ConvertedFunction:
    """The converted form of a function, which the function itself keeps: both refer to objects that
    may refer to the function. `key`: the function, its code, and whether it is marked."""

    NAME = "__dy2st_converted__"

    def __init__(self, key: object = None, new: Any = None) -> None:
        self.key, self.new = key, new

    def __reduce__(self) -> tuple[type[ConvertedFunction], tuple[()]]:
        return ConvertedFunction, ()


#: classes of Paddle whose constructors raise depending on data
CHECKED = (paddle.distribution.Chi2, paddle.distribution.StudentT)


def is_library(fn: types.FunctionType) -> bool:
    """Whether it is not converted. `functools.wraps` copies the name of a module, so the module
    that has the code is asked, too."""
    name, real = fn.__module__ or "", fn.__globals__.get("__name__", "")
    return is_ignored(name) or {name.split(".")[0], real.split(".")[0]} <= LIBRARIES


def fn(f: Any) -> Any:
    """The function to call instead of `f`."""
    trace = current()
    if trace is None:
        return f
    f = drawing(f)
    if is_symint(f):
        return f
    if type(f) is SelectedObject:
        return functools.partial(call_chosen, trace, f)
    if picked_of(trace, f) is not None:
        return called_layer(f)
    if mark_of(f) is not None or is_host(f):
        return library_call(trace, f)
    if id(f) in access.BUILTINS:
        return access.BUILTINS[id(f)]
    if getattr(f, "__name__", "") == "__next__" and is_outside(trace, getattr(f, "__self__", None)):
        return functools.partial(next_, f.__self__)
    if isinstance(f, types.FunctionType):
        replaced = SUBSTITUTES.get(id(f))
        if replaced is not None:
            return SplitCall(trace, replaced)
        if f in REWRITTEN:
            return library_code(trace, REWRITTEN[f])
        if is_library(f):
            return unconverted(trace, f)
        return maker(f) if made_inside(trace, f) else use(trace, f)
    if isinstance(f, types.MethodType):
        return method(trace, f)
    return called_layer(f) if isinstance(f, Layer) else other(trace, f)


def called_layer(f: paddle.nn.Layer) -> object:
    own = type(f).__call__
    if is_paddles(own):
        return functools.partial(call_layer, f)
    return fn(noted(f, "__call__", own)).__get__(f)


def call_chosen(trace: Trace, chosen: SelectedObject, *args: object, **kwargs: object) -> object:
    """A branch for each Layer or function of which data chooses one."""

    def one_of(k: int) -> object:
        if k == len(chosen.items) - 1:
            return fn(chosen.items[k])(*args, **kwargs)
        found = compare(trace, "eq", chosen.at, k)
        return choose(trace, found, lambda: fn(chosen.items[k])(*args, **kwargs), later(k + 1))

    def later(k: int) -> Callable[[], object]:
        return lambda: one_of(k)

    return one_of(0)


def is_paddles(call: object) -> bool:
    """Whether a Layer is called as Paddle does, and not by a `__call__` of the user."""
    return not isinstance(call, types.FunctionType) or is_library(call)


def made_inside(trace: Trace, f: types.FunctionType) -> bool:
    """A function that converted code defined: it is converted already."""
    return f.__code__ in trace.calls.codes or is_converted(f)


def inner_codes(code: types.CodeType) -> set[types.CodeType]:
    """The functions that converted code defines; those of a class statement are not converted."""
    found = {c for c in code.co_consts if isinstance(c, types.CodeType)}
    found = {c for c in found if c.co_flags & inspect.CO_OPTIMIZED}
    return found.union(*map(inner_codes, found))


def use(trace: Trace, f: types.FunctionType) -> Callable[..., object]:
    """A user's function: converted, with the globals and cells that it reads guarded."""
    inner = getattr(f, "__dy2st_original__", None)
    if inner is not None:
        return fn(inner)
    if is_generated(f):
        return lambda *args, **kwargs: generated_call(trace, f, *args, **kwargs)
    manager = manager_maker(f, fn)
    if manager is not None:
        return manager
    new = converted(f)
    trace.calls.codes |= inner_codes(new.__code__)
    note_function(trace, f, new)
    return maker(new)


def library_code(trace: Trace, f: types.FunctionType) -> Callable[..., object]:
    """A function of Paddle, Python or dy2st, converted; it does not change, so nothing is
    guarded."""
    new = converted(f)
    trace.calls.codes |= inner_codes(new.__code__)
    return maker(new)


def note_function(trace: Trace, f: types.FunctionType, new: Any) -> None:
    if trace.guards is None or f in trace.calls.functions:
        return
    trace.calls.functions.add(f)
    trace.guards.function(f)
    for name in getattr(new, "__dy2st_globals__", ()):
        if ("item", id(f.__globals__), name) not in trace.objects.stored:
            if trace.dynamic and hold_dynamic(trace, ItemLocation(f.__globals__, name)):
                continue
            trace.guards.global_(f.__globals__, name, name not in new.__dy2st_receivers__)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        if (
            name in new.__dy2st_reads__
            and ("attr", id(cell), "cell_contents") not in trace.objects.stored
        ):
            if trace.dynamic and hold_dynamic(trace, AttributeLocation(cell, "cell_contents")):
                continue
            if not isinstance(value, FakeTensor):
                trace.guards.cell(cell, name, value, name not in new.__dy2st_receivers__)


def method(trace: Trace, f: types.MethodType) -> Callable[..., object]:
    owner = f.__self__
    check_opaque(owner)
    names = REGISTRATION | (MUTATORS if isinstance(owner, HOLDERS) else frozenset())
    if isinstance(owner, Layer) and f.__name__ in names and not made_here(trace, owner):
        raise refuse(
            f"{type(owner).__name__}.{f.__name__}() in a translated function.",
            "A cached call could not repeat it.",
            WRITE_EACH if f.__name__ in LOADING else REGISTER_BEFORE,
        )
    if isinstance(owner, Layer) and f.__func__ is type(owner).__call__ and is_paddles(f.__func__):
        return functools.partial(call_layer, owner)
    if isinstance(f.__func__, functools._lru_cache_wrapper):
        return functools.partial(fn(f.__func__), owner)
    rewritten = isinstance(f.__func__, types.FunctionType) and f.__func__ in REWRITTEN
    if rewritten and not isinstance(owner, type(os.environ)):
        if isinstance(f.__self__, Layer):
            guard_layer(trace, f.__self__)
        return library_code(trace, REWRITTEN[f.__func__]).__get__(f.__self__)
    if id(f.__func__) in SUBSTITUTES and isinstance(f.__self__, (Tensor, Layer)):
        return functools.partial(SUBSTITUTES[id(f.__func__)], f.__self__)
    library = isinstance(f.__func__, types.FunctionType) and is_library(f.__func__)
    if library and kind_of(f.__self__) is not None and not isinstance(f.__self__, TraceList):
        return container_method(trace, f, f.__self__)
    if isinstance(owner, TraceList) and f.__name__ not in OF_ELEMENTS:
        sorts = f.__func__ is TraceList.sort and owner.born is trace.frame
        counted = sorts and isinstance(owner.size(), int)
        return sorting(trace, f) if counted else running_through(f)
    if is_plain_paddle(trace, owner) and isinstance(f.__func__, types.FunctionType):
        return library_code(trace, f.__func__).__get__(owner)
    if not isinstance(f.__func__, types.FunctionType) or is_library(f.__func__):
        translated = getattr(f.__func__, "__dy2st_original__", None)
        if isinstance(owner, Layer) and translated is None:
            for q in originals(trace, owner):
                note_method(trace, q, types.MethodType(f.__func__, q))
            return registered(unconverted(trace, f))
        return unconverted(trace, f) if translated is None else fn(translated.__get__(f.__self__))
    if made_inside(trace, f.__func__):
        return maker(f)
    note_inherited(trace, owner, f.__func__)
    return use(trace, f.__func__).__get__(f.__self__)


def function_of(x: object) -> object:
    """The function of a method, and of a class method."""
    return x.__func__ if isinstance(x, (classmethod, types.MethodType)) else x


def note_inherited(trace: Trace, owner: object, f: types.FunctionType) -> None:
    """A method that `super()` gives belongs to a class behind the first one that has it."""
    kind = owner if isinstance(owner, type) else type(owner)
    if getattr(kind, f.__name__, None) is f:
        return
    held = [(k, *q) for k in kind.__mro__ for q in vars(k).items() if function_of(q[1]) is f]
    for base, name, q in held:  # under a name that need not be that of the function
        if function_of(getattr(kind, name, f)) is not f:
            trace.guards.special_method(base, name, q)
            bases = trace.guards.ref_constant(kind.__mro__)
            trace.guards.terms["mro", id(kind)] = f"{trace.guards.ref(kind)}.__mro__ is {bases}"


def other(trace: Trace, f: Any) -> Callable[..., object]:
    replaced = SUBSTITUTES.get(id(f))
    if replaced is not None:
        return replaced if id(f) in INTROSPECTION else SplitCall(trace, replaced)
    if isinstance(f, functools.partial):
        if not made_here(trace, f):
            note_contents(trace, f.keywords)
            note_partial(trace.guards, f)
        return functools.partial(fn(f.func), *f.args, **f.keywords)
    original = getattr(f, "__dy2st_original__", None)
    if original is None and isinstance(f, PaddleStatic):
        original = f.dygraph_function
    if original is not None:
        return fn(original)
    owner = getattr(f, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, paddle.autograd.PyLayer):
        return functools.partial(pylayer.apply, owner) if f.__name__ == "apply" else f
    if any(f is c for c in CONTAINERS) or isinstance(f, type) and issubclass(f, tuple(KINDS)):
        return running_through(functools.partial(make_object, trace, f))
    if isinstance(f, type) and package_of(f) not in LIBRARIES:
        return functools.partial(make_object, trace, f)
    if any(f is c for c in CHECKED):
        return functools.partial(make_checked, trace, f)
    if isinstance(f, functools._lru_cache_wrapper):
        return cached_call(f, functools.partial(guarded_call, trace, f))
    if isinstance(f, (operator.attrgetter, operator.methodcaller)):
        return functools.partial(attributes, trace, f)
    if isinstance(f, types.BuiltinMethodType) and f.__name__ == "__new__":
        return made(trace, unconverted(trace, f))
    if isinstance(f, types.BuiltinMethodType) and type(owner) is str:
        return running_through(str_method(f, owner))
    if isinstance(f, operator.itemgetter):
        return functools.partial(access.items_of, f)
    if isinstance(getattr(f, "__origin__", None), type):
        return fn(f.__origin__)
    if type(f) is weakref.ReferenceType:
        return functools.partial(referent, trace, f)
    check_opaque(f)
    check_opaque(owner)
    if isinstance(owner, BaseException) and made_here(trace, owner) and f.__name__ == "__init__":
        return f
    if isinstance(f, BOUND) and (kind_of(owner) is not None or f.__name__ in access.STORES):
        return container_method(trace, f, owner)
    if isinstance(f, UNBOUND) and f.__objclass__ in (*KINDS, object):
        return functools.partial(unbound, trace, f)
    call = next((vars(k)["__call__"] for k in type(f).__mro__ if "__call__" in vars(k)), None)
    plain = getattr(call, "__dy2st_original__", call)
    if isinstance(plain, types.FunctionType) and not is_library(plain):
        noted(f, "__call__", call)
        return use(trace, plain).__get__(f)
    if isinstance(call, types.FunctionType) and is_plain_paddle(trace, f):
        return library_code(trace, call).__get__(f)
    return unconverted(trace, f)


def make_checked(trace: Trace, kind: Any, *args: object, **kwargs: object) -> object:
    """An object of Paddle's whose constructor raises depending on data."""
    made = object.__new__(kind)
    trace.make(made)
    library_code(trace, kind.__init__)(made, *args, **kwargs)
    return made


def attributes(trace: Trace, f: Any, obj: object) -> object:
    """`operator.attrgetter(...)(obj)` and `operator.methodcaller(...)(obj)`, read as in code."""
    kind, args = f.__reduce__()[:2]
    if kind is operator.attrgetter:
        found = [functools.reduce(access.getattr_, name.split("."), obj) for name in args]
        return found[0] if len(found) == 1 else tuple(found)
    name, *rest = args or kind.args
    named = {} if args else kind.keywords
    return fn(access.getattr_(obj, name))(*rest, **named)


def call_layer(layer: paddle.nn.Layer, *args: object, **kwargs: object) -> object:
    """`layer(...)`: hooks as Paddle runs them around the converted `forward`."""
    trace = current()
    if trace is None:
        return layer(*args, **kwargs)
    guard_layer(trace, layer)
    if made_here(trace, layer):
        note_class(trace, layer, "forward")
    forward = fn(layer.forward)
    plain = not (layer._forward_pre_hooks or layer._forward_post_hooks)
    built = type(layer)._build_once is Layer._build_once or layer._built
    if plain and built:
        return forward(*args, **kwargs)
    return with_hooks(layer, forward, args, kwargs)


def guard_layer(trace: Trace, layer: paddle.nn.Layer) -> None:
    """The program depends on what its call reads of a Layer that was there before."""
    for q in originals(trace, layer):
        new = made_here(trace, q) or AttributeLocation(q, "_full_name").key in trace.objects.stored
        if trace.guards is not None and not new:
            trace.guards.layer(q, trace.objects.stored)


def with_hooks(
    layer: paddle.nn.Layer,
    forward: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """`Layer._dygraph_call_func`: hooks and `forward` in Paddle's order."""
    check_hooks(layer)
    for key, hook in tuple(layer._forward_pre_hooks.items()):
        if key in layer._forward_pre_hooks_with_kwargs_flag:
            new = fn(hook)(layer, args, kwargs)
            args, kwargs = (args, kwargs) if new is None else new
        else:
            new = fn(hook)(layer, args)
            args = args if new is None else new if isinstance(new, tuple) else (new,)
    if type(layer)._build_once is not Layer._build_once and not layer._built:
        layer._build_once(*args, **kwargs)
        layer._built = True
    out = forward(*args, **kwargs)
    for key, hook in tuple(layer._forward_post_hooks.items()):
        named = (kwargs,) if key in layer._forward_post_hooks_with_kwargs_flag else ()
        new = fn(hook)(layer, args, *named, out)
        out = out if new is None else new
    return out
