"""Recurrences: states of a loop whose steps are associative.

A state is one if it goes on with an associative function of itself, element by element, and of
values that do not depend on it: then all steps are a scan of log T rounds on a machine that has the
lanes for it.

    linear   h = a * h + b          sum   h = h + b        product   h = a * h
    largest  h = maximum(h, b)      least h = minimum(h, b)

The values that depend on a state and that it depends on are a strong component of the loop's body
and its carries. If the state is the only carry in it, what else the ops of the component read does
not depend on the state. The time is linear in the size of the body.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ir.program import Carry, Node, Op, Scan, Value

Vertex: TypeAlias = Node | Carry
Edges: TypeAlias = Mapping[Vertex, Sequence[Vertex]]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Recurrence:
    """`ops` take the state to its next value, in order."""

    carry: Carry
    kind: str
    ops: tuple[Op, ...]


def recurrences(s: Scan) -> tuple[Recurrence, ...]:
    """The states of `s` that are recurrences, in the order of its ports."""
    vertices: list[Vertex] = [*s.carries, *s.body]
    edges, back = dependences(vertices)
    at = {v: k for k, v in enumerate(vertices)}
    found: dict[Carry, Recurrence] = {}
    for component in components(vertices, edges, back):
        first, *rest = sorted(component, key=at.__getitem__)
        ops = tuple(n for n in rest if isinstance(n, Op))
        if isinstance(first, Carry) and ops and len(ops) == len(rest):
            kind = _kind(first, ops)
            found |= {first: Recurrence(first, kind, ops)} if kind else {}
    return tuple(found[p] for p in s.carries if p in found)


# ---------------------------------------------------------------- kinds
#: an op, and what its operands make of the state; "" for those that do not depend on it
KindRule: TypeAlias = Callable[[Op, Sequence[str]], str]
#: adding and multiplying give a linear function
LINEAR = {"itself", "sum", "product", "linear"}


def _kind(p: Carry, ops: Sequence[Op]) -> str:
    """Return the kind of recurrence that the ops compute; empty if they compute none."""
    kinds = {p.inner: "itself"}
    for n in ops:
        if n.name not in RULES or any(r.type != p.inner.type for r in n.results):
            return ""
        kinds[n.result] = RULES[n.name](n, [kinds.get(v, "") for v in n.operands])
        if not kinds[n.result]:
            return ""
    kind = kinds.get(p.next, "")
    return "" if kind == "itself" else kind


def _then(kind: str, more: str) -> str:
    """One function of the state after another one."""
    if kind in ("itself", more):
        return more
    return "linear" if {kind, more} <= LINEAR else ""


def _added(x: str, y: str) -> str:
    if not (x and y):
        return _then(x or y, "sum")
    if {x, y} <= {"itself", "product"}:
        return "product"
    return "linear" if {x, y} <= LINEAR else ""


def _subtract(op: Op, kinds: Sequence[str]) -> str:
    x, y = kinds
    return _added(x, _then(y, "product") if y else "")


def _scale(op: Op, kinds: Sequence[str]) -> str:
    (kind,) = kinds
    if op.attrs["scale"] != 1:
        kind = _then(kind, "product")
    return _then(kind, "sum") if op.attrs["bias"] and kind else kind


def _where(op: Op, kinds: Sequence[str]) -> str:
    test, x, y = kinds
    return "linear" if not test and {x, y} - {""} <= LINEAR else ""


def _once(more: str) -> KindRule:
    """Return the rule of an op with one operand that depends on the state."""
    return lambda op, kinds: "" if all(kinds) else _then(max(kinds), more)


RULES: dict[str, KindRule] = {
    "assign": lambda op, kinds: kinds[0],
    "add": lambda op, kinds: _added(*kinds),
    "subtract": _subtract,
    "neg": lambda op, kinds: _then(kinds[0], "product"),
    "scale": _scale,
    "multiply": _once("product"),
    "divide": lambda op, kinds: "" if kinds[1] else _then(kinds[0], "product"),
    "where": _where,
    "maximum": _once("largest"),
    "minimum": _once("least"),
}


# ---------------------------------------------------------------- graphs
def gives(n: Vertex) -> tuple[Value, ...]:
    return (n.inner,) if isinstance(n, Carry) else n.results


def reads(n: Vertex) -> tuple[Value, ...]:
    return (n.next,) if isinstance(n, Carry) else n.operands


def dependences(vertices: Sequence[Vertex]) -> tuple[Edges, Edges]:
    """From what gives a value to what reads it, and back."""
    maker = {v: n for n in vertices for v in gives(n)}
    back = {n: [maker[v] for v in reads(n) if v in maker] for n in vertices}
    edges: dict[Vertex, list[Vertex]] = defaultdict(list)
    for n, sources in back.items():
        for q in sources:
            edges[q].append(n)
    return edges, back


def components(vertices: Sequence[Vertex], edges: Edges, back: Edges) -> Iterator[set[Vertex]]:
    """Yield the strongly connected components, by Kosaraju's algorithm."""
    seen: set[Vertex] = set()
    for v in reversed(_postorder(vertices, edges)):
        if v in seen:
            continue
        component, todo = {v}, [v]
        while todo:
            new = [q for q in back.get(todo.pop(), ()) if q not in seen and q not in component]
            component.update(new)
            todo += new
        seen |= component
        yield component


def _postorder(vertices: Sequence[Vertex], edges: Edges) -> list[Vertex]:
    seen: set[Vertex] = set()
    out: list[Vertex] = []
    for v in vertices:
        todo = [] if v in seen else [(v, iter(edges.get(v, ())))]
        seen.add(v)
        while todo:
            at, rest = todo[-1]
            q = next((q for q in rest if q not in seen), None)
            if q is None:
                out.append(at)
                todo.pop()
            else:
                seen.add(q)
                todo.append((q, iter(edges.get(q, ()))))
    return out


def reached(sources: Iterable[T], edges: Mapping[T, Sequence[T]]) -> set[T]:
    """The sources, and all that edges lead to from them."""
    found = set(sources)
    todo = list(found)
    while todo:
        new = [q for q in edges.get(todo.pop(), ()) if q not in found]
        found.update(new)
        todo += new
    return found


__all__ = [
    "Edges",
    "Recurrence",
    "Vertex",
    "components",
    "dependences",
    "gives",
    "reads",
    "recurrences",
]
