"""Emitting ops of the table on fake tensors, and lifting real tensors to inputs of the program.

`e.add(x, y)` appends the op to the current frame of the trace and returns the fake tensor of its
result, with the `stop_gradient` that eager Paddle would give it.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from paddle.base import framework

from dy2st.trace.fake_tensor import FakeTensor, Tensor, type_of
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import Refused, raise_defect
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Trace
from ir import OPS, Type, Value
from ir.autodiff.activity import passing
from ir.loc import source_error
from ir.opdef import OpDef, complete_attrs, no_gradient
from ir.pairs import RECORDED
from ir.types import BF16, I32, I64, Dim, DType, Size, product

#: in-place entries of Paddle that leave the version of the tensor as it was
QUIET = frozenset(("exponential_",))
#: the largest tensor whose elements the trace knows
SMALL = 16
NUMBERS = (bool, int, float)
#: ops that only move elements
MOVED = frozenset(n for n, row in OPS.items() if row.moves_only and n not in RECORDED)
#: ops whose values follow from known elements, to the bit
FOLDED = MOVED.union(
    "add subtract multiply divide floor_divide remainder scale neg abs maximum minimum cast "
    "sum prod max min equal not_equal less_than less_equal greater_than greater_equal "
    "logical_not logical_and logical_or where any all".split()
)
#: of those the ones that work on sizes as on integers
OF_SIZES: dict[str, Callable[..., object]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "neg": operator.neg,
}


class NoRow(Exception):
    """No row covers this call."""


def grad_enabled() -> bool:
    tracer = framework._dygraph_tracer()
    return bool(tracer is None or tracer._has_grad)


def lift(trace: Trace, tensor: Tensor) -> FakeTensor:
    """The fake tensor of a real one, which becomes an input of the program, once per object."""
    if isinstance(tensor, FakeTensor):
        tensor.__dict__["_asked"] = True
        return tensor
    known = trace.inputs.by_id.get(id(tensor))
    if known is not None:
        return known.fake
    kind, name = trace.inputs.names.get(id(tensor), ("buffer", ""))
    if not name:
        place = trace.place_of(tensor)
        name = str(place) if place is not None else f"tensor_{len(trace.inputs.by_id)}"
    remedy = 'Use float32 or float64: `x.astype("float32")`.'
    try:
        if not tensor._is_initialized() and 0 not in tensor.shape:
            remedy = "Initialize it before the call: `p.initialize()` for parameters."
            raise TypeError("it has no values yet")
        type = type_of(tensor)
        if type.dtype == BF16:
            raise TypeError("programs do not have the element type bfloat16")
    except TypeError as e:
        raise_defect(e)
        message = f"{name} cannot become an input: {e}."
        raise Refused(message, trace.where(), remedy=remedy) from None
    return trace.add_input(tensor, kind, name, type)


def detached(trace: Trace, value: Value) -> Value:
    """A value of the same storage that carries no gradient."""
    if not value.type.dtype.differentiable and value not in trace.autograd.trained:
        return value
    out: Value = trace.emit("detach", [value], {})
    trace.aliasing.detached[out] = value
    return out


def small(t: Type) -> bool:
    """Whether the trace keeps the elements of constants of this type."""
    count = product(t.shape)
    return t.ndim <= 2 and isinstance(count, int) and count <= SMALL and not t.dtype.widened


def fold(
    trace: Trace, name: str, values: Sequence[Value], attrs: object, results: Sequence[Value]
) -> None:
    """Know the elements of the result of an op whose operands are known."""
    if name not in FOLDED or not values or not all(v in trace.values.elements for v in values):
        return
    found = [trace.elements(v) for v in values]
    if any(q is None for q in found) or not all(small(r.type) for r in results):
        return
    lists: list[Sequence[object]] = [q for q in found if q is not None]
    plain = all(type(q) in NUMBERS for elements in lists for q in elements)
    out = (folded if plain else of_sizes)(name, lists, values, attrs)
    for r, elements in zip(results, out):
        trace.know(r, elements, values)


def folded(
    name: str, lists: Sequence[Sequence[object]], values: Sequence[Value], attrs: Any
) -> list[Any]:
    """The elements of each result of an op on plain numbers; none where it raises."""
    types = [v.type for v in values]
    arrays = [np.array(q, t.dtype.numpy).reshape(t.concrete({})) for q, t in zip(lists, types)]
    ref = OPS[name].ref
    assert ref is not None
    with np.errstate(all="ignore"):
        try:
            out = ref(*arrays, **complete_attrs(OPS[name], attrs))
        except ZeroDivisionError:
            return []
    every = out if isinstance(out, (tuple, list)) else (out,)
    return [np.asarray(q).reshape(-1).tolist() for q in every]


def of_sizes(
    name: str, lists: Sequence[Sequence[object]], values: Sequence[Value], attrs: object
) -> list[object]:
    """The elements of each result of an op on integers and sizes; none if one is no such number."""
    out = size_elements(name, lists, values, attrs)
    known = all(type(q) is int or is_symint(q) for elements in out for q in elements)
    return out if known else []


def size_elements(
    name: str, lists: Sequence[Sequence[Any]], values: Sequence[Value], attrs: Any
) -> list[Any]:
    every = [q for elements in lists for q in elements]
    ends = itertools.accumulate(map(len, lists))
    places = [
        np.arange(end - len(q), end).reshape(v.type.concrete({}))
        for end, q, v in zip(ends, lists, values)
    ]
    if name in MOVED:
        ref = OPS[name].ref
        assert ref is not None
        out = ref(*places, **complete_attrs(OPS[name], attrs))
        parts = out if isinstance(out, (tuple, list)) else (out,)
        return [[every[k] for k in np.asarray(q).reshape(-1)] for q in parts]
    if name in OF_SIZES:
        rows = zip(*(q.reshape(-1) for q in np.broadcast_arrays(*places)))
        return [[OF_SIZES[name](*(every[k] for k in row)) for row in rows]]
    whole = len(attrs.get("axes", ())) in (0, *(v.type.ndim for v in values))
    if name in ("sum", "prod") and whole and not attrs.get("keepdim"):
        return [[functools.reduce(OF_SIZES["add" if name == "sum" else "multiply"], every)]]
    if name == "scale" and attrs.get("bias_after_scale", True):
        scale, bias = attrs.get("scale", 1.0), attrs.get("bias", 0.0)
        if scale == int(scale) and bias == int(bias):
            return [[q * int(scale) + int(bias) for q in every]]
    if name == "cast" and attrs["dtype"] in (I32, I64):
        return [every]
    return []


#: ops whose results are uniform where their operands are, besides elementwise ones
SPREAD = MOVED.union("all any max min mean".split())


def spread(
    trace: Trace, name: str, values: Sequence[Value], attrs: object, results: Sequence[Value]
) -> None:
    """Know the number that all elements of a result are, if those of the operands are known so."""
    if not any(v in trace.values.uniform for v in values):
        return
    numbers = [uniform(trace, v) for v in values]
    if None in numbers or len(results) > 1:
        return
    before, after = product(values[0].type.shape), product(results[0].type.shape)
    if name in SPREAD:
        out = numbers[0] if len(set(numbers)) == 1 and before != 0 and after != 0 else None
    elif name == "sum" and type(numbers[0]) is int and isinstance(before, int) and after != 0:
        out = numbers[0] * before // after if isinstance(after, int) else None
    elif name in FOLDED and OPS[name].kernel is not None:
        shapes = [v.type.with_shape(()) for v in values]
        out = folded(name, [[q] for q in numbers], [Value(t) for t in shapes], attrs)[0][0]
    else:
        out = None
    if out is not None:
        note_uniform(trace, results[0], out, values)


def note_uniform(trace: Trace, value: Value, number: object, sources: Sequence[Value] = ()) -> None:
    root, since = trace.root(value), dict[Value, int]()
    for v in sources:
        since.update(trace.values.uniform.get(v, trace.values.elements.get(v, (0, {})))[1])
    since[root] = trace.values.writes.get(root, 0)
    trace.values.uniform[value] = number, since


def uniform(trace: Trace, value: Value) -> Any:
    """The number that all elements of a tensor of this frame are; None where it is not known."""
    few = trace.values.elements.get(value)
    one = few[0][0] if few is not None and one_number(few[0]) else None
    found, since = (one, few[1]) if few is not None else trace.values.uniform.get(value, (None, {}))
    homes, writes = trace.values.frame_of, trace.values.writes
    fresh = all(
        n == writes.get(root, 0) and homes[root] is trace.frame for root, n in since.items()
    )
    return found if fresh and type(found) in NUMBERS else None


def one_number(elements: Sequence[object]) -> bool:
    """Whether elements are all the same plain number; 0.0 and -0.0 are two."""
    return all(type(q) in NUMBERS for q in elements) and len({repr(q) for q in elements}) == 1


class Emitter:
    """Emits ops. `e.add(x, y)` takes and returns fake tensors."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.stop_gradient = True
        self.trained: set[Value] = set()

    def value(self, x: object) -> Value:
        """The value of an operand: a tensor, a runtime scalar, or an index."""
        if isinstance(x, Tensor):
            fake = lift(self.trace, x)
            if fake.stop_gradient:
                return fake._value
            if not grad_enabled():
                return detached(self.trace, fake._value)
            self.trained.add(fake._value)
            return fake._value
        if is_runtime_scalar(x):
            return x.value
        if is_symint(x) or type(x) is int:
            return self.trace.index_value(x)
        raise NoRow(f"an operand of type {type(x).__name__}")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*operands: object, **attrs: object) -> Any:
            values = [self.value(x) for x in operands]
            out = self.trace.emit(name, values, attrs)
            results = out if isinstance(out, tuple) else (out,)
            fold(self.trace, name, values, attrs, results)
            spread(self.trace, name, values, attrs, results)
            stop = not self.passes(OPS[name], values, results)
            made = tuple(self.wrap(q, stop) for q in results)
            return made if isinstance(out, tuple) else made[0]

        return call

    def passes(self, row: OpDef, values: Sequence[Value], results: Sequence[Value]) -> bool:
        """Whether the results of an op require a gradient. Floats do if something did that this
        call has read so far."""
        given = self.trained.intersection(passing(row, values, results))
        self.stop_gradient = self.stop_gradient and not given
        floating = all(v.type.dtype.differentiable for v in results)
        return not self.stop_gradient if floating and row.grad is not no_gradient else bool(given)

    def wrap(self, value: Value, stop: bool = True) -> FakeTensor:
        made: FakeTensor = self.trace.fake(value, stop or not grad_enabled())
        return made

    def trains(self, *operands: Tensor) -> bool:
        """Whether the result of these operands requires a gradient."""
        return grad_enabled() and any(not lift(self.trace, x).stop_gradient for x in operands)

    def check_leaf(self, fake: FakeTensor, root: bool = False) -> None:
        """Refuse an in-place call on a leaf that requires a gradient; with `root` also a call
        through a view of such a leaf, because eager Paddle would give the leaf the gradient of its
        new values.
        """
        if not grad_enabled() or fake.stop_gradient and not root:
            return
        base = self.trace.root(fake._value) if root else None
        for q in self.trace.inputs.by_id.values():
            if not (q.fake is fake or q.value is base):
                continue
            if (q.flagged or not q.tensor.stop_gradient) and q.tensor.is_leaf:
                raise Refused(
                    source_error(ValueError)(
                        f"{q.name} requires a gradient and is written in place.",
                        self.trace.where(),
                        reason="Eager Paddle refuses this for leaf tensors, too."
                        if q.fake is fake
                        else "It is a leaf; through a view its gradient would be that of other "
                        "values.",
                        remedy="Write under `paddle.no_grad()`.",
                    )
                )

    # ------------------------------------------------------------ conveniences for adapters
    def type(self, x: Tensor) -> Any:
        return lift(self.trace, x)._value.type

    def full(self, value: object, dtype: DType, shape: Sequence[object] = ()) -> FakeTensor:
        dims = tuple(d if isinstance(d, Size) else dim_of(d) for d in shape)
        if dtype.kind == "c":
            return self.full_complex(complex(value), dtype, dims)  # type: ignore[call-overload]
        attrs = {"value": value, "shape": dims, "dtype": dtype}
        out = self.wrap(self.trace.emit("full", [], attrs))
        if small(out._value.type):
            number = dtype.numpy.type(value).item() if type(value) in NUMBERS else value
            self.trace.know(out._value, [number] * math.prod(out._value.type.concrete({})))
        elif type(value) in NUMBERS and not dtype.widened:
            note_uniform(self.trace, out._value, dtype.numpy.type(value).item())
        return out

    def elements(self, x: object) -> tuple[object, ...] | None:
        """The elements of a small tensor as Python numbers and sizes; None if not known."""
        return self.trace.known(x._value) if isinstance(x, FakeTensor) else None

    def where(self, test: Tensor, x: Tensor, y: Tensor) -> FakeTensor:
        """The row, and the same of complex numbers."""
        row = self.__getattr__("where")
        if self.type(x).dtype.kind != "c":
            return row(test, x, y)  # type: ignore[no-any-return]
        test = self.reshape(test, shape=(*self.type(test).shape, 1))
        return self.as_complex(row(test, self.as_real(x), self.as_real(y)))  # type: ignore[no-any-return]

    def full_complex(self, value: complex, dtype: DType, dims: tuple[Dim, ...]) -> FakeTensor:
        if value == 0:
            attrs = {"value": 0.0, "shape": dims, "dtype": dtype}
            return self.wrap(self.trace.emit("full", [], attrs))
        parts = (self.full(q, dtype.compute, (*dims, 1)) for q in (value.real, value.imag))
        return self.as_complex(self.concat(*parts, axis=-1))  # type: ignore[no-any-return]

    def literal(self, x: object) -> Any:
        """The constant value of a one-element tensor as a Python number; None if it is not
        constant."""
        if not isinstance(x, Tensor):
            return x
        found = self.elements(x)
        return found[0] if found is not None and len(found) == 1 else None

    def cast_to(self, x: Tensor, dtype: DType) -> Tensor:
        have = self.type(x).dtype
        if have == dtype:
            return x
        if dtype.kind != "c":
            return self.cast(x, dtype=dtype)
        if have.kind == "c":
            return self.as_complex(self.cast(self.as_real(x), dtype=dtype.compute))
        re = self.cast_to(x, dtype.compute)
        return self.as_complex(
            self.stack(re, self.full(0.0, dtype.compute, self.type(re).shape), axis=-1)
        )

    def scalar(self, n: object, dtype: DType) -> FakeTensor:
        """A Python number, or a size, as a 0-d tensor."""
        if is_runtime_scalar(n):
            return (
                self.wrap(self.trace.emit("cast", [n.value], {"dtype": dtype}))
                if n.value.type.dtype != dtype
                else self.trace.fake(n.value)
            )
        if is_symint(n):
            index = self.wrap(self.trace.index_value(n))
            self.trace.know(index._value, [n])
            return index if dtype == I64 else self.cast(index, dtype=dtype)
        return self.full(n, dtype)
