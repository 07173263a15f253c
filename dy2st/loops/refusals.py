"""Errors of loops of which some or all iterations run one by one."""

from __future__ import annotations

from dy2st.state.ownership import refuse
from dy2st.state.tree import TypeMismatch
from dy2st.trace.signals import Refused
from ir import Loc
from ir.loc import source_error

#: begins the reason of an error in a loop that has been unrolled
UNROLLED = "The loop cannot become one loop:"


def has_no_iteration(first: BaseException | None, site: Loc) -> None:
    """Refuse a call without iterations, where the first iteration creates an object in place of
    None."""
    name = getattr(first, "name", "")
    raise ValueError(
        f"the loop has no iteration, and '{name}' is None before it ({site}); give '{name}' its "
        "type before the loop"
    )


def set_in_loop(name: str) -> BaseException:
    """The error of a read of a container that has a name only if a loop runs."""
    return refuse(
        f"'{name}' is read after a loop that may not run, depending on data.",
        "The loop gives this name to a list, dict or object; if it does not run, there is none.",
        "Set it before the loop.",
    )


def without_an_iteration(e: Refused, first: BaseException | None, site: Loc) -> Refused:
    """The error of a loop that is traced, but whose end cannot be merged with no iteration."""
    if not isinstance(first, TypeMismatch) or e.error.loc != site:
        return e
    return Refused(
        f"'{first.name}' changes type in this loop, which may not run at all.",
        site,
        reason=f"It is {first.before} before and {first.after} after an iteration, and data "
        f"decides whether there is one: {e.error.message}",
        remedy=f"Give '{first.name}' its type before the loop (`paddle.zeros(...)`).",
    )


def of_unrolled(e: Refused, first: BaseException | None, site: Loc, why: str) -> Refused:
    """The error of a variable that has another type at each place where data may end the loop: one
    loop has one such place."""
    if e.error.loc != site or UNROLLED in e.error.reason:
        return e
    reason, remedy = f"{UNROLLED} {why}.\n{e.error.reason}", e.error.remedy
    if isinstance(first, TypeMismatch) and first.after.startswith("a list ["):
        remedy = (
            "Append to the list and store what changes (`ys[k] = ...`), or keep one tensor: "
            "`ys = paddle.concat([ys[order], y])`."
        )
    parts = {"here": e.error.here, "reason": reason, "remedy": remedy}
    return Refused(source_error(type(e.error))(e.error.message, site, **parts))
