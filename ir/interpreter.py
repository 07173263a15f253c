"""The reference interpreter: programs evaluated with NumPy, op by op, with real storage.

Views share memory and writes overwrite it, so a program means the same before and after
`functionalize`. Slow and simple on purpose. The `count` of a while loop is a size from the end of
the loop on, the index of a loop may be one in its body.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ir.opdef import OPS
from ir.program import (
    MIN_CAPACITY,
    CapacityExceeded,
    Carry,
    Cond,
    Const,
    Custom,
    Fused,
    Last,
    Node,
    Op,
    Program,
    Require,
    Scan,
    Seq,
    Stack,
    Value,
)
from ir.types import Size, Type, evaluate_dim, multiple_of_name

Env = dict[Value, np.ndarray]
Foreign = Callable[..., Sequence[np.ndarray]]


def bind_sizes(program: Program, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Named sizes from the shapes of the inputs; raises ValueError when they do not agree."""
    sizes: dict[str, int] = {}
    for i, shape in zip(program.inputs, shapes):
        if len(shape) != i.value.type.ndim:
            raise ValueError(f"{i.name} is {i.value.type}, not of shape {list(shape)}")
        for d, n in zip(i.value.type.shape, shape):
            if (found := multiple_of_name(d)) is not None:
                sizes.setdefault(found[0], int(n) // found[1])
    for i, shape in zip(program.inputs, shapes):
        if i.value.type.concrete(sizes) != tuple(shape):
            known = "".join(f", {n} = {sizes[n]}" for n in sorted(i.value.type.names))
            raise ValueError(f"{i.name} is {i.value.type}{known}, not of shape {list(shape)}")
    for r in program.requires:
        if not r.holds(sizes):
            raise ValueError(f"{r} does not hold{_why(r)}: {_inputs_with(r, program, shapes)}")
    return sizes


def _why(r: Require) -> str:
    parts = [q for q in (r.reason, str(r.loc) if r.loc.line > 0 else "") if q]
    return f" ({', '.join(parts)})" if parts else ""


def _inputs_with(r: Require, program: Program, shapes: Sequence[Sequence[int]]) -> str:
    """The inputs that a condition is about, with their shapes."""
    names = {n for d in (r.left, r.right) if isinstance(d, Size) for n in d.names}
    return ", ".join(
        f"{i.name} is {i.value.type} of shape {list(shape)}"
        for i, shape in zip(program.inputs, shapes)
        if i.value.type.names & names
    )


def evaluate(
    program: Program, inputs: Sequence[np.ndarray], foreign: Foreign | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs and the values to write back, in the program's order.

    `inputs` are not changed. Raises ValueError when shapes do not fit the program and IndexError
    for an index outside of its tensor, and what a `check` that fails names.
    """
    for k in itertools.count():
        with contextlib.suppress(CapacityExceeded):
            return _evaluate(program, inputs, foreign, MIN_CAPACITY << k)
    raise AssertionError


def _evaluate(
    program: Program, inputs: Sequence[np.ndarray], foreign: Foreign | None, capacity: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    arrays = [np.array(a, i.value.type.dtype.numpy) for a, i in zip(inputs, program.inputs)]
    if len(inputs) != len(program.inputs):
        raise ValueError(f"{program.name} takes {len(program.inputs)} inputs, not {len(inputs)}")
    sizes = {
        **bind_sizes(program, [a.shape for a in arrays]),
        **dict.fromkeys(program.capacities, capacity),
    }
    walker = _Evaluator(sizes, foreign, program.capacities)
    env: Env = {i.value: a for i, a in zip(program.inputs, arrays)}
    walker.block(program.ops, env)
    outputs = [np.array(env[v]) for v in program.results]
    return outputs, [np.array(env[v]) for _, v in program.writes]


class _Evaluator:
    def __init__(
        self, sizes: Mapping[str, int], foreign: Foreign | None, capacities: Sequence[str]
    ) -> None:
        self.sizes, self.foreign, self.capacities = dict(sizes), foreign, capacities

    def block(self, ops: Sequence[Node], env: Env) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.scan(node, env)
            elif isinstance(node, Cond):
                self.cond(node, env)
            elif isinstance(node, Custom):
                self.custom(node, env)
            elif isinstance(node, Fused):
                self.fused(node, env)
            else:
                self.op(node, env)

    def attr(self, value: Any) -> Any:
        if isinstance(value, Size):
            return value.evaluate(self.sizes)
        if isinstance(value, (tuple, list)):
            return tuple(self.attr(v) for v in value)
        return value

    def op(self, op: Op, env: Env) -> None:
        row, args = OPS[op.name], [env[v] for v in op.operands]
        attrs = {k: self.attr(v) for k, v in op.attrs.items()}
        if row.writes:
            args[0][...] = args[1]
            return
        if op.name == "foreign":
            if self.foreign is None:
                raise NotImplementedError(f"{op.attrs['call']} needs Paddle")
            results = self.foreign(op, args, self.sizes)
        else:
            assert row.ref is not None, op.name
            out = row.ref(*args, **attrs)
            results = out if isinstance(out, tuple) else (out,)
        for v, r in zip(op.results, results):
            fresh = np.asarray(r, order=None if row.views else "C")
            env[v] = self.checked(op.name, v.type, fresh)

    def checked(self, name: str, t: Type, r: np.ndarray) -> np.ndarray:
        if r.dtype != t.dtype.numpy or r.shape != t.concrete(self.sizes):
            raise TypeError(f"{name} gave {r.dtype}{list(r.shape)}, its row says {t}")
        return r

    def scan(self, s: Scan, env: Env) -> None:
        trip, n = evaluate_dim(s.trip, self.sizes), 0
        inner: Env = dict(env)
        state = {p: env[p.init] for p in s.carries}
        rows: dict[Stack, list[np.ndarray]] = {p: [] for p in s.ports if isinstance(p, Stack)}
        go = s.go is None or bool(env[s.go.init])
        while n < trip and go:
            inner[s.index] = np.asarray(n, np.int64)
            if s.size:
                self.sizes[s.size] = n
            self.enter(s, env, inner, n)
            inner.update((p.inner, state[p]) for p in s.carries)
            self.block(s.body, inner)
            state = {p: inner[p.next] for p in s.carries}
            for stack, row in rows.items():
                row.append(np.array(inner[stack.inner]))
            go = s.go is None or bool(inner[s.go.next])
            n += 1
        if s.count:
            self.sizes[s.count] = n
            require_capacity(s, n, trip, self.capacities)
        for p in s.outs:
            env[_outer(p)] = self.leave(s, p, state, rows, inner, n)

    def cond(self, c: Cond, env: Env) -> None:
        inner: Env = {p.inner: env[p.outer] for p in c.ins}
        ops, leaving = c.branches[0] if env[c.test] else c.branches[1]
        self.block(ops, inner)
        env.update((j.outer, inner[v]) for j, v in zip(c.outs, leaving))

    def custom(self, c: Custom, env: Env) -> None:
        inner: Env = {p.inner: env[p.outer] for p in c.ins}
        self.block(c.forward, inner)
        env.update((outer, inner[v]) for outer, v in c.outs)

    def enter(self, s: Scan, env: Env, inner: Env, i: int) -> None:
        for p in s.ports:
            if isinstance(p, Const):
                inner[p.inner] = env[p.outer]
            elif isinstance(p, Seq):
                at = evaluate_dim(p.start, self.sizes) + p.step * i
                outer = env[p.outer]
                if not 0 <= at < outer.shape[p.axis]:
                    raise IndexError(f"seq port reads {at} of {outer.shape[p.axis]}")
                inner[p.inner] = outer[((slice(None),) * p.axis) + (at, ...)]

    def leave(
        self,
        s: Scan,
        p: Carry | Stack | Last,
        state: dict[Carry, np.ndarray],
        rows: dict[Stack, list[np.ndarray]],
        inner: Env,
        n: int,
    ) -> np.ndarray:
        if isinstance(p, Carry):
            return state[p]
        if isinstance(p, Last):
            if n == 0:
                raise ValueError("a loop that runs no iteration has no last value")
            return inner[p.inner]
        shape = p.outer.type.concrete(self.sizes)
        out = np.empty(shape, p.outer.type.dtype.numpy)
        for i, row in enumerate(rows[p]):
            out[((slice(None),) * p.axis) + (i, ...)] = row
        return out

    def fused(self, f: Fused, env: Env) -> None:
        inner: Env = {p.inner: env[p.outer] for p in f.ins}
        self.block(f.body, inner)
        for outer, v in f.outs:
            shape = outer.type.concrete(self.sizes)
            env[outer] = np.broadcast_to(inner[v], shape).copy()


def require_capacity(s: Scan, ran: int, trip: int, capacities: Collection[str]) -> None:
    """Raises CapacityExceeded for a loop that has used up its capacity."""
    if ran == trip and str(s.trip) in capacities:
        raise CapacityExceeded(str(s.trip))


def _outer(p: Carry | Stack | Last) -> Value:
    out = p.last if isinstance(p, Carry) else p.outer
    assert out is not None
    return out


__all__ = ["bind_sizes", "evaluate", "require_capacity"]
