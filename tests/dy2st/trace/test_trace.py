"""The state of a trace: a few groups of facts, each with a class of its own."""

from __future__ import annotations

from typing import Any

from dy2st.trace.trace import Trace

MOST_FIELDS = 20


def test_a_trace_has_few_fields():
    nothing: Any = None
    fields = vars(Trace({}, nothing, nothing))
    assert "loop_facts" in fields
    assert len(fields) <= MOST_FIELDS
