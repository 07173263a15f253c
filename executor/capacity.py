"""Programs with capacities: bounds of sizes that are known only at run time.

A tensor that a `while True` makes longer lies in a buffer with room for so many iterations. A run
that needs more stops with `CapacityExceeded`, before it has written anything, and the program
starts again with more; the next call, also that of another program of the same function, begins
with what the last one needed. So memory follows the length that there is, and a program runs in one
piece.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from executor.executable import (
    CallResults,
    Executable,
    Make,
    call_with_arrays,
    empty,
    output_bounds,
)
from executor.host_calls import Foreign, HostOperand
from executor.segmented.interpreter import Interpreted
from ir import MIN_CAPACITY, CapacityExceeded, Op, Scan
from ir.types import evaluate_dim

#: up to this capacity a program starts again with four times as much, beyond it with twice
LARGE = 1024


class Replay:
    """Calls of Python by a program that may start again: those that it has made give the same then,
    and are not made twice."""

    def __init__(self, foreign: Foreign) -> None:
        self.foreign = foreign
        self.local = threading.local()

    def __call__(
        self,
        op: Op,
        operands: Sequence[HostOperand],
        results: Sequence[HostOperand],
        sizes: Mapping[str, int],
    ) -> Callable[[], None]:
        run = self.foreign(op, operands, results, sizes)

        def call() -> None:
            log = self.local.log
            at = self.local.at = self.local.at + 1
            if at == len(log):
                run()
                log.append([q.array.copy() for q in results])
                return
            for q, array in zip(results, log[at]):
                q.array[...] = array

        return call

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call of the program; one of its own calls may be another call of it."""
        outer, self.local.log = getattr(self.local, "log", []), list[list[np.ndarray]]()
        at = getattr(self.local, "at", -1)
        self.again()
        try:
            yield
        finally:
            self.local.log, self.local.at = outer, at

    def again(self) -> None:
        """The program starts again."""
        self.local.at = -1


class GrowingExecutable:
    """Like `Executable`. The capacities are among the `counts`: sizes that a call finds. `bounds`
    says None for an output whose size follows from one of them, as that of `Interpreted`."""

    def __init__(self, whole: Executable | Interpreted, replay: Replay | None) -> None:
        self.whole, self.replay = whole, replay
        self.program = replace(whole.program, capacities=())
        self.sizes, self.inputs, self.outputs = self.program.sizes, whole.inputs, whole.outputs
        self.capacities = whole.program.capacities
        self.counts: tuple[str, ...] = (*whole.counts, *self.capacities)
        self.copies, self.donated, self.report = whole.copies, whole.donated, whole.report
        self._bounds = output_bounds(self.program)
        self._first = dict.fromkeys(self.capacities, MIN_CAPACITY)
        loops = (n for n in whole.program.ops if isinstance(n, Scan) and n.count)
        self._loops = {s.count: str(s.trip) for s in loops if str(s.trip) in self.capacities}

    def __call__(self, *arrays: Any, make: Make | None = None) -> list[Any]:
        """See `Executable.__call__`."""
        return call_with_arrays(self, arrays, make)

    def bounds(self, sizes: Sequence[int]) -> list[int | None]:
        """The number of elements of each output; None where only a call finds it."""
        named = dict(zip(self.sizes, sizes))
        return [None if d is None else max(0, evaluate_dim(d, named)) for d in self._bounds]

    def run(
        self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int | None]
    ) -> CallResults | None:
        """See `Executable.run`."""
        first = self._first
        capacities = dict(first)
        with nullcontext() if self.replay is None else self.replay.call():
            while True:
                try:
                    found = self.attempt(sizes, inputs, outputs, capacities)
                except CapacityExceeded as more:
                    capacities[str(more)] *= 4 if capacities[str(more)] < LARGE else 2
                    if self.replay is not None:
                        self.replay.again()
                    continue
                self._first = self.next_capacities(first, capacities, found.counts)
                return found

    def next_capacities(
        self, first: Mapping[str, int], capacities: Mapping[str, int], counts: Mapping[str, int]
    ) -> dict[str, int]:
        """The capacities of the next call: what this one has needed, if it has started again; half
        of those of which it has used a quarter or less."""
        out = dict(capacities)
        for count, capacity in self._loops.items():
            used, now = counts[count], capacities[capacity]
            if now > first[capacity]:
                out[capacity] = MIN_CAPACITY << (used // MIN_CAPACITY).bit_length()
            elif 4 * max(used, MIN_CAPACITY) <= now:
                out[capacity] = now // 2
        return out

    def begin_as(self, other: GrowingExecutable) -> None:
        """Begin with the capacities that calls of another program of the function have needed."""
        self._first = {n: other._first.get(n, k) for n, k in self._first.items()}

    def attempt(
        self,
        sizes: Sequence[int],
        inputs: Sequence[int],
        outputs: Sequence[int | None],
        capacities: Mapping[str, int],
    ) -> CallResults:
        """One run with these capacities."""
        own = [capacities[n] if n in capacities else -1 for n in self.whole.sizes]
        given = [*sizes, *own[len(sizes) :]]
        memory = {
            k: empty(n, self.outputs[k].dtype.numpy)
            for k, (n, address) in enumerate(zip(self.whole.bounds(given), outputs))
            if address is None and n is not None
        }
        places = [memory[k].ctypes.data if k in memory else a for k, a in enumerate(outputs)]
        found = self.whole.run(given, inputs, places) or CallResults({})
        named = {**dict(zip(self.sizes, sizes)), **capacities, **found.counts}
        arrays = dict(found.arrays)
        for k, a in memory.items():
            shape = self.outputs[k].concrete(named)
            arrays[k] = a[: math.prod(shape)].reshape(shape)
        return CallResults({**found.counts, **capacities}, arrays)


__all__ = ["GrowingExecutable", "Replay"]
