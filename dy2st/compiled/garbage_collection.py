"""Pausing of the garbage collector during a translation and while a saved program is loaded.

Both make many objects that stay, so that the collector runs again and again; to go through all
objects of Paddle once takes as long as a small trace.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector:
    """`users`: how many of them run, in all threads. `on`: whether it was on before them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.on = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        with self.lock:
            if self.users == 0:
                self.on = gc.isenabled()
                gc.disable()
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0 and self.on:
                    gc.enable()


#: the collector is off inside, and on again after the last of them if it was on before
collector_waits = _Collector().waiting
