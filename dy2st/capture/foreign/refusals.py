"""Errors of foreign calls: eager's error at the user's line, and shapes that depend on values."""

from __future__ import annotations

from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace
from ir import SourceError
from ir.loc import source_error

SIGNS = {
    "add": "+", "radd": "+", "sub": "-", "rsub": "-", "mul": "*", "rmul": "*", "truediv": "/",
    "rtruediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "getitem": "indexing",
    "setitem": "item assignment",
}  # fmt: skip


def refusal(trace: Trace, name: str, cause: Exception, eager: bool = False) -> Refused | Exception:
    """A call that cannot be recorded, at the user's line. `eager`: eager Paddle raises the cause,
    which a handler inside of the function may wait for."""
    if eager and trace.trying:
        return cause
    text = str(cause).strip().split("\n")
    lines = [q.strip() for q in text if q.strip() and "-----" not in q and "Traceback" not in q]
    hints = [q for q in lines if "Error" in q or "Invalid" in q] or lines[-1:] or [repr(cause)]
    short = name.removeprefix("Tensor.")
    short = SIGNS.get(short.strip("_"), short) if short != name else name
    kind = source_error(type(cause)) if eager else SourceError
    error = kind(
        f"{short} does not accept these arguments.",
        trace.where(),
        reason=hints[0][:400],
        remedy="Check the shapes and dtypes: eager Paddle raises this, too."
        if eager
        else "Check the shapes and dtypes, or make this call outside of the translated function.",
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
