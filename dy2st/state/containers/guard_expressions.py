"""Guard expressions by key, and the keys that a trace reads after a host call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from dy2st.trace.undo import Location
from ir import Loc

Key: TypeAlias = tuple[object, ...]


class GuardExpressions(dict[Key, str]):
    """Checks of Python state, as expressions. A trace asks for the key of what it reads, or sets
    it; from both follows `late`, the keys that it reads after a host call.

    around: the outermost loop that is being traced, or None: its next iteration reads all again.
    parts: the keys of the elements of a container, which are read with it. reached: the objects
    that host calls come to, by `id`; names: those that their code has. after: what the program does
    after each host call, given its name and place. checks: of stores in loops that have made some.
    """

    def __init__(self) -> None:
        super().__init__()
        self.around: Callable[[], object] = lambda: None
        self.called = False
        self.checks: list[tuple[object, Callable[[Location], None]]] = []
        self.reached: dict[int, object] = {}
        self.names: set[str] = set()
        self.after: Callable[[str, Loc], None] = lambda name, loc: None
        self.late: set[Key] = set()
        self.parts: dict[Key, set[Key]] = {}
        self.in_loops: dict[object, set[Key]] = {}
        self.open: list[set[Key]] = []

    def __contains__(self, key: object) -> bool:
        self.read(key)  # type: ignore[arg-type]
        return super().__contains__(key)

    def __setitem__(self, key: Key, test: str) -> None:
        self.read(key)
        super().__setitem__(key, test)

    def read(self, key: Key) -> None:
        keys = {key, *self.parts.get(key, ())}
        for found in self.open:
            found |= keys
        if self.called:
            self.late |= keys
        elif (loop := self.around()) is not None:
            self.in_loops.setdefault(loop, set()).update(keys)

    def call(
        self,
        reached: Mapping[int, object],
        names: Collection[str],
        check: Callable[[Location], None],
    ) -> None:
        """A host call that may read and change these objects. In a loop, what is stored after it is
        stored before that of the next iteration: `check` may refuse it."""
        self.called = True
        self.reached.update(reached)
        self.names.update(names)
        self.checks.append((self.around(), check))
        self.late |= self.in_loops.get(self.around(), set())

    def may_change(self, key: Key) -> bool:
        """Whether a host call may change what a guard, or an input, is about."""
        of = key[1] if len(key) > 1 else None
        if isinstance(of, tuple):
            return self.may_change(of)
        if key[0] == "passed":
            return bool(self.reached)
        known = key[0] in ("attr", "global", "own", "absent") and len(key) > 2
        return of in self.reached and (not known or key[2] in (*self.names, "cell_contents"))

    def finish(self) -> None:
        """The trace is over."""
        self.reached.clear()
        self.checks.clear()
        self.in_loops.clear()

    def store(self, place: Location) -> None:
        for loop, check in self.checks:
            if loop is not None and loop is self.around():
                check(place)

    @contextmanager
    def whole(self, key: Key) -> Iterator[None]:
        """Note the reads inside of the `with` statement as parts of a container."""
        found = self.parts[key] = set()
        self.open.append(found)
        try:
            yield
        finally:
            self.open.pop()


__all__ = ["Key", "GuardExpressions"]
