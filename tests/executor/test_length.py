"""The work of a translation grows in proportion to the length of a straight-line program.

Nothing is timed: the lines of Python that passes, planning and code generation execute are counted,
at one, two and four times a length. The machine code comes in functions of bounded length.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np
import pytest

import executor
from executor.cpu import machine
from executor.cpu.codegen import source
from executor.cpu.division import LONGEST
from executor.cpu.kernel_cache import kernel_of
from executor.cpu.llvm_text import LlvmModule, LlvmSource
from executor.cpu.target import current
from executor.launches import Map
from executor.lowering.program import lower
from executor.memory import Buffer, View, whole
from executor.plan.arena import layout
from ir import Program, Value, evaluate
from ir.autodiff import differentiate
from ir.passes import fuse, run, undistinguished
from ir.passes.fusion import DynamicOrder
from ir.passes.simplification import simplify
from ir.program import Builder, Carry, Const, Input, Scan
from ir.scalar.language import input_
from ir.types import BOOL, F32, I64, Type

X, W, INDEX = Type(F32, (2, 16)), Type(F32, (16, 16)), Type(I64, (2,))


def program(b: Builder, inputs: Sequence[Value], outputs: Sequence[Value], **rest: Any) -> Program:
    named = tuple(Input(v, "arg", v.name) for v in inputs)
    return Program("long", named, tuple(b.ops), tuple(outputs), **rest)


def decoder(n: int) -> Program:
    """An unrolled LSTM whose outputs are stacked."""
    b, x, w = Builder(), Value(X, "x"), Value(Type(F32, (16, 64)), "w")
    h = c = x
    hs = []
    for _ in range(n):
        i, f, g, o = b.split(b.matmul(h, w), axis=1, sections=(16,) * 4)
        c = b.add(b.multiply(b.sigmoid(f), c), b.multiply(b.sigmoid(i), b.tanh(g)))
        h = b.multiply(b.sigmoid(o), b.tanh(c))
        hs.append(h)
    return program(b, [x, w], [b.stack(*hs, axis=1)])


def features(n: int) -> Program:
    """Features that are made first and used later, the last one first."""
    b, x, w = Builder(), Value(X, "x"), Value(W, "w")
    made = [b.tanh(b.matmul(b.scale(x, scale=2.0), w)) for _ in range(n)]
    h = x
    for f in reversed(made):
        h = b.tanh(b.add(b.matmul(h, w), f))
    return program(b, [x, w], [h])


def sums(n: int) -> Program:
    """Products that are made first and added later."""
    b, x, w = Builder(), Value(X, "x"), Value(W, "w")
    made = [b.matmul(b.scale(x, scale=0.5), w) for _ in range(n)]
    h = x
    for f in made:
        h = b.add(b.tanh(h), f)
    return program(b, [x, w], [h])


def skips(n: int) -> Program:
    """Each result is used again as many ops before the end as it is behind the start."""
    b, x, w = Builder(), Value(X, "x"), Value(W, "w")
    h, hs = x, []
    for _ in range(n):
        h = b.tanh(b.matmul(h, w))
        hs.append(h)
    for q in reversed(hs):
        h = b.tanh(b.add(b.matmul(h, w), q))
    return program(b, [x, w], [h])


def cache(n: int) -> Program:
    """A buffer is written step by step, first with what is made then, later with what was."""
    b, x, w, rows = (
        Builder(),
        Value(X, "x"),
        Value(W, "w"),
        Value(Type(F32, (2 * n, 2, 16)), "rows"),
    )
    h, q, made = x, rows, []
    for k in range(n):
        h = b.tanh(b.matmul(h, w))
        made.append(b.matmul(h, w))
        q = b.set_index(q, h, axis=0, index=k)
    for k, y in enumerate(made):
        q = b.set_index(q, y, axis=0, index=n + k)
    return program(b, [x, w, rows], [h], writes=((rows, q),))


def stored(n: int) -> Program:
    """A buffer is written row by row, each row as it was before is read, and all at the end."""
    b, x, rows = Builder(), Value(X, "x"), Value(Type(F32, (n, 2, 16)), "rows")
    h, q = x, rows
    for k in range(n):
        h = b.tanh(b.add(h, b.index(q, axis=0, index=k)))
        q = b.set_index(q, h, axis=0, index=k)
    for k in range(n):
        h = b.tanh(b.add(h, b.index(q, axis=0, index=k)))
    return program(b, [x, rows], [h], writes=((rows, q),))


def tokens(n: int) -> Program:
    """Each step looks up what the one before has chosen."""
    b, t, w, done = Builder(), Value(INDEX, "t"), Value(W, "w"), Value(Type(BOOL, (2,)), "done")
    token, chosen = t, []
    for _ in range(n):
        new = b.argmax(b.matmul(b.gather(w, token, axis=0), w), axis=1, dtype=I64)
        token = b.where(done, new, token)
        chosen.append(token)
    return program(b, [t, w, done], [b.stack(*chosen, axis=0)])


def weights(n: int) -> Program:
    """Many parameters, each read and written once."""
    b, x = Builder(), Value(X, "x")
    ws = [Value(W, f"w{k}") for k in range(n)]
    h = x
    for w in ws:
        h = b.tanh(b.matmul(h, w))
    return program(b, [x, *ws], [h], writes=tuple((w, b.scale(w, scale=0.9)) for w in ws))


def body(n: int) -> Program:
    """A loop with a long body that reads many weights."""
    b, x = Builder(), Value(X, "x")
    ws = [Value(W, f"w{k}") for k in range(n)]
    inside, h, ports = Builder(), Value(X, "h"), []
    y = h
    for w in ws:
        ports.append(Const(Value(W, w.name), w))
        y = inside.tanh(inside.matmul(y, ports[-1].inner))
    last = Value(X, "last")
    b.append(Scan(Value(Type(I64), "t"), 4, (*ports, Carry(h, x, y, last)), tuple(inside.ops)))
    return program(b, [x, *ws], [last])


def stages(p: Program, gradient: bool) -> None:
    """All that is done with a program before LLVM sees it."""
    shown = run(p, stop_before="expand")
    parts = [run(undistinguished(shown), start_at="expand")]
    if gradient:
        g = differentiate(shown, [0], [0])
        parts = [run(q, start_at="expand") for q in (g.forward, g.backward)]
    for q in parts:
        native(q)


def native(p: Program) -> LlvmSource:
    """The text of the native functions of a program."""
    target = machine()
    lowered = target.legalize(lower(p, target))
    return source(lowered, layout(lowered.launches), current())


def lines_of(work: Callable[[], Any]) -> int:
    """How many lines of `ir` and `executor` run."""
    count = 0

    def within(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return within

    def called(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        return within if name.split(".")[0] in ("ir", "executor") else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "gradient"),
    [(f, False) for f in (decoder, features, sums, skips, cache, tokens, weights, body)]
    + [(decoder, True)],
    ids=lambda q: q.__name__ if callable(q) else "backward" if q else "forward",
)
def test_twice_the_length_is_twice_the_work(make: Callable[[int], Program], gradient: bool) -> None:
    counts = []
    for n in (8, 16, 32) if gradient else (15, 30, 60):
        p = make(n)
        stages(p, gradient)  # kernels that are kept are not written again
        counts.append(lines_of(lambda p=p: stages(p, gradient)))
    first, second = (b - a for a, b in pairwise(counts))
    assert second <= 2.2 * first, counts


def test_reads_pass_many_stores_at_once() -> None:
    counts = []
    for n in (50, 100, 200):
        p = stored(n)
        counts.append(lines_of(lambda p=p: simplify(p)))
    first, second = (b - a for a, b in pairwise(counts))
    assert second <= 2.1 * first, counts


# ---------------------------------------------------------------- machine code
def launches_in(text: str) -> int:
    return text.count(" call i64 @f.")


@pytest.mark.slow
@pytest.mark.parametrize("make", [decoder, cache, tokens, body], ids=lambda f: f.__name__)
def test_a_long_program_is_several_functions(make: Callable[[int], Program]) -> None:
    p = run(make(2 * LONGEST))
    texts = native(p).functions.values()
    assert max(map(launches_in, texts)) <= LONGEST
    assert sum(map(launches_in, texts)) >= 2 * LONGEST


@pytest.mark.slow
@pytest.mark.parametrize("make", [decoder, cache, tokens, weights, body], ids=lambda f: f.__name__)
def test_a_long_program_computes_the_same(make: Callable[[int], Program]) -> None:
    rng = np.random.default_rng(0)
    p = make(LONGEST)
    arrays = [values(rng, i.value.type) for i in p.inputs]
    want, written = evaluate(p, arrays)
    given = [a.copy() for a in arrays]
    got = executor.compile(run(p))(*given)
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    at = {i.value: a for i, a in zip(p.inputs, given)}
    for (target, _), b in zip(p.writes, written):
        np.testing.assert_allclose(at[target], b, rtol=1e-4, atol=1e-5)


def values(rng: np.random.Generator, t: Type) -> np.ndarray:
    if t.dtype.kind == "f":
        return (0.2 * rng.standard_normal(t.shape)).astype("float32")
    return rng.integers(0, 2, t.shape).astype(t.dtype.numpy)


@pytest.mark.slow
def test_names_bound_in_one_function_are_known_in_another() -> None:
    """The index of a loop and an index read from memory, in a body that is several functions."""
    steps = 2 * LONGEST
    b, rows = Builder(), Value(Type(F32, (8, 2)), "rows")
    x, i = Value(Type(F32, (5, 2)), "x"), Value(Type(I64, (5,)), "i")
    inside, index, h = Builder(), Value(Type(I64), "t"), Value(Type(F32, (2,)), "h")
    table, own, xs = Value(rows.type, "rows"), Value(i.type, "i"), Value(x.type, "x")
    at = inside.dynamic_index(own, index, axis=0)
    y = h
    for k in range(steps):
        row = inside.dynamic_index(table if k % 2 else xs, at if k % 2 else index, axis=0)
        y = inside.tanh(inside.cumsum(inside.add(y, row), axis=0))
    start = b.full(value=0.0, shape=(2,), dtype=F32)
    last = Value(h.type, "last")
    ports = (Const(table, rows), Const(own, i), Const(xs, x), Carry(h, start, y, last))
    b.append(Scan(index, 5, ports, tuple(inside.ops)))
    p = program(b, [x, i, rows], [last])
    rng = np.random.default_rng(1)
    arrays = [
        rng.standard_normal((5, 2)).astype("float32"),
        np.array([3, 0, 7, 1, 2]),
        rng.standard_normal((8, 2)).astype("float32"),
    ]
    (want,), _ = evaluate(p, arrays)
    (got,) = executor.compile(run(p))(*arrays)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


# ---------------------------------------------------------------- the order of groups
def test_an_order_stays_one_whatever_is_moved() -> None:
    rng = random.Random(0)
    order, want = DynamicOrder(range(40)), list(range(40))
    for _ in range(3000):
        to = rng.randrange(len(want))
        moved = sorted(rng.sample(range(to + 1, len(want)), min(3, len(want) - to - 1)))
        things = [want[k] for k in moved]
        order.move(things, want[to])
        rest = [q for q in want if q not in things]
        want = rest[:to] + things + rest[to:]
        assert sorted(want, key=order.rank.__getitem__) == want


@pytest.mark.parametrize(("length", "fused"), [(100, 1), (600, 0)])
def test_a_join_is_refused_where_the_search_is_long(length: int, fused: int) -> None:
    """Two chains as long as each other: does the one that `%m` begins lead to the end of the one
    that `%m` is added to?"""
    b, x, w = Builder(), Value(X, "x"), Value(W, "w")
    m = b.tanh(x)
    one, two = m, x
    for _ in range(length):
        one, two = b.matmul(one, w), b.matmul(two, w)
    out = fuse(program(b, [x, w], [one, b.add(two, m)]))
    assert [n.name for n in out.ops].count("fused") == fused


# ---------------------------------------------------------------- kernels that are kept
def test_a_kernel_is_passed_the_views_of_its_own_launch() -> None:
    """Two operands may be one view in one launch, and two views in the next."""
    a, b, out = (whole(Buffer("input", k, 64), Type(F32, (16,))) for k in range(3))
    root = input_(0, F32) * input_(1, F32)
    for ins in [(a, a), (a, b), (b, b), (b, a)]:
        m = Map((16,), ins, (root,), (out,))
        _, actual = kernel_of(current(), LlvmModule(), m)
        assert [id(v) for v in actual if isinstance(v, View)] == [id(v) for v in (*ins, out)]
