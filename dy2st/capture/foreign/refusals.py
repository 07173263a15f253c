"""Errors of foreign calls: eager's error at the user's line, and shapes that depend on values."""

from __future__ import annotations

from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace
from ir import SourceError

SIGNS = {
    "add": "+", "radd": "+", "sub": "-", "rsub": "-", "mul": "*", "rmul": "*", "truediv": "/",
    "rtruediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "getitem": "indexing",
    "setitem": "item assignment",
}  # fmt: skip


def refusal(trace: Trace, name: str, cause: Exception) -> Refused:
    """The eager error, at the user's line."""
    text = str(cause).strip().split("\n")
    lines = [q.strip() for q in text if q.strip() and "-----" not in q and "Traceback" not in q]
    hints = [q for q in lines if "Error" in q or "Invalid" in q] or lines[-1:] or [repr(cause)]
    short = name.removeprefix("Tensor.")
    short = SIGNS.get(short.strip("_"), short) if short != name else name
    error = SourceError(
        f"{short} does not accept these arguments.",
        trace.where(),
        reason=hints[0][:400],
        remedy="Check the shapes and dtypes; run the function eagerly to see the same error.",
    )
    error.__cause__ = cause
    return Refused(error)


def shape_by_value(trace: Trace, what: str) -> Refused:
    """A result whose shape is not known before the values are."""
    return Refused(
        SourceError(
            f"the shape of {what} depends on values.",
            trace.where(),
            reason="In a program every shape follows from the shapes of the inputs.",
            remedy="Keep the full shape and a mask: `paddle.where(mask, x, 0)`, and divide by "
            "`mask.sum()` for a mean; or make this call outside of the translated function.",
        )
    )
