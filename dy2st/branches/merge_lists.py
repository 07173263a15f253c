"""Conditional elements: elements that only one branch of a condition on data appends to a list.

    for t in range(n):
        h = cell(h)
        if stop(h):
            break                  every iteration that is followed by another one appends, so the
        ys.append(h)               list has one element per iteration, except perhaps for the last

In any other case the length of the list depends on data in a way that no loop can follow, and the
append is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dy2st.state.stacked_run import StackedRun, Unstacked, mapped
from dy2st.trace import scalar
from dy2st.trace.item import size_of
from dy2st.trace.scalar import PathCondition, RuntimeScalar
from ir import Type, Value
from ir.types import I64

if TYPE_CHECKING:
    from dy2st.loops.ports import LoopPorts


@dataclass(frozen=True)
class ConditionalElement:
    """`item` was appended where `ran` is true, which follows from `facts`; `error` says why that
    is wrong where nothing follows from it."""

    item: Any
    ran: RuntimeScalar
    facts: frozenset[PathCondition]
    error: BaseException


def missed(plan: LoopPorts, one: ConditionalElement) -> Value:
    """1 after the loop if its last iteration did not append, else 0; as i64[]."""
    trace = plan.trace
    if not one.facts <= plan.attempt.goes_on and not plan.attempt.once:
        raise one.error
    with trace.outside():
        none = scalar.value_in(trace, 0, I64)
    inner = trace.read_value(scalar.value_in(trace, scalar.negate(one.ran), I64))
    return plan.add_carry(trace.new_value(Type(I64), "missed"), none, inner, "missed")


def shortened(plan: LoopPorts, segment: StackedRun, less: Value) -> StackedRun:
    """The segment without its last element where `less` is 1."""
    trace = plan.trace
    total = trace.emit("subtract", [trace.dim_value(segment.trip), less], {})
    length = size_of(trace, total, plan.attempt.loop.trip)

    def cut(leaf: Any) -> Any:
        whole = leaf.stacked(trace, 0)
        attrs = {"axis": 0, "start": 0, "length": length, "step": 1}
        value = trace.emit("slice", [whole._value], attrs)
        return Unstacked(trace.fake(value, whole.stop_gradient), leaf.number, leaf.members)

    return StackedRun(length, mapped(cut, segment.tree))


__all__ = ["ConditionalElement", "missed", "shortened"]
