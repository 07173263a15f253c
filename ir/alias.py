"""Which values share a storage, before `functionalize`.

Every value has a base: the value that made its storage. Views (rows with `views`) and the inner
side of const and seq ports have the base of what they view. Where the storage depends on the run
- a carry is its init first and its next later; a reshape copies when strides forbid a view - the
value is a base of its own that *may be* others. `functionalize` refuses to read or write a base
after another one that it may be has been written: converting it would be a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ir.core import Carry, Const, Last, Node, Op, Program, Scan, Seq, Stack, Value
from ir.loc import UNKNOWN, Dy2stError, Loc
from ir.types import Dim

Strides: TypeAlias = tuple[Dim, ...]


class AliasError(Dy2stError):
    """A write that cannot be followed to one storage: the fact and where it happens."""

    def __init__(self, message: str, loc: Loc = UNKNOWN) -> None:
        self.loc = loc
        super().__init__(f"{message} ({loc})" if loc.line > 0 else message)


@dataclass(frozen=True, eq=False)
class Step:
    """One view op of a chain: `operands` are those after the viewed one, read when it was made."""

    name: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    hint: str = ""


@dataclass(frozen=True)
class View:
    """A way to look at the storage of `base`: the steps are applied first to last."""

    base: Value
    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> View:
        return View(self.base, (*self.steps, step))


@dataclass(eq=False)
class Aliases:
    """What `analyse` finds.

    base: the base of every value.
    written: for every scan, the bases made outside of it that its body writes, in order.
    carried: inner sides of carry ports.
    edges: base -> the bases that it may be as well.
    """

    base: dict[Value, Value] = field(default_factory=dict)
    written: dict[Scan, dict[Value, None]] = field(default_factory=dict)
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
    walker = _Walker(program)
    for i in program.inputs:
        walker.fresh(i.value)
    walker.block(program.ops)
    return walker.found


def at_least_once(trip: Dim, program: Program) -> bool:
    """Whether the loop surely runs: its trip is a positive number or a require says so."""
    if isinstance(trip, int):
        return trip >= 1
    for r in program.requires:
        gap = trip - 1 - (r.left - r.right) if r.relation == ">=" else None
        if isinstance(gap, int) and gap >= 0:
            return True
    return False


class _Walker:
    def __init__(self, program: Program) -> None:
        self.program, self.found = program, Aliases()
        self.scans: list[Scan] = []
        self.depth: dict[Value, int] = {}
        self.strides: dict[Value, Strides] = {}

    def fresh(self, v: Value, *may_be: Value) -> None:
        self.found.base[v] = v
        self.depth[v] = len(self.scans)
        self.strides[v] = contiguous(v.type.shape)
        if may_be:
            self.found.edges[v] = set(may_be)

    def same(self, v: Value, of: Value, strides: Strides) -> None:
        self.found.base[v] = self.found.base[of]
        self.strides[v] = strides

    def block(self, ops: Sequence[Node]) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.scan(node)
            elif isinstance(node, Op) and node.row.writes:
                self.write(self.found.base[node.operands[0]])
            elif isinstance(node, Op) and node.row.views:
                self.view(node)
            else:
                for r in node.results:
                    self.fresh(r)

    def view(self, op: Op) -> None:
        strides = view_strides(op, self.strides[op.operands[0]])
        if strides is None:
            self.fresh(op.result, self.found.base[op.operands[0]])
        else:
            self.same(op.result, op.operands[0], strides)

    def write(self, base: Value) -> None:
        for scan in self.scans[self.depth[base] :]:
            self.found.written[scan][base] = None

    def scan(self, s: Scan) -> None:
        self.found.written[s] = {}
        self.scans.append(s)
        self.fresh(s.index)
        for p in s.ports:
            if isinstance(p, Const):
                self.same(p.inner, p.outer, self.strides[p.outer])
            elif isinstance(p, Seq):
                outer = self.strides[p.outer]
                self.same(p.inner, p.outer, outer[: p.axis] + outer[p.axis + 1 :])
            elif isinstance(p, Carry):
                self.fresh(p.inner)
                self.found.carried.add(p.inner)
        self.block(s.body)
        for p in s.carries:
            inits = {self.found.base[p.init]}
            self.found.edges[p.inner] = inits | self.older(self.found.base[p.next])
        self.scans.pop()
        self.leave(s)

    def leave(self, s: Scan) -> None:
        for p in s.ports:
            if isinstance(p, Stack):
                self.fresh(p.outer)
            elif isinstance(p, Last):
                self.fresh(p.outer, self.found.base[p.inner])
            elif isinstance(p, Carry) and p.last is not None:
                init = [] if at_least_once(s.trip, self.program) else [self.found.base[p.init]]
                self.fresh(p.last, self.found.base[p.next], *init)

    def older(self, base: Value) -> set[Value]:
        """What `base` may be, less what this iteration made: the next one makes its own."""
        local = len(self.scans)
        return {
            b
            for b in self.found.may_be(base)
            if self.depth[b] < local or (self.depth[b] == local and b in self.found.carried)
        }


# ---------------------------------------------------------------- strides
def contiguous(shape: Sequence[Dim]) -> Strides:
    out: list[Dim] = []
    stride: Dim = 1
    for d in reversed(shape):
        out.append(stride)
        stride = stride * d
    return tuple(reversed(out))


def view_strides(op: Op, strides: Strides) -> Strides | None:
    """Strides of the result of a view op, or None where it may be a copy."""
    x, ndim = op.operands[0].type, len(strides)
    if op.name == "transpose":
        return tuple(strides[p % ndim] for p in op.attrs["perm"])
    if op.name in ("pick", "select"):
        axis = op.attrs["axis"] % ndim
        return strides[:axis] + strides[axis + 1 :]
    if op.name == "slice":
        axis = op.attrs["axis"] % ndim
        return (*strides[:axis], strides[axis] * op.attrs["step"], *strides[axis + 1 :])
    if op.name == "reshape":
        return reshape_strides(x.shape, strides, op.result.type.shape)
    return None


def reshape_strides(old: Sequence[Dim], strides: Strides, new: Sequence[Dim]) -> Strides | None:
    """Strides of a reshape that copies nothing, or None; the rule of NumPy, Paddle and PyTorch.

    From the right, axes that lie next to each other in memory form runs; every run of the old
    shape must be a run of new axes.
    """
    if not old or strides == contiguous(old):
        return contiguous(new)
    out: list[Dim] = []
    at, unit = len(new), strides[-1]
    have: Dim = 1
    for axis in reversed(range(len(old))):
        have = have * old[axis]
        if axis and (old[axis - 1] == 1 or strides[axis - 1] == have * unit):
            continue
        made: Dim = 1
        while at and (made != have or new[at - 1] == 1):
            at -= 1
            out.append(made * unit)
            made = made * new[at]
        if made != have:
            return None
        have, unit = 1, strides[axis - 1]
    return tuple(reversed(out)) if not at else None


__all__ = ["AliasError", "Aliases", "Step", "View", "analyse", "at_least_once"]
