"""Errors of the backward program come out of `loss.backward()` as they were raised.

Paddle's engine is C++ and makes an `OSError (External)` of an exception in a hook. The hook leaves
its exception here, and the two functions through which Python enters the engine raise it instead.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from paddle.base import core

ENTRIES = ("run_backward", "run_partial_grad")


class Pending(threading.local):
    """The exception that a hook of this thread has raised; `depth`: runs of the engine."""

    error: BaseException | None = None
    depth = 0


PENDING = Pending()


def raises(hook: Callable[..., object]) -> Callable[..., object]:
    """A hook whose exception is kept for the caller of the engine."""

    def kept(*args: object) -> object:
        try:
            return hook(*args)
        except BaseException as error:
            PENDING.error = error
            raise

    return kept


def entered(engine: Callable[..., object]) -> Callable[..., object]:
    """The engine's function; an exception of a hook leaves it unchanged."""

    @functools.wraps(engine)
    def run(*args: object, **kwargs: object) -> object:
        PENDING.depth += 1
        try:
            return engine(*args, **kwargs)
        except OSError as wrapped:
            if PENDING.error is None:
                raise
            raise PENDING.error.with_traceback(None) from wrapped.__cause__
        finally:
            PENDING.depth -= 1
            if not PENDING.depth:
                PENDING.error = None

    run.__dy2st_engine__ = engine  # type: ignore[attr-defined]
    return run


def install() -> None:
    """Once in a process, before the first trace: that replaces one of them while it runs."""
    for name in ENTRIES:
        engine = getattr(core.eager, name)
        if not hasattr(engine, "__dy2st_engine__"):
            setattr(core.eager, name, entered(engine))


__all__ = ["install", "raises"]
