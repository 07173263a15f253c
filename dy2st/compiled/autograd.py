"""A translated call in Paddle's graph: one node, whose backward runs the backward program.

    asked inputs -> node -> view -> results

The node is that of a `PyLayer`, and gives all gradients at once. Paddle's engine does the rest:
order, accumulation, `paddle.grad`, hooks of the user (which a `PyLayer` does not listen to: the
views do), the error of a second backward through a graph that was not retained (from the views).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.base import core

from dy2st.compiled.engine import Again, current, raises
from dy2st.compiled.kernels import Where, empty, run_with
from dy2st.compiled.training import Training
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, Tensor
from ir import Dy2stError
from ir.autodiff import NotDifferentiable
from ir.types import evaluate_dim

ops: Any = core.eager.ops
WRITES = (
    "it writes in place, prints, draws numbers, calls kernels of Paddle, has complex numbers, or a \
loop of an unknown length"
)
#: for inputs of the backward program that only name a size
EMPTY = ops.empty([0], paddle.float32, paddle.CPUPlace())
#: the order of the axes of a tensor of each rank
AXES = [list(range(n)) for n in range(32)]


class Node:
    """One call that has run. It lives as long as its results do."""

    __slots__ = ("__weakref__", "inputs", "kept", "leaves", "training", "versions", "where")

    def __init__(self, training: Training, inputs: Sequence[Tensor], where: Where) -> None:
        self.training, self.inputs, self.where = training, inputs, where
        self.versions = [t.inplace_version for t in inputs] if training.program else []
        asked = [inputs[k] for k in training.wrt]
        self.leaves = [t if t.is_leaf else None for t in asked]
        self.kept: Kept | None = None

    def results(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs with a gradient, as results of the node."""
        held = _Held(self, outputs)
        made = _Call.apply(held, [anchor(), *[self.inputs[k] for k in self.training.wrt]])
        made[0]._register_grad_hook(Again(held.context))
        return [ops.transpose(t, AXES[t.ndim]) for t in made]

    # ------------------------------------------------------------ backwards
    def run(self, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the asked inputs, of those of the results that have arrived."""
        asked, kept = current(), self.kept
        if kept is None:
            raise RuntimeError(
                "the backward pass of a translated function runs a second time, but its graph was "
                "not retained. Call the first `backward` with retain_graph=True."
            )
        if asked.create_graph:
            return self.with_graph({k: g for k, g in enumerate(gradients) if g is not None}, kept)
        if asked.consumes:
            self.kept = None
        backward = self.training.arrived(gradients)
        if kept.versions:
            kept.check(backward.read)
        where = self.where
        if not self.training.device.on_host:
            there = [g for g in gradients if g is not None]
            where = self.training.device.where([*there, *kept.residuals])
        found = backward.call(gradients, kept.residuals, kept.sizes, where)
        if asked.consumes:
            self.inputs = ()
            kept.hand_on(where)
        if backward.unreached:
            without = [t for k in backward.unreached if (t := self.leaves[k]) is not None]
            leave_without([t for t in without if t.grad is None])
        for g in found:  # as gradients of Paddle's own nodes say of themselves
            g.stop_gradient = False
        return found

    def with_graph(self, arrived: Mapping[int, Tensor], kept: Kept) -> list[Tensor]:
        """The gradients of the inputs, as results of another translated call: of a program that
        computes them from the inputs and from the gradients that have arrived."""
        order = tuple(sorted(arrived))
        given = [arrived[k] for k in order]
        asking = tuple(k for k, g in zip(order, given) if not g.stop_gradient)
        try:
            complex = any(g.is_complex() for g in given)
            if self.training.program is None or kept.counted or complex:
                raise NotDifferentiable("the function", why=WRITES)
            self.check_inputs()
            training = self.training.again(order, asking)
        except NotDifferentiable as e:
            raise Dy2stError(
                f"dy2st: create_graph=True through a translated function from outside: {e}. Call "
                "paddle.grad inside of the translated function, or use the eager function."
            ) from None
        return called(training, [*self.inputs, *given], kept.sizes)

    def check_inputs(self) -> None:
        if [t.inplace_version for t in self.inputs] != self.versions:
            raise RuntimeError(
                "an argument or parameter of a translated function, which is needed for the "
                "gradient computation, has been modified by an inplace operation."
            )


class _Held:
    """Keeps PyLayer from taking the outputs for inputs."""

    __slots__ = ("context", "node", "outputs")

    def __init__(self, node: Node, outputs: Sequence[Tensor]) -> None:
        self.node, self.outputs = node, outputs
        self.context: object = None


@functools.cache
def anchor() -> Tensor:
    """The first input of all nodes, without a gradient.

    Inputs are one list, and if the first one of a list asks for no gradient (it may be one of the
    `no_grad_vars` of paddle.grad), then Paddle wants none for the list.
    """
    made = paddle.zeros([1])
    made.stop_gradient = False
    return made


class _Call(PyLayer):
    @staticmethod
    def forward(
        ctx: paddle.autograd.PyLayerContext, held: _Held, inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        held.context, ctx.node = ctx, held.node
        ctx.set_materialize_grads(False)
        return tuple(held.outputs)

    @staticmethod
    @raises
    def backward(ctx: paddle.autograd.PyLayerContext, *gradients: Tensor | None) -> object:
        node: Node = ctx.node
        return ([None, *node.run(gradients)],)


def same_memory(tensor: Tensor) -> Tensor:
    """As `detach`, whose result Paddle takes for the tensor itself where it is an input too."""
    made = empty([1], tensor.dtype, tensor.place)
    made.get_tensor()._share_data_with(tensor.get_tensor())
    return made


def recorded(
    training: Training,
    inputs: Sequence[Tensor],
    outputs: list[Tensor],
    sizes: Mapping[str, int],
    where: Where,
) -> list[Tensor]:
    """The outputs of a program that has run, those with a gradient as results of a node.

    Inputs that it has written become such results themselves.
    """
    node, attached = Node(training, inputs, where), {k: i for i, k in training.attached}
    given = [same_memory(inputs[attached[k]]) if k in attached else outputs[k] for k in training.of]
    for k, made in zip(training.of, node.results(given)):
        if k in attached:
            paddle.assign(made, output=inputs[attached[k]])
        else:
            outputs[k] = made
    node.kept = Kept(training, inputs, outputs, sizes)
    return outputs


def called(training: Training, inputs: Sequence[Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """The results of the forward program, with a node."""
    run = training.run
    with paddle.enable_grad():
        inputs = [t if t.is_contiguous() else ops.assign(t) for t in inputs]
        where = training.device.where(inputs)
        outputs = []
        for k, v in enumerate(run.program.outputs):
            shape = [evaluate_dim(d, sizes) for d in v.type.shape]
            dtype = DTYPE_TO_PADDLE[v.type.dtype]
            own = k < training.results
            outputs.append(
                empty(shape, dtype, where.place)
                if own
                else training.spare.take(k, shape, dtype, where)
            )
        run_with(run, where, sizes, inputs, outputs)
        if all(inputs[k].stop_gradient for k in training.wrt):
            return outputs[: training.results]
        return recorded(training, inputs, outputs, sizes, where)[: training.results]


def leave_without(tensors: Sequence[Tensor]) -> None:
    """Parameters that eager's backward does not reach have no gradient after it, not zeros."""

    def at_the_end() -> None:
        for t in tensors:
            if t.grad is not None and not bool(t.grad.any()):
                t.clear_gradient(False)

    if tensors:
        core.eager._add_backward_final_hook(at_the_end)


class Kept:
    """What the backward program reads, with the versions that it must still have.

    Tensors that the user sees are kept detached: a result must not keep its own graph alive.
    """

    def __init__(
        self,
        training: Training,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sizes: Mapping[str, int],
    ) -> None:
        self.sizes, self.training = sizes, training
        self.counted = len(sizes) > len(training.gradient.forward.sizes)
        self.residuals: list[Tensor] = []
        self.versions: list[tuple[int, Tensor, int, str]] = []
        for k, r in enumerate(training.gradient.residuals):
            if r.source == "room":
                self.residuals.append(EMPTY)
                continue
            own = r.source == "kept"
            tensor = (outputs if own or r.source == "output" else inputs)[r.index]
            if not own:
                name = "a result of the call" if r.source == "output" else r.name
                tensor = tensor if tensor.is_leaf and r.source == "input" else tensor.detach()
                self.versions.append((k, tensor, tensor.inplace_version, name))
            self.residuals.append(tensor)

    def hand_on(self, where: Where) -> None:
        """The next call may have the memory of what only the backward program has read."""
        for r, tensor in zip(self.training.gradient.residuals, self.residuals):
            if r.source == "kept":
                self.training.spare.give(r.index, tensor, where)

    def check(self, read: Collection[int]) -> None:
        """Raises RuntimeError if one of the residuals that are read has been overwritten."""
        for k, tensor, version, name in self.versions:
            if k in read and tensor.inplace_version != version:
                raise RuntimeError(
                    f"{name}, which is needed for the gradient computation, has been modified by "
                    f"an inplace operation. Its version is {tensor.inplace_version} but the "
                    f"expected version is {version}. Do not write to it between forward and "
                    "backward, or pass a clone."
                )


__all__ = ["Kept", "Node", "recorded"]
