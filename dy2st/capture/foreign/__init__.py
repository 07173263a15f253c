"""Foreign ops: calls without a row, executed by Paddle's own kernel when the program runs.

The results and writes of such a call are measured, not declared: the kernel runs once on small
stand-in tensors of the same types (`probe`). With named sizes it runs several times with different
sizes, and the dims of the results must be affine in them.
"""

from dy2st.capture.foreign import print as print
from dy2st.capture.foreign.host import computed_number, host_call, is_host
from dy2st.capture.foreign.recording import record, refuse_as_eager
from dy2st.capture.foreign.refusals import (
    another_type,
    not_for_complex,
    refusal,
    shape_by_value,
)

__all__ = [
    "another_type", "computed_number", "host_call", "is_host", "not_for_complex", "print", "record",
    "refusal", "refuse_as_eager", "shape_by_value",
]  # fmt: skip
