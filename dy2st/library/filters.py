"""Warning filters inside of `with warnings.catch_warnings()`.

They hold while the function is traced, as Paddle may warn then, and are set again around each
warning of the program (`dy2st.capture.foreign.host`).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

from dy2st.state.effects import refusal_of
from dy2st.state.ownership import refuse
from dy2st.trace.trace import current


def filtering(f: Callable[..., None]) -> Callable[..., None]:
    """`warnings.simplefilter` and its like."""

    @functools.wraps(f)
    def call(*args: object, **kwargs: object) -> None:
        trace = current()
        if trace is None:
            return f(*args, **kwargs)
        if not trace.calls.filters:
            raise refuse(f"warnings.{f.__name__}() in a translated function.", *REFUSAL)
        frame, known = trace.calls.filters[-1]
        if frame is not trace.frame:
            raise refuse(
                f"warnings.{f.__name__}() in a branch on data or a loop.",
                "The filters of warnings would depend on data.",
                "Call it first in the `with warnings.catch_warnings()`.",
            )
        f(*args, **kwargs)
        known.append(functools.partial(f, *args, **kwargs))
        return None

    return call


REFUSAL = (
    refusal_of(warnings.simplefilter)[0],
    "Write `with warnings.catch_warnings():` around it, or call it outside of the translated "
    "function.",
)
FILTERS: dict[int, Callable[..., None]] = {
    id(f): filtering(f)
    for f in (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
}
