"""A translated call in Paddle's graph: native nodes, and hooks that run the backward program.

    asked inputs -> view -> one element each --concat--> token -> view -> results
                    hook:                       hook:              hook:
                    its gradient                run backward       note what arrived

The elements carry no values that matter: hooks replace every gradient that passes, and a tensor at
either end is given other memory than its node has made, so that no kernel of the graph touches more
than one element of a tensor. Paddle's engine does the rest: order, accumulation, hooks of the user,
`paddle.grad`, the error of a second backward through a graph that was not retained. (A `PyLayer`
cannot stand here: Paddle 3.3 crashes when its node runs twice, also with retain_graph.)
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import paddle
from paddle.base import core

from dy2st.compiled.backward_errors import raises
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
_ZEROS: dict[tuple[object, str, int], Tensor] = {}


class Node:
    """One call. It lives as long as its results do."""

    def __init__(self, training: Training, inputs: Sequence[Tensor], where: Where) -> None:
        self.training, self.inputs, self.where = training, inputs, where
        self.versions = [t.inplace_version for t in inputs] if training.program else []
        self.arrived: dict[int, Tensor] = {}
        self.gradients: list[Tensor | None] = []
        self.kept: Kept | None = None
        wrt = enumerate(training.wrt)
        self.leaves = {k: inputs[i] for k, i in wrt if inputs[i].is_leaf}
        pieces = [self.piece(k, inputs[i]) for k, i in enumerate(training.wrt)]
        joined = ops.concat(pieces, 0)
        joined._register_grad_hook(raises(self.run))
        self.tokens: dict[object, Tensor] = {paddle.float32: joined}

    def piece(self, k: int, tensor: Tensor) -> Tensor:
        """One element of an input: behind a view whose hook gives the gradient."""
        one = ops.reshape(tensor, [-1])
        one._register_grad_hook(lambda g: self.gradient(k))
        if 0 in tensor.shape:
            one = ops.reshape(paddle.sum(one), [1])
        else:
            one.get_tensor()._share_data_with(zeros(tensor.dtype, tensor.place).get_tensor())
        return one if one.dtype == paddle.float32 else ops.cast(one, paddle.float32)

    def result(self, k: int, shape: list[int], dtype: object) -> Tensor:
        """Memory for output k of those with a gradient."""
        if 0 in shape:
            made = ops.expand(ops.slice(self.token(dtype), [0], [0], [1], [1], []), shape)
            self.listen(k, made, 1)
            return ops.reshape(made, shape)
        made = ops.reshape(self.token(dtype), [-1])
        self.listen(k, made, len(self.training.wrt))
        memory = empty(shape, dtype, self.where.place)
        made.get_tensor()._share_data_with(memory.get_tensor())
        return ops.reshape(made, shape)

    def token(self, dtype: object) -> Tensor:
        """Shared by results of floats; Paddle does not add up gradients of integers."""
        if dtype not in (paddle.float32, paddle.float64, paddle.float16):
            return ops.cast(self.tokens[paddle.float32], dtype)
        if dtype not in self.tokens:
            self.tokens[dtype] = ops.cast(self.tokens[paddle.float32], dtype)
        return self.tokens[dtype]

    def listen(self, k: int, made: Tensor, count: int) -> None:
        """Note the gradient that arrives at `made`, and pass so many zeros on."""
        zero = zeros(made.dtype, made.place, count)

        def hook(g: Tensor) -> Tensor:
            self.arrived[k] = g
            return zero

        made._register_grad_hook(hook)

    def filled(self, k: int, source: Tensor) -> Tensor:
        """As `result`, with the values of a tensor."""
        made = self.result(k, source.shape, source.dtype)
        if 0 not in source.shape:  # else the copy would take the flag of the source
            with paddle.no_grad():
                made.copy_(source, True)
        return made

    def attach(self, k: int, tensor: Tensor) -> None:
        """A tensor that the program has written becomes result k of those with a gradient.

        Its memory stays as it is: the source of the assignment is given the same.
        """
        made = ops.reshape(self.token(tensor.dtype), [-1])
        self.listen(k, made, len(self.training.wrt))
        made.get_tensor()._share_data_with(tensor.get_tensor())
        paddle.assign(made, output=tensor)

    def close(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: Mapping[str, int]
    ) -> None:
        """The program has run: attach what it has written, and keep what backward will read."""
        for i, k in self.training.attached:
            self.attach(self.training.of.index(k), inputs[i])
        self.kept = Kept(self.training, inputs, outputs, sizes)
        self.tokens.clear()

    # ------------------------------------------------------------ backwards
    def run(self, g: Tensor) -> None:
        """All gradients of the results have arrived."""
        asked = caller()
        arrived, self.arrived = self.arrived, {}
        if asked.get("create_graph"):
            self.gradients = list(self.with_graph(arrived))
            return
        assert self.kept is not None, "Paddle's own nodes refuse a second backward"
        kept = self.kept
        backward = self.training.compiled(arrived)
        kept.check(backward.read)
        if not asked.get("retain_graph", True):
            self.kept = None
        where = self.training.device.where([*arrived.values(), *kept.residuals])
        self.gradients = self.training.backward(arrived, kept.residuals, kept.sizes, where)
        if self.kept is None:
            self.inputs = ()
            kept.hand_on(where)
        without = [self.leaves[k] for k in backward.unreached if k in self.leaves]
        leave_without([t for t in without if t.grad is None])

    def with_graph(self, arrived: Mapping[int, Tensor]) -> list[Tensor]:
        """The gradients of the inputs, as results of another translated call: of a program that
        computes them from the inputs and from the gradients that have arrived."""
        assert self.kept is not None, "Paddle's own nodes refuse a second backward"
        order = tuple(sorted(arrived))
        given = [arrived[k] for k in order]
        asking = tuple(k for k, g in zip(order, given) if not g.stop_gradient)
        try:
            complex = any(g.is_complex() for g in given)
            if self.training.program is None or self.kept.counted or complex:
                raise NotDifferentiable("the function", why=WRITES)
            self.check_inputs()
            training = self.training.again(order, asking)
        except NotDifferentiable as e:
            raise Dy2stError(
                f"dy2st: create_graph=True through a translated function from outside: {e}. Call "
                "paddle.grad inside of the translated function, or use the eager function."
            ) from None
        return called(training, [*self.inputs, *given], self.kept.sizes)

    def check_inputs(self) -> None:
        if [t.inplace_version for t in self.inputs] != self.versions:
            raise RuntimeError(
                "an argument or parameter of a translated function, which is needed for the "
                "gradient computation, has been modified by an inplace operation."
            )

    def gradient(self, k: int) -> Tensor | None:
        found, self.gradients[k] = self.gradients[k], None
        return found


def zeros(dtype: object, place: object, count: int = 1) -> Tensor:
    """What all elements of the graph are."""
    key = (dtype, str(place), count)
    if key not in _ZEROS:
        with paddle.no_grad():
            _ZEROS[key] = ops.full([count], 0, dtype, place)
    return _ZEROS[key]


def called(training: Training, inputs: Sequence[Tensor], sizes: Mapping[str, int]) -> list[Tensor]:
    """The results of the forward program, with a node."""
    run = training.run
    with paddle.enable_grad():
        inputs = [t if t.is_contiguous() else ops.assign(t) for t in inputs]
        where = training.device.where(inputs)
        node, outputs = Node(training, inputs, where), []
        for k, v in enumerate(run.program.outputs):
            shape = [evaluate_dim(d, sizes) for d in v.type.shape]
            dtype = DTYPE_TO_PADDLE[v.type.dtype]
            own = k < training.results
            outputs.append(
                node.result(k, shape, dtype) if own else training.spare.take(k, shape, dtype, where)
            )
        run_with(run, where, sizes, inputs, outputs)
        node.close(inputs, outputs, sizes)
    return outputs[: training.results]


def leave_without(tensors: Sequence[Tensor]) -> None:
    """Parameters that eager's backward does not reach have no gradient after it, not zeros."""

    def at_the_end() -> None:
        for t in tensors:
            if t.grad is not None and not bool(t.grad.any()):
                t.clear_gradient(False)

    if tensors:
        core.eager._add_backward_final_hook(at_the_end)


def caller() -> Mapping[str, object]:
    """The arguments of Paddle's function that runs backward."""
    frame = sys._getframe(1)
    for _ in range(8):
        if "retain_graph" in frame.f_code.co_varnames:
            return frame.f_locals
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}


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


__all__ = ["Kept", "Node"]
