"""Gradients of foreign ops: a small eager tape per call.

The backward block of such an op calls a foreign op as well: it runs Paddle's kernel once more,
recording, and runs that backwards; where there is a closed form, the block computes that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import paddle
from paddle.base import core

from dy2st.capture.custom import custom
from dy2st.capture.foreign.arguments import flatten
from dy2st.capture.foreign.closed_forms import closed_form
from dy2st.capture.foreign.run import arguments, function, is_void
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.signals import raise_defect
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import perform
from ir import Op

PREFIX = "backward of "
#: functions whose gradient kernel ends the process unless every operand asks for a gradient
ALL_ASK = frozenset({"cholesky_solve", "cross", "solve"})
Run = Callable[[str, object, Sequence[Tensor], Mapping[str, int]], "list[Tensor]"]


def recorded(
    run: Run,
    name: str,
    literal: object,
    tensors: Sequence[Tensor],
    trained: Sequence[int],
    written: Sequence[int],
    sizes: Mapping[str, int],
) -> tuple[list[Tensor], list[Tensor]]:
    """The kernel in gradient mode: the leaves, and its results followed by what it has written."""
    with paddle.enable_grad():
        leaves = [t.detach() for t in tensors]
        for k in range(len(leaves)) if name.split(".")[-1] in ALL_ASK else trained:
            leaves[k].stop_gradient = False
        used = [t.clone() if k in written else t for k, t in enumerate(leaves)]
        own = {id(t) for t in used}
        fresh = [t for t in run(name, literal, used, sizes) if id(t) not in own]
        fresh = [t for t in fresh if t._is_initialized() or 0 in t.shape]
    return leaves, [*fresh, *(used[k] for k in written)]


def reached(
    leaves: Sequence[Tensor], results: Sequence[Tensor], trained: Sequence[int]
) -> list[int]:
    """The leaves that have a gradient after backward; all if the kernel does not run backwards on
    these values."""
    asked = [t for t in results if not t.stop_gradient and t.is_floating_point()]
    try:
        with paddle.enable_grad():
            paddle.autograd.backward(asked, [paddle.ones_like(t) for t in asked])
    except Exception as error:  # what it needs is not known here
        raise_defect(error)
        return list(trained)
    return [k for k in trained if leaves[k].grad is not None]


def attach(
    trace: Trace,
    name: str,
    literal: object,
    operands: Sequence[FakeTensor],
    results: Sequence[FakeTensor],
    flags: Sequence[bool],
    trained: Sequence[int],
    written: Sequence[int],
) -> list[FakeTensor]:
    """The results, those that `flags` says with a gradient; `trained`: the operands that get it."""
    chosen = tuple(k for k, q in enumerate(results) if flags[k])
    if not chosen:
        return list(results)

    closed = closed_form(name, literal) if len(results) == 1 else None

    def backward(*gradients: Tensor) -> Sequence[Tensor | None]:
        if closed is not None and (made := closed(operands, results[0], *gradients)) is not None:
            return [q if k in trained else None for k, q in enumerate(made)]
        values = [lift(trace, q)._value for q in (*operands, *gradients)]
        args = (literal, len(operands), tuple(written), tuple(trained), chosen)
        types = tuple(operands[k]._value.type for k in trained)
        attrs = {"call": PREFIX + name, "args": args, "types": types, "writes": ()}
        found = trace.emit("foreign", values, attrs)
        found = iter(found if isinstance(found, tuple) else (found,))
        return [trace.fake(next(found)) if k in trained else None for k in range(len(operands))]

    made = custom(trace, operands, [results[k] for k in chosen], backward, f"backward of {name}")
    new = dict(zip(chosen, made))
    return [new.get(k, q) for k, q in enumerate(results)]


def run_backward(
    run: Run, op: Op, tensors: Sequence[object], sizes: Mapping[str, int]
) -> list[Tensor]:
    """The gradients of the operands that ask, from the operands and the results' gradients."""
    literal, count, written, trained, chosen = op.attrs["args"]
    name = op.attrs["call"].removeprefix(PREFIX)
    leaves, results = recorded(run, name, literal, tensors[:count], trained, written, sizes)
    pairs = [(results[k], g) for k, g in zip(chosen, tensors[count:])]
    pairs = [(t, g) for t, g in pairs if not t.stop_gradient]
    if pairs:
        core.eager.run_backward([t for t, _ in pairs], [g for _, g in pairs], False, "")
    grads = [leaves[k].grad for k in trained]
    return [paddle.zeros_like(leaves[k]) if g is None else g for k, g in zip(trained, grads)]


def backward_on(
    op: Op,
    tensors: Sequence[Tensor],
    sizes: Mapping[str, int],
    use: Callable[[list[Tensor]], None],
) -> Callable[[], None]:
    """A function that gives `use` the gradients, which it may not keep: like `run_backward`, on the
    same tensors in each call, by a kernel that overwrites none of them."""
    literal, count, _, trained, chosen = op.attrs["args"]
    name = op.attrs["call"].removeprefix(PREFIX)
    leaves, given = [t.detach() for t in tensors[:count]], tensors[count:]
    for k in range(count) if name.split(".")[-1] in ALL_ASK else trained:
        leaves[k].stop_gradient = False
    asked = [leaves[k] for k in trained]
    args, kwargs = arguments(literal, leaves, sizes)
    call, own = function(name), set(map(id, leaves))
    engine = core.eager.run_backward
    engine = getattr(engine, "__dy2st_engine__", engine)  # the kernel's graph is nobody else's

    def run() -> None:
        with paddle.enable_grad():
            out = perform(call, *args, **kwargs)
        made = (t for t in flatten(out) if isinstance(t, Tensor) and id(t) not in own)
        results = [t for t in made if not is_void(t)]
        pairs = [(results[k], g) for k, g in zip(chosen, given) if not results[k].stop_gradient]
        try:
            if pairs:
                perform(engine, [t for t, _ in pairs], [g for _, g in pairs], False, "")
            grads = [t.grad for t in asked]
            use([paddle.zeros_like(t) if g is None else g for t, g in zip(asked, grads)])
        finally:
            for t in leaves:
                if not t.stop_gradient:
                    t.clear_gradient(False)

    return run


__all__ = ["PREFIX", "attach", "backward_on", "recorded", "run_backward"]
