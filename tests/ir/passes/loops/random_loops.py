"""Random programs of loops, and what every rewrite of loops must keep of them.

Scans and while loops with all kinds of ports, inside of each other and one after the other: states
that are equal, swap, stay, feed only each other or are written and never read; sequences read
forwards, backwards, twice, from the second step on, and of equal steps; results that collect a
sequence, a constant or a state, of which later code reads all, the last steps, also behind others,
the sum or nothing;
linear recurrences; loops to be unrolled; while loops that count, up or down, in integers or floats;
loops after which another one of the same length reads what is collected.
Every number is f64[B,3] or a sequence of such.

Used by tests/ir/passes/loops/test_random_loops.py and scripts/fuzz/loops.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from ir import (
    ENDLESS,
    Builder,
    Carry,
    Cond,
    Const,
    Input,
    Join,
    Last,
    LoopCondition,
    Program,
    Require,
    Scan,
    Seq,
    Size,
    Stack,
    Type,
    Value,
    parse,
    verify,
)
from ir.autodiff.partial_backward import with_arrived
from ir.interpreter import evaluate
from ir.passes import PIPELINE, name_of
from ir.passes.loops import fission
from ir.rewrite import in_order
from ir.types import BOOL, F64, I64, Dim
from ir.uses import dim_names
from tests.ir.autodiff.differences import gradient, residuals
from tests.ir.idle_ports import idle_ports

B, T = Size.named("B"), Size.named("T")
ROW = Type(F64, (B, 3))
STEP = 1e-5


def sequence(length: Dim, axis: int) -> Type:
    return Type(F64, (*ROW.shape[:axis], length, *ROW.shape[axis:]))


class Loops:
    """`rows`: values of a block. `whole`: its sequences, with their length and axis."""

    def __init__(self, seed: int) -> None:
        self.r, self.counted, self.inputs = random.Random(seed), 0, list[Input]()

    def program(self) -> Program:
        b = Builder()
        rows = [self.given(f"h{k}", ROW) for k in range(3)]
        whole = []
        for k in range(2):
            axis = self.r.randrange(3)
            whole.append((self.given(f"x{k}", sequence(T, axis)), T, axis))
        self.flag = self.given("p", Type(BOOL))
        for _ in range(self.r.randint(1, 3)):
            if self.r.random() < 0.4:
                whole.append(self.steady(b, rows))
            trip, before = self.loop(b, rows, whole, [self.flag], depth=0), list(rows)
            if self.r.random() < 0.4:
                self.loop(b, before, whole, [self.flag], depth=0, trip=trip)
                rows += [v for v in before if all(v is not w for w in rows)]
        outputs = self.r.sample(rows[3:], min(len(rows) - 3, self.r.randint(1, 4)))
        seen = [x for x, _, _ in whole[2:]]
        outputs += self.r.sample(seen, min(len(seen), self.r.randint(0, 2)))
        requires = tuple(q for q in b.requires if dim_names((q.left, q.right)) <= {"B", "T"})
        return verify(
            Program("p", tuple(self.inputs), tuple(b.ops), tuple(outputs), requires=requires)
        )

    def given(self, name: str, t: Type) -> Value:
        self.inputs.append(Input(Value(t, name), "arg", name))
        return self.inputs[-1].value

    def steady(self, b: Builder, rows: list[Value]) -> tuple[Value, Dim, int]:
        """A sequence of equal steps."""
        axis = self.r.randrange(3)
        t = sequence(T, axis)
        if self.r.random() < 0.3:
            return b.full(value=self.r.choice([0.0, 0.5]), shape=t.shape, dtype=F64), T, axis
        row = b.reshape(self.r.choice(rows), shape=(*ROW.shape[:axis], 1, *ROW.shape[axis:]))
        return b.expand(row, shape=t.shape), T, axis

    # -------- loops
    def loop(
        self,
        b: Builder,
        rows: list,
        whole: list,
        flags: list,
        depth: int,
        trip: Dim | None = None,
    ) -> Dim:
        """Emit a loop; returns the most iterations that it may have."""
        r, again = self.r, trip is not None
        if trip is None:
            trip = r.choice([T, T, T, 3, 3, 1, 0]) if depth == 0 else r.choice([T, 2, 2])
        most = trip
        count, ports, body = "", list[object](), Builder()
        index = Value(Type(I64), "t")
        inner, inside = [], []
        for v in r.choices(rows, k=r.randint(0, 3)):
            ports.append(Const(Value(ROW, "c"), v))
            inner.append(ports[-1].inner)
        for x, length, axis in r.choices(whole, k=r.randint(0, 3)) if whole else ():
            if length == trip:
                ports.append(self.seq(x, length, axis))
                inner.append(ports[-1].inner)
            if r.random() < 0.3:
                ports.append(Const(Value(x.type, "w"), x))
                inside.append((ports[-1].inner, length, axis))
        states = [Value(ROW, "s") for _ in range(r.randint(0, 4))]
        inner += states
        within = [Const(Value(f.type, "q"), f) for f in flags]
        ports += within
        if r.random() < 0.3 and not again:
            self.counted += 1
            count, trip = f"n{self.counted}", r.choice([trip, trip, ENDLESS])
        if trip == ENDLESS:
            ports = [p for p in ports if not isinstance(p, Seq)]
            inner = [v for v in inner if any(v is p.inner for p in ports) or v in states]
        inner = inner or [body.full(value=0.25, shape=ROW.shape, dtype=F64)]
        old = list(inner)
        self.block(body, inner, inside, [p.inner for p in within], depth)
        after = self.layers(body, states, inner) if len(states) > 1 and r.random() < 0.5 else {}
        if states and r.random() < 0.3:
            after[states[-1]] = self.linear(body, states[-1], inner)
        ports += self.carries(rows, states, old, inner, after)
        if count and r.random() < 0.5:
            ports += self.counter(b, body, within)
        elif count:
            ports.append(self.go(b, body, flags, index, trip))
        ports += self.results(rows, whole, old, inner, Size.named(count) if count else trip)
        outs = [p for p in ports if isinstance(p, Last)]
        if (count or trip in (0, T)) and outs:
            rows[:] = [v for v in rows if all(v is not p.outer for p in outs)]
            ports = [p for p in ports if not isinstance(p, Last)]
        unroll = 1 if count or r.random() < 0.75 else r.choice([2, 3])
        b.append(Scan(index, trip, in_order(ports), tuple(body.ops), count=count, unroll=unroll))
        b.requires += body.requires
        self.after(b, rows, whole)
        return most

    def seq(self, x: Value, length: Dim, axis: int) -> Seq:
        start, step = self.r.choice([(0, 1), (0, 1), (length - 1, -1)])
        return Seq(Value(ROW, "e"), x, axis, start, step)

    def layers(self, body: Builder, states: list, inner: list) -> dict[Value, Value]:
        """How two states go on of which the second one reads a product of the first."""
        first = body.tanh(body.add(states[0], self.r.choice(inner)))
        weights = body.full(value=0.3, shape=(3, 3), dtype=F64)
        second = body.tanh(body.add(states[1], body.matmul(first, weights)))
        inner += [first, second]
        return {states[0]: first, states[1]: second}

    def linear(self, body: Builder, state: Value, inner: list) -> Value:
        """How a state goes on that is a linear recurrence."""
        factor = self.r.choice([0.5, -0.5, 1.0])
        inner.append(body.add(body.scale(state, scale=factor), self.r.choice(inner)))
        return inner[-1]

    def counter(self, b: Builder, body: Builder, flags: list[Const]) -> list:
        """A carry that counts, and the go port that compares it."""
        t = self.r.choice([Type(I64), Type(F64, (1,)), Type(I64, (1,))])

        def number(b: Builder, value: int) -> Value:
            value = value if t.dtype == I64 else float(value)
            return b.full(value=value, shape=t.shape, dtype=t.dtype)

        start, step, n = self.r.randrange(-2, 3), self.r.choice([1, 1, 2, -1]), self.r.randrange(4)
        compare = self.r.choice(["less_than", "less_equal", "not_equal"])
        compare = compare.replace("less", "greater") if step < 0 else compare
        state, bound = Value(t, "i"), start + step * n
        next_ = body.scale(state, bias=float(step)) if self.r.random() < 0.5 else None
        next_ = next_ or body.add(state, number(body, step))
        init = number(b, start)
        first, more = (
            q.reshape(q.emit(compare, (v, number(q, bound)))[0], shape=())
            for q, v in ((b, init), (body, next_))
        )
        if compare == "not_equal" and n == 0:
            first, more = b.full(value=False, dtype=BOOL), body.full(value=False, dtype=BOOL)
        if flags and self.r.random() < 0.3:
            more = body.logical_and(more, flags[0].inner)
        last = Value(t, "iT") if self.r.random() < 0.5 else None
        return [Carry(state, init, next_, last), LoopCondition(first, more)]

    def carries(
        self, rows: list, states: list, old: list, inner: list, known: dict[Value, Value]
    ) -> list[Carry]:
        """States go on as is `known`, or with a new value, another state, themselves or what enters
        the loop."""
        fresh = [v for v in inner if v not in old] or old
        inits = [self.r.choice(rows) for _ in range(2)]
        out = []
        for s in states:
            after = known.get(s) or self.r.choice(fresh if self.r.random() < 0.7 else [*old, s])
            last = Value(ROW, "l") if self.r.random() < 0.7 else None
            out.append(Carry(s, self.r.choice(inits), after, last))
        rows += [p.last for p in out if p.last is not None]
        return out

    def go(self, b: Builder, body: Builder, flags: list, index: Value, trip: Dim) -> LoopCondition:
        first = b.full(value=True, dtype=BOOL) if self.r.random() < 0.5 else flags[0]
        end = body.full(value=self.r.randrange(3), dtype=I64)
        always = trip != ENDLESS and self.r.random() < 0.3
        more = body.full(value=True, dtype=BOOL) if always else body.less_than(index, end)
        return LoopCondition(first, more)

    def results(self, rows: list, whole: list, old: list, inner: list, length: Dim) -> list:
        out: list[object] = []
        for v in self.r.choices([*inner, *inner[len(old) :] * 2], k=self.r.randint(0, 4)):
            if self.r.random() < 0.2:
                out.append(Last(Value(ROW, "m"), v))
                rows.append(out[-1].outer)
                continue
            axis = self.r.randrange(3)
            out.append(Stack(Value(sequence(length, axis), "ys"), v, axis))
            whole.append((out[-1].outer, length, axis))
        return out

    def after(self, b: Builder, rows: list, whole: list) -> None:
        """Reads of what has been collected."""
        for x, length, axis in self.r.sample(whole, min(2, len(whole))):
            kinds = ["sum", "sum", "last", "tail", "window", "flip", "joined", "joined", "none"]
            kind = self.r.choice(kinds)
            if kind == "sum":
                rows.append(b.sum(x, axes=(axis,)))
            elif kind == "last" and isinstance(length, int) and length:
                rows.append(b.index(x, axis=axis, index=length - 1))
            elif kind == "last" and length == T and self.r.random() < 0.5:
                rows.append(b.index(x, axis=axis, index=T - 1))
            elif kind == "tail" and isinstance(length, int) and length:
                tail = b.slice(x, axis=axis, start=length - 1, length=1)
                rows.append(b.reshape(tail, shape=ROW.shape))
            elif kind == "window" and (length == T or isinstance(length, int) and length > 1):
                b.requires += [Require(length, ">=", 2)] if length == T else []
                window = b.slice(x, axis=axis, start=length - 2, length=2)
                rows.append(b.sum(window, axes=(axis,)))
            elif kind == "joined":
                shape, m = (*ROW.shape[:axis], 1, *ROW.shape[axis:]), self.r.randint(1, 3)
                front = [b.reshape(row, shape=shape) for row in self.r.choices(rows, k=m)]
                everything = b.concat(*front, x, axis=axis)
                rows.append(b.dynamic_index(everything, b.size(n=length), axis=axis))
            elif kind == "flip" and length != 0:
                flipped = b.slice(x, axis=axis, start=length - 1, length=length, step=-1)
                whole.append((flipped, length, axis))

    # -------- bodies
    def block(self, b: Builder, rows: list, whole: list, flags: list, depth: int) -> None:
        for _ in range(self.r.randint(0, 6)):
            kind = self.r.choice(["op", "op", "op", "op", "cond", "loop"])
            if kind == "loop" and depth < 2:
                self.loop(b, rows, whole, flags, depth + 1)
            elif kind == "cond" and flags:
                self.cond(b, rows, flags)
            else:
                rows.append(self.op(b, rows))

    def op(self, b: Builder, rows: Sequence[Value]) -> Value:
        x, y = self.r.choice(rows), self.r.choice(rows)
        name = self.r.choice(["add", "add", "multiply", "tanh", "neg", "scale", "matmul", "matmul"])
        if name in ("add", "multiply"):
            return b.tanh(b.emit(name, (x, y))[0])
        if name == "matmul":
            return b.tanh(b.matmul(x, b.full(value=0.3, shape=(3, 3), dtype=F64)))
        return b.scale(x, scale=0.5, bias=0.1) if name == "scale" else b.emit(name, (x,))[0]

    def cond(self, b: Builder, rows: list, flags: list) -> None:
        ins = [Const(Value(ROW, "i"), v) for v in self.r.choices(rows, k=2)]
        sides: list[tuple[Builder, list[Value]]] = []
        for _ in range(2):
            side, inner = Builder(), [p.inner for p in ins]
            for _ in range(self.r.randrange(3)):
                inner.append(self.op(side, inner))
            sides.append((side, inner))
        pairs = [[self.r.choice(inner) for _, inner in sides] for _ in range(self.r.randint(1, 2))]
        outs = tuple(Join(Value(ROW, "j"), then, orelse) for then, orelse in pairs)
        then, orelse = (tuple(side.ops) for side, _ in sides)
        b.append(Cond(flags[0], tuple(ins), then, orelse, outs))
        rows += [j.outer for j in outs]


# ---------------------------------------------------------------- checking
def arrays_for(p: Program, length: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [i.value.type.concrete({"T": length, "B": 2}) for i in p.inputs]
    kinds = [i.value.type.dtype for i in p.inputs]
    return [
        rng.normal(size=shape) * 0.5 if t == F64 else np.array(rng.random() < 0.5)
        for shape, t in zip(shapes, kinds)
    ]


def lengths(p: Program) -> list[int]:
    return [n for n in (0, 1, 4) if all(q.holds({"T": n, "B": 2}) for q in p.requires)]


def agree(have: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    assert len(have) == len(want)
    for a, b in zip(have, want):
        assert a.shape == b.shape
        if not np.array_equal(a, b):  # faster than `assert_allclose`
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def optimised(p: Program, start_at: str | None = None, before: str | None = None) -> Program:
    """The program after the pipeline, or the part of it up to the pass `before`, of which every
    pass changes nothing when it runs again."""
    names = [name_of(f) for f, _ in PIPELINE]
    begin = 0 if start_at is None else names.index(start_at)
    end = len(names) if before is None else names.index(before)
    text = str(verify(p))
    for f, _ in PIPELINE[begin:end]:
        known, (p, text) = text, printed(f(p), p, text)
        if text == known:  # the pass has nothing to do
            continue
        verify(p)
        again = printed(f(p), p, text)[1]
        assert again == text, f"{name_of(f)} changes its own result:\n{text}\n{again}"
    return p


def uncut_and_cut(p: Program, start_at: str | None = None) -> tuple[Program, Program]:
    """The program after the pipeline, twice: as it is, and with loops cut wherever they can be;
    one object where none can be."""
    cut = name_of(fission.split_loops)
    p = optimised(p, start_at, before=cut)
    after = optimised(p, cut)
    with cut_everywhere():
        return after, after if fission.split_loops(p) is p else optimised(p, cut)


def printed(p: Program, known: Program, text: str) -> tuple[Program, str]:
    """A program and its text, which is `text` for `known`."""
    return p, text if p is known else str(p)


@contextmanager
def cut_everywhere() -> Iterator[None]:
    """Loops are cut wherever they can be, whether it pays or not."""
    always = patch.object(fission._Fission, "pays", lambda cut: True)
    with always, patch.multiple(fission, MOST_ROWS=1 << 30, FEWEST_STEPS=0):
        yield


def check(seed: int) -> None:
    """Values, gradients of all and of some results, and passes that are done when they are done."""
    p = Loops(seed).program()
    assert str(parse(str(p))) == str(p)
    after, cut = uncut_and_cut(p)
    found = {n: evaluate(p, arrays_for(p, n, seed))[0] for n in lengths(p)}
    for n, want in found.items():
        agree(evaluate(after, arrays_for(p, n, seed))[0], want)
        if cut is not after:
            agree(evaluate(cut, arrays_for(p, n, seed))[0], want)
    if found:
        check_gradients(p, max(found), seed)


def check_gradients(p: Program, length: int, seed: int) -> None:
    rng, inputs = np.random.default_rng(seed), arrays_for(p, length, seed)
    g = gradient(p)
    forward = optimised(g.forward, "expand")
    outputs, writes = evaluate(g.forward, inputs)
    agree(evaluate(forward, inputs)[0], outputs)
    seeds = [rng.normal(size=v.shape) for v in outputs[: len(p.outputs)]]
    taken = [*seeds, *residuals(g, inputs, outputs, writes)]
    found = evaluate(g.backward, taken)[0]
    backward, cut = uncut_and_cut(g.backward, "expand")
    agree(evaluate(backward, taken)[0], found)
    if cut is not backward:
        agree(evaluate(cut, taken)[0], found)
    agree([slope(p, inputs, seeds, rng, found)], [np.zeros(())])
    some = {k for k in range(len(seeds)) if rng.random() < 0.5}
    part = with_arrived(g.backward, len(seeds), some)
    zeroed = [a if k in some or k >= len(seeds) else 0 * a for k, a in enumerate(taken)]
    filled = [a if k in some or k >= len(seeds) else a + 7 for k, a in enumerate(taken)]
    want = evaluate(g.backward, zeroed)[0]
    agree(evaluate(part, filled)[0], want)
    part = optimised(part, "expand")
    agree(evaluate(part, filled)[0], want)
    if "unroll" not in str(p):  # the first steps of an unrolled loop show more than the loop does
        assert not [*idle_ports(backward), *idle_ports(part)]


def slope(
    p: Program,
    inputs: Sequence[np.ndarray],
    seeds: Sequence[np.ndarray],
    rng: np.random.Generator,
    found: Sequence[np.ndarray],
) -> np.ndarray:
    """How far the gradients are from the slope along a random direction, if that is too far."""
    floats = [k for k, a in enumerate(inputs) if a.dtype == np.float64]
    ways = {k: rng.normal(size=inputs[k].shape) for k in floats}

    def total(step: float) -> float:
        moved = [a + step * ways[k] if k in ways else a for k, a in enumerate(inputs)]
        return sum(float((v * s).sum()) for v, s in zip(evaluate(p, moved)[0], seeds))

    want = (total(STEP) - total(-STEP)) / (2 * STEP)
    have = sum(float((d * ways[k]).sum()) for k, d in zip(floats, found))
    size = 1 + abs(want) + sum(float(np.abs(d * ways[k]).sum()) for k, d in zip(floats, found))
    return np.array(0.0 if abs(want - have) < 1e-6 * size else want - have)
