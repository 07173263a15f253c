"""The runtime of functions marked with `not_to_static`: control flow is Python's, at trace time.

Everything else is as in converted code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dy2st.loops.iterables import sequence_of, taken
from dy2st.runtime import calls
from dy2st.state.ownership import note_contents, refuse
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.trace import current

WHY = "in a function marked not_to_static"
State = Callable[..., object]


def __getattr__(name: str) -> Any:
    return getattr(calls.RUNTIMES["converted"], name)


def truth(value: object) -> bool:
    """The truth of a Python value; a condition on data is refused by name."""
    if current() is not None and (isinstance(value, Tensor) or is_runtime_scalar(value)):
        raise refuse(
            f"a condition on data {WHY}.",
            "Its branches and loops stay Python, which would need the value at trace time.",
            "Remove the mark, or select with `paddle.where`.",
        )
    return bool(value)


def for_(
    iterable: Iterable[object],
    body: Callable[[object], None],
    get_state: State,
    set_state: State,
    names: object,
    test: Callable[[], object] | None = None,
) -> None:
    with taken(iterable, test is not None) as rest:
        run_through(rest, body, test)


def run_through(
    iterable: Iterable[object],
    body: Callable[[object], None],
    test: Callable[[], object] | None,
) -> None:
    trace = current()
    over = sequence_of(trace, iterable) if trace is not None else None
    if trace is not None and over is not None:
        if over.is_open():
            length = "of a length that data decides"
            raise refuse(
                f"a loop {length if over.more else f'over the named size {over.trip}'} {WHY}.",
                "Its loops are unrolled.",
                "Remove the mark, or give the size as a number in input_spec.",
            )
        if over.trip != 0:
            trace.frame.notes.append(("unrolled", trace.where(), WHY))
        iterable = map(over.item, range(over.trip))  # type: ignore[arg-type]
    elif trace is not None:
        note_contents(trace, iterable)
    items = iter(iterable)
    while test is None or truth(test()):
        try:
            item = next(items)
        except StopIteration:
            return
        body(item)


def while_(
    test: Callable[[], object], body: State, get_state: State, set_state: State, names: object
) -> None:
    while truth(test()):
        body()


def if_(
    test: object, then: State, orelse: State, get_state: State, set_state: State, names: object
) -> None:
    then() if truth(test) else orelse()


def and_(*thunks: Callable[[], object]) -> object:
    value: object = True
    for i, thunk in enumerate(thunks):
        value = thunk()
        if i + 1 < len(thunks) and not truth(value):
            return value
    return value


def or_(*thunks: Callable[[], object]) -> object:
    value: object = False
    for i, thunk in enumerate(thunks):
        value = thunk()
        if i + 1 < len(thunks) and truth(value):
            return value
    return value


def not_(value: object) -> bool:
    return not truth(value)


def ifexp(test: object, then: Callable[[], object], orelse: Callable[[], object]) -> object:
    return then() if truth(test) else orelse()
