"""Ctrl-C in native code: a long loop polls Python for signals.

The table of a call then ends in addresses of functions of Python's own interface, and in room for
the exception that a signal handler raised; native code returns `INTERRUPTED`, and the exception is
raised from here.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NoReturn

#: what native code returns when a signal handler raised
INTERRUPTED = -1

FUNCTIONS = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
#: entries of the table: the functions, then type, value and traceback of an exception
ENTRIES = len(FUNCTIONS) + 3
ADDRESSES = tuple(
    ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value for n in FUNCTIONS
)


def prepare(table: ctypes.Array[ctypes.c_char], at: int) -> None:
    """Write the addresses into a table, from byte `at` on."""
    struct.pack_into(f"={len(FUNCTIONS)}q", table, at, *ADDRESSES)


def raise_from(table: ctypes.Array[ctypes.c_char], at: int) -> NoReturn:
    """Raise the exception that native code put behind the addresses."""
    found = struct.unpack_from("=3q", table, at + 8 * len(FUNCTIONS))
    restore = ctypes.pythonapi.PyErr_Restore
    restore.argtypes, restore.restype = [ctypes.c_void_p] * 3, None
    restore(*(p or None for p in found))
    raise KeyboardInterrupt
