"""Lowering of gathers and scatters by several index tensors, and of running sums."""

from __future__ import annotations

from collections.abc import Sequence

from executor.launches import (
    GatherNd,
    Index,
    Launch,
    Loop,
    Map,
    Positions,
    Running,
    ScatterNd,
    When,
)
from executor.lowering.lowerer import Lowerer, axis_of, rule
from executor.lowering.movement import updated
from executor.memory import View
from ir import Op
from ir.loc import OutOfRange
from ir.ops.cumulative import RUNNING
from ir.ops.gather_scatter import COMBINE
from ir.scalar import language as k
from ir.types import Dim, Size, Type


def check_indices(low: Lowerer, op: Op, index: View, n: Dim) -> None:
    """Emit loops over an index tensor that fail the program for an index outside [-n, n)."""
    text = f"{op.name}: an index is out of range for {axis_of(n)}"
    error = low.failure(OutOfRange, text, op.loc)
    source = index
    names: list[tuple[str, Dim]] = []
    for d, s in zip(index.shape, index.strides):
        if s == 0 and isinstance(d, int) and d > 0:
            source = source.index(len(names), 0)
            continue
        names.append((low.symbol("i"), d))
    for name, _ in names:
        source = source.index(0, Size.named(name))
    inner: Launch = Index(low.symbol("s"), source, n, error)
    for name, d in reversed(names):
        inner = Loop(name, low.symbol("p"), low.symbol("q"), d, (inner,))
    low.emit(inner)


def indices(low: Lowerer, op: Op, first: int) -> tuple[View, ...]:
    """The index operands, checked."""
    x = low.env[op.operands[0]]
    axis = op.attrs["axis"] % x.ndim
    out = tuple(low.env[v] for v in op.operands[first:])
    for k_, view in enumerate(out):
        check_indices(low, op, view, x.shape[axis + k_])
    return out


@rule("gather_nd", direct=True)
def take(low: Lowerer, op: Op) -> None:
    x = low.env[op.operands[0]]
    index = indices(low, op, 1)
    low.emit(GatherNd(x, index, op.attrs["axis"] % x.ndim, low.fresh(op.result)))


@rule("positions", direct=True)
def positions(low: Lowerer, op: Op) -> None:
    found, count = (low.fresh(v) for v in op.results)
    low.emit(Positions(low.env[op.operands[0]], (found, count)))


@rule("scatter_nd")
def put(low: Lowerer, op: Op) -> None:
    y, dtype = op.operands[1], op.result.type.dtype
    index = indices(low, op, 2)
    source = low.env[y]
    out = updated(low, op)
    if source.buffer is out.buffer:
        saved = low.temporary(y.type)
        low.copy(source, saved)
        source = saved
    index = tuple(_apart(low, i, out) for i in index)
    root = COMBINE[op.attrs["combine"]](k.input_(0, dtype), k.input_(1, dtype))
    low.emit(ScatterNd(source, index, op.attrs["axis"] % out.ndim, root, out))


def _apart(low: Lowerer, index: View, out: View) -> View:
    """The indices, copied if the write could change them."""
    if index.buffer is not out.buffer:
        return index
    saved = low.temporary(Type(index.dtype, index.shape))
    low.copy(index, saved)
    return saved


@rule(*RUNNING)
def running(low: Lowerer, op: Op) -> None:
    """Emit a running reduction: rows that lie in order as one launch where the backend has it;
    else in loops, row by row along the last axis, so that memory is read in order."""
    ins = [low.env[v] for v in op.operands]
    axis, out = op.attrs["axis"] % ins[0].ndim, low.fresh(op.result)
    views, loops = [*ins, out], []
    plain = out.dtype.compute == out.dtype and out.dtype.size >= 4
    if Running in low.machine.families and plain and all(v.strides[axis] in (1, -1) for v in views):
        root = RUNNING[op.name](*(k.input_(i, out.dtype) for i in range(len(views))))
        low.emit(Running(tuple(ins), axis, root, out))
        return
    if axis == out.ndim - 1:
        for d in out.shape[:-1]:
            loops.append((low.symbol("i"), d))
            views = [v.index(0, Size.named(loops[-1][0])) for v in views]
        axis = 0
    body = along(low, op.name, views[:-1], views[-1], axis)
    for name, d in reversed(loops):
        body = (Loop(name, low.symbol("p"), low.symbol("q"), d, body),)
    for launch in body:
        low.emit(launch)


def along(low: Lowerer, name: str, ins: Sequence[View], out: View, axis: int) -> tuple[Launch, ...]:
    """The first element is that of the last operand; each other one comes from the one before."""
    n = out.shape[axis]
    if n == 0:
        return ()
    scalars = [k.input_(i, out.dtype) for i in range(len(ins) + 1)]
    at = low.symbol("i")
    place = Size.named(at)
    now, to = [v.index(axis, place + 1) for v in ins], out.index(axis, place + 1)
    root = RUNNING[name](*scalars)
    step = Map(to.shape, (out.index(axis, place), *now), (root,), (to,))
    start = Map(to.shape, (ins[-1].index(axis, 0),), (scalars[0],), (out.index(axis, 0),))
    rest = Loop(at, low.symbol("p"), low.symbol("q"), n - 1, (step,))
    return When(n - 1, "sge", (start,)), rest
