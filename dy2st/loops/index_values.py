"""Values that depend on the loop's index only, computed for all iterations at once.

for t in range(n):
    if t % 10 == 0:
        ys.append(h)        it appends in the iterations 0, 10, 20, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.state.stacked_run import KnownValue, StackedRun, Unstacked, mapped
from dy2st.state.tree import TypeMismatch, describe
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.item import size_of as size_from
from dy2st.trace.item import steps_over
from dy2st.trace.scalar import PathCondition
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Frame, Trace
from ir import ENDLESS, Op, Size, Value
from ir.program import Cond, Const, Node
from ir.types import I64, Dim, line, substitute_dim


class DataDependent(Exception):
    """The value follows from data, or from an op that is not known here."""


class IndexValues:
    """Scalars of the innermost body as arrays with one element per iteration of its loop."""

    def __init__(self, trace: Trace, frame: Frame, trip: int) -> None:
        assert frame.loop is not None
        self.trace, self.loop = trace, frame.loop
        self.found: dict[Value, Any] = {frame.loop.index: np.arange(trip)}
        self.makers: dict[Value, Node] = {}
        self.outer: dict[Value, Value] = {}
        self.inputs = {q.value: q for q in trace.inputs.by_id.values() if q.kind == "const"}
        for f in trace.frames:
            self.know(f.builder.ops, f.consts.values())

    def know(self, ops: Iterable[Node], consts: Iterable[Const]) -> None:
        """Note where values come from, those of branches included."""
        self.outer.update((p.inner, p.outer) for p in consts)
        for op in ops:
            self.makers.update((v, op) for v in op.results)
            if isinstance(op, Cond):
                self.know(op.then, op.ins)
                self.know(op.orelse, ())

    def of(self, value: Value) -> Any:
        """The values of a scalar; raises DataDependent."""
        if value not in self.found:
            self.found[value] = self.computed(value)
        return self.found[value]

    def computed(self, value: Value) -> object:
        if value in self.outer:
            return self.of(self.outer[value])
        if value in self.inputs and value not in self.trace.values.written:
            with self.trace.pause():
                return self.inputs[value].tensor.numpy()
        op = self.makers.get(value)
        if isinstance(op, Cond):
            return self.chosen(op, value)
        if not isinstance(op, Op) or len(op.results) > 1:
            raise DataDependent
        if op.name in ("index", "dynamic_index"):
            return self.element(op)
        if op.name == "full" and not value.type.shape:
            return np.asarray(op.attrs["value"], value.type.dtype.numpy)
        args = [self.of(v) for v in op.operands]
        plain = not any(isinstance(q, Size) for q in op.attrs.values())
        if op.row.kernel is None or not plain or any(v.type.shape for v in op.operands):
            raise DataDependent
        assert op.row.ref is not None
        with np.errstate(all="ignore"):
            return op.row.ref(*args, **op.attrs)

    def element(self, op: Op) -> Any:
        """An element of a constant at an index."""
        if op.operands[0].type.ndim != 1:
            raise DataDependent
        rows = self.of(op.operands[0])
        at = self.of(op.operands[1]) if op.name == "dynamic_index" else self.affine(op)
        if np.any(at < 0) or np.any(at >= len(rows)):
            raise DataDependent
        return rows[at]

    def affine(self, op: Op) -> Any:
        start, step = line(op.attrs["index"], self.loop.name) or (None, None)
        if not isinstance(start, int) or not isinstance(step, int):
            raise DataDependent
        return start + step * self.found[self.loop.index]

    def chosen(self, op: Cond, value: Value) -> Any:
        """The result of a branch."""
        join = next(j for j in op.outs if j.outer is value)
        return np.where(self.of(op.test), self.of(join.then), self.of(join.orelse))


def iterations(trace: Trace, frame: Frame, tests: Sequence[tuple[Any, bool]]) -> list[int] | None:
    """The iterations in which all tests have these answers; None where the index does not say, or
    there are none."""
    loop = frame.loop
    if loop is None or not isinstance(loop.trip, int) or loop.trip == ENDLESS or not tests:
        return None
    values = IndexValues(trace, frame, loop.trip)
    try:
        answers = [np.broadcast_to(values.of(q.value) == truth, loop.trip) for q, truth in tests]
    except DataDependent:
        return None
    return np.flatnonzero(np.logical_and.reduce(answers)).tolist()  # type: ignore[no-any-return]


def gathered(trace: Trace, segment: StackedRun, chosen: Sequence[int]) -> StackedRun:
    """The elements of some iterations; where data ends the loop, of those that ran, which are
    equally far apart."""
    if isinstance(segment.trip, Size):
        return spaced(trace, segment, chosen)

    def take(leaf: Any) -> Any:
        whole = leaf.stacked(trace, 0)
        return Unstacked(rows_of(trace, whole, chosen), leaf.number, leaf.members)

    return StackedRun(len(chosen), mapped(take, segment.tree), origin=(segment,))


def spaced(trace: Trace, segment: StackedRun, chosen: Sequence[int]) -> StackedRun:
    """The elements of those of some iterations that a segment has."""
    assert isinstance(segment.trip, Size)
    start, step = chosen[0], [*chosen, chosen[0] + 1][1] - chosen[0]
    with trace.pause():
        rows = paddle.to_tensor(np.asarray(chosen))
    ran = rows < trace.fake(trace.dim_value(segment.trip), True)
    total = ran.astype("int64").sum()
    least = int(start == 0 and trace.sizes.surely(segment.trip, 1))
    length = size_from(trace, lift(trace, total)._value, len(chosen), least)

    def cut(leaf: Any) -> Any:
        whole = leaf.stacked(trace, 0)
        attrs = {"axis": 0, "start": start, "length": length, "step": step}
        value = trace.emit("slice", [whole._value], attrs)
        return Unstacked(trace.fake(value, whole.stop_gradient), leaf.number, leaf.members)

    return StackedRun(length, mapped(cut, segment.tree), origin=(segment,))


def rows_of(trace: Trace, whole: FakeTensor, chosen: Sequence[int]) -> Any:
    """Rows of a tensor: a slice, if they are equally far apart."""
    steps = {b - a for a, b in zip(chosen, chosen[1:])} or {1}
    if len(steps) > 1:
        with trace.pause():
            index = paddle.to_tensor(np.asarray(chosen))
        return paddle.index_select(whole, index, 0)
    start = chosen[0] if chosen else 0
    attrs = {"axis": 0, "start": start, "length": len(chosen), "step": steps.pop()}
    value = trace.emit("slice", [whole._value], attrs)
    return trace.fake(value, whole.stop_gradient)


def counted(trace: Trace, most: Dim, leaf: KnownValue) -> Unstacked:
    """The numbers of an inner loop that follow from its index."""
    x: Any = leaf.value
    known = line(dim_of(x), leaf.loop) if type(x) is int or is_symint(x) else None
    start, step = known or (0, None)
    if not isinstance(step, int):
        raise NeedsConcrete(f"{describe(x)} is appended to a list by an inner loop")
    ones: Any = trace.fake(
        trace.emit("full", [], {"value": 1, "shape": (most,), "dtype": I64}), True
    )
    numbers = (ones.cumsum() - 1) * step + trace.fake(trace.dim_value(start), True)
    return Unstacked(numbers, True, ())


# ---------------------------------------------------------------- bounds of the index
def bound_of(trace: Trace, name: str, fact: PathCondition, ahead: int = 0) -> Dim | None:
    """The largest trip count if `gap op 0` holds after each iteration but the last; None if the
    comparison gives no bound. `name`: of the index; `ahead`: as much before that iteration ends."""
    op, gap = fact
    if op in ("is", "not"):
        return None
    gap = substitute_dim(gap, {name: Size.named(name) + ahead})
    start, step = line(gap, name) or (0, 0)
    if not isinstance(step, int) or step == 0:
        return None
    if op in ("gt", "ge") or (op == "ne" and step < 0):
        start, step, op = 0 - start, -step, {"gt": "lt", "ge": "le"}.get(op, op)
    if step < 0 or op == "eq":
        return None
    if op == "le":
        start = start - 1
    return steps_below(trace, start, step, op)


def steps_below(trace: Trace, start: Dim, step: int, op: str) -> Dim | None:
    """1 + the least i >= 0 for which `start + step * i` is not below 0 (for ne: is 0)."""
    if isinstance(start, int):
        if op == "ne" and (start > 0 or start % step):
            return None
        return 1 + max(0, -(start // step))
    names = trace.sizes.loops if step == 1 else trace.sizes.births
    if op == "ne" and step != 1 or any(n in names for n in start.names):
        return None
    if trace.sizes.settle(start) > 0:
        return None
    trace.require(0 - start, 0, "the end of a while loop")
    with trace.outside():
        return 1 - start if step == 1 else steps_over(trace, step - start, step)


def constant_step(dim: Dim) -> int:
    """The step of a number as an int; raises TypeMismatch for a size."""
    if isinstance(dim, Size):
        raise TypeMismatch("an integer", "a number", f"a number that moves by {dim}")
    return dim
