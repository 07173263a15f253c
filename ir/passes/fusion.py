"""Fusion of elementwise ops of one shape that feed each other into one kernel.

Greedy, within a block: an op joins the groups that produce its operands, and the two parts of a
complex number are one group. A group has one shape,
that of all its results, so none is computed twice. A join is refused where it would make a cycle:
when a path leaves one part of the group, passes through another node, and comes back. The search
for one ends after SEARCH_LIMIT groups: then the join is refused, too. An order of the groups bounds
it (Pearce and Kelly 2006), so that the time is proportional to the length of the program.

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
from ir.rewrite import map_blocks, substitute
from ir.types import Dim
from ir.uses import free_values, gives, has_effect, needs

GROUP_LIMIT = 64
#: groups between two that are looked at for a path before a join is refused
SEARCH_LIMIT = 256


def fuse(program: Program) -> Program:
    return replace(program, ops=_fuse_block(program.ops, program.needed))


def _fuse_block(ops: Sequence[Node], needed: Iterable[Value]) -> tuple[Node, ...]:
    inner = [map_blocks(n, _fuse_block) for n in ops]
    groups = _Groups(inner)
    for at, node in enumerate(inner):
        if fusable(node):
            for producer in groups.producers(at):
                groups.join(producer, at)
    for node in inner:
        if is_pair(node):
            groups.join_siblings(*node.operands)
    return groups.emit(set(needed))


def fusable(node: Node) -> bool:
    if not isinstance(node, Op) or node.row.kernel is None or len(node.results) != 1:
        return False
    t = node.result.type
    return t.ndim > 0 or t.dtype.kind == "f"


def is_pair(node: Node) -> bool:
    """Whether an op stacks two tensors along a last axis: the parts of complex numbers, which are
    computed from the same elements and written side by side."""
    if not isinstance(node, Op) or node.name != "stack" or len(node.operands) != 2:
        return False
    return node.attrs["axis"] in (-1, node.result.type.ndim - 1)


def _late(before: Sequence[Iterable[int]]) -> list[int]:
    """The positions in an order in which each comes after those of `before`, but late: as many as
    possible come after it."""
    height = [0] * len(before)
    for i in range(len(before) - 1, -1, -1):
        for p in before[i]:
            height[p] = max(height[p], height[i] + 1)
    return sorted(range(len(before)), key=lambda i: -height[i])


class DynamicOrder:
    """Things in an order that changes: of two of them, the later one has the higher `rank`."""

    #: between the ranks of neighbours, where nothing has been moved
    GAP = 1 << 256

    def __init__(self, things: Sequence[int]) -> None:
        """`things` are not negative."""
        self.first = -1
        self.rank: dict[int, int] = {}
        self.next = dict(zip((self.first, *things), (*things, self.first)))
        self.previous = {b: a for a, b in self.next.items()}
        self._renumber()

    def _renumber(self) -> None:
        at, k = self.first, 0
        while k == 0 or at != self.first:
            self.rank[at], at, k = k * self.GAP, self.next[at], k + 1

    def remove(self, thing: int) -> None:
        before, after = self.previous.pop(thing), self.next.pop(thing)
        self.next[before], self.previous[after] = after, before

    def move(self, things: Sequence[int], to: int) -> None:
        """Put `things`, which are in order and come after `to`, in front of it."""
        for q in things:
            self.remove(q)
        before = self.previous[to]
        step = (self.rank[to] - self.rank[before]) // (len(things) + 1)
        for q in things:
            self.next[before], self.previous[q] = q, before
            self.rank[q] = self.rank[before] + step
            before = q
        self.next[before], self.previous[to] = to, before
        if step == 0:
            self._renumber()


class _Groups:
    """A partition of a block's nodes, by position; `of` gives the group, named by one member.

    `above` are groups that a group reads from, under any name that they have had. `order` is such
    that each group comes after all of those, so that paths are looked for between two groups only.
    """

    def __init__(self, ops: Sequence[Node]) -> None:
        self.ops = ops
        self.of = list(range(len(ops)))
        self.members = {i: [i] for i in self.of}
        self.maker = maker = {r: i for i, node in enumerate(ops) for r in gives(node)}
        named = {name for name in maker if isinstance(name, str)}
        self.before = [{maker[v] for v in needs(n, named) if v in maker} for n in ops]
        self._order_effects()
        self.above = [set(q) for q in self.before]
        self.order = DynamicOrder(_late(self.before))

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
        """Merge the groups of node b and of node a, which comes first in the order, if they have
        one shape and no cycle arises."""
        one, two = self.of[a], self.of[b]
        if one == two or self.shape(a) != self.shape(b):
            return
        if len(self.members[one]) + len(self.members[two]) > GROUP_LIMIT:
            return
        between = self.between(one, two)
        if between is None:
            return
        self.order.remove(two)
        self.order.move(between, one)
        for m in self.members[two]:
            self.of[m] = one
        self.members[one] = sorted(self.members[one] + self.members.pop(two))
        self.above[one] |= self.above[two]

    def join_siblings(self, x: Value, y: Value) -> None:
        """Merge the groups that make x and y, if they are kernels."""
        found = [self.maker[v] for v in (x, y) if v in self.maker]
        if len(found) == 2 and all(fusable(self.ops[k]) for k in found):
            a, b = sorted(found, key=lambda k: self.order.rank[self.of[k]])
            self.join(a, b)

    def sources(self, group: int) -> set[int]:
        """Groups that a group reads from."""
        found = self.above[group] = {self.of[p] for p in self.above[group]} - {group}
        return found

    def between(self, one: int, two: int) -> list[int] | None:
        """The nodes behind `one` in the order that its reader `two` depends on; None if one of
        these depends on `one`, or if there are too many."""
        rank = self.order.rank
        todo = [q for q in self.sources(two) if q != one and rank[q] > rank[one]]
        seen = set(todo)
        while todo:
            found = self.sources(todo.pop())
            if one in found or len(seen) > SEARCH_LIMIT:
                return None
            more = [q for q in found if rank[q] > rank[one] and q not in seen]
            seen.update(more)
            todo += more
        return sorted(seen, key=rank.__getitem__)

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
