"""Inputs that share memory, and inputs that are not contiguous, where it matters.

A program binds every input to contiguous memory of its own. Where that does not hold and something
is written, the inputs in question are traced again as views of one input that covers them all:

    f(x, x.t())     x: input        y = strided(reshape(x, [n]), strides of y)
    f(x[:, 1:3])    memory: input   x = strided(memory, ...)     all from first to last element

How they lie in it is then a condition of the call. Out of scope: several of them that ask for a
gradient, and memory that is shared under two dtypes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from dy2st.state.signature import grad_enabled
from dy2st.trace.emitter import detached, lift
from dy2st.trace.fake_tensor import Tensor, type_of
from dy2st.trace.memory import extent, meet
from dy2st.trace.signals import Refused, RetraceForSharing
from dy2st.trace.trace import Trace, TracedInput
from ir import Program, Type
from ir.types import product


@dataclass(frozen=True)
class StridedAlias:
    """Element (i, j, ...) of a tensor is element `offset + i * strides[0] + ...` of `base`."""

    base: TracedInput
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class SharedStorage:
    """The storage of a base: `n` elements, beginning `before` elements in front of the tensor
    `of`."""

    of: TracedInput
    before: int
    n: int


def found(
    program: Program, bound: Sequence[TracedInput], traced: Sequence[TracedInput]
) -> list[TracedInput]:
    """The inputs that have to be traced as views of one storage. One of `traced` that the program
    does not read may be looked at after it: then a reshape copies, if it is not contiguous."""
    written = {target for target, _ in program.writes}
    real = [(i.value, q) for i, q in zip(program.inputs, bound) if q.number is None]
    known = {id(q) for q in bound}
    rest = [q for q in traced if q.number is None and id(q) not in known]
    unread = [q for q in rest if not q.tensor.is_contiguous()]
    extents = {id(q): extent(q.tensor) for q in (*unread, *(q for _, q in real))}
    out: dict[int, TracedInput] = {}
    for v, q in real:
        if v not in written:
            continue
        rest = [*unread, *(o for _, o in real if o is not q)]
        others = [o for o in rest if meet(extents[id(o)], extents[id(q)])]
        if others or not q.tensor.is_contiguous():
            out.update((id(o), o) for o in (q, *others))
    return list(out.values())


def wanted(stop: RetraceForSharing) -> list[TracedInput]:
    """The inputs that the next trace declares, so that it finds no more of them: those for which
    this one stopped, with all that meet them. If it stopped early, also the other inputs that are
    not contiguous or share memory, where nothing forbids it."""
    out = {id(q): q for q in stop.inputs}
    real = [q for q in stop.among if q.kind != "const" and q.number is None and extent(q.tensor)]
    for group in groups(real):
        needed = any(id(q) in out for q in group)
        loose = len(group) > 1 or not group[0].tensor.is_contiguous()
        if (needed or (stop.asked and loose)) and may_be_views(group):
            out.update((id(q), q) for q in group)
    return list(out.values())


def lift_found(trace: Trace, stop: RetraceForSharing) -> None:
    """A trace that stopped early learns also of the tensors that it has found and not read."""
    if not stop.asked or trace.guards is None:
        return
    for t in trace.guards.held:
        if isinstance(t, Tensor) and not t.is_contiguous():
            with contextlib.suppress(Refused):
                lift(trace, t)
    stop.among = list(trace.inputs.by_id.values())


def may_be_views(group: Sequence[TracedInput]) -> bool:
    """Whether a group can be declared; a declared input has sizes that are numbers."""
    return forbidden(group) is None and not any(q.value.type.names for q in group)


def described(inputs: Sequence[TracedInput]) -> str:
    """Return the reason for declaring inputs, for the report."""
    names = ", ".join(dict.fromkeys(q.name for q in inputs))
    shared = any(len(group) > 1 for group in groups(inputs))
    return f"inputs share memory ({names})" if shared else f"inputs are not contiguous ({names})"


def groups(inputs: Sequence[TracedInput]) -> list[list[TracedInput]]:
    """Inputs whose memory meets, directly or through others, together."""
    out: list[list[TracedInput]] = []
    for q in inputs:
        mine = extent(q.tensor)
        touching = [g for g in out if any(meet(mine, extent(o.tensor)) for o in g)]
        out = [g for g in out if g not in touching]
        out.append([*(o for g in touching for o in g), q])
    return out


def declare(trace: Trace, inputs: Sequence[TracedInput]) -> None:
    """Make inputs of the storages that `inputs` of an earlier trace have, and views of them."""
    for group in groups(inputs):
        if (stop := forbidden(group)) is not None:
            raise stop
        base = covering(group)
        base = memory(trace, group) if base is None else again(trace, base)
        for q in group:
            if q.tensor is not base.tensor:
                member(trace, q, base)


def forbidden(group: Sequence[TracedInput]) -> Refused | None:
    """Return the error for a group that cannot be views of one input."""
    names = " and ".join(dict.fromkeys(q.name for q in group))
    if len({q.tensor.dtype for q in group}) > 1:
        return refused(names, "They have different dtypes.")
    trained = [q for q in group if not q.tensor.stop_gradient]
    if grad_enabled() and trained and (len(trained) > 1 or covering(group) is not trained[0]):
        return refused(names, "One that requires a gradient does not cover the others.")
    return None


def refused(names: str, reason: str) -> Refused:
    return Refused(
        f"{names}: a tensor that shares memory, or is not contiguous, is written in place.",
        reason=reason,
        remedy="Pass a copy (`x.clone()`), or call it under paddle.no_grad().",
    )


def covering(group: Sequence[TracedInput]) -> TracedInput | None:
    """A contiguous tensor that holds all the others, one that requires a gradient first."""
    ends = [extent(q.tensor) for q in group]
    low = min(e[0] for e in ends if e is not None)
    high = max(e[1] for e in ends if e is not None)
    fitting = [q for q, e in zip(group, ends) if e == (low, high) and q.tensor.is_contiguous()]
    return min(fitting, key=lambda q: bool(q.tensor.stop_gradient), default=None)


def again(trace: Trace, q: TracedInput) -> TracedInput:
    trace.add_input(q.tensor, q.kind, q.name, type_of(q.tensor))
    new = trace.inputs.by_id[id(q.tensor)]
    new.place = q.place
    return new


def memory(trace: Trace, group: Sequence[TracedInput]) -> TracedInput:
    """The memory from the first to the last element of all, as an input."""
    ends = [e for e in (extent(q.tensor) for q in group) if e is not None]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    first, size = group[0], group[0].tensor.element_size()
    before, n = (first.tensor.data_ptr() - low) // size, (high - low) // size
    tensor = storage(first.tensor, before, n)
    trace.add_input(tensor, first.kind, f"{first.name}.memory", Type(type_of(tensor).dtype, (n,)))
    made = trace.inputs.by_id[id(tensor)]
    made.memory = SharedStorage(first, before, n)
    return made


def storage(t: Any, before: int, n: int) -> object:
    """`n` elements of the memory of `t`, from `before` elements in front of its first one.

    A TypeError says that the program is for other arguments: there is less memory around this one.
    """
    with paddle.no_grad():
        try:
            made = paddle.as_strided(t, [n], [1], t.offset - before * t.element_size())
            made.data_ptr()
        except (ValueError, RuntimeError):
            raise TypeError("the memory around this tensor is not that large") from None
    return made


def member(trace: Trace, q: TracedInput, base: TracedInput) -> None:
    """`q` as a view of the input `base`; no gradient passes through it."""
    t, size = q.tensor, q.tensor.element_size()
    away = t.data_ptr() - base.tensor.data_ptr()
    if away % size:
        raise refused(q.name, "It is not aligned to the elements of the other one.")
    flat = base.value
    if flat.type.ndim != 1:
        flat = trace.emit("reshape", [flat], {"shape": (product(flat.type.shape),)})
    strides = tuple(int(s) for s in t.strides)
    attrs = {"shape": type_of(t).shape, "strides": strides, "offset": away // size}
    value = trace.emit("strided", [flat], attrs)
    if not base.fake.stop_gradient:
        value = detached(trace, value)
    fake = trace.fake(value, bool(t.stop_gradient))
    share = StridedAlias(base, strides, away // size)
    trace.inputs.by_id[id(t)] = TracedInput(t, fake, value, q.kind, q.name, q.place, share=share)


def check_attached(trace: Trace, traced: Sequence[TracedInput]) -> None:
    """Eager Paddle gives the gradient of what was written to one of the objects only."""
    for q in traced:
        base = None if q.share is None else q.share.base
        if base is not None and base.value in trace.aliasing.attached:
            names = " and ".join(p.name for p in traced if p.share and p.share.base is base)
            raise Refused(
                f"{names} share memory and are written in place with a value that requires a "
                "gradient.",
                trace.aliasing.attached[base.value],
                remedy="Write `value.detach()`, or pass a copy of one of them.",
            )


def lies(tensor: Tensor, base: Any, shape: list[int], strides: list[int], away: int) -> bool:
    """Whether `tensor` looks at `base` as it did when the program was made; `away` in bytes."""
    if list(tensor.shape) != shape or list(tensor.strides) != strides:
        return False
    return bool(tensor.data_ptr() - base.data_ptr() == away)


__all__ = [
    "SharedStorage",
    "StridedAlias",
    "check_attached",
    "declare",
    "described",
    "extent",
    "found",
    "lies",
    "meet",
    "storage",
    "wanted",
]
