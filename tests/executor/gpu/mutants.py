"""Schedules with wrong barriers, run on the emulator beside the proof that refuses them.

A program is compiled once, with a barrier at every place where one could stand; the emulator is
told how many arrivals each waits for, 0 where none stands. A mutant is then a choice of numbers.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from executor.executable import Executable
from executor.gpu import DriverError
from executor.gpu.backend import Gpu
from executor.gpu.codegen import source
from executor.gpu.driver import driver
from executor.gpu.nvrtc import machine_code
from executor.gpu.runtime import DeviceProgram
from executor.gpu.schedule import (
    Barrier,
    Conditional,
    DeviceLimits,
    Repeat,
    Schedule,
    ScheduleNode,
    Stage,
)
from executor.gpu.schedule_verifier import ScheduleError, validate
from executor.lowering.program import lower
from executor.plan.arena import layout
from ir import Program
from tests.executor.gpu import emulator
from tests.executor.test_random_programs import Generator
from tests.executor.test_random_programs import arrays as inputs

WAIT = re.compile(r"if \(barrier\(g, \d+\)\) return;")
SEEDS = ("1", "2", "4")
#: of programs; wrong schedules raise them, too
ERRORS = (IndexError, OverflowError, ValueError, ZeroDivisionError)


@dataclass(frozen=True)
class Mutant:
    """Arrivals of every place, and what is different about the stages."""

    arrivals: tuple[int, ...]
    extra_blocks: int = 0
    cooperative: bool = True

    def of(self, opened: Schedule) -> Schedule:
        numbers = iter(self.arrivals)
        return replace(opened, stages=tuple(self.stage(s, numbers) for s in opened.stages))

    def stage(self, s: Stage, numbers: Iterator[int]) -> Stage:
        body = tuple(closed(s.body, numbers))
        if not s.cooperative:
            return replace(s, body=body)
        return replace(
            s, blocks=s.blocks + self.extra_blocks, cooperative=self.cooperative, body=body
        )


def closed(nodes: Sequence[ScheduleNode], numbers: Iterator[int]) -> Iterator[ScheduleNode]:
    """The nodes with the barriers of these arrivals only."""
    for n in nodes:
        if isinstance(n, Barrier):
            if arrivals := next(numbers):
                yield Barrier(arrivals)
        elif isinstance(n, Repeat) and n.kernel is None:
            head, body = (tuple(closed(q, numbers)) for q in (n.head, n.body))
            yield replace(n, head=head, body=body)
        elif isinstance(n, Conditional):
            head, *sides = (tuple(closed(q, numbers)) for q in (n.head, *n.sides))
            yield replace(n, head=head, sides=tuple(sides))
        else:
            yield n


def opened(nodes: Sequence[ScheduleNode], real: list[int]) -> Iterator[ScheduleNode]:
    """The nodes with a barrier at every place; `real` gets the arrivals that it has."""
    waits = 0
    for n in nodes:
        if isinstance(n, Barrier):
            waits = n.arrivals
            continue
        real.append(waits)
        waits = 0
        yield Barrier(1)
        if isinstance(n, Repeat) and n.kernel is None:
            head, body = (tuple(opened(q, real)) for q in (n.head, n.body))
            yield replace(n, head=head, body=body)
        elif isinstance(n, Conditional):
            head, *sides = (tuple(opened(q, real)) for q in (n.head, *n.sides))
            yield replace(n, head=head, sides=tuple(sides))
        else:
            yield n
    assert not waits, "a barrier behind everything"


class Opened:
    """A program that runs under any choice of barriers."""

    def __init__(self, program: Program) -> None:
        machine = Gpu()
        self.program, self.machine = program, machine
        self.lowered = machine.legalize(lower(program, machine))
        self.layout = layout(self.lowered.launches, machine.memory.alignment)
        own = driver()
        self.device = DeviceLimits(own.multiprocessors, own.threads)
        schedule, real = machine.schedule(self.lowered, self.layout, self.device), []
        stages = tuple(replace(s, body=tuple(opened(s.body, real))) for s in schedule.stages)
        self.schedule, self.real = replace(schedule, stages=stages), Mutant(tuple(real))

    @cached_property
    def built(self) -> tuple:
        made = source(self.lowered, self.layout, self.schedule)
        numbers = iter(range(len(self.real.arrivals)))
        wait = "if (emu_planted({0}) && barrier(g, emu_planted({0}))) return;"
        text = WAIT.sub(lambda _: wait.format(next(numbers)), made.text)
        return made, machine_code(text, driver().architecture)

    def executable(self, mutant: Mutant) -> Executable:
        made, image = self.built
        schedule = replace(mutant, arrivals=self.real.arrivals).of(self.schedule)
        native = DeviceProgram(driver(), self.device, self.lowered, schedule, made, image)
        failures, memory = self.lowered.failures, self.machine.memory
        return Executable(self.program, native, self.layout, failures, memory=memory)

    @cached_property
    def plain(self) -> Executable:
        return self.executable(self.real)

    def fits(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether a call with these arrays ends well."""
        try:
            self.results(self.real, arrays)
        except ERRORS:
            return False
        return True

    def is_refused(self, mutant: Mutant) -> bool:
        try:
            validate(mutant.of(self.schedule), self.device)
        except ScheduleError:
            return True
        return False

    def results(self, mutant: Mutant, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Results and inputs after a call."""
        for place, arrivals in enumerate(mutant.arrivals):
            emulator.library().emu_plant(place, arrivals)
        own = [a.copy() for a in arrays]
        same = mutant.cooperative and not mutant.extra_blocks
        return [*(self.plain if same else self.executable(mutant))(*own), *own]

    def is_wrong(self, mutant: Mutant, arrays: Sequence[np.ndarray], seeds=SEEDS) -> bool:
        """Whether a run of any order of threads shows it."""
        want = self.results(self.real, arrays)
        return any(self.differs(mutant, arrays, want, seed) for seed in seeds)

    def differs(self, mutant: Mutant, arrays, want, seed: str) -> bool:
        with emulator.seeded(seed):
            try:
                got = self.results(mutant, arrays)
            except (DriverError, *ERRORS):
                return True
        return not all(np.array_equal(g, w, g.dtype.kind == "f") for g, w in zip(got, want))

    def mutants(self, rng: random.Random, count: int) -> Iterator[Mutant]:
        """Barriers left out, moved, with wrong counts, some of them together; grids that do not
        fit."""
        places = [k for k, n in enumerate(self.real.arrivals) if n]
        if not places or not any(s.cooperative for s in self.schedule.stages):
            return
        for _ in range(count):
            arrivals, kind = list(self.real.arrivals), rng.randrange(8)
            k = rng.choice(places)
            if kind < 2:
                arrivals[k] = 0
            elif kind == 2:
                arrivals[k] += rng.choice((-1, 1))
            elif kind == 3:
                arrivals[k], to = 0, k + rng.choice((-2, -1, 1, 2))
                arrivals[to % len(arrivals)] = self.real.arrivals[k]
            elif kind < 6:
                arrivals = [n if rng.random() < 0.7 else 0 for n in arrivals]
            elif kind == 6:
                rng.shuffle(arrivals)
            if kind == 7:
                arrivals = [n + 1 if n > 1 else n for n in arrivals]
                yield Mutant(tuple(arrivals), 1, rng.random() < 0.5)
                continue
            yield Mutant(tuple(arrivals))


def outcomes(seed: int, count: int) -> Counter[str]:
    """What became of the mutants of a random program. Prints those that the proof should have
    refused."""
    program = Generator(seed, control=seed % 3 > 0, moving=seed % 2 > 0).program()
    given = inputs(program, {"B": 2, "T": 3}, np.random.default_rng(seed))
    rng, seen = random.Random(seed), Counter()
    try:
        run = Opened(program)
    except NotImplementedError:
        return seen
    if run.is_refused(run.real):
        print(f"seed {seed}: the real schedule is refused", flush=True)
        seen["real, REFUSED"] += 1
    many = list(dict.fromkeys(run.mutants(rng, count)))
    if not many or not run.fits(given):
        return seen
    for m in many:
        wrong, refused = run.is_wrong(m, given), run.is_refused(m)
        if wrong and not refused:
            print(f"seed {seed}: accepted, and wrong: {m}", flush=True)
        seen[f"{'wrong' if wrong else 'right'}, {'refused' if refused else 'ACCEPTED'}"] += 1
    return seen
