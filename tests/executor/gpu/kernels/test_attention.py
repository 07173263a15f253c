"""Attention of few queries: a block keeps the scores of a query from its keys to its result, or of
some of the keys."""

from __future__ import annotations

import numpy as np
import pytest

import executor
from executor.gpu.driver import driver
from executor.gpu.kernels import split_keys
from executor.gpu.kernels.attention import Attention, attention_kernel
from executor.gpu.kernels.split_keys import Merge
from executor.gpu.schedule import OF_BLOCKS, Barrier, Repeat, parts
from ir.passes import run as run_passes
from scripts.bench.gpu_programs import ATTENTION, DECODE, fixed, inputs, reference
from tests.executor.gpu import emulator
from tests.executor.gpu.compiled import missing, on_gpu, optional
from tests.executor.gpu.test_programs import floats, parsed, same

pytestmark = pytest.mark.sampled(every=12)

#: queries of one batch, the keys of a head are turned; a mask is the summand of the product
MASKED = """
program masked(%q: f32[3,2,8] arg "q", %k: f32[3,8,T] arg "k", %v: f32[3,T,5] arg "v", \
%m: f32[3,2,T] arg "m") {
  %s = matmul(%q, %k)                            : f32[3,2,T]
  %a = add(%s, %m)                               : f32[3,2,T]
  %p = softmax(%a, axis=2)                       : f32[3,2,T]
  %y = matmul(%p, %v)                            : f32[3,2,5]
  return %y
}
"""
#: the weights are a result, too
SEEN = MASKED.replace("return %y", "return %y, %p")
#: no row is reduced; all batches have the same matrices; too many queries
PLAIN = MASKED.replace("softmax(%a, axis=2)", "tanh(%a)             ")
SHARED = MASKED.replace("f32[3,8,T]", "f32[8,T]").replace("f32[3,T,5]", "f32[T,5]")
MANY = MASKED.replace("[3,2,", "[3,9,")


@pytest.fixture(params=[8, 64])
def threads(request, monkeypatch):
    """With more of them, blocks share keys."""
    monkeypatch.setattr(split_keys, "LEAST_KEYS", {8: 128, 64: 3}[request.param])
    monkeypatch.setitem(driver().__dict__, "threads", request.param)
    monkeypatch.setenv("EMULATOR_THREADS", str(request.param))
    return request.param


def optimised(text):
    return run_passes(parsed(text))


def kernels(program) -> list[str]:
    stages = on_gpu(program).native.schedule.stages
    return [type(n.launch).__name__ for s in stages for n in parts(s.body)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_decoder_keeps_its_cache_in_one_launch(threads, seed, monkeypatch):
    """Blocks wait for each other twice in a step: before the cache is read, and before what each
    has found is merged and the cache grows."""
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    program = optimised(fixed(DECODE, "E", 12))
    run = on_gpu(program)
    for t in (0, 1, 11):
        given = inputs(program, {"S": t, "A": 2, "G": 3})
        for got, want in zip(run(*given), reference(program, given)):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    before = emulator.counted()
    run(*given)
    after = [b - a for a, b in zip(before, emulator.counted())]
    assert after[emulator.COOPERATIVE] == after[emulator.GRAPHS] == 1
    (loop,) = (
        n for s in run.native.schedule.stages for n in parts(s.body) if isinstance(n, Repeat)
    )
    assert sum(isinstance(n, Barrier) for n in parts((loop,))) == 2
    assert [type(n.launch) for n in loop.body if not isinstance(n, Barrier)][-1] is Merge


def test_masks_and_turned_keys(threads):
    """As the op after op on the CPU, where a row has nothing or no number, too."""
    kind = "f32" if threads > 8 else "f64"
    program = optimised(MASKED.replace("f32", kind))
    assert kernels(program) == ["Shared", "Merge"]
    run, plain = (executor.compile(program, backend=b) for b in ("gpu", "cpu"))
    for t in (0, 1, 13):
        given = [floats(3, 2, 8), floats(3, 8, t, seed=1), floats(3, t, 5, seed=2)]
        mask = floats(3, 2, t, seed=3)
        mask[0, 0], mask[0, 1, t // 2 :], mask[1, 0, :1], mask[1, 1] = -np.inf, -np.inf, np.nan, 16
        mask[2, 0, : t // 2], mask[2, 1, : t // 2] = -np.inf, -1e9
        given = [a.astype(kind.replace("f", "float")) for a in (*given, mask)]
        np.testing.assert_allclose(run(*given)[0], plain(*given)[0], rtol=1e-5, atol=1e-5)


def test_rows_that_shared_memory_has_no_room_for(monkeypatch):
    """Of blocks that share keys."""
    monkeypatch.setattr(split_keys, "SHARES", 4)
    program = optimised(fixed(ATTENTION, "E", 3))
    run = on_gpu(program)
    for t in (3000, 8001):
        given = inputs(program, {"S": t, "A": 1, "G": 2})
        np.testing.assert_allclose(run(*given)[0], reference(program, given)[0], 1e-4, 1e-6)
    assert "near ?" in run.native.source.text


@pytest.mark.parametrize(
    "text", [SEEN, PLAIN, SHARED, MANY], ids=["seen", "plain", "shared", "many"]
)
def test_other_products_are_left_to_other_families(text):
    assert "Attention" not in kernels(optimised(text))
    if text is SEEN:
        mask = floats(3, 2, 4)
        same(optimised(text), floats(3, 2, 8), floats(3, 8, 4), floats(3, 4, 5), mask)


def test_a_missing_barrier_in_the_kernel_is_found(monkeypatch):
    """Behind the scores, before a reduction that follows another one, before and behind the sums of
    the result."""
    monkeypatch.setattr(split_keys, "_may_share", lambda x: False)
    kernel = lambda x, threads: optional(attention_kernel(x, threads), 11)  # noqa: E731
    monkeypatch.setitem(OF_BLOCKS, Attention, kernel)
    monkeypatch.setitem(driver().__dict__, "threads", 64)
    monkeypatch.setenv("EMULATOR_THREADS", "64")
    program = optimised(fixed(ATTENTION, "E", 12))
    run = on_gpu(program)
    given = inputs(program, {"S": 70, "A": 1, "G": 2})
    want = reference(program, given)[0]

    def is_right(seed: int) -> bool:
        monkeypatch.setenv("EMULATOR_SEED", str(seed))
        return np.allclose(run(*given)[0], want, 1e-5, 1e-5)

    assert all(map(is_right, range(1, 9)))
    for barrier in (1, 5, 8, 9):
        with missing(barrier):
            assert not all(map(is_right, range(1, 9)))
