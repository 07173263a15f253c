"""A translated call in Paddle's graph: one node, whose backward runs the backward program.

The node is that of a `PyLayer`, and gives all gradients at once. Paddle's engine does the rest:
order, accumulation, `paddle.grad`, hooks of the user.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.base import core

from dy2st.compiled.autograd_engine import BackwardPass, current, listen
from dy2st.compiled.foreign_kernels import Placement, empty, run_with
from dy2st.compiled.training import TrainingPrograms
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, Tensor
from ir import Dy2stError
from ir.autodiff import NotDifferentiable
from ir.types import evaluate_dim

ops: Any = core.eager.ops
WRITES = (
    "one that writes in place, prints, draws numbers, calls kernels of Paddle, has complex numbers \
or a loop of an unknown length"
)
#: for inputs of the backward program that only name a size
EMPTY = ops.empty([0], paddle.float32, paddle.CPUPlace())


class CallNode:
    """One call that has run. It lives as long as its results do.

    kept: what the backward program reads, None when that has been given back. Tensors that the user
    sees are kept detached: a result must not keep its own graph alive. `seen` are these: number,
    tensor, version, name. context: that of Paddle's node, until there is one.
    """

    __slots__ = (
        "__weakref__", "context", "inputs", "kept", "leaves", "outputs", "seen", "sizes",
        "training", "versions", "where",
    )  # fmt: skip

    def __init__(
        self,
        training: TrainingPrograms,
        inputs: Sequence[Tensor],
        sizes: Mapping[str, int],
        where: Placement,
    ) -> None:
        self.training, self.sizes, self.where = training, sizes, where
        self.inputs: Sequence[Tensor] = ()
        self.context: object = None
        if training.program:
            self.inputs, self.versions = inputs, [t.inplace_version for t in inputs]
        if training.misses:
            asked = [inputs[k] for k in training.wrt]
            self.leaves = [t if t.is_leaf else None for t in asked]

    def keep(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Keep the tensors that the backward program reads; the call does not write to them any
        more."""
        training, kept, seen = self.training, [], []
        for k, (source, index, name) in enumerate(training.residuals):
            if source == "kept":
                tensor = outputs[index]
            elif source == "capacity":
                tensor = EMPTY
            else:
                tensor = (outputs if source == "output" else inputs)[index]
                if source != "input" or not tensor.is_leaf:
                    tensor = tensor.detach()
                seen.append((k, tensor, tensor.inplace_version, name))
            kept.append(tensor)
        self.kept: list[Tensor] | None = kept
        self.seen: list[tuple[int, Tensor, int, str]] = seen

    def results(self, asked: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs with a gradient, as results of a node with these inputs."""
        self.outputs = tuple(outputs)
        made: Sequence[Tensor] = _apply(self, [anchor(), *asked])
        context, self.context = self.context, None
        for k, tensor in enumerate(made):
            listen(tensor, context, k)
        return made

    # ------------------------------------------------------------ backwards
    def run(
        self, asked: BackwardPass, gradients: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        """The gradients of the asked inputs, of those of the results that have arrived."""
        kept, training, where = self.kept, self.training, self.where
        if kept is None:
            raise SystemError(
                "the backward pass of a translated function runs a second time, but its graph was "
                "not retained. Call the first `backward` with retain_graph=True."
            )
        if asked.create_graph:
            return self.with_graph({k: g for k, g in enumerate(gradients) if g is not None})
        backward = training.arrived(gradients)
        self.check(backward.read)
        if not training.device.on_host:
            where = training.device.where([*(g for g in gradients if g is not None), *kept])
        if asked.consumes:
            self.kept = None
        found = backward.call(gradients, kept, self.sizes, where)
        if asked.consumes:
            self.inputs = ()
            training.hand_on(kept, where)
        if backward.unreached:
            without = [t for k in backward.unreached if (t := self.leaves[k]) is not None]
            leave_without([t for t in without if t.grad is None])
        for g in found:  # as gradients of Paddle's own nodes say of themselves
            g.stop_gradient = False
        return found

    def check(self, read: Collection[int]) -> None:
        """Raises RuntimeError if one of the residuals that are read has been overwritten."""
        for k, tensor, version, name in self.seen:
            if tensor.inplace_version != version and k in read:
                raise RuntimeError(
                    f"{name}, which is needed for the gradient computation, has been modified by "
                    f"an inplace operation. Its version is {tensor.inplace_version} but the "
                    f"expected version is {version}. Do not write to it between forward and "
                    "backward, or pass a clone."
                )

    def with_graph(self, arrived: Mapping[int, Tensor]) -> list[Tensor]:
        """The gradients of the inputs, as results of another translated call: of a program that
        computes them from the inputs and from the gradients that have arrived."""
        order = tuple(sorted(arrived))
        given = [arrived[k] for k in order]
        asking = tuple(k for k, g in zip(order, given) if not g.stop_gradient)
        try:
            complex = any(g.is_complex() for g in given)
            counted = len(self.sizes) > len(self.training.gradient.forward.sizes)
            if self.training.program is None or counted or complex:
                raise NotDifferentiable(WRITES, why="it has one gradient only")
            self.check_inputs()
            training = self.training.again(order, asking)
        except NotDifferentiable as e:
            raise Dy2stError(
                f"dy2st: create_graph=True from outside, through a translated function: {e}. Call "
                "paddle.grad inside of the translated function, or use the eager function."
            ) from None
        return called(training, [*self.inputs, *given], self.sizes)

    def check_inputs(self) -> None:
        if [t.inplace_version for t in self.inputs] != self.versions:
            raise RuntimeError(
                "an argument or parameter of a translated function, which is needed for the "
                "gradient computation, has been modified by an inplace operation."
            )


@functools.cache
def anchor() -> Tensor:
    """The first input of all nodes, without a gradient.

    Inputs are one list, and if the first one of a list asks for no gradient (it may be one of the
    `no_grad_vars` of paddle.grad), then Paddle wants none for the list.
    """
    made = paddle.zeros([1])
    made.stop_gradient = False
    return made


class _CallFunction(PyLayer):
    @staticmethod
    def forward(
        ctx: paddle.autograd.PyLayerContext, node: CallNode, inputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        ctx.node, node.context = node, ctx
        ctx.materialize_grads = False
        made, node.outputs = node.outputs, ()
        return made

    @staticmethod
    def backward(ctx: paddle.autograd.PyLayerContext, *gradients: Tensor | None) -> object:
        this = current()
        this.ran.append(ctx)
        if this.hooked:
            gradients = tuple(this.hooked.pop((ctx, k), g) for k, g in enumerate(gradients))
        try:
            return ([None, *ctx.node.run(this, gradients)],)
        except BaseException as error:
            this.error = error
            raise


_apply = _CallFunction.apply


def same_memory(tensor: Tensor) -> Tensor:
    """Like `detach`, whose result Paddle takes for the tensor itself where it is an input, too."""
    made = empty([1], tensor.dtype, tensor.place)
    made.get_tensor()._share_data_with(tensor.get_tensor())
    return made


def recorded(
    training: TrainingPrograms,
    inputs: Sequence[Tensor],
    outputs: list[Tensor],
    sizes: Mapping[str, int],
    where: Placement,
) -> list[Tensor]:
    """The outputs of a program that has run, those with a gradient as results of a node.

    Inputs that it has written become such results themselves.
    """
    node, of = CallNode(training, inputs, sizes, where), training.of
    asked = [inputs[k] for k in training.wrt]
    if not training.attached:
        for k, made in zip(of, node.results(asked, [outputs[k] for k in of])):
            outputs[k] = made
        node.keep(inputs, outputs)
        return outputs
    attached = {k: inputs[i] for i, k in training.attached}
    given = [same_memory(attached[k]) if k in attached else outputs[k] for k in of]
    for k, made in zip(of, node.results(asked, given)):
        if k in attached:
            paddle.assign(made, output=attached[k])
        else:
            outputs[k] = made
    node.keep(inputs, outputs)
    return outputs


def called(
    training: TrainingPrograms, inputs: Sequence[Tensor], sizes: Mapping[str, int]
) -> list[Tensor]:
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
                else training.pool.take(k, shape, dtype, where)
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


__all__ = ["CallNode", "recorded"]
