"""Elementwise ops of one shape that feed each other become one kernel.

Greedy, within a block: an op joins the groups that produce its operands. A group has one shape,
that of all its results, so none is computed twice. A join is refused where it would make a cycle:
when a path leaves one part of the group, passes through another node, and comes back.

    %a = add(%x, %b)                     fused [B, 8] {
    %y = tanh(%a)                  =>      out %y = %y1
                                           body  add, tanh

Arithmetic on 0-d integers (indices, counters) stays as it is. Effects keep their order, and what
may raise stays between the effects around it. Limits: GROUP_LIMIT ops a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ir.passes.rules import can_fail
from ir.program import Const, Fused, Node, Op, Program, Value
from ir.rewrite import free_values, gives, has_effect, map_blocks, needs, substitute
from ir.types import Dim

GROUP_LIMIT = 64


def fuse(program: Program) -> Program:
    return replace(program, ops=_fuse_block(program.ops, program.needed))


def _fuse_block(ops: Sequence[Node], needed: Iterable[Value]) -> tuple[Node, ...]:
    inner = [map_blocks(n, _fuse_block) for n in ops]
    groups = _Groups(inner)
    for at, node in enumerate(inner):
        if fusable(node):
            for producer in groups.producers(at):
                groups.join(producer, at)
    return groups.emit(set(needed))


def fusable(node: Node) -> bool:
    if not isinstance(node, Op) or node.row.kernel is None or len(node.results) != 1:
        return False
    t = node.result.type
    return t.ndim > 0 or t.dtype.kind == "f"


class _Groups:
    """A partition of a block's nodes, by position; `of` gives the group, named by one member.

    `above` has a bit for every node that a group depends on, its own members left out.
    """

    def __init__(self, ops: Sequence[Node]) -> None:
        self.ops = ops
        self.of = list(range(len(ops)))
        self.members = {i: [i] for i in self.of}
        maker = {r: i for i, node in enumerate(ops) for r in gives(node)}
        named = {name for name in maker if isinstance(name, str)}
        self.before = [{maker[v] for v in needs(n, named) if v in maker} for n in ops]
        self._order_effects()
        self.above: dict[int, int] = {}
        for i, before in enumerate(self.before):
            self.above[i] = 0
            for p in before:
                self.above[i] |= self.above[p] | 1 << p

    def _order_effects(self) -> None:
        last: set[int] = set()
        since: set[int] = set()
        for i, node in enumerate(self.ops):
            if has_effect(node):
                self.before[i] |= last | since
                last, since = {i}, set()
            elif can_fail(node):
                self.before[i] |= last
                since.add(i)

    def producers(self, at: int) -> list[int]:
        return sorted(p for p in self.before[at] if fusable(self.ops[p]))

    def shape(self, at: int) -> tuple[Dim, ...]:
        return self.ops[at].results[0].type.shape

    def join(self, a: int, b: int) -> None:
        """Merge the groups of the nodes a and b if they have one shape and no cycle arises."""
        one, two = self.of[a], self.of[b]
        if one == two or self.shape(a) != self.shape(b):
            return
        if len(self.members[one]) + len(self.members[two]) > GROUP_LIMIT:
            return
        if self.detour(one, two) or self.detour(two, one):
            return
        for m in self.members[two]:
            self.of[m] = one
        self.members[one] = sorted(self.members[one] + self.members.pop(two))
        own = sum(1 << m for m in self.members[one])
        above = (self.above[one] | self.above.pop(two)) & ~own
        self.above[one] = above
        for group, mask in self.above.items():
            if mask & own and group != one:
                self.above[group] = mask | above | own

    def sources(self, group: int) -> set[int]:
        """Groups that a group reads from."""
        found = {self.of[p] for m in self.members[group] for p in self.before[m]}
        return found - {group}

    def detour(self, start: int, end: int) -> bool:
        """Whether a path from `start` to `end` passes through another group."""
        return any(self.above[g] >> start & 1 for g in self.sources(end) - {start})

    def emit(self, needed: set[Value]) -> tuple[Node, ...]:
        """The nodes again, groups as kernels, each after what it reads."""
        reads: dict[Value, set[int]] = {}
        for i, node in enumerate(self.ops):
            for v in node.operands:
                reads.setdefault(v, set()).add(self.of[i])
        out: list[Node] = []
        done: set[int] = set()
        for i in range(len(self.ops)):
            for group in self._ready(self.of[i], done):
                out.append(self._node(group, needed, reads))
        return tuple(out)

    def _ready(self, group: int, done: set[int]) -> list[int]:
        """The group after all that it needs, in the order of the program; each once."""
        order: list[int] = []
        stack = [(group, False)]
        while stack:
            at, entered = stack.pop()
            if entered:
                order.append(at)
            elif at not in done:
                done.add(at)
                before = sorted(self.sources(at), key=lambda g: self.members[g][0])
                stack += [(at, True), *((g, False) for g in reversed(before))]
        return order

    def _node(self, group: int, needed: set[Value], reads: dict[Value, set[int]]) -> Node:
        members = [self.ops[m] for m in self.members[group]]
        if len(members) == 1:
            return members[0]
        outs = [
            r for op in members for r in op.results if r in needed or reads.get(r, set()) - {group}
        ]
        return fused(self.shape(self.members[group][0]), members, outs)


def fused(shape: tuple[Dim, ...], members: Sequence[Node], outs: Sequence[Value]) -> Fused:
    """A kernel of these ops; its results are `outs`, renewed inside."""
    ins = [Const(Value(v.type, v.name), v) for v in free_values(members)]
    env = {p.outer: p.inner for p in ins}
    env |= {v: Value(v.type, v.name) for v in outs}
    body = []
    for op in substitute(members, env):
        assert isinstance(op, Op)
        body.append(replace(op, results=tuple(env.get(r, r) for r in op.results)))
    return Fused(shape, tuple(ins), tuple(body), tuple((v, env[v]) for v in outs), members[-1].loc)


__all__ = ["fuse", "fused"]
