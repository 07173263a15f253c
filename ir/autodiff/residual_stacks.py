"""Residuals that iterations hand to the backward loop, and the order of its stacked results.

A residual whose size moves with the index of a loop lies in memory for the largest of them, if it
cannot be computed again: what draws random numbers or runs on Paddle's kernel runs once.

    body                                     body
      %m = foreign(...)     : f32[t+1]         %z  = full(value=0.0, shape=[T])
                                        =>     %m1 = set_slice(%z, %m, axis=0, start=0)
    backward body                            stack %ms = %m1
      ...  %m  ...                           backward body
                                               %m2 = slice(%m1, axis=0, start=0, length=T-r)
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.analysis.ranges import Range, index_range, natural_bound
from ir.autodiff.residuals import TWICE, NotDifferentiable
from ir.ops.gradients import ViewGradient, zeros
from ir.program import ENDLESS, Scan, Seq, Value
from ir.rewrite import Block
from ir.types import Dim, Size, Type, is_natural


def in_full_size(b: Block, v: Value, loops: Sequence[Scan]) -> Value:
    """A value of the body of the last of these loops in a type that names no index of one.

    Raises NotDifferentiable where nothing bounds its size.
    """
    for s in reversed(loops):
        shape = list(v.type.shape)
        for axis, d in enumerate(v.type.shape):
            if isinstance(d, Size) and s.size in d.names:
                shape[axis] = _most(d, s)
                v = b.set_slice(zeros(b, v.type.with_shape(shape)), v, axis=axis, start=0)
    return v


def _most(d: Size, s: Scan) -> Dim:
    """The largest value of a dim; not negative where the loop runs no iteration, either."""
    index = Range(0, None) if s.trip == ENDLESS else index_range(s.trip)
    most = natural_bound(d, {s.size: index}.get)
    if most is None or not is_natural(most):
        raise NotDifferentiable("a value whose size moves with the index of a loop", s.loc, TWICE)
    return most


def cut_to(b: Block, v: Value, t: Type) -> Value:
    """The part of a value that `in_full_size` has made, in its own type."""
    for axis, (have, want) in enumerate(zip(v.type.shape, t.shape)):
        if have != want:
            v = b.slice(v, axis=axis, start=0, length=want)
    return v


def placed(b: Block, p: Seq, g: Value, length: Dim) -> Value | ViewGradient:
    """The gradient of the sequence that a loop of this length reads through `p`, from that of its
    slices, the last iteration first."""
    n = p.outer.type.shape[p.axis]
    start = p.start + p.step * (length - 1)
    if n == length and p.step == -1 and p.start == n - 1:
        return g
    if n == length and p.step == 1 and p.start == 0:
        flipped: Value = b.slice(g, axis=p.axis, start=n - 1, length=n, step=-1)
        return flipped
    attrs = {"axis": p.axis, "start": start, "length": length, "step": -p.step}
    return ViewGradient("slice", g, (), attrs)


__all__ = ["cut_to", "in_full_size", "placed"]
