"""The interpreter of segmented programs, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from executor.executable import CallResults, Make, call_with_arrays
from executor.host_calls import place
from executor.launches import Copy
from executor.plan.trip_counts import counts
from executor.segmented.partition import (
    ChunkedLoop,
    Compile,
    InterpretedBranch,
    InterpretedLoop,
    NativeRun,
    Partitioner,
    SegmentedStep,
    Values,
    growing,
    require_iteration,
)
from ir import Input, Program, Scan, Slot, Type, Value
from ir.interpreter import require_capacity
from ir.loc import UNKNOWN
from ir.program import Const, Last, Seq, Stack
from ir.types import evaluate_dim, product


class Interpreted:
    """Like `Executable`, without a `report`.

    Where an output's type names a count, `bounds` says None. The caller passes None for its
    address, and finds the array in the result of `run`.
    """

    report = ""

    def __init__(self, program: Program, compile_: Compile) -> None:
        self.program = program
        self.sizes: tuple[str, ...] = program.sizes
        self.inputs: tuple[Input, ...] = program.inputs
        self.outputs: tuple[Type, ...] = tuple(v.type for v in program.outputs)
        self.counts: tuple[str, ...] = counts(program.ops)
        cutter = Partitioner(compile_, growing(program.ops), program.capacities)
        self._steps = cutter.cut(program.ops, set(program.needed), self.sizes)
        self.copies: tuple[Copy, ...] = tuple(_copies(program))
        self.donated: frozenset[int] = frozenset()

    def __call__(self, *arrays: Any, make: Make | None = None) -> list[Any]:
        """See `Executable.__call__`."""
        return call_with_arrays(self, arrays, make)

    def bounds(self, sizes: Sequence[int]) -> list[int | None]:
        """The number of elements of each output; None where only a call finds it."""
        named, known = dict(zip(self.sizes, map(int, sizes))), set(self.sizes)
        return [
            evaluate_dim(product(t.shape), named) if t.names <= known else None
            for t in self.outputs
        ]

    def run(
        self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int | None]
    ) -> CallResults | None:
        """Like `Executable.run`, with the interpreter lock held between native segments."""
        named = dict(zip(self.sizes, map(int, sizes)))
        env = {i.value: place(a, i.value.type, named).array for i, a in zip(self.inputs, inputs)}
        self._block(self._steps, env, named)
        arrays: dict[int, np.ndarray] = {}
        for k, (v, address) in enumerate(zip(self.program.outputs, outputs)):
            if isinstance(v, Slot):
                continue
            if address is None:
                arrays[k] = np.array(env[v], order="C")
            else:
                place(address, v.type, named).array[...] = env[v]
        values = [np.array(env[v]) for _, v in self.program.writes]
        for (target, _), value in zip(self.program.writes, values):
            env[target][...] = value
        return CallResults({n: named[n] for n in self.counts}, arrays) if self.counts else None

    def _block(self, steps: Sequence[SegmentedStep], env: Values, sizes: dict[str, int]) -> None:
        """Run the steps of a block; their results are added to `env` and `sizes`."""
        for step in steps:
            if isinstance(step, (NativeRun, ChunkedLoop)):
                step.run(env, sizes)
            elif isinstance(step, InterpretedLoop):
                self._loop(step, env, sizes)
            else:
                self._choice(step, env, sizes)

    def _choice(self, choice: InterpretedBranch, env: Values, sizes: dict[str, int]) -> None:
        c = choice.cond
        taken = bool(env[c.test])
        inner = {p.inner: env[p.outer] for p in c.ins}
        self._block(choice.then if taken else choice.orelse, inner, dict(sizes))
        env.update((j.outer, inner[j.then if taken else j.orelse]) for j in c.outs)

    def _loop(self, loop: InterpretedLoop, env: Values, sizes: dict[str, int]) -> None:
        s, ran = loop.scan, 0
        trip = evaluate_dim(s.trip, sizes)
        state = {p: env[p.init] for p in s.carries}
        rows: dict[Stack, list[np.ndarray]] = {p: [] for p in s.ports if isinstance(p, Stack)}
        inner: Values = {}
        go = s.go is None or bool(env[s.go.init])
        while ran < trip and go:
            inner = {s.index: np.asarray(ran, np.int64)}
            inner.update(_enter(s, env, ran, sizes))
            inner.update((p.inner, state[p]) for p in s.carries)
            self._block(loop.steps, inner, {**sizes, s.size: ran} if s.size else dict(sizes))
            state = {p: inner[p.next] for p in s.carries}
            for p, collected in rows.items():
                collected.append(inner[p.inner])
            go = s.go is None or bool(inner[s.go.next])
            ran += 1
        if s.count:
            sizes[s.count] = ran
            require_capacity(s, ran, trip, self.program.capacities)
        require_iteration(s, ran)
        env.update((p.outer, _stacked(p, collected, sizes)) for p, collected in rows.items())
        env.update((p.last, state[p]) for p in s.carries if p.last is not None)
        env.update((p.outer, inner[p.inner]) for p in s.ports if isinstance(p, Last))


def _copies(program: Program) -> Iterator[Copy]:
    """Outputs and written inputs are stored at the end; between segments values lie elsewhere."""
    reason = "the program runs in segments, between which values have storage of their own"
    stored = [(v, None) for v in program.outputs if isinstance(v, Value)]
    given = {i.value: i for i in program.inputs}
    for v, target in [*stored, *((v, given[t]) for t, v in program.writes)]:
        size = product(v.type.shape) * v.type.dtype.size
        name = v.name or (target.name if target is not None else "a value")
        yield Copy(name, UNKNOWN, size, reason, target)


def _enter(s: Scan, env: Values, t: int, sizes: Mapping[str, int]) -> Values:
    out: Values = {}
    for p in s.ports:
        if isinstance(p, Const):
            out[p.inner] = env[p.outer]
        elif isinstance(p, Seq):
            at = evaluate_dim(p.start, sizes) + p.step * t
            if not 0 <= at < env[p.outer].shape[p.axis]:
                raise IndexError(f"a loop reads {p.outer!r} outside of axis {p.axis} ({s.loc})")
            out[p.inner] = env[p.outer][_slot(p.axis, at)]
    return out


def _stacked(p: Stack, rows: Sequence[np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    out = np.empty(p.outer.type.concrete(sizes), p.outer.type.dtype.numpy)
    for t, row in enumerate(rows):
        out[_slot(p.axis, t)] = row
    return out


def _slot(axis: int, at: int) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, at, ...)
