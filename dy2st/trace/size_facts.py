"""Sizes that the program computes: no polynomial of named sizes."""

from __future__ import annotations

from dy2st.trace import scalar
from dy2st.trace.trace import Trace
from ir import Builder, Const, Go, Scan, Type, Value
from ir.types import BOOL, I64, Dim, Size


def size_of(trace: Trace, value: Value, most: Dim) -> Size:
    """A size that is the i64[] `value`, which is at most `most`: a loop that counts to it."""
    value = trace.read_value(value)
    first = trace.emit("greater_than", [value, scalar.value_in(trace, 0, I64)], {})
    index, limit = Value(Type(I64), "i"), Value(Type(I64), "limit")
    b = Builder(trace.where())
    after = b.add(index, b.full(value=1, dtype=I64))
    go = b.less_than(after, limit)
    assert go.type == Type(BOOL)
    name = trace.new_count(0, most, trace.frame)
    ports = (Go(first, go), Const(limit, value))
    trace.builder.append(Scan(index, most, ports, tuple(b.ops), trace.where(), name))
    return Size.named(name)
