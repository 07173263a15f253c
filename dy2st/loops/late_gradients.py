"""In which iteration a value of a loop's body first requires a gradient.

A tensor that is carried may get one from a parameter in the first iteration, another one from that
tensor in the second. This follows from the ops of one trace, so that the next one knows all places.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dy2st.trace.trace import Frame, Trace
from ir import Op, Value
from ir.autodiff.activity import spread
from ir.uses import walk


def first_iterations(
    trace: Trace, frame: Frame, carried: Mapping[Value, Value], late: Collection[Value]
) -> dict[Value, int]:
    """The values of the body that require a gradient, with the iteration from which they do.

    carried: placeholders with their values after an iteration. late: those of them that have a
    gradient in this trace, but not in the first iteration.
    """
    from_late = set(late)
    reach(trace, frame, from_late)
    varies = with_gradient(trace, frame) - from_late
    out: dict[Value, int] = {}
    while True:
        reach(trace, frame, varies)
        iteration = 1 + max(out.values(), default=-1)
        out.update((v, iteration) for v in varies if v not in out)
        new = {inner for inner, after in carried.items() if after in varies} - varies
        if not new:
            return out
        varies |= new


def with_gradient(trace: Trace, frame: Frame) -> set[Value]:
    """The values that require a gradient in this trace, as the body has them."""
    trained = trace.autograd.trained

    def home(value: Value) -> Value:
        while value in trace.values.parent and value not in trace.values.makers:
            value = trace.values.parent[value]
        return value

    return trained | {c.inner for outer, c in frame.consts.items() if home(outer) in trained}


def reach(trace: Trace, frame: Frame, varies: set[Value]) -> None:
    """Add the values of the body that vary with one of `varies`, also by a write in place."""
    nodes = [n for n in walk(frame.builder.ops) if isinstance(n, Op)]
    writes = [n for n in nodes if n.row.writes]
    before = -1
    while len(varies) != before:
        before = len(varies)
        spread(varies, frame.builder.ops)
        written = {trace.root(n.operands[0]) for n in writes if n.operands[-1] in varies}
        if written:
            varies.update(v for n in nodes for v in n.operands if trace.root(v) in written)


__all__ = ["first_iterations"]
