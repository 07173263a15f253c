"""Installing and removing the interception of Paddle, under a lock.

Patches are process-global; every patched entry acts only on a thread that is tracing and calls
Paddle's own function otherwise. They are installed while at least one trace runs.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
import paddle._C_ops as c_ops
from paddle.base import core
from paddle.nn.layer.layers import Layer

from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.constants import to_tensor
from dy2st.capture.emitter import Emitter, NoRow, lift
from dy2st.capture.fake import FakeTensor, Tensor
from dy2st.capture.methods import METHODS
from dy2st.capture.record import record
from dy2st.capture.trace import current
from dy2st.journal import Attr
from dy2st.symbols import dim_of, is_sym
from ir.opdef import broadcast, collecting

EAGER = {n: getattr(core.eager.ops, n) for n in dir(core.eager.ops) if not n.startswith("__")}
SHAPES = ("reshape", "transpose", "squeeze", "unsqueeze", "flatten")
LEGACY = {
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softmax": "softmax",
    "elementwise_add": "add",
}

_LOCK = threading.RLock()
_USERS = 0
_SAVED: list[tuple[Any, str, Any]] = []
_ABSENT: Any = object()


# ---------------------------------------------------------------- in-place entries
def _in_place(name: str) -> Callable[..., Any]:
    """`foo_(x, ...)`: compute foo, write it into x."""
    base = ADAPTERS[name]

    def call(e: Emitter, x: Any, *args: Any, **kwargs: Any) -> Any:
        return e.write(x, base(e, x, *args, **kwargs))

    return call


def _reshape_in_place(name: str) -> Callable[..., Any]:
    """`reshape_` and the like: the object becomes another view of its storage."""
    base = ADAPTERS[name]

    def call(e: Emitter, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, FakeTensor) or x is not lift(e.trace, x) or _is_input(e, x):
            raise NoRow(f"{name}_ of an input")
        old = x._value
        e.trace.journal.note(lambda: x.__dict__.__setitem__("_value", old))
        x.__dict__["_value"] = base(e, x, *args, **kwargs)._value
        return x

    return call


def _is_input(e: Emitter, x: FakeTensor) -> bool:
    return any(q.fake is x for q in e.trace.lifted.values())


def _assign_out(e: Emitter, x: Any, output: Any) -> Any:
    return e.write(output, ADAPTERS["assign"](e, x))


def _where_in_place(e: Emitter, condition: Any, x: Any, y: Any) -> Any:
    return e.write(x, ADAPTERS["where"](e, condition, x, y))


def _full_in_place(e: Emitter, out: Any, shape: Any, value: Any, *rest: Any) -> Any:
    return e.write(out, ADAPTERS["full"](e, shape, value, *rest))


def declare_in_place() -> None:
    for name in sorted(EAGER):
        if name.endswith("_") and name[:-1] in ADAPTERS and not name.endswith("__"):
            kind = _reshape_in_place if name[:-1] in SHAPES else _in_place
            ADAPTERS.setdefault(name, kind(name[:-1]))
    ADAPTERS["assign_out_"] = _assign_out
    ADAPTERS["where_"] = _where_in_place
    ADAPTERS["full_"] = _full_in_place


declare_in_place()


# ---------------------------------------------------------------- the patches
def _entry(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return original(*args, **kwargs)
        return record(name, original, args, kwargs)

    return call


def _legacy(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if current() is None:
            return original(*args)
        tensors = tuple(a for a in args if isinstance(a, Tensor))
        named = dict(zip(args[len(tensors) :: 2], args[len(tensors) + 1 :: 2]))
        axis = {"axis": named["axis"]} if "axis" in named and name == "softmax" else {}
        return record(name, EAGER[name], tensors, axis)

    return call


def _method(name: str, replacement: Callable[..., Any], held: Any) -> Callable[..., Any]:
    original = _bound(name, held)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return original(self, *args, **kwargs)
        return replacement(self, *args, **kwargs)

    call.__name__ = name
    return call


def _layer_getattr(original: Callable[..., Any]) -> Callable[..., Any]:
    """Parameters and buffers are remembered with the place where they were found."""

    def call(layer: Any, name: str) -> Any:
        found = original(layer, name)
        trace = current()
        if trace is not None and isinstance(found, Tensor) and not isinstance(found, FakeTensor):
            if trace.guards is not None and Attr(layer, name).key not in trace.stored:
                trace.guards.attr(layer, name, found)
        return found

    return call


def _layer_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """A Layer that Paddle's own code calls (in a Sequential, say) is converted, too."""

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        trace = current()
        if trace is None:
            return original(layer, *args, **kwargs)
        return trace.call_layer(layer, *args, **kwargs)

    return call


def _layer_setattr(original: Callable[..., Any]) -> Callable[..., Any]:
    """Stores by code that is not converted go through the journal, too."""

    def call(layer: Any, name: str, value: Any) -> None:
        trace = current()
        if trace is None:
            original(layer, name, value)
        else:
            trace.store(Attr(layer, name), value)

    return call


def _direct_bindings() -> list[tuple[Any, str, str]]:
    """Module attributes that hold a builtin of `_C_ops`: rebinding `_C_ops.x` misses these."""
    ids = {id(getattr(c_ops, n)): n for n in EAGER if hasattr(c_ops, n)}
    out = []
    for name, module in list(sys.modules.items()):
        if module is None or not name.startswith("paddle") or "libpaddle" in name:
            continue
        if name in ("paddle._C_ops", "paddle._pir_ops") or not hasattr(module, "__dict__"):
            continue
        for k, v in list(vars(module).items()):
            if isinstance(v, types.BuiltinFunctionType) and id(v) in ids:
                out.append((module, k, ids[id(v)]))
    return out


def _holders(name: str, value: Any) -> list[Any]:
    """Modules of Paddle that hold this function under this name."""
    modules = [m for n, m in list(sys.modules.items()) if n.split(".")[0] == "paddle"]
    return [m for m in modules if m is not None and vars(m).get(name) is value]


def _to_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = current()
        return (
            original(*args, **kwargs)
            if trace is None
            else to_tensor(trace, original, *args, **kwargs)
        )

    return call


def _broadcast_shape(original: Callable[..., Any]) -> Callable[..., Any]:
    """Shapes with named sizes; the C++ function knows numbers only."""

    def call(x_shape: Any, y_shape: Any) -> Any:
        trace = current()
        if trace is None or not any(map(is_sym, (*x_shape, *y_shape))):
            return original(x_shape, y_shape)
        with collecting() as wanted:
            dims = broadcast([dim_of(d) for d in x_shape], [dim_of(d) for d in y_shape])
        trace.builder.loc = trace.where()
        trace.builder.require(wanted, "broadcast")
        trace.note_requires(trace.builder)
        return [trace.sym(d) for d in dims]

    return call


def _patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    held = vars(owner).get(name, _ABSENT)
    original = held
    if held is _ABSENT and not isinstance(owner, type):
        original = getattr(owner, name)
    new = make(original)
    _SAVED.append((owner, name, held))
    setattr(owner, name, new)


def _install() -> None:
    direct = _direct_bindings()
    for name in EAGER:
        if hasattr(c_ops, name):
            _patch(c_ops, name, functools.partial(_entry, name))
    for module, k, name in direct:
        _patch(module, k, functools.partial(_entry, name))
    for name, to in LEGACY.items():
        _patch(paddle._legacy_C_ops, name, functools.partial(_legacy, to))
    for name, replacement in METHODS.items():
        _patch(Tensor, name, functools.partial(_method, name, replacement))
    _patch(Layer, "__getattr__", _layer_getattr)
    _patch(Layer, "__setattr__", _layer_setattr)
    _patch(Layer, "__call__", _layer_call)
    _patch(paddle, "to_tensor", _to_tensor)
    for module in _holders("broadcast_shape", paddle.broadcast_shape):
        _patch(module, "broadcast_shape", _broadcast_shape)
    _patch(sys.modules["paddle.tensor.creation"], "to_tensor", _to_tensor)


def _bound(name: str, held: Any) -> Any:
    """A method that Tensor inherits is called through the base that defines it."""
    if held is not _ABSENT:
        return held
    for base in Tensor.__mro__[1:]:
        if name in vars(base):
            return vars(base)[name]
    raise AttributeError(f"Tensor has no {name}")


def _remove() -> None:
    while _SAVED:
        owner, name, held = _SAVED.pop()
        if held is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, held)


@contextmanager
def installed() -> Iterator[None]:
    """Paddle is intercepted inside; other threads keep computing eagerly."""
    global _USERS
    with _LOCK:
        if _USERS == 0:
            try:
                _install()
            except BaseException:
                _remove()
                raise
        _USERS += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS -= 1
            if _USERS == 0:
                _remove()
