"""Loops over other axes than time, and branches, of a program that is made to stream.

Their ports have chunks. Where the body of a loop needs state, the loop is taken apart, so that
every iteration has its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ir.passes.unrolling import straight_line
from ir.program import (
    Builder,
    Carry,
    Cond,
    Const,
    Join,
    Last,
    Port,
    Scan,
    Seq,
    Stack,
    Value,
)
from ir.rewrite import Block
from ir.streaming import time_loops
from ir.streaming.chunks import Chunk, NeedsUnrolling, refuse
from ir.streaming.facts import QUANTUM, Fact, FinalValue, HeadValue, Stream, mentions
from ir.streaming.rules import ready, result_type
from ir.streaming.traversal import In, Traversal, in_block
from ir.uses import size_names

#: iterations that a loop is taken apart into at most
MOST_UNROLLED = 128
#: rounds until the facts of carries are those of the iteration before
MOST_ROUNDS = 8


def scan(t: Traversal, s: Scan) -> None:
    if mentions(s.trip) and not s.count:
        time_loops.emit(t, s)
        return
    moving = any(isinstance(t.env[v].fact, (Stream, FinalValue)) for v in s.operands)
    if s.count and (moving or QUANTUM in size_names(s)):
        refuse(
            s.loc,
            "a `while` loop over frames",
            "How often it runs is known when all of its frames have come.",
            "Write a `for` loop over the frames.",
        )
    try:
        across(t, s)
    except NeedsUnrolling as e:
        unrolled(t, s, e)


# ---------------------------------------------------------------- loops over other axes
def across(t: Traversal, s: Scan) -> None:
    """A loop whose iterations all see the whole chunk; raises NeedsUnrolling."""
    ins = aligned_ins(t, s)
    carried = {p: ins[p] for p in s.carries}
    for _ in range(MOST_ROUNDS):
        body, nexts = across_body(t, s, ins, carried)
        new = {p: joined(s, carried[p].fact, nexts[p].fact) for p in s.carries}
        if all(new[p] == carried[p].fact for p in s.carries):
            break
        for p in s.carries:
            carried[p] = brought(t, carried[p], new[p])
    else:
        raise NeedsUnrolling("another delay in every iteration", s.loc)
    ports, results = outer_ports(t, s, ins, carried, nexts)
    index = t.env[s.index].value
    t.c.b.append(Scan(index, s.trip, ports, tuple(body.ops), s.loc, s.count, s.size))
    t.define(list(results), list(results.values()))


def aligned_ins(t: Traversal, s: Scan) -> dict[In, Chunk]:
    """Return the chunks that the ports read, with streams of one rate aligned to one delay."""
    ins: dict[In, Chunk] = {}
    for p in s.ins:
        x = t.env[p.init if isinstance(p, Carry) else p.outer]
        if isinstance(x.fact, FinalValue):
            refuse(
                s.loc,
                "a loop over the last state of a loop over time",
                "That is known at the end only.",
                "Return the state, or use the state of every frame.",
            )
        ins[p] = t.c.settled(x) if isinstance(x.fact, Stream) else x
    late = max((x.fact.ready for x in ins.values() if isinstance(x.fact, HeadValue)), default=0)
    streams = [x.stream for x in ins.values() if isinstance(x.fact, Stream)]
    for p, x in ins.items():
        if isinstance(x.fact, Stream) and not x.fact.uniform:
            same = [q.delay for q in streams if q.rate == x.fact.rate and not q.uniform]
            ins[p] = t.c.delayed(x, max(*same, late * x.fact.rate, 0))
    return ins


def across_body(
    t: Traversal, s: Scan, ins: dict[In, Chunk], carried: dict[Carry, Chunk]
) -> tuple[Builder, dict[Carry, Chunk]]:
    t.env[s.index] = Chunk(Value(s.index.type, s.index.name))
    for p in s.ins:
        x = carried[p] if isinstance(p, Carry) else ins[p]
        fact, shape = x.fact, list(x.value.type.shape)
        if isinstance(p, Seq):
            axis = p.axis % len(shape)
            shape.pop(axis)
            if isinstance(fact, Stream):
                if axis == fact.axis:
                    raise NeedsUnrolling("single frames of the sequence", s.loc)
                fact = replace(fact, axis=fact.axis - (axis < fact.axis))
        fact = replace(fact, outside=None) if isinstance(fact, Stream) else fact
        t.env[p.inner] = Chunk(Value(x.value.type.with_shape(shape), p.inner.name), fact)
    body = in_block(t, s.loc, lambda: t.nodes(s.body))
    return body, {p: t.env[p.next] for p in s.carries}


def joined(s: Scan, before: Fact | None, after: Fact | None) -> Fact | None:
    """Join the facts of a carry before and after an iteration."""
    if isinstance(before, Stream) and isinstance(after, Stream):
        if (before.axis, before.rate, before.outer) != (after.axis, after.rate, after.outer):
            refuse(
                s.loc,
                "a loop that carries sequences of different rates",
                "Every iteration would have frames of another rate.",
                "Call the layers one by one.",
            )
        if before.uniform and after.uniform:
            return before
        known = before if after.uniform else after
        delays = [f.delay for f in (before, after) if not f.uniform]
        return replace(known, delay=max(delays), uniform=False, outside=None, fill=None)
    if isinstance(before, HeadValue) or isinstance(after, HeadValue):
        return HeadValue(max(f.ready for f in (before, after) if isinstance(f, HeadValue)))
    return before


def brought(t: Traversal, x: Chunk, fact: Fact | None) -> Chunk:
    """The first value of a carry with the fact of all."""
    if isinstance(fact, Stream) and isinstance(x.fact, Stream):
        return Chunk(t.c.delayed(x, fact.delay).value, fact)
    return Chunk(x.value, fact)


def outer_ports(
    t: Traversal,
    s: Scan,
    ins: dict[In, Chunk],
    carried: dict[Carry, Chunk],
    nexts: dict[Carry, Chunk],
) -> tuple[tuple[Port, ...], dict[Value, Chunk]]:
    ports: list[Port] = []
    results: dict[Value, Chunk] = {}
    for p in s.ports:
        if isinstance(p, (Const, Seq)):
            ports.append(replace(p, inner=t.env[p.inner].value, outer=ins[p].value))
        elif isinstance(p, Carry):
            if isinstance(nexts[p].fact, Stream) and nexts[p].fact != carried[p].fact:
                nexts[p] = Chunk(t.c.delayed(nexts[p], carried[p].stream.delay).value)
            last = None
            if p.last is not None:
                last = Value(carried[p].value.type, p.last.name)
                results[p.last] = Chunk(last, carried[p].fact)
            init, inner = carried[p].value, t.env[p.inner].value
            ports.append(Carry(inner, init, nexts[p].value, last))
        elif isinstance(p, (Stack, Last)):
            x = t.env[p.inner]
            outer = Value(result_type(t.c, p.outer.type), p.outer.name)
            fact = x.fact
            if isinstance(fact, Stream) and isinstance(p, Stack):
                fact = replace(fact, axis=fact.axis + (p.axis <= fact.axis))
            results[p.outer] = Chunk(outer, fact)
            ports.append(replace(p, outer=outer, inner=x.value))
        else:
            ports.append(replace(p, init=t.env[p.init].value, next=t.env[p.next].value))
    return tuple(ports), results


def unrolled(t: Traversal, s: Scan, why: NeedsUnrolling) -> None:
    """Iteration by iteration, in the block around the loop."""
    if not isinstance(s.trip, int) or s.trip > MOST_UNROLLED or s.count or t.c.b is not t.c.top:
        refuse(
            why.loc,
            f"a loop whose body needs {why.why}",
            f"Each of its {s.trip} iterations would need its own.",
            f"Move that out of the loop, or let it have at most {MOST_UNROLLED} iterations and no "
            "loop around it.",
        )
    block = Block()
    block.loc = s.loc
    made = straight_line(block, s, s.trip)
    t.nodes(block.ops)
    for old, new in zip(s.results, made):
        t.env[old] = t.env[new]


def cond(t: Traversal, s: Cond) -> None:
    """Both branches on the chunk; neither may need state."""
    test = t.env[s.test]
    xs = {p: t.env[p.outer] for p in s.ins}
    rates = {x.stream.rate for x in xs.values() if isinstance(x.fact, Stream)}
    delay = {
        r: max(
            max(x.stream.delay, 0)
            for x in xs.values()
            if isinstance(x.fact, Stream) and x.stream.rate == r
        )
        for r in rates
    }
    for p, x in xs.items():
        if isinstance(x.fact, Stream):
            xs[p] = t.c.delayed(x, delay[x.stream.rate])
        t.env[p.inner] = Chunk(Value(xs[p].value.type, p.inner.name), xs[p].fact)
    try:
        blocks = [in_block(t, s.loc, partial(t.nodes, ops)) for ops, _ in s.branches]
    except NeedsUnrolling as e:
        refuse(
            e.loc,
            f"a branch on data that needs {e.why}",
            "It runs for some chunks only.",
            "Compute both sides and choose with `paddle.where`.",
        )
    outs, results = [], []
    for j in s.outs:
        a, b = t.env[j.then], t.env[j.orelse]
        fact = joined_branches(s, a.fact, b.fact, ready([test]))
        outer = Value(result_type(t.c, j.outer.type), j.outer.name)
        outs.append(Join(outer, a.value, b.value))
        results.append(Chunk(outer, fact))
    ins = tuple(Const(t.env[p.inner].value, xs[p].value) for p in s.ins)
    then, orelse = (tuple(b.ops) for b in blocks)
    t.c.b.append(Cond(test.value, ins, then, orelse, tuple(outs), s.loc))
    t.define([j.outer for j in s.outs], results)


def joined_branches(s: Cond, a: Fact | None, b: Fact | None, test: Fact | None) -> Fact | None:
    if isinstance(a, Stream) and isinstance(b, Stream):
        if test is not None:
            refuse(
                s.loc,
                "a branch on the first frames",
                "Frames that come before are no data.",
                "Compute both sides and choose with `paddle.where`.",
            )
        moving = [f for f in (a, b) if not f.uniform] or [a]
        if len({(f.axis, f.rate, f.delay, f.outer) for f in moving}) > 1:
            refuse(
                s.loc,
                "a branch on data whose sides have different delays",
                "They wait for each other outside of branches only.",
                "Compute both sides and choose with `paddle.where`.",
            )
        same = a.uniform and b.uniform
        return replace(moving[0], outside=None, fill=None, uniform=same)
    if any(isinstance(f, FinalValue) for f in (a, b, test)):
        refuse(
            s.loc,
            "a branch on data over the last state of a loop over time",
            "That is known at the end only.",
            "Return the state, or use the state of every frame.",
        )
    heads = [f for f in (a, b, test) if isinstance(f, HeadValue)]
    return HeadValue(max(f.ready for f in heads)) if heads else a


__all__ = ["cond", "scan"]


__all__ = ["cond", "scan"]
