"""Loops: ports become views, so that a body reads and writes in place.

const and seq ports are views of the outer value. A stacked value is written into its slot. A carry
that its body only updates keeps one buffer; any other has two halves: the body reads the half of
the iteration's parity and writes the other, which makes swaps and hand-overs safe without copies.

A `while` is a loop that also reads, before an iteration, one byte: the go port. How long its stacks
are is known only afterwards, so their memory is for `trip` iterations, with the axis of the loop
outermost. Any of its iterations may be the last, so each stores what a `last` port asks for.
"""

from __future__ import annotations

from dataclasses import replace

from executor.counts import most
from executor.launches import Fail, Loop, Number64, When
from executor.lower import Lowerer, rule
from executor.uses import body, carried, next_values
from executor.views import View, whole
from ir import Scan
from ir.core import Carry, Const, Last, Seq, Stack
from ir.types import Dim, Size, Type, product


@rule("scan")
def scan(low: Lowerer, s: Scan) -> None:
    index, parity, after = low.symbol("i"), low.symbol("p"), low.symbol("q")
    if s.count:
        bounds = {n: b for scope in low.scopes for n, b in scope.bounds.items()}
        low.scopes[-1].bounds[s.count] = most(s.trip, bounds)
    uses = body(s, low.inside)
    kept = carried(next_values(s.carries), uses)
    in_place = {p: kept[p.inner] for p in s.carries}
    _check_ports(low, s)
    states = {p: _state(low, s, p, in_place[p]) for p in s.carries}
    go = _go(low, s)
    results = {p: _collected(low, s, p) for p in s.ports if isinstance(p, (Stack, Last))}
    low.open(loop=True)
    low.uses.append(uses)
    _enter(low, s, index)
    for p, state in states.items():
        _carry(low, p, state, in_place[p], Size.named(parity))
    _give(low, s, go, results, index)
    low.block(s.body)
    _leave(low, s, results, index)
    low.uses.pop()
    low.emit(Loop(index, parity, after, s.trip, low.close(), go, s.count))
    for p in s.carries:
        if p.last is not None:
            view = states[p] if in_place[p] else _half(states[p], Size.named(after))
            low.bind(p.last, view)
            low.owned.add(p.last)


# ---------------------------------------------------------------- checks
def _check_ports(low: Lowerer, s: Scan) -> None:
    for p in s.ports:
        if isinstance(p, Seq) and not s.count:
            _check_seq(low, s, p)
    if not any(isinstance(p, Last) for p in s.ports):
        return
    text = "a loop without an iteration has no last value"
    low.check(s.trip - 1, text, s.loc, ValueError)
    if s.go is not None:
        low.emit(Fail(low.env[s.go.init], low.failure(ValueError, text, s.loc)))


def _outside(p: Seq) -> str:
    return f"a loop reads {p.outer!r} outside of its axis {p.axis}"


def _check_seq(low: Lowerer, s: Scan, p: Seq) -> None:
    """Iteration i reads `start + step * i`: the first and the last must be there."""
    if s.trip == 0:
        return
    checks = _doubtful(s, p)
    if checks:
        _check_if(low, s.trip, checks, _outside(p), s)


def _doubtful(s: Scan, p: Seq) -> list[Dim]:
    """What may be negative if `trip` iterations of `s` read `p`: distances to the ends."""
    n = p.outer.type.shape[p.axis]
    final = p.start + (s.trip - 1) * p.step
    distances = [q for at in (p.start, final) for q in (at, n - 1 - at)]
    return [q for q in distances if not _surely_natural(q)]


def _surely_natural(value: Dim) -> bool:
    return value >= 0 if isinstance(value, int) else all(c >= 0 for _, c in value.terms)


def _check_if(low: Lowerer, trip: Dim, checks: list[Dim], text: str, s: Scan) -> None:
    """Conditions that must hold if the loop runs at all."""
    low.open()
    for value in checks:
        low.check(value, text, s.loc)
    low.emit(When(trip - 1, "sge", low.close()))


# ---------------------------------------------------------------- storage
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


def _go(low: Lowerer, s: Scan) -> View | None:
    """The byte that a `while` reads before an iteration, with its first value in it."""
    if s.go is None:
        return None
    go = low.temporary(s.go.init.type)
    low.copy(low.env[s.go.init], go)
    return go


def _collected(low: Lowerer, s: Scan, p: Stack | Last) -> View:
    """The storage of a result that is not a carry. No stride of it is known only afterwards."""
    if isinstance(p, Last) or not s.count:
        return low.fresh(p.outer)
    inner = p.inner.type
    shape = (s.length, *inner.shape)
    wanted = low.places.get(p.outer, [])
    if p.axis == 0 and wanted:
        return low.fresh(p.outer)
    buffer = low.arena(product(shape), inner.dtype)
    order = (*range(1, p.axis + 1), 0, *range(p.axis + 1, len(shape)))
    view = whole(buffer, Type(inner.dtype, shape)).transpose(order)
    low.bind(p.outer, view)
    low.owned.add(p.outer)
    return view


# ---------------------------------------------------------------- the body
def _enter(low: Lowerer, s: Scan, index: str) -> None:
    low.known[s.index] = Size.named(index)
    if s.index in low.uses[-1].last:
        view = low.fresh(s.index)
        low.emit(Number64(Size.named(index), view))
    for p in s.ports:
        if isinstance(p, Const):
            hand_in(low, p)
        elif isinstance(p, Seq):
            at = Size.named(index) * p.step + p.start
            if s.count and _doubtful(s, p):
                for distance in (at, p.outer.type.shape[p.axis] - 1 - at):
                    low.check(distance, _outside(p), s.loc)
            low.bind(p.inner, low.env[p.outer].pick(p.axis, at))


def hand_in(low: Lowerer, p: Const) -> None:
    """An outer value is the inner one: the same storage, and whatever else is known of it."""
    low.bind(p.inner, low.env[p.outer], low.level[p.outer])
    low.origin[p.inner] = low.origin.get(p.outer, p.outer)
    if p.outer in low.constants:
        low.constants[p.inner] = low.constants[p.outer]
    if p.outer in low.known:
        low.known[p.inner] = low.known[p.outer]


def _carry(low: Lowerer, p: Carry, state: View, in_place: bool, parity: Dim) -> None:
    inner = state if in_place else _half(state, parity)
    low.bind(p.inner, inner)
    low.owned.add(p.inner)
    following = state if in_place else _half(state, 1 - parity)
    low.places.setdefault(p.next, []).insert(0, following)


def _give(
    low: Lowerer, s: Scan, go: View | None, results: dict[Stack | Last, View], index: str
) -> None:
    """Values of the body are wanted where its results are."""
    for p in s.ports:
        if isinstance(p, Stack):
            slot = results[p].pick(p.axis, Size.named(index))
            low.places.setdefault(p.inner, []).append(slot)
        elif isinstance(p, Last) and s.count:
            low.places.setdefault(p.inner, []).append(results[p])
    if s.go is not None and go is not None:
        low.places.setdefault(s.go.next, []).append(go)


def _leave(low: Lowerer, s: Scan, results: dict[Stack | Last, View], index: str) -> None:
    for v in s.needed:
        low.settle(v)
    lasts = [p for p in s.ports if isinstance(p, Last) and not s.count]
    if not lasts:
        return
    low.open()
    for p in lasts:
        low.copy(low.env[p.inner], results[p])
    low.emit(When(s.trip - 1 - Size.named(index), "eq", low.close()))
