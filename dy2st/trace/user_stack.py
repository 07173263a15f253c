"""The user's position in the source: the innermost frame outside of Paddle and of dy2st."""

from __future__ import annotations

import dis
import functools
import linecache
import os
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar

import numpy
import paddle

import ir
from dy2st.convert.syntax import RT
from ir import Loc, SourceError, VerifyError
from ir.loc import acts_for_user, is_acting

#: characters of an expression in a message
MOST_SHOWN = 60
STATEMENTS = ("for ", "while ", "if ", "with ", "return", "async ", "try", "def ", "@")
#: for how many functions the positions of their instructions are kept
MOST_KNOWN = 1000
_KNOWN: dict[int, tuple[types.CodeType, list[Any]]] = {}
_SITE = os.path.dirname(os.path.dirname(os.path.abspath(numpy.__file__))) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(types.__file__)) + os.sep
_PADDLE, _NUMPY, _IR, _DY2ST = (
    os.path.dirname(os.path.abspath(q)) + os.sep
    for q in (paddle.__file__, numpy.__file__, ir.__file__ or "", os.path.dirname(__file__))
)
_EXECUTOR = os.path.join(os.path.dirname(os.path.dirname(_IR)), "executor") + os.sep
_OWN = (_DY2ST, _IR)
_PATCHES = os.path.join(_DY2ST, "capture", "intercept.py")
#: errors that any code may raise, on behalf of anybody
ANYWHERE = (SourceError, StopIteration, RecursionError, MemoryError)
_T = TypeVar("_T")
_RAISE = dis.opmap["RAISE_VARARGS"]


@functools.lru_cache(maxsize=4096)
def is_user_file(name: str) -> bool:
    if is_own_file(name) or name.startswith((_PADDLE, _NUMPY, "<frozen")):
        return False
    return not name.startswith(_STANDARD) or name.startswith(_SITE)


@functools.lru_cache(maxsize=4096)
def is_library_file(name: str) -> bool:
    """A file of the standard library or NumPy, which raise errors for their callers."""
    if name.startswith((_NUMPY, "<frozen")):
        return True
    return name.startswith(_STANDARD) and not name.startswith((_SITE, *_OWN, _EXECUTOR))


def definition(function: object) -> Loc | None:
    """Return the definition of a function, as the location of errors about the whole function."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return None
    file, first = code.co_filename, code.co_firstlineno
    below = range(first, len(linecache.getlines(file)) + 1)
    head = f"def {code.co_name}("
    line = next((k for k in below if linecache.getline(file, k).lstrip().startswith(head)), first)
    return Loc(file, line, function=code.co_name)


def call_stack() -> tuple[tuple[types.CodeType, int], ...]:
    """The user's functions that are running, innermost first, each with its place."""
    out = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            out.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(out)


def variables() -> Iterator[Collection[object]]:
    """The values of the variables of each of the user's functions that are running."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame.f_locals.values()
        frame = frame.f_back


def cells_of(f: object, found: dict[int, types.CellType]) -> Collection[types.CellType]:
    """The variables of enclosing functions that a loop's body uses, if they have a value."""
    for cell in getattr(f, "__closure__", None) or ():
        if id(cell) not in found and cell != types.CellType():
            found[id(cell)] = cell
            cells_of(cell.cell_contents, found)
    return found.values()


def user_loc() -> Loc:
    """The running line of the user; code without a file, as that of a dataclass, has none."""
    frame = sys._getframe(1)
    while frame is not None and not (
        is_user_file(name := frame.f_code.co_filename) and name != "<string>"
    ):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return Loc("<unknown>", 0)
    return _loc(frame.f_code, frame.f_lasti)


def expression(loc: Loc) -> str:
    """The user's text at a place; "" where it is long, or more than one line, or not known."""
    if loc.column is None or loc.end_column is None:
        return ""
    line = linecache.getline(loc.file, loc.line).encode()
    text = line[loc.column : loc.end_column].decode(errors="replace").strip()
    return text if len(text) <= MOST_SHOWN and not text.startswith(STATEMENTS) else ""


def user_name(x: object) -> str:
    """The user's local variable that holds this object where the user's code is running, or ""."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    held = [] if frame is None else list(frame.f_locals.items())
    return next((n for n, v in held if v is x and n.isidentifier() and n[0] != "_"), "")


def called(op: str) -> str:
    """The function of Paddle that the user's code has called, which has come to this op; the op
    where it is no function of a module."""
    found, frame = op, sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        name = frame.f_code.co_name
        known = frame.f_code.co_filename.startswith(_PADDLE) and name in frame.f_globals
        found = name if known and name[0] != "_" else found
        frame = frame.f_back  # type: ignore[assignment]
    return found


def called_method() -> str:
    """The function or method of Paddle's Python code that is running, as the user's code has
    called it; "" if none is."""
    found, frame = "", sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        code = frame.f_code
        if code.co_filename.startswith(_PADDLE):
            found = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
        frame = frame.f_back  # type: ignore[assignment]
    return found.removesuffix(".__init__")


#: what to do with a method of Paddle's that needs values
OUTSIDE = "Return the tensors that it works with, and call it outside of the translated function."


def raised_at(error: BaseException) -> Loc:
    """The innermost of the user's lines that an exception has come through."""
    found, at = None, error.__traceback__
    while at is not None:
        if is_user_file(at.tb_frame.f_code.co_filename):
            found = at
        at = at.tb_next
    if found is None:
        return Loc("<unknown>", 0)
    return _loc(found.tb_frame.f_code, found.tb_lasti)


def innermost(error: BaseException | None) -> types.TracebackType | None:
    """Return the innermost frame of an exception that tells whose it is. Patches of Paddle's
    functions pass calls on, our `__getattr__` says that there is no attribute to the code that asks
    for one, and the standard library and NumPy refuse what their caller gives them, but where they
    are converted like the user's code (`UserDict.__getitem__`)."""
    found = at = None if error is None else error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        asked = code.co_name == "__getattr__" and is_own_file(code.co_filename)
        passes = code.co_filename == _PATCHES and not is_raise(at)
        refuses = is_library_file(code.co_filename) and RT not in code.co_freevars
        if not asked and not passes and not refuses:
            found = at
        at = at.tb_next
    return found


def is_raise(at: types.TracebackType) -> bool:
    """Whether a `raise` or `assert` statement raised, rather than a call or an operator."""
    return at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE


@acts_for_user
def paddle_assertion(text: str) -> NoReturn:
    """Raise an AssertionError as Paddle does, for what the user's code has done."""
    raise AssertionError(text)


def is_own_file(name: str) -> bool:
    """A file of dy2st, or a function that it generates."""
    return name.startswith((*_OWN, _EXECUTOR, "<dy2st"))


@acts_for_user
def perform(operation: Callable[..., _T], *args: object, **kwargs: object) -> _T:
    """`operation(*args, **kwargs)` as the user's code asks for it: where Python or Paddle refuses
    it, so it does in eager, and the error is no defect of ours."""
    return operation(*args, **kwargs)


def raise_again(x: object, name: str) -> None:
    """Raise the AttributeError of a property of our own class. Python asks `__getattr__` instead,
    which would tell the user of an attribute that is missing."""
    classes = (vars(c) for c in type(x).__mro__ if c.__module__.startswith("dy2st."))
    own = next((fields[name] for fields in classes if name in fields), None)
    if own is not None:
        own.__get__(x, type(x))
        raise AssertionError(f"{name} of {type(x).__name__}, asked for again, is there")


def is_internal(error: BaseException | None) -> bool:
    """Whether an exception is a defect of dy2st, not an error of the function that is translated.

    What is meant for the user is raised by a `raise` statement of ours, comes out of code that is
    not ours, or out of a function that acts for the user's code (`perform`). Every other error of
    our own code is a defect, and so is an AssertionError, NameError or VerifyError, however raised.
    """
    at = innermost(error)
    if at is None or not is_own_file(at.tb_frame.f_code.co_filename):
        return False
    if isinstance(error, ANYWHERE) or is_acting(at):
        return False
    return isinstance(error, (AssertionError, NameError, VerifyError)) or not is_raise(at)


def _loc(code: types.CodeType, lasti: int) -> Loc:
    name = getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")
    positions = _positions(code)
    known = positions[lasti // 2] if lasti // 2 < len(positions) else (None, None, None, None)
    line, end_line, column, end = known
    if line is None:
        return Loc(code.co_filename, code.co_firstlineno, None, name, None)
    return Loc(code.co_filename, line, column, name, end if end_line == line else None)


def _positions(code: types.CodeType) -> list[Any]:
    """Line, last line, column and end of each instruction; Python, asked for one, decodes all from
    the first on. Python 3.10 knows the lines only."""
    known = _KNOWN.get(id(code))
    if known is None:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        found = getattr(code, "co_positions", None)
        known = _KNOWN[id(code)] = (code, _lines(code) if found is None else list(found()))
    return known[1]


def _lines(code: types.CodeType) -> list[object]:
    return [(line, line, None, None) for a, b, line in code.co_lines() for _ in range(a, b, 2)]
