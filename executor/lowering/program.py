"""Lowering of whole programs: inputs, outputs, and write-back.

A written input is updated in place where its old value is dead by then. If an op may fail after
that, a failed call would have changed the input: then the new value is computed apart and copied
last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from executor.launches import Lowered
from executor.lowering.blocks import lower_block
from executor.lowering.lowerer import Lowerer, Machine
from executor.memory import Buffer, View, memory_of, whole
from executor.plan.atomicity import checked_first, written_early
from executor.plan.copies import OUTPUT, CopyPurpose, kept_apart, line
from executor.plan.reuse import Inside, analyse, carried
from executor.plan.tensor_arrays import addressed
from executor.plan.trip_counts import asks
from ir import Program, Require, Value
from ir.analysis.affine import steps
from ir.analysis.conditions import unproven
from ir.analysis.ranges import bounds_of_elements
from ir.program import Node
from ir.rewrite import expand_composites
from ir.types import Type, product
from ir.uses import dim_names

NodeRequires: TypeAlias = Mapping[Node, Sequence[Require]]


def lower(program: Program, machine: Machine, donated: Collection[int] = ()) -> Lowered:
    """`donated`: numbers of inputs that may be overwritten whatever happens.

    Raises NotImplementedError for an op without a kernel.
    """
    program = expand_composites(program)
    found = unproven(program)
    given = {program.inputs[n].value for n in donated}
    late: dict[int, str] = {}
    while True:
        lowered = _lower(program, machine, late, given, found)
        early = _kept_from_failing(lowered, given)
        if early:
            launches = checked_first(lowered.launches, lowered.failures)
            lowered = replace(lowered, launches=launches)
            early = _kept_from_failing(lowered, given)
        if not early:
            return lowered
        for b, error in early.items():
            where = line(lowered.failures[error - 1].loc)
            late[b.number] = f"a call that fails changes nothing, and it may fail {where}"


def _kept_from_failing(lowered: Lowered, donated: Collection[Value]) -> dict[Buffer, int]:
    free = {b for b, i in zip(lowered.inputs, lowered.program.inputs) if i.value in donated}
    found = written_early(lowered.launches, lowered.failures)
    return {b: error for b, error in found.items() if b not in free}


def _lower(
    program: Program,
    machine: Machine,
    late: Mapping[int, str],
    donated: Collection[Value],
    conditions: NodeRequires,
) -> Lowered:
    """`late`: numbers of written inputs that must not change before the end, and why."""
    requires, behind = _parted(conditions, set(program.sizes))
    found, moved = bounds_of_elements(program), steps(program)
    low = Lowerer(machine, program, found, moved, addressed(program), frozenset(donated), behind)
    inputs = tuple(_buffer("input", n, i.value.type) for n, i in enumerate(program.inputs))
    outputs = tuple(_buffer("output", n, v.type) for n, v in enumerate(program.outputs))
    for i, b in zip(program.inputs, inputs):
        low.bind(i.value, whole(b, i.value.type))
    for v, b in zip(program.outputs, outputs):
        if isinstance(v, Value):
            low.want(v, whole(b, v.type), CopyPurpose(OUTPUT, idle=True))
    kept = {program.inputs[n].value: reason for n, reason in late.items()}
    kept.update(_interrupted(program, low.inside))
    states: dict[Value, Value] = {t: v for t, v in program.writes if t not in kept}
    spare = [v for v in donated if v not in states]
    given: dict[Value, Value | None] = {**states, **dict.fromkeys(spare)}
    low.owned.update(spare)
    low.uses.append(analyse(program.ops, given, program.needed, low.inside))
    done = {target for target, ok in carried(states, low.uses[0]).items() if ok}
    for target, v in program.writes:
        if target in done:
            low.owned.add(target)
            name = program.inputs[low.env[target].buffer.number].name
            low.want(v, low.env[target], CopyPurpose(name, idle=False), first=True)
        else:
            why = kept_apart(low.uses[0], target, v, low.inside)
            low.reasons[target] = kept.get(target) or why
    lower_block(low)
    for v in list(low.places):
        low.settle(v)
    _write_back(low, [(t, v) for t, v in program.writes if t not in done])
    launches, copies = low.close(), tuple(low.copies)
    failures = tuple(low.failures)
    calls = tuple(low.calls)
    return Lowered(program, inputs, outputs, launches, failures, copies, requires, calls)


def _parted(conditions: NodeRequires, sizes: set[str]) -> tuple[tuple[Require, ...], NodeRequires]:
    """Conditions on the sizes of a call, and for each node those on counts of loops."""
    first: dict[str, Require] = {}
    behind: dict[Node, tuple[Require, ...]] = {}
    for node, found in conditions.items():
        now = {str(r): r for r in found if dim_names((r.left, r.right)) <= sizes}
        first.update(now)
        if len(now) < len(found):
            behind[node] = tuple(r for r in found if str(r) not in now)
    return tuple(first.values()), behind


def _interrupted(program: Program, inside: Inside) -> dict[Value, str]:
    """Inputs that would get another tensor's value while Ctrl-C can still stop the program."""
    if not asks(program.ops, program.capacities):
        return {}
    block = analyse(program.ops, dict(program.writes), program.needed, inside)
    at, node = [(at, n) for at, n in enumerate(program.ops) if asks([n], program.capacities)][-1]
    reason = f"a call that is interrupted in the loop {line(node.loc)} leaves it as it was"
    return {v: reason for v, start in block.linked.items() if start <= at}


def _buffer(kind: str, number: int, t: Type) -> Buffer:
    return Buffer(kind, number, product(t.shape) * t.dtype.size)


def _write_back(low: Lowerer, writes: Sequence[tuple[Value, Value]]) -> None:
    """Copy written values that were computed elsewhere into their inputs, in an order in which no
    copy destroys the source of another; if there is no such order, a source is saved first."""
    left = {t: (v, low.env[v]) for t, v in writes if low.env[v] != low.env[t]}
    while left:
        free = (
            t for t in left if not any(_reads(low, q, t) for q in left.items() if q[0] is not t)
        )
        target = next(free, None)
        if target is not None and not _reads(low, (target, left[target]), target):
            v, x = left.pop(target)
            low.copy(x, low.env[target])
            low.keep(v, low.env[target], low.reasons[target])
            continue
        blocked = next(iter(left)) if target is None else target
        v, x = left[blocked]
        saved = low.temporary(v.type)
        low.copy(x, saved)
        low.keep(v, saved, "what it is a part of gets another value first")
        left[blocked] = (v, saved)


def _reads(low: Lowerer, write: tuple[Value, tuple[Value, View]], target: Value) -> bool:
    return low.env[target].buffer in memory_of(write[1][1].buffer)
