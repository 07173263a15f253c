"""Partitioning of programs that native code cannot run in one piece into native segments.

What stops native code is a value whose size nothing bounds, such as what a `while True` collects.
Every op list is cut into maximal runs of native ops, each compiled
as a program of its own that gets the sizes known by then as sizes. A loop or a branch with a stop
inside is run by Python. A loop that only collects without a bound is run in chunks of growing
length, each a native loop of a known number of iterations at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from executor.allocation import HOST
from executor.executable import Executable, results_of
from executor.plan.trip_counts import all_ranges, counts
from ir import Builder, Cond, Input, Op, Program, Scan, Size, Type, Value
from ir.program import Carry, Const, Last, LoopCondition, Node, Port, Seq, Stack
from ir.types import BOOL, I64, evaluate_dim
from ir.uses import blocks, walk

Values: TypeAlias = dict[Value, np.ndarray]
Compile: TypeAlias = Callable[[Program], Executable]
#: iterations of the first chunk; every chunk is twice as long as the one before
FIRST = 16
#: memory that must be there for what has been collected: itself, a next chunk, and all in one piece
AHEAD = 4


@dataclass(frozen=True, eq=False)
class NativeRun:
    """A native run of ops. Its first input only names the sizes and has no storage."""

    native: Executable
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]

    def run(self, env: Values, sizes: dict[str, int]) -> None:
        """Also adds the sizes that the ops find."""
        results, found = _run(self.native, [env[v] for v in self.ins], sizes)
        env.update(zip(self.outs, results))
        sizes.update(found)


@dataclass(frozen=True, eq=False)
class InterpretedLoop:
    """A loop that Python runs."""

    scan: Scan
    steps: tuple[SegmentedStep, ...]


@dataclass(frozen=True, eq=False)
class InterpretedBranch:
    """A branch that Python takes."""

    cond: Cond
    then: tuple[SegmentedStep, ...]
    orelse: tuple[SegmentedStep, ...]


@dataclass(frozen=True, eq=False)
class ChunkedLoop:
    """A `while` whose stacks nothing bounds. `native` runs at most `length` iterations of it from
    iteration `start` on, both sizes of it: it takes the carries, the go port and `ins`, and gives
    the next carries and go, the pieces of the stacks and the last values."""

    scan: Scan
    native: Executable
    start: str
    length: str
    ins: tuple[Value, ...]

    def run(self, env: Values, sizes: dict[str, int]) -> None:
        s, at, length = self.scan, 0, FIRST
        assert s.go is not None
        trip = evaluate_dim(s.trip, sizes)
        state = [*(env[p.init] for p in s.carries), env[s.go.init]]
        given = [env[v] for v in self.ins]
        stacks = [p for p in s.ports if isinstance(p, Stack)]
        pieces: list[list[np.ndarray]] = []
        rest: list[np.ndarray] = []
        while at < trip and state[-1]:
            named = {**sizes, self.start: at, self.length: min(length, trip - at)}
            results, found = _run(self.native, [*state, *given], named)
            state, rest = results[: len(state)], results[len(state) :]
            pieces.append(rest[: len(stacks)])
            HOST.require(AHEAD * sum(a.nbytes for q in pieces for a in q))
            at, length = at + found[s.count], 2 * length
        sizes[s.count] = at
        for k, p in enumerate(stacks):
            env[p.outer] = _joined(p, [q[k] for q in pieces], sizes)
        env.update((p.last, v) for p, v in zip(s.carries, state) if p.last is not None)
        lasts = [p.outer for p in s.ports if isinstance(p, Last)]
        require_iteration(s, at)
        env.update(zip(lasts, rest[len(stacks) :]))


SegmentedStep: TypeAlias = "NativeRun | InterpretedLoop | InterpretedBranch | ChunkedLoop"


def _run(
    native: Executable, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> tuple[list[np.ndarray], dict[str, int]]:
    ready = [np.ascontiguousarray(a) for a in arrays]
    return results_of(native, sizes, [0, *(a.ctypes.data for a in ready)])


def _joined(p: Stack, pieces: list[np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    if not pieces:
        return np.empty(p.outer.type.concrete(sizes), p.outer.type.dtype.numpy)
    return np.concatenate(pieces, p.axis)


def require_iteration(s: Scan, ran: int) -> None:
    """Raises ValueError for a loop that has a last value, but no iteration."""
    if ran == 0 and any(isinstance(p, Last) for p in s.ports):
        raise ValueError(f"a loop without an iteration has no last value ({s.loc})")


# ---------------------------------------------------------------- what stops native code
def growing(nodes: Iterable[Node]) -> frozenset[str]:
    """The sizes of loops without a bound that the type of some value names."""
    every = list(walk(nodes))
    ranges = all_ranges(every)
    named = {name for n in every for r in n.results for name in r.type.names}
    return frozenset(n for n in named if n in ranges and ranges[n].most is None)


# ---------------------------------------------------------------- cutting
@dataclass(frozen=True)
class Partitioner:
    """`grown` are the sizes of loops without a bound that values have as a size; `capacities` are
    those of the program."""

    compile: Compile
    grown: frozenset[str]
    capacities: tuple[str, ...]

    def stops(self, node: Node) -> bool:
        """Whether native code cannot run the node."""
        steps = isinstance(node, Scan) and node.size in self.grown
        return steps or self.grows(node) or self.stops_inside(node)

    def stops_inside(self, node: Node) -> bool:
        inside = (n for nodes, _ in blocks(node) for n in nodes)
        return any(self.stops(n) or self.counts(n) for n in inside)

    def grows(self, node: Node) -> bool:
        """Whether the node is a loop that collects without a bound."""
        stacks = isinstance(node, Scan) and any(isinstance(p, Stack) for p in node.ports)
        return stacks and self.counts(node)

    def counts(self, node: Node) -> bool:
        return isinstance(node, Scan) and node.count in self.grown

    def cut(
        self, nodes: Sequence[Node], needed: Iterable[Value], sizes: Sequence[str]
    ) -> tuple[SegmentedStep, ...]:
        """`needed` are values of the block that are used after it."""
        steps: list[SegmentedStep] = []
        run: list[Node] = []
        names = list(sizes)
        for at, node in enumerate(nodes):
            stops = self.stops(node)
            if not stops:
                run.append(node)
            if run and (stops or self.counts(node) or at + 1 == len(nodes)):
                behind = nodes[at:] if stops else nodes[at + 1 :]
                later = {*needed, *(v for n in behind for v in n.operands)}
                steps.append(self.segment(run, later, names))
                names += counts(run)
                run = []
            if stops:
                steps.append(self.step(node, names))
                names += counts([node])
        return tuple(steps)

    def step(self, node: Node, sizes: Sequence[str]) -> SegmentedStep:
        if isinstance(node, Scan) and node.size:
            sizes = [*sizes, node.size]
        inside = [self.cut(nodes, leaving, sizes) for nodes, leaving in blocks(node)]
        if isinstance(node, Cond):
            return InterpretedBranch(node, *inside)
        assert isinstance(node, Scan)
        if self.grows(node) and not self.stops_inside(node) and not node.size:
            return self.chunks(node, sizes)
        return InterpretedLoop(node, *inside)

    def segment(self, run: Sequence[Node], later: set[Value], sizes: Sequence[str]) -> NativeRun:
        made = dict.fromkeys(v for n in run for v in n.results)
        ins = tuple(dict.fromkeys(v for n in run for v in n.operands if v not in made))
        outs = tuple(v for v in made if v in later)
        return NativeRun(self.native(ins, run, outs, sizes), ins, outs)

    def native(
        self, ins: Sequence[Value], run: Sequence[Node], outs: Sequence[Value], sizes: Sequence[str]
    ) -> Executable:
        names = Value(Type(BOOL, tuple(Size.named(n) for n in sizes)))
        inputs = [Input(names, "arg", "sizes"), *(Input(v, "arg", v.name or "value") for v in ins)]
        program = Program(
            "segment", tuple(inputs), tuple(run), tuple(outs), capacities=self.capacities
        )
        return self.compile(program)

    def chunks(self, s: Scan, sizes: Sequence[str]) -> ChunkedLoop:
        """From `while %i < trip` to `while %i < length`, where `start + %i` is the old index."""
        start, length = _unused(f"{s.count}_start", sizes), _unused(f"{s.count}_length", sizes)
        chunk, state, outs = _chunk(s, start, length)
        kept = [p.outer for p in s.ports if isinstance(p, (Const, Seq))]
        ins = tuple(dict.fromkeys(kept))
        for kind in (Stack, Last):
            outs += [p.outer for p in s.ports if isinstance(p, kind)]
        names = [*sizes, start, length]
        return ChunkedLoop(s, self.native([*state, *ins], [chunk], outs, names), start, length, ins)


def _unused(name: str, sizes: Sequence[str]) -> str:
    while name in sizes:
        name += "_"
    return name


def _chunk(s: Scan, start: str, length: str) -> tuple[Scan, list[Value], list[Value]]:
    """A part of a loop; the values that carries and go have before it, and after it."""
    assert s.go is not None
    first = Size.named(start)
    go = Carry(Value(Type(BOOL)), Value(Type(BOOL)), s.go.next, Value(Type(BOOL)))
    ports: list[Port] = []
    carries: list[Carry] = []
    for p in s.ports:
        if isinstance(p, Seq):
            p = replace(p, start=p.start + first * p.step)
        elif isinstance(p, Carry):
            p = replace(p, init=Value(p.inner.type), last=Value(p.inner.type))
            carries.append(p)
        elif isinstance(p, LoopCondition):
            p = replace(p, init=go.init)
        ports.append(p)
    index, b = Value(Type(I64)), Builder(s.loc)
    offset = b.size(n=first)
    body = (*b.ops, Op("add", (offset, index), (s.index,), {}, s.loc), *s.body)
    chunk = replace(s, index=index, trip=Size.named(length), ports=(*ports, go), body=body)
    carries.append(go)
    return chunk, [p.init for p in carries], [p.last for p in carries if p.last is not None]
