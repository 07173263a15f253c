"""Programs that call foreign kernels: native segments, with the foreign calls between them.

Every op list is cut into maximal runs of native ops, each compiled as a program of its own. A loop
that contains a foreign call is run by Python, iteration by iteration; any other loop stays inside
of its segment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from executor.runtime import Executable, call_with_arrays
from ir import Input, Op, Program, Scan, Size, Type, Value
from ir.core import Const, Last, Node, Seq, Stack
from ir.types import BOOL, evaluate_dim

#: (op, operands, named sizes) -> results
Foreign: TypeAlias = Callable[[Op, list[np.ndarray], dict[str, int]], Sequence[np.ndarray]]
Env: TypeAlias = dict[Value, np.ndarray]


def has_foreign(nodes: Iterable[Node]) -> bool:
    return any(_is_foreign(n) for n in nodes)


def _is_foreign(node: Node) -> bool:
    return has_foreign(node.body) if isinstance(node, Scan) else node.name == "foreign"


@dataclass(frozen=True, eq=False)
class _Segment:
    """A native run of ops. Its first input only names the sizes and has no storage."""

    native: Executable
    ins: tuple[Value, ...]
    outs: tuple[Value, ...]

    def run(self, env: Env, sizes: Mapping[str, int]) -> None:
        arrays = [np.ascontiguousarray(env[v]) for v in self.ins]
        outs = [np.empty(v.type.concrete(sizes), v.type.dtype.numpy) for v in self.outs]
        addresses = [0, *(a.ctypes.data for a in arrays)]
        self.native.run(list(sizes.values()), addresses, [a.ctypes.data for a in outs])
        env.update(zip(self.outs, outs))


@dataclass(frozen=True, eq=False)
class _Loop:
    scan: Scan
    steps: tuple[_Step, ...]


_Step: TypeAlias = "_Segment | _Loop | Op"


class Interpreted:
    """Like `Executable`; `run` raises also what a foreign kernel raises."""

    def __init__(
        self, program: Program, foreign: Foreign, compile_: Callable[[Program], Executable]
    ) -> None:
        self.program, self.foreign = program, foreign
        self.sizes: tuple[str, ...] = program.sizes
        self.inputs: tuple[Input, ...] = program.inputs
        self.outputs: tuple[Type, ...] = tuple(v.type for v in program.outputs)
        needed = {*program.outputs, *(v for _, v in program.writes)}
        self._steps = _cut(program.ops, needed, self.sizes, compile_)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """As `Executable.__call__`."""
        return call_with_arrays(self, arrays)

    def run(self, sizes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """As `Executable.run`, with the interpreter lock held between native segments."""
        named = dict(zip(self.sizes, map(int, sizes)))
        env = {i.value: _at(a, i.value.type, named) for i, a in zip(self.inputs, inputs)}
        self._block(self._steps, env, named)
        for v, address in zip(self.program.outputs, outputs):
            _at(address, v.type, named)[...] = env[v]
        values = [np.array(env[v]) for _, v in self.program.writes]
        for (target, _), value in zip(self.program.writes, values):
            env[target][...] = value

    def _block(self, steps: Sequence[_Step], env: Env, sizes: dict[str, int]) -> None:
        for step in steps:
            if isinstance(step, _Segment):
                step.run(env, sizes)
            elif isinstance(step, _Loop):
                self._loop(step, env, sizes)
            else:
                self._call(step, env, sizes)

    def _call(self, op: Op, env: Env, sizes: dict[str, int]) -> None:
        results = self.foreign(op, [env[v] for v in op.operands], dict(sizes))
        for v, r in zip(op.results, results, strict=True):
            if r.dtype != v.type.dtype.numpy or r.shape != v.type.concrete(sizes):
                what = op.attrs.get("call", op.name)
                raise TypeError(f"{what} gave {r.dtype}{list(r.shape)}, not {v.type} ({op.loc})")
            env[v] = r

    def _loop(self, loop: _Loop, env: Env, sizes: dict[str, int]) -> None:
        s = loop.scan
        trip = evaluate_dim(s.trip, sizes)
        if trip < 1 and any(isinstance(p, Last) for p in s.ports):
            raise ValueError(f"a loop without an iteration has no last value ({s.loc})")
        state = {p: env[p.init] for p in s.carries}
        stacks = {
            p: np.empty(p.outer.type.concrete(sizes), p.outer.type.dtype.numpy)
            for p in s.ports
            if isinstance(p, Stack)
        }
        inner: Env = {}
        for t in range(trip):
            inner = {s.index: np.asarray(t, np.int64)}
            inner.update(_enter(s, env, t, sizes))
            inner.update((p.inner, state[p]) for p in s.carries)
            self._block(loop.steps, inner, sizes)
            state = {p: inner[p.next] for p in s.carries}
            for p, out in stacks.items():
                out[_slot(p.axis, t)] = inner[p.inner]
        env.update((p.outer, out) for p, out in stacks.items())
        env.update((p.last, state[p]) for p in s.carries if p.last is not None)
        env.update((p.outer, inner[p.inner]) for p in s.ports if isinstance(p, Last))


def _enter(s: Scan, env: Env, t: int, sizes: Mapping[str, int]) -> Env:
    out: Env = {}
    for p in s.ports:
        if isinstance(p, Const):
            out[p.inner] = env[p.outer]
        elif isinstance(p, Seq):
            at = evaluate_dim(p.start, sizes) + p.step * t
            if not 0 <= at < env[p.outer].shape[p.axis]:
                raise IndexError(f"a loop reads {p.outer!r} outside of axis {p.axis} ({s.loc})")
            out[p.inner] = env[p.outer][_slot(p.axis, at)]
    return out


def _slot(axis: int, at: int) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, at, ...)


def _at(address: int, t: Type, sizes: Mapping[str, int]) -> np.ndarray:
    """The memory at an address as an array, not copied."""
    shape = t.concrete(sizes)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return np.empty(shape, t.dtype.numpy)
    memory = (ctypes.c_uint8 * (count * t.dtype.size)).from_address(address)
    return np.frombuffer(memory, t.dtype.numpy).reshape(shape)  # type: ignore[call-overload]


# ---------------------------------------------------------------- cutting
def _cut(
    nodes: Sequence[Node],
    needed: set[Value],
    sizes: Sequence[str],
    compile_: Callable[[Program], Executable],
) -> tuple[_Step, ...]:
    """`needed` are values of the block that are used after it."""
    steps: list[_Step] = []
    run: list[Node] = []
    for at, node in enumerate([*nodes, None]):
        if node is not None and not _is_foreign(node):
            run.append(node)
            continue
        if run:
            later = needed | {v for n in nodes[at:] for v in n.operands}
            steps.append(_segment(run, later, sizes, compile_))
            run = []
        if isinstance(node, Scan):
            steps.append(_Loop(node, _cut(node.body, set(node.needed), sizes, compile_)))
        elif isinstance(node, Op):
            steps.append(node)
    return tuple(steps)


def _segment(
    run: Sequence[Node],
    later: set[Value],
    sizes: Sequence[str],
    compile_: Callable[[Program], Executable],
) -> _Segment:
    made = dict.fromkeys(v for n in run for v in n.results)
    ins = tuple(dict.fromkeys(v for n in run for v in n.operands if v not in made))
    outs = tuple(v for v in made if v in later)
    names = Value(Type(BOOL, tuple(Size.named(n) for n in sizes)))
    inputs = [Input(names, "arg", "sizes"), *(Input(v, "arg", v.name or "value") for v in ins)]
    native = compile_(Program("segment", tuple(inputs), tuple(run), outs))
    return _Segment(native, ins, outs)
