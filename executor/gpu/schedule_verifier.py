"""Verification of a schedule before it runs.

No wait stays unsatisfied: all blocks that a barrier counts are resident at once, and each of them
comes by it, because tests are read by all threads alike. Every read comes after its write, and no
two tasks race: between two touches whose order shows there is a barrier on every path. Nothing is
written to an input while a failure may be known to some threads only.
"""

from __future__ import annotations

from collections.abc import Sequence

from executor.gpu.hazards import Access, Hazards
from executor.gpu.schedule import (
    Barrier,
    Conditional,
    DeviceLimits,
    Pending,
    Repeat,
    Schedule,
    ScheduleNode,
    Stage,
    Task,
    conflicts,
    earlier,
    is_stale,
    outside,
    parts,
    pending_after,
    step_of,
)
from executor.launches import When


class ScheduleError(Exception):
    """A schedule that must not run."""


def validate(schedule: Schedule, device: DeviceLimits) -> None:
    """Raises ScheduleError."""
    for stage in schedule.stages:
        _resident(stage, device)
        _Walk(stage, schedule.hazards).block(stage.body, frozenset())


def _resident(stage: Stage, device: DeviceLimits) -> None:
    waits = any(isinstance(n, Barrier) for n in parts(stage.body))
    if waits and stage.blocks > 1 and not stage.cooperative:
        raise ScheduleError(f"{stage.name} waits for blocks that need not run together")
    if stage.cooperative and stage.blocks > device.resident:
        most = device.resident
        raise ScheduleError(f"{stage.name} has {stage.blocks} blocks, {most} run together")


class _Walk:
    """All paths through a stage, with what is pending on each."""

    def __init__(self, stage: Stage, hazards: Hazards) -> None:
        self.stage, self.hazards = stage, hazards
        self.fresh: dict[int, tuple[Access, ...]] = {}

    def block(self, nodes: Sequence[ScheduleNode], pending: Pending) -> Pending:
        for n in nodes:
            pending = self.node(n, pending)
        return pending

    def node(self, n: ScheduleNode, pending: Pending) -> Pending:
        if isinstance(n, Barrier):
            if n.arrivals != self.stage.blocks:
                have = self.stage.blocks
                raise ScheduleError(f"{self.stage.name}: a {n}, but there are {have} blocks")
            return frozenset()
        if isinstance(n, Repeat):
            return self.loop(n, pending)
        if isinstance(n, Conditional):
            pending = self.block(n.head, pending)
            sides = [self.block(s, pending) for s in n.sides]
            none = [pending] if isinstance(n.launch, When) else []
            return frozenset().union(*sides, *none)
        if conflicts(self.hazards, n, pending):
            raise ScheduleError(f"{self.stage.name}: no barrier before: {n}")
        self.registers(n)
        return pending | pending_after(n)

    def registers(self, n: Task) -> None:
        """A matrix in registers is the one in memory: what writes it makes it unknown."""
        kept, writes = n.kernel and n.kernel.kept, [a for a in n.accesses if a.write]
        if kept and not writes:
            self.fresh[id(kept.owner)] = n.accesses
        elif kept and id(kept.owner) not in self.fresh:
            raise ScheduleError(f"{self.stage.name}: registers are not what memory has: {n}")
        known = self.fresh.items()
        self.fresh = {k: m for k, m in known if not is_stale(self.hazards, m, writes)}

    def loop(self, n: Repeat, pending: Pending) -> Pending:
        if n.kernel is not None and any(isinstance(q, Barrier) for q in parts((*n.head, *n.body))):
            raise ScheduleError(f"{self.stage.name}: a barrier in a loop of lanes by themselves")
        step = step_of(n.launch)
        known: Pending = frozenset()
        while True:
            inside = self.block(n.head, pending)
            known |= pending | inside
            again = pending | earlier(self.block(n.body, inside), step)
            if again == pending:
                self.block(n.body, inside)
                return outside(known, step)
            pending = again
