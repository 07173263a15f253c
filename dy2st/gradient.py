"""Gradients of a translated call: its forward and its backward program.

A call in gradient mode whose results require a gradient runs the forward program with the values
that the backward program reads as further outputs. The backward program is compiled when it first
runs. `dy2st.autograd` makes both part of Paddle's graph.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.base import core

import executor
from dy2st.arguments import grad_enabled
from dy2st.capture import foreign
from dy2st.capture.fake import DTYPE_TO_PADDLE
from dy2st.capture.trace import Lifted, Trace
from dy2st.results import OutputPlan
from dy2st.stops import Refused
from ir import Dy2stError, Loc, Program, SourceError, Value
from ir.autodiff import Gradient, NotDifferentiable, differentiate
from ir.autodiff.activity import Activity
from ir.passes import run as run_passes
from ir.types import evaluate_dim

#: how many iterations apart loops keep their state: all of them, sqrt(T), or a number
Checkpoint = Any
#: hoisting computes something for all iterations at once: with checkpoints there is no room for it
SPACIOUS = frozenset(("hoist_from_scan",))


@dataclass(eq=False)
class Training:
    """The programs of a call that can be run backwards.

    of: for each output with a gradient, its number among the outputs of `forward`; wrt: the inputs
    that get one. attached: pairs (input, output): an input that is written with a value that
    requires a gradient, and the output that is this value.
    """

    gradient: Gradient
    of: tuple[int, ...]
    wrt: tuple[int, ...]
    attached: tuple[tuple[int, int], ...]
    results: int
    checkpoint: Checkpoint
    _lock: Any = field(default_factory=threading.Lock)
    _executable: Any = None

    def finished(self, program: Program) -> Program:
        """One of the two programs, ready to be compiled."""
        disabled = SPACIOUS if self.checkpoint != "none" else frozenset[str]()
        return run_passes(program, start_at="expand", disabled=disabled)

    @property
    def forward(self) -> Program:
        return self.finished(self.gradient.forward)

    @property
    def executable(self) -> Any:
        """The compiled backward program."""
        with self._lock:
            if self._executable is None:
                program = self.finished(self.gradient.backward)
                self._executable = executor.compile(program, foreign.handler)
            return self._executable

    def backward(
        self, gradients: Mapping[int, Any], residuals: Sequence[Any], sizes: Mapping[str, int]
    ) -> list[Any]:
        """The gradients of the inputs `wrt`; those of outputs that are missing count as zero."""
        run = self.executable
        given = [gradients.get(k) for k in range(len(self.of))]
        missing = zip(run.inputs, given)
        inputs = [empty(i.value, sizes).zero_() if g is None else g for i, g in missing]
        inputs = [t if t.is_contiguous() else t.contiguous() for t in (*inputs, *residuals)]
        outputs = [empty(v, sizes) for v in run.program.outputs]
        run.run(
            tuple(sizes[n] for n in run.sizes),
            tuple(t.data_ptr() or 0 for t in inputs),
            tuple(t.data_ptr() or 0 for t in outputs),
        )
        return outputs


def empty(value: Value, sizes: Mapping[str, int]) -> Any:
    shape = [evaluate_dim(d, sizes) for d in value.type.shape]
    return core.eager.ops.empty(shape, DTYPE_TO_PADDLE[value.type.dtype], paddle.CPUPlace())


def prepare(
    trace: Trace,
    plan: OutputPlan,
    program: Program,
    bound: Sequence[Lifted],
    checkpoint: Checkpoint,
) -> Training | str:
    """The two programs; or why there is no backward program, empty if nothing asks for one."""
    if plan.leaf and grad_enabled():
        return "a result is a tensor that was made inside and requires a gradient of its own"
    written = [k for k, i in enumerate(program.inputs) if i.value in trace.attached]
    wrt = [k for k, q in enumerate(bound) if asks(q)]
    of = [k for k, stop in enumerate(plan.flags) if not stop]
    if not grad_enabled() or not wrt or not (of or written):
        return ""
    values = dict(program.writes)
    written = [k for k in written if program.inputs[k].value in values]
    results = len(program.outputs)
    extended = dataclasses.replace(
        program,
        outputs=(*program.outputs, *(values[program.inputs[k].value] for k in written)),
    )
    of += range(results, len(extended.outputs))
    activity = Activity(extended, of, wrt)
    wrt = [k for k in wrt if activity.active(program.inputs[k].value)]
    if not wrt:
        return ""
    try:
        gradient = differentiate(extended, of, wrt, checkpoint, slots=not written)
    except NotDifferentiable as e:
        if written:
            first = program.inputs[written[0]]
            raise refused_write(first.name, trace.attached[first.value], e) from None
        return str(e)
    pairs = tuple(zip(written, range(results, len(extended.outputs))))
    return Training(gradient, tuple(of), tuple(wrt), pairs, results, checkpoint)


def asks(q: Lifted) -> bool:
    """Whether an input gets a gradient."""
    floating = q.value.type.dtype.kind == "f"
    return floating and q.number is None and not q.tensor.stop_gradient


def refused_write(name: str, loc: Loc, cause: NotDifferentiable) -> Refused:
    return Refused(
        SourceError(
            f"{name} is written in place with a value whose gradient is not known.",
            loc,
            reason=f"{cause}.",
            remedy="Write `value.detach()`, or call the function under paddle.no_grad().",
        )
    )


# ---------------------------------------------------------------- results without a backward
class _Box:
    """Keeps PyLayer from taking the outputs for inputs."""

    def __init__(self, tensors: Sequence[Any], reason: str) -> None:
        self.tensors, self.reason = tensors, reason


class _NoGradient(PyLayer):
    @staticmethod
    def forward(ctx: Any, box: _Box, *inputs: Any) -> Any:
        ctx.reason = box.reason
        return tuple(box.tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise Dy2stError(
            f"dy2st: backward through a translated function: {ctx.reason}. Call the function "
            "under paddle.no_grad(), or train the eager one."
        )


def without_gradient(
    outputs: list[Any], flags: Sequence[bool], inputs: Sequence[Any], reason: str
) -> list[Any]:
    """The outputs, those with `flags` False as results of a node that refuses to run backwards.

    Without a `reason` no gradient goes anywhere: they only say that they require one.
    """
    needs = [t for t in inputs if not t.stop_gradient]
    chosen = [k for k, stop in enumerate(flags) if not stop]
    if not chosen:
        return outputs
    if not reason:
        for k in chosen:
            outputs[k].stop_gradient = False
        return outputs
    if not needs:
        needs = [paddle.zeros([1])]
        needs[0].stop_gradient = False
    with paddle.enable_grad():
        new = _NoGradient.apply(_Box([outputs[k] for k in chosen], reason), *needs)
    out = list(outputs)
    for k, t in zip(chosen, new if isinstance(new, tuple) else (new,)):
        out[k] = t
    return out
