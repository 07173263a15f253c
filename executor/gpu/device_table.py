"""The table of a program in device memory: 64-bit words that are the argument of all kernels.

Failures come first, then the words of `executor.executable.CallTable` up to the counts of loops,
then values for the message of a failure, then cells: numbers that one kernel finds for a later one.
Last are the counters of the kernels' barriers, each in a line of the cache of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from executor.executable import CallTable
from executor.launches import CODE_BITS

#: a word of failures holds the order of the launch that fails, whether an index is told, and the
#: number of the error; the least word is the failure that the CPU would meet first
CODE = (1 << CODE_BITS) - 1
INDEXED = 1 << CODE_BITS
ORDER = CODE_BITS + 1
#: what it holds where nothing has failed
NONE = (1 << 64) - 1

FAILURES, INDEX, CALL = 0, 4, 5
#: words of a line
LINE = 16


def shown(call: CallTable) -> int:
    """The offset of the values for a message."""
    return CALL + call.asks


def first_cell(call: CallTable) -> int:
    return shown(call) + call.calls - call.shown


@dataclass(frozen=True)
class DeviceTable:
    """The offsets of the words of one program; `cells` by the name of a symbol."""

    call: CallTable
    cells: Mapping[str, int]
    kernels: int

    @property
    def counters(self) -> int:
        return -(-(first_cell(self.call) + len(self.cells)) // LINE) * LINE

    @property
    def words(self) -> int:
        return self.counters + LINE * self.kernels
