"""Ports of loops and branches that no result needs, and states that are zero in every iteration.

Two searches over the whole program, written apart from the passes that remove such ports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ir import Carry, Cond, Const, Join, Last, LoopCondition, Op, Program, Scan, Seq, Stack, Value
from ir.program import Node, Port
from ir.uses import counts, dim_names, has_effect, size_names, walk

Source = Value | str
#: ops that give zero for zeros
LINEAR = {"add", "subtract", "neg", "sum", "cast", "assign", "concat", "stack"}
LINEAR |= {"reshape", "transpose", "slice", "index", "expand"}


def idle_ports(program: Program) -> list[str]:
    """A line for each port that is unread, or zero without being told so by a const port."""
    live, filled = _live(program), _not_zero(program)
    found = []
    for node in walk(program.ops):
        ports: tuple[Port | Join, ...] = ()
        if isinstance(node, Scan):
            ports = tuple(p for p in node.ports if not isinstance(p, LoopCondition))
        elif isinstance(node, Cond):
            ports = (*node.ins, *node.outs)
        for p in ports:
            value = p.outer if isinstance(p, (Stack, Last, Join)) else p.inner
            if isinstance(p, Carry) and p.last is not None and p.last not in live:
                found.append(f"{node.loc}: the last value of {p} is not read")
            elif value not in live and not (isinstance(p, Carry) and p.last in live):
                found.append(f"{node.loc}: {p} is not read")
            elif value not in filled and not isinstance(p, Const):
                found.append(f"{node.loc}: {p} is zero")
    return found


# ---------------------------------------------------------------- what results are computed from
def _live(program: Program) -> set[Source]:
    behind: dict[Source, set[Source]] = defaultdict(set)
    needed: list[Source] = list(program.needed)
    loops = set(counts(program.ops))
    for node in walk(program.ops):
        for result, source in _flow(node, loops):
            behind[result].add(source)
        if has_effect(node):
            needed += _control(node) if isinstance(node, (Scan, Cond)) else node.operands
    found, todo = set(needed), needed
    while todo:
        new = behind[todo.pop()] - found
        found |= new
        todo += new
    return found


def _control(node: Scan | Cond) -> list[Source]:
    """What decides how often the node runs."""
    if isinstance(node, Cond):
        return [node.test]
    return [node.go.init, node.go.next] if node.go is not None else []


def _flow(node: Node, loops: set[str]) -> Iterator[tuple[Source, Source]]:
    """Pairs of a value, or a count of a loop, and one that it is computed from."""
    named = loops & size_names(node)
    if isinstance(node, Cond):
        yield from ((p.inner, p.outer) for p in node.ins)
        yield from ((j.outer, v) for j in node.outs for v in (node.test, j.then, j.orelse))
    elif isinstance(node, Scan):
        for p in node.ports:
            yield from ((r, v) for r, v in _through(p))
            if isinstance(p, Seq):
                yield from ((p.inner, n) for n in loops & dim_names((p.start,)))
        inside = [p.inner for p in node.carries]
        for r in (*node.results, *inside, *([node.count] if node.count else [])):
            yield from ((r, v) for v in (*_control(node), *(loops & dim_names((node.trip,)))))
    else:
        yield from ((r, v) for r in node.results for v in (*node.operands, *named))


def _through(p: Port) -> list[tuple[Value, Value]]:
    if isinstance(p, (Const, Seq)):
        return [(p.inner, p.outer)]
    if isinstance(p, (Stack, Last)):
        return [(p.outer, p.inner)]
    if isinstance(p, Carry):
        both = [v for v in (p.inner, p.last) if v is not None]
        return [(v, source) for v in both for source in (p.init, p.next)]
    return []


# ---------------------------------------------------------------- zeros
def _not_zero(program: Program) -> set[Value]:
    """The values that are not zero whatever the inputs are, as far as this looks."""
    found = {i.value for i in program.inputs}
    before = -1
    while len(found) != before:
        before = len(found)
        for node in walk(program.ops):
            found.update(_filled(node, found))
    return found


def _filled(node: Node, found: set[Value]) -> Iterable[Value]:
    if isinstance(node, Scan):
        pairs = [pair for p in node.ports for pair in _through(p)]
        return [node.index, *(r for r, v in pairs if v in found)]
    if isinstance(node, Cond):
        joined = [j.outer for j in node.outs if {j.then, j.orelse} & found]
        return [*joined, *(p.inner for p in node.ins if p.outer in found)]
    if isinstance(node, Op) and _is_zero(node, [v not in found for v in node.operands]):
        return ()
    return node.results


def _is_zero(op: Op, zeros: list[bool]) -> bool:
    if op.name == "full":
        return not op.attrs["value"]
    if op.name == "where":
        return all(zeros[1:])
    return op.name in LINEAR and all(zeros)
