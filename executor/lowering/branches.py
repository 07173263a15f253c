"""Lowering of `cond`: both branches write their results into the same storage.

A value that dies in the branch, and that both branches update in place or hand on as it is, gives
its storage to a result. Where only one branch hands it on, the other may have to copy its result
there at its end.
"""

from __future__ import annotations

import builtins
from dataclasses import replace

from executor.launches import Branch, Fail, Launch
from executor.lowering.blocks import lower_block
from executor.lowering.loops import hand_in
from executor.lowering.lowerer import Lowerer, rule
from executor.plan.copies import CopyPurpose, kept_apart, line
from executor.plan.reuse import analyse, branches, handed_on, taken_over
from ir import Cond, Op, Value
from ir.program import Const, Join, Node


@rule("cond")
def cond(low: Lowerer, c: Cond) -> None:
    heirs = taken_over(c, low.uses[-1])
    heirs = {j: p for j, p in heirs.items() if p.outer in low.owned}
    test = low.env[c.test]
    for j in c.outs:
        if j in heirs:
            low.bind(j.outer, low.env[heirs[j].outer])
            low.owned.add(j.outer)
        else:
            low.fresh(j.outer)
    then, orelse = (_side(low, c, nodes, leaving, heirs) for nodes, leaving in c.branches)
    low.emit(Branch(test, then, orelse))


def _side(
    low: Lowerer,
    c: Cond,
    nodes: tuple[Node, ...],
    leaving: tuple[Value, ...],
    heirs: dict[Join, Const],
) -> tuple[Launch, ...]:
    following: dict[Value, Value | None] = dict.fromkeys(p.inner for p in c.ins)
    before = branches(c, low.inside)[c.branches.index((nodes, leaving))]
    late = [
        (j, v)
        for j, v in zip(c.outs, leaving)
        if j in heirs and not handed_on(before, heirs[j].inner, v)
    ]
    for j, v in zip(c.outs, leaving):
        if j in heirs and (j, v) not in late:
            following[heirs[j].inner] = v
    low.open()
    low.uses.append(analyse(nodes, following, leaving, low.inside))
    for p in c.ins:
        hand_in(low, p)
    low.owned.update(p.inner for p in heirs.values())
    reserved = low.reserved
    low.reserved = reserved | {low.env[j.outer].buffer for j, _ in late}
    for j, v in zip(c.outs, leaving):
        if (j, v) in late:
            continue
        text = f"the result of the branch {line(c.loc)}"
        low.want(v, low.env[j.outer], CopyPurpose(text, idle=j not in heirs), first=j in heirs)
    lower_block(low)
    for v in leaving:
        low.settle(v)
    for j, v in late:
        low.copy(low.env[v], low.env[j.outer])
        low.keep(v, low.env[j.outer], kept_apart(before, heirs[j].inner, v, low.inside))
    low.reserved = reserved
    low.uses.pop()
    return low.close()


@rule("check")
def check(low: Lowerer, op: Op) -> None:
    """The message is the user's own, so nothing is added to it."""
    ok, *values = op.operands
    error = low.failure(exception(op.attrs["error"]), op.attrs["message"], op.loc, said=True)
    shown = tuple((q, v.type) for q, v in zip(op.attrs.get("shown", ()), values))
    low.failures[-1] = replace(low.failures[-1], shown=shown, site=op.attrs.get("site", 0))
    low.emit(Fail(low.env[ok], error, tuple(low.env[v] for v in values)))


def exception(name: str) -> type[BaseException]:
    """The builtin exception of that name, if a text is all that it takes; else RuntimeError."""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return RuntimeError
    try:
        kind("text")
    except TypeError:
        return RuntimeError
    return kind
