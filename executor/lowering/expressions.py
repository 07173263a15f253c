"""Lowering of elementwise ops to scalar expressions. Those that differ in operands only share one
expression object, so that facts about expressions are computed once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ir import OPS, Op, Value
from ir.scalar import language as k
from ir.types import DType

#: those of a program, by what they are made of
KnownExpressions: TypeAlias = dict[Hashable, tuple[k.Scalar, ...]]


@dataclass
class KernelInputs:
    """Operands of a kernel as scalars of the type that it computes in: literals stay literals, the
    rest are numbered."""

    constants: Mapping[Value, k.Scalar]
    values: list[Value] = field(default_factory=list)

    def expressions(
        self,
        outer: Sequence[Value],
        inner: Sequence[Value],
        body: Sequence[Op],
        outs: Sequence[Value],
        known: KnownExpressions,
    ) -> tuple[k.Scalar, ...]:
        """Return the expressions that `body` computes for `outs`; the operand `outer[n]` is called
        `inner[n]` in it."""
        key, at = [self.key(v) for v in outer], {v: n for n, v in enumerate(inner)}
        for op in body:
            key.append((op.name, repr(op.attrs), *(at[v] for v in op.operands)))
            at[op.result] = len(at)
        key.append(tuple(at[v] for v in outs))
        found = known.get(made_of := tuple(key))
        if found is None:
            found = known[made_of] = self.made(outer, inner, body, outs)
        return found

    def key(self, v: Value) -> Hashable:
        """Return a key of the result of `scalar(v)`."""
        if v in self.constants:
            s = self.constants[v]
            return repr(s.value), s.dtype, v.type.dtype
        if v not in self.values:
            self.values.append(v)
        return self.values.index(v), v.type.dtype

    def made(
        self,
        outer: Sequence[Value],
        inner: Sequence[Value],
        body: Sequence[Op],
        outs: Sequence[Value],
    ) -> tuple[k.Scalar, ...]:
        scalars = {i: self.scalar(o) for o, i in zip(outer, inner)}
        for op in body:
            kernel = OPS[op.name].kernel
            assert kernel is not None
            s = kernel(*(scalars[v] for v in op.operands), **op.attrs)
            scalars[op.result] = k.cast(s, s.dtype.compute) if len(body) > 1 else s
        return tuple(scalars[v] for v in outs)

    def scalar(self, v: Value) -> k.Scalar:
        computed = v.type.dtype.compute
        if v in self.constants:
            return _literal(self.constants[v], computed)
        return k.cast(k.input_(self.values.index(v), v.type.dtype), computed)


def _literal(s: k.Scalar, dtype: DType) -> k.Scalar:
    assert s.op == "const" and s.value is not None
    return s if s.dtype == dtype else k.const(s.value, dtype)
