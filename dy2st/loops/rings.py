"""Shift registers: long chains of carries of which each takes the value of the next one.

    carry %a = %a0 then %b               carry %ring = [%a0, %b0, %c0] then %ring1
    carry %b = %b0 then %c               body
    carry %c = %c0 then %new                %a = %ring[t % 3]
                                            %ring1 = %ring with %new at t % 3

Element k of the register is in row `(t + k) % m`, so a step costs the same for every length. The
elements of queues, and of lists that are shifted, are such chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dy2st.loops.appends import Group
from dy2st.loops.record import LoopRecord, LoopTrace
from dy2st.state.containers.taps import MOST_CARRIED
from dy2st.state.tree import leaves
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.trace import Trace
from ir import Builder, Carry, Op, Size, Value
from ir.program import Node
from ir.types import Dim
from ir.uses import uses

#: why a tensor must not be written
REGISTER = "A loop has shifted it through a list or queue."


def chains(carries: Mapping[Value, Carry]) -> Iterator[list[Carry]]:
    """Long chains of carries of one type."""
    before: dict[Value, Carry] = {}
    for c in carries.values():
        if c.next in carries and c.next is not c.inner:
            before.setdefault(c.next, c)
    for c in carries.values():
        chain = [] if c.next in carries else [c]
        while chain and chain[-1].inner in before:
            chain.append(before[chain[-1].inner])
        if len(chain) > MOST_CARRIED:
            yield chain[::-1]


def roll_up(plan: LoopRecord, appends: Sequence[tuple[Any, ...]]) -> list[Node]:
    """Replace the long chains among the carries of a loop; returns ops for the front of its body,
    which define those elements that are read."""
    front, used = Builder(), read(plan, appends)
    for chain in list(chains(plan.carries)):
        ring = Ring(plan, chain)
        for c in chain:
            del plan.carries[c.inner]
        nexts = {c.next for c in plan.carries.values()} | {chain[-1].next}
        with ring.emitting(front):
            for k, c in enumerate(chain):
                if c.inner in used or c.inner in nexts:
                    front.append(ring.read(ring.inner, c.inner, plan.index, k))
        ring.close(plan)
    return list(front.ops)


def read(plan: LoopRecord, appends: Sequence[tuple[Any, ...]]) -> set[Value]:
    """The values that the ops of the body read, and its ports except for the carries."""
    items: list[Any] = [q for _, item, _ in appends for q in leaves(item)]
    items = [q.fake if isinstance(q, Group) else q for q in items]
    out = {q._value for q in items if isinstance(q, FakeTensor)}
    out |= {q.value for q in items if is_runtime_scalar(q)}
    out |= {*plan.lasts, *(q.inner for q in plan.stacks), *uses(plan.frame.builder.ops)}
    tests = plan.body_trace.tests
    return out if tests is None else out | {tests}


class Ring:
    """The buffer of one chain."""

    def __init__(self, plan: LoopRecord, chain: list[Carry]) -> None:
        self.trace, self.chain, self.size = plan.trace, chain, len(chain)
        self.type = chain[0].inner.type
        t = self.type.with_shape((self.size, *self.type.shape))
        self.inner = self.trace.new_value(t, "ring")

    @contextmanager
    def emitting(self, builder: Builder) -> Iterator[None]:
        """Ops go to a builder, and use no index of the frame, which may be made later."""
        frame = self.trace.frame
        before = frame.builder, frame.indices
        frame.builder, frame.indices = builder, {}
        try:
            yield
        finally:
            frame.builder, frame.indices = before

    def close(self, plan: LoopRecord) -> None:
        """The carry of the buffer, and the elements after the loop."""
        trace = self.trace
        with trace.outside():
            init = self.first(trace)
        operands = [self.inner, self.chain[-1].next, self.place(plan.index)]
        after = trace.emit("set_dynamic_index", operands, {"axis": 0})
        out = trace.new_value(self.inner.type, "ring", plan.outer)
        plan.carries[self.inner] = Carry(self.inner, init, after, out)
        self.freeze(plan.body_trace, out)
        with trace.outside(), self.emitting(plan.after):
            for k, c in enumerate(self.chain):
                if c.last is not None:
                    plan.after.append(self.read(out, c.last, plan.body_trace.length, k))

    def freeze(self, body_trace: LoopTrace, out: Value) -> None:
        """Elements are copies: of what iterations have stored, and of the first ones that a short
        loop leaves."""
        lasts = [c.last for c in self.chain if c.last is not None]
        trip, roots = body_trace.loop.trip, [out, *lasts]
        if not isinstance(trip, int) or trip < self.size:
            roots += [self.trace.root(c.init) for c in self.chain]
            inits = tuple(c.init for c in self.chain)
            self.trace.values.copies.update(dict.fromkeys(lasts, inits))
        for root in roots:
            self.trace.freeze(root, REGISTER, body_trace.loop)

    def first(self, trace: Trace) -> Value:
        """The buffer in front of the loop."""
        inits, shape = [c.init for c in self.chain], (1, *self.type.shape)
        same = all(v is inits[0] for v in inits)
        rows = [trace.emit("reshape", [v], {"shape": shape}) for v in inits[: 1 if same else None]]
        if not same:
            return trace.emit("concat", rows, {"axis": 0})  # type: ignore[no-any-return]
        whole = trace.emit("expand", rows, {"shape": self.inner.type.shape})
        return trace.emit("assign", [whole], {})  # type: ignore[no-any-return]

    def read(self, ring: Value, element: Value, step: Dim, k: int) -> Op:
        """The op that defines element `k` of the register after so many steps."""
        trace, at = self.trace, step + k
        if isinstance(at, Size):
            trace.emit("dynamic_index", [ring, self.place(at)], {"axis": 0})
        else:
            trace.emit("index", [ring], {"axis": 0, "index": at % self.size})
        op = trace.builder.ops.pop()
        assert isinstance(op, Op)
        return replace(op, results=(element,))

    def place(self, at: Dim) -> Value:
        """The row of an element."""
        operands = [self.trace.dim_value(at), self.trace.dim_value(self.size)]
        return self.trace.emit("remainder", operands, {})  # type: ignore[no-any-return]


__all__ = ["roll_up"]
