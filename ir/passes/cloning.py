"""Cloning of ops, with fresh values and sizes of loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ir.program import (
    Carry,
    Cond,
    Const,
    Custom,
    Fused,
    Join,
    LoopCondition,
    Node,
    Op,
    Port,
    Scan,
    Seq,
    Value,
)
from ir.types import Dim, Size, Type, substitute_dim


def fresh_size(taken: set[str], size: str) -> str:
    """A name for a size that is not taken, which it is from then on."""
    k = next(k for k in itertools.count(1) if f"{size}_{k}" not in taken)
    taken.add(f"{size}_{k}")
    return f"{size}_{k}"


@dataclass(eq=False)
class NodeCopier:
    """Copies nodes; `env` and `sizes` say what stands for old values and sizes, and grow.

    fresh: a new name for the count of a loop, or for its index as a size.
    """

    fresh: Callable[[str], str]
    env: dict[Value, Value] = field(default_factory=dict)
    sizes: dict[str, Dim] = field(default_factory=dict)

    def new(self, v: Value) -> Value:
        """Return the replacement of a value, or the value itself."""
        return self.env.get(v, v)

    def made(self, v: Value) -> Value:
        """A value of its own for one that is defined."""
        self.env[v] = Value(self.attr(v.type), v.name)
        return self.env[v]

    def attr(self, value: Any) -> Any:
        """An attribute, a dim or a type with the sizes replaced."""
        if not self.sizes:
            return value
        if isinstance(value, Size):
            return substitute_dim(value, self.sizes)
        if isinstance(value, Type):
            return value.with_shape(map(self.attr, value.shape))
        if isinstance(value, dict):
            return {k: self.attr(v) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.attr, value))
        return value

    def nodes(self, ops: Iterable[Node]) -> list[Node]:
        return [self.node(n) for n in ops]

    def node(self, node: Node) -> Node:
        if isinstance(node, Scan):
            return self.scan(node)
        if isinstance(node, Cond):
            return self.cond(node)
        if isinstance(node, Custom):
            return self.custom(node)
        assert not isinstance(node, Fused), "kernels are fused after differentiation"
        operands = tuple(map(self.new, node.operands))
        results = tuple(map(self.made, node.results))
        return Op(node.name, operands, results, self.attr(node.attrs), node.loc)

    def ins(self, ports: Sequence[Const]) -> tuple[Const, ...]:
        return tuple(Const(outer=self.new(p.outer), inner=self.made(p.inner)) for p in ports)

    def scan(self, s: Scan) -> Scan:
        for p in s.ins:
            self.made(p.inner)
        index, trip = self.made(s.index), self.attr(s.trip)
        size = self.fresh(s.size) if s.size else ""
        if size:
            self.sizes[s.size] = Size.named(size)
        body = tuple(self.nodes(s.body))
        count = self.fresh(s.count) if s.count else ""
        if count:
            self.sizes[s.count] = Size.named(count)
        ports = tuple(map(self.port, s.ports))
        return Scan(index, trip, ports, body, s.loc, count, size, s.unroll)

    def port(self, p: Port) -> Port:
        """A port of a loop whose body has been copied."""
        if isinstance(p, Const):
            return Const(self.new(p.inner), self.new(p.outer))
        if isinstance(p, Seq):
            inner, outer = self.new(p.inner), self.new(p.outer)
            return Seq(inner, outer, p.axis, self.attr(p.start), p.step)
        if isinstance(p, LoopCondition):
            return LoopCondition(self.new(p.init), self.new(p.next))
        if isinstance(p, Carry):
            last = self.made(p.last) if p.last is not None else None
            return Carry(self.new(p.inner), self.new(p.init), self.new(p.next), last)
        return replace(p, inner=self.new(p.inner), outer=self.made(p.outer))

    def cond(self, c: Cond) -> Cond:
        test, ins = self.new(c.test), self.ins(c.ins)
        then, orelse = (tuple(self.nodes(ops)) for ops, _ in c.branches)
        outs = tuple(
            Join(then=self.new(j.then), orelse=self.new(j.orelse), outer=self.made(j.outer))
            for j in c.outs
        )
        return Cond(test, ins, then, orelse, outs, c.loc)

    def custom(self, c: Custom) -> Custom:
        ins, forward = self.ins(c.ins), tuple(self.nodes(c.forward))
        given, saved = tuple(map(self.made, c.given)), self.ins(c.saved)
        backward = tuple(self.nodes(c.backward))
        grads = tuple(g if g is None else self.new(g) for g in c.grads)
        outs = tuple((outer, self.new(inner)) for outer, inner in c.outs)
        outs = tuple((self.made(outer), inner) for outer, inner in outs)
        return Custom(ins, forward, outs, given, saved, backward, grads, c.loc)


__all__ = ["NodeCopier", "fresh_size"]
