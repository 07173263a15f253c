"""Masks of attention: what is said of them far from the diagonal, and on it, holds everywhere."""

import random

import numpy as np
import pytest

from dy2st.streaming.check import at_length, fed
from dy2st.streaming.program import StreamData, StreamInfo
from ir import Builder, Input, Program, SourceError, Value, evaluate
from ir.passes import expand
from ir.streaming import QUANTUM, banded, stream
from ir.streaming.mask_bands import ANY, LOW, SCORE, MaskAnalysis, MaskBand
from ir.types import F32, F64, I64, Size, Type
from tests.conftest import mostly_slow
from tests.ir.streaming.streamed_stacks import Interpreted

FRAMES, CHUNK = 30, 3


def mask(b: Builder, rng: random.Random, depth: int, n=Size.named(QUANTUM)):  # noqa: B008
    """bool[n, n], made as users make it."""
    kind = rng.choice(["compare", "compare", "distance", "and", "or", "not", "choose"])
    if depth == 0 or kind in ("compare", "distance"):
        i = b.reshape(b.iota(n=n, start=rng.randint(-3, 3), dtype=I64), shape=(n, 1))
        j = b.iota(n=n, step=rng.choice([1, 1, 1, 2]), dtype=I64)
        by = b.full(value=rng.choice([2, 3, 5]), dtype=I64)
        if rng.random() < 0.4:
            i, j = b.floor_divide(i, by), b.floor_divide(j, by)
        elif rng.random() < 0.3:
            i, j = (b.cast(b.scale(b.cast(q, dtype=F64), scale=0.5), dtype=I64) for q in (i, j))
        name = rng.choice("less_than less_equal greater_than greater_equal equal not_equal".split())
        if kind == "compare" and rng.random() < 0.5:
            return b.emit(name, [i, j])[0]
        gap = b.subtract(i, j) if rng.random() < 0.5 else b.subtract(j, i)
        gap = b.abs(gap) if rng.random() < 0.4 else gap
        sides = [gap, b.full(value=rng.randint(-4, 6), dtype=I64)]
        rng.shuffle(sides)
        return b.emit(name, sides)[0]
    x = mask(b, rng, depth - 1, n)
    if kind == "not":
        return b.logical_not(x)
    y = mask(b, rng, depth - 1, n)
    if kind == "choose":
        return b.where(mask(b, rng, depth - 1, n), x, y)
    return (b.logical_and if kind == "and" else b.logical_or)(x, y)


def weights(b: Builder, m, rng: random.Random, scores):
    """What is made of a mask: chosen or added scores, and their exponentials."""
    full = [b.full(value=v, dtype=F32) for v in (0.0, rng.choice([-1e9, -1e4, -np.inf, -3.0]))]
    if rng.random() < 0.5:
        y = b.where(m, scores, full[1])
    else:
        y = b.add(b.where(m, *full), scores)
    y = b.scale(y, scale=0.5) if rng.random() < 0.3 else y
    return b.exp(y) if rng.random() < 0.5 else y


def holds(said, values: np.ndarray) -> bool:
    if said in (ANY, SCORE) or values.size == 0:
        return True
    if said == LOW:
        return bool((values < -100).all())
    return bool((values == said).all())


@pytest.mark.parametrize("block", mostly_slow(range(4)))
def test_what_is_said_of_a_mask_holds(block):
    known = 0
    for seed in range(100 * block, 100 * block + 100):
        rng = random.Random(seed)
        b, n = Builder(), Size.named(QUANTUM)
        x = b.full(value=rng.choice([-2.5, 1.5]), shape=(n, n), dtype=F32)
        made = [mask(b, rng, rng.randint(0, 2))]
        made.append(weights(b, made[0], rng, b.sin(x)))
        analysis = MaskAnalysis()
        for op in b.ops:
            analysis.visit(op)
        found, _ = evaluate(at_length(Program("p", (), tuple(b.ops), tuple(made)), FRAMES), [])
        i, j = np.indices((FRAMES, FRAMES))
        for v, a in zip(made, found):
            said = analysis.of(v)
            assert isinstance(said, MaskBand)
            a = np.broadcast_to(a, (FRAMES, FRAMES))
            text = f"seed {seed}: {said}"
            assert holds(said.past[1], a[i - j > said.past[0]]), text
            assert holds(said.future[1], a[j - i > said.future[0]]), text
            assert holds(said.here, a[i == j]), text
            known += sum(q not in (ANY, SCORE) for q in (said.past[1], said.future[1], said.here))
    assert known > 200


def attention(rng: random.Random) -> Program:
    """Attention of shifted frames to each other through a random mask, mostly a band."""
    b, n = Builder(), Size.named(QUANTUM) * CHUNK
    x = y = Value(Type(F32, (2, n, 3)), "x")
    if rng.random() < 0.4:
        edge = b.full(value=0.0, shape=(2, 2, 3), dtype=F32)
        parts = [edge, x] if rng.random() < 0.5 else [x, edge]
        y = b.slice(b.concat(*parts, axis=1), axis=1, start=rng.choice([0, 1]), length=n)
    m = mask(b, rng, rng.randint(0, 2), n)
    if rng.random() < 0.8:
        i = b.reshape(b.iota(n=n, dtype=I64), shape=(n, 1))
        gap = b.subtract(i, b.iota(n=n, dtype=I64))
        back, ahead = (b.full(value=v, dtype=I64) for v in (rng.randint(0, 5), -rng.randint(0, 3)))
        near = b.logical_and(b.less_equal(gap, back), b.greater_equal(gap, ahead))
        m = b.logical_and(m, near) if rng.random() < 0.4 else near
    low = b.full(value=rng.choice([-1e9, -1e4, -np.inf]), dtype=F32)
    scores = b.matmul(y, rng.choice([x, y]), trans_y=True)
    weights = b.softmax(b.where(m, scores, low), axis=-1)
    out = b.matmul(weights, y)
    inputs = (Input(x, "arg", "x"),)
    return expand(Program("p", inputs, tuple(b.ops), (out,), (), tuple(b.requires)))


@pytest.mark.slow
def test_random_bands_stream():
    equal = 0
    for seed in range(80):
        p = attention(random.Random(seed))
        try:
            made = stream(banded(p), 1, CHUNK)
        except SourceError as e:
            assert e.message.startswith("attention"), e
            continue
        tree = ["out", 0]
        chunked = StreamInfo(CHUNK, CHUNK, {"x": 1}, tree, made.outputs, (), made.agreeing)
        s = Interpreted(
            StreamData(made.program, chunked, {}, {q.name: q.initial for q in made.states})
        )
        for units in (1, 6):
            x = np.random.default_rng(seed).standard_normal((2, CHUNK * units, 3)).astype("float32")
            (want,), _ = evaluate(at_length(p, units), [x])
            (have,) = fed(s, {"x": x}, [CHUNK] * units)
            assert have == pytest.approx(want, abs=1e-5), f"seed {seed}, {units} units"
        equal += 1
    assert equal > 30
