"""Residuals: a forward value that the backward pass reads is reused, kept or recomputed.

Reuse: the value exists in the backward pass anyway: an input, a const or seq port, an index. Keep:
the forward pass hands it over, a loop by stacking it in every iteration. Recompute: cheap
elementwise ops and views, if their own operands exist or cost no more bytes; also every value whose
size is known only inside its block, such as the stacks of a `while` inside another loop, and the
segments of a checkpointed loop. Foreign kernels and other effects never run twice: what they give
in a size that moves with the index of the loop is kept (`ir.autodiff.residual_stacks`). Nothing is
recomputed from an input that the backward pass does not read anyway: the user may write to it in
between, as eager allows then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ir.analysis.alias import analyse
from ir.analysis.cost import MOST_WORK, bytes_of, work_of
from ir.loc import UNKNOWN, Dy2stError, Loc
from ir.program import Node, Op, Program, Scan, Value
from ir.uses import gives, size_names, uses, walk


class NotDifferentiable(Dy2stError):
    """A gradient was asked through an op that has none. `op` and `loc` say which."""

    def __init__(self, op: str, loc: Loc = UNKNOWN, why: str = "it has no gradient") -> None:
        self.op, self.loc, self.why = op, loc, why
        super().__init__(f"{op}: {why}" + (f" ({loc})" if loc.line > 0 else ""))


TWICE = "it would run again in the backward pass, in a loop whose length is not known before"


def from_inputs(program: Program) -> set[Value]:
    """Inputs, their storages after the writes, views and arrays of them, and the const ports that
    bring them into loops and branches."""
    own = {i.value for i in program.inputs}
    own |= {n.result for n in program.ops if isinstance(n, Op) and n.name == "stored"}
    base = analyse(program).base
    for n in walk(program.ops):
        if n.name == "tensor_array" and all(base[v] in own for v in n.operands):
            own.update(n.results)
    return {v for v, at in base.items() if at in own}


def in_storage(program: Program) -> dict[Value, Value]:
    """Map values that an in-place call computed in the storage of an input to the mark of it.

    The gradient of the call reads what the storage holds: there is no other tensor.
    """
    read = uses(program.ops, program.needed)
    marks = (n for n in program.ops if isinstance(n, Op) and n.name == "stored")
    own = ((n.operands[0], n.result) for n in marks if n.attrs["own"])
    return {v: mark for v, mark in own if read[v] == 1}


def once_only(node: Node) -> bool:
    """True if a node must not run twice. A check may: a check that held holds again."""
    return isinstance(node, Op) and node.name != "check" and (node.row.effect or node.row.writes)


def name_of(node: Node) -> str:
    """The name of a node in an error: for a foreign op, that of its kernel."""
    if isinstance(node, Op) and node.name == "max_unpool":
        return "the gradient of max_pool"
    if isinstance(node, Op):
        return str(node.attrs.get("call", node.name))
    return node.name


@dataclass(eq=False)
class Residuals:
    """kept: values that the forward pass hands over. redo: nodes to recompute, in order."""

    kept: list[Value] = field(default_factory=list)
    redo: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class ResidualChooser:
    """Chooses the residuals of one block.

    cost: the bytes of handing over a value that the block does not compute: 0 to reuse it.
    again: nodes to recompute at any cost.
    inputs: values that share the storage of an input of the program.
    free: values of the block that exist in the backward pass anyway.
    whole: the block is the program, which hands over values of any size.
    own: sizes that are known in the block only, besides those that its ops define.
    """

    ops: Sequence[Node]
    cost: Callable[[Value], int]
    again: Callable[[Node], bool]
    inputs: Collection[Value]
    free: Collection[Value] = ()
    whole: bool = False
    own: Collection[str] = ()

    def __post_init__(self) -> None:
        self.maker = {v: n for n in self.ops for v in gives(n)}
        counts = {n.count for n in self.ops if isinstance(n, Scan) and n.count}
        self.local = set() if self.whole else {*counts, *self.own}
        self.kept: dict[Value, None] = {}
        self.redo: set[Node] = set()
        self.known: dict[Node, int | None] = {}

    def plan(self, needed: Iterable[Value], readers: Iterable[Node]) -> Residuals:
        """The residuals for the values in `needed` and the loop counts that `readers` name."""
        todo: list[Value | str] = list(needed)
        if self.local:
            named: set[str] = set().union(*map(size_names, readers))
            todo += sorted(self.local & named)
        cheap: list[Value] = []
        while todo:
            v = todo.pop()
            if self.must_redo(v):
                todo += self.again_too(self.maker[v])
            elif isinstance(v, Value) and self.may_redo(v):
                cheap.append(v)
            elif isinstance(v, Value):
                self.kept[v] = None
        order = {v: i for i, v in enumerate(self.maker)}
        for v in sorted(dict.fromkeys(cheap), key=order.__getitem__):
            self.weigh(v)
        defined = {v for n in self.redo for v in n.results}
        kept = [v for v in self.kept if v not in defined]
        return Residuals(kept, [n for n in self.ops if n in self.redo])

    def must_redo(self, v: Value | str) -> bool:
        if v not in self.maker:
            return False
        node = self.maker[v]
        if isinstance(v, str) or self.again(node):
            return True
        found = v.type.names & self.local
        return bool(found) and not (found <= set(self.own) and any(map(once_only, walk([node]))))

    def again_too(self, node: Node) -> list[Value | str]:
        """Mark a node for recomputation; returns the operands and sizes that it needs."""
        if node in self.redo:
            return []
        if any(map(once_only, walk([node]))):
            raise NotDifferentiable(name_of(node), node.loc, TWICE)
        self.redo.add(node)
        return [*node.operands, *(size_names(node) & self.local - set(gives(node)))]

    def may_redo(self, v: Value) -> bool:
        work = self.work(self.maker.get(v))
        return work is not None and work <= MOST_WORK

    def work(self, node: Node | None) -> int | None:
        """Like `work_of`; None also for a node that names a size of this block."""
        if node is None or (self.local and size_names(node) & self.local):
            return None
        if node not in self.known:
            self.known[node] = work_of(node)
        return self.known[node]

    def weigh(self, v: Value) -> None:
        """Recompute `v` if its leaves exist anyway or take no more bytes than `v`, else keep it."""
        leaves, nodes, work = self.closure(v)
        price = sum(map(self.price, leaves))
        copied = work or v not in self.inputs
        moves = copied and any(q in self.inputs and q not in self.kept for q in leaves)
        dear = moves or price >= bytes_of(v) if work else price > bytes_of(v)
        if dear or any(map(self.must_redo, leaves)):
            self.kept[v] = None
            return
        self.kept.update(leaves)
        self.redo |= nodes

    def price(self, v: Value) -> int:
        if v in self.kept or v in self.free:
            return 0
        return bytes_of(v) if v in self.maker else self.cost(v)

    def closure(self, v: Value) -> tuple[dict[Value, None], set[Node], int]:
        """The leaves that `v` would be recomputed from, the nodes in between, and their work."""
        leaves: dict[Value, None] = {}
        nodes: set[Node] = set()
        work, todo = 0, [v]
        while todo:
            q = todo.pop()
            node = self.maker.get(q)
            if node in nodes or node in self.redo:
                continue
            cost = self.work(node)
            if cost is None or q in self.kept or work + cost > MOST_WORK:
                leaves[q] = None
                continue
            work += cost
            assert node is not None
            nodes.add(node)
            todo += node.operands
        return leaves, nodes, work


def cost_of(node: Node) -> str:
    """The cost of computing a node again, as the report says it."""
    work = work_of(node)
    return f", {work} operations an element" if work else "" if work == 0 else ", all of it"


__all__ = [
    "ResidualChooser",
    "NotDifferentiable",
    "Residuals",
    "cost_of",
    "from_inputs",
    "in_storage",
    "name_of",
    "once_only",
]
