"""Dispatch of an intercepted call: to the adapter of its entry, else to a foreign op.

A call with a complex operand, number or element type goes to the adapters of complex numbers, which
are a table of their own: no other adapter sees one.

An adapter (`dy2st.capture.adapters`) gets an `Emitter` and the call's own arguments. It returns
fake tensors, or raises `NoRow` when the rows do not cover the case: the call then becomes a
`foreign` op, executed by Paddle's own kernel when the program runs. So it does where an adapter
needs a number and has a named size (`NotANumber`). Where Python stops an adapter otherwise, eager
Paddle is asked: it refuses the call, too, or the adapter has a defect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dy2st.capture import foreign
from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.adapters.complex import COMPLEX, takes_complex
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.signals import raise_defect
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import is_internal
from ir import ShapeError
from ir.types import NotANumber


def record(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """One intercepted call on the tracing thread, of Paddle's entry of this name."""
    trace = current()
    assert trace is not None
    mark, count = trace.undo_log.mark(), len(trace.builder.ops)
    adapter = (COMPLEX if takes_complex(args, kwargs) else ADAPTERS).get(name)
    cause: Exception | None = None
    if adapter is not None:
        try:
            return adapter(Emitter(trace), *args, **kwargs)
        except (NoRow, ShapeError) as e:
            cause = e
        except Exception as e:
            if not is_internal(e):
                raise
            cause = NoRow(str(e)) if isinstance(e, NotANumber) else e
        trace.undo_log.undo_to(mark)
        drop_ops(trace, count)
    if is_internal(cause):
        foreign.refuse_as_eager(trace, name, args, kwargs)
        raise_defect(cause)
    if takes_complex(args, kwargs):
        raise foreign.not_for_complex(trace, name, cause)
    return foreign.record(trace, name, args, kwargs, cause)


def drop_ops(trace: Trace, count: int) -> None:
    """Forget what a failed adapter or loop emitted; index values among it must be made again."""
    frame = trace.frame
    del frame.builder.ops[count:]
    present = {r for op in frame.builder.ops for r in op.results}
    if frame.loop is not None:
        present.add(frame.loop.index)
    keep = {
        d: v
        for d, v in frame.indices.items()
        if v in present or trace.values.frame_of[v] is not frame
    }
    frame.indices = keep
    frame.derived.clear()
    frame.makers.clear()
    frame.made = 0
    frame.made = 0
