"""Reuse of storage: which values of a block share it, its last use, and updates in place.

A block is the op list of a program or of a loop body; it reads only its own values, so each
analysis here is of one block. Position `len(block)` is its end, where ports and outputs use values.

A value may be updated in place when the op that makes its successor is its last use: `set_*` ops,
nested loops that carry it, branches that both leave the successor there, or one of them while the
other leaves the value as it is (which may cost a copy). A `set_*` op may see the value through
`reshape` and `transpose`: its result has the same orientation (`executor.plan.view_paths`).
Storage that must hold a given value at the end of the block (the next state of a carry, what is
written back to an input) also takes it from an elementwise op that is the last use, or from any op
behind the last use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from executor.plan.view_paths import ViewPath, extended, joined_paths
from ir import Cond, Fused, Op, Scan, Value
from ir.program import Carry, Const, Join, Last, Node, Stack


@dataclass
class BlockReuse:
    """`root` maps a value to the value whose storage it shares; `last` is by root, and so are
    `users`, the positions at which a storage is used.

    `defined`: the position of the op that makes a value; `made`: the first position that writes its
    storage. `updates` maps a value to its successor, which takes over the storage, and `before`
    maps back, where an op makes the successor. `linked`: the first position from which the storage
    of a given value holds the required one, where no op makes it the successor. `early`: views that
    a loop stacks; they are copied where they are made, so that their storage may change afterwards.
    `seen`: views of all elements of the value whose storage they share, with their path.
    `arrays` maps a `tensor_array` to the storages that it reads wherever it is used: none of those,
    `elements`, is updated in place.
    """

    nodes: Sequence[Node]
    users: dict[Value, list[int]] = field(default_factory=dict)
    root: dict[Value, Value] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)
    defined: dict[Value, int] = field(default_factory=dict)
    made: dict[Value, int] = field(default_factory=dict)
    updates: dict[Value, Value] = field(default_factory=dict)
    before: dict[Value, Value] = field(default_factory=dict)
    linked: dict[Value, int] = field(default_factory=dict)
    early: frozenset[Value] = frozenset()
    seen: dict[Value, ViewPath] = field(default_factory=dict)
    arrays: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    elements: set[Value] = field(default_factory=set)

    def of(self, v: Value) -> Value:
        return self.root.get(v, v)

    def read(self, values: Iterable[Value]) -> dict[Value, None]:
        """The storages that these values lie in."""
        roots = dict.fromkeys(map(self.of, values))
        return roots | dict.fromkeys(q for v in roots for q in self.arrays.get(v, ()))

    def used(self, v: Value, low: int, high: int) -> list[int]:
        """The positions from `low` on and before `high` at which the storage of `v` is used."""
        found = self.users.get(self.of(v), [])
        return found[bisect_left(found, low) : bisect_left(found, high)]

    def at(self, node: Node) -> int:
        """The position of a node of the block."""
        return next(k for k, n in enumerate(self.nodes) if n is node)


#: loops and branches -> the analyses of the blocks inside, so that each is made once
Inside: TypeAlias = dict[Node, tuple[BlockReuse, ...]]


def analyse(
    nodes: Sequence[Node],
    following: Mapping[Value, Value | None],
    needed: Iterable[Value],
    inside: Inside,
    early: frozenset[Value] = frozenset(),
) -> BlockReuse:
    """`following` maps a value that the block is given and may update to the value that its storage
    must hold at the end; `needed` are used at the end of the block."""
    b = BlockReuse(nodes, early=early)
    for at, node in enumerate(nodes):
        _enter(b, node, at)
    b.last.update(dict.fromkeys(b.read(needed), len(nodes)))
    joined: set[Value] = set()
    for v in [*following, *(r for n in nodes for r in n.results)]:
        after = _successor(b, v, inside, joined) if b.of(v) is v else None
        if after is not None:
            b.updates[v] = after
            b.before[after] = v
    for v, wanted in following.items():
        link = _link(b, v, wanted) if wanted is not None else None
        if link is not None:
            b.updates[link[0]] = link[1]
            b.linked[v] = b.made[link[1]]
    return b


def _enter(b: BlockReuse, node: Node, at: int) -> None:
    """A sum may be computed in the memory of its product (`added`), the operand of a view
    of all its elements in that of the view (`executor.plan.destinations`)."""
    for v in b.read(node.operands):
        b.last[v] = at
        b.users.setdefault(v, []).append(at)
    first = at
    if node.name == "add":
        products = (b.made[v] for v in node.operands if v in b.made and _product(b, v))
        first = min(products, default=at)
    if isinstance(node, Op) and node.row.shows_all:
        first = b.made.get(node.operands[0], at)
    b.defined.update(dict.fromkeys(node.results, at))
    b.made.update(dict.fromkeys(node.results, first))
    if node.name == "tensor_array":
        b.arrays[node.results[0]] = tuple(b.read(node.operands))
        b.elements.update(b.arrays[node.results[0]])
    if isinstance(node, Op) and node.row.may_alias:
        b.root.update((r, b.of(node.operands[0])) for r in node.results)
        x = node.operands[0]
        path = extended(b.seen.get(x, ()), node)
        if path is not None and (b.of(x) is x or x in b.seen):
            b.seen[node.result] = path


def turned(b: BlockReuse, after: Value) -> ViewPath:
    """The layout of a value in the storage that it has taken over, seen from its predecessor."""
    node = b.nodes[b.defined[after]]
    return b.seen.get(node.operands[0], ()) if _sets(node) else ()


def arrives(b: BlockReuse, v: Value, wanted: Value) -> bool:
    """True if the storage of `v` holds `wanted`, in the layout of `v`, after its last update."""
    path: ViewPath = ()
    while b.of(wanted) is not v:
        if v not in b.updates:
            return False
        v = b.updates[v]
        path = joined_paths(path, turned(b, v))
    last = () if wanted is v else b.seen.get(wanted)
    return last is not None and joined_paths(path, last) == ()


def _product(b: BlockReuse, v: Value) -> bool:
    return b.nodes[b.defined[v]].name == "matmul"


def chain_end(b: BlockReuse, v: Value, wanted: Value) -> Value:
    """The last value in the storage of `v`, following updates in place."""
    while v is not wanted and v in b.updates:
        v = b.updates[v]
    return v


def _link(b: BlockReuse, v: Value, wanted: Value) -> tuple[Value, Value] | None:
    """The update after which the storage of `v` holds `wanted` at the end of the block: by the last
    use, or by an op after it; None if there is none."""
    end = chain_end(b, v, wanted)
    if end is wanted or not arrives(b, v, end) or not arrives(b, _head(b, wanted), wanted):
        return None
    used = max(b.last.get(end, -1), b.made.get(end, -1))
    if used < len(b.nodes) and end in b.last and _may_overwrite(b, end, wanted):
        return end, wanted
    return (end, _head(b, wanted)) if used < first_made(b, wanted) else None


def _head(b: BlockReuse, v: Value) -> Value:
    """The first value in the storage of `v`."""
    while v in b.before:
        v = b.before[v]
    return v


def first_made(b: BlockReuse, v: Value) -> int:
    """The first position that writes the storage of `v`; -1 where the block is given it."""
    return b.made.get(_head(b, v), -1)


def added(b: BlockReuse, at: int) -> tuple[Op, Value] | None:
    """The `add` that is the only use of the product at position `at`, and its other operand.

    That operand is not used between the two, so the sum can be formed where the product is.
    """
    v = b.nodes[at].results[0]
    end = b.last.get(v, -1)
    if not at < end < len(b.nodes) or b.used(v, at, end):
        return None
    node = b.nodes[end]
    if not isinstance(node, Op) or node.name != "add" or node.result.type != v.type:
        return None
    x, y = node.operands
    other = y if x is v else x
    if other is v or b.of(other) is v or b.used(other, at + 1, end):
        return None
    return node, other


def carried(following: Mapping[Value, Value], b: BlockReuse) -> dict[Value, bool]:
    """For each carry, whether its storage is updated in place through the whole block."""
    return {v: after is not v and arrives(b, v, after) for v, after in following.items()}


def next_values(carries: Iterable[Carry]) -> dict[Value, Value]:
    return {p.inner: p.next for p in carries}


def body(scan: Scan, inside: Inside) -> BlockReuse:
    if scan not in inside:
        early = _stacked_views(scan)
        needed = [v for v in scan.needed if v not in early]
        found = analyse(scan.body, next_values(scan.carries), needed, inside, early)
        inside[scan] = (found,)
    return inside[scan][0]


def _stacked_views(scan: Scan) -> frozenset[Value]:
    """Results of views that only stacks need at the end of the body."""
    made = {r for n in scan.body if isinstance(n, Op) and n.row.may_alias for r in n.results}
    stacks = {p.inner for p in scan.ports if isinstance(p, Stack)}
    rest = {p.inner for p in scan.ports if isinstance(p, Last)} | {p.next for p in scan.carries}
    return frozenset(made & stacks - rest)


def branches(cond: Cond, inside: Inside) -> tuple[BlockReuse, ...]:
    """The analysis of both blocks; the values that they are given have no successor yet."""
    if cond not in inside:
        given = dict.fromkeys(p.inner for p in cond.ins)
        inside[cond] = tuple(analyse(b, given, leaving, inside) for b, leaving in cond.branches)
    return inside[cond]


def _successor(b: BlockReuse, v: Value, inside: Inside, joined: set[Value]) -> Value | None:
    """The value that the last use of `v` leaves in its storage; None if it leaves none. `joined`:
    results of branches that have a predecessor already."""
    at = b.last.get(v, -1)
    if not 0 <= at < len(b.nodes) or v in b.elements:
        return None
    node = b.nodes[at]
    if isinstance(node, (Scan, Cond)):
        sharing = [q for q in node.operands if b.of(q) is v]
        if isinstance(node, Scan):
            return _through_loop(node, v, sharing, inside)
        return _through_branches(node, v, sharing, inside, joined)
    if _sets(node):
        x = node.operands[0]
        return node.results[0] if x is v or b.of(x) is v and x in b.seen else None
    return None


def _sets(node: Node) -> bool:
    return isinstance(node, Op) and bool(node.row.updates)


def _may_overwrite(b: BlockReuse, v: Value, following: Value) -> bool:
    """True if the last use of `v` is an elementwise op that may write `following` over it."""
    node = b.nodes[b.last[v]]
    sharing = (q for q in node.operands if b.of(q) is v)
    return (
        v not in b.elements
        and elementwise(node)
        and all(q is v for q in sharing)
        and following in node.results
    )


def elementwise(node: Node) -> bool:
    """Whether a node reads and writes element by element."""
    if isinstance(node, Op):
        return node.row.kernel is not None and not node.row.updates
    return isinstance(node, Fused)


def _through_loop(scan: Scan, v: Value, sharing: Sequence[Value], inside: Inside) -> Value | None:
    ports = [p for p in scan.carries if p.init is v and p.last is not None]
    if len(sharing) != 1 or not ports:
        return None
    kept = carried(next_values(ports[:1]), body(scan, inside))[ports[0].inner]
    return ports[0].last if kept else None


def _through_branches(
    cond: Cond, v: Value, sharing: Sequence[Value], inside: Inside, joined: set[Value]
) -> Value | None:
    ports = [p for p in cond.ins if p.outer is v]
    if len(sharing) != 1 or not ports:
        return None
    for j in cond.outs:
        if j.outer in joined or j.outer.type != v.type:
            continue
        inner, both = ports[0].inner, (j.then, j.orelse)
        sides = list(zip(branches(cond, inside), both))
        given = inner in both and all(v is inner or not_at_end(b, inner) for b, v in sides)
        if given or all(handed_on(b, inner, leaving) for b, leaving in sides):
            joined.add(j.outer)
            return j.outer
    return None


def handed_on(b: BlockReuse, v: Value, leaving: Value) -> bool:
    """True if a branch can leave `leaving` in the storage of `v` without a copy at its end."""
    return v is leaving or arrives(b, v, leaving) or _link(b, v, leaving) is not None


def not_at_end(b: BlockReuse, v: Value) -> bool:
    """True if the storage of `v` may be overwritten at the end of the block."""
    while b.last.get(v, -1) < len(b.nodes):
        if v not in b.updates:
            return True
        v = b.updates[v]
    return False


def taken_over(cond: Cond, b: BlockReuse) -> dict[Join, Const]:
    """The results of `cond` that take over the storage of an operand in the block `b` around it."""
    ports = {b.updates.get(p.outer): p for p in cond.ins}
    return {j: ports[j.outer] for j in cond.outs if j.outer in ports}
