"""Congruence (value numbering) in a loop's body, through its carries.

Two values are equal in every iteration if the same op computes them from equal operands; two
states, if they begin with the same value and go on with equal ones. The states of a cycle depend
on themselves, so the search starts with all that may be equal and splits what is not, until every
class agrees with the classes that it reads: the coarsest partition (Hopcroft 1971; Alpern, Wegman
and Zadeck 1988). A const port is a state that goes on with itself.

    carry %a = %h then %a2                     %a2 = add(%a, %x), %b2 = add(%b, %x):
    carry %b = %h then %b2                     %a and %b are one state

The time is n log n in the size of the body. Loops and branches inside equal only themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from ir.literal import print_attr
from ir.program import Carry, Const, Op, Scan, Seq, Value
from ir.uses import has_effect

#: a value, what it must have in common with its equals, and what it reads
_Node: TypeAlias = tuple[Value, Hashable, Sequence[Value]]


def equal_values(s: Scan, apart: Collection[object]) -> list[tuple[Value, ...]]:
    """The classes of values of the body that are equal, each in the order of the text.

    apart: last values of carries that are tensors of their own. Such a carry equals one only that
    goes on with the very same value.
    """
    ports = list(_ports(s, apart))
    if not _may_have_equal_states(s, ports):
        return []
    keys: dict[Value, Hashable] = {s.index: s.index}
    reads: dict[Value, Sequence[Value]] = {s.index: ()}
    for v, key, operands in (*ports, *_results(s)):
        keys[v], reads[v] = key, operands
    at = {v: k for k, v in enumerate(keys)}
    found = _partition(keys, reads)
    return [tuple(sorted(q, key=at.__getitem__)) for q in found if len(q) > 1]


def _may_have_equal_states(s: Scan, ports: Sequence[_Node]) -> bool:
    """Whether two states begin with the same value and go on with the same op; or two ports read
    the same slices."""
    states = {p.inner for p in s.ports if isinstance(p, (Const, Carry))}
    maker = {r: n for n in s.body for r in n.results}

    def kind(v: Value) -> Hashable:
        if v in states:
            return Carry
        node = maker.get(v)
        return (node.name, len(node.operands)) if isinstance(node, Op) else v

    keys = {(key, *map(kind, operands)) for _, key, operands in ports}
    return len(keys) < len(ports)


def _ports(s: Scan, apart: Collection[object]) -> Iterator[_Node]:
    for p in s.ports:
        if isinstance(p, Seq):
            yield p.inner, (Seq, p.outer, p.axis, p.start, p.step), ()
        elif isinstance(p, Const):
            yield p.inner, (Carry, p.outer), (p.inner,)
        elif isinstance(p, Carry):
            key = (Carry, p.init, p.next) if p.last in apart else (Carry, p.init)
            yield p.inner, key, (p.next,)


def _results(s: Scan) -> Iterator[_Node]:
    for node in s.body:
        if not isinstance(node, Op) or has_effect(node):
            yield from ((r, r, ()) for r in node.results)
            continue
        attrs = print_attr(node.attrs)
        for k, r in enumerate(node.results):
            yield r, (node.name, attrs, k, len(node.operands)), node.operands


# ---------------------------------------------------------------- partition
def _partition(
    keys: Mapping[Value, Hashable], reads: Mapping[Value, Sequence[Value]]
) -> list[set[Value]]:
    """The coarsest partition in which values of one class have one key, and the values that they
    read at each position are of one class, too. Values of one key read as many."""
    classes: dict[Hashable, set[Value]] = defaultdict(set)
    for v, key in keys.items():
        classes[key].add(v)
    found = list(classes.values())
    of = {v: k for k, members in enumerate(found) for v in members}
    readers: dict[Value, list[tuple[int, Value]]] = defaultdict(list)
    for v, operands in reads.items():
        for position, q in enumerate(operands):
            readers[q].append((position, v))
    todo = set(range(len(found)))
    while todo:
        sources: dict[int, list[Value]] = defaultdict(list)
        for q in found[todo.pop()]:
            for position, v in readers[q]:
                sources[position].append(v)
        for some in sources.values():
            todo |= _split(found, of, some, todo)
    return found


def _split(
    found: list[set[Value]], of: dict[Value, int], some: Sequence[Value], todo: set[int]
) -> set[int]:
    """Part `some` from the rest of their classes; returns the classes to look at again."""
    touched: dict[int, set[Value]] = defaultdict(set)
    for v in some:
        touched[of[v]].add(v)
    again: set[int] = set()
    for k, part in touched.items():
        rest = found[k]
        if len(part) == len(rest):
            continue
        rest -= part
        new = len(found)
        found.append(part)
        of.update(dict.fromkeys(part, new))
        again.add(new if k in todo or len(part) <= len(rest) else k)
    return again


__all__ = ["equal_values"]
