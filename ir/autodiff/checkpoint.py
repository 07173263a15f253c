"""Checkpointing (rematerialization) of loops: the state is kept every k iterations.

    scan %t < 7 {              scan %s < 2 {
      carry %h ...               carry %h ...         a checkpoint
      seq %xt = %x[t]    =>      seq %xs = %x3[s]     %x3 = %x[:6] as [2, 3, ...]
      stack %ys = ...            scan %j < 3 { ... }  the backward pass runs it again
                               }
                               scan %u < 1 { ... }    what is left of 7 iterations

The inner loop keeps nothing for the backward pass: it runs again there, from the checkpoint.
Out of scope: `while` loops, loops with foreign kernels, loops inside of others, and loops whose
length is a named size, since the number of segments would be none of the sizes of a call. The
report names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import TypeAlias

from ir.autodiff.activity import Activity
from ir.autodiff.residuals import name_of, once_only
from ir.loc import Loc
from ir.passes.cloning import NodeCopier, fresh_size
from ir.program import Carry, Const, Last, Node, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, in_order, rewrite
from ir.types import I64, Dim, Size, Type
from ir.uses import loop_sizes, walk

Policy: TypeAlias = str | int


@dataclass(frozen=True)
class PerLoopPolicy:
    """A policy for all loops, and others for those at some lines."""

    default: Policy
    loops: Mapping[Loc, Policy]


Checkpoint: TypeAlias = Policy | PerLoopPolicy


def policies(checkpoint: Checkpoint) -> PerLoopPolicy:
    """`checkpoint` as a policy for each loop.

    Raises ValueError for a policy that is neither "none", "sqrt" nor a positive number.
    """
    found = checkpoint if isinstance(checkpoint, PerLoopPolicy) else PerLoopPolicy(checkpoint, {})
    for q in (found.default, *found.loops.values()):
        number = isinstance(q, int) and not isinstance(q, bool) and q > 0
        if q not in ("none", "sqrt") and not number:
            raise ValueError(f'checkpoint is "none", "sqrt" or a positive number, not {q!r}')
    return found


def keeps_all(checkpoint: Checkpoint) -> bool:
    """Whether no loop has checkpoints."""
    found = policies(checkpoint)
    return all(q == "none" for q in (found.default, *found.loops.values()))


def segmented(
    program: Program, of: Sequence[int], wrt: Sequence[int], checkpoint: Checkpoint
) -> tuple[Program, set[Value], list[str]]:
    """`program` with segments, the indices of the loops over one segment, and lines to report.

    Raises ValueError for a `checkpoint` that is neither "none", "sqrt" nor a positive number.
    """
    chosen = policies(checkpoint)
    if keeps_all(chosen):
        return program, set(), []
    activity = Activity(program, of, wrt)
    cutter = _Cutter(activity, chosen, {*program.sizes, *loop_sizes(program.ops)})
    return rewrite(program, cutter.visit), cutter.again, cutter.report


@dataclass(eq=False)
class _Cutter:
    activity: Activity
    chosen: PerLoopPolicy
    taken: set[str]
    again: set[Value] = field(default_factory=set)
    report: list[str] = field(default_factory=list)

    def visit(self, b: Block, node: Node) -> Sequence[Value] | None:
        if not isinstance(node, Scan) or b.outer is not None:
            return None
        policy = self.chosen.loops.get(node.loc, self.chosen.default)
        if policy == "none" or not any(map(self.activity.active, node.results)):
            return None
        where = f"{node.name} %{node.index.name or 'i'}"
        why = _why_not(node)
        if why:
            self.report.append(f"{where}: no checkpoints: {why}")
            return None
        assert isinstance(node.trip, int)
        k = isqrt(max(node.trip - 1, 0)) + 1 if policy == "sqrt" else policy
        assert isinstance(k, int)
        if k >= node.trip:
            return None
        self.report.append(f"{where}: a checkpoint every {k} of {node.trip} iterations")
        cut = _Segments(b, node, k, NodeCopier(self.fresh), NodeCopier(self.fresh))
        results = cut.results()
        self.again.add(cut.inner_index)
        return results

    def fresh(self, size: str) -> str:
        return fresh_size(self.taken, size)


def _why_not(s: Scan) -> str:
    """Return the reason why a loop cannot have checkpoints; empty if it can."""
    if s.count:
        return "a while loop"
    if not isinstance(s.trip, int):
        return f"its length {s.trip} is a named size"
    found = next(filter(once_only, walk(s.body)), None)
    return f"{name_of(found)} cannot run twice" if found is not None else ""


class _Segments:
    """One loop as `q` segments of `k` iterations and `r` iterations behind them."""

    def __init__(self, b: Block, s: Scan, k: int, main: NodeCopier, tail: NodeCopier) -> None:
        assert isinstance(s.trip, int)
        self.b, self.s, self.k = b, s, k
        self.q, self.r = divmod(s.trip, k)
        self.main_copier, self.tail_copier = main, tail
        self.inner_index = Value(Type(I64), "j")
        self.segment = Value(Type(I64), "s")
        self.outer: list[Port] = []
        self.inner: list[Port] = []
        self.state: dict[Carry, Value] = {}
        self.found: dict[Value, Value] = {}

    def results(self) -> list[Value]:
        self.main()
        if self.r:
            self.tail()
        return [self.found[v] for v in self.s.results]

    def sized(self, copier: NodeCopier) -> str:
        """A name for the index of a new loop as a size, where the body names one."""
        return copier.fresh(self.s.size) if self.s.size else ""

    # -------- segments
    def main(self) -> None:
        copier = self.main_copier
        segment, step = self.sized(copier), self.sized(copier)
        if segment:
            copier.sizes[self.s.size] = Size.named(segment) * self.k + Size.named(step)
        for port in self.s.ins:
            self.enter(port, copier.made(port.inner))
        prefix = Block()
        if _reads(self.s, self.s.index):
            at = Value(Type(I64), "s")
            self.inner.append(Const(at, self.segment))
            first = prefix.multiply(at, prefix.full(value=self.k, dtype=I64))
            copier.env[self.s.index] = prefix.add(first, self.inner_index)
        body = (*prefix.ops, *copier.nodes(self.s.body))
        for p in self.s.ports:
            self.leave(p, copier)
        loc = self.s.loc
        loop = Scan(self.inner_index, self.k, in_order(self.inner), body, loc, size=step)
        outer = in_order(self.outer)
        self.b.append(Scan(self.segment, self.q, outer, (loop,), loc, size=segment))
        for stack in [p for p in self.s.ports if isinstance(p, Stack)]:
            self.found[stack.outer] = self.joined(self.found[stack.outer], stack.axis)

    def enter(self, p: Const | Seq | Carry, inner: Value) -> None:
        if isinstance(p, Carry):
            return
        if isinstance(p, Const):
            middle = Value(p.inner.type, p.inner.name)
            self.outer.append(Const(middle, p.outer))
            self.inner.append(Const(inner, middle))
            return
        rows = self.rows(p)
        shape = (*rows.type.shape[: p.axis], *rows.type.shape[p.axis + 1 :])
        middle = Value(rows.type.with_shape(shape), p.inner.name)
        self.outer.append(Seq(middle, rows, p.axis))
        self.inner.append(Seq(inner, middle, p.axis))

    def rows(self, p: Seq) -> Value:
        """Return the part of a sequence that the segments read, as [..., q, k, ...]."""
        n = self.q * self.k
        x = p.outer
        if (p.start, p.step, x.type.shape[p.axis]) != (0, 1, n):
            x = self.b.slice(x, axis=p.axis, start=p.start, length=n, step=p.step)
        shape: list[Dim] = list(x.type.shape)
        shape[p.axis : p.axis + 1] = [self.q, self.k]
        out: Value = self.b.reshape(x, shape=tuple(shape))
        return out

    def leave(self, p: Port, copier: NodeCopier) -> None:
        if isinstance(p, Carry):
            middle, after = (Value(p.inner.type, p.inner.name) for _ in range(2))
            last = Value(p.inner.type, p.last.name if p.last is not None else p.inner.name)
            self.outer.append(Carry(middle, p.init, after, last))
            self.inner.append(Carry(copier.new(p.inner), middle, copier.new(p.next), after))
            self.state[p] = last
            if p.last is not None:
                self.found[p.last] = last
        elif isinstance(p, Stack):
            middle = Value(_stacked(p.inner.type, p.axis, self.k), p.outer.name)
            outer = Value(_stacked(middle.type, p.axis, self.q), p.outer.name)
            self.inner.append(Stack(middle, copier.new(p.inner), p.axis))
            self.outer.append(Stack(outer, middle, p.axis))
            self.found[p.outer] = outer
        elif isinstance(p, Last) and not self.r:
            middle, outer = (Value(p.inner.type, p.outer.name) for _ in range(2))
            self.inner.append(Last(middle, copier.new(p.inner)))
            self.outer.append(Last(outer, middle))
            self.found[p.outer] = outer

    def joined(self, v: Value, axis: int) -> Value:
        """[..., q, k, ...] as [..., q * k, ...]"""
        shape: list[Dim] = list(v.type.shape)
        shape[axis : axis + 2] = [self.q * self.k]
        out: Value = self.b.reshape(v, shape=tuple(shape))
        return out

    # -------- the rest
    def tail(self) -> None:
        copier, done = self.tail_copier, self.q * self.k
        size = self.sized(copier)
        if size:
            copier.sizes[self.s.size] = Size.named(size) + done
        ports: list[Port] = []
        for q in self.s.ins:
            inner = copier.made(q.inner)
            if isinstance(q, Const):
                ports.append(Const(inner, q.outer))
            elif isinstance(q, Seq):
                ports.append(replace(q, inner=inner, start=q.start + q.step * done))
        index, prefix = Value(Type(I64), "u"), Block()
        if _reads(self.s, self.s.index):
            start = prefix.full(value=done, dtype=I64)
            copier.env[self.s.index] = prefix.add(index, start)
        body = (*prefix.ops, *copier.nodes(self.s.body))
        for p in self.s.ports:
            found = self.tail_port(p, copier)
            ports += [found] if found is not None else []
        self.b.append(Scan(index, self.r, in_order(ports), body, self.s.loc, size=size))
        for p in self.s.ports:
            if isinstance(p, Stack):
                both = self.found[p.outer], copier.new(p.outer)
                self.found[p.outer] = self.b.concat(*both, axis=p.axis)

    def tail_port(self, p: Port, copier: NodeCopier) -> Port | None:
        if isinstance(p, Carry):
            last = Value(p.inner.type, p.last.name) if p.last is not None else None
            if p.last is not None and last is not None:
                self.found[p.last] = last
            return Carry(copier.new(p.inner), self.state[p], copier.new(p.next), last)
        if isinstance(p, Stack):
            outer = Value(_stacked(p.inner.type, p.axis, self.r), p.outer.name)
            copier.env[p.outer] = outer
            return Stack(outer, copier.new(p.inner), p.axis)
        if isinstance(p, Last):
            self.found[p.outer] = Value(p.outer.type, p.outer.name)
            return Last(self.found[p.outer], copier.new(p.inner))
        return None


def _stacked(t: Type, axis: int, n: Dim) -> Type:
    return t.with_shape((*t.shape[:axis], n, *t.shape[axis:]))


def _reads(s: Scan, v: Value) -> bool:
    return v in s.needed or any(v in n.operands for n in s.body)


__all__ = ["Checkpoint", "PerLoopPolicy", "keeps_all", "segmented"]
