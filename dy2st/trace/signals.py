"""Signals that end a trace. All are `BaseException`s, so that the user's `except Exception` cannot
swallow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar

from dy2st.trace.frames import TracedInput
from dy2st.trace.user_stack import expression, is_internal, user_loc
from ir.loc import Loc, SourceError
from ir.opdef import NotForComplex

#: how a function is traced that is to be saved: "first", without recording gradients, or "again",
#: as the caller would call it, if it takes gradients itself; its program has no backward
SAVED: ContextVar[str] = ContextVar("SAVED", default="")


class NeedsConcrete(BaseException):
    """A loop cannot be rolled: something needs the loop's index, or a carried value, as it is in
    one iteration.

    Args:
        reason: for the report.
        loops: the loops whose index is needed; empty means the innermost one.
        peel: running so many iterations before the loop may settle it.
        cut: running so many of the last iterations after the loop settles it.
        subject: what `reason` says something of, where the user's expression is not known.
        few: a loop of the program is possible, but it has so few iterations that it takes longer.
        own: each iteration has an object of Python's own, so that there are as many as iterations.
    """

    def __init__(
        self,
        reason: str,
        loops: Iterable[object] = (),
        peel: int = 0,
        cut: int = 0,
        subject: str = "",
        few: bool = False,
        own: bool = False,
    ) -> None:
        self.reason, self.few, self.own = f"{subject} {reason}".lstrip(), few, own
        super().__init__(self.reason)
        self.loops, self.peel, self.loc = frozenset(loops), int(peel), user_loc()
        self.cut = cut
        self.predicate = reason if subject else ""

    def told(self, site: Loc) -> str:
        """The reason for the loop at `site`, with the user's expression."""
        text = "" if self.loc == site else expression(self.loc)
        if not text:
            return self.reason
        return f"`{text}` {self.predicate}" if self.predicate else f"{self.reason}: `{text}`"


def pass_on(e: BaseException, loops: Set[object]) -> None:
    """Let a need for the index of other loops, which are among these, pass to them."""
    needed: Set[object] = getattr(e, "loops", frozenset())
    if needed and needed <= loops:
        raise e


class IndexOutOfRange(NeedsConcrete):
    """An index that moves with the loop's leaves its axis in an iteration."""


class Retrace(BaseException):
    """The body moves a place that was not known to move: undo and trace again."""


class RetraceForSharing(BaseException):
    """Inputs share memory, or are not contiguous, in a way that matters: trace again with them as
    views of one storage.

    among: all inputs so far. asked: the trace stopped where the layout of one of them is asked for,
    and others may follow.
    """

    def __init__(
        self, inputs: Sequence[TracedInput], among: Iterable[TracedInput], asked: bool
    ) -> None:
        super().__init__("inputs that share memory")
        self.inputs, self.among, self.asked = list(inputs), list(among), asked


class RetraceUnrolled(BaseException):
    """Loops have taken copies of tensors that are written later: trace again without rolling them.

    calls: for each loop those that led to it. reason: for the report. over_layers: those calls
        that led to loops over Layers.
    """

    def __init__(
        self, calls: Iterable[object], reason: str, over_layers: Iterable[object] = ()
    ) -> None:
        super().__init__(reason)
        self.calls, self.reason = frozenset(calls), reason
        self.over_layers = frozenset(over_layers)


class RetraceForRead(BaseException):
    """A container from outside that was appended to, as if nobody read it, is read in a loop or
    branch: trace again, and change it like any other container."""

    def __init__(self, container: object) -> None:
        super().__init__("a container that is appended to is also read")
        self.container = container


class RetraceForAlias(BaseException):
    """A container of the arguments is found at another place, too: trace again with the container
    itself instead of a copy."""

    def __init__(self, container: object) -> None:
        super().__init__("a container of the arguments")
        self.container = container


class RetraceForTruth(BaseException):
    """The branches of a condition on numbers of the call cannot be merged: trace again, with its
    truth at this place as a guard."""

    def __init__(self, site: Loc) -> None:
        super().__init__("the truth of a condition on numbers")
        self.site = site


class RetraceForGradients(BaseException):
    """A function that is to be saved takes gradients itself: trace again, recording them."""


class Captured(BaseException):
    """Ends a translation that stops where the program has been recorded: the program, the plan of
    its outputs, the inputs, what it knows of sizes, and the lines of what it stores."""

    def __init__(
        self, program: object, plan: object, inputs: Iterable[TracedInput], *facts: object
    ) -> None:
        super().__init__("captured")
        self.found = program, plan, list(inputs), *facts


class InternalError(BaseException):
    """Carries a defect of dy2st through the user's code to the boundary that raises it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def raise_defect(error: BaseException | None) -> None:
    """Raise an InternalError if this error is a defect of dy2st: before one that has been caught is
    taken for the user's, and where a handler of the user's code waits."""
    if isinstance(error, Exception) and is_internal(error):
        raise InternalError(error) from error


class Refused(BaseException):
    """Carries a SourceError through the user's code to the boundary that raises it: `error`, or
    the one with this message at `loc` and these other parts."""

    def __init__(self, error: SourceError | str, loc: Loc | None = None, **parts: str) -> None:
        self.error = SourceError(error, loc, **parts) if isinstance(error, str) else error
        super().__init__(str(self.error))


def host_number_needed(loc: Loc, name: str, call: str, use: str) -> Refused:
    """The number of a host call is another one on every call."""
    what = f"'{name}' follows from {call}, and" if name else f"the result of {call}"
    return Refused(
        f"{what} is needed while the program is traced ({use}).",
        loc,
        reason="The call is made again on every call of the program, with another result.",
        remedy="Draw outside of the translated function and pass the number as an argument; or "
        "branch on it (`if i == 0: y = a(x)`), or index a stack of tensors with it.",
    )


#: what ops are to the user that no call has the name of
OPS_IN_WORDS = {
    "check": "the text of an error",
    "strided": "shared memory, or memory that is not contiguous and is written,",
    "cast": "the conversion",
}


def not_complex(what: str, loc: Loc, why: str = "") -> SourceError:
    return SourceError(
        f"{OPS_IN_WORDS.get(what, what)} of complex numbers is not translated{why}.",
        loc,
        reason="Programs have real numbers: a complex tensor is its two parts, and this call is "
        "not made of calls on them yet.",
        remedy="Compute with the parts, `x.real()` and `x.imag()`; or make this call outside of "
        "the translated function.",
    )


@contextmanager
def refusing_complex(loc: Loc) -> Iterator[None]:
    """Ops that take real numbers only are refused here."""
    try:
        yield
    except NotForComplex as e:
        raise Refused(not_complex(str(e), loc)) from None
