"""State that all blocks of a backward program share, and how forward values are handed over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ir.analysis.cost import bytes_of
from ir.autodiff.activity import Activity
from ir.autodiff.residuals import ResidualChooser, cost_of
from ir.ops.gradients import Contribution, added
from ir.passes.cloning import NodeCopier
from ir.program import Node, Scan, Value
from ir.rewrite import Block, live_ops
from ir.types import Dim
from ir.uses import free_values

Grads = dict[Value, Value]


@dataclass(eq=False)
class BackwardState:
    """State shared by all blocks.

    again: indices of loops whose iterations the backward pass computes again. behind_again: what
        reads these loops only to hand their states over.
    taken: names of sizes, for copies of while loops.
    inputs: values that share the storage of an input, as it was or as it is after the writes.
    slots: values that are the storage of an input after the writes.
    computed_in: what `ir.autodiff.residuals.in_storage` finds.
    outputs: values that the caller gets, and may hand over.
    report: (value, policy, cost) for every forward value that the backward pass reads.
    around: the loops in whose bodies the block is, the outermost first.
    """

    activity: Activity
    again: set[Value]
    taken: set[str]
    inputs: set[Value]
    slots: Collection[Value]
    computed_in: dict[Value, Value]
    outputs: Collection[object]
    report: list[str] = field(default_factory=list)
    behind_again: set[Node] = field(default_factory=set)
    around: list[Scan] = field(default_factory=list)

    def fresh(self, size: str) -> str:
        """A name for a size of a copied loop."""
        k, name = 0, size
        while name in self.taken:
            k += 1
            name = f"{size}_{k}"
        self.taken.add(name)
        return name

    def add(self, b: Block, grads: Grads, v: Value, g: Contribution) -> None:
        """Add `g` to the gradient of `v`, if that is wanted."""
        if g is not None and self.activity.active(v):
            grads[v] = added(b, grads.get(v), g, v.type)

    def block(self, ops: Sequence[Node], grads: Grads, b: Block) -> list[Node]:
        """Emit on `b` what takes `grads`, of values of the block, to those of all values of it.

        Returns the ops of the forward block, which hands over more than it did.
        """
        raise NotImplementedError

    # -------- handing over
    def hand_over(
        self,
        ops: Sequence[Node],
        leaving: Sequence[Value],
        block: Sequence[Node],
        entering: Iterable[Value],
        cost: Callable[[Value], int],
        bring: Callable[[Value], Value],
        keep: str,
        whole: bool = False,
        sizes: Mapping[str, Dim] | None = None,
        final: Collection[Value] = (),
    ) -> tuple[tuple[Node, ...], list[Value]]:
        """A backward block made independent of the forward one.

        ops, leaving: what was emitted, and what must be computed; both read forward values.
        block, entering: the forward block, and its values that its ops do not define.
        cost, bring: the bytes of handing a value over, and what stands for it in the new block.
        keep: how handing over is called in the report.
        whole: as in `ResidualChooser`.
        sizes: sizes of the forward block only, and what they are in the new one.
        final: values for which `bring` has something that exists anyway.
        """
        ops = live_ops(ops, leaving)
        forward = {v for n in block for v in n.results} | set(entering)
        read = dict.fromkeys([*free_values(ops), *leaving])
        needed = [v for v in read if v in forward]
        own = dict(sizes or {})
        free = {*self.slots, *final}
        chooser = ResidualChooser(block, cost, self.is_again, self.inputs, free, whole, own)
        plan = chooser.plan(needed, ops)
        copier = NodeCopier(self.fresh, sizes=own)
        for v in plan.kept:
            copier.env[v] = bring(v)
            kept = v not in free and (v in chooser.maker or cost(v))
            self.report.append(f"{v!r}: {keep}, {bytes_of(v)} bytes" if kept else f"{v!r}: reuse")
        redone = copier.nodes(plan.redo)
        self.report += [f"{r!r}: recompute{cost_of(n)}" for n in plan.redo for r in n.results]
        made = copier.nodes(ops)
        return (*redone, *made), [copier.new(v) for v in leaving]

    def is_again(self, node: Node) -> bool:
        return node in self.behind_again or isinstance(node, Scan) and node.index in self.again
