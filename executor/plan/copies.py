"""Copies that a plan kept, each with its reason.

A copy is listed where the same elements come to lie in a second place although the program asks for
no new tensor: an input that is not updated in place, a result that is stored twice, a state that a
loop keeps beside its next one. What an op does by itself (the pieces of a `concat`, the slice that
`x[i] = y` stores, a constant that is filled in) is no such copy.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.plan.reuse import BlockReuse, Inside, body, branches, chain_end, first_made
from ir import Cond, Loc, Scan, Value

OUTPUT = "an output"


@dataclass(frozen=True)
class CopyPurpose:
    """The purpose of a place that must hold a value. `idle`: its old contents are not read."""

    text: str
    idle: bool


def line(loc: Loc) -> str:
    return f"at {loc}" if loc.line > 0 else "later on"


def kept_apart(b: BlockReuse, v: Value, wanted: Value, inside: Inside) -> str:
    """Return the reason why the storage of `v` does not hold `wanted`, as `b` requested."""
    if wanted not in b.made:
        return "it gets the value of another tensor as it is"
    end = chain_end(b, v, wanted)
    used = b.last.get(end, -1)
    if used >= len(b.nodes):
        return "its old value is needed to the end"
    node = b.nodes[used]
    if isinstance(node, (Scan, Cond)) and wanted in node.results:
        return _through(node, end, wanted, inside)
    if used > first_made(b, wanted):
        return f"its old value is read later, {line(node.loc)}"
    return f"its old value is read while the new one is made, {line(node.loc)}"


def _through(node: Scan | Cond, v: Value, wanted: Value, inside: Inside) -> str:
    if isinstance(node, Scan):
        port = next((p for p in node.carries if p.init is v and p.last is wanted), None)
        if port is None or sum(q is v for q in node.operands) > 1:
            return f"the loop {line(node.loc)} reads its old value"
        return f"in the loop {line(node.loc)}: {kept_apart_in(node, port.inner, inside)}"
    (join,) = (j for j in node.outs if j.outer is wanted)
    ports = [p.inner for p in node.ins if p.outer is v]
    for inner in ports[:1]:
        for b, leaving in zip(branches(node, inside), (join.then, join.orelse)):
            if leaving is not inner and leaving in b.made:
                return f"in the branch {line(node.loc)}: {kept_apart(b, inner, leaving, inside)}"
    return f"the branch {line(node.loc)} gives it the value of another tensor"


def kept_apart_in(scan: Scan, carried: Value, inside: Inside) -> str:
    """Return the reason why a loop's body does not update a carry in place."""
    (port,) = (p for p in scan.carries if p.inner is carried)
    return kept_apart(body(scan, inside), carried, port.next, inside)


def read_later(b: BlockReuse, v: Value) -> str:
    """Return the reason why `v` keeps its storage although a successor could use it."""
    used = b.last.get(b.of(v), -1)
    if used >= len(b.nodes):
        return "its old value is needed to the end"
    return f"its old value is read later, {line(b.nodes[max(used, 0)].loc)}"
