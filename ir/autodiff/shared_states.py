"""A state that the backward loop reads before and after an iteration is kept once.

What an iteration begins with is what the one before has left: its first value stands in front.

    stack %hs  = %h  axis 0                     stack %hs2 = %h2 axis 0
    stack %hs2 = %h2 axis 0             =>      %all = concat(%h0, %hs2), of T + 1 steps

    seq   %h  = %hs[T - 1 - r]                  seq   %h  = %all[T - 1 - r]
    seq   %h2 = %hs2[T - 1 - r]                 seq   %h2 = %all[T - r]

The planner collects `%hs2` in its part of `%all`. Out of scope: `while` loops, whose stacks grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ir.program import Carry, Port, Scan, Seq, Stack, Value
from ir.rewrite import Block


def share_states(
    s: Scan,
    collected: Mapping[Value, Stack],
    new: Sequence[Stack],
    ports: list[Port],
    behind: Block,
) -> set[Stack]:
    """Change `ports`, of the backward loop of `s`, and emit `behind` the forward loop what they
    read. Returns those of the `new` stacks of `s` that are not needed for it.

    collected: the stack of each value of the body that has one.
    """
    read = {p.outer for p in ports if isinstance(p, Seq)}
    gone: dict[Value, Stack] = {}
    shared: dict[Value, Seq] = {}
    fresh = set(new)
    for p in s.carries if not s.count else ():
        before, after = collected.get(p.inner), collected.get(p.next)
        if before is None or after is None or before not in fresh or before is after:
            continue
        if after.outer not in read or not shared.keys().isdisjoint((before.outer, after.outer)):
            continue
        whole, axis = _with_first(behind, s, p, after), after.axis
        gone[before.outer] = before
        shared[before.outer] = Seq(p.inner, whole, axis, s.trip - 1, -1)
        shared[after.outer] = Seq(p.next, whole, axis, s.trip, -1)
    for k, q in enumerate(ports):
        if isinstance(q, Seq) and q.outer in shared:
            ports[k] = replace(shared[q.outer], inner=q.inner)
    return set(gone.values())


def _with_first(b: Block, s: Scan, p: Carry, after: Stack) -> Value:
    """The first value of a state in front of those that a stack collects."""
    b.loc, b.hint = s.loc, after.outer.name
    shape = list(p.inner.type.shape)
    shape.insert(after.axis, 1)
    new: Value = b.concat(b.reshape(p.init, shape=tuple(shape)), after.outer, axis=after.axis)
    return new


__all__ = ["share_states"]
