"""Blocks, uses and definitions of nodes: values, and the sizes that loops define."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from ir.program import Cond, Const, Custom, Fused, Node, Op, Program, Scan, Seq, Value
from ir.types import Size, Type


def blocks(node: Node) -> tuple[tuple[tuple[Node, ...], tuple[Value, ...]], ...]:
    """The blocks inside of a node, each with the values that leave it."""
    if isinstance(node, Op):
        return ()
    if isinstance(node, Scan):
        return ((node.body, node.needed),)
    return node.branches if isinstance(node, (Cond, Custom)) else ()


def consts(node: Node) -> tuple[Const, ...]:
    """The const ports of a node with blocks inside."""
    if isinstance(node, Scan):
        return tuple(p for p in node.ports if isinstance(p, Const))
    return node.ins if isinstance(node, (Cond, Custom)) else ()


def entering(node: Node) -> tuple[Const | Seq, ...]:
    """The ports through which a node reads tensors that are the same in every iteration."""
    if isinstance(node, Scan):
        return tuple(p for p in node.ports if isinstance(p, (Const, Seq)))
    return consts(node)


def walk(ops: Iterable[Node]) -> Iterator[Node]:
    """Yield all nodes in preorder."""
    for node in ops:
        yield node
        if not isinstance(node, Op):
            for inner, _ in blocks(node):
                yield from walk(inner)


def has_loops(program: Program) -> bool:
    return any(isinstance(n, Scan) for n in walk(program.ops))


def uses(ops: Iterable[Node], needed: Iterable[Value] = ()) -> Counter[Value]:
    """Count the uses of each value in a block; bodies read only through their ports."""
    count = Counter(needed)
    for node in ops:
        count.update(node.operands)
    return count


def users(ops: Iterable[Node]) -> dict[Value, list[Node]]:
    """The nodes of a block that read each value, in order."""
    out: dict[Value, list[Node]] = {}
    for node in ops:
        for v in dict.fromkeys(node.operands):
            out.setdefault(v, []).append(node)
    return out


def free_values(ops: Iterable[Node]) -> tuple[Value, ...]:
    """Return the free values of `ops`, in order of first use."""
    defined: set[Value] = set()
    found: dict[Value, None] = {}
    for node in ops:
        found.update(dict.fromkeys(v for v in node.operands if v not in defined))
        defined.update(node.results)
    return tuple(found)


def has_effect(node: Node) -> bool:
    """Whether the node, or one inside of it, must stay where it is."""
    if isinstance(node, Op):
        return node.row.effect or node.row.writes
    return any(has_effect(n) for ops, _ in blocks(node) for n in ops)


def counts(ops: Iterable[Node]) -> Iterator[str]:
    """The counts of all while loops among `ops` and inside of them."""
    return (n.count for n in walk(ops) if isinstance(n, Scan) and n.count)


def loop_sizes(ops: Iterable[Node]) -> Iterator[str]:
    """Yield all sizes that loops in `ops`, at any depth, define: counts, and indices in bodies."""
    for n in walk(ops):
        if isinstance(n, Scan):
            yield from (name for name in (n.count, n.size) if name)


def dim_names(value: object) -> set[str]:
    """The sizes named in an attribute: a dim, a type, or a container of such."""
    return {n for d in sizes_in(value) for n in d.names}


def sizes_in(value: object) -> Iterator[Size]:
    """The dims that are not numbers in an attribute."""
    todo = [value]
    for q in todo:
        if isinstance(q, Size):
            yield q
        elif isinstance(q, (tuple, list)):
            todo += q
        elif isinstance(q, Type):
            todo += q.shape
        elif isinstance(q, dict):
            todo += q.values()


def sizes_of(node: Node) -> Iterator[Size]:
    """The dims that are not numbers in the types and the attributes of a node, not inside of it."""
    yield from sizes_in([r.type for r in node.results])
    if isinstance(node, Op):
        yield from sizes_in(node.attrs)
    elif isinstance(node, Fused):
        yield from sizes_in(node.shape)
    elif isinstance(node, Scan):
        yield from sizes_in((node.trip, *(p.start for p in node.ports if isinstance(p, Seq))))


def size_names(node: Node) -> set[str]:
    """The sizes that a node, or one inside of it, names in types and attributes."""
    names = {n for d in sizes_of(node) for n in d.names}
    if isinstance(node, Op):
        return names
    if isinstance(node, Fused):
        return names.union(*map(size_names, node.body))
    return names.union(*(size_names(n) for ops, _ in blocks(node) for n in ops))


def depends_on_index(s: Scan, node: Node) -> bool:
    """Whether a node of the body has sizes that differ between the iterations of `s`."""
    if not s.size:
        return False
    return s.size in size_names(node).union(*(v.type.names for v in node.operands))


def needs(node: Node, named: Collection[str]) -> set[Value | str]:
    """Return the uses of `node`: its operands, and the counts of `named` that it names."""
    return {*node.operands, *(size_names(node) & set(named) if named else ())}


def gives(node: Node) -> tuple[Value | str, ...]:
    """Return the definitions of `node`: its results, and the count of a while loop."""
    count = (node.count,) if isinstance(node, Scan) and node.count else ()
    return (*node.results, *count)


__all__ = [
    "blocks",
    "consts",
    "counts",
    "depends_on_index",
    "dim_names",
    "entering",
    "free_values",
    "gives",
    "has_effect",
    "has_loops",
    "loop_sizes",
    "needs",
    "size_names",
    "sizes_in",
    "sizes_of",
    "users",
    "uses",
    "walk",
]
