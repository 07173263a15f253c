"""Alias analysis: the values that share a storage, before `functionalize`.

Every value has a base: the value that made its storage. Views (rows with `views`) and the inner
side of const and seq ports have the base of their operand. Where the storage depends on the run
- a carry is its init first and its next later; a join is the value of the branch taken; a reshape
copies when strides forbid a view - the value is a base of its own that *may be* others.
`functionalize` refuses to read or write a base after another one that it may be has been written,
and to write a value that may be a loop variable: converting that would be a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ir.layout import S, StridedLayout, row_major
from ir.loc import UNKNOWN, Dy2stError, Loc
from ir.opdef import view_rule
from ir.program import Carry, Cond, Const, Custom, Last, Node, Op, Program, Scan, Seq, Stack, Value
from ir.rewrite import Region
from ir.types import BOOL, Size, Type
from ir.uses import walk


class AliasError(Dy2stError):
    """A write that cannot be followed to one storage: the fact and where it happens."""

    def __init__(self, message: str, loc: Loc = UNKNOWN) -> None:
        self.loc = loc
        super().__init__(f"{message} ({loc})" if loc.line > 0 else message)


@dataclass(frozen=True, eq=False)
class ViewStep:
    """One view op of a chain: `operands` are those after the viewed one, read when it was made.

    hint: a name for what the step shows; text: the view as Python writes it, for reports.
    """

    name: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    hint: str = ""
    text: str = ""


@dataclass(frozen=True)
class StorageView:
    """A way to look at the storage of `base`: the steps are applied first to last."""

    base: Value
    steps: tuple[ViewStep, ...] = ()

    def then(self, step: ViewStep) -> StorageView:
        return StorageView(self.base, (*self.steps, step))

    @property
    def text(self) -> str:
        return "".join(s.text for s in self.steps)


@dataclass(eq=False)
class Aliases:
    """The result of `analyse`.

    base: the base of every value.
    written: for every loop and branch, the bases made outside of it that it writes, in order.
    touched: for every loop and branch, all bases written inside of it, and where.
    carried: inner sides of carry ports.
    edges: base -> the bases that it may be as well.
    """

    base: dict[Value, Value] = field(default_factory=dict)
    written: dict[Region, dict[Value, None]] = field(default_factory=dict)
    touched: dict[Region, dict[Value, Loc]] = field(default_factory=dict)
    carried: set[Value] = field(default_factory=set)
    edges: dict[Value, set[Value]] = field(default_factory=dict)

    def may_be(self, base: Value) -> set[Value]:
        """Every base whose storage this one may have, itself included."""
        found, todo = {base}, [base]
        while todo:
            fresh = self.edges.get(todo.pop(), set()) - found
            found |= fresh
            todo += fresh
        return found

    def relatives(self, base: Value) -> set[Value]:
        """The other bases that may be the same storage as this one."""
        mine = self.may_be(base)
        return {b for b in {*self.edges, *mine} if b is not base and mine & self.may_be(b)}


def analyse(program: Program) -> Aliases:
    walker = _AliasWalker(program)
    for i in program.inputs:
        walker.fresh(i.value)
    walker.block(program.ops)
    return walker.found


def at_least_once(s: Scan, program: Program, starts: bool = False) -> bool:
    """Whether the loop surely runs: its trip is a positive number or a require says so.

    starts: whether the go port of a while loop surely lets the first iteration run.
    """
    if s.count and not starts:
        return False
    if isinstance(s.trip, int):
        return s.trip >= 1
    for r in program.requires:
        gap = s.trip - 1 - (r.left - r.right) if r.relation == ">=" else None
        if isinstance(gap, int) and gap >= 0:
            return True
    return False


#: what an offset names that depends on an index from data
DATA = "#data"


class _AliasWalker:
    """`nodes`: the loops and branches around. `true`: flags that are surely true, if none is
    written."""

    def __init__(self, program: Program) -> None:
        self.program, self.found = program, Aliases()
        self.nodes: list[Region] = []
        self.depth: dict[Value, int] = {}
        self.layouts: dict[Value, StridedLayout] = {}
        self.true: set[Value] = set()
        self.constant_flags = not any(map(writes_flag, walk(program.ops)))

    def fresh(self, v: Value, *may_be: Value) -> None:
        self.found.base[v] = v
        self.depth[v] = len(self.nodes)
        self.layouts[v] = row_major(v.type.shape)
        if may_be:
            self.found.edges[v] = set(may_be)

    def same(self, v: Value, of: Value, layout: StridedLayout) -> None:
        self.found.base[v] = self.found.base[of]
        self.layouts[v] = layout

    def block(self, ops: Sequence[Node]) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.scan(node)
            elif isinstance(node, Cond):
                self.cond(node)
            elif isinstance(node, Custom):
                self.custom(node)
            elif isinstance(node, Op) and node.row.writes:
                self.write(self.found.base[node.operands[0]], node.loc)
            elif isinstance(node, Op) and node.row.views:
                self.view(node)
            else:
                self.plain(node)

    def plain(self, node: Node) -> None:
        for r in node.results:
            self.fresh(r)
        if self.constant_flags and isinstance(node, Op) and is_true(node):
            self.true.add(node.result)

    def view(self, op: Op) -> None:
        layout = view_layout(op, self.layouts[op.operands[0]])
        if layout is None:
            self.fresh(op.result, self.found.base[op.operands[0]])
        else:
            self.same(op.result, op.operands[0], layout)

    def write(self, base: Value, loc: Loc) -> None:
        for node in self.nodes:
            self.found.touched[node][base] = loc
        for node in self.nodes[self.depth[base] :]:
            self.found.written[node][base] = None

    def enter(self, node: Region) -> None:
        self.found.written[node], self.found.touched[node] = {}, {}
        self.nodes.append(node)

    def const(self, p: Const) -> None:
        self.same(p.inner, p.outer, self.layouts[p.outer])
        if p.outer in self.true:
            self.true.add(p.inner)

    def cond(self, c: Cond) -> None:
        self.enter(c)
        for p in c.ins:
            self.const(p)
        for ops, _ in c.branches:
            self.block(ops)
        self.nodes.pop()
        for j in c.outs:
            self.fresh(j.outer, self.found.base[j.then], self.found.base[j.orelse])

    def custom(self, c: Custom) -> None:
        """The backward block reads what is saved as if it were its own: it writes none of it."""
        self.enter(c)
        for p in c.ins:
            self.const(p)
        self.block(c.forward)
        for v in (*c.given, *(p.inner for p in c.saved)):
            self.fresh(v)
        self.block(c.backward)
        self.nodes.pop()
        for outer, inner in c.outs:
            self.fresh(outer, self.found.base[inner])

    def scan(self, s: Scan) -> None:
        starts = s.go is not None and s.go.init in self.true
        self.enter(s)
        self.fresh(s.index)
        for p in s.ports:
            if isinstance(p, Const):
                self.const(p)
            elif isinstance(p, Seq):
                outer = self.layouts[p.outer]
                self.same(p.inner, p.outer, outer.index(p.axis, Size.named(DATA)))
            elif isinstance(p, Carry):
                self.fresh(p.inner)
                self.found.carried.add(p.inner)
        self.block(s.body)
        for p in s.carries:
            inits = {self.found.base[p.init]}
            self.found.edges[p.inner] = inits | self.older(self.found.base[p.next])
        self.nodes.pop()
        self.leave(s, at_least_once(s, self.program, starts))

    def leave(self, s: Scan, runs: bool) -> None:
        for p in s.ports:
            if isinstance(p, Stack):
                self.fresh(p.outer)
            elif isinstance(p, Last):
                self.fresh(p.outer, self.found.base[p.inner])
            elif isinstance(p, Carry) and p.last is not None:
                init = [] if runs else [self.found.base[p.init]]
                self.fresh(p.last, self.found.base[p.next], *init)

    def older(self, base: Value) -> set[Value]:
        """Return the bases that `base` may be, without those made in this iteration: the next
        iteration makes its own."""
        local = len(self.nodes)
        return {
            b
            for b in self.found.may_be(base)
            if self.depth[b] < local or (self.depth[b] == local and b in self.found.carried)
        }


def is_true(op: Op) -> bool:
    return op.name == "full" and op.result.type == Type(BOOL) and bool(op.attrs["value"])


def writes_flag(node: Node) -> bool:
    return isinstance(node, Op) and node.row.writes and node.operands[0].type.dtype == BOOL


# ---------------------------------------------------------------- layouts
def view_layout(op: Op, x: S) -> S | None:
    """The layout of the result of a view op, from that of its operand; None where it may be a copy.
    Its offset names `DATA` where an index comes from data."""
    at = [Size.named(DATA) for _ in op.operands[1:]]
    found: S | None = view_rule(op.name).layout(x, *at, **op.attrs)
    return found


def places_along(op: Op, axis: int) -> range | None:
    """The places along `axis` of its operand that a view shows; None where they are not known."""
    shape = op.operands[0].type.shape
    along = StridedLayout(0, shape, tuple(int(k == axis) for k in range(len(shape))))
    y = view_layout(op, along)
    if y is None or op.operands[1:]:
        return None
    steps = [(n, s) for n, s in zip(y.shape, y.strides) if s != 0]
    if len(steps) > 1:
        return None
    length, step = steps[0] if steps else (1, 1)
    start = y.offset
    if not (isinstance(start, int) and isinstance(length, int) and isinstance(step, int)):
        return None
    return range(start, start + step * length, step)


__all__ = [
    "DATA",
    "AliasError",
    "Aliases",
    "ViewStep",
    "StorageView",
    "analyse",
    "at_least_once",
    "places_along",
    "view_layout",
]
