"""Constants: Python values that guards compare by value."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import sys
import types
from typing import Any

import numpy as np
import paddle

from dy2st.trace.undo import MISSING

CONSTANTS = (int, float, complex, bool, str, bytes, type(None))
#: types of which equal values are the same
_EXACT = frozenset((int, bool, str, bytes, type(None)))

#: packages whose functions are called as they are
LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "paddle", "numpy", "dy2st", "ir", "executor", "scipy", "astor", "llvmlite", "safetensors",
}  # fmt: skip
#: `type.__flags__` of a class that is written in Python
HEAP_TYPE = 1 << 9
#: classes of libraries of which a call may be given another object
RECORDS = frozenset((
    types.SimpleNamespace, argparse.Namespace, collections.deque, collections.OrderedDict,
    collections.defaultdict, collections.Counter, set,
))  # fmt: skip
#: classes whose objects a program belongs to one by one
SINGLE = (
    paddle.nn.Layer, paddle.Tensor, np.ndarray, np.generic, type, types.ModuleType, BaseException,
    enum.Enum, tuple, str, bytes, int, float, complex, frozenset,
)  # fmt: skip


def is_open(x: object) -> bool:
    """Whether a call may be given another object of this class, whose attributes and elements are
    checked; functions, iterators and Layers are what they are."""
    kind: type = type(x)
    return _is_open(kind)


@functools.lru_cache(maxsize=4096)
def _is_open(kind: type) -> bool:
    if kind in RECORDS:
        return True
    home = str(getattr(kind, "__module__", "")).split(".")[0]
    if home in LIBRARIES or not kind.__flags__ & HEAP_TYPE or issubclass(kind, SINGLE):
        return False
    own = kind.__getattribute__ in (object.__getattribute__, dict.__getattribute__)
    names = {name for k in kind.__mro__ for name in vars(k)}
    return own and names.isdisjoint(("__call__", "__next__"))


def same_array(a: Any, kind: object, dtype: object, shape: object, data: bytes) -> bool:
    """Whether it is an array of this type, dtype and shape, with these bytes."""
    same = type(a) is kind and a.dtype == dtype and a.shape == shape
    return same and a.tobytes() == data


def is_constant(x: object) -> bool:
    """Immutable Python values, compared by value."""
    if type(x) is tuple:
        return all(map(is_constant, x))
    if type(x) in CONSTANTS or isinstance(x, (range, types.EllipsisType)):
        return True
    return isinstance(x, np.generic) and not x.dtype.hasobject


def same_constant(a: object, b: object) -> bool:
    """Equal and of equal types: True is not 1, and 0.0 is not -0.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(same_constant, a, b))
    return a == b if is_exact(b) else repr(a) == repr(b)


def same_elements(a: tuple[object, ...], known: dict[object, object]) -> bool:
    """Whether a set with these elements has those of `known`, which maps each one to itself.
    Constants have equal types, too; other elements are compared by their own methods."""
    return len(a) == len(known) and all(
        q in known and (not is_constant(known[q]) or same_constant(q, known[q])) for q in a
    )


def is_exact(x: object) -> bool:
    """Whether a value of its type that equals it is the same constant; neither a zero, which has
    a sign, nor NaN, which does not equal itself."""
    return type(x) in _EXACT or type(x) is float and x != 0.0 and x == x


def gives_again(f: Any, args: Any, kwargs: Any, value: object, raised: object = None) -> bool:
    """Whether a call gives an equal constant, the same object, or an exception of the same type."""
    try:
        now = f(*args, **kwargs)
    except Exception as e:
        return type(e) is raised
    if raised is not None:
        return False
    return now is value or is_plain(value) and type(now) is type(value) and repr(now) == repr(value)


def is_plain(x: object) -> bool:
    """Constants, and containers of them."""
    if isinstance(x, dict):
        return is_plain(list(x.items()))
    return all(map(is_plain, x)) if isinstance(x, (list, tuple, set)) else is_constant(x)


def described(x: object) -> str:
    """A value in a few words."""
    if x is MISSING:
        return "nothing"
    if is_constant(x):
        text = repr(x)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(x, enum.Enum):
        return f"{type(x).__name__}.{x.name}"
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype}{list(x.shape)}"
    if isinstance(x, (types.FunctionType, type)):
        return x.__name__
    if isinstance(x, (list, dict, set)) and len(x) <= 8:
        inner = [*x.items()] if isinstance(x, dict) else [*x]
        return described(tuple(inner)) if is_constant(tuple(inner)) else f"a {type(x).__name__}"
    return f"{'an' if type(x).__name__[:1] in 'aeiouAEIOU' else 'a'} {type(x).__name__}"
