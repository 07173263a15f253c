"""What the rewrites of loops have in common: their time is linear in the size of the loop."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from ir import Builder, Carry, Const, Input, Program, Scan, Seq, Size, Stack, Type, Value, verify
from ir.passes import PIPELINE
from ir.rewrite import in_order
from ir.types import F32, I64

T = Size.named("T")
ROW, ROWS = Type(F32, (3,)), Type(F32, (T, 3))


class Loop:
    """A loop over the rows %xt of %x; `h` and `g` are other inputs."""

    def __init__(self) -> None:
        self.x, self.h, self.g = Value(ROWS, "x"), Value(ROW, "h"), Value(ROW, "g")
        self.xt = Value(ROW, "xt")
        self.ports: list = [Seq(self.xt, self.x, 0)]
        self.body = Builder()
        self.outputs: list[Value] = []

    def const(self) -> Value:
        self.ports.append(Const(Value(ROW, "c"), self.h))
        return self.ports[-1].inner

    def state(self) -> Value:
        return Value(ROW, "s")

    def carry(self, state: Value, after: Value, shown: bool = False) -> None:
        self.ports.append(Carry(state, self.h, after, Value(ROW, "last")))
        if shown:
            self.outputs.append(self.ports[-1].last)

    def stack(self, v: Value) -> None:
        self.ports.append(Stack(Value(ROWS, "ys"), v, 0))
        self.outputs.append(self.ports[-1].outer)

    def sum(self, values: list[Value]) -> Value:
        total = self.xt
        for v in values:
            total = self.body.add(total, v)
        return total

    def program(self) -> Program:
        loop = Scan(Value(Type(I64), "t"), T, in_order(self.ports), tuple(self.body.ops))
        inputs = tuple(Input(v, "arg", v.name) for v in (self.x, self.h, self.g))
        return verify(Program("p", inputs, (loop,), tuple(self.outputs)))


def equal_consts(q: Loop, n: int) -> None:
    q.stack(q.sum([q.const() for _ in range(n)]))


def carries_that_stay(q: Loop, n: int) -> None:
    states = [q.state() for _ in range(n)]
    q.stack(q.sum(states))
    for s in states:
        q.carry(s, s)


def equal_carries(q: Loop, n: int) -> None:
    states = [q.state() for _ in range(n)]
    q.stack(q.sum(states))
    for s in states:
        q.carry(s, q.body.add(s, q.xt))


def chain_of_states(q: Loop, n: int) -> None:
    """Each state reads the one before; the last one is a result."""
    states = [q.state() for _ in range(n)]
    for s, before in zip(states, [states[-1], *states]):
        q.carry(s, q.body.add(before, q.xt), shown=s is states[-1])


def unused_chain(q: Loop, n: int) -> None:
    states = [q.state() for _ in range(n)]
    for s, before in zip(states, [states[-1], *states]):
        q.carry(s, q.body.add(before, q.xt))
    q.stack(q.body.tanh(q.xt))


def stacks(q: Loop, n: int) -> None:
    y = q.xt
    for _ in range(n):
        y = q.body.tanh(y)
        q.stack(y)


def invariant_ops(q: Loop, n: int) -> None:
    y = q.const()
    for _ in range(n):
        y = q.body.tanh(y)
    q.stack(q.body.add(y, q.xt))


def long_body(q: Loop, n: int) -> None:
    state = q.state()
    y = state
    for _ in range(n):
        y = q.body.add(q.body.tanh(y), q.xt)
    q.carry(state, y, shown=True)


LOOPS = [
    equal_consts,
    carries_that_stay,
    equal_carries,
    chain_of_states,
    unused_chain,
    stacks,
    invariant_ops,
    long_body,
]


def calls_of(run: Callable[[], object]) -> int:
    """How many functions are called: a measure of time that does not depend on the machine."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def cost(loop: Callable[[Loop, int], None], n: int) -> dict[str, int]:
    """The calls of every pass that is about loops, on a loop of size `n`."""
    q, out = Loop(), dict[str, int]()
    loop(q, n)
    p = q.program()
    for f, _ in PIPELINE:
        if f.__module__.startswith("ir.passes.loops"):
            after: list[Program] = []
            calls = calls_of(lambda f=f, p=p, after=after: after.append(f(p)))
            out[f.__name__] = out.get(f.__name__, 0) + calls
            (p,) = after
        else:
            p = f(p)
    return out


@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_time_is_linear(loop):
    small, large = cost(loop, 250), cost(loop, 500)
    for name, calls in small.items():
        assert large[name] <= 2.4 * calls + 2000, (name, calls, large[name])


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_time_is_linear_up_to_2000_ops(loop):
    small, large = cost(loop, 500), cost(loop, 2000)
    for name, calls in small.items():
        assert large[name] <= 5 * calls + 2000, (name, calls, large[name])
