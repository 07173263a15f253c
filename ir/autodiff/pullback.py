"""The pull-back of values that a program computes, as further ops of the program.

    %u = tanh(%x)
    %y = sum(%u)               =>   %g = expand(1.0)        the gradient of %y with respect to %x:
                                    %d = tanh_grad(%u, %g)  ops like all others, which read %u

The ops stand behind those that they differentiate, so values are read where they are; a loop
gets a stack port for what its gradient reads. They can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ir.autodiff.activity import Activity
from ir.autodiff.backward_state import Grads
from ir.autodiff.joint import Reverse
from ir.autodiff.residuals import NotDifferentiable
from ir.ops.gradients import zeros
from ir.program import Const, Custom, Input, Node, Op, Program, Value
from ir.rewrite import Block, live_ops
from ir.uses import loop_sizes, walk

Blocks = Sequence[tuple[Sequence[Node], Sequence[Const]]]
OWN = "a PyLayer, a hook or a function with a gradient of its own"
AGAIN = "with create_graph=True its gradient would be differentiated, too, and it has none"


@dataclass(frozen=True, eq=False)
class PullBack:
    """forward: the ops of each block, which hand over more than they did. ops: what computes the
    gradients, in the innermost block. gradients: of each input, or None where the outputs do not
    depend on it. path: the values that have a gradient."""

    forward: tuple[tuple[Node, ...], ...]
    ops: tuple[Node, ...]
    gradients: tuple[Value | None, ...]
    path: frozenset[Value]


def pull_back(
    blocks: Blocks,
    seeds: Sequence[tuple[Value, Value]],
    inputs: Sequence[Value],
    constants: Collection[Value],
    taken: set[str],
    again: bool,
) -> PullBack:
    """The gradients of `inputs`.

    Args:
        blocks: as in `Activity.within`; no op on the way writes.
        seeds: the outputs, each with the gradient that it receives.
        inputs: values that the blocks make or read; what they are made of does not count.
        constants: values that no gradient passes.
        taken: names of sizes.
        again: the result is to be differentiated.

    Raises NotDifferentiable for an op on the way that has no gradient.
    """
    activity = Activity.within(blocks, [v for v, _ in seeds], inputs)
    activity.varies.difference_update(constants)
    shown = {r for ops, _ in blocks for n in ops for r in n.results}
    shared = _Reverse(activity, set(), taken, set(), (), {}, shown)
    shared.again_too = again
    block, grads = Block(), dict[Value, Value]()
    for v, g in seeds:
        shared.add(block, grads, v, g)
    forward = []
    for ops, ports in reversed(blocks):
        forward.append(_differentiated(shared, ops, grads, block))
        for p in ports:
            if p.inner in grads:
                shared.add(block, grads, p.outer, grads[p.inner])
    gradients = tuple(grads.get(v) for v in inputs)
    ops = live_ops(block.ops, [g for g in gradients if g is not None])
    return PullBack(tuple(reversed(forward)), ops, gradients, frozenset(grads))


def with_gradients(program: Program, of: Sequence[int], wrt: Sequence[Value]) -> Program:
    """A program of the gradients with respect to the inputs `wrt`, zeros where there is none. It
    has one more input for each output of `of`: the gradient of that."""
    results = [program.results[k] for k in of]
    seeds = [Value(v.type, f"d_{v.name}" if v.name else "") for v in results]
    taken = {*program.sizes, *loop_sizes(program.ops)}
    back = pull_back([(program.ops, ())], list(zip(results, seeds)), wrt, (), taken, True)
    block = Block()
    outputs = tuple(g or zeros(block, v.type) for g, v in zip(back.gradients, wrt))
    names = (f"grad of {v.name or f'output {k}'}" for k, v in zip(of, results))
    given = (Input(s, "arg", name) for s, name in zip(seeds, names))
    ops = (*back.forward[0], *back.ops, *block.ops)
    return replace(program, inputs=(*program.inputs, *given), ops=ops, outputs=outputs)


def _differentiated(
    shared: Reverse, ops: Sequence[Node], grads: Grads, b: Block
) -> tuple[Node, ...]:
    """Like `Reverse.block`, without nodes that only compute an input."""
    out: list[Node] = []
    for node in reversed(ops):
        varies = not shared.activity.varies.isdisjoint(node.operands)
        if varies and any(r in grads for r in node.results):
            b.loc = node.loc
            out += reversed(shared.node(node, grads, b))
        else:
            out.append(node)
    return tuple(reversed(out))


class _Reverse(Reverse):
    """Customs stay in the forward program, whose own gradient goes through them, too."""

    again_too = False

    def custom(self, c: Custom, grads: Grads, b: Block) -> list[Node]:
        foreign = all(isinstance(n, Op) and n.name == "foreign" for n in c.backward)
        if c.forward or self.again_too and not foreign:
            raise NotDifferentiable(OWN, c.loc, AGAIN)
        super().custom(c, grads, b)
        return [c]


def written(ops: Iterable[Node]) -> list[Value]:
    """Return the values that ops write in place, also inside of loops and branches."""
    nodes = (n for n in walk(ops) if isinstance(n, Op) and n.row.writes)
    return [n.operands[0] for n in nodes]


__all__ = ["PullBack", "pull_back", "with_gradients", "written"]
