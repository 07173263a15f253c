"""Source locations, and the class that formats every error about them.

`SourceError` shows what is wrong, the lines around it with a caret, and what to do. Low-level code
raises plain facts; the boundary that knows the user's line turns them into a `SourceError`.
"""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

_F = TypeVar("_F", bound=Callable[..., object])
CONTEXT = 2


@dataclass(frozen=True)
class Loc:
    """A place in a source file: line is 1-based, column is 0-based or None when unknown."""

    file: str
    line: int
    column: int | None = None
    function: str = ""
    end_column: int | None = None

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


UNKNOWN = Loc("<unknown>", 0)


class Dy2stError(Exception):
    """Base of every error that dy2st raises on purpose."""

    __module__ = "dy2st"  # its public name, which tracebacks show


class SourceError(Dy2stError):
    """A program that cannot be translated: what is wrong, where, and what to do.

    Args:
        message: what is wrong, naming the user's variable.
        loc: the place; None if there is none.
        here: what to say beside the caret.
        reason: why this cannot be translated.
        remedy: what the user can do.
    """

    __module__ = "dy2st"  # its public name, which tracebacks show

    def __init__(
        self,
        message: str,
        loc: Loc | None = None,
        *,
        here: str = "",
        reason: str = "",
        remedy: str = "",
    ) -> None:
        self.message, self.loc, self.here = message, loc, here
        self.reason, self.remedy = reason, remedy
        super().__init__(message)

    def __str__(self) -> str:
        parts = [f"dy2st: {self.message}"]
        if self.loc is not None and self.loc.line > 0:
            parts.append("\n".join(excerpt(self.loc, self.here)))
        tail = "\n".join(t for t in (self.reason, self.remedy) if t)
        if tail:
            parts.append(tail)
        return "\n\n".join(parts)


#: Python's errors that a SourceError can be at the same time
EAGER = (ValueError, TypeError, IndexError, KeyError, RuntimeError, AssertionError, OverflowError,
         ZeroDivisionError, NotImplementedError)  # fmt: skip


def source_error(kind: type[BaseException]) -> type[SourceError]:
    """The class of a SourceError that `except kind` catches, too: eager raises this `kind`."""
    return next((_BOTH[q] for q in kind.__mro__ if q in _BOTH), SourceError)


def _rebuilt(kind: type[BaseException], message: str) -> SourceError:
    return source_error(kind)(message)


def _both(kind: type[Exception]) -> type[SourceError]:
    def reduced(self: SourceError) -> tuple[object, ...]:
        return _rebuilt, (kind, self.message), vars(self)

    made = type("SourceError", (SourceError, kind), {"__reduce__": reduced})
    made.__module__ = SourceError.__module__
    return made


_BOTH: dict[type, type[SourceError]] = {kind: _both(kind) for kind in EAGER}


class OutOfRange(IndexError, ValueError):
    """An index outside of its axis, for which eager Paddle raises one or the other, as the function
    says that gathers. It is shown as an IndexError."""

    def __reduce__(self) -> tuple[object, ...]:
        return _out_of_range, self.args


def _out_of_range(*args: object) -> OutOfRange:
    return OutOfRange(*args)


OutOfRange.__name__ = OutOfRange.__qualname__ = "IndexError"
OutOfRange.__module__ = "builtins"


#: by file, the first and last lines of functions that act for the user
_ACTING: dict[str, set[tuple[int, int]]] = {}


def acts_for_user(function: _F) -> _F:
    """Marks a function that makes an operation of the user's code on the user's objects (`f(x)`,
    `x[i]`, `x.name`), or raises what the user's code raises: its errors are no defects of ours."""
    code: types.CodeType | None = getattr(function, "__code__", None)
    if code is not None:
        lines = code.co_firstlineno, max(_lines(code))
        _ACTING.setdefault(code.co_filename, set()).add(lines)
    return function


def is_acting(at: types.TracebackType) -> bool:
    """Whether a function that acts for the user, or one inside of it, has raised."""
    found = _ACTING.get(at.tb_frame.f_code.co_filename, ())
    return any(first <= at.tb_lineno <= last for first, last in found)


def _lines(code: types.CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line is not None)
    for q in code.co_consts:
        if isinstance(q, types.CodeType):
            yield from _lines(q)


def excerpt(loc: Loc, here: str = "") -> Sequence[str]:
    """The lines around `loc` with a caret under its column, as in a compiler's message."""
    where = f", {loc.function}" if loc.function else ""
    out = [f"  {loc.file.rsplit('/', 1)[-1]}:{loc.line}{where}"]
    lines = [(n, linecache.getline(loc.file, n)) for n in range(loc.line - CONTEXT, loc.line + 1)]
    lines = [(n, text.rstrip()) for n, text in lines if n > 0 and text]
    if not lines or lines[-1][0] != loc.line:
        return out + ([f"  {here}"] if here else [])
    while len(lines) > 1 and not lines[0][1].strip():
        lines.pop(0)
    width = max(len(str(n)) for n, _ in lines) + 3
    out += [f"{n:>{width}} | {text}".rstrip() for n, text in lines]
    text = lines[-1][1]
    column = loc.column if loc.column is not None else len(text) - len(text.lstrip())
    end = loc.end_column if loc.end_column is not None else column + 1
    pad = "".join(c if c == "\t" else " " for c in text[:column])
    mark = "^" + "~" * (max(1, min(end, len(text)) - column) - 1)
    out.append(f"{'':>{width}}   {pad}{mark} {here}".rstrip())
    return out


class VerifyError(Dy2stError):
    """A program that breaks a rule of the IR: a defect of a pass or of a file."""
