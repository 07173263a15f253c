"""Loops over time of a program that is made to stream.

A forward loop runs the iterations of one chunk; its carries are state. They are not updated by
iterations that are no data: the first `delay` ones, and those behind the end where the last state
is read.

    scan over T frames        carry %h = %h0 then %h2 last %hT
    =>
    scan over a chunk         carry %h = %first then %next last %hT
    write %state = %hT        %first = where(started, %state, %h0), %next = where(%inside, %h2, %h)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ir.program import Builder, Carry, Const, Last, Op, Port, Scan, Seq, Stack, Value
from ir.rewrite import in_order
from ir.streaming.chunks import Chunk, NeedsUnrolling, refuse
from ir.streaming.creation_rules import table, whole_length
from ir.streaming.facts import (
    FinalValue,
    HeadValue,
    Stream,
    StreamLength,
    constant,
    mentions,
    slope,
)
from ir.streaming.rules import result_type
from ir.streaming.traversal import In, Traversal, in_block
from ir.uses import size_names, walk


def emit(t: Traversal, s: Scan) -> None:
    """Emit the loop over the frames of a chunk, and keep its state."""
    if t.c.b is not t.c.top:
        raise NeedsUnrolling("a loop over the frames of the sequence", s.loc)
    check(s)
    rate, rest = slope(s.trip), constant(s.trip)
    assert isinstance(rate, int) and isinstance(rest, int)
    fact = Stream(0, rate, rest, delay(t, s, rate, rest), length(t, s, rate, rest))
    loop = TimeLoop(t, s, fact)
    loop.emit()


def check(s: Scan) -> None:
    if s.size and any(s.size in size_names(n) for n in walk(s.body)):
        refuse(
            s.loc,
            "a loop whose tensors grow with the time",
            "What an iteration computes grows with the sequence.",
            "Limit the context to a window of frames.",
        )
    for n in walk(s.body):
        if (isinstance(n, Scan) and n.count) or (isinstance(n, Op) and n.row.effect):
            refuse(
                n.loc,
                f"`{n.name}` in a loop over time",
                "It would run for frames that are no data, too.",
                "Bound the loop (`for`), and check the frames outside.",
            )
    for p in s.ports:
        if isinstance(p, Seq) and p.step < 0:
            refuse(
                s.loc,
                "a loop that runs backwards over time",
                "Its first step is the last frame, which comes last.",
                "Use a forward loop; of a bidirectional layer, the forward half.",
            )
        if isinstance(p, Seq) and (p.step != 1 or mentions(p.start)):
            refuse(
                s.loc,
                f"a loop that reads frames in steps of {p.step} from {p.start} on",
                "An iteration of a stream reads one frame after the other.",
                "Slice the frames before the loop: `x[:, ::2]`.",
            )
        if isinstance(p, Carry) and any(map(mentions, p.init.type.shape)):
            refuse(
                s.loc,
                f"a loop over time that carries {p.init.type}",
                "Its state grows with the sequence.",
                "Collect results in a list, and read frames by the index.",
            )


def delay(t: Traversal, s: Scan, rate: int, rest: int) -> int:
    """The delay of the iterations: that of the streams that they read."""
    late = [0, -rest]
    for p in s.ins:
        fact = t.env[p.init if isinstance(p, Carry) else p.outer].fact
        if isinstance(fact, Stream) and isinstance(p, Seq) and not fact.uniform:
            assert isinstance(p.start, int)
            late.append(fact.delay + p.start)
        elif isinstance(fact, HeadValue):
            late.append(fact.ready * rate)
        elif isinstance(fact, FinalValue):
            refuse(
                s.loc,
                "a loop over time from the last state of another one",
                "That is known at the end only.",
                "Run both loops as one, or begin with a constant state.",
            )
    return max(late)


def length(t: Traversal, s: Scan, rate: int, rest: int) -> StreamLength:
    """The number of iterations: that of the frames that they read."""
    found = []
    for p in s.ins:
        fact = t.env[p.outer].fact if isinstance(p, Seq) else None
        if isinstance(fact, Stream) and fact.rate == rate and not fact.uniform:
            found.append(fact.length.then(add=rest - fact.rest))
            t.c.agree(found[0], found[-1])
    return found[0] if found else whole_length(t.c, rate, rest)


class TimeLoop:
    """One loop over time, whose iterations are a stream with the fact `fact`."""

    def __init__(self, t: Traversal, s: Scan, fact: Stream) -> None:
        self.t, self.s, self.c, self.fact = t, s, t.c, fact
        self.ports: list[Port] = []
        self.results: dict[Value, Chunk] = {}
        self.counter = Value(s.index.type, s.index.name)

    def emit(self) -> None:
        t, s, c = self.t, self.s, self.c
        outer = {p: self.enters(p) for p in s.ins}
        body = in_block(t, s.loc, lambda: self.body(outer))
        gate = self.gate()
        kept = []
        for p in s.ports:
            if isinstance(p, (Const, Seq)):
                inner, value = t.env[p.inner].value, outer[p].value
                new = Seq(inner, value, p.axis) if isinstance(p, Seq) else Const(inner, value)
                self.ports.append(new)
            elif isinstance(p, Stack):
                made = Value(result_type(c, p.outer.type), p.outer.name)
                self.results[p.outer] = Chunk(made, replace(self.fact, axis=p.axis))
                self.ports.append(replace(p, outer=made, inner=t.env[p.inner].value))
            elif isinstance(p, (Carry, Last)):
                kept.append(self.state(p, outer, body, gate))
        trip = self.fact.rate * c.units
        c.b.append(Scan(self.counter, trip, in_order(self.ports), tuple(body.ops), s.loc))
        for state, last in kept:
            c.keep(state, last)
        t.define(list(self.results), list(self.results.values()))

    # ------------------------------------------------------------ what it reads
    def enters(self, p: In) -> Chunk:
        """Return the chunk that a port reads."""
        x = self.t.env[p.init if isinstance(p, Carry) else p.outer]
        if isinstance(p, Seq):
            return self.read(p, x)
        if not isinstance(x.fact, Stream):
            return x
        if not x.fact.uniform:
            refuse(
                self.s.loc,
                "a loop over time that reads all frames in every step",
                "It needs the whole sequence.",
                "Limit the context to a window of frames; read frame `t` by its index.",
            )
        return self.c.settled(x)

    def read(self, p: Seq, x: Chunk) -> Chunk:
        """The frames that the iterations of a chunk read."""
        axis = p.axis % x.value.type.ndim
        assert isinstance(p.start, int)
        if not isinstance(x.fact, Stream):
            return table(self.c, x.value, axis, p.start, p.step, self.fact)
        if x.stream.axis != axis or x.stream.rate != self.fact.rate:
            refuse(
                self.s.loc,
                "a loop over time that reads a sequence of another rate",
                "Its frames and the iterations do not pair.",
                "Bring sequences to one rate first: a stride, or each frame several times.",
            )
        x = self.c.plain(x, "a loop over time")
        late = replace(x.stream, delay=x.stream.delay + p.start, outside=None)
        return self.c.delayed(Chunk(x.value, late), self.fact.delay)

    # ------------------------------------------------------------ body
    def body(self, outer: dict[In, Chunk]) -> None:
        t, s = self.t, self.s
        t.env[s.index] = Chunk(self.counter)
        if any(s.index in n.operands for n in walk(s.body)) or s.index in s.needed:
            first = Value(s.index.type, "first")
            t.env[s.index] = Chunk(t.c.b.add(self.counter, first))
            self.ports.append(Const(first, self.start()))
        for p, x in outer.items():
            shape = list(x.value.type.shape)
            if isinstance(p, Seq):
                shape.pop(p.axis % len(shape))
            fact = x.fact if isinstance(p, Const) and isinstance(x.fact, Stream) else None
            inner = Value(x.value.type.with_shape(shape), p.inner.name)
            t.env[p.inner] = Chunk(inner, fact)
        t.nodes(s.body)

    def start(self) -> Value:
        """The first iteration of a chunk, made in the block around the loop."""
        inner, self.c.b = self.c.b, self.c.top
        try:
            return self.c.start(self.fact.rate, self.fact.delay)
        finally:
            self.c.b = inner

    def gate(self) -> Value | None:
        """bool[]: whether an iteration is data, where that matters to the state."""
        ends = any(
            isinstance(p, Last) or (isinstance(p, Carry) and p.last is not None)
            for p in self.s.ports
        )
        if not ends and not (self.s.carries and self.fact.delay > 0):
            return None
        inside = self.c.inside(self.fact)
        gate = Value(inside.type.with_shape(()), "inside")
        self.ports.append(Seq(gate, inside, 0))
        return gate

    def state(
        self, p: Carry | Last, outer: dict[In, Chunk], body: Builder, gate: Value | None
    ) -> tuple[Value, Value]:
        """The port of a carry, or of the last value of the body; its state, and what it becomes."""
        c, env = self.c, self.t.env
        if isinstance(p, Carry):
            inner, after, last = env[p.inner].value, env[p.next].value, p.last
        else:
            inner, after, last = Value(p.inner.type, p.inner.name), env[p.inner].value, p.outer
        zeros = np.zeros(c.numbers(inner.type.shape), inner.type.dtype.numpy)
        state = c.state(f"{inner.name or 'state'} at {self.s.loc}", zeros)
        first = self.started(state, outer[p].value) if isinstance(p, Carry) else state
        if gate is not None:
            after = body.where(gate, after, inner)
        end = Value(inner.type, inner.name)
        if last is not None:
            self.results[last] = Chunk(end, FinalValue())
        self.ports.append(Carry(inner, first, after, end))
        return state, end

    def started(self, state: Value, init: Value) -> Value:
        """The state, or `init` before the first iteration that is data."""
        c = self.c
        before = c.b.greater_than(c.start(self.fact.rate, self.fact.delay), c.number(0))
        new: Value = c.b.where(before, state, init)
        return new


__all__ = ["emit"]
