"""Loops over functions: plain Python in eager code, one loop of the program in translated code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dy2st.functional.arguments import ScanState
from dy2st.loops import roll
from dy2st.loops.iterables import range_, sequence_of
from dy2st.trace.trace import current


def repeat(
    count: Any, step: Callable[[object], None], carry: ScanState, key: object, unroll: int = 1
) -> None:
    """`step(i)` for i below `count`; each step changes the carry. `key` tells this
    loop from another one at the same line. `unroll` steps become one iteration of the code."""
    trace = current()
    if trace is None:
        for i in range(count):
            step(i)
        return
    over = sequence_of(trace, range_(count))
    assert over is not None
    code = roll.LoopCode(step, carry.get, carry.set, carry.names, None, key, unroll)
    roll.run(trace, over, code)


def key_of(f: object) -> object:
    """Return a key that identifies a function in every trace: its code, or the object itself."""
    return getattr(f, "__code__", None) or id(f)


def repeat_while(
    test: Callable[[], object], step: Callable[[], None], carry: ScanState, key: object
) -> None:
    """`step()` as long as `test()` holds. `key` as for `repeat`."""
    trace = current()
    if trace is not None:
        code = roll.LoopCode(lambda _: step(), carry.get, carry.set, carry.names, test, key)
        return roll.run(trace, roll.UNKNOWN, code)
    while test():
        step()
    return None
