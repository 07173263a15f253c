"""Loops: ports become views, so that a body reads and writes in place.

const and seq ports are views of the outer value. A stacked value is written into its slot. A carry
that its body only updates keeps one buffer; any other has two halves: the body reads the half of
the iteration's parity and writes the other, which makes swaps and hand-overs safe without copies.
"""

from __future__ import annotations

from dataclasses import replace

from executor.launches import Loop, Number64, When
from executor.lower import Lowerer, rule
from executor.uses import body, carried
from executor.views import View
from ir import Scan
from ir.core import Carry, Const, Last, Seq, Stack
from ir.types import Dim, Size


@rule("scan")
def scan(low: Lowerer, s: Scan) -> None:
    index, parity, after = low.symbol("i"), low.symbol("p"), low.symbol("q")
    uses = body(s)
    in_place = carried(s.carries, uses)
    for p in s.ports:
        if isinstance(p, Seq):
            _check_seq(low, s, p)
        if isinstance(p, Last):
            text = "a loop without an iteration has no last value"
            low.check(s.trip - 1, text, s.loc, ValueError)
    states = {p: _state(low, s, p, in_place[p]) for p in s.carries}
    results = {p: low.fresh(p.outer) for p in s.ports if isinstance(p, (Stack, Last))}
    low.blocks.append([])
    low.uses.append(uses)
    _enter(low, s, index)
    for p, state in states.items():
        _carry(low, p, state, in_place[p], Size.named(parity))
    for p in s.ports:
        if isinstance(p, Stack):
            slot = results[p].pick(p.axis, Size.named(index))
            low.places.setdefault(p.inner, []).append(slot)
    low.block(s.body)
    _leave(low, s, results, index)
    low.uses.pop()
    launches = tuple(low.blocks.pop())
    low.emit(Loop(index, parity, after, s.trip, launches))
    for p in s.carries:
        if p.last is not None:
            view = states[p] if in_place[p] else _half(states[p], Size.named(after))
            low.bind(p.last, view)
            low.owned.add(p.last)


def _check_seq(low: Lowerer, s: Scan, p: Seq) -> None:
    """Iteration i reads `start + step * i`: the first and the last must be there."""
    n = p.outer.type.shape[p.axis]
    final = p.start + (s.trip - 1) * p.step
    if s.trip == 0:
        return
    checks = []
    for at in (p.start, final):
        for value in (at, n - 1 - at):
            if not _surely_natural(value):
                checks.append(value)
    if checks:
        _check_if(low, s.trip, checks, f"a loop reads {p.outer!r} outside of its axis {p.axis}", s)


def _surely_natural(value: Dim) -> bool:
    return value >= 0 if isinstance(value, int) else all(c >= 0 for _, c in value.terms)


def _check_if(low: Lowerer, trip: Dim, checks: list[Dim], text: str, s: Scan) -> None:
    """Conditions that must hold if the loop runs at all."""
    low.blocks.append([])
    for value in checks:
        low.check(value, text, s.loc)
    launches = tuple(low.blocks.pop())
    low.emit(When(trip - 1, "sge", launches))


def _state(low: Lowerer, s: Scan, p: Carry, in_place: bool) -> View:
    """The storage of a carry, with its first value in it."""
    init = low.env[p.init]
    heir = low.uses[-1].updates.get(p.init)
    if in_place and p.init in low.owned and heir is not None and heir is p.last:
        return init
    if in_place:
        wanted = low.places.get(p.last, []) if p.last is not None else []
        state = wanted[0] if wanted else low.temporary(p.init.type)
        low.copy(init, state)
        return state
    state = low.temporary(replace(p.init.type, shape=(2, *p.init.type.shape)))
    low.copy(init, _half(state, 0))
    return state


def _half(state: View, which: Dim) -> View:
    return state.pick(0, which)


def _enter(low: Lowerer, s: Scan, index: str) -> None:
    low.known[s.index] = Size.named(index)
    if s.index in low.uses[-1].last:
        view = low.fresh(s.index)
        low.emit(Number64(Size.named(index), view))
    for p in s.ports:
        if isinstance(p, Const):
            low.bind(p.inner, low.env[p.outer], low.level[p.outer])
            low.origin[p.inner] = low.origin.get(p.outer, p.outer)
            if p.outer in low.constants:
                low.constants[p.inner] = low.constants[p.outer]
            if p.outer in low.known:
                low.known[p.inner] = low.known[p.outer]
        elif isinstance(p, Seq):
            at = Size.named(index) * p.step + p.start
            low.bind(p.inner, low.env[p.outer].pick(p.axis, at))


def _carry(low: Lowerer, p: Carry, state: View, in_place: bool, parity: Dim) -> None:
    inner = state if in_place else _half(state, parity)
    low.bind(p.inner, inner)
    low.owned.add(p.inner)
    following = state if in_place else _half(state, 1 - parity)
    low.places.setdefault(p.next, []).insert(0, following)


def _leave(low: Lowerer, s: Scan, results: dict[Stack | Last, View], index: str) -> None:
    for v in s.needed:
        low.settle(v)
    lasts = [p for p in s.ports if isinstance(p, Last)]
    if not lasts:
        return
    low.blocks.append([])
    for p in lasts:
        low.copy(low.env[p.inner], results[p])
    launches = tuple(low.blocks.pop())
    low.emit(When(s.trip - 1 - Size.named(index), "eq", launches))
