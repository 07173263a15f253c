"""Errors of foreign calls: eager's error at the user's line, and shapes that depend on values."""

from __future__ import annotations

from dy2st.trace.signals import Refused, not_complex
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import called
from ir import Loc, SourceError
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
    short = SIGNS.get(short.strip("_"), short) if short != name else called(name)
    kind = source_error(type(cause)) if eager else SourceError
    reason = hints[0][:400]
    what = "arguments" if short == "grad" else "shapes and dtypes"
    remedy = f"Check the {what}: eager Paddle raises this, too."
    if not eager:
        reason = f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
        remedy = "Make this call outside of the translated function, or give all sizes as numbers."
    what = "does not accept these arguments" if eager else "cannot be translated here"
    error = kind(f"{short} {what}.", trace.where(), reason=reason, remedy=remedy)
    error.__cause__ = cause
    return Refused(error)


def another_type(trace: Trace, name: str, dtype: str) -> Refused:
    """A call that takes or gives tensors of an element type that programs lack."""
    short = name.removeprefix("Tensor.")
    what = called(name) if short == name else SIGNS.get(short.strip("_"), short)
    return Refused(no_element_type(f"{what} takes or gives", dtype, trace.where()))


def not_for_complex(trace: Trace, name: str, cause: Exception | None) -> Refused:
    """A call with a complex operand that no adapter of complex numbers takes."""
    short = name.removeprefix("Tensor.")
    what = called(name) if short == name else SIGNS.get(short.strip("_"), short)
    why = f" ({cause})" if str(cause or "").strip() else ""
    return Refused(not_complex(what, trace.where(), why))


def no_element_type(what: str, dtype: str, loc: Loc) -> SourceError:
    return SourceError(
        f"{what} a tensor of {dtype}.",
        loc,
        reason="A complex tensor of a program is its two parts, which this call does not know."
        if dtype.startswith("complex")
        else "Programs do not have this element type.",
        remedy="Use float32 or float64."
        if dtype == "bfloat16"
        else "Make this call, and what computes with its result, outside of the translated "
        "function.",
    )


def shape_by_value(trace: Trace, what: str, op: str = "") -> Refused:
    """A result whose shape is not known before the values are; `op`: what gives it."""
    return Refused(
        f"the shape of {what}{called(op)} depends on values.",
        trace.where(),
        reason="Masks and lengths may decide a shape, a kernel that is not translated may not.",
        remedy="Select with a mask (`x[mask]`), or keep the full shape: `paddle.where(mask, x, "
        "0.0)`; or make this call outside of the translated function.",
    )
