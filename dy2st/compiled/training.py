"""Gradients of a translated call: its forward and its backward program.

A call in gradient mode whose results require a gradient runs the forward program with the values
that the backward program reads as further outputs. The backward program is compiled when it first
runs. `dy2st.compiled.autograd` makes both part of Paddle's graph.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.base import core

from dy2st.compiled.autograd_engine import layout, raises
from dy2st.compiled.foreign_kernels import (
    CPU,
    HOST,
    Compiled,
    Device,
    Placement,
    addresses_text,
    allocator,
    code_of,
    empty,
    run_on,
    shape_text,
    tuple_text,
)
from dy2st.compiled.garbage_collection import collector_waits
from dy2st.results.leaves import OutputPlan
from dy2st.state.signature import grad_enabled
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, Tensor
from dy2st.trace.signals import SAVED, Refused
from dy2st.trace.trace import Trace, TracedInput
from ir import Dy2stError, Loc, Program, Slot, Value
from ir.autodiff import Gradient, NotDifferentiable, differentiate
from ir.autodiff.activity import Activity
from ir.autodiff.checkpoint import Checkpoint, PerLoopPolicy, keeps_all
from ir.autodiff.partial_backward import inputs_read, unreached, with_arrived
from ir.autodiff.pullback import with_gradients
from ir.passes import run as run_passes
from ir.types import Type, complex_type, product
from ir.uses import dim_names, has_effect, walk

ops: Any = core.eager.ops
#: hoisting computes something for all iterations at once: with checkpoints there is no room for it
SPACIOUS = frozenset(("hoist_from_scan", "split_loops"))
#: bytes from which a tensor has pages of its own, and of the largest one that is held
PAGES, MOST_HELD = 1 << 16, 1 << 25


@dataclass(frozen=True)
class BackwardProgram:
    """The backward program for some gradients: the numbers of the residuals that it `read`s, those
    of `wrt` that none of the gradients reaches, and the Python that takes the gradients of the
    results, the residuals, the sizes and the place, and gives those of the inputs `wrt`."""

    executable: Any
    read: frozenset[int]
    unreached: frozenset[int]
    call: Callable[..., list[Tensor]]


class BufferPool:
    """Memory of residuals that a backward pass has read, for the next forward pass.

    Memory fresh from the system costs more than what a program writes to it: the system fills each
    page when it is touched first. Small tensors have none of their own, and huge ones would stay
    although nobody may need them again.
    """

    def __init__(self) -> None:
        self.held: dict[int, tuple[Tensor, Placement]] = {}

    def take(self, k: int, shape: list[int], dtype: object, where: Placement) -> Tensor:
        """Memory for output `k` of the forward program."""
        tensor, last = self.held.pop(k, (None, where))
        if tensor is not None and tensor.shape == shape and last == where:
            return tensor
        return empty(shape, dtype, where.place)

    def give(self, k: int, tensor: Tensor, where: Placement) -> None:
        """Nobody reads what output `k` of a call holds any more, once the work there is done."""
        if spares(prod(tensor.shape) * tensor.element_size()):
            self.held[k] = tensor, where


@dataclass(eq=False)
class TrainingPrograms:
    """The programs of a call that can be run backwards.

    of: for each output with a gradient, its number among the outputs of `forward`; wrt: the inputs
    that get one. attached: pairs (input, output): an input that is written with a value that
    requires a gradient, and the output that is its slot. complex: those of `wrt`, by their number,
    that are complex tensors. program: what the two were made of, if that can be made again.
    """

    gradient: Gradient
    of: tuple[int, ...]
    wrt: tuple[int, ...]
    attached: tuple[tuple[int, int], ...]
    results: int
    checkpoint: Checkpoint
    pool: BufferPool = field(default_factory=BufferPool)
    device: Device = CPU
    complex: frozenset[int] = frozenset()
    program: Program | None = None
    _lock: Any = field(default_factory=threading.Lock)
    _compiled: dict[frozenset[int], BackwardProgram] = field(default_factory=dict)
    _arrived: dict[tuple[bool, ...], BackwardProgram] = field(default_factory=dict)
    _again: dict[tuple[tuple[int, ...], ...], TrainingPrograms] = field(default_factory=dict)

    def finished(self, program: Program) -> Program:
        """One of the two programs, ready to be compiled."""
        disabled = frozenset[str]() if keeps_all(self.checkpoint) else SPACIOUS
        return run_passes(program, start_at="expand", disabled=disabled)

    @property
    def forward(self) -> Program:
        return self.finished(self.gradient.forward)

    def compiled(self, arrived: Iterable[int]) -> BackwardProgram:
        """For the gradients that are there."""
        given, key = len(self.of), frozenset(arrived)
        if key in self._compiled:
            return self._compiled[key]
        with self._lock:
            if key not in self._compiled:
                with collector_waits():
                    self._compiled[key] = self._backward(given, key)
            return self._compiled[key]

    def _backward(self, given: int, arrived: frozenset[int]) -> BackwardProgram:
        backward = self.gradient.backward
        program = with_arrived(backward, given, arrived)
        read = frozenset(k - given for k in inputs_read(program) if k >= given)
        run = self.device.compiled(self.finished(program))
        call = self._call(run, arrived)
        return BackwardProgram(run, read, unreached(backward, given, arrived), call)

    @functools.cached_property
    def run(self) -> Any:
        """The compiled forward program."""
        return self.device.compiled(self.forward)

    def again(self, arrived: tuple[int, ...], asking: tuple[int, ...]) -> TrainingPrograms:
        """The programs of a call that computes the gradients of `wrt` and can be run backwards. It
        takes the inputs of this one, and the gradients that have arrived; those of `asking` get a
        gradient themselves. Raises NotDifferentiable."""
        with self._lock:
            if (arrived, asking) not in self._again:
                with collector_waits():
                    self._again[arrived, asking] = self._differentiated(arrived, asking)
            return self._again[arrived, asking]

    def _differentiated(
        self, arrived: tuple[int, ...], asking: tuple[int, ...]
    ) -> TrainingPrograms:
        assert self.program is not None
        of, wrt = [self.of[k] for k in arrived], [self.program.inputs[k].value for k in self.wrt]
        program = with_gradients(self.program, of, wrt)
        first = len(self.program.inputs)
        asked = (*self.wrt, *(first + arrived.index(k) for k in asking))
        every = tuple(range(len(program.outputs)))
        gradient = differentiate(program, every, asked, self.checkpoint, slots=False)
        return TrainingPrograms(
            gradient, every, asked, (), len(every), self.checkpoint, device=self.device,
            program=program,
        )  # fmt: skip

    @property
    def executable(self) -> object:
        """The compiled backward program for gradients of all results."""
        return self.compiled(range(len(self.of))).executable

    @functools.cached_property
    def residuals(self) -> list[tuple[str, int, str]]:
        """Source, index and the name for the user of each."""
        of = self.gradient.residuals
        result = "a result of the call"
        return [(r.source, r.index, result if r.source == "output" else r.name) for r in of]

    @functools.cached_property
    def spared(self) -> list[tuple[int, int]]:
        """The residuals whose memory may serve again: number, and output of the program."""
        pairs = enumerate(self.gradient.residuals)
        return [(k, r.index) for k, r in pairs if r.source == "kept" and self.may_spare(r.index)]

    def hand_on(self, kept: Sequence[Tensor], where: Placement) -> None:
        """The next call may have the memory of what only the backward program has read."""
        for k, index in self.spared:
            self.pool.give(index, kept[k], where)

    @functools.cached_property
    def misses(self) -> bool:
        """Whether a backward pass may reach only some of `wrt`."""
        every = frozenset(range(len(self.of)))
        return len(every) > 1 or bool(unreached(self.gradient.backward, len(every), every))

    def may_spare(self, k: int) -> bool:
        """Whether output `k` of the forward program is one that only the backward program reads,
        and may be of a size for which `spare` is made."""
        type = self.gradient.forward.outputs[k].type
        count = product(type.shape)
        return k >= self.results and (not isinstance(count, int) or spares(count * type.dtype.size))

    def arrived(self, gradients: Sequence[Tensor | None]) -> BackwardProgram:
        """For these gradients of the results; those that are missing count as zero."""
        key = tuple([g is not None for g in gradients])
        found = self._arrived.get(key)
        if found is None:
            found = self.compiled(k for k, there in enumerate(key) if there)
            self._arrived[key] = found
        return found

    def _call(self, run: Compiled, arrived: Collection[int]) -> Callable[..., list[Tensor]]:
        """Python that calls the backward program."""
        names: dict[str, object] = {"_RUN": run.run, "_RUN_ON": run_on, "_ASSIGN": ops.assign}
        names["_HOST"], place = HOST.place, "_HOST" if self.device.on_host else "_where.place"
        given = [f"_g{k}" for k in range(len(self.of))]
        kept = [f"_r{k}" for k in range(len(self.gradient.residuals))]
        made = [f"_o{k}" for k in range(len(run.program.outputs))]
        lines = [f"{tuple_text(q)}= {of}" for q, of in ((given, "_gs"), (kept, "_rs")) if q]
        types = (*(i.value.type for i in run.inputs), *(v.type for v in run.program.outputs))
        lines += [f"{n} = _sizes[{n!r}]" for n in sorted(dim_names(types).union(run.sizes))]

        def allocate(name: str, type: Type) -> None:
            make, dtype = f"_MAKE{name}", f"_DTYPE{name}"
            names[make], names[dtype] = allocator(type.shape), DTYPE_TO_PADDLE[type.dtype]
            lines.append(f"{name} = {make}({shape_text(type.shape)}, {dtype}, {place})")

        for k, (name, i) in enumerate(zip(given, run.inputs)):
            if k not in arrived:  # it is not read
                allocate(name, i.value.type)
        own = {f"_r{k}" for k, r in enumerate(self.gradient.residuals) if r.source == "kept"}
        for name in (*given, *kept):
            if name not in own:
                lines.append(f"if not {name}.is_contiguous(): {name} = _ASSIGN({name})")
        for k, (name, v) in enumerate(zip(made, run.program.outputs)):
            allocate(name, complex_type(v.type) if k in self.complex else v.type)
        start = "_RUN(" if self.device.on_host else "_RUN_ON(_RUN, _where, "
        addresses = f"({addresses_text((*given, *kept))}), ({addresses_text(made)})"
        lines += [f"{start}({tuple_text(run.sizes)}), {addresses})", f"return [{tuple_text(made)}]"]
        source = "def call(_gs, _rs, _sizes, _where):\n" + "".join(f"    {q}\n" for q in lines)
        exec(code_of(source), names)
        return names["call"]  # type: ignore[return-value]


def spares(size: int) -> bool:
    return PAGES <= size <= MOST_HELD


def prepare(
    trace: Trace,
    plan: OutputPlan,
    program: Program,
    bound: Sequence[TracedInput],
    checkpoint: Checkpoint,
    quiet: Collection[Value] = (),
    device: Device = CPU,
) -> TrainingPrograms | str:
    """The two programs; or why there is no backward program, empty if nothing asks for one.

    quiet: inputs that Paddle's calls write without moving the version. What is kept of them for
    the backward program is a copy: nothing would tell that they have been written again.
    """
    if SAVED.get():
        return ""
    if plan.leaf and grad_enabled():
        return "a result is a tensor that was made inside and requires a gradient of its own"
    written = [k for k, i in enumerate(program.inputs) if i.value in trace.aliasing.attached]
    wrt = [k for k, q in enumerate(bound) if asks(q)]
    of = [k for k, stop in enumerate(plan.flags) if not stop]
    if not grad_enabled() or not wrt or not (of or written):
        return ""
    values = dict(program.writes)
    written = [k for k in written if program.inputs[k].value in values]
    results = len(program.outputs)
    extended = dataclasses.replace(
        program,
        outputs=(*program.outputs, *(Slot(program.inputs[k].value) for k in written)),
    )
    of += range(results, len(extended.outputs))
    activity = Activity(extended, of, wrt)
    wrt = [k for k in wrt if activity.active(program.inputs[k].value)]
    if not wrt:
        return ""
    try:
        slots = [k for k, i in enumerate(program.inputs) if i.value not in quiet]
        if trace.checkpoints:
            checkpoint = PerLoopPolicy(checkpoint, dict(trace.checkpoints))  # type: ignore[arg-type]
        gradient = differentiate(extended, of, wrt, checkpoint, slots=slots)
        layout()
    except NotDifferentiable as e:
        if written:
            first = program.inputs[written[0]]
            raise refused_write(first.name, trace.aliasing.attached[first.value], e) from None
        return str(e)
    pairs = tuple(zip(written, range(results, len(extended.outputs))))
    complex = frozenset(n for n, k in enumerate(wrt) if bound[k].pairs)
    return TrainingPrograms(
        gradient, tuple(of), tuple(wrt), pairs, results, checkpoint, device=device, complex=complex,
        program=program if is_pure(program) and not any(q.pairs for q in bound) else None,
    )  # fmt: skip


def is_pure(program: Program) -> bool:
    """Whether it may run again: without writes and effects, and without complex numbers, which
    callers have in another form."""
    values = [*program.results, *(r for n in walk(program.ops) for r in n.results)]
    plain = all(v.type.dtype.kind != "c" for v in values)
    return plain and not program.writes and not any(map(has_effect, program.ops))


def asks(q: TracedInput) -> bool:
    """Whether an input gets a gradient."""
    floating = q.value.type.dtype.differentiable
    return floating and q.number is None and (q.flagged or not q.tensor.stop_gradient)


def refused_write(name: str, loc: Loc, cause: NotDifferentiable) -> Refused:
    return Refused(
        f"{name} is written in place with a value whose gradient is not known.",
        loc,
        reason=f"{cause}.",
        remedy="Write `value.detach()`, or call the function under paddle.no_grad().",
    )


# ---------------------------------------------------------------- results without a backward
class _Box:
    """Keeps PyLayer from taking the outputs for inputs."""

    def __init__(self, tensors: Sequence[object], reason: str) -> None:
        self.tensors, self.reason = tensors, reason


class _NoGradient(PyLayer):
    @staticmethod
    def forward(ctx: paddle.autograd.PyLayerContext, box: _Box, *inputs: object) -> object:
        ctx.reason = box.reason
        return tuple(box.tensors)

    @staticmethod
    @raises
    def backward(ctx: paddle.autograd.PyLayerContext, *grads: object) -> object:
        raise Dy2stError(
            f"dy2st: backward through a translated function: {ctx.reason}. Call the function "
            "under paddle.no_grad(), or train the eager one."
        )


def without_gradient(
    outputs: list[Tensor], flags: Sequence[bool], inputs: Sequence[Tensor], reason: str
) -> list[Tensor]:
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


def check_mode(before: bool) -> None:
    """A mode that the function leaves behind would not be set by a cached call."""
    if grad_enabled() != before:
        paddle.set_grad_enabled(before)
        raise Refused(
            "the function changes whether gradients are recorded.",
            reason="A cached call could not repeat this.",
            remedy="Write `with paddle.no_grad():` around that code.",
        )
