"""Random programs with views, writes and loops: the same values before and after the pipeline.

A failure prints its seed and the program; `Generator(seed, heavy).program()` makes it again. The
generator stays inside of what capture produces; programs that functionalize refuses (a storage that
depends on the run) are counted and must stay few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ir import Builder, Carry, Const, Input, Program, Scan, Size, Stack, Type, Value, parse, verify
from ir.alias import AliasError
from ir.passes import functionalize, run
from ir.types import F32, F64, I64
from ir.walk import evaluate

T = Size.named("T")
LENGTHS = (0, 1, 2, 7)
SEEDS = 200


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
    """Random pre-functional programs. `heavy` adds matmul, sum and softmax."""

    def __init__(self, seed: int, heavy: bool = False) -> None:
        self.r, self.heavy = random.Random(seed), heavy

    def program(self) -> Program:
        kinds = ("arg", "param", "buffer", "const")
        shapes = [(T, 2, 3), (2, 3), (T, 3), (3, 3), (3,)]
        inputs = [
            Input(Value(Type(F32, s), f"x{n}"), self.r.choice(kinds), f"x{n}")
            for n, s in enumerate(shapes)
        ]
        b, pool = Builder(), [i.value for i in inputs]
        self.block(b, pool, set(), None, depth=0, length=self.r.randint(4, 12))
        outputs = self.r.sample(pool, min(4, len(pool)))
        return verify(Program("random", tuple(inputs), tuple(b.ops), tuple(outputs)))

    def block(self, b, pool, carried, index, depth, length) -> None:
        for _ in range(length):
            steps = [self.elementwise, self.view, self.view, self.write, self.join]
            steps += [self.reduce] if self.heavy else []
            if depth < 2:
                steps.append(self.scan)
            step = self.r.choice(steps)
            if step == self.scan:
                self.scan(b, pool, carried, depth)
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
            kinds += ["pick", "slice", "select", "reshape"]
            kinds += ["flatten"] if isinstance(x.type.shape[axis - 1], int) and axis else []
        elif index is not None and index[1] == n:
            kinds = ["select", "select", "select", "reverse"]
        kind = self.r.choice(kinds)
        if kind == "transpose":
            perm = list(range(x.type.ndim))
            self.r.shuffle(perm)
            v = b.transpose(x, perm=tuple(perm))
        elif kind == "pick":
            v = b.pick(x, axis=axis, index=self.r.randrange(n))
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
        return b.select(x, at, axis=axis)

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
        pool.append(b.pick(pair, axis=axis, index=self.r.randrange(2)))

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

    def scan(self, b, pool, carried, depth) -> None:
        trip = self.r.choice([T, T, T, 2, 1, 0])
        index = Value(Type(I64), "t")
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
        v = self.r.choice(within)
        axis = self.r.randint(0, v.type.ndim)
        outer = Value(v.type.with_shape((*v.type.shape[:axis], trip, *v.type.shape[axis:])), "ys")
        if outer.type.ndim <= 4 and trip != 0:
            ports.append(Stack(outer, v, axis))
            pool.append(outer)
        b.append(Scan(index, trip, tuple(ports), tuple(body.ops)))


@pytest.mark.parametrize("start", range(0, SEEDS, 20), ids=lambda s: f"seeds-{s}")
@pytest.mark.parametrize("heavy", [False, True], ids=["exact", "heavy"])
def test_pipeline_keeps_values(start, heavy):
    refused = 0
    for seed in range(start, start + (20 if not heavy else 5)):
        program = Generator(seed, heavy).program()
        try:
            functional = verify(functionalize(program))
        except AliasError:
            refused += 1
            continue
        try:
            same_values(program, functional, exact=not heavy)
            after = run(program, check=True)
            same_values(program, after, exact=not heavy)
            assert str(parse(str(after))) == str(after)
        except BaseException as e:
            raise AssertionError(f"seed {seed}, heavy={heavy}:\n{program}") from e
    assert refused <= 10
