"""`paddle.grad` in converted code: the pull-back of the recorded ops, as further ops.

The ops between `inputs` and `outputs` may lie in several frames: those of the program, of loop
bodies and of branches that are being traced. The gradient is computed in the innermost one. In
the body of a loop it is the same in every iteration only if no gradient comes from an earlier one
(`check_iterations`); otherwise the loop is unrolled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NoReturn

from dy2st.capture.foreign.refusals import refusal
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, grad_enabled, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor, check_single, chosen
from dy2st.trace.signals import SAVED, NeedsConcrete, Refused, RetraceForGradients
from dy2st.trace.trace import Frame, Trace
from ir import Carry, Cond, Const, Custom, Op, Scan, Value
from ir.autodiff.activity import Activity, spread
from ir.autodiff.pullback import PullBack, pull_back, written
from ir.autodiff.residuals import NotDifferentiable
from ir.opdef import NotForComplex
from ir.program import Node
from ir.rewrite import with_operands
from ir.uses import consts, free_values, loop_sizes

UNUSED = (
    "The {}-th input does not appear in the backward graph. Please check the input tensor or set "
    "allow_unused=True to get None result."
)
DUPLICATE = "inputs contain duplicate tensor , please check inputs carefully."
GRADIENT = "the gradient with respect to"
EARLIER = "a gradient with respect to a tensor goes back to earlier iterations"


def partial_grad(
    trace: Trace,
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    grad_outputs: Sequence[Tensor | None],
    retain_graph: bool,
    create_graph: bool,
    only_inputs: bool,
    allow_unused: bool,
    no_grad_vars: Sequence[Tensor],
    *rest: object,
) -> list[Tensor | None]:
    """Compute `paddle.grad`, which has checked its arguments. The graph is retained."""
    if SAVED.get() == "first":
        raise RetraceForGradients
    of, wrt = ([lift(trace, q) for q in many] for many in (outputs, inputs))
    if any(q._value.type.dtype.kind == "c" for q in (*of, *wrt)):
        raise of_complex()
    given = seeds(trace, of, grad_outputs)
    constants = [lift(trace, q)._value for q in no_grad_vars]
    if len({id(q) for q in wrt}) < len(wrt):
        raise refusal(trace, "grad", RuntimeError(DUPLICATE), eager=True)
    found = gradients(trace, of, given, wrt, constants, create_graph)
    missing = next((k for k, g in enumerate(found) if g is None), None)
    if missing is not None and not allow_unused:
        raise refusal(trace, "grad", ValueError(UNUSED.format(missing)), eager=True)
    return found


def of_complex() -> Refused:
    return refuse(
        "paddle.grad of complex tensors.",
        "In a program it takes gradients of real numbers, with respect to real numbers.",
        "Take it of the real and the imaginary part, `paddle.as_real(z)`.",
    )


def seeds(trace: Trace, of: Sequence[FakeTensor], given: Sequence[Tensor | None]) -> list[Value]:
    """The gradient of each output: ones where none is given."""
    out = []
    for q, g in zip(of, given or [None] * len(of)):
        t = q._value.type
        if g is None:
            one = 1.0 if t.dtype.kind == "f" else 1
            out.append(trace.emit("full", [], {"value": one, "shape": t.shape, "dtype": t.dtype}))
            continue
        value = Emitter(trace).value(g)
        if value.type != t:
            text = trace.sizes.text_of
            raise refuse(
                f"grad_outputs of paddle.grad is {text(value.type)}, its output {text(t)}.",
                "Eager Paddle reads memory that does not belong to the tensor.",
                "Give it the shape and element type of the output.",
            )
        out.append(value)
    return out


# ---------------------------------------------------------------- the gradient
def gradients(
    trace: Trace,
    of: Sequence[FakeTensor],
    given: Sequence[Value],
    wrt: Sequence[FakeTensor],
    constants: Sequence[Value],
    again: bool,
) -> list[Tensor | None]:
    """The gradient of each input, None where no output depends on it. `again`: they are to be
    differentiated."""
    asked = [q for q in wrt if not q.stop_gradient]
    inputs = [at_home(trace, q._value) for q in asked]
    first = min((trace.frames.index(trace.values.frame_of[v]) for v in inputs), default=0)
    frames = trace.frames[first:]
    pairs = [(q._value, g) for q, g in zip(of, given) if not q.stop_gradient]
    pairs = [(trace.read_value(v), trace.read_value(g)) for v, g in pairs]
    if not pairs or not inputs:
        return [None] * len(wrt)
    blocks = blocks_of(frames)
    check_iterations(trace, frames, inputs, [v for v, _ in pairs])
    for v in inputs:
        check_object(trace, v, [v for v, _ in pairs])
    cut = [at_home(trace, v) for v in constants]
    cut = [v for v in cut if trace.values.frame_of[v] in frames]
    recording = again and grad_enabled()
    try:
        back = pull_back(blocks, pairs, inputs, cut, names(trace), recording)
    except NotDifferentiable as e:
        raise refuse(
            f"paddle.grad goes through {e.op}.",
            f"{e.why[:1].upper()}{e.why[1:]}.",
            "Compute that another way, or take the gradient outside of the translated function.",
            RuntimeError,
        ) from None
    except NotForComplex:
        raise of_complex() from None
    check_writes(trace, frames, back, inputs)
    put(trace, frames, back)
    found = dict(zip(map(id, asked), back.gradients))
    made = {r for n in back.ops if isinstance(n, Op) and not n.row.views for r in n.results}
    out: list[Tensor | None] = []
    for q in wrt:
        value = found.get(id(q))
        if value is None:
            out.append(None)
            continue
        value = trace.read_value(value)
        if value not in made:
            value = trace.emit("assign", [value], {})
        made.discard(value)
        if not recording:
            value = trace.emit("detach", [value], {})
        out.append(trace.fake(value, not again))
    return out


def at_home(trace: Trace, value: Value) -> Value:
    """The value in the frame that makes it, from which const ports bring it here."""
    frame = trace.values.frame_of[value]
    while (port := next((p for p in frame.consts.values() if p.inner is value), None)) is not None:
        value = port.outer
        frame = trace.values.frame_of[value]
    return value


def blocks_of(frames: Iterable[Frame]) -> list[tuple[Sequence[Node], Sequence[Const]]]:
    return [(f.builder.ops, list(f.consts.values())) for f in frames]


def names(trace: Trace) -> set[str]:
    sizes = trace.sizes
    nodes = [n for f in trace.frames for n in f.builder.ops]
    return {*sizes.loops, *sizes.counts, *sizes.hints, *sizes.capacities, *loop_sizes(nodes)}


def put(trace: Trace, frames: Sequence[Frame], back: PullBack) -> None:
    """The ops of the pull-back follow what the frames have; their own ops hand over more."""
    homes = trace.values.frame_of
    for frame, ops in zip(frames, back.forward):
        frame.builder.ops[:] = ops
        for node in ops:
            for r in node.results:
                homes.setdefault(r, frame)
    frame = trace.frame
    for node in back.ops:
        node = with_operands(node, trace.read_value)
        frame.builder.append(node)
        for r in node.results:
            homes[r] = frame
            if isinstance(node, Op) and node.row.views:
                trace.values.parent[r] = node.operands[0]
                trace.values.makers[r] = node


# ---------------------------------------------------------------- objects
def check_object(trace: Trace, v: Value, of: Sequence[Value]) -> None:
    """The outputs read the tensor with respect to which a gradient is taken by this value only.

    A loop or branch that gives it may have made other results of it; where no iteration runs, or
    in one branch, it may be a tensor from before.
    """
    check_single(trace, v, GRADIENT)
    frame = trace.values.frame_of[v]
    node = next((n for n in frame.builder.ops if v in n.results), None)
    if node is None or isinstance(node, Op):
        return
    frames = trace.frames[trace.frames.index(frame) :]
    results, before = twins(v, node)
    useful = Activity.within(blocks_of(frames), of, [v]).useful
    rest = [([n for n in f.builder.ops if n is not node], list(f.consts.values())) for f in frames]
    old = Activity.within(rest, of, before)
    if useful.isdisjoint(results) and old.varies.isdisjoint(of):
        return
    if isinstance(node, Scan):
        loops = (q for q in trace.sizes.loops.values() if q.index is node.index)
        trace.unroll(next(loops, None), f"{GRADIENT} its last tensor is asked for")
    raise chosen(trace, GRADIENT)


def twins(v: Value, node: Node) -> tuple[list[Value], list[Value]]:
    """The results of a loop or branch that may be made of the tensor that `v` is, and the tensors
    from before that it may be."""
    if isinstance(node, Scan):
        ends = [(p.last if isinstance(p, Carry) else p.outer, p) for p in node.outs]
        pairs = [(r, p.next if isinstance(p, Carry) else p.inner) for r, p in ends if r is not None]
        init = next((p.init for p in node.carries if p.last is v), None)
        results = [c.last for c in node.carries if c.init is init and c.last is not v and c.last]
        return of_block(v, node.body, pairs, node, results, [] if init is None else [init])
    assert isinstance(node, (Cond, Custom))
    if isinstance(node, Custom):
        return of_block(v, (), list(node.outs), node, [], [])
    results, before = [], []
    for ops, leaving in node.branches:
        pairs = list(zip(node.results, leaving))
        more, old = of_block(v, ops, pairs, node, [], [])
        results += more
        before += old
    return results, before


def of_block(
    v: Value,
    ops: Sequence[Node],
    pairs: Sequence[tuple[Value, Value]],
    node: Scan | Cond | Custom,
    results: list[Value],
    before: list[Value],
) -> tuple[list[Value], list[Value]]:
    """Like `twins`, for one block that `pairs` leave, with the values outside."""
    inner = next(e for r, e in pairs if r is v)
    made_of = {inner}
    maker = next((n for n in ops if inner in n.results), None)
    if maker is not None and not isinstance(maker, Op):
        for more in twins(inner, maker):
            made_of.update(more)
    before = [*before, *(p.outer for p in consts(node) if p.inner in made_of)]
    spread(made_of, ops)
    return [*results, *(r for r, e in pairs if r is not v and e in made_of)], before


# ---------------------------------------------------------------- writes
def check_writes(
    trace: Trace, frames: Sequence[Frame], back: PullBack, inputs: Sequence[Value]
) -> None:
    """Refuse gradients through values that were written in place between inputs and outputs."""
    ops = [n for f in frames for n in f.builder.ops]
    start = next((k for k, n in enumerate(ops) if not back.path.isdisjoint(n.operands)), len(ops))
    stored = {trace.root(v) for v in written(ops[start:])}
    if not stored:
        return
    read = [*back.path, *inputs, *free_values(back.ops)]
    if any(trace.root(v) in stored for v in read):
        raise refuse(
            "paddle.grad goes through a tensor that is written in place between its inputs and "
            "its outputs.",
            "Its gradient needs what the tensor was before.",
            "Make a new tensor there: `y = paddle.where(...)`, `paddle.concat`, `paddle.stack`, "
            "or the call without the underscore.",
        )


# ---------------------------------------------------------------- iterations
def check_iterations(
    trace: Trace, frames: Sequence[Frame], inputs: Sequence[Value], of: Sequence[Value]
) -> None:
    """Raise NeedsConcrete where a carried tensor may bring a gradient from an earlier iteration.

    With respect to a tensor of the same iteration it brings none. With respect to one that is
    carried itself, this shows at the end of the body (`check_carried`).
    """
    if all(f.loop is None for f in frames):
        return
    useful = Activity.within(blocks_of(frames), of, inputs).useful
    homes = trace.values.frame_of
    for at, frame in enumerate(frames):
        if frame.loop is None:
            continue
        outside = any(homes[v] in frames[:at] for v in inputs)
        made, brought = made_in(frame), {p.inner for p in frame.consts.values()}
        trained = {v for v in useful if at_home(trace, v) in trace.autograd.trained}
        early = {v for v in trained if homes.get(v) is frame} - made
        if outside and not early <= brought:
            raise NeedsConcrete(EARLIER, [frame.loop])
        own = [v for v in inputs if homes[v] is frame and v not in made]
        frame.differentiated += [(v, q) for v in own for q in early if q is not v]


def made_in(frame: Frame) -> set[Value]:
    return {r for n in frame.builder.ops for r in n.results}


def check_carried(trace: Trace, frame: Frame, carries: Collection[Carry]) -> None:
    """The body has been traced: a carried tensor whose gradient was taken is no part of another
    one that the outputs read."""
    by_inner = {c.inner: c for c in carries}
    before = {p.inner: p.outer for p in frame.consts.values()}
    for v, other in frame.differentiated:
        one, two = by_inner.get(v), by_inner.get(other)
        if one is None or two is None and other not in before:
            earlier()
        varies = {one.next}
        spread(varies, frame.builder.ops)
        if one.next not in made_in(frame) or two is not None and two.next in varies:
            earlier()
        check_before(trace, one.init, before[other] if two is None else two.init)


def check_before(trace: Trace, one: Value, two: Value) -> None:
    """Before the loop, `two` is not made of `one`."""
    with trace.outside():
        home = at_home(trace, one)
        first = trace.frames.index(trace.values.frame_of[home])
        frames = trace.frames[first:]
        blocks = blocks_of(frames)
        activity = Activity.within(blocks, [trace.read_value(two)], [home])
        if trace.read_value(two) in activity.varies:
            earlier()
        check_iterations(trace, frames, [home], [trace.read_value(two)])


def earlier() -> NoReturn:
    raise NeedsConcrete(EARLIER)


__all__ = ["check_carried", "partial_grad"]
