"""Calls in converted code: callees are converted, library functions are called as they are."""

from __future__ import annotations

import collections
import dis
import functools
import importlib
import inspect
import types
from typing import Any

import paddle

from dy2st.capture.emitter import grad_enabled, lift
from dy2st.capture.fake import FakeTensor, Tensor
from dy2st.capture.trace import Trace, current
from dy2st.checks import is_converted, is_generator
from dy2st.containers import TraceList
from dy2st.convert import convert
from dy2st.journal import MISSING, container_snapshot
from dy2st.owned import LIBRARIES, check_mutable, note_contents, refuse
from dy2st.replaced import SUBSTITUTES
from dy2st.stops import NeedsConcrete

Layer = paddle.nn.Layer
CONTAINERS = (
    collections.deque, collections.defaultdict, collections.OrderedDict, collections.Counter
)  # fmt: skip
MUTABLE = (list, dict, set, collections.deque)
REGISTRATION = frozenset(
    "register_buffer add_parameter add_sublayer register_forward_pre_hook "
    "register_forward_post_hook to train eval set_state_dict load_dict".split()
)
MUTATORS = frozenset(
    "append extend insert pop popitem remove clear update setdefault add discard sort reverse "
    "appendleft popleft".split()
)
EFFECTS = (
    print, input, open, exec, eval, setattr, delattr, paddle.grad, paddle.autograd.backward,
    paddle.seed, paddle.set_rng_state, paddle.save, paddle.load, object.__setattr__,
)  # fmt: skip


def converted(fn: types.FunctionType) -> types.FunctionType:
    """The converted form of a user's function, once per function, with its defaults of today."""
    new = _converted(fn, fn.__code__)
    new.__defaults__, new.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    return new


@functools.cache
def _converted(fn: types.FunctionType, code: types.CodeType) -> types.FunctionType:
    """The runtime imports this module, so it is looked up."""
    return convert(fn, importlib.import_module("dy2st.runtime"))


def is_library(fn: types.FunctionType) -> bool:
    return (fn.__module__ or "").split(".")[0] in LIBRARIES


def fn(f: Any) -> Any:
    """The function to call instead of `f`."""
    trace = current()
    if trace is None:
        return f
    if any(f is e for e in EFFECTS):
        raise refuse(
            f"{f.__name__}() in a translated function.",
            "It would act when the function is traced, not when the program runs.",
            "Call it outside of the translated function.",
        )
    if isinstance(f, types.FunctionType):
        replaced = SUBSTITUTES.get(id(f))
        if replaced is not None:
            return replaced
        return f if is_library(f) or made_inside(trace, f) else use(trace, f)
    if isinstance(f, types.MethodType):
        return method(trace, f)
    if isinstance(f, Layer):
        return functools.partial(call_layer, f)
    return other(trace, f)


def made_inside(trace: Trace, f: types.FunctionType) -> bool:
    """A function that converted code defined: it is converted already."""
    return f.__code__ in trace.codes or is_converted(f)


def inner_codes(code: types.CodeType) -> set[types.CodeType]:
    found = {c for c in code.co_consts if isinstance(c, types.CodeType)}
    return found.union(*map(inner_codes, found))


def use(trace: Trace, f: types.FunctionType) -> Any:
    """A user's function: converted, with the globals and cells that it reads guarded."""
    inner = getattr(f, "__dy2st_original__", None)
    if inner is not None:
        return fn(inner)
    if is_generator(inspect.unwrap(f)):
        raise refuse(
            f"the generator function {f.__name__} is called.",
            "Its body would run when the function is traced, unseen by the program.",
            "Collect the items in a list, or write the loop in the function itself.",
        )
    stored = outer_stores(f.__code__)
    if stored:
        raise refuse(
            f"the variable {sorted(stored)[0]!r} of an enclosing function is assigned.",
            "A cached call could not repeat this.",
            "Return the new value, or keep it in an attribute of an object.",
        )
    new = converted(f)
    trace.codes |= inner_codes(new.__code__)
    note_function(trace, f, new)
    return new


@functools.cache
def outer_stores(code: types.CodeType) -> frozenset[str]:
    """Variables of enclosing functions that this code, or code inside of it, assigns."""
    found = {
        i.argval
        for i in dis.get_instructions(code)
        if i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars
    }
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= outer_stores(inner) & set(code.co_freevars)
    return frozenset(found)


def note_function(trace: Trace, f: types.FunctionType, new: Any) -> None:
    if trace.guards is None or f in trace.functions:
        return
    trace.functions.add(f)
    trace.guards.function(f)
    for name in getattr(new, "__dy2st_globals__", ()):
        trace.guards.global_(f.__globals__, name)
    for cell in f.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        if not isinstance(value, FakeTensor):
            trace.guards.cell(cell, value)


def method(trace: Trace, f: types.MethodType) -> Any:
    if isinstance(f.__self__, Layer) and f.__name__ in REGISTRATION:
        raise refuse(
            f"{f.__name__}() in a translated function.",
            "A cached call could not repeat it.",
            "Register it in __init__.",
        )
    if not isinstance(f.__func__, types.FunctionType) or is_library(f.__func__):
        translated = getattr(f.__func__, "__dy2st_original__", None)
        return fn(translated.__get__(f.__self__)) if translated is not None else f
    if made_inside(trace, f.__func__):
        return f
    return use(trace, f.__func__).__get__(f.__self__)


def other(trace: Trace, f: Any) -> Any:
    try:
        replaced = SUBSTITUTES.get(id(f))
    except TypeError:
        replaced = None
    if replaced is not None:
        return replaced
    if isinstance(f, functools.partial):
        return functools.partial(fn(f.func), *f.args, **f.keywords)
    original = getattr(f, "__dy2st_original__", None)
    if original is not None:
        return fn(original)
    owner = getattr(f, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, paddle.autograd.PyLayer):
        return functools.partial(call_pylayer, owner) if f.__name__ == "apply" else f
    if (
        any(f is c for c in CONTAINERS)
        or isinstance(f, type)
        and f.__module__.split(".")[0] not in LIBRARIES
    ):
        return functools.partial(make_object, trace, f)
    if isinstance(f, types.BuiltinMethodType) and isinstance(owner, MUTABLE):
        return container_method(trace, f, owner)
    call = next((vars(k)["__call__"] for k in type(f).__mro__ if "__call__" in vars(k)), None)
    if isinstance(call, types.FunctionType) and not is_library(call):
        return use(trace, call).__get__(f)
    return f


def container_method(trace: Trace, f: Any, owner: Any) -> Any:
    if isinstance(owner, TraceList):
        return f
    if f.__name__ not in MUTATORS:
        note_contents(trace, owner)
        return f
    check_mutable(trace, owner, f".{f.__name__}()")
    if trace.tentative and type(owner) not in (list, dict, set):
        raise NeedsConcrete(f"a {type(owner).__name__} changes in the loop")

    def journaled(*args: Any, **kwargs: Any) -> Any:
        trace.journal.note(container_snapshot(owner))
        return f(*args, **kwargs)

    return journaled


def make_object(trace: Trace, kind: type, *args: Any, **kwargs: Any) -> Any:
    """An instance of a user's class: nobody outside knows it, so its stores are not replayed."""
    made = kind(*args, **kwargs)
    trace.made[id(made)] = made
    return made


class PyLayerContext:
    """The `ctx` of a PyLayer whose forward is traced. What it saves is for a backward to come."""

    def __init__(self) -> None:
        self.container: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.container = tensors

    def saved_tensor(self) -> tuple[Any, ...]:
        return self.container

    def mark_not_inplace(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


def call_pylayer(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """`MyFunction.apply(...)`: its forward, which eager runs without recording gradients."""
    trace = current()
    assert trace is not None
    context = PyLayerContext()
    trace.made[id(context)] = context
    with paddle.no_grad():
        out = fn(kind.forward)(context, *args, **kwargs)
    inputs = [q for q in (*args, *kwargs.values()) if isinstance(q, Tensor)]
    stop = not grad_enabled() or all(lift(trace, q).stop_gradient for q in inputs)
    results = out if isinstance(out, (tuple, list)) else (out,)
    for q in results:
        if isinstance(q, FakeTensor) and q._value.type.dtype.kind == "f":
            q.stop_gradient = stop
    return out


def call_layer(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """`layer(...)`: hooks as Paddle runs them around the converted `forward`."""
    trace = current()
    if trace is None:
        return layer(*args, **kwargs)
    if trace.guards is not None:
        trace.guards.layer(layer)
    forward = fn(layer.forward)
    plain = not (layer._forward_pre_hooks or layer._forward_post_hooks)
    built = type(layer)._build_once is Layer._build_once or layer._built
    if plain and built:
        return forward(*args, **kwargs)
    return with_hooks(layer, forward, args, kwargs)


def with_hooks(layer: Any, forward: Any, args: Any, kwargs: Any) -> Any:
    """Paddle's own call, with `forward` and the hooks converted."""
    fields = layer.__dict__
    new: dict[str, Any] = {"forward": forward}
    for name in ("_forward_pre_hooks", "_forward_post_hooks"):
        new[name] = type(fields[name])((k, fn(h)) for k, h in fields[name].items())
    held = {k: fields.get(k, MISSING) for k in new}
    fields.update(new)
    try:
        return layer._dygraph_call_func(*args, **kwargs)
    finally:
        for k, v in held.items():
            if v is MISSING:
                fields.pop(k, None)
            else:
                fields[k] = v
