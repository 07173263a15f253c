"""Simplification of branches: constant tests, trivial joins, unused ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.literal import print_attr
from ir.program import Cond, Const, Join, Node, Value
from ir.rewrite import Block, map_blocks, substitute
from ir.types import BOOL, Type
from ir.uses import blocks


def branch_taken(b: Block, c: Cond) -> Sequence[Value] | None:
    """cond full(True) { ... then A else B }  =>  A, on what it reads outside"""
    test = b.constant(c.test)
    if test is None:
        return None
    ops, leaving = c.branches[0 if test else 1]
    env = {p.inner: p.outer for p in c.ins}
    for node in substitute(ops, env):
        b.append(node)
    return [env.get(v, v) for v in leaving]


def joins_that_agree(b: Block, c: Cond) -> Sequence[Value] | None:
    """join %y = %x1 else %x1 of const %x1 = %x  =>  %y is %x; likewise joins of equal numbers.

    A join of True and False is the test, one of False and True its negation.
    """
    inside = Block.inside(c, b)
    values: dict[Value, Value] = {}
    for j in c.outs:
        value = _agreed(b, c, j, inside)
        if value is not None:
            values[j.outer] = value
    if not values:
        return None
    b.append(replace(c, outs=tuple(j for j in c.outs if j.outer not in values)))
    return [values.get(r, r) for r in c.results]


def _agreed(b: Block, c: Cond, j: Join, inside: Sequence[Block]) -> Value | None:
    outer = {p.inner: p.outer for p in c.ins}
    if outer.get(j.then) is not None and outer[j.then] is outer.get(j.orelse):
        return outer[j.then]
    then, orelse = (block.constant(v) for block, v in zip(inside, (j.then, j.orelse)))
    if then is None or orelse is None:
        return None
    t = j.outer.type
    if print_attr(then) == print_attr(orelse):
        new: Value = b.full(value=then, shape=t.shape, dtype=t.dtype, hint=j.outer.name)
        return new
    if t == Type(BOOL):
        return c.test if then else b.logical_not(c.test, hint=j.outer.name)
    return None


def fewer_ports(b: Block, c: Cond) -> Sequence[Value] | None:
    """Joins of the same two values, and const ports of the same value, are one."""
    ports: dict[Value, Const] = {}
    joins: dict[tuple[Value, Value], Join] = {}
    same = {p.inner: ports.setdefault(p.outer, p).inner for p in c.ins}
    values = {}
    for j in c.outs:
        then, orelse = same.get(j.then, j.then), same.get(j.orelse, j.orelse)
        values[j.outer] = joins.setdefault((then, orelse), Join(j.outer, then, orelse)).outer
    if len(ports) == len(c.ins) and len(joins) == len(c.outs):
        return None
    c = replace(c, ins=tuple(ports.values()), outs=tuple(joins.values()))
    b.append(map_blocks(c, lambda ops, _: substitute(ops, same)))
    return list(values.values())


def only_read(c: Node) -> Node:
    """`c` without the const ports that neither branch reads or hands on."""
    if not isinstance(c, Cond):
        return c
    read = {v for ops, leaving in blocks(c) for v in leaving}
    read |= {v for ops, _ in blocks(c) for n in ops for v in n.operands}
    return replace(c, ins=tuple(p for p in c.ins if p.inner in read))


__all__ = ["branch_taken", "fewer_ports", "joins_that_agree", "only_read"]
