"""The schedule of a program on a GPU: kernels, and where their blocks wait for each other.

A launch outside of loops and branches is a kernel of its own; a loop or branch there is one kernel
that stays on the device: its blocks walk the launches inside together. A barrier stands only where
a launch touches what another one has touched since the last barrier, so that the order shows. The
schedule is data: `executor.gpu.schedule_verifier` proves it, and `str` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from executor.gpu.blas import LibraryProduct
from executor.gpu.hazards import ANY, OPEN, Access, BackEdge, Hazards, LaunchAccesses
from executor.gpu.kernel_builder import KERNELS, Kernel
from executor.gpu.kernels.attention import Attention, attention_kernel
from executor.gpu.kernels.fragments import fragments_of
from executor.gpu.kernels.launch_fusion import is_constant
from executor.gpu.kernels.loops.cell import Cell, cell_kernel, distributed, matrix_kernel
from executor.gpu.kernels.loops.fragment_cell import (
    fragment_cell,
    fragment_distribution,
    fragment_matrix,
)
from executor.gpu.kernels.loops.linear import LinearScan, linear_kernel
from executor.gpu.kernels.loops.resident import (
    MOST_OF_LOOP,
    load_kernel,
    product_kernel,
    resident,
)
from executor.gpu.kernels.loops.scan import lanes_of, scan_kernel
from executor.gpu.kernels.row_reductions import Rows, rows_kernel
from executor.gpu.kernels.skinny_gemm import few_rows_kernel, has_few_rows
from executor.gpu.kernels.split_k import Partial
from executor.gpu.kernels.split_keys import Shared, shared_kernel
from executor.gpu.kernels.tiled_gemm import (
    Tiled,
    is_large,
    is_large_in_a_loop,
    tiled_kernel,
)
from executor.launches import (
    Addresses,
    Branch,
    Check,
    Fail,
    Gemm,
    Index,
    Launch,
    Loop,
    Number64,
    When,
    blocks,
)
from executor.memory import View
from executor.plan.arena import ArenaLayout
from ir.types import Dim, Size

#: launches that one thread does, or that all do alike
SCALAR = (Check, Fail, Index, Number64, Addresses)


@dataclass(frozen=True, eq=False)
class Task:
    """A launch, or the part of one that all threads do alike: reading a test.

    fails: some threads may find a failure that others do not know of. commits: it writes an input.
    """

    launch: Launch
    kernel: Kernel | None
    accesses: tuple[Access, ...]
    fails: bool = False
    commits: bool = False

    def __str__(self) -> str:
        parts = [type(self.launch).__name__.lower()]
        if self.kernel is not None and self.kernel.kept is not None:
            parts[0] += " with a matrix in registers"
        for word, write in (("reads", False), ("writes", True)):
            found = [str(a) for a in self.accesses if a.write == write]
            parts += [f"{word} {', '.join(found)}"] if found else []
        return "; ".join([*parts, *(["may fail"] if self.fails else [])])


@dataclass(frozen=True, eq=False)
class Barrier:
    """Every block waits until `arrivals` blocks are there."""

    arrivals: int

    def __str__(self) -> str:
        return f"barrier of {self.arrivals}"


@dataclass(frozen=True, eq=False)
class Repeat:
    """A loop: `head` is done before each iteration and once at the end. With a `kernel` each thread
    runs all iterations for an element of its own before those of the next one."""

    launch: Loop
    head: tuple[ScheduleNode, ...]
    body: tuple[ScheduleNode, ...]
    kernel: Kernel | None = None


@dataclass(frozen=True, eq=False)
class Conditional:
    """A branch, or what runs only if a number says so; behind `head`, which reads the test."""

    launch: Branch | When
    head: tuple[ScheduleNode, ...]
    sides: tuple[tuple[ScheduleNode, ...], ...]


ScheduleNode: TypeAlias = Task | Barrier | Repeat | Conditional


@dataclass(frozen=True)
class Stage:
    """A kernel: `cooperative` if its blocks wait for each other."""

    name: str
    blocks: int
    cooperative: bool
    body: tuple[ScheduleNode, ...]

    def __str__(self) -> str:
        kind = "stays on the device, " if self.cooperative else ""
        return "\n".join([f"{self.name}: {kind}{_count(self.blocks, 'block')}", *lines(self.body)])


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def lines(nodes: Sequence[ScheduleNode], depth: int = 1) -> Iterator[str]:
    pad = "  " * depth
    for n in nodes:
        if isinstance(n, Repeat):
            yield from lines(n.head, depth)
            how = "" if n.kernel is None else ", each element by itself"
            yield f"{pad}loop {n.launch.index} < {n.launch.trip}{how}"
            yield from lines(n.body, depth + 1)
        elif isinstance(n, Conditional):
            yield from lines(n.head, depth)
            for word, side in zip(("then", "else"), n.sides):
                yield pad + word
                yield from lines(side, depth + 1)
        else:
            yield pad + str(n)


@dataclass(frozen=True)
class Schedule:
    """`products`: what a library takes, each behind so many of the stages."""

    stages: tuple[Stage, ...]
    hazards: Hazards
    products: tuple[tuple[int, LibraryProduct], ...] = ()

    def __str__(self) -> str:
        texts = [(n, 1, str(s)) for n, s in enumerate(self.stages)]
        texts += [(at, 0, str(p)) for at, p in self.products]
        return "\n".join(text for *_, text in sorted(texts, key=lambda q: q[:2]))


@dataclass(frozen=True)
class DeviceLimits:
    """The limits of a GPU that a schedule depends on: `resident` blocks of `threads` can run
    together. Products of float32 may be taken with this `precision` (`kernels.fragments`), large
    ones by a library."""

    resident: int
    threads: int
    precision: str = "float32"
    has_library: bool = False


def schedule(
    launches: Sequence[Launch],
    layout: ArenaLayout,
    device: DeviceLimits,
    products: Mapping[int, LibraryProduct] = MappingProxyType({}),
) -> Schedule:
    """`products`: launches that a library takes, by `id`."""
    made = {id(x): _kernel(x, device) for x in every(launches)}
    touches = LaunchAccesses(layout)
    loops = [x for x in every(launches) if isinstance(x, Loop)]
    names = {n for x in loops for n in (x.parity, x.after)}
    names |= {x.lanes.loop.after for x in every(launches) if isinstance(x, LinearScan)}
    bits = names | {n + other for n in names for other in (OPEN, ANY)}
    hazards = Hazards(frozenset(bits))
    planner = _Planner(touches, hazards, made)
    outside = {id(x) for x in launches}
    for x in every(launches):
        if kernel := _by_tiles(x, device, id(x) in outside):
            made[id(x)] = kernel
    for loop in loops:
        planner.keep_matrices(loop, device)
    stages: list[Stage] = []
    taken: list[tuple[int, LibraryProduct]] = []
    for group in groups(launches):
        if id(group[0]) in products:
            taken.append((len(stages), products[id(group[0])]))
        else:
            stages.append(planner.stage(len(stages), group, device))
    return Schedule(tuple(stages), hazards, tuple(taken))


def every(launches: Sequence[Launch]) -> Iterator[Launch]:
    for x in launches:
        yield x
        for inside in blocks(x):
            yield from every(inside)


def parts(nodes: Sequence[ScheduleNode]) -> Iterator[ScheduleNode]:
    """The nodes, and those inside of them."""
    for n in nodes:
        yield n
        inside: tuple[Sequence[ScheduleNode], ...] = ()
        if isinstance(n, Repeat):
            inside = (n.head, n.body)
        elif isinstance(n, Conditional):
            inside = (n.head, *n.sides)
        for part in inside:
            yield from parts(part)


def groups(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    """Launches of one kernel each: numbers next to each other are found in one."""
    run: list[Launch] = []
    for x in launches:
        if isinstance(x, SCALAR):
            run.append(x)
            continue
        if run:
            yield run
        run = []
        yield [x]
    if run:
        yield run


#: kernels whose blocks share memory: their text depends on how many threads a block has
OF_BLOCKS: dict[type, Callable[[Any, int], Kernel]] = {
    Attention: attention_kernel,
    Shared: shared_kernel,
    LinearScan: linear_kernel,
    Rows: rows_kernel,
}


def _kernel(x: Launch, device: DeviceLimits) -> Kernel | None:
    if type(x) in OF_BLOCKS:
        return OF_BLOCKS[type(x)](x, device.threads)
    if isinstance(x, Gemm) and has_few_rows(x):
        return few_rows_kernel(x, device.threads)
    return KERNELS[type(x)](x) if type(x) in KERNELS else None


def _by_tiles(x: Launch, device: DeviceLimits, outside: bool) -> Kernel | None:
    large = is_large if outside else is_large_in_a_loop
    whole = x.whole if isinstance(x, Partial) else x
    if not isinstance(whole, Tiled) or whole is x and not large(whole, device.threads):
        return None
    fragments = fragments_of(whole, device.precision, device.threads)
    return tiled_kernel(whole, device.threads, fragments, getattr(x, "parts", 1))


def _waits(n: Repeat) -> int:
    return sum(isinstance(q, Barrier) for q in parts((n,)))


def _scan(x: Loop, nodes: Sequence[ScheduleNode]) -> Kernel | None:
    """The kernel of a loop whose lanes never meet."""
    lanes = lanes_of(x) if all(isinstance(n, Task) for n in nodes) else None
    return None if lanes is None else scan_kernel(lanes)


def _blocks(kernels: Sequence[Kernel | None], device: DeviceLimits, most: int) -> int:
    """Blocks for the most work of any of the kernels."""
    work: Dim = 1
    for k in kernels:
        if k is not None and isinstance(work, int):
            work = max(work, k.work) if isinstance(k.work, int) else k.work
    if isinstance(work, Size):
        return most
    return max(1, min(most, -(-work // device.threads)))


Pending: TypeAlias = frozenset[Access | str]
#: among what is pending: a failure that some threads may have found
FAILED = "failed"


@dataclass
class _Planner:
    touches: LaunchAccesses
    hazards: Hazards
    kernels: dict[int, Kernel | None]
    loads: dict[int, list[Task]] = field(default_factory=dict)
    blocks: int = 1
    #: by launch: a loop is planned several times
    tasks: dict[int, Task] = field(default_factory=dict)
    steps: dict[int, BackEdge] = field(default_factory=dict)

    def keep_matrices(self, x: Loop, device: DeviceLimits) -> None:
        """Choose the products of a loop whose matrix stays in registers."""
        names, room = bound_in(x), MOST_OF_LOOP
        writes = [a for q in every(x.body) for a in self.touches.of(q) if a.write]
        for q in x.body:
            if not isinstance(q, (Gemm, Cell)):
                continue
            gemm = q.gemm if isinstance(q, Cell) else q
            if not is_constant(gemm.y, names):
                continue
            matrix = tuple(self.touches.touched(gemm.y, False))
            fresh = not is_stale(self.hazards, matrix, writes)
            found = self.kept(q, device, room if fresh else 0)
            if found is not None:
                load, self.kernels[id(q)], registers = found
                room -= registers
                self.loads.setdefault(id(x), []).append(Task(q, load, matrix))

    def kept(
        self, q: Gemm | Cell, device: DeviceLimits, room: int
    ) -> tuple[Kernel, Kernel, int] | None:
        """Kernels that load the matrix and that multiply by it, with `room` registers."""
        if isinstance(q, Cell):
            tiles = fragments_of(q.gemm, device.precision, device.threads)
            if tiles is not None:
                by = fragment_distribution(q, tiles, device.threads, device.resident, room)
                if by is not None:
                    return fragment_matrix(by), fragment_cell(by), by.registers
            lanes = distributed(q, device.threads, device.resident, room)
            whole = self.kernels[id(q)] = cell_kernel(lanes)
            return (matrix_kernel(lanes), whole, lanes.registers) if lanes.kept else None
        found = resident(q, device.threads, device.resident)
        if found is None or found.registers > room:
            return None
        return load_kernel(found), product_kernel(found), found.registers

    def stage(self, number: int, group: Sequence[Launch], device: DeviceLimits) -> Stage:
        """Make a stage; it is cooperative if its blocks wait for each other."""
        kernels = [self.kernels[id(x)] for x in every(group)]
        self.blocks = _blocks(kernels, device, device.resident)
        body, _ = self.block(group, frozenset())
        waits = any(isinstance(n, Barrier) for n in parts(body))
        count = self.blocks if waits else _blocks(kernels, device, 8 * device.resident)
        return Stage(f"k{number}", count, waits and count > 1, body)

    def block(
        self, launches: Sequence[Launch], pending: Pending
    ) -> tuple[tuple[ScheduleNode, ...], Pending]:
        """The launches with barriers; what is pending behind them."""
        out: list[ScheduleNode] = []
        for x in launches:
            nodes, pending = self.node(x, pending)
            out += nodes
        return tuple(out), pending

    def node(self, x: Launch, pending: Pending) -> tuple[Sequence[ScheduleNode], Pending]:
        if isinstance(x, Loop):
            return self.loop(x, pending)
        if isinstance(x, (When, Branch)):
            test = [x.test] if isinstance(x, Branch) else []
            head, pending = self.put(self.reading(x, test), pending)
            sides = [self.block(b, pending) for b in blocks(x)]
            after = frozenset().union(*(p for _, p in sides))
            if isinstance(x, When):
                after |= pending
            return [Conditional(x, head, tuple(n for n, _ in sides))], after
        return self.put(self.task(x), pending)

    def loop(self, x: Loop, pending: Pending) -> tuple[Sequence[ScheduleNode], Pending]:
        """One barrier before the loop is better than one in it for what was pending before."""
        first: list[ScheduleNode] = []
        for task in self.loads.get(id(x), ()):
            nodes, pending = self.put(task, pending)
            first += nodes
        here = self.repeat(x, pending)
        waits = _waits(here[0])
        alone = self.repeat(x, frozenset()) if waits and pending else here
        if waits == _waits(alone[0]):
            return [*first, here[0]], here[1]
        return [*first, Barrier(self.blocks), alone[0]], alone[1]

    def repeat(self, x: Loop, pending: Pending) -> tuple[Repeat, Pending]:
        """Schedule a loop: the accesses pending at its head are iterated to a fixed point."""
        if id(x) not in self.steps:
            self.steps[id(x)] = step_of(x)
        step = self.steps[id(x)]
        test = self.reading(x, [] if x.go is None else [x.go])
        while True:
            head, inside = self.put(test, pending)
            body, after = self.block(x.body, inside)
            again = pending | earlier(after, step)
            if again == pending:
                made = Repeat(x, head, body, _scan(x, (*head, *body)))
                return made, outside(pending | inside, step)
            pending = again

    def reading(self, x: Launch, tests: Sequence[View]) -> Task:
        accesses = (a for v in tests for a in self.touches.touched(v, False))
        return Task(x, None, tuple(accesses))

    def task(self, x: Launch) -> Task:
        if id(x) not in self.tasks:
            self.tasks[id(x)] = self._task(x)
        return self.tasks[id(x)]

    def _task(self, x: Launch) -> Task:
        kernel = self.kernels[id(x)]
        own = [] if kernel is None else kernel.own
        accesses = tuple(self.touches.of(x, own))
        error = getattr(x, "error", 0)
        fails = bool(error) and not isinstance(x, SCALAR)
        commits = any(a.write and a.space[0] == "input" for a in accesses)
        return Task(x, kernel, accesses, fails, commits)

    def put(self, task: Task, pending: Pending) -> tuple[tuple[ScheduleNode, ...], Pending]:
        """The task, behind a barrier if it needs one; a task that does nothing is left out."""
        if not task.accesses and isinstance(task.launch, (Loop, When, Branch)):
            return (), pending
        touched = pending_after(task)
        if not conflicts(self.hazards, task, pending):
            return (task,), pending | touched
        return (Barrier(self.blocks), task), touched


def pending_after(task: Task) -> Pending:
    """Return the accesses that are pending after a task."""
    failed: frozenset[str] = frozenset([FAILED] if task.fails else [])
    return frozenset(task.accesses) | failed


def conflicts(hazards: Hazards, task: Task, pending: Pending) -> bool:
    """Whether a barrier must stand before the task."""
    if task.commits and FAILED in pending:
        return True
    spaces = {b.space for b in task.accesses}
    near = [a for a in pending if isinstance(a, Access) and a.space in spaces]
    return any(hazards.between(a, b) for b in task.accesses for a in near)


def bound(x: Launch) -> Iterator[str]:
    """The symbols that a launch binds."""
    if isinstance(x, Index):
        yield x.symbol
    if isinstance(x, Loop):
        yield from filter(None, (x.index, x.parity, x.after, x.count))
    if isinstance(x, LinearScan):
        yield x.lanes.loop.after


def step_of(x: Loop) -> BackEdge:
    lost = frozenset(n for q in every(x.body) for n in bound(q))
    return BackEdge(x.index, x.parity, lost)


def bound_in(x: Loop) -> frozenset[str]:
    """The symbols of a loop, which its iterations do not share."""
    return step_of(x).lost | frozenset(bound(x))


def is_stale(hazards: Hazards, matrix: Sequence[Access], writes: Sequence[Access]) -> bool:
    """Whether what has been read before a loop may be written in it."""
    return any(hazards.between(a, w) for a in matrix for w in writes)


def earlier(pending: Pending, step: BackEdge) -> Pending:
    """Return pending accesses as the next iteration sees them."""
    return frozenset(a.earlier(step) if isinstance(a, Access) else a for a in pending)


def outside(pending: Pending, step: BackEdge) -> Pending:
    """Return pending accesses as they are seen behind the loop."""
    names = {step.index, step.parity, *step.lost}
    return frozenset(a.outside(names) if isinstance(a, Access) else a for a in pending)
