"""Ports with the same value in every iteration, and results that need no iteration.

For programs that have been split into forward and backward: what a loop reads instead of a
sequence may be a tensor that the caller overwrites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from ir.passes.loops.ports import with_ports
from ir.passes.loops.slices_to_ports import put
from ir.program import ENDLESS, Const, Last, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, rewrite_all
from ir.types import Dim
from ir.uses import has_loops

#: views between a sequence and the value that all its steps are
MOST_VIEWS = 4
#: emits, behind the loop, what stands for a result of it
Emit: TypeAlias = Callable[[Block], Value]


def invariant_ports(program: Program) -> Program:
    """A sequence of equal steps is a const port; a result that no iteration computes is an op."""
    return rewrite_all(program, _visit) if has_loops(program) else program


def _visit(b: Block, s: Node) -> Sequence[Value] | None:
    if not isinstance(s, Scan):
        return None
    instead: dict[Port, Port | None] = {}
    for q in s.ports:
        step = seq_of_equal_steps(b, q) if isinstance(q, Seq) else None
        if isinstance(q, Seq) and step is not None:
            instead[q] = Const(q.inner, step)
    outside: dict[Value, Emit] = {}
    for rule in RULES:
        for port, emit in rule(s).items():
            instead[port], outside[port.outer] = None, emit
    if not instead:
        return None
    put(b, with_ports(s, instead))
    return [outside[r](b) if r in outside else r for r in s.results]


# ---------------------------------------------------------------- sequences
def seq_of_equal_steps(b: Block, p: Seq) -> Value | None:
    """seq %xt = %x[t] of %x = expand(%g, shape=[T, 3])  =>  const %xt = %g; likewise full(...)"""
    b.hint = p.inner.name
    return _step(b, p.outer, p.axis, MOST_VIEWS)


def _step(b: Block, x: Value, axis: int, views: int) -> Value | None:
    """Return the value of every slice of `x` along `axis`, if all slices are equal."""
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    number = b.constant(x)
    if number is not None:
        new: Value = b.full(value=number, shape=shape, dtype=x.type.dtype)
        return new
    op = b.op_of(x, "expand", "transpose", "slice")
    if op is None or views == 0:
        return None
    (source,) = op.operands
    if op.name == "expand":
        return _step_of_expand(b, source, axis - x.type.ndim + source.type.ndim, shape)
    if op.name == "slice":
        same = op.attrs["axis"] % x.type.ndim == axis
        return _step(b, source, axis, views - 1) if same else None
    perm = [q % x.type.ndim for q in op.attrs["perm"]]
    moved = _step(b, source, perm[axis], views - 1)
    rest = [q - (q > perm[axis]) for q in perm if q != perm[axis]]
    return None if moved is None else b.transpose(moved, perm=tuple(rest))


def _step_of_expand(b: Block, x: Value, axis: int, shape: tuple[Dim, ...]) -> Value | None:
    """Like `_step`, for `x` expanded: `axis` is that of `x`, and negative if `x` does not have
    it."""
    if axis >= 0:
        if x.type.shape[axis] != 1:
            return None
        x = b.index(x, axis=axis, index=0)
    return x if x.type.shape == shape else b.expand(x, shape=shape)


# ---------------------------------------------------------------- results
def stack_of_equal_steps(s: Scan) -> dict[Stack | Last, Emit]:
    """stack %ys = %w1 axis 0 of const %w1 = %w  =>  %ys is expand(%w); likewise full(...).

    Not of a loop without an end: what it collects is what ends it.
    """
    if s.trip == ENDLESS:
        return {}
    outer = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    made = _numbers(s)
    found: dict[Stack | Last, Emit] = {}
    for p in s.ports:
        if isinstance(p, Stack) and p.inner in outer:
            found[p] = partial(_repeated, p=p, row=outer[p.inner])
        elif isinstance(p, Stack) and p.inner in made:
            found[p] = partial(_filled, p=p, number=made[p.inner])
    return found


def last_of_number(s: Scan) -> dict[Stack | Last, Emit]:
    """last %y = %z of %z = full(...)  =>  %y is full(...). A last port says that the loop runs."""
    made = _numbers(s)
    lasts = [p for p in s.ports if isinstance(p, Last) and p.inner in made]
    return {p: partial(_filled, p=p, number=made[p.inner]) for p in lasts}


def _numbers(s: Scan) -> dict[Value, object]:
    """The values of the body that are filled with a number."""
    ops = (n for n in s.body if isinstance(n, Op) and n.name == "full")
    return {n.result: n.attrs["value"] for n in ops}


def _repeated(b: Block, p: Stack, row: Value) -> Value:
    shape = row.type.shape
    row = b.reshape(row, shape=(*shape[: p.axis], 1, *shape[p.axis :]), hint=p.outer.name)
    new: Value = b.expand(row, shape=p.outer.type.shape, hint=p.outer.name)
    return new


def _filled(b: Block, p: Stack | Last, number: object) -> Value:
    t = p.outer.type
    new: Value = b.full(value=number, shape=t.shape, dtype=t.dtype, hint=p.outer.name)
    return new


def last_of_seq(s: Scan) -> dict[Stack | Last, Emit]:
    """last %y = %xt of seq %xt = %x[t]  =>  %y is index(%x, index=T-1). Not of a while loop."""
    seqs = {p.inner: p for p in s.ports if isinstance(p, Seq) and not s.count}
    found: dict[Stack | Last, Emit] = {}
    for p in s.ports:
        if isinstance(p, Last) and p.inner in seqs:
            q = seqs[p.inner]
            found[p] = partial(_slice, p=p, q=q, at=q.start + q.step * (s.trip - 1))
    return found


def _slice(b: Block, p: Last, q: Seq, at: Dim) -> Value:
    new: Value = b.index(q.outer, axis=q.axis, index=at, hint=p.outer.name)
    return new


RULES: tuple[Callable[[Scan], dict[Stack | Last, Emit]], ...] = (
    stack_of_equal_steps,
    last_of_number,
    last_of_seq,
)

__all__ = ["invariant_ports"]
