"""Substitutes for builtins and Paddle functions that act on fake tensors and runtime scalars."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import paddle

from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.adapters.table import number_of
from dy2st.capture.data_sizes import as_size
from dy2st.capture.foreign.draws import seed
from dy2st.capture.foreign.print import print_
from dy2st.capture.pylayer import register_hook
from dy2st.library.copies import COPIES
from dy2st.library.filters import FILTERS
from dy2st.library.introspection import KINDS
from dy2st.library.iterable_builtins import CONSUMERS, plain_loop
from dy2st.library.iterators import ITERATORS
from dy2st.library.layer_modes import METHODS, TRAINING_STEPS
from dy2st.library.numbers import NUMBER_FUNCTIONS
from dy2st.library.sizes import SIZES
from dy2st.loops.generators import iter_, next_, registered
from dy2st.loops.growth import concat_growth, padded_buffers
from dy2st.loops.iterables import PartialIterator, applied, enumerate_, range_, reversed_, zip_
from dy2st.state.arrays import is_array, tensor_of
from dy2st.state.ownership import note_contents
from dy2st.state.protocols import special
from dy2st.state.stacked_run import StackedRun, Unstacked
from dy2st.state.strings import format_, repr_, str_
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import elements, rebuilt
from dy2st.trace.emitter import Emitter, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform


def map_(f: Callable[..., object], *iterables: Iterable[object]) -> object:
    call = calls_of(f)
    return applied(call, zip_(*iterables)) or perform(map, call, *iterables)


def filter_(f: Callable[..., object] | None, iterable: Iterable[object]) -> object:
    return perform(filter, calls_of(f), iterable)


def reduce_(f: Callable[..., object], items: Iterable[object], *start: object) -> object:
    trace, singles = current(), zip_(items)
    if trace is None or not isinstance(singles, PartialIterator):
        return perform(functools.reduce, calls_of(f), items, *start)
    start = start or next(singles, ())
    if not start:
        raise TypeError("reduce() of empty iterable with no initial value")
    return trace.hooks.call(reduced)(f, start[0], singles)


@plain_loop
def reduced(f: Callable[..., object], total: object, singles: Iterable[tuple[object]]) -> object:
    for (q,) in singles:
        total = f(total, q)
    return total


def calls_of(f: object) -> Any:
    """A function handed to a builtin: converted when it is called."""
    trace = current()
    return f if trace is None or f is None else lambda *args: trace.hooks.call(f)(*args)


def len_(x: Any) -> object:
    trace, x = current(), x if is_array(x) and not x.ndim else tensor_of(x)
    if trace is not None and isinstance(x, TraceList):
        return x.length()
    if trace is not None and isinstance(x, FakeTensor) and x.ask_type().ndim:
        return trace.sym(x.ask_type().shape[0])
    if trace is not None and not isinstance(x, Tensor):
        note_contents(trace, x)
        users = special(trace, x, "__len__")
        if users:
            return users[0]
    return perform(len, x)


def stack_(x: object, axis: int = 0, name: object = None, **kwargs: Any) -> object:
    trace = current()
    if trace is not None and isinstance(x, TraceList) and x.segmented:
        return x.stacked(trace, kwargs.get("dim", axis), paddle.stack, paddle.concat)
    return paddle.stack(x, axis, **kwargs)


def concat_(x: object, axis: Any = 0, name: object = None, **kwargs: object) -> object:
    """Concatenate a list that a loop filled: the stacked tensor with two axes merged."""
    trace = current()
    axis = kwargs.pop("dim", axis)
    if trace is not None and isinstance(x, (list, tuple)) and not getattr(x, "segmented", False):
        for attach in (concat_growth.attach, padded_buffers.attach):
            if (longer := attach(trace, x, axis)) is not None:
                return longer
    if trace is None or not isinstance(x, TraceList) or not x.segmented:
        return paddle.concat(x, axis, **kwargs)
    x.read_whole()
    if x.size() == 0:
        return paddle.concat([], axis)
    pieces = [concat_piece(trace, q, axis) for q in x.parts()]
    trace.require(x.size(), 1, "the number of tensors that concat joins")
    return pieces[0] if len(pieces) == 1 else paddle.concat(pieces, axis)


def concat_piece(trace: Trace, q: Tensor | StackedRun, axis: int) -> Tensor:
    if not isinstance(q, StackedRun):
        return q
    at = axis % len(q.tree.shape)
    whole = q.stacked(trace, at)
    shape = whole._value.type.shape
    joined = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    value = trace.emit("reshape", [whole._value], {"shape": joined})
    return trace.fake(value, whole.stop_gradient)


def arange_(
    start: object = 0, end: object = None, step: object = 1, dtype: object = None, **rest: object
) -> object:
    trace = current()
    if trace is not None:
        start, end, step = (as_size(trace, number_of(q)) for q in (start, end, step))
    if trace is None or not any(is_symint(q) for q in (start, end, step)):
        return paddle.arange(start, end, step, dtype, **rest)
    low, high = (0, start) if end is None else (start, end)
    e = Emitter(trace)
    return ADAPTERS["arange"](e, low, high, step, paddle.int64 if dtype is None else dtype)


def unbind_(input: object, axis: int = 0) -> object:
    """The slices along an axis, as a list that a loop may run over."""
    trace = current()
    if trace is None or not isinstance(input, Tensor):
        return paddle.unbind(input, axis)
    fake = lift(trace, input)
    ndim = fake._value.type.ndim
    if trace.elements(fake._value) is not None or not -ndim <= axis < ndim:
        return paddle.unbind(input, axis)
    n = fake._value.type.shape[axis]
    perm = [axis % ndim, *(a for a in range(ndim) if a != axis % ndim)]
    rows = Unstacked(Emitter(trace).transpose(input, perm=tuple(perm)), False, (fake._value,))
    return TraceList([StackedRun(n, rows)])


def recompute_(function: object, *args: object, **kwargs: object) -> object:
    """A plain call: the compiler decides what the backward program computes again. Paddle's node
    gives no gradients, those of parameters included, where no tensor that it is given has one."""
    for name in ("preserve_rng_state", "offload_indices"):
        kwargs.pop(name, None)
    reentrant, given = kwargs.pop("use_reentrant", True), [*args, *kwargs.values()]
    given = [q for x in given for q in (x if type(x) is tuple else [x])]
    if not reentrant or any(isinstance(q, Tensor) and not q.stop_gradient for q in given):
        return calls_of(function)(*args, **kwargs)
    with paddle.no_grad():
        return calls_of(function)(*args, **kwargs)


def packing(f: Callable[..., object]) -> Callable[..., object]:
    """`map_structure` and `pack_sequence_as`, whose containers the program has made."""

    @functools.wraps(f)
    def pack(*args: object) -> object:
        trace, out = current(), f(*args)
        return out if trace is None else adopted(trace, out)

    return pack


def adopted(trace: Trace, x: object) -> object:
    found = elements(x) if isinstance(x, (list, tuple, dict)) else None
    if found is None:
        return x
    return rebuilt(trace, x, [adopted(trace, q) for q in found.values()])


def wrappers() -> list[object]:
    """`recompute` as `paddle.distributed.fleet` and its `utils` have it."""
    modules = (paddle.distributed.fleet.utils, paddle.distributed.fleet.recompute)
    return [m.recompute for m in modules if isinstance(m.recompute, types.FunctionType)]


for _shows in (print_, str_, repr_, format_):
    vars(_shows)["shows_numbers"] = True
ITERTOOLS = [f for f in vars(itertools).values() if isinstance(f, type) or f is itertools.tee]
ITERTOOLS.append(np.ndindex)
SUBSTITUTES: dict[int, Callable[..., object]] = {
    id(range): range_,
    id(enumerate): registered(enumerate_),
    id(reversed): registered(reversed_),
    id(zip): registered(zip_),
    id(iter): registered(iter_),
    id(next): next_,
    id(len): len_,
    id(map): registered(map_),
    id(filter): registered(filter_),
    id(functools.reduce): reduce_,
    **NUMBER_FUNCTIONS,
    **CONSUMERS,
    id(paddle.stack): stack_,
    id(paddle.concat): concat_,
    id(paddle.unbind): unbind_,
    id(paddle.arange): arange_,
    id(paddle.utils.map_structure): packing(paddle.utils.map_structure),
    id(paddle.utils.pack_sequence_as): packing(paddle.utils.pack_sequence_as),
    id(print): print_,
    **{id(f): registered(recompute_) for f in wrappers()},
    id(Tensor.register_hook): register_hook,
    id(FakeTensor.register_hook): register_hook,
    id(str): str_,
    id(repr): repr_,
    id(format): format_,
    **{id(f): registered(ITERATORS.get(id(f), f)) for f in ITERTOOLS},
    id(paddle.seed): seed,
    **COPIES,
    **FILTERS,
    **KINDS,
    **METHODS,
    **SIZES,
    **TRAINING_STEPS,
}
