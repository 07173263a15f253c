"""Random functional programs against the reference: loops and branches in each other, views of
views, all ports, sizes that loops find, foreign calls, checks that fail.

`DY2ST_SEED=n pytest tests/executor/test_random_programs.py` repeats one program, `DY2ST_SEED=n:k`
runs k of them.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import executor
import ir
from ir.opdef import OPS
from ir.program import (
    ENDLESS,
    Builder,
    Carry,
    Cond,
    Const,
    Fused,
    Input,
    Join,
    Last,
    LoopCondition,
    Program,
    Scan,
    Seq,
    Stack,
    Value,
)
from ir.types import BOOL, F32, F64, I64, DType, Size, Type, product
from tests.conftest import mostly_slow
from tests.executor.foreign import called

B, T = Size.named("B"), Size.named("T")
FIRST, _, COUNT = os.environ.get("DY2ST_SEED", "0:48").partition(":")
SEEDS = range(int(FIRST), int(FIRST) + int(COUNT or 1))
UNARY = ("tanh", "sigmoid", "neg", "abs", "relu", "square")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


class Generator:
    """Blocks of random ops on a growing pool of values. `control`: with branches and `while`;
    `moving`: with sizes that are the index of a loop."""

    def __init__(self, seed: int, control: bool = False, moving: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = F32 if seed % 3 else F64
        self.control, self.foreign = control, control and seed % 7 == 0
        self.sizes: set[str] = {"B", "T"}
        self.counts = 0
        self.moving = moving
        self.trips: dict[str, object] = {}

    def program(self) -> Program:
        shapes = [(B, T, 3), (T, B, 4), (4, 4), (B, 4), (3, 17), (5,), (), (B, 3, T), (17, 4)]
        inputs = [Value(Type(self.dtype, s), f"x{i}") for i, s in enumerate(shapes)]
        inputs += [Value(Type(I64, (6,)), "n"), Value(Type(I64, (B,)), "m")]
        pool, b = list(inputs), Builder()
        self.fill(b, pool, depth=0, count=int(self.rng.integers(4, 14)))
        outputs = [self.choice(pool) for _ in range(int(self.rng.integers(1, 5)))] + pool[-2:]
        writes = self.writes(inputs, pool)
        ports = tuple(Input(v, "arg", v.name) for v in inputs)
        requires = tuple(b.requires)
        return ir.verify(Program("p", ports, tuple(b.ops), tuple(outputs), writes, requires))

    def writes(self, inputs: list[Value], pool: list[Value]) -> tuple[tuple[Value, Value], ...]:
        out = []
        for target in inputs[:4]:
            same = [v for v in pool if v.type == target.type]
            if self.rng.random() < 0.4:
                out.append((target, self.choice(same)))
        return tuple(out)

    def choice(self, items):
        if not len(items):
            raise LookupError("nothing fits")
        return items[int(self.rng.integers(len(items)))]

    def floats(self, pool: list[Value]) -> list[Value]:
        return [v for v in pool if v.type.dtype == self.dtype and v.type.ndim <= 4]

    def fill(self, b: Builder, pool: list[Value], depth: int, count: int) -> None:
        makers = [self.unary, self.binary, self.view, self.view, self.move, self.reduce]
        makers += [self.setter, self.matmul, self.fused, self.integer, self.gather]
        deep = [self.scan] + [self.cond, self.cond] * self.control
        if self.moving:
            makers += [self.prefix] * 6
        if depth < 3:
            makers += deep * (2 if self.control else 3)
        if self.control:
            makers += [self.check, self.length, self.window] + [self.call] * self.foreign
        for _ in range(count):
            maker, sizes = self.choice(makers), set(self.sizes)
            try:
                made = maker(b, pool, depth) if maker in deep else maker(b, pool)
            except LookupError:
                self.sizes = sizes
                continue
            pool += [made] if isinstance(made, Value) else list(made or ())

    # ------------------------------------------------------------ ops
    def unary(self, b, pool):
        x = self.choice(self.floats(pool))
        return b.tanh(getattr(b, self.choice(UNARY))(x))

    def partner(self, pool, x):
        """A value that broadcasts with x."""
        n = x.type.shape
        fits = [
            v
            for v in self.floats(pool)
            if v.type.ndim <= len(n)
            and all(d in (1, e) for d, e in zip(reversed(v.type.shape), reversed(n)))
        ]
        return self.choice(fits)

    def binary(self, b, pool):
        x = self.choice(self.floats(pool))
        return getattr(b, self.choice(BINARY))(x, b.tanh(self.partner(pool, x)))

    def fused(self, b, pool):
        x = self.choice(self.floats(pool))
        y = self.partner(pool, x)
        ins = [Const(Value(v.type), v) for v in dict.fromkeys((x, y))]
        c = Builder()
        p, q = ins[0].inner, ins[-1].inner
        r = c.tanh(c.add(p, q))
        s = c.multiply(r, c.sigmoid(p))
        outs = tuple((Value(x.type), v) for v in (r, s))
        b.append(Fused(x.type.shape, tuple(ins), tuple(c.ops), outs))
        return [outer for outer, _ in outs]

    def view(self, b, pool):
        x = self.choice([v for v in self.floats(pool) if v.type.ndim])
        axis = int(self.rng.integers(x.type.ndim))
        n = x.type.shape[axis]
        kind = int(self.rng.integers(6))
        if kind == 0:
            return b.transpose(x, perm=tuple(map(int, self.rng.permutation(x.type.ndim))))
        if kind == 1 and isinstance(n, int) and n > 1:
            return b.slice(x, axis=axis, start=n - 1, length=(n + 1) // 2, step=-2 if n > 2 else -1)
        if kind == 2 and isinstance(n, int) and n > 0:
            return b.index(x, axis=axis, index=int(self.rng.integers(n)))
        if kind == 3:
            return b.reshape(x, shape=(product(x.type.shape),))
        if kind == 4 and isinstance(n, int) and n > 1:
            return b.split(x, axis=axis, sections=(1, n - 1))
        if kind == 5 and x.type.ndim < 3:
            return b.expand(x, shape=(2, *x.type.shape))
        return b.slice(x, axis=axis, start=0, length=n)

    def move(self, b, pool):
        x = self.choice([v for v in self.floats(pool) if v.type.ndim])
        axis = int(self.rng.integers(x.type.ndim))
        same = [v for v in pool if v.type == x.type]
        if self.rng.random() < 0.5 and x.type.ndim < 3:
            return b.stack(x, self.choice(same), axis=axis)
        return b.concat(x, self.choice(same), axis=axis)

    def setter(self, b, pool):
        x = self.choice([v for v in self.floats(pool) if v.type.ndim])
        return self.set_in(b, pool, x)

    def set_in(self, b, pool, x, index=None):
        axes = [a for a, n in enumerate(x.type.shape) if isinstance(n, int) and n > 0]
        if not axes:
            return b.tanh(x)
        axis = self.choice(axes)
        n = x.type.shape[axis]
        rest = x.type.with_shape((*x.type.shape[:axis], *x.type.shape[axis + 1 :]))
        y = self.partner(pool, Value(rest))
        y = b.expand(y, shape=rest.shape) if y.type != rest else y
        if self.rng.random() < 0.3:
            y = b.index(x, axis=axis, index=0)
        kind = int(self.rng.integers(3))
        if kind == 0:
            return b.set_index(x, y, axis=axis, index=int(self.rng.integers(n)))
        if kind == 1:
            at = index or b.full(value=int(self.rng.integers(-n, n)), dtype=I64)
            at = b.remainder(at, b.full(value=n, dtype=I64))
            return b.set_dynamic_index(x, y, at, axis=axis)
        part = b.slice(x, axis=axis, start=n - 1, length=n, step=-1)
        return b.set_slice(x, part, axis=axis, start=0)

    def reduce(self, b, pool):
        x = self.choice(self.floats(pool))
        fixed = [a for a, n in enumerate(x.type.shape) if isinstance(n, int) and n > 0]
        keep = bool(self.rng.random() < 0.5)
        if fixed and self.rng.random() < 0.5:
            f = self.choice((b.max, b.min))
            return f(x, axes=(self.choice(fixed),), keepdim=keep)
        axes = tuple(a for a in range(x.type.ndim) if self.rng.random() < 0.5)
        return b.tanh(b.sum(x, axes=axes, keepdim=keep))

    def matmul(self, b, pool):
        xs = [v for v in self.floats(pool) if 1 <= v.type.ndim <= 3]
        self.rng.shuffle(xs)
        for x in xs:
            for y in xs:
                for tx, ty in ((False, False), (True, False), (False, True), (True, True)):
                    try:
                        OPS["matmul"].result_types([x.type, y.type], {"trans_x": tx, "trans_y": ty})
                    except ir.ShapeError:
                        continue
                    return self.sum_of(b, pool, b.matmul(x, y, trans_x=tx, trans_y=ty))
        return None

    def sum_of(self, b, pool, z):
        if self.rng.random() < 0.6:
            y = self.partner(pool, z)
            z = b.add(z, y) if self.rng.random() < 0.5 else b.add(y, z)
        return b.tanh(z)

    def integer(self, b, pool):
        n = self.choice([v for v in pool if v.type.dtype == I64])
        m = b.floor_divide(b.multiply(n, n), b.full(value=3, dtype=I64))
        return [b.remainder(m, b.full(value=-7, dtype=I64)), b.cast(m, dtype=self.dtype)]

    def gather(self, b, pool):
        x = self.choice([v for v in self.floats(pool) if 0 < v.type.ndim < 4])
        axes = [a for a, n in enumerate(x.type.shape) if isinstance(n, int) and n > 0]
        if not axes:
            return None
        axis = self.choice(axes)
        index = self.choice([v for v in pool if v.type.dtype == I64 and v.type.ndim <= 1])
        inside = b.remainder(index, b.full(value=x.type.shape[axis], dtype=I64))
        return b.gather(x, inside, axis=axis)

    # ------------------------------------------------------------ loops
    def trip(self):
        known = [Size.named(n) for n in sorted(self.sizes - {"B", "T"})]
        return self.choice([T, B, 0, 1, 2, 3, 3, *known])

    def index_size(self, trip) -> str:
        """The name of a new loop's index as a size of its body, if it is one."""
        if not self.moving or trip == ENDLESS or self.rng.random() < 0.2:
            return ""
        name = f"i{len(self.trips)}"
        self.trips[name] = trip
        return name

    def prefix(self, b, pool):
        """What the iterations up to this one have, or those from this one on."""
        name = self.choice(sorted(self.sizes & set(self.trips)))
        t, trip = Size.named(name), self.trips[name]
        found = [(v, a) for v in self.floats(pool) for a, n in enumerate(v.type.shape) if n == trip]
        x, axis = self.choice(found)
        start, length = self.choice([(0, t + 1), (0, t), (t, trip - t), (t + 1, trip - t - 1)])
        part = b.slice(x, axis=axis, start=start, length=length)
        if self.rng.random() < 0.3:
            return b.set_slice(x, b.tanh(part), axis=axis, start=start)
        return [part, b.tanh(part)]

    def scan(self, b, pool, depth):
        index, trip, count = Value(Type(I64), "t"), self.trip(), ""
        ports = []
        if self.control and self.rng.random() < 0.6:
            self.counts += 1
            count, limit = f"n{self.counts}", self.limit(b, pool)
            ports = [Const(Value(Type(I64)), limit)]
            trip = ENDLESS if self.rng.random() < 0.4 else trip
        for v in dict.fromkeys(self.choice(pool) for _ in range(3)):
            ports.append(Const(Value(v.type), v))
        for v in self.floats(pool):
            axes = [a for a, n in enumerate(v.type.shape) if n == trip]
            if axes and self.rng.random() < 0.6:
                axis = self.choice(axes)
                t = v.type.with_shape((*v.type.shape[:axis], *v.type.shape[axis + 1 :]))
                start, step = (0, 1) if self.rng.random() < 0.6 else (trip - 1, -1)
                ports.append(Seq(Value(t), v, axis, start, step))
        inits = [self.choice(self.floats(pool)) for _ in range(2)]
        inits += [v for v in inits if self.rng.random() < 0.5]
        state = [(Value(v.type), v) for v in inits]
        body, body_pool, outside = Builder(), [index], set(self.sizes)
        body_pool += [p.inner for p in ports] + [v for v, _ in state]
        size = self.index_size(trip)
        self.sizes |= {size} - {""}
        self.fill(body, body_pool, depth + 1, int(self.rng.integers(1, 6)))
        self.sizes = outside
        body_pool = [v for v in body_pool if v.type.names <= outside]
        for v, init in state:
            after = self.successor(body, body_pool, v, index)
            last = Value(v.type) if self.rng.random() < 0.8 else None
            ports.append(Carry(v, init, after, last))
        sure = isinstance(trip, int) and trip > 0
        if count:
            after = self.less(body, index, ports[0].inner, body_pool, trip != ENDLESS)
            init, always = self.first(b, ports[0].outer, pool)
            ports.append(LoopCondition(init, after))
            sure = sure and always
        ports += self.results(Size.named(count) if count else trip, body_pool, sure)
        scan = Scan(index, trip, tuple(ports), tuple(body.ops), count=count, size=size)
        b.append(scan)
        self.sizes |= {count} - {""}
        return scan.results

    def limit(self, b, pool):
        """How many iterations a `while` may run: a number, or data."""
        numbers = [v for v in pool if v.type == Type(I64, (6,))]
        if numbers and self.rng.random() < 0.7:
            return b.index(self.choice(numbers), axis=0, index=int(self.rng.integers(6)))
        return b.full(value=int(self.rng.integers(0, 5)), dtype=I64)

    def first(self, b, limit, pool):
        """Whether a `while` starts, and whether that is sure."""
        if self.rng.random() < 0.3:
            return b.full(value=True, dtype=BOOL), True
        return b.less_than(b.full(value=0, dtype=I64), limit), False

    def less(self, b, index, limit, pool, free):
        """Whether it goes on; a loop that has a trip may ask its data instead."""
        if free and self.rng.random() < 0.3:
            return self.test(b, pool)
        return b.less_than(b.add(index, b.full(value=1, dtype=I64)), limit)

    def length(self, b, pool):
        known = sorted(self.sizes - {"B", "T"})
        n = Size.named(self.choice(known))
        kind = int(self.rng.integers(3))
        if kind == 0:
            return b.size(n=2 * n + 1)
        return b.iota(n=n, start=0.5, dtype=self.dtype) if kind == 1 else b.iota(n=n, dtype=I64)

    # ------------------------------------------------------------ branches
    def test(self, b, pool):
        """A bool[] that depends on data, or on the index of a loop."""
        numbers = [v for v in pool if v.type == Type(I64)]
        if numbers and self.rng.random() < 0.6:
            half = b.remainder(self.choice(numbers), b.full(value=2, dtype=I64))
            return b.equal(half, b.full(value=0, dtype=I64))
        x = self.choice(self.floats(pool))
        return b.greater_than(
            b.sum(x, axes=tuple(range(x.type.ndim))),
            b.full(value=float(self.rng.uniform(-1, 1)), dtype=self.dtype),
        )

    def cond(self, b, pool, depth):
        test, outside = self.test(b, pool), set(self.sizes)
        inits = [self.choice(pool) for _ in range(int(self.rng.integers(1, 5)))]
        ins = [Const(Value(v.type), v) for v in inits]
        sides = []
        for _ in range(2):
            side, own = Builder(), [p.inner for p in ins]
            if self.rng.random() < 0.7:
                self.fill(side, own, depth + 1, int(self.rng.integers(1, 5)))
            for p in ins[:2]:
                if self.rng.random() < 0.6 and p.inner in self.floats(own):
                    own.append(self.changed(side, own, p.inner))
            self.sizes = set(outside)
            sides.append((side, [v for v in own if v.type.names <= outside]))
        (then, mine), (orelse, yours) = sides
        outs = []
        for v in [*mine[-2:], *(self.choice(mine) for _ in range(3))]:
            same = [w for w in yours if w.type == v.type]
            if same:
                w = same[-1] if self.rng.random() < 0.5 else self.choice(same)
                outs.append(Join(Value(v.type), v, w))
        b.append(Cond(test, tuple(ins), tuple(then.ops), tuple(orelse.ops), tuple(outs)))
        return [j.outer for j in outs]

    def changed(self, b, pool, x):
        """A value of the type of `x`, often one that may take over its storage."""
        if self.rng.random() < 0.5:
            return self.set_in(b, pool, x)
        return b.tanh(b.add(x, self.partner(pool, x)))

    def check(self, b, pool):
        if self.rng.random() < 0.3:
            ok = (
                b.logical_not(self.test(b, pool)) if self.rng.random() < 0.3 else self.test(b, pool)
            )
            b.emit("check", [ok], {"error": "OverflowError", "message": "random"})

    def window(self, b, pool):
        x = self.choice([v for v in self.floats(pool) if v.type.ndim])
        axis = int(self.rng.integers(x.type.ndim))
        n, at = x.type.shape[axis], b.full(value=0, dtype=I64)
        numbers = [v for v in pool if v.type == Type(I64)]
        if isinstance(n, int) and n > 1:
            n -= 1
            if numbers:
                at = b.remainder(self.choice(numbers), b.full(value=2, dtype=I64))
        y = b.dynamic_slice(x, at, axis=axis, length=n)
        return [y, b.set_dynamic_slice(x, b.tanh(y), at, axis=axis)]

    def call(self, b, pool):
        x = self.choice(self.floats(pool))
        return b.foreign(x, call="double", args=[], types=[x.type])

    def successor(self, b, pool, v, index):
        kind = int(self.rng.integers(6))
        if kind == 0:
            return self.set_in(b, pool, v, index)
        if kind == 5 and v.type.ndim == 2:
            columns = [q for q in self.floats(pool) if q.type.shape == v.type.shape[:1]]
            rows = [q for q in self.floats(pool) if q.type.shape == v.type.shape[1:]]
            x = b.reshape(self.choice(columns), shape=(v.type.shape[0], 1))
            y = b.reshape(self.choice(rows), shape=(1, v.type.shape[1]))
            return b.add(v, b.matmul(x, y))
        if kind == 1:
            return b.tanh(b.add(v, self.partner(pool, v)))
        if kind == 2:
            return self.set_in(b, pool, self.set_in(b, pool, v), index)
        return self.choice([q for q in pool if q.type == v.type])

    def results(self, trip, pool, sure):
        """Stacks of length `trip`, and a last value; seldom one that is not `sure` to exist."""
        out = []
        for v in [self.choice(pool) for _ in range(3)]:
            axis = int(self.rng.integers(v.type.ndim + 1))
            shape = (*v.type.shape[:axis], trip, *v.type.shape[axis:])
            if v.type.ndim < 4:
                out.append(Stack(Value(v.type.with_shape(shape)), v, axis))
        if sure or (self.control and self.rng.random() < 0.05):
            v = self.choice(pool)
            out.append(Last(Value(v.type), v))
        return out


def arrays(p: Program, sizes: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
    def array(dtype: DType, shape):
        if dtype.kind == "f":
            return rng.uniform(-1, 1, shape).astype(dtype.numpy)
        return rng.integers(-5, 6, shape)

    return [
        np.asarray(array(i.value.type.dtype, i.value.type.concrete(sizes)), order="C")
        for i in p.inputs
    ]


def agree(got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, what
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, what)
        return
    small = 2e-4 if want.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(got, want, rtol=small, atol=small, err_msg=what)


def double(op, xs, sizes):
    return [xs[0] * 2]


def check(p: Program, seed: int, backend: str = "cpu") -> None:
    rng = np.random.default_rng(seed)
    run = executor.compile(p, called(double), backend=backend)
    for b, t in ((2, 3), (1, 1), (3, 0), (0, 2), (5, 7)):
        xs = arrays(p, {"B": b, "T": t}, rng)
        own = [x.copy() for x in xs]
        what = f"DY2ST_SEED={seed}, B={b}, T={t}\n{p}"
        try:
            outputs, written = ir.evaluate(p, xs, double)
        except (OverflowError, ValueError, ZeroDivisionError) as e:
            with pytest.raises((OverflowError, ValueError, ZeroDivisionError)):
                run(*own)
                pytest.fail(f"{e!r} was not raised: {what}")
            assert all(np.array_equal(x, y, True) for x, y in zip(xs, own)), what
            continue
        got = run(*own)
        for g, w in zip(got, outputs):
            agree(g, w, what)
        after = dict(zip((target for target, _ in p.writes), written))
        for i, before, x in zip(p.inputs, xs, own):
            agree(x, after.get(i.value, before), what)


@pytest.mark.sampled
@pytest.mark.quick("1")
@pytest.mark.parametrize("seed", mostly_slow(SEEDS, 5))
def test_random_program(seed):
    check(Generator(seed).program(), seed)


@pytest.mark.sampled
@pytest.mark.quick("1", "4")
@pytest.mark.parametrize("seed", mostly_slow(SEEDS, 8))
def test_random_program_with_branches(seed):
    check(Generator(seed, control=True).program(), seed)


@pytest.mark.sampled
@pytest.mark.quick("2", "4")
@pytest.mark.parametrize("seed", mostly_slow(SEEDS, 12))
def test_random_program_with_moving_sizes(seed):
    check(Generator(seed, control=seed % 2 == 0, moving=True).program(), seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", mostly_slow([1000], nightly=[1012]))
@pytest.mark.parametrize("target", ["generic", "wide"])
def test_random_programs_on_other_targets(target, first, monkeypatch):
    monkeypatch.setenv("DY2ST_CPU", target)
    for seed in range(first, first + 12):
        check(Generator(seed, control=seed % 2 == 0).program(), seed)
