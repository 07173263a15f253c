"""Random programs with views, writes, loops and branches: the same values before and after the
pipeline.

A failure prints its seed and the program; `Generator(seed, kind).program()` makes it again. The
generator stays inside of what capture produces; programs that functionalize refuses (a storage that
depends on the run) are counted and must stay few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ir import (
    ENDLESS,
    Builder,
    Carry,
    Cond,
    Const,
    Input,
    Join,
    LoopCondition,
    Op,
    Program,
    Scan,
    Size,
    Stack,
    Type,
    Value,
    parse,
    verify,
)
from ir.analysis.alias import AliasError
from ir.interpreter import evaluate
from ir.passes import functionalize, run
from ir.types import BOOL, F32, F64, I64

pytestmark = pytest.mark.sampled

T = Size.named("T")
LENGTHS = (0, 1, 2, 7)


# ---------------------------------------------------------------- comparing
def random_inputs(program: Program, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    """Floats around 0, integers in [0, 4), for given named sizes."""
    rng = np.random.default_rng(seed)
    out = []
    for i in program.inputs:
        shape, dtype = i.value.type.concrete(sizes), i.value.type.dtype.numpy
        if dtype.kind == "f":
            out.append(rng.standard_normal(shape).astype(dtype))
        else:
            out.append(rng.integers(0, 4 if dtype.kind != "b" else 2, shape).astype(dtype))
    return out


def observed(program: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs, then what every input that is not private holds after the run."""
    seen = [i for i in program.inputs if i.kind != "const"]
    watched = replace(program, outputs=(*program.outputs, *(i.value for i in seen)))
    outputs, writes = evaluate(watched, inputs)
    stored = dict(zip((target for target, _ in program.writes), writes))
    n = len(program.outputs)
    now = [stored.get(i.value, held) for i, held in zip(seen, outputs[n:])]
    return outputs[:n] + now


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        a, b = np.nan_to_num(a, nan=0.0), np.nan_to_num(b, nan=0.0)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
    np.testing.assert_array_equal(a, b)


def same_values(p: Program, q: Program, exact: bool = True, lengths=LENGTHS, **sizes: int) -> None:
    """`p` and `q` give the same outputs and leave the same inputs behind, for several T."""
    for length in lengths if "T" in p.sizes else (0,):
        inputs = random_inputs(p, {"B": 3, **sizes, "T": length}, seed=length)
        before, after = observed(p, inputs), observed(q, inputs)
        assert len(before) == len(after)
        for a, b in zip(before, after):
            if exact:
                assert_same_bits(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def same_outcomes(p: Program, q: Program) -> None:
    """As `same_values`, for programs that may raise. What a check says stays; other errors may go
    with a value that nobody reads, but none comes."""
    for length in LENGTHS:
        inputs = random_inputs(p, {"B": 3, "T": length}, seed=length)
        want, have = outcome(p, inputs), outcome(q, inputs)
        if isinstance(want, str) and want.startswith("ValueError: check"):
            assert have == want
        elif not isinstance(want, str):
            assert not isinstance(have, str), have
            for a, b in zip(want, have):
                assert_same_bits(a, b)


def outcome(p: Program, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | str:
    """What a run shows: values, or the text of the error."""
    try:
        return observed(p, inputs)
    except (ValueError, ArithmeticError, LookupError) as e:
        return f"{type(e).__name__}: {e}"


def program(text: str) -> Program:
    return verify(parse(text))


def check(rewrite, before: Program, golden=None, exact: bool = True) -> Program:
    """`rewrite` gives a valid program with this text and the values of `before`."""
    after = verify(rewrite(before))
    if golden is not None:
        assert str(after) == golden
    assert str(parse(str(after))) == str(after)
    same_values(before, after, exact=exact)
    return after


# ---------------------------------------------------------------- generating
class Generator:
    """Random pre-functional programs. Kinds: "exact"; "heavy" adds matmul, sum and softmax;
    "control" adds while loops, branches, checks, sizes and ops that may raise."""

    def __init__(self, seed: int, kind: str = "exact") -> None:
        self.r, self.kind, self.loops = random.Random(seed), kind, 0

    def program(self) -> Program:
        kinds = ("arg", "param", "buffer", "const")
        shapes = [(T, 2, 3), (2, 3), (T, 3), (3, 3), (3,)]
        inputs = [
            Input(Value(Type(F32, s), f"x{n}"), self.r.choice(kinds), f"x{n}")
            for n, s in enumerate(shapes)
        ]
        b, pool = Builder(), [i.value for i in inputs]
        self.block(b, pool, set(), None, depth=0, length=self.r.randint(4, 12))
        outputs = self.r.sample(pool, min(10 if self.kind == "control" else 4, len(pool)))
        return verify(Program("random", tuple(inputs), tuple(b.ops), tuple(outputs)))

    def block(self, b, pool, carried, index, depth, length) -> None:
        for _ in range(length):
            steps = [self.elementwise, self.view, self.view, self.write, self.join]
            steps += [self.reduce] if self.kind == "heavy" else []
            if depth < 2:
                steps += [self.scan] * (2 if self.kind == "control" else 1)
            if self.kind == "control":
                steps += [self.check, self.count, self.raising] + [self.cond] * (depth < 3)
            step = self.r.choice(steps)
            if step == self.scan:
                self.scan(b, pool, carried, depth, index)
            elif step in (self.cond, self.check, self.raising):
                step(b, pool, carried, index, depth)
            elif step == self.view:
                self.view(b, pool, carried, index)
            else:
                step(b, pool, carried)

    def pick_like(self, pool, v):
        same = [q for q in pool if q.type == v.type]
        return self.r.choice(same)

    def elementwise(self, b, pool, carried) -> None:
        x = self.r.choice(pool)
        y = self.pick_like(pool, x)
        name = self.r.choice(["neg", "abs", "tanh", "assign", "scale", "cast", "add", "subtract",
                              "multiply", "maximum", "one", "zero", "row"])  # fmt: skip
        if name == "cast":
            pool.append(b.cast(b.cast(x, dtype=F64), dtype=F32))
        elif name in ("one", "zero"):
            number = b.full(value=float(name == "one"), dtype=F32)
            pool.append(b.multiply(x, number) if name == "one" else b.add(x, number))
        elif name == "row":
            rows = [q for q in pool if q.type.ndim <= x.type.ndim and self.fits(x, q)]
            pool.append(b.add(x, self.r.choice(rows)))
        elif name in ("add", "subtract", "multiply", "maximum"):
            pool.append(b.emit(name, (x, y))[0])
        else:
            pool.append(b.emit(name, (x,))[0])

    @staticmethod
    def fits(x, q) -> bool:
        return q.type.shape == x.type.shape[x.type.ndim - q.type.ndim :]

    def view(self, b, pool, carried, index) -> None:
        x = self.r.choice([v for v in pool if v.type.ndim] or pool)
        if not x.type.ndim:
            return
        axis = self.r.randrange(x.type.ndim)
        n = x.type.shape[axis]
        kinds = ["transpose"]
        if isinstance(n, int):
            kinds += ["index", "slice", "dynamic_index", "reshape"]
            kinds += ["flatten"] if isinstance(x.type.shape[axis - 1], int) and axis else []
        elif index is not None and index[1] == n:
            kinds = ["dynamic_index", "dynamic_index", "dynamic_index", "reverse"]
        kind = self.r.choice(kinds)
        if kind == "transpose":
            perm = list(range(x.type.ndim))
            self.r.shuffle(perm)
            v = b.transpose(x, perm=tuple(perm))
        elif kind == "index":
            v = b.index(x, axis=axis, index=self.r.randrange(n))
        elif kind == "slice":
            v = b.slice(x, axis=axis, start=n - 1, length=self.r.randint(1, n), step=-1)
        elif kind == "flatten":
            left = x.type.shape[: axis - 1]
            v = b.reshape(x, shape=(*left, x.type.shape[axis - 1] * n, *x.type.shape[axis + 1 :]))
        elif kind == "reshape":
            v = b.reshape(x, shape=(*x.type.shape[:axis], 1, *x.type.shape[axis:]))
        else:
            v = self.select(b, x, axis, index, kind)
        if x in carried:
            carried.add(v)
        pool.append(v)

    def select(self, b, x, axis, index, kind):
        n = x.type.shape[axis]
        if isinstance(n, int):
            at = b.full(value=self.r.randrange(n), dtype=I64)
        else:
            at = index[0]
            if kind == "reverse":
                at = b.subtract(b.subtract(b.size(n=n), b.full(value=1, dtype=I64)), at)
        return b.dynamic_index(x, at, axis=axis)

    def write(self, b, pool, carried) -> None:
        free = [v for v in pool if v not in carried]
        if free:
            x = self.r.choice(free)
            b.copy_(x, self.pick_like(pool, x))

    def join(self, b, pool, carried) -> None:
        x = self.r.choice(pool)
        y = self.pick_like(pool, x)
        if x.type.ndim > 3:
            return
        pair = b.stack(x, y, axis=self.r.randint(0, x.type.ndim))
        axis = pair.type.shape.index(2)
        pool.append(b.index(pair, axis=axis, index=self.r.randrange(2)))

    def reduce(self, b, pool, carried) -> None:
        x = self.r.choice(pool)
        if not x.type.ndim:
            return
        square = [q for q in pool if q.type.shape == (3, 3)]
        if square and x.type.ndim > 1 and x.type.shape[-1] == 3 and self.r.random() < 0.6:
            pool.append(b.matmul(b.tanh(x), b.tanh(self.r.choice(square))))
        elif x.type.shape[-1] == 3 and self.r.random() < 0.5:
            pool.append(b.softmax(x, axis=-1))
        else:
            pool.append(b.tanh(b.sum(x, axes=(-1,))))

    # -------- loops and branches
    def scan(self, b, pool, carried, depth, around) -> None:
        trip, count, go = self.r.choice([T, T, T, 2, 1, 0]), "", None
        index = Value(Type(I64), "t")
        if self.kind == "control" and self.r.random() < 0.5:
            self.loops += 1
            trip, count = self.r.choice([T, T, 3, 1, 0, ENDLESS]), f"n{self.loops}"
            go = self.test(b, pool, around)
        taken = self.r.sample(pool, self.r.randint(1, len(pool)))
        consts = [Const(Value(v.type, v.name), v) for v in taken]
        inits = [self.r.choice(pool) for _ in range(self.r.randint(0, 2))]
        inners = [Value(v.type, "h") for v in inits]
        within = [p.inner for p in consts] + inners
        inside = {p.inner for p in consts if p.outer in carried} | set(inners)
        body = Builder()
        self.block(body, within, inside, (index, trip), depth + 1, self.r.randint(2, 7))
        fresh = {r for node in body.ops for r in node.results}
        ports: list = list(consts)
        for init, inner in zip(inits, inners):
            made = [v for v in within if v.type == init.type and v in fresh] or [inner]
            last = Value(init.type, "last")
            ports.append(Carry(inner, init, self.r.choice(made), last))
            pool.append(last)
        if go is not None:
            more = self.next_test(body, within, (index, trip))
            ports.append(LoopCondition(go, more))
        length = Size.named(count) if count else trip
        v = self.r.choice(self.known(within, pool))
        axis = self.r.randint(0, v.type.ndim)
        outer = Value(v.type.with_shape((*v.type.shape[:axis], length, *v.type.shape[axis:])), "ys")
        if outer.type.ndim <= 4 and trip != 0:
            ports.append(Stack(outer, v, axis))
            pool.append(outer)
        b.append(Scan(index, trip, tuple(ports), tuple(body.ops), count=count))

    @staticmethod
    def is_view(node) -> bool:
        return isinstance(node, Op) and node.row.views

    @staticmethod
    def known(within, pool):
        """Values whose sizes are known outside."""
        names = {"T"}.union(*(v.type.names for v in pool))
        return [v for v in within if v.type.names <= names]

    def test(self, b, pool, index):
        """A bool[]: of data, of the index of the loop around, or constant."""
        kind = self.r.choice(["data", "data", "data", "index", "constant"])
        numbers = [v for v in pool if all(isinstance(d, int) for d in v.type.shape)]
        if kind == "data" and numbers:
            v = self.r.choice(numbers)
            while v.type.ndim:
                v = b.index(v, axis=0, index=self.r.randrange(v.type.shape[0]))
            return b.less_than(v, b.full(value=self.r.choice([-0.5, 0.0, 0.5]), dtype=F32))
        if kind == "index" and index is not None:
            two = b.full(value=2, dtype=I64)
            return b.equal(b.remainder(index[0], two), b.full(value=0, dtype=I64))
        return b.full(value=self.r.random() < 0.7, dtype=BOOL)

    def next_test(self, b, pool, index):
        """A test that ends an endless loop."""
        more = b.less_than(index[0], b.full(value=self.r.randrange(4), dtype=I64))
        if index[1] == ENDLESS or self.r.random() < 0.5:
            return more
        return self.test(b, pool, index)

    def check(self, b, pool, carried, index, depth) -> None:
        """A check that mostly holds, which not every pass sees."""
        one = b.size(n=T)
        ok = b.less_equal(one, one)
        if self.r.random() < 0.3:
            ok = b.logical_or(self.test(b, pool, index), b.equal(one, b.full(value=7, dtype=I64)))
        b.check(ok, error="ValueError", message=f"check {self.r.randrange(1000)}")

    def raising(self, b, pool, carried, index, depth) -> None:
        """A division, or an index, that some data make raise."""
        i = b.cast(b.logical_not(self.test(b, pool, index)), dtype=I64)
        x = self.r.choice(pool)
        if self.r.random() < 0.5:
            n = b.floor_divide(
                b.full(value=7, dtype=I64), b.subtract(b.full(value=1, dtype=I64), i)
            )
            pool.append(b.add(x, b.cast(n, dtype=F32)))
        elif x.type.ndim and isinstance(x.type.shape[0], int):
            far = b.multiply(i, b.full(value=5, dtype=I64))
            pool.append(b.neg(b.dynamic_index(x, far, axis=0)))

    def count(self, b, pool, carried) -> None:
        """A number that depends on how often a loop ran."""
        names = sorted(set().union(*(v.type.names for v in pool)))
        if names:
            n = b.cast(b.size(n=Size.named(self.r.choice(names))), dtype=F32)
            pool.append(b.add(self.r.choice(pool), n))

    def cond(self, b, pool, carried, index, depth) -> None:
        test = self.test(b, pool, index)
        taken = self.r.sample(pool, self.r.randint(1, len(pool)))
        ins = [Const(Value(v.type, v.name), v) for v in taken]
        inside = []
        if index is not None and index[0] is not None:
            ins.append(Const(Value(Type(I64), "i"), index[0]))
            inside = [(ins[-1].inner, index[1])]
        branches, pools = [], []
        for _ in range(2):
            body, within = Builder(), [p.inner for p in ins if p.inner.type.dtype == F32]
            kept = {p.inner for p in ins if p.outer in carried}
            length = self.r.choice([0, 1, 2, 5])
            self.block(body, within, kept, inside[0] if inside else None, depth + 1, length)
            branches.append(tuple(body.ops))
            own = {r for n in body.ops if n.operands and not self.is_view(n) for r in n.results}
            pools.append([v for v in self.known(within, pool) if v in own or self.r.random() < 0.1])
        outs = []
        for v in self.r.sample(pools[0], min(len(pools[0]), self.r.randrange(4))):
            other = [q for q in pools[1] if q.type == v.type]
            if other:
                outs.append(Join(Value(v.type, "j"), v, self.r.choice(other)))
        b.append(Cond(test, tuple(ins), *branches, tuple(outs)))
        pool += [j.outer for j in outs]
        carried.update(j.outer for j in outs if self.r.random() < 0.8)


KINDS = {"exact": 200, "heavy": 50, "control": 300}


def chunks() -> list:
    """Twenty seeds a test; the later ones of the slower kinds are slow tests, or for the night."""
    out = []
    for kind, seeds in KINDS.items():
        for start in range(0, seeds, 20):
            marks = [pytest.mark.slow] if kind == "control" and start >= 100 else []
            marks += [pytest.mark.nightly] if kind == "control" and start >= 200 else []
            out.append(pytest.param(kind, start, marks=marks, id=f"{kind}-{start}"))
    return out


@pytest.mark.slow
@pytest.mark.quick("exact-0", "exact-60", "exact-120", "exact-180", "heavy-40", "control-40")
@pytest.mark.parametrize("kind, start", chunks())
def test_pipeline_keeps_values(kind, start):
    refused = 0
    for seed in range(start, min(start + 20, KINDS[kind])):
        program = Generator(seed, kind).program()
        try:
            functional = verify(functionalize(program))
        except AliasError:
            refused += 1
            continue
        try:
            after = run(program, check=True)
            for other in (functional, after):
                if kind == "control":
                    same_outcomes(program, other)
                else:
                    same_values(program, other, exact=kind != "heavy")
            assert str(parse(str(after))) == str(after)
        except BaseException as e:
            raise AssertionError(f"seed {seed}, {kind}:\n{program}") from e
    assert refused <= (15 if kind == "control" else 10)
