"""Builtins and Paddle functions that mean something more while tracing."""

from __future__ import annotations

import functools
from typing import Any

import paddle

from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.emitter import Emitter
from dy2st.capture.fake import FakeTensor, Tensor
from dy2st.capture.trace import Trace, current
from dy2st.containers import Segment, TraceList
from dy2st.journal import MISSING
from dy2st.owned import note_attr, note_contents
from dy2st.sequences import Joined, enumerate_, reversed_, zip_
from dy2st.stops import NeedsConcrete
from dy2st.symbols import SymRange, is_sym, range_


def getattr_(obj: Any, name: str, *default: Any) -> Any:
    trace = current()
    value = getattr(obj, name, MISSING)
    if trace is not None and trace.guards is not None and not isinstance(obj, (Tensor, TraceList)):
        note_attr(trace, obj, name, value)
    return getattr(obj, name, *default) if value is MISSING else value


def hasattr_(obj: Any, name: str) -> bool:
    return getattr_(obj, name, MISSING) is not MISSING


def map_(f: Any, *iterables: Any) -> Any:
    return map(calls_of(f), *iterables)


def filter_(f: Any, iterable: Any) -> Any:
    return filter(calls_of(f), iterable)


def reduce_(f: Any, *rest: Any) -> Any:
    return functools.reduce(calls_of(f), *rest)


def calls_of(f: Any) -> Any:
    """A function handed to a builtin: converted when it is called."""
    trace = current()
    return f if trace is None or f is None else lambda *args: trace.call(f)(*args)


def len_(x: Any) -> Any:
    trace = current()
    if trace is not None and isinstance(x, TraceList):
        return x.length()
    if trace is not None and isinstance(x, FakeTensor) and x._value.type.ndim:
        return trace.sym(x._value.type.shape[0])
    if trace is not None and not isinstance(x, Tensor):
        note_contents(trace, x)
    return len(x)


def stack_(x: Any, axis: int = 0, name: Any = None, **kwargs: Any) -> Any:
    trace = current()
    if trace is not None and isinstance(x, TraceList) and x.segmented:
        return x.stacked(trace, kwargs.get("dim", axis), paddle.stack, paddle.concat)
    return paddle.stack(x, axis, **kwargs)


def concat_(x: Any, axis: Any = 0, name: Any = None, **kwargs: Any) -> Any:
    """Of a list that a loop filled: the stacked tensor with two axes made one."""
    trace = current()
    axis = kwargs.pop("dim", axis)
    if trace is None or not isinstance(x, TraceList) or not x.segmented:
        return paddle.concat(x, axis, **kwargs)
    pieces = [concat_piece(trace, q, axis) for q in x.parts()]
    trace.require(x.size(), 1, "concat of a list")
    return pieces[0] if len(pieces) == 1 else paddle.concat(pieces, axis)


def concat_piece(trace: Trace, q: Any, axis: int) -> Any:
    if not isinstance(q, Segment):
        return q
    ndim = q.tree.inner.type.ndim
    at = axis % ndim
    whole = q.stacked(trace, at)
    shape = whole._value.type.shape
    joined = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    value = trace.emit("reshape", [whole._value], {"shape": joined})
    return trace.fake(value, whole.stop_gradient)


def arange_(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, **rest: Any) -> Any:
    trace = current()
    if trace is None or not any(is_sym(q) for q in (start, end, step)):
        return paddle.arange(start, end, step, dtype, **rest)
    low, high = (0, start) if end is None else (start, end)
    e = Emitter(trace)
    return ADAPTERS["arange"](e, low, high, step, paddle.int64 if dtype is None else dtype)


def int_(x: Any = 0, *args: Any) -> Any:
    return x if is_sym(x) else int(x, *args)


def list_of(*args: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], (SymRange, Joined)):
        raise NeedsConcrete("list() of something as long as a size of the program")
    return TraceList(list(*args))


SUBSTITUTES: dict[int, Any] = {
    id(range): range_,
    id(enumerate): enumerate_,
    id(reversed): reversed_,
    id(zip): zip_,
    id(len): len_,
    id(getattr): getattr_,
    id(hasattr): hasattr_,
    id(map): map_,
    id(filter): filter_,
    id(functools.reduce): reduce_,
    id(int): int_,
    id(list): list_of,
    id(paddle.stack): stack_,
    id(paddle.concat): concat_,
    id(paddle.arange): arange_,
}
