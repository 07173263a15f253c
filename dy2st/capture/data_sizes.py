"""Data-dependent sizes: `paddle.zeros([int(n)])`, and the number of elements that a mask selects.

A size is a name of the program, found when it runs. The same number twice in one frame is one
size, so that tensors of that size fit each other without a check.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.item import number, size_of
from dy2st.trace.scalar import RuntimeScalar, check, is_runtime_scalar, value_in
from dy2st.trace.symint import dim_value
from dy2st.trace.trace import Trace
from ir import OPS, Value
from ir.types import I64, Dim, Size, divide

T = TypeVar("T")
#: how many ops before it a value is compared by
DEPTH = 8


def as_size(trace: Trace, n: object) -> Any:
    """A symbolic integer for an int that data decides, and for an integer tensor with one element;
    anything else as it is."""
    if isinstance(n, FakeTensor) and n._value.type.dtype.kind == "i":
        if all(d == 1 for d in n._value.type.shape):
            n = number(trace, lift(trace, n), "a size")
    if not (is_runtime_scalar(n) and n.data and n.kind is int):
        return n
    return once(trace, "size", n.value, lambda: _unbounded(trace, n))


def _unbounded(trace: Trace, n: RuntimeScalar) -> object:
    ok = trace.emit("greater_equal", [n.value, value_in(trace, 0, I64)], {})
    check(trace, ok, "ValueError", "a size that data decides is negative")
    return trace.sym(size_of(trace, n.value, trace.sizes.new_capacity()))


def quotient(trace: Trace, total: Dim, known: Dim, otherwise: Dim) -> Dim:
    """`total` by `known`, where data decides one of them, and that is not a polynomial: the number
    of boxes whose four coordinates a mask has selected."""
    names = frozenset[str]().union(*(q.names for q in (total, known) if isinstance(q, Size)))
    if known == 0 or names.isdisjoint(trace.sizes.counts) or divide(total, known) is not None:
        return otherwise
    value = trace.emit("floor_divide", [dim_value(trace, q) for q in (total, known)], {})
    return once(trace, "quotient", value, lambda: size_of(trace, value, total))


def once(trace: Trace, kind: str, value: Value, make: Callable[[], T]) -> T:
    """Return the result of `make`, which is determined by `value`; equal values of a frame share
    it. `kind` tells results of different functions of a value apart."""
    value, derived = trace.read_value(value), trace.frame.derived
    writes = trace.values.writes.get(trace.root(value), 0)
    key = kind, (value, writes) if writes else _number(trace, value, DEPTH)
    if key not in derived:
        derived[key] = make()
    return derived[key]  # type: ignore[no-any-return]


def _number(trace: Trace, value: Value, depth: int) -> Hashable:
    """The same for values of this frame that are made alike of tensors that have not been written;
    None for a value that has been."""
    if trace.values.writes.get(trace.root(value)):
        return None
    op = trace.frame.maker(value)
    if op is None or not depth:
        return value
    row = OPS[op.name]
    if not (row.kernel or row.reduce or row.view or row.is_constant):
        return value
    operands = tuple(_number(trace, q, depth - 1) for q in op.operands)
    return value if None in operands else (op.name, repr(op.attrs), operands)


__all__ = ["as_size", "once", "quotient"]
