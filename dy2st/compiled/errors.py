"""Errors on their way to the user: the user's own classes, and tracebacks without our frames."""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from dy2st.state.strings import is_lazy
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import is_internal, is_own_file, is_user_file, raised_at
from ir import Loc, SourceError
from ir.analysis.alias import AliasError

#: errors that data may raise, by their number (`site`), or else by the builtin class and the name
#: of the user's class
UsersErrors: TypeAlias = Mapping[int | tuple[str, str], Exception]


def for_user(error: Exception) -> Exception:
    """An error for the user, without the frames of dy2st in its traceback; that of a refusal ends
    in the user's code.

    A defect of dy2st keeps its frames, and with DY2ST_DEBUG=1 every error does.
    """
    if os.environ.get("DY2ST_DEBUG", "") == "1" or is_internal(error):
        return error
    frames = list(frames_of(error.__traceback__))
    names = [q.tb_frame.f_code.co_filename for q in frames]
    if isinstance(error, SourceError) and any(map(is_user_file, names)):
        end = max(k for k, name in enumerate(names) if is_user_file(name)) + 1
        frames = frames[:end]
    new = None
    for q, name in reversed(list(zip(frames, names))):
        if not is_own_file(name):
            new = types.TracebackType(new, q.tb_frame, q.tb_lasti, q.tb_lineno)
    return error.with_traceback(new)


def frames_of(at: types.TracebackType | None) -> Iterable[types.TracebackType]:
    while at is not None:
        yield at
        at = at.tb_next


def written_anew(args: tuple[object, ...]) -> bool:
    """Whether the program has written the text: it has values, or is all that the error holds."""
    return any(map(is_lazy, args)) or len(args) == 1 and isinstance(args[0], str)


def users_error(error: Exception, users: UsersErrors, site: int = 0) -> Exception:
    """Return the user's own error for one that a check of the program raises: that one is of a
    builtin class, and its text begins with the name of the user's class."""
    told = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    name, _, text = told.partition(": ")
    found = users.get(site) or users.get((type(error).__name__, name))
    if found is None:
        return error
    text = told if type(found) is type(error) else text
    new = type(found).__new__(type(found))
    new.__dict__.update(vars(found))
    new.args = (text,) if written_anew(found.args) else found.args
    for note in getattr(error, "__notes__", ()):
        new.add_note(note)  # type: ignore[attr-defined]
    new.__cause__, new.__suppress_context__ = error.__cause__, True
    return new.with_traceback(error.__traceback__)


def in_words(e: AliasError) -> str:
    """Return the text of an error with the user's names: `%h: f32[4]` is 'h' (f32[4]), `%12: ...`
    has none."""

    def tensor(found: re.Match[str]) -> str:
        name, type_ = found.groups()
        return (
            f"'{name}' ({type_})" if name.isidentifier() and name != "_" else f"a tensor ({type_})"
        )

    text = str(e).removesuffix(f" ({e.loc})")
    return re.sub(r"%(\w+): (\w+\[[^\]]*\])", tensor, text)


__all__ = ["UsersErrors", "in_words", "for_user", "users_error"]


def stopped(stop: NeedsConcrete) -> SourceError:
    """A need that no loop has met."""
    what = stop.reason
    if what.endswith(" a loop runs that data ends"):
        return SourceError(
            f"{what}.",
            raised_at(stop),
            reason="It is needed as a plain number, or each element by itself, and the program has "
            "one tensor of all of them.",
            remedy="Read elements, slices or `xs[::-1]` of a list whose elements have one type; or "
            "bound the loop (`for t in range(n): ... break`).",
        )
    for tried in ("the loop", "the block", "a loop"):
        what = what.replace(tried, "a branch on data")
    if stop.loops or what == stop.reason:
        return SourceError(
            "a size or an index of the program is needed as a plain number.",
            raised_at(stop),
            reason=sentence(stop.reason),
            remedy="Give open sizes as numbers in input_spec, bound a loop that data ends "
            "(`for t in range(n): ... break`), or compute with tensors.",
        )
    return SourceError(
        f"{what}.",
        raised_at(stop),
        reason="Both branches are traced before it is known which one runs.",
        remedy="Do this before the branch.",
    )


def unstable(function: Callable[..., object], what: str) -> SourceError:
    """A translation does not hold for the call that it was made for."""
    code: types.CodeType | None = getattr(function, "__code__", None)
    return SourceError(
        f"the function reads and changes {what} in a way that is not followed.",
        None if code is None else Loc(code.co_filename, code.co_firstlineno, function=code.co_name),
        reason="At the beginning of the call it was another one than where the function read it: "
        "it has been changed through another name, or reading changes it.",
        remedy="Read and change it through one name, by assignments and methods of lists and "
        "dicts.",
    )


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def unset(trace: Trace, error: UnboundLocalError) -> SourceError | None:
    """The read of an object that a variable has only if a branch on data runs; None where Python
    code that data does not decide has left it unset."""
    name = next((q for q in trace.undefined.names if f"'{q}'" in str(error)), None)
    if name is None:
        return None
    return SourceError(
        f"'{name}' is read, and a condition on data decides whether it has been set.",
        raised_at(error),
        reason=f"It is set at {trace.undefined.names[name]}, to an object that is neither a tensor "
        "nor a number; where the condition does not hold, it has no value.",
        remedy="Set it before the condition.",
    )


def too_late(times: int, reasons: Sequence[str]) -> SourceError:
    return SourceError(
        f"the function has been traced {times} times, each time with something new "
        "about the memory of its inputs.",
        reason=f"These were found one after another: {'; '.join(reasons)}.",
        remedy="Pass the tensors as arguments, keep contiguous copies of them "
        "(`x.contiguous()`), and write to copies (`x.clone()`).",
    )
