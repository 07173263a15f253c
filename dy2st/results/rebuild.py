"""Building the results of one call: the trees of an `OutputPlan`, with real tensors as leaves.

New tensors wrap the program's outputs, inputs come back as the caller's objects, and views are
replayed by Paddle's own view calls.
"""

from __future__ import annotations

from dy2st.results.leaves import CallValues, OutputPlan, fill
from dy2st.state.container_writes import ArgumentContents, Contents


def give_back(plan: OutputPlan, call: CallValues) -> object:
    """Repeat the attribute and item stores of the trace; returns the call's result."""
    given = call.containers() if plan.stores else []
    out = fill(plan.result, call)
    stores = [(place.now(), fill(tree, call)) for place, tree in plan.stores]
    for place, value in stores:
        if isinstance(place, ArgumentContents):
            place = Contents(given[place.index])
        place.put(value)
    for k in plan.moved:
        call.inputs(k).contiguous()
    return out
