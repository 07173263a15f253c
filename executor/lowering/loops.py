"""Lowering of loops: ports become views, so that a body reads and writes in place.

const and seq ports are views of the outer value. A stacked value is written into its slot. A carry
keeps one buffer if its body updates it, or makes the next state only after the last use of the old
one; any other has two halves: the body reads the half of the iteration's parity and writes the
other, which makes swaps and hand-overs safe without copies. A carry that moves by a constant is
known from the loop's index, so that its uses as an index can be checked before the loop. Where the
index is a size in the body, its name is the symbol of the index, and what has such a size gets
memory for `trip` iterations.

A `while` is a loop that also reads, before an iteration, one byte: the go port. The length of its
stacks is known only afterwards, so their memory is for `trip` iterations, with the axis of the loop
outermost. Any of its iterations may be the last, so each stores the value of every `last` port.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from executor.launches import Check, Fail, Index, Loop, Map, Number64, When
from executor.lowering.blocks import lower_block
from executor.lowering.lowerer import Lowerer, rule
from executor.memory import View, whole
from executor.plan.copies import CopyPurpose, kept_apart_in, line
from executor.plan.reuse import body, carried, next_values
from executor.plan.trip_counts import is_long, ranges_of
from ir import CapacityExceeded, Op, Scan, Value
from ir.analysis.affine import limit_of
from ir.program import Carry, Const, Last, Seq, Stack
from ir.scalar import language as k
from ir.types import BOOL, I64, Dim, Size, Type, is_natural, product


@rule("scan")
def scan(low: Lowerer, s: Scan) -> None:
    index, parity, after = s.size or low.symbol("i"), low.symbol("p"), low.symbol("q")
    low.ranges[index], counted = ranges_of(s.trip, low.ranges.get)
    if s.count:
        low.ranges[s.count] = counted
        low.scopes[-1].sizes.add(s.count)
    if (limit := limit_of(s, partial(_is_one, low))) is not None:
        return _count(low, s, limit)
    uses = body(s, low.inside)
    kept = carried(next_values(s.carries), uses)
    in_place = {p: kept[p.inner] for p in s.carries}
    _check_ports(low, s)
    states = {p: _state(low, s, p, in_place[p]) for p in s.carries}
    go = _go(low, s)
    results = {p: _collected(low, s, p) for p in s.ports if isinstance(p, Last)}
    for p in s.ports:
        if isinstance(p, Stack) and not _scattered(low, s, p):
            _collected(low, s, p)
    counters = {p: _counter(low, p, index) for p in s.carries}
    low.open(loop=s.loc)
    if s.size:
        low.scopes[-1].sizes.add(s.size)
    low.running.append(s.trip - 1)
    low.uses.append(uses)
    _enter(low, s, index)
    for p, state in states.items():
        _carry(low, s, p, state, in_place[p], Size.named(parity))
    low.known.update((p.inner, at) for p, at in counters.items() if at is not None)
    _give(low, s, go, results, index)
    lower_block(low)
    _leave(low, s, results, index)
    low.uses.pop()
    low.running.pop()
    asks = is_long(s, low.program.capacities)
    low.emit(Loop(index, parity, after, s.trip, low.close(), go, s.count, asks))
    _check_capacity(low, s)
    for p in s.carries:
        if p.last is not None:
            view = states[p] if in_place[p] else _half(states[p], Size.named(after))
            low.bind(p.last, view)
            low.owned.add(p.last)


def _is_one(low: Lowerer, v: Value) -> bool:
    number = low.constants.get(v)
    return number is not None and number.value == 1


def _count(low: Lowerer, s: Scan, limit: Value) -> None:
    """The number of iterations of a loop that counts to `limit`, without iterations: a loop without
    a body binds its name."""
    assert s.go is not None
    trip, found, symbol = (low.temporary(Type(I64)), low.temporary(Type(I64)), low.symbol("n"))
    low.emit(Number64(s.trip, trip))
    starts, n, most = k.input_(0, BOOL), k.input_(1, I64), k.input_(2, I64)
    n = k.minimum(k.select(starts, k.maximum(n, 1), 0), most)
    ins = low.env[s.go.init], low.env[limit], trip
    low.emit(Map((), ins, (k.maximum(n, 0),), (found,)))
    low.emit(Index(symbol, found, 1, 0, wrap=False))
    names = low.symbol("i"), low.symbol("p"), low.symbol("q")
    low.emit(Loop(*names, Size.named(symbol), (), None, s.count, most=s.trip))
    _check_capacity(low, s)


def _check_capacity(low: Lowerer, s: Scan) -> None:
    if str(s.trip) in low.program.capacities:
        error = low.failure(CapacityExceeded, str(s.trip), s.loc, said=True)
        low.emit(Check(s.trip - 1 - s.length, error))


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
        low.check_if(s.trip, checks, _outside(p), s.loc)


def _doubtful(s: Scan, p: Seq) -> list[Dim]:
    """Return the distances to the ends of the axis that may be negative if `trip` iterations of `s`
    read `p`."""
    n = p.outer.type.shape[p.axis]
    final = p.start + (s.trip - 1) * p.step
    distances = [q for at in (p.start, final) for q in (at, n - 1 - at)]
    return [q for q in distances if not is_natural(q)]


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
        low.keep(p.init, state, _why_copied(low, s, p))
        return state
    state = low.temporary(replace(p.init.type, shape=(2, *p.init.type.shape)))
    low.copy(init, _half(state, 0))
    why = kept_apart_in(s, p.inner, low.inside)
    low.keep(p.init, _half(state, 0), f"the loop {line(s.loc)} keeps two states: {why}")
    return state


def _why_copied(low: Lowerer, s: Scan, p: Carry) -> str:
    block = low.uses[-1]
    root = block.of(p.init)
    here = block.last.get(root) == block.at(s)
    if root in low.owned and here and sum(block.of(q) is root for q in s.operands) > 1:
        return f"the loop {line(s.loc)} reads it beside the state that starts with it"
    return low.why_kept(p.init)


def _half(state: View, which: Dim) -> View:
    return state.index(0, which)


def _go(low: Lowerer, s: Scan) -> View | None:
    """The byte that a `while` reads before an iteration, with its first value in it."""
    if s.go is None:
        return None
    go = low.temporary(s.go.init.type)
    low.copy(low.env[s.go.init], go)
    return go


def _scattered(low: Lowerer, s: Scan, p: Stack) -> bool:
    """Slices that are outputs, each of them, are written where these lie. Returns False for what is
    read otherwise."""
    block, parts = low.uses[-1], dict[int, View]()
    count = p.outer.type.shape[p.axis]
    for at in block.users.get(p.outer, ()):
        op = block.nodes[at]
        slice_ = isinstance(op, Op) and op.name == "index" and op.operands[0] is p.outer
        places = low.places.get(op.results[0], []) if slice_ else []
        if not places or places[0].buffer.kind != "output" or not places[0].contiguous:
            return False
        if isinstance(op, Op) and op.attrs["axis"] == 0 and isinstance(op.attrs["index"], int):
            parts[op.attrs["index"]] = places[0]
    if s.count or p.axis or p.outer in low.places or not parts or count != len(parts):
        return False
    low.natural(p.outer.type.shape, p.outer.name)
    low.address(p.outer, [parts[k] for k in sorted(parts)])
    return True


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
            low.bind(p.inner, low.element(p.outer, p.axis, at))


def hand_in(low: Lowerer, p: Const) -> None:
    """An outer value is the inner one: the same storage, and whatever else is known of it."""
    if p.outer in low.arrays:
        low.arrays[p.inner] = low.arrays[p.outer]
        return
    low.bind(p.inner, low.env[p.outer])
    low.origin[p.inner] = low.origin.get(p.outer, p.outer)
    if p.outer in low.constants:
        low.constants[p.inner] = low.constants[p.outer]
    if p.outer in low.known:
        low.known[p.inner] = low.known[p.outer]


def _counter(low: Lowerer, p: Carry, index: str) -> Dim | None:
    """The value of a carry that moves by a constant, from the index of the loop."""
    step = low.steps.get(p.inner)
    if step is None:
        return None
    start = low.known.get(p.init)
    if start is None:
        name = low.symbol("s")
        low.emit(Index(name, low.env[p.init], 1, 0, wrap=False))
        start = Size.named(name)
    return start + step * Size.named(index)


def _carry(low: Lowerer, s: Scan, p: Carry, state: View, in_place: bool, parity: Dim) -> None:
    inner = state if in_place else _half(state, parity)
    low.bind(p.inner, inner)
    low.owned.add(p.inner)
    following = state if in_place else _half(state, 1 - parity)
    text = f"the next state of the loop {line(s.loc)}"
    low.want(p.next, following, CopyPurpose(text, idle=not in_place), first=True)


def _give(low: Lowerer, s: Scan, go: View | None, results: dict[Last, View], index: str) -> None:
    """Values of the body are wanted where its results are."""
    for p in s.ports:
        if isinstance(p, Stack):
            slot = low.element(p.outer, p.axis, Size.named(index))
            low.want(p.inner, slot, CopyPurpose(f"what the loop {line(s.loc)} collects", idle=True))
        elif isinstance(p, Last) and s.count:
            low.want(p.inner, results[p], CopyPurpose(f"the last value {line(s.loc)}", idle=False))
    if s.go is not None and go is not None:
        low.want(s.go.next, go, CopyPurpose(f"whether the loop {line(s.loc)} goes on", idle=False))


def _leave(low: Lowerer, s: Scan, results: dict[Last, View], index: str) -> None:
    for v in s.needed:
        low.settle(v)
    lasts = [p for p in s.ports if isinstance(p, Last) and not s.count]
    if not lasts:
        return
    low.open()
    for p in lasts:
        low.copy(low.env[p.inner], results[p])
        low.keep(p.inner, results[p], "the value of the last iteration outlives the loop")
    low.emit(When(s.trip - 1 - Size.named(index), "eq", low.close()))
