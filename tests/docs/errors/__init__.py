"""The catalogue of messages: programs that dy2st refuses, and calls that it rejects.

Each module of this folder is a section of `docs/errors.md`; its docstring introduces the section.
`@example(*args)` marks a function that is translated and called with these arguments; `@script` one
without arguments, whose body is the whole program. `python -m scripts.errors_page` writes the page.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import os
import pkgutil
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import paddle

import dy2st


@dataclass(frozen=True)
class Example:
    """A program and how it is called.

    arguments: a call's arguments; a callable makes them anew for each call. options: those of
    `to_static`. calls: how many calls are made; the last one fails, or warns. backward: whether
    the sum of the last result is differentiated. ends: whether
    eager Paddle comes to an end. whole: the function takes no arguments, and is not translated.
    """

    function: Callable[..., Any]
    arguments: Sequence[Any] = ()
    options: dict[str, Any] = field(default_factory=dict)
    calls: int = 1
    backward: bool = False
    ends: bool = True
    whole: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @property
    def source(self) -> str:
        """The function as the page shows it, without its decorators."""
        text = inspect.getsource(self.function)
        return re.sub(r"\A(?:@.*\n(?:    .*\n|\)\n)*)+", "", text).rstrip()

    def given(self) -> list[Any]:
        return [copied(a() if callable(a) else a) for a in self.arguments]

    def run(self) -> Any:
        """The calls; raises what the last one raises."""
        if self.whole:
            return self.function()
        static, out = dy2st.to_static(self.function, **self.options), None
        for _ in range(self.calls):
            out = static(*self.given())
        return out.sum().backward() if self.backward else out

    def run_eagerly(self) -> Any:
        out = None
        with kept(), elsewhere():
            for _ in range(self.calls):
                out = self.function(*self.given())
            return out.sum().backward() if self.backward else out


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """What a program changes of the process is as it was afterwards."""
    records, variables = paddle.is_grad_enabled(), dict(os.environ)
    try:
        yield
    finally:
        paddle.set_grad_enabled(records)
        os.environ.clear()
        os.environ.update(variables)


def copied(x: Any) -> Any:
    if not isinstance(x, paddle.Tensor):
        return copy.deepcopy(x)
    y = x.detach().clone()
    y.stop_gradient = x.stop_gradient
    return y


def example(*arguments: Any, **rest: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function that is translated and called. Keywords: the fields of `Example`."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__dict__["example"] = Example(function, arguments, **rest)
        return function

    return mark


def script(function: Callable[[], Any]) -> Callable[[], Any]:
    """A function whose body is the whole program."""
    function.__dict__["example"] = Example(function, whole=True)
    return function


# ---------------------------------------------------------------- sections
def sections() -> Iterator[tuple[ModuleType, list[Example]]]:
    """The modules of the catalogue in the order of their names, with their examples."""
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda q: q.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        functions = [f for f in vars(module).values() if inspect.isfunction(f)]
        yield module, [vars(f)["example"] for f in functions if "example" in vars(f)]


def examples() -> list[Example]:
    return [q for _, found in sections() for q in found]


# ---------------------------------------------------------------- what a user sees
@dataclass(frozen=True)
class Outcome:
    """What a program printed: an error, or else warnings; and the lines of dy2st that made it."""

    kind: str
    text: str
    error: BaseException | None
    sites: frozenset[tuple[str, int]]


def outcome(example: Example, watched: bool = False) -> Outcome:
    """Run it in an empty folder; the message as the last lines of a traceback print it.

    `watched`: the lines are also those that raised an error of this text; it takes twice as long.
    """
    error: BaseException | None = None
    with warnings.catch_warnings(record=True) as warned, noted() as sites, elsewhere(), kept():
        warnings.simplefilter("always")
        with raised() if watched else contextlib.nullcontext([]) as passed:
            try:
                example.run()
            except Exception as e:
                error = e
    if error is not None:
        sites.update(lines_of(error))
        sites.update(site for site, text in passed if text and text in shown(error))
        return Outcome(type(error).__name__, shown(error), error, frozenset(sites))
    own = [w for w in warned if "dy2st" in str(w.message)]
    kind = type(own[0].message).__name__ if own else ""
    return Outcome(kind, "\n".join(f"{w.category.__name__}: {w.message}" for w in own), None,
                   frozenset(sites))  # fmt: skip


@functools.cache
def outcomes() -> dict[str, Outcome]:
    """What each example prints, by its name; they are run once in a process."""
    return {q.name: outcome(q) for q in examples()}


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """An empty working directory, and tracebacks with all of their frames."""
    before, debug = os.getcwd(), os.environ.get("DY2ST_DEBUG")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["DY2ST_DEBUG"] = "1"
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.pop("DY2ST_DEBUG")
            if debug is not None:
                os.environ["DY2ST_DEBUG"] = debug


def shown(error: BaseException) -> str:
    """As every version of Python prints it."""
    text = "".join(traceback.format_exception_only(type(error), error)).rstrip()
    text = re.sub(r"\. Did you mean: '\w+'\?$", "", text)
    return text.replace("max() iterable argument is empty", "max() arg is an empty sequence")


@contextlib.contextmanager
def noted() -> Iterator[set[tuple[str, int]]]:
    """Collects the lines of dy2st that are running when one of its errors or warnings is made."""
    found: set[tuple[str, int]] = set()
    made, warn, explicit = dy2st.SourceError.__init__, warnings.warn, warnings.warn_explicit

    def init(self: Any, *args: Any, **rest: Any) -> None:
        found.update(running())
        found.update(lines_of(sys.exc_info()[1]))
        made(self, *args, **rest)

    def warned(*args: Any, **rest: Any) -> None:
        found.update(running())
        warn(*args, **rest)

    def warned_at(*args: Any, **rest: Any) -> None:
        found.update(running())
        explicit(*args, **rest)

    dy2st.SourceError.__init__ = init  # type: ignore[method-assign]
    warnings.warn, warnings.warn_explicit = warned, warned_at  # type: ignore[assignment]
    try:
        yield found
    finally:
        dy2st.SourceError.__init__ = made  # type: ignore[method-assign]
        warnings.warn, warnings.warn_explicit = warn, explicit


@contextlib.contextmanager
def raised() -> Iterator[list[tuple[tuple[str, int], str]]]:
    """Collects the lines of dy2st that raise, with the texts: some errors are raised again by
    code that keeps their text only."""
    found: list[tuple[tuple[str, int], str]] = []

    def inside(frame: FrameType, event: str, given: Any) -> Any:
        frame.f_trace_lines = False
        if event == "exception":
            found.append(((frame.f_code.co_filename, frame.f_lineno), str(given[1])))
        return inside

    def called(frame: FrameType, event: str, given: Any) -> Any:
        return inside(frame, event, given) if "/dy2st/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield found
    finally:
        sys.settrace(before)


def running() -> Iterator[tuple[str, int]]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


def lines_of(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """The lines that an exception and its causes came through."""
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield frame.f_code.co_filename, line
        error = error.__cause__ or error.__context__
