"""Installing and removing the interception of Paddle, under a lock.

Patches are process-global; every patched entry acts only on a thread that is tracing and calls
Paddle's own function otherwise. They are installed while at least one trace runs.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import paddle
import paddle._C_ops as c_ops
from paddle.base import core
from paddle.base.layer_helper_base import LayerHelperBase
from paddle.nn.layer.layers import Layer

from dy2st.capture import layer_methods
from dy2st.capture.adapters import ADAPTERS, in_place_shape
from dy2st.capture.adapters.complex import COMPLEX
from dy2st.capture.detached_writes import write
from dy2st.capture.dispatch import record
from dy2st.capture.foreign.draws import patched_draws, refusing
from dy2st.capture.gradients import partial_grad
from dy2st.capture.tensor_methods import METHODS, PROPERTIES
from dy2st.capture.to_tensor import to_tensor
from dy2st.trace.emitter import QUIET, Emitter
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import current
from ir.opdef import broadcast, collecting

EAGER = {n: getattr(core.eager.ops, n) for n in dir(core.eager.ops) if not n.startswith("__")}
LEGACY = {
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softmax": "softmax",
    "elementwise_add": "add",
}

#: calls of complex tensors that have one in place
WRITTEN = ("add", "subtract", "multiply", "divide", "scale")
RESHAPED = ("reshape_", "squeeze_", "unsqueeze_", "transpose_", "flatten_")
_LOCK = threading.RLock()
_USERS = 0
_PATCHED: list[Patch | Bindings] = []
_BOUND: list[Bindings] = []
_ABSENT: object = object()


# ---------------------------------------------------------------- in-place entries
def _in_place(name: str) -> Callable[..., object]:
    """`foo_(x, ...)`: compute foo, write it into x."""
    return _writing(ADAPTERS[name], int(f"{name}_" not in QUIET))


def _writing(base: Callable[..., Tensor], moves: int = 1) -> Callable[..., object]:
    """The call that writes what `base` gives into its first operand."""

    def call(e: Emitter, x: object, *args: object, **kwargs: object) -> object:
        return write(e, x, base(e, x, *args, **kwargs), own=True, moves=moves)

    return call


def _assign_out(e: Emitter, x: object, output: object) -> object:
    return write(e, output, ADAPTERS["assign"](e, x))


def _where_in_place(e: Emitter, condition: object, x: object, y: object) -> object:
    return write(e, x, ADAPTERS["where"](e, condition, x, y), own=True)


def _full_in_place(e: Emitter, out: object, shape: object, value: object, *rest: object) -> object:
    return write(e, out, ADAPTERS["full"](e, shape, value, *rest))


def declare_in_place() -> None:
    for name in sorted(EAGER):
        if name.endswith("_") and name[:-1] in ADAPTERS and not name.endswith("__"):
            kind = in_place_shape.in_place if name[:-1] in in_place_shape.SHAPES else _in_place
            ADAPTERS.setdefault(name, kind(name[:-1]))
    for name in WRITTEN:
        COMPLEX[f"{name}_"] = _writing(COMPLEX[name])
    ADAPTERS["assign_out_"] = COMPLEX["assign_out_"] = _assign_out
    ADAPTERS["where_"] = _where_in_place
    COMPLEX.update({n: ADAPTERS[n] for n in RESHAPED if n in ADAPTERS})
    ADAPTERS["full_"] = _full_in_place


declare_in_place()


# ---------------------------------------------------------------- the patches
def _entry(name: str, original: Callable[..., object]) -> Callable[..., object]:
    def call(*args: Any, **kwargs: Any) -> object:
        if current() is None:
            return original(*args, **kwargs)
        return record(name, args, kwargs)

    return call


def _legacy(name: str, original: Callable[..., object]) -> Callable[..., object]:
    def call(*args: object) -> object:
        if current() is None:
            return original(*args)
        tensors = tuple(a for a in args if isinstance(a, Tensor))
        named = dict(zip(args[len(tensors) :: 2], args[len(tensors) + 1 :: 2]))
        axis = {"axis": named["axis"]} if "axis" in named and name == "softmax" else {}
        return record(name, tensors, axis)

    return call


def _method(name: str, replacement: Callable[..., object], held: object) -> Callable[..., object]:
    original = _bound(name, held)

    def call(self: object, *args: object, **kwargs: object) -> object:
        if current() is None:
            return original(self, *args, **kwargs)
        return replacement(self, *args, **kwargs)

    call.__name__ = name
    return call


def _property(getter: Callable[..., object], held: property) -> object:
    def get(self: object) -> object:
        return held.__get__(self) if current() is None else getter(self)

    return property(get, getattr(held, "__set__", None))


#: what Python wants to be told of a class whose attributes have changed otherwise than by `setattr`
_modified = ctypes.pythonapi.PyType_Modified
_modified.argtypes, _modified.restype = [ctypes.py_object], None


@dataclass(frozen=True)
class Bindings:
    """Names of one module or class: what they are bound to, and what replaces it while a trace
    runs. In a class functions take the place of functions: `setattr` would look at all subclasses,
    of which Layer has hundreds, to fill slots that stay as they are."""

    fields: dict[str, object]
    held: dict[str, object]
    replaced: dict[str, object]
    of: type | None = None

    @functools.cached_property
    def values(self) -> tuple[Callable[[dict[str, object]], object], tuple[object, ...]]:
        """Reads the names, the first one twice, as one name alone would give no tuple."""
        names = [*self.held, next(iter(self.held))]
        return operator.itemgetter(*names), tuple(map(self.held.get, names))

    def is_current(self) -> bool:
        read, held = self.values
        try:
            return read(self.fields) == held
        except KeyError:
            return False

    def install(self) -> None:
        self.put(self.replaced)

    def remove(self) -> None:
        self.put(self.held)

    def put(self, values: dict[str, object]) -> None:
        self.fields.update(values)
        if self.of is not None:
            _modified(self.of)


@dataclass(frozen=True, eq=False)
class Modules:
    """The names of modules, and their attributes."""

    fields: Mapping[str, dict[str, Any]]


def _bindings() -> list[Bindings]:
    """Find the bindings of builtins of `_C_ops` in modules."""
    modules = _paddle_modules(len(sys.modules), next(reversed(sys.modules)))
    size = sum(map(len, modules.fields.values()))
    found = _search(modules, size)
    if not all([q.is_current() for q in found]):
        _search.cache_clear()
        found = _search(modules, size)
    return found


@functools.lru_cache(maxsize=1)
def _paddle_modules(number: int, last: str) -> Modules:
    """Looked for again when there are more modules or another is the last one."""
    found = [(n, m) for n, m in list(sys.modules.items()) if n.startswith("paddle")]
    return Modules({n: vars(m) for n, m in found if isinstance(m, types.ModuleType)})


@functools.lru_cache(maxsize=1)
def _search(modules: Modules, size: int) -> list[Bindings]:
    """Like `_bindings`, repeated only when modules have been added or have gained attributes."""
    builtins = {id(getattr(c_ops, n)): n for n in EAGER if hasattr(c_ops, n)}
    out: list[Bindings] = []
    for name, fields in modules.fields.items():
        items = list(fields.items())
        if name != "paddle._C_ops":
            items = [(k, v) for k, v in items if id(v) in builtins or v is paddle.broadcast_shape]
        made = {k: new for k, v in items if (new := _replacement(name, k, v, builtins))}
        if made:
            out.append(Bindings(fields, {k: v for k, v in items if k in made}, made))
    return out


def _replacement(
    module: str, name: str, held: object, builtins: Mapping[int, str]
) -> object | None:
    if module == "paddle._C_ops":
        return _entry(name, held) if name in EAGER and callable(held) else None
    if held is paddle.broadcast_shape:
        return _broadcast_shape(held)
    if isinstance(held, types.BuiltinFunctionType) and id(held) in builtins:
        if "libpaddle" not in module and module != "paddle._pir_ops":
            return _entry(builtins[id(held)], held)
    return None


def _to_tensor(original: Callable[..., object]) -> Callable[..., object]:
    def call(*args: Any, **kwargs: Any) -> object:
        trace = current()
        return (
            original(*args, **kwargs)
            if trace is None
            else to_tensor(trace, original, *args, **kwargs)
        )

    return call


def _partial_grad(original: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def call(*args: Any) -> object:
        trace = current()
        return original(*args) if trace is None else partial_grad(trace, *args)

    return call


def _broadcast_shape(original: Callable[..., object]) -> Callable[..., object]:
    """Shapes with named sizes; the C++ function knows numbers only."""

    def call(x_shape: Sequence[object], y_shape: Sequence[object]) -> object:
        trace = current()
        if trace is None or not any(map(is_symint, (*x_shape, *y_shape))):
            return original(x_shape, y_shape)
        with collecting() as wanted:
            dims = broadcast([dim_of(d) for d in x_shape], [dim_of(d) for d in y_shape])
        trace.builder.loc = trace.where()
        trace.builder.require(wanted, "broadcast")
        trace.note_requires(trace.builder)
        return [trace.sym(d) for d in dims]

    return call


#: Python 3.13 calls a `__getitem__` that a class has no more, if the class has changed a thousand
#: times: once installed, this one stays. It does what the one before did unless a trace runs.
STAYING = {"__getitem__"} if sys.version_info[:2] == (3, 13) else set[str]()


@dataclass(frozen=True)
class Patch:
    """An attribute that a trace replaces."""

    owner: object
    name: str
    held: object
    new: object

    def is_current(self) -> bool:
        return vars(self.owner).get(self.name, _ABSENT) is self.held or self.stays()

    def stays(self) -> bool:
        return self.name in STAYING and vars(self.owner).get(self.name) is self.new

    def install(self) -> None:
        if not self.stays():
            setattr(self.owner, self.name, self.new)

    def remove(self) -> None:
        if self.stays():
            return
        if self.held is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.held)

    def is_binding(self) -> bool:
        """Whether `Bindings` do the same: slots of the class stay as they are."""
        functions = isinstance(self.held, FunctionType) and isinstance(self.new, FunctionType)
        slots = isinstance(self.owner, type) and self.name.startswith("__") and not functions
        return self.held is not _ABSENT and not slots and self.name not in STAYING


def _patch(owner: object, name: str, make: Callable[[Any], object]) -> Patch:
    held = vars(owner).get(name, _ABSENT)
    original = held
    if held is _ABSENT and not isinstance(owner, type):
        original = getattr(owner, name)
    return Patch(owner, name, held, make(original))


@functools.lru_cache(maxsize=1)
def _patches() -> list[Patch | Bindings]:
    """Made while none is installed."""
    creation, legacy = sys.modules["paddle.tensor.creation"], paddle._legacy_C_ops
    return _joined(
        [
            *[_patch(legacy, n, functools.partial(_legacy, q)) for n, q in LEGACY.items()],
            *[_patch(Tensor, n, functools.partial(_method, n, q)) for n, q in METHODS.items()],
            *[_patch(Tensor, n, functools.partial(_property, q)) for n, q in PROPERTIES.items()],
            _patch(Layer, "__getattr__", layer_methods.layer_getattr),
            _patch(Layer, "__setattr__", layer_methods.layer_setattr),
            _patch(Layer, "register_buffer", layer_methods.register_buffer),
            _patch(LayerHelperBase, "get_default_dtype", layer_methods.default_dtype),
            _patch(Layer, "__call__", layer_methods.layer_call),
            _patch(paddle.distribution.Distribution, "_to_tensor", layer_methods.parameters_of),
            _patch(core.eager, "run_partial_grad", _partial_grad),
            *[_patch(module, name, refusing) for module, name in patched_draws()],
            *[_patch(module, "to_tensor", _to_tensor) for module in (paddle, creation)],
        ]
    )


def _joined(patches: Sequence[Patch]) -> list[Patch | Bindings]:
    """The patches of each module and class together, as far as they can be."""
    out: list[Patch | Bindings] = [q for q in patches if not q.is_binding()]
    owners: dict[int, list[Patch]] = {}
    for q in patches:
        if q.is_binding():
            owners.setdefault(id(q.owner), []).append(q)
    for found in owners.values():
        of = found[0].owner if isinstance(found[0].owner, type) else None
        fields = vars(found[0].owner)
        if of is not None:
            (fields,) = gc.get_referents(fields)  # what the read-only view of it shows
        held, new = ({q.name: getattr(q, what) for q in found} for what in ("held", "new"))
        out.append(Bindings(fields, held, new, of))
    return out


def _install() -> None:
    _BOUND.extend(_bindings())
    for bindings in _BOUND:
        bindings.install()
    if not all([q.is_current() for q in _patches()]):
        _patches.cache_clear()
    for patch in _patches():
        _PATCHED.append(patch)
        patch.install()


def _bound(name: str, held: Any) -> Callable[..., object]:
    """A method that Tensor inherits is called through the base that defines it."""
    if held is not _ABSENT:
        return held
    for base in Tensor.__mro__[1:]:
        if name in vars(base):
            return vars(base)[name]
    raise AttributeError(f"Tensor has no {name}")


def _remove() -> None:
    while _PATCHED:
        _PATCHED.pop().remove()
    while _BOUND:
        _BOUND.pop().remove()


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
